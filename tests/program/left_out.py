#!/usr/bin/env python3
"""What a run of tests left out, and why, from the logs of its programs: unittest's in words (-v), ctest's LastTest.log, and lines
that begin with `skipped:` (or `skipped, nothing was tested:`) for all of a program.

    tests/program/left_out.py LOG...        # a program's log is named after it; ctest's has one part a test
"""
import collections
import pathlib
import re
import signal
import sys

CASE = re.compile(r"skipped (['\"])(.*)\1$")  # behind the test's name, or what the test has printed
ALL = re.compile(r"\s*skipped(?:, nothing was tested)?: (.*)")
PART = re.compile(r"^\d+/\d+ Testing: (.*)$", re.M)


def reasons(text):
    """How many tests were left out for each reason, in order; 0: a program, or part of one, that says so itself."""
    found = collections.Counter()
    for line in text.splitlines():
        if case := CASE.search(line):
            found[case[2]] += 1
        elif whole := ALL.match(line):
            found[whole[1]] += 0
    return found


def parts(log):
    """Pairs of a program and what it printed."""
    text = log.read_text(encoding="utf-8", errors="replace")
    if log.name != "LastTest.log":
        return [(log.stem, text)]
    first, *rest = PART.split(text)
    return list(zip(rest[::2], rest[1::2]))


def main(*logs):
    lines = []
    for log in map(pathlib.Path, logs):
        for program, text in sorted(parts(log)):
            for reason, cases in reasons(text).items():
                tests = f"{cases} test{'s' if cases > 1 else ''}, " if cases else ""
                lines.append(f"  {program}: {tests}{reason}")
    print("\n".join(lines) if lines else "  nothing")


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # as other tools, it ends without a word where nobody reads on
    main(*sys.argv[1:])
