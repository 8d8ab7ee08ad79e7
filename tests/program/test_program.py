#!/usr/bin/env python3
"""What the smoke run, the changed files and the comparison of programs rely on: every bad end and every changed number is
seen, and a seed says all of a case."""

import os
import random
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
import unittest

import hostile
import mutations
import program as runs
import readers
from turns import eleventh

HERE = os.path.dirname(os.path.abspath(__file__))


class Ends(unittest.TestCase):
    """A shell stands for the program."""

    def complaints(self, script, **limits):
        with tempfile.TemporaryDirectory() as folder:
            return "; ".join(runs.complaints(runs.run("/bin/sh", ["-c", script], folder, **limits), **limits))

    def test_what_may_be(self):
        for script in ("exit 0", "echo no answer >&2; exit 1", "echo refused >&2; exit 2", "echo full >&2; exit 4"):
            self.assertEqual(self.complaints(script), "")

    def test_what_may_not_be(self):
        for script, wrong in (("exit 3", "exit code 3"), ("exit 99", "exit code 99"), ("kill -SEGV $$", "ended by SIGSEGV"),
                              ("exit 2", "without a word"), ("printf '\\351'", "not UTF-8"), ("printf '\\033[2J'", "control characters"),
                              ("echo 'x.cpp:1: runtime error: overflow' >&2", "runtime error:"),
                              ("echo 'ERROR: LeakSanitizer: leaks' >&2", "Sanitizer"), ("echo Traceback >&2; exit 2", "Traceback")):
            self.assertIn(wrong, self.complaints(script), script)

    @eleventh(3)
    def test_time_and_memory(self):
        self.assertIn("CPU", self.complaints("while :; do :; done", cpu_s=1))
        with tempfile.TemporaryDirectory() as folder:
            run = runs.run(sys.executable, ["-c", "x = b'1' * 300_000_000"], folder)
        self.assertIn("MB", "; ".join(runs.complaints(run, resident_bytes=200_000_000)))
        self.assertEqual(runs.complaints(run), [])


class Cases(unittest.TestCase):
    def test_a_seed_says_all(self):
        with open("tests/fuzz/corpus/trace/chain.json", encoding="utf-8") as file:
            text = file.read()
        many = [mutations.mutated_json(random.Random(n), text) for n in range(100)]
        self.assertEqual(many, [mutations.mutated_json(random.Random(n), text) for n in range(100)])
        self.assertGreater(len(set(many)), 85)
        self.assertNotEqual(many, [mutations.mutated_json(random.Random(n + 1000), text) for n in range(100)])

    def test_written_is_what_was_read(self):
        with open("tests/program/graph.json", encoding="utf-8") as file:
            tree = mutations.parsed(file.read())
        self.assertEqual(mutations.parsed(mutations.written(tree)), tree)

    def test_every_reader_and_its_files_are_there(self):
        for reader in readers.READERS:
            for seed in reader.seeds:
                self.assertTrue("{made}" in seed or os.path.exists(seed), seed)

    @eleventh(5)
    def test_files_to_start_from_are_accepted(self):
        """By each command that reads them, else nothing would be tried behind the reader; what they are refused for is said here."""
        refused = ("has no 'adam'", "no disk", "nowhere.yaml", "calibrating needs one device",
                   "differ in more than backward_s and kept_bytes", "shares a device with others", "operators without shapes")
        with tempfile.TemporaryDirectory() as made:
            readers.prepare(sys.argv[1], made)
            for reader in readers.READERS:
                for seed in reader.seeds:
                    for command in reader.commands:
                        with tempfile.TemporaryDirectory() as folder, self.subTest(seed=seed, command=command):
                            for file in (seed, *reader.beside):
                                shutil.copy(file.format(made=made), folder)
                            places = {"file": os.path.join(folder, os.path.basename(seed)), "folder": folder, "made": made}
                            run = runs.run(sys.argv[1], hostile.filled(command, places), folder)
                            said = run.err.decode()
                            self.assertTrue(run.code in (0, 1) or run.code == 2 and any(why in said for why in refused), said)

    def test_a_program_that_breaks_is_found(self):
        """A program that plans and sweeps as the real one does, and ends with 3 where it reads a changed trace."""
        with tempfile.TemporaryDirectory() as folder:
            broken = os.path.join(folder, "plimsoll")
            with open(broken, "w", encoding="utf-8") as file:
                file.write(f'#!/bin/sh\ncase "$*" in *chain.json*) exit 3 ;; esac\nexec {sys.argv[1]} "$@"\n')
            os.chmod(broken, stat.S_IRWXU)
            found = subprocess.run([sys.executable, os.path.join(HERE, "hostile.py"), broken, "--only", "chain", "--cases", "8",
                                    "--keep", os.path.join(folder, "kept")], capture_output=True, text=True)
            self.assertEqual(found.returncode, 1, found.stderr)
            self.assertIn("exit code 3", found.stdout)
            again = next(line for line in found.stdout.splitlines() if line.startswith("  again: "))
            repeated = subprocess.run([sys.executable, *shlex.split(again)[1:], "--keep", os.path.join(folder, "kept")], capture_output=True,
                                      text=True)
            self.assertEqual(repeated.returncode, 1, repeated.stderr)
            self.assertIn("1 cases, 1 failed", repeated.stdout)


