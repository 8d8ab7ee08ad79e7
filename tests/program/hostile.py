#!/usr/bin/env python3
"""Changes files for every reader, runs the program on them, and says which runs end in what no run may end in.

    tests/program/hostile.py build-sanitize/plimsoll --seed 1 --cases 2000
    tests/program/hostile.py build-sanitize/plimsoll --seed 1 --case 17        that case again, with all that it says
"""

import argparse
import collections
import multiprocessing
import os
import random
import shlex
import shutil
import sys
import tempfile

import program as runs
import readers


def filled(command, places):
    return [word.format(**places) for word in shlex.split(command)]


class Case:
    """Number and seed say all of a case: which reader, what is changed, which command."""

    def __init__(self, seed, number, made, only=None):
        choice = random.Random(f"{seed} {number}")
        among = [(r, r.weight) for r in readers.READERS if only in (None, r.name)] or [(None, 1)]
        if only is None:
            among.append((None, 3))
        self.reader = choice.choices([r for r, _ in among], [w for _, w in among])[0]
        self.files = {}
        if self.reader is None:
            self.name, self.words = "command line", readers.command_line(choice)
            return
        self.name = self.reader.name
        self.words = filled(choice.choice(self.reader.commands), {"file": "{file}", "folder": "{folder}", "made": made})
        seed_file = choice.choice(self.reader.seeds).format(made=made)
        with open(seed_file, encoding="utf-8") as file:
            self.changed = os.path.basename(seed_file)
            self.files[self.changed] = self.reader.mutated(choice, file.read())
        for beside in self.reader.beside:
            with open(beside.format(made=made), "rb") as file:
                self.files[os.path.basename(beside)] = file.read()

    def written_to(self, folder):
        """Its files; the words of its command."""
        for name, data in self.files.items():
            with open(os.path.join(folder, name), "wb") as file:
                file.write(data)
        if self.reader is None:
            return self.words
        places = {"{file}": os.path.join(folder, self.changed), "{folder}": folder}
        for place, path in places.items():
            self.words = [word.replace(place, path) for word in self.words]
        return self.words


def tried(task):
    """Runs one case: name, exit code, what is wrong, seconds, bytes."""
    program, seed, number, made, only, keep = task
    with tempfile.TemporaryDirectory(prefix="plimsoll_hostile_") as folder:
        files = os.path.join(folder, "files")
        os.mkdir(files)
        case = Case(seed, number, made, only)
        words = case.written_to(files)
        run = runs.run(program, words, folder)
        wrong = runs.complaints(run)
        if wrong:
            kept = os.path.join(keep, f"{seed}-{number}")
            shutil.rmtree(kept, ignore_errors=True)
            shutil.copytree(folder, kept)
            shown = shlex.join(os.fsdecode(w).replace(folder, kept) for w in words)
            wrong = [f"{case.name}: {'; '.join(wrong)}", f"  {program} {shown}", f"  files and output: {kept}",
                     f"  again: {sys.argv[0]} {program} --seed {seed} --case {number}" + (f" --only '{only}'" if only else "")]
        return case.name, run.code, wrong, run.cpu_s, run.resident_bytes, run.out + run.err


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--only", help="the name of a reader, or 'command line'")
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--case", type=int, help="only this one")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--keep", default="out/hostile", help="folder for the files of cases that fail")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="plimsoll_made_") as made:
        readers.prepare(arguments.program, made)
        numbers = range(arguments.first, arguments.first + arguments.cases) if arguments.case is None else [arguments.case]
        tasks = [(arguments.program, arguments.seed, n, made, arguments.only, arguments.keep) for n in numbers]
        ends, failed, slowest, largest = collections.Counter(), 0, 0, 0
        with multiprocessing.Pool(1 if len(tasks) == 1 else arguments.jobs) as pool:
            for name, code, wrong, cpu_s, resident, said in pool.imap(tried, tasks, 4):
                ends[name, code] += 1
                slowest, largest = max(slowest, cpu_s), max(largest, resident)
                if wrong:
                    failed += 1
                    print("\n".join(wrong), flush=True)
                if arguments.case is not None:
                    sys.stdout.buffer.write(said)
    print(f"seed {arguments.seed}: {len(tasks)} cases, {failed} failed; at most {slowest:.1f} s of CPU time and {largest / 1e6:.0f} MB")
    codes = sorted({code for _, code in ends if code is not None})
    print(f"{'':<18}" + "".join(f"{'exit ' + str(c):>8}" for c in codes))
    for name in sorted({name for name, _ in ends}):
        print(f"{name:<18}" + "".join(f"{ends[name, c]:>8}" for c in codes))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
