#!/usr/bin/env python3
"""Compiles the lines of cases.txt: all the right ones together, each wrong one alone, which must fail with its text.

check.py COMPILER INCLUDE_FOLDER
"""

import pathlib
import subprocess
import sys
import tempfile

PROGRAM = """\
#include <mojo/mojo.h>

#include <cstdint>
#include <utility>
#include <vector>

void test(mojo::DeviceContext ctx, mojo::DeviceStream s,
          const mojo::DeviceFunction<void(mojo::Buffer<const float>, mojo::Buffer<float>, float, std::uint32_t)>& f,
          mojo::DeviceBuffer<float>& x, mojo::DeviceBuffer<float>& y, const mojo::DeviceBuffer<float>& k,
          mojo::DeviceBuffer<double>& d, std::vector<float>& v, const std::vector<float>& kv,
          mojo::PinnedBuffer<float>& p, mojo::DeviceEvent& e, std::uint32_t n, int i, std::uint64_t big) {
  const mojo::LaunchConfig config{.grid = {1}, .block = {1}};
  %s;
}
"""


def compile_line(compiler: str, include: str, line: str) -> tuple[bool, str]:
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / "case.cpp"
        source.write_text(PROGRAM % line)
        command = [
            compiler,
            "-std=c++20",
            "-fsyntax-only",
            "-Wall",
            "-Wextra",
            "-Wno-unused-parameter",
            "-Wno-unused-variable",
            f"-I{include}",
        ]
        done = subprocess.run([*command, "-Werror", str(source)], capture_output=True, text=True, timeout=120)
    return done.returncode == 0, done.stderr


def main(compiler: str, include: str) -> int:
    cases = pathlib.Path(__file__).with_name("cases.txt").read_text().splitlines()
    rows = [[part.strip() for part in line.split(" | ")] for line in cases if line.strip() and not line.startswith("#")]
    every_right_line = "".join(f"{{ {right}; }}\n  " for _, right, _, _ in rows)
    compiles, said = compile_line(compiler, include, every_right_line)
    if not compiles:
        print(f"the lines that should compile do not:\n{said}")
        return 1
    failed = 0
    for name, _, wrong, text in rows:
        compiles, said = compile_line(compiler, include, wrong)
        if compiles or text not in said:
            why = "compiles" if compiles else f"does not say `{text}`"
            print(f"{name}: `{wrong}` {why}:\n{said[:4000]}")
            failed += 1
    print(f"{len(rows)} cases, {failed} failed")
    return 1 if failed or len(rows) < 20 else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
