#!/usr/bin/env bash
# tools/exports.sh LIBRARY LIST [--update]: compares the symbols that LIBRARY exports with the tracked LIST.
#
# A difference is a change of the public binary interface: mark what should not leave as hidden, or update the list and say
# so in the commit. Compiled with other options, inline functions may or may not be emitted; they are not exported.
set -euo pipefail
library=$1 list=$2
exported() { nm -D -C --defined-only "$library" | awk '$2 != "A" {sub(/^[^ ]+ [A-Za-z] /, ""); print}' | LC_ALL=C sort -u; }
if [ "${3:-}" = --update ]; then
  exported >"$list"
  echo "$list: $(wc -l <"$list") symbols"
elif ! diff -u "$list" <(exported); then
  echo "the exports of $library are not those of $list; if they are meant to be: $0 $library $list --update" >&2
  exit 1
fi
