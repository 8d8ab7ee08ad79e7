#!/usr/bin/env python3
"""Writes a source of the tree with the lines that an example of strategies/ADDING.md adds to it.

    tests/adding/with_lines.py SOURCE DIFF OUTPUT

DIFF has pieces between empty lines: lines that begin with a blank are there, those that begin with + are added. Each piece has one
place in the source.
"""
import sys


def with_lines(source, diff):
    for piece in diff.strip("\n").split("\n\n"):
        lines = [line + "\n" for line in piece.split("\n")]
        before, after = ("".join(line[1:] for line in lines if line[0] in kept) for kept in (" ", " +"))
        if source.count(before) != 1:
            raise SystemExit(f"{source.count(before)} places for:\n{piece}")
        source = source.replace(before, after)
    return source


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as source, open(sys.argv[2], encoding="utf-8") as diff:
        text = with_lines(source.read(), diff.read())
    with open(sys.argv[3], "w", encoding="utf-8") as output:
        output.write(text)
