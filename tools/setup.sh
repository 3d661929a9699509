#!/usr/bin/env bash
# Installs what is missing, and only that: a run in which nothing is missing calls neither apt nor pip.
#
#   tools/setup.sh system GROUP...   system packages; groups: build test check bench
#   tools/setup.sh python GROUP...   the virtual environment $VENV with torch and tools/requirements/GROUP.txt
#
# Where apt or the right to use it is not there, prints what is missing and stops.
# Environment: VENV, PYTHON, TORCH, TORCH_INDEX, PIP_ARGS (see `make help`). TORCH_ASKED: exactly TORCH, not just any
# torch that will do.
set -euo pipefail
cd "$(dirname "$0")/.."

VENV=${VENV:-.venv}
PYTHON=${PYTHON:-python3}
TORCH=${TORCH:-torch==2.13.0}
TORCH_INDEX=${TORCH_INDEX:-}
PIP_ARGS=${PIP_ARGS:-}

say() { printf '== %s\n' "$*" >&2; }

# The Python that will import us: the environment's where there is one.
python_now() { if [ -x "$VENV/bin/python" ]; then echo "$VENV/bin/python"; else command -v "$PYTHON" || true; fi; }

cxx_now() { command -v "${CXX:-c++}" || command -v g++ || true; }

has_header() {
  local cxx
  cxx=$(cxx_now)
  [ -n "$cxx" ] && echo "#include <$1>" | "$cxx" -std=c++20 -x c++ -E -o /dev/null - >/dev/null 2>&1
}

# What each group needs: one test and the Debian package(s) that provide it, in a line.
cmake_ok() {
  command -v cmake >/dev/null && [ "$(printf '%s\n' 3.24 "$(cmake --version | awk 'NR==1 {print $3}')" | sort -V | head -1)" = 3.24 ]
}
python_ok() { [ -n "$(python_now)" ] && "$(python_now)" -c 'import sys; sys.exit(sys.version_info < (3, 10))'; }
venv_ok() { [ -x "$VENV/bin/python" ] || { python_ok && "$PYTHON" -c 'import venv, ensurepip' 2>/dev/null; }; }
python_dev_ok() {
  python_ok && "$(python_now)" -c 'import os, sys, sysconfig
sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))'
}
needs() {
  case $1 in
    build)
      [ -n "$(cxx_now)" ] || echo "g++"
      cmake_ok || echo "cmake"
      command -v ninja >/dev/null || echo "ninja-build"
      command -v git >/dev/null || echo "git"
      python_ok || echo "python3"
      venv_ok || echo "python3-venv"
      python_dev_ok || echo "python3-dev"
      ;;
    test) has_header gtest/gtest.h || echo "libgtest-dev"; has_header gmock/gmock.h || echo "libgmock-dev" ;;
    check)
      command -v clang-tidy >/dev/null || echo "clang-tidy"
      ;;
    bench) has_header benchmark/benchmark.h || echo "libbenchmark-dev" ;;
    *) say "unknown group $1"; exit 2 ;;
  esac
}

system() {
  local missing=() group
  for group in "$@"; do mapfile -t -O "${#missing[@]}" missing < <(needs "$group"); done
  [ ${#missing[@]} -gt 0 ] || return 0
  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    if command -v sudo >/dev/null; then as_root=(sudo); else as_root=(false); fi
  fi
  if ! command -v apt-get >/dev/null || [ "${as_root[0]:-}" = false ]; then
    say "missing, and not installed because there is no apt here or no right to use it. The Debian names:"
    printf '  %s\n' "${missing[@]}" >&2
    say "install what provides them (C++20: GCC 11 or Clang 14; CMake 3.24; Python 3.10 with venv and headers), then try again"
    exit 1
  fi
  # Not needed, but each later build is many times faster with it.
  command -v ccache >/dev/null || missing+=(ccache)
  say "installing ${missing[*]}"
  "${as_root[@]}" apt-get update -q </dev/null >&2
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}" </dev/null >&2
  local still=()
  for group in "$@"; do mapfile -t -O "${#still[@]}" still < <(needs "$group"); done
  if [ ${#still[@]} -gt 0 ]; then
    say "still missing after the installation: ${still[*]}"
    exit 1
  fi
}

python() {
  if [ ! -x "$VENV/bin/python" ]; then
    say "making $VENV"
    "$PYTHON" -m venv "$VENV"
  fi
  local python="$VENV/bin/python" missing=() files=() group
  for group in "$@"; do files+=("tools/requirements/$group.txt"); done
  # torch comes from an index of its own where one is named, the rest from pip's.
  local torch_to_find=$TORCH
  [ -n "${TORCH_ASKED:-}" ] || torch_to_find='torch>=2.11'
  if [ -n "$("$python" tools/check_requirements.py "$torch_to_find")" ]; then
    say "installing $TORCH"
    # shellcheck disable=SC2086  # PIP_ARGS is several words
    "$python" -m pip install -q --disable-pip-version-check $PIP_ARGS ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} "$TORCH" </dev/null
  fi
  mapfile -t missing < <("$python" tools/check_requirements.py "${files[@]}")
  if [ ${#missing[@]} -gt 0 ]; then
    say "installing ${missing[*]}"
    # shellcheck disable=SC2086
    "$python" -m pip install -q --disable-pip-version-check $PIP_ARGS "${missing[@]}" </dev/null
  fi
}

case ${1:-} in
  system | python) "$@" ;;
  *) sed -n '2,10s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
