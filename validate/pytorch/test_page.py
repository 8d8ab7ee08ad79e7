#!/usr/bin/env python3
"""Runs docs/pytorch.md: its files and its commands, with fewer rows in a batch, in a folder of their own. Skipped where this Python has no
torch; files that import what it lacks beside that are left out with the commands that need them, and named.

  /usr/bin/python3 validate/pytorch/test_page.py build/plimsoll
"""

import importlib.util
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

import left_out
import turns

ROOT = pathlib.Path(__file__).resolve().parents[2]


def blocks(page, language):
    return [text for of, text in re.findall(r"^```(\w*)\n(.*?)^```", page, re.M | re.S) if of == language]


LIBRARIES = ("transformers", "accelerate", "peft", "pytorch_lightning")
IMPLIED = {"transformers": ("accelerate",)}  # by its Trainer

# What the commands print at the end of a line that says so, and the file that prints it.
HOLDS = {"train.py": "parameters as after plain training: True", "validate/pytorch/measure.py": "11 of 11 plans train as plain training does, bit for bit",
         "on_two.py": "parameters as after DistributedDataParallel: True",
         "loop.py": "resumed as without a stop: True", "with_trainer.py": "weights as after the plain Trainer: True",
         "with_lora.py": "LoRA's weights as after the plain Trainer: True", "with_lightning.py": "weights as after Lightning's own optimization: True"}


def made_shorter(page):
    """Its files and commands with batches of 16 in place of 64 and one timed round, which say the same in less time."""
    for long, short, least in ((r"(--batch |batch=|batch_size=|randn\(|randint\(10, \()64\b", r"\g<1>16", 10), ("--rounds 3", "--rounds 1", 1)):
        page, places = re.subn(long, short, page)
        if places < least:
            raise SystemExit(f"the page has '{long}' at {places} places")
    return page


def missing_for(texts):
    """{file: libraries that it needs and that are not here}; a file that imports another needs what that needs."""
    needs = {}
    for name, text in texts.items():  # in the order of the page
        imported = re.findall(r"^(?:import|from) (\w+)", text, re.M)
        libraries = [library for one in imported if one in LIBRARIES for library in (one, *IMPLIED.get(one, ()))]
        inherited = [library for one in imported for library in needs.get(f"{one}.py", ())]
        needs[name] = sorted({library for library in [*libraries, *inherited] if library in inherited or importlib.util.find_spec(library) is None})
    return {name: libraries for name, libraries in needs.items() if libraries}


def needs_one_of(words, names):
    return any(word.partition(":")[0] in names for word in words)


def exported_by(assignment, folder):
    """What `export NAME=PATH` sets there, before what is set already."""
    name, _, value = assignment.partition("=")
    return {name: os.pathsep.join(filter(None, (value.replace("$PWD", folder), os.environ.get(name))))}


def main(program):
    if 2 not in turns.chosen(range(turns.TURNS)):
        left_out.end(turns.WHY)
    if importlib.util.find_spec("torch") is None:
        left_out.end(f"{sys.executable} has no torch {left_out.TO_INSTALL}")
    page = made_shorter((ROOT / "docs" / "pytorch.md").read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        for name in ("traces", "validate", "platforms"):
            os.symlink(ROOT / name, os.path.join(folder, name))
        os.mkdir(os.path.join(folder, "build"))
        os.symlink(pathlib.Path(program).resolve(), os.path.join(folder, "build", "plimsoll"))
        texts = {re.match(r"# (\w+\.py)\n", text)[1]: text for text in blocks(page, "python")}
        for name, text in texts.items():
            pathlib.Path(folder, name).write_text(text, encoding="utf-8")
        environment = dict(os.environ) | {"PLIMSOLL_DATA": str(ROOT)}
        printed, missing, exported = "", missing_for(texts), {}
        unfit = set(missing)  # and what is made of them
        for command in (line for text in blocks(page, "") for line in text.splitlines() if line):
            words = shlex.split(command)
            if words[0] == "export":
                environment |= exported_by(words[1], folder)
                continue
            if needs_one_of(words, unfit):
                unfit |= {words[words.index("-o") + 1]} if "-o" in words else set()
                continue
            if words[0] == "/usr/bin/python3":
                words[0] = sys.executable
            question = tuple(words[:-1]) if words[1].endswith("export_pytorch.py") and words[-2] == "-o" else None
            if question in exported:  # the same trace by another name
                shutil.copy(os.path.join(folder, exported[question]), os.path.join(folder, words[-1]))
                continue
            exported |= {question: words[-1]} if question else {}
            done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                print(f"{command}\nexit code {done.returncode}\n{done.stdout}{done.stderr}", file=sys.stderr)
                return 1
            printed += done.stdout
    for name, libraries in missing.items():
        print(f"left out: {name} of docs/pytorch.md, for {sys.executable} has no {', '.join(libraries)}")
    for expected in (holds for name, holds in HOLDS.items() if name not in missing):
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
