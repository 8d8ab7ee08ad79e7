#!/usr/bin/env python3
"""Runs docs/pytorch.md: its files and its commands, in a folder of their own. Skipped where this Python has no torch.

  /usr/bin/python3 validate/pytorch/test_page.py build/plimsoll
"""

import importlib.util
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]


def blocks(page, language):
    return [text for of, text in re.findall(r"^```(\w*)\n(.*?)^```", page, re.M | re.S) if of == language]


def main(program):
    if importlib.util.find_spec("torch") is None:
        print(f"skipped: {sys.executable} has no torch (Debian: apt-get install python3-torch, then /usr/bin/python3)")
        return 0
    page = (ROOT / "docs" / "pytorch.md").read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        for name in ("traces", "validate", "platforms"):
            os.symlink(ROOT / name, os.path.join(folder, name))
        os.mkdir(os.path.join(folder, "build"))
        os.symlink(pathlib.Path(program).resolve(), os.path.join(folder, "build", "plimsoll"))
        for text in blocks(page, "python"):
            name = re.match(r"# (\w+\.py)\n", text)[1]
            pathlib.Path(folder, name).write_text(text, encoding="utf-8")
        environment = dict(os.environ) | {"PLIMSOLL_DATA": str(ROOT)}
        printed = ""
        for command in (line for text in blocks(page, "") for line in text.splitlines() if line):
            words = shlex.split(command)
            if words[0] == "/usr/bin/python3":
                words[0] = sys.executable
            done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                print(f"{command}\nexit code {done.returncode}\n{done.stdout}{done.stderr}", file=sys.stderr)
                return 1
            printed += done.stdout
    for expected in ("parameters as after plain training: True", "11 of 11 plans train as plain training does, bit for bit"):
        if expected not in printed:
            print(f"the page's commands do not print '{expected}', but\n{printed}", file=sys.stderr)
            return 1
    losses = [float(loss) for loss in re.findall(r"^step \d: loss ([\d.]+)$", printed, re.M)]
    if len(losses) != 5 or not losses[-1] < losses[0]:
        print(f"five falling losses are expected, found {losses}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
