#!/usr/bin/env python3
"""Doxygen's input filter: makes documentation of a header's plain comments. Other files pass as they are.

The comment at the top is of the file, one ahead of a declaration is of that, one behind it of what stands before it.
"""

import re
import sys

LINE = re.compile(r"^(\s*)//\s?(.*)$")
BEHIND = re.compile(r"^(.*[;,{}])(\s+)//\s(.*)$")
OPENING = re.compile(r"^(What it is|Ordering|Threads|Errors):\s*(.*)$")
INLINE = re.compile(r"(?<=\. )(Ordering|Threads|Errors): ")


def escape(text: str) -> str:
    """Text for a person, in which Doxygen is to find no commands, no tags and no Markdown."""
    return re.sub(r"([\\@<>#*_|])", r"\\\1", text).replace("`", "'")


def filtered(lines: list[str]) -> list[str]:
    out: list[str] = []
    opening = True
    for number, line in enumerate(lines):
        comment = LINE.match(line)
        if opening and comment is None:
            opening = False
        if opening and comment is not None:
            text = INLINE.sub(lambda m: f"\n/// @par {m.group(1)}\n/// ", escape(comment.group(2)))
            head = OPENING.match(text)
            if number == 0:
                out.append("/// @file")
            if head is not None and head.group(1) == "What it is":
                out.append(f"/// @brief {head.group(2)}")
            elif head is not None:
                out += [f"/// @par {head.group(1)}", f"/// {head.group(2)}"]
            else:
                out.append(f"/// {text.strip()}")
        elif comment is not None:
            out.append(f"{comment.group(1)}/// {escape(comment.group(2))}")
        elif (behind := BEHIND.match(line)) is not None and "NOLINT" not in line:
            out.append(f"{behind.group(1)}{behind.group(2)}///< {escape(behind.group(3))}")
        else:
            out.append(line)
    return out


def main(path: str) -> int:
    with open(path, encoding="utf-8") as file:
        text = file.read()
    print("\n".join(filtered(text.split("\n"))) if path.endswith(".h") else text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
