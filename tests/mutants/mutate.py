#!/usr/bin/env python3
"""Plants the bugs of bugs.txt one at a time in a copy of the sources and says which of them no test notices.

    ./dev mutate [NAME...]           all, or those whose names contain a word
    ./dev mutate --quick [NAME...]   only by the tests that each bug names; without a name 40 of all, drawn by lot
    ./dev mutate --quick --seed 7    the 40 of an earlier lot, whose seed it has printed
    ./dev mutate --check             only whether every bug still has its place in the sources, and its tests are there

A bug is noticed where a test fails, crashes, or takes more than ten minutes. First the tests that it names are run;
one that they do not notice is held against all test programs. Exit code 1: fewer than 95 % are noticed, or one has no
place in the sources any more or does not compile. Bugs in Python are held against the scripts that they name alone, and
need nothing built. Needs build-mutate/ to itself; the sources are never touched.
"""
import argparse
import os
import pathlib
import random
import secrets
import shutil
import subprocess
import sys
import time

root = pathlib.Path(__file__).resolve().parents[2]
work = root / "build-mutate"
tree = work / "tree"
longest_s = 600
programs = ["core", "io", "engine", "memory", "traces", "platforms", "placement", "hybrid", "validate", "experiments", "conformance",
            "strategies"]
of_cuda = ["fake_cuda"]  # built where nvcc is
enough = 0.95
lot = 40


class Bug:
    def __init__(self, name, what, line):
        self.name, self.what, self.line = name, what, line
        self.file, self.tests, self.old, self.new, self.survives = "", [], [], [], ""

    def place(self, text):
        """The text with the bug in it; an error where the old lines do not stand there exactly once."""
        old = "".join(line + "\n" for line in self.old)
        new = "".join(line + "\n" for line in self.new)
        count = text.count(old)
        if count != 1:
            raise ValueError(f"bugs.txt:{self.line}: {self.name}: {self.file} has its lines {count} times, not once")
        return text.replace(old, new)


def read_bugs():
    bugs = []
    path = pathlib.Path(__file__).with_name("bugs.txt")
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if line.startswith("#") or not line.strip():
            continue
        if line.startswith("== "):
            name, what = line[3:].split(": ", 1)
            bugs.append(Bug(name, what, number))
        elif line.startswith("in "):
            bugs[-1].file = line[3:]
        elif line.startswith("tests "):
            bugs[-1].tests = line[6:].split(" | ")
        elif line.startswith("- "):
            bugs[-1].old.append(line[2:])
        elif line.startswith("+ "):
            bugs[-1].new.append(line[2:])
        elif line.startswith("survives because "):
            bugs[-1].survives = line[len("survives because "):]
        else:
            sys.exit(f"bugs.txt:{number}: not a line of a bug: {line}")
    names = [bug.name for bug in bugs]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        sys.exit(f"bugs.txt: named twice: {', '.join(sorted(twice))}")
    return bugs


def check(bugs):
    """Messages of the bugs that have no place in the sources, or name tests that are not there."""
    messages = []
    for bug in bugs:
        try:
            bug.place((root / bug.file).read_text())
        except (OSError, ValueError) as error:
            messages.append(str(error))
        for program in [test.split()[0] for test in bug.tests]:
            if program not in programs + of_cuda and not (root / program).is_file():
                messages.append(f"bugs.txt:{bug.line}: {bug.name}: no test program '{program}'")
    return messages


def drawn(bugs, seed):
    return random.Random(seed).sample(bugs, min(lot, len(bugs)))


def copy_sources():
    """Tracked and new files as they are now; the dates of those that are the same stay, and with them what is built."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=root, check=True,
                            capture_output=True).stdout.decode().split("\0")
    files = {name for name in listed if name and ((root / name).is_file() or (root / name).is_symlink())}
    for name in files:
        source, copy = root / name, tree / name
        if source.is_symlink():
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.unlink(missing_ok=True)
            copy.symlink_to(os.readlink(source))
        elif copy.is_file() and copy.read_bytes() == source.read_bytes():
            continue
        else:
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, copy)
            copy.touch()
    for copy in [path for path in tree.rglob("*") if path.is_file()]:
        name = str(copy.relative_to(tree))
        if name not in files and not name.startswith(("build/", "out/")):
            copy.unlink()


def build(targets):
    """None, or the compiler's last words."""
    made = subprocess.run(["cmake", "--build", "build", "--target", *targets], cwd=tree, capture_output=True, text=True)
    return None if made.returncode == 0 else made.stdout[-1500:]


def targets_of(test):
    """What the test needs built."""
    program = test.split()[0]
    if program.endswith(".py"):
        return ["plimsoll"] if "build/plimsoll" in test else []
    return [f"test_{program}"] + (["plimsoll"] if program == "experiments" else [])


