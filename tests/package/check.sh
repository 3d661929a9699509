#!/usr/bin/env bash
# tests/package/check.sh CMAKE BUILD COMPILER WORK: installs BUILD's package for C++ programs below WORK, and configures,
# builds and runs the consumer and the examples with it, from outside the tree. The package's headers are no system headers
# there: what they instantiate has to stand the consumer's warnings.
# Exit status 77: there is no such compiler.
set -euo pipefail
cmake=$1 build=$2 compiler=$3 work=$4
here=$(cd "$(dirname "$0")" && pwd)
if ! command -v "$compiler" >/dev/null; then
  echo "skipped: no compiler $compiler"
  exit 77
fi

rm -rf "$work"
mkdir -p "$work"
"$cmake" --install "$build" --component cpp --prefix "$work/first" >"$work/install.log"
mv "$work/first" "$work/prefix"  # an installation can be moved
cp -r "$here/consumer" "$here/../../examples/cpp" "$work/"

# A header that needs another to be included first would fail here.
for header in $(cd "$work/prefix/include" && find mojo -name '*.h' | LC_ALL=C sort); do
  echo "#include <$header>"
done | while read -r line; do
  echo "$line" >"$work/header.cpp"
  echo "$line" >>"$work/header.cpp"  # and twice
  "$compiler" -std=c++20 -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror -fsyntax-only -I"$work/prefix/include" \
    "$work/header.cpp"
done

for project in consumer cpp; do
  "$cmake" -S "$work/$project" -B "$work/build-$project" -DCMAKE_BUILD_TYPE=Debug "-DCMAKE_CXX_COMPILER=$compiler" \
    -DCMAKE_NO_SYSTEM_FROM_IMPORTED=ON "-DCMAKE_PREFIX_PATH=$work/prefix" >"$work/configure-$project.log"
  "$cmake" --build "$work/build-$project"
  for program in "$work/build-$project"/consumer "$work/build-$project"/example_*; do
    [ -x "$program" ] && [ ! -d "$program" ] || continue
    echo "== ${program##*/}"
    "$program"
  done
done
