#!/usr/bin/env python3
"""Runs what the documentation tells its readers to type: every command of every code block of every Markdown file, of the
pages of `plimsoll help`, and of the demo's last words; and what can be run of the code inside sentences, all of which is held
against the program's parser (prose.py).

    tests/documentation/commands.py PROGRAM           # all but those that set_aside.txt names
    tests/documentation/commands.py PROGRAM --slow    # those that it calls slow

Each block is run in order in a copy of the tree that is as it was before, with no `out`. A line that begins with `$ ` shows what it prints, which
is compared, times that were taken apart. Fast commands need nothing that a bare machine has not: PyTorch, torchvision and
scikit-learn are hidden from them. set_aside.txt has a line a command that is not run with the others, and its reason;
a line in it that no document has any more is an error, as is a command that ends with another exit code than 0. Those that it
calls seldom run in one of eleven turns each (PLIMSOLL_TURN), and without a turn.
"""
import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import tempfile

import prose

ROOT = pathlib.Path(__file__).resolve().parents[2]
COMMANDS = ("./dev", "plimsoll ", "build/", "/usr/bin/python3 ", "python3 ", "apt-get ", "compute-sanitizer ", "eval ", "cmake ", "ctest ")
CPU_LIMIT_S = 60.0
OPTIONAL = ("torch", "torchvision", "sklearn")
PROCESSOR = ("DNNL_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY")  # of which ./dev lint allows less
TURNS = 11
DEMO_REPORT = "plimsoll report out/demo"  # which prints what the page of experiments shows
ELAPSED = re.compile(r"[\d.]+ (ns|us|ms|s)\b(?=.*\bsimulated in|\s*$)|(?<=simulated in)\s+[\d.]+ \w+")


def without_comment(line):
    return re.split(r"\s{2,}#\s", line)[0].strip()


def markdown_blocks(text):
    """The fenced blocks without a language, or of a shell."""
    for language, body in re.findall(r"^```(\w*)\n(.*?)^```", text, re.M | re.S):
        if language in ("", "sh", "bash", "console"):
            yield body.splitlines()


def commands_of(lines):
    """Pairs of a command and what it is said to print (None: nothing is said)."""
    found, shown = [], None
    for line in lines:
        if line.startswith("$ "):
            shown = []
            found.append((line[2:].strip(), shown))
        elif shown is not None:
            shown.append(line)
        elif line.strip().startswith(COMMANDS):
            found.append((without_comment(line), None))
        elif found and line.strip():
            raise SystemExit(f"a block of commands has a line that is none: {line!r}")
    return found


def help_pages(program):
    """By command, the lines of its page that are commands."""
    def page(*words):
        return subprocess.run([program, "help", *words], capture_output=True, text=True, check=True).stdout
    front = page()
    names = re.findall(r"^  ([a-z][a-z-]*) {2,}\S", front.split("Subcommands:")[1], re.M)
    for name in names:
        lines = page(name).splitlines()
        yield f"plimsoll help {name}", [line for line in lines if line.startswith(("  plimsoll ", "  eval "))]


def last_words(dev):
    """What ./dev demo tells its readers to try next."""
    return [line for line in dev.split("Try next:")[1].split("TXT")[0].splitlines() if line.strip()]


def files(pattern):
    """Pairs of a file's place in the tree and its text."""
    for file in sorted(ROOT.rglob(pattern)):
        place = file.relative_to(ROOT)
        if not place.parts[0].startswith(("build", "out", ".")):
            yield place, file.read_text()


def mentions():
    """Pairs of a place and the code inside its sentences, and inside the comments of experiments."""
    for place, text in files("*.md"):
        yield place, prose.codes(text)
    for place, text in files("*.yaml"):
        yield place, prose.comment_lines(text)


def all_blocks(program):
    for place, text in files("*.md"):
        for number, lines in enumerate(markdown_blocks(text), 1):
            yield f"{place}, block {number}", commands_of(lines)
    for place, lines in help_pages(program):
        yield place, commands_of(lines)
    shown = {c for place, text in files("*.md") for lines in markdown_blocks(text) for c, _ in commands_of(lines)}
    for place, text in files("*.md"):
        alone = [c for c in prose.codes(text) if prose.can_be_run(c) and c not in shown]
        yield f"{place}, in its sentences", [(c, None) for c in alone]
    yield "./dev demo", commands_of(last_words((ROOT / "dev").read_text()))


def demo_rows():
    """The rows of the demo's table that the page of experiments shows."""
    block = next(b for b in markdown_blocks((ROOT / "experiments/README.md").read_text()) if b[0].startswith("resnet50_b8_cpu on"))
    return [line for line in block if line.strip()]