modules = os.pathsep.join(str(tree / folder) for folder in ("tests/program", "experiments", "experiments/papers"))  # as tests/CMakeLists.txt has it


def notices(test):
    """Whether the test program, or those of its cases that have the tag or name, fails."""
    program, _, cases = test.partition(" ")
    command = [f"build/tests/test_{program}", "--abort"] + ([cases] if cases else [])
    if program.endswith(".py"):
        command = ["/usr/bin/python3", program, "--failfast", *cases.split()]
    try:
        ran = subprocess.run(command, cwd=tree, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=longest_s,
                             env={**os.environ, "PLIMSOLL_TESTS": "all", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": modules})
    except subprocess.TimeoutExpired:
        return True
    return ran.returncode != 0


def who_notices(bug, quick):
    """The first test that notices, None where none does."""
    for test in bug.tests + ([] if quick or bug.file.endswith((".py", ".sh")) else [p for p in programs if p not in bug.tests]):
        failed = build(targets_of(test)) if targets_of(test) else None
        if failed:
            raise ValueError(f"bugs.txt:{bug.line}: {bug.name} does not compile:\n{failed}")
        if notices(test):
            return test
    return None


def try_bug(bug, quick):
    path = tree / bug.file
    right = path.read_text()
    path.write_text(bug.place(right))
    try:
        return who_notices(bug, quick)
    finally:
        path.write_text(right)


def asked():
    reader = argparse.ArgumentParser(prog="./dev mutate", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    reader.add_argument("--quick", action="store_true")
    reader.add_argument("--check", action="store_true")
    reader.add_argument("--seed", type=int)
    reader.add_argument("names", nargs="*")
    return reader.parse_args()


def chosen_of(bugs, options):
    if not options.names and options.quick:
        seed = secrets.randbelow(10**6) if options.seed is None else options.seed
        print(f"{lot} of {len(bugs)} bugs, by --seed {seed}", flush=True)
        bugs = drawn(bugs, seed)
    chosen = [bug for bug in bugs if not options.names or any(word in bug.name for word in options.names)]
    if not chosen:
        sys.exit(f"no bug's name contains {' or '.join(options.names)}")
    return sorted(chosen, key=lambda bug: bug.file)  # of two in one file only that one is compiled


def without_cuda(chosen):
    """Those that a build without nvcc has the tests of."""
    if shutil.which("nvcc"):
        return chosen
    left_out = [bug for bug in chosen if any(test.split()[0] in of_cuda for test in bug.tests)]
    if left_out:
        print(f"{len(left_out)} bugs left out: no nvcc on the PATH", flush=True)
    return [bug for bug in chosen if bug not in left_out]


def build_what_is_needed(chosen, quick):
    """As the sources are; bugs in Python need nothing."""
    others = [] if quick else ["plimsoll"] + ["test_" + program for program in programs]
    needed = {target for bug in chosen for test in bug.tests for target in targets_of(test)}
    if not all(bug.file.endswith((".py", ".sh")) for bug in chosen):
        needed.update(others)
    if not needed:
        return
    subprocess.run(["cmake", "--preset", "release", "-DPLIMSOLL_BENCH=OFF"], cwd=tree, check=True,
                   stdout=subprocess.DEVNULL)
    print("building the sources as they are", flush=True)
    failed = build(sorted(needed))
    if failed:
        sys.exit(failed)


def main():
    options = asked()
    quick, bugs = options.quick, read_bugs()
    misplaced = check(bugs)
    for message in misplaced:
        print(message)
    if options.check:
        print(f"{len(bugs) - len(misplaced)} of {len(bugs)} bugs have their place")
    if options.check or misplaced:
        sys.exit(1 if misplaced else 0)
    chosen = without_cuda(chosen_of(bugs, options))
    copy_sources()
    build_what_is_needed(chosen, quick)
    began, survivors, broken = time.monotonic(), [], []
    for number, bug in enumerate(chosen, 1):
        try:
            by = try_bug(bug, quick)
        except ValueError as error:
            print(error, flush=True)
            broken.append(bug)
            continue
        if by is None:
            survivors.append(bug)
        minutes = (time.monotonic() - began) / 60
        print(f"{number:3}/{len(chosen)}  {minutes:5.1f} min  {'SURVIVES' if by is None else 'noticed by ' + by:32}  "
              f"{bug.name}: {bug.what}", flush=True)
    counted = [bug for bug in chosen if not bug.survives and bug not in broken]
    unexplained = [bug for bug in survivors if not bug.survives]
    print(f"{len(counted) - len(unexplained)} of {len(counted)} bugs noticed")
    for bug in survivors:
        print(f"survives: {bug.name} ({bug.file}): {bug.survives or 'not explained'}")
    sys.exit(1 if broken or len(unexplained) > (1 - enough) * len(counted) else 0)


if __name__ == "__main__":
    main()
