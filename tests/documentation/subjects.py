#!/usr/bin/env python3
"""That the subjects of commits fit into a line of `git log`: at most 72 characters, since the commit from which on that is a rule.

    tests/documentation/subjects.py [COMMIT]
"""
import subprocess
import sys

SINCE = "5a1b913f3e1b333c6b3232af84210fadc611ed5b"
MOST = 72


def git(*words):
    return subprocess.run(["git", *words], capture_output=True, text=True)


def long_subjects(since):
    """Lines that name the commits behind `since` whose subjects are too long; behind a history that is cut off, of all that is there."""
    known = git("merge-base", "--is-ancestor", since, "HEAD").returncode == 0
    log = git("log", "--no-merges", "--format=%h %s", f"{since}..HEAD" if known else "HEAD")
    if log.returncode:
        raise SystemExit(log.stderr)
    lines = [line.split(" ", 1) for line in log.stdout.splitlines()]
    return [f"{name}: {len(subject)} characters: {subject}" for name, subject in lines if len(subject) > MOST]


if __name__ == "__main__":
    found = long_subjects(*(sys.argv[1:] or [SINCE]))
    if found:
        raise SystemExit("\n".join([f"subjects of commits have at most {MOST} characters:", *found]))