class Turns(unittest.TestCase):
    SUITE = """
import unittest, turns
class Case(unittest.TestCase):
    @turns.eleventh(0)
    def test_a(self): pass
    @turns.eleventh(1)
    def test_b(self): pass
    @turns.eleventh(10)
    def test_c(self): pass
unittest.main(verbosity=2)
"""

    def ran(self, **settings):
        environment = {"PYTHONPATH": HERE, "PATH": os.environ["PATH"], **settings}
        said = subprocess.run([sys.executable, "-c", self.SUITE], env=environment, capture_output=True, text=True, check=True).stderr
        self.assertEqual(said.count(" ok\n") + said.count("PLIMSOLL_TESTS=all"), 3)  # what is left out says how to run it
        return "".join(name for name in "abc" if f"{said.partition(f'test_{name} ')[2].partition(chr(10))[0]}".endswith("ok"))

    def test_each_turn_has_its_own(self):
        self.assertEqual([self.ran(PLIMSOLL_TURN=str(turn)) for turn in (0, 1, 10, 12, 32)], ["a", "b", "c", "b", "c"])
        self.assertEqual(self.ran(), "abc")
        self.assertEqual(self.ran(PLIMSOLL_TURN="1", PLIMSOLL_TESTS="all"), "abc")


class Same(unittest.TestCase):
    """The program against itself behind a script that changes what it prints."""

    def compared(self, change, *options):
        with tempfile.TemporaryDirectory() as folder:
            changed = os.path.join(folder, "plimsoll")
            with open(changed, "w", encoding="utf-8") as file:
                file.write(f'#!/bin/sh\n{sys.argv[1]} "$@" > {folder}/out\ncode=$?\nsed {shlex.quote(change)} {folder}/out\nexit $code\n')
            os.chmod(changed, stat.S_IRWXU)
            return subprocess.run([sys.executable, os.path.join(HERE, "same_numbers.py"), sys.argv[1], changed, "--only",
                                   "periodic(every=3)", *options], capture_output=True, text=True)

    @eleventh(7)
    def test_equal_answers(self):
        run = self.compared("s/\"solve_s\".*/\"solve_s\": 17,/")
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        self.assertIn("2 questions about 1 strategies and pipelines, answers by exit code {0: 2}: 0 differ", run.stdout)

    @eleventh(9)
    def test_changed_numbers(self):
        run = self.compared("s/\"steps\": /&1/")
        self.assertEqual(run.returncode, 1, run.stderr)
        self.assertRegex(run.stdout, r"steps: (\d+), now 1\1\n")
        self.assertEqual(self.compared("s/\"steps\": /&1/", "--apart-from", "steps").returncode, 0)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]])