def set_aside():
    """By command: (`slow`, `elsewhere` or `seldom`, reason); without those whose turn it is."""
    table, turn, seldom = {}, os.environ.get("PLIMSOLL_TURN"), 0
    if os.environ.get("PLIMSOLL_TESTS") == "all":
        turn = None
    for line in (ROOT / "tests/documentation/set_aside.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            kind, command, reason = (part.strip() for part in line.split(" :: "))
            assert kind in ("slow", "elsewhere", "seldom") and reason and command not in table, line
            table[command] = (kind, reason)
            if kind == "seldom":
                if turn is None or int(turn) % TURNS == seldom % TURNS:
                    table[command] = ("fast", reason)
                seldom += 1
    return table


def masked(text):
    """Lines without the times that planning and simulating took."""
    return [ELAPSED.sub("TIME", re.sub(r" +", " ", line)).rstrip() if "in" in line.split()[:2] else line.rstrip()
            for line in text.strip().splitlines()]


class Tree:
    """A copy of the tree, made once, and put back to what it was between blocks: what commands made goes, and what they changed or removed is
    copied anew."""

    def __init__(self, folder, program):
        self.folder, self.program = folder, program
        ignore = shutil.ignore_patterns("build*", "out", ".git", "__pycache__", "*.unfinished-*")
        shutil.copytree(ROOT, folder, ignore=ignore, symlinks=True)
        (folder / "build").mkdir()
        (folder / "build/plimsoll").symlink_to(program)
        self.was = self.stamps()

    def stamps(self):
        """{place: whether a folder, else its size and when it was changed} of all in it."""
        found, rest = {}, [self.folder]
        while rest:
            for entry in os.scandir(rest.pop()):
                is_folder, state = entry.is_dir(follow_symlinks=False), entry.stat(follow_symlinks=False)
                found[entry.path] = is_folder or (state.st_size, state.st_mtime_ns, state.st_ino)
                if is_folder:
                    rest.append(entry.path)
        return found

    def put_back(self):
        now = self.stamps()
        for place in sorted(now.keys() - self.was.keys(), reverse=True):  # what is in a folder before the folder
            os.rmdir(place) if now[place] is True else os.unlink(place)
        for place in sorted(place for place, stamp in self.was.items() if now.get(place) != stamp):
            if self.was[place] is True:
                os.mkdir(place)
            elif place == str(self.folder / "build/plimsoll"):
                raise SystemExit("a command has put another program into build/")
            else:
                shutil.copy2(ROOT / pathlib.Path(place).relative_to(self.folder), place, follow_symlinks=False)
        self.was |= {place: stamp for place, stamp in self.stamps().items() if now.get(place) != stamp}


def hide_optional(folder):
    """Makes modules in the folder that only refuse to be imported: what a command meets where they are not installed."""
    for name in OPTIONAL:
        (folder / f"{name}.py").write_text(f"raise ModuleNotFoundError('a command that needs {name} is to be set aside', name='{name}')\n")


def run(command, folder, program, python_path):
    environment = {"PATH": f"{program.parent}:/usr/local/bin:/usr/bin:/bin", "HOME": str(folder), "LC_ALL": "C.UTF-8",
                   "PYTHONPATH": python_path, **{name: os.environ[name] for name in PROCESSOR if name in os.environ}}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True,
                          stdin=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return done, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main():
    program, slow = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2:] == ["--slow"]
    aside, seen, pairs, failures, total, printed = set_aside(), set(), set(), [], 0.0, ""
    scratch = tempfile.TemporaryDirectory()
    tree, hidden = Tree(pathlib.Path(scratch.name) / "tree", program), pathlib.Path(scratch.name) / "hidden"
    hidden.mkdir()
    hide_optional(hidden)
    for place, commands in all_blocks(program):
        wanted = [c for c, _ in commands if aside.get(c, ("fast",))[0] == ("slow" if slow else "fast")]
        seen.update(c for c, _ in commands)
        if not wanted:
            continue
        before = None
        for command, shown in commands:
            # A slow command may need what the block's fast ones made.
            if command in aside and command not in wanted:
                continue
            pair, before = (before, command), command
            if pair[0] and pair in pairs and shown is None:
                continue  # another block has these two in a row, and they did what they say
            pairs.add(pair)
            done, cpu = run(command, tree.folder, program, "" if slow else str(hidden))
            total += cpu
            printed += done.stdout
            print(f"{cpu:7.2f} s  {place}: {command}", flush=True)
            if done.returncode != 0:
                failures.append(f"{place}: exit code {done.returncode} of: {command}\n{done.stderr[-2000:]}")
            elif shown is not None and masked("\n".join(shown)) != masked(done.stdout):
                failures.append(f"{place}: does not print what is shown: {command}\n{done.stdout}")
        tree.put_back()
    if not slow:
        parser = prose.Parser(program, (ROOT / "dev").read_text())
        failures += [f"{place}: {why}: {code}" for place, listed in mentions() for code in listed
                     if (why := parser.complaint(code))]
        rows = [line for line in demo_rows() if line not in printed] if aside[DEMO_REPORT][0] == "fast" else []
        failures += [f"experiments/README.md shows of the demo what no report prints: {line}" for line in rows]
    failures += [f"set_aside.txt: nobody is told to type: {command}" for command in aside if command not in seen]
    if not slow and total > CPU_LIMIT_S:
        failures.append(f"{total:.1f} s of CPU, allowed {CPU_LIMIT_S:g}: set the slowest aside")
    print(f"{total:.1f} s of CPU, {len(failures)} failures")
    print("\n".join(failures), file=sys.stderr)
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
