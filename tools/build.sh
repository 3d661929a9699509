#!/usr/bin/env bash
# tools/build.sh PRESET PYTHON JOBS: configures the preset where it is not yet, or was for another Python, and builds it.
# `dev` is also linked into python/torch_mojo_backend, so that PYTHONPATH=python is the package just built.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=$1 python=$2 jobs=$3
build=build/$preset

if [ ! -e "$build/build.ninja" ] || ! grep -qxF "MOJO_PYTHON:FILEPATH=$python" "$build/CMakeCache.txt"; then
  cmake --preset "$preset" "-DMOJO_PYTHON=$python"
fi
cmake --build "$build" -j "$jobs"

if [ "$preset" = dev ]; then
  ln -sfn build/dev/compile_commands.json compile_commands.json
  from=$build/python/torch_mojo_backend to=python/torch_mojo_backend
  mkdir -p "$to/lib"
  for file in "$from"/*.so "$from"/lib/*.so "$from"/_build_info.py; do
    if [ -e "$file" ]; then ln -sfn "$(realpath "$file")" "$to/${file#"$from"/}"; fi
  done
fi
