#!/usr/bin/env python3
"""How long the tests of a run took, the longest first: programs by ctest's JUnit file, cases of half a second and more by what
Catch2 printed into LastTest.log.

    tests/program/slow.py BUILD_FOLDER
"""
import pathlib
import re
import signal
import sys
import xml.etree.ElementTree

import left_out

CASE = re.compile(r"^([0-9.]+) s: (.*)$", re.M)


def table(head, rows):
    rows = sorted(rows, reverse=True)
    return [f"{head}, {sum(seconds for seconds, _ in rows):.1f} s together:"] + [f"{seconds:9.1f} s  {name}" for seconds, name in rows]


def times(folder):
    """Of the folder's last run: programs and cases, each with its seconds."""
    testing = pathlib.Path(folder) / "Testing"
    root = xml.etree.ElementTree.parse(testing / "durations.xml").getroot()
    programs = [(float(case.get("time")), case.get("name")) for case in root.iter("testcase")]
    cases = [(float(seconds), f"{program}: {name}") for program, text in left_out.parts(testing / "Temporary/LastTest.log")
             for seconds, name in CASE.findall(text)]
    return programs, cases


def main(folder):
    programs, cases = times(folder)
    print("\n".join(table("programs", programs) + table("cases of half a second and more", cases)))


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # as other tools, it ends without a word where nobody reads on
    main(*sys.argv[1:])
