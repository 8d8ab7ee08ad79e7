"""How a test program here says that it was not run: one line that begins with `skipped:`, and exit code 0 (tests/program/left_out.py reads it)."""

import pathlib
import sys

OURS = {"plimsoll", *(path.stem for path in pathlib.Path(__file__).parent.iterdir())}
TO_INSTALL = "(Debian: apt-get install python3-torch python3-torchvision, then /usr/bin/python3)"


def end(reason):
    print(f"skipped: {reason}")
    raise SystemExit(0)


def end_without(error, outcome=""):
    """Ends for want of the library that a ModuleNotFoundError names. `outcome`: what was not run; without it, the line says what to install.
    A module of our own that is not found is no reason: the error is raised again."""
    if error.name.partition(".")[0] in OURS:
        raise error
    end(f"{sys.executable} has no {error.name}" + (f": {outcome}" if outcome else f" {TO_INSTALL}"))
