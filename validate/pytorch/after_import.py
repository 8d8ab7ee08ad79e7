#!/usr/bin/env python3
"""Runs files of tests one after another, each in a process of its own that begins with PyTorch imported, where it is
installed: importing takes longer than most of them. Exit code 1 where a file ends with another code than 0.

    PYTHONPATH=traces validate/pytorch/after_import.py FILE...
"""
import os
import runpy
import sys


def run(file):
    """What the file does as a program, in a process that is forked: its exit code, or minus the signal that ended it."""
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    sys.argv = [file, "-v"]
    runpy.run_path(file, run_name="__main__")
    sys.exit(0)


def main(*files):
    try:
        import torch  # noqa: F401
    except ModuleNotFoundError:
        pass  # the tests say so
    failed = []
    for file in files:
        print(f"== {file}", flush=True)
        code = run(file)
        if code:
            failed.append(f"{file} ends with {code}")
    print("\n".join(failed), file=sys.stderr)
    sys.exit(bool(failed))


if __name__ == "__main__":
    main(*sys.argv[1:])
