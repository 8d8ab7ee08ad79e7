#!/usr/bin/env python3
"""strategies/ADDING.md adds a strategy: its code is that of keep_first.cpp, which is built into a program of its own with the list
that the page says, and its commands run there.

    tests/adding/adding_test.py PROGRAM_WITH_IT PROGRAM
"""

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


class Adding(unittest.TestCase):
    def test_code_is_what_is_built(self):
        code, line = blocks("cpp")
        self.assertEqual(code, text_of("tests", "adding", "keep_first.cpp"))
        self.assertEqual([line], text_of("tests", "adding", "strategies", "list.def").splitlines(keepends=True)[2:])

    def test_list_has_one_more(self):
        self.assertEqual(strategies(WITH_IT), [*strategies(WITHOUT_IT), "keep_first"])

    def test_commands_run(self):
        commands = blocks("text")[0].splitlines()
        self.assertGreater(len(commands), 4)
        with tempfile.TemporaryDirectory(prefix="plimsoll_adding_") as folder:
            for command in commands:
                words = shlex.split(command)
                self.assertEqual(words[0], "plimsoll")
                run = subprocess.run([WITH_IT, *words[1:]], cwd=folder, capture_output=True, text=True)
                self.assertEqual(run.returncode, 0, command + "\n" + run.stderr)
                if words[1] == "simulate" and "front" not in words:  # the front is a table of numbers
                    self.assertIn("keep_first", run.stdout)
            self.assertIn("legal", run.stdout)

    def test_page_is_as_asked(self):
        with tempfile.TemporaryDirectory(prefix="plimsoll_adding_") as folder:
            for place in ("docs", "tests/documentation"):
                shutil.copytree(os.path.join(ROOT, place), os.path.join(folder, place))
            os.mkdir(os.path.join(folder, "strategies"))
            shutil.copy(os.path.join(ROOT, "strategies", "README.md"), os.path.join(folder, "strategies"))
            with open(os.path.join(folder, "docs/strategies/rematerialization/keep_first.md"), "w", encoding="utf-8") as page:
                page.write(blocks("markdown")[0])
            for words in (["--write"], ["Pages.test_every_strategy_has_one_section_with_its_parts", "Pages.test_tables_are_the_program_s"]):
                run = subprocess.run([os.path.join(folder, "tests/documentation/pages_test.py"), WITH_IT, *words], capture_output=True, text=True)
                self.assertEqual(run.returncode, 0, run.stderr)
            with open(os.path.join(folder, "strategies/README.md"), encoding="utf-8") as index:
                self.assertIn("rematerialization/keep_first.md)", index.read())


if __name__ == "__main__":
    WITH_IT, WITHOUT_IT = (os.path.abspath(program) for program in sys.argv[1:3])
    unittest.main(argv=sys.argv[:1])
