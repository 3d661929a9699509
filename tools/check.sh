#!/usr/bin/env bash
# tools/check.sh JOBS: everything that `make check` checks. Runs all of it and fails at the end if any failed, so that one
# run shows all there is to mend.
set -uo pipefail
cd "$(dirname "$0")/.."
jobs=${1:-2}
failed=()

step() {
  local name=$1
  shift
  if "$@"; then echo "ok      $name"; else echo "FAILED  $name"; failed+=("$name"); fi
}

sources() { git ls-files -co --exclude-standard -- "$@" | while read -r file; do [ -e "$file" ] && echo "$file"; done; }

clang_format() { sources '*.h' '*.cpp' | xargs -r clang-format --dry-run -Werror; }
ruff_format() { ruff format --check -q . || { ruff format --diff -q . 2>&1 | head -60; return 1; }; }

step "layers" python tools/check_layers.py
step "clang-format" clang_format
step "ruff" ruff check -q .
step "ruff format" ruff_format
step "mypy" mypy --no-error-summary
step "clang-tidy" python tools/tidy.py --jobs "$jobs"
step "contract" python tools/contract.py --check

if [ ${#failed[@]} -gt 0 ]; then
  echo "make check failed: ${failed[*]} (make format mends the formatting)"
  exit 1
fi
