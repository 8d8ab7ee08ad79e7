#!/usr/bin/env python3
"""strategies/ADDING.md adds strategies, an import format and a field of a result: its code is that of the files of this folder, which
are built into a program of its own with the lists that the page says, and its commands run there.

    tests/adding/adding_test.py PROGRAM_WITH_IT PROGRAM
"""

import csv
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))


def text_of(*path):
    with open(os.path.join(ROOT, *path), encoding="utf-8") as file:
        return file.read()


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", text_of("strategies", "ADDING.md"), re.MULTILINE | re.DOTALL)


def strategies(program):
    listed = subprocess.run([program, "list", "strategies", "--json"], capture_output=True, text=True, check=True)
    return [entry["name"] for entry in json.loads(listed.stdout)["strategies"]]


def added():
    """The names of the strategies that the list has more."""
    return re.findall(r"^STRATEGY\((\w+)\)", text_of("tests", "adding", "strategies", "list.def"), re.MULTILINE)


def built():
    """The texts of the files that are built: code, and what is added to code."""
    places = [os.path.join(folder, file) for folder, _, files in os.walk(HERE) for file in sorted(files)]
    return [text_of(place) for place in places if place.endswith((".cpp", ".h", ".diff"))]


def run(folder, *words):
    return subprocess.run([WITH_IT, *words], cwd=folder, capture_output=True, text=True)


class Adding(unittest.TestCase):
    def test_code_is_what_is_built(self):
        self.assertEqual(sorted(blocks("cpp") + blocks("diff")), sorted([*built(), f"STRATEGY({added()[0]})\n"]))

    def test_list_has_these_more(self):
        self.assertEqual(strategies(WITH_IT), [*strategies(WITHOUT_IT), *added()])

    def test_commands_run(self):
        commands = [block.splitlines() for block in blocks("text") if block.startswith("plimsoll ")]
        self.assertEqual(len(commands), 6)
        self.assertGreater(min(map(len, commands)), 2)
        for block in commands:
            with tempfile.TemporaryDirectory(prefix="plimsoll_adding_") as folder:
                with open(os.path.join(folder, "ops.json"), "w", encoding="utf-8") as file:
                    file.write(blocks("json")[0])
                for command in block:
                    words = shlex.split(command)
                    self.assertEqual(words[0], "plimsoll")
                    done = run(folder, *words[1:])
                    self.assertEqual(done.returncode, 0, command + "\n" + done.stderr)
                    if "--strategy" in words and words[1] == "simulate" and "front" not in words:  # the front is a table of numbers
                        self.assertIn(words[words.index("--strategy") + 1], done.stdout)

    def test_import_makes_the_ops_and_names_what_is_wrong(self):
        with tempfile.TemporaryDirectory(prefix="plimsoll_adding_") as folder:
            for text, name in ((blocks("json")[0], "right.json"), (blocks("json")[0].replace("[1, 2]", "[1, 3]"), "wrong.json")):
                with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                    file.write(text)
            done = run(folder, "import", "op-table", "right.json", "-o", "trace.json")
            self.assertEqual((done.returncode, done.stdout), (0, "trace.json: 4 ops, 4 tensors\n"))
            with open(os.path.join(folder, "trace.json"), encoding="utf-8") as file:
                self.assertEqual([op["time_s"] for op in json.load(file)["ops"]], [0.001, 0.0125, 0.008, 0.002])
            done = run(folder, "import", "op-table", "wrong.json", "-o", "trace.json")
            self.assertEqual(done.returncode, 2)
            self.assertIn("wrong.json:5:55: [3].reads[1]: no such op before this one, expected an index below 3, found 3\n", done.stderr)
            self.assertNotIn("valid", done.stderr)

    def test_field_is_in_json_tables_and_page(self):
        with tempfile.TemporaryDirectory(prefix="plimsoll_adding_") as folder:
            words = ["simulate", "--trace", "uniform:4", "--platform", "ideal", "--strategy", "store_all", "--micro-batches", "4"]
            result = json.loads(run(folder, *words, "--json").stdout)
            self.assertEqual(result["micro_batch_s"], result["makespan_s"] / 4)
            with open(os.path.join(folder, "one.yaml"), "w", encoding="utf-8") as file:
                file.write("format: plimsoll.experiment.v1\nname: one\ntraces: uniform:4\nplatforms: ideal\nstrategies: store_all\n")
            self.assertEqual(run(folder, "sweep", "one.yaml", "-o", "out").returncode, 0)
            self.assertEqual(run(folder, "report", "out").returncode, 0)
            head, row = list(csv.reader(text_of(folder, "out", "results.csv").splitlines()))[1:3]
            columns = dict(zip(head, row))
            self.assertEqual(columns["micro_batch_s"], columns["makespan_s"])
            self.assertIn("a micro-batch", text_of(folder, "out", "report.html"))

    def test_page_is_as_asked(self):
        with tempfile.TemporaryDirectory(prefix="plimsoll_adding_") as folder:
            for place in ("docs", "tests/documentation"):
                shutil.copytree(os.path.join(ROOT, place), os.path.join(folder, place))
            os.mkdir(os.path.join(folder, "strategies"))
            shutil.copy(os.path.join(ROOT, "strategies", "README.md"), os.path.join(folder, "strategies"))
            for name in added():  # each with the page of the first
                with open(os.path.join(folder, f"docs/strategies/rematerialization/{name}.md"), "w", encoding="utf-8") as page:
                    page.write(blocks("markdown")[0].replace("keep_first", name))
            for words in (["--write"], ["Pages.test_every_strategy_has_one_section_with_its_parts", "Pages.test_tables_are_the_program_s"]):
                run = subprocess.run([os.path.join(folder, "tests/documentation/pages_test.py"), WITH_IT, *words], capture_output=True, text=True)
                self.assertEqual(run.returncode, 0, run.stderr)
            with open(os.path.join(folder, "strategies/README.md"), encoding="utf-8") as index:
                self.assertIn("rematerialization/keep_first.md)", index.read())


if __name__ == "__main__":
    WITH_IT, WITHOUT_IT = (os.path.abspath(program) for program in sys.argv[1:3])
    unittest.main(argv=sys.argv[:1])
