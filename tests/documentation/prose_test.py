#!/usr/bin/env python3
"""That prose.py sees what is wrong with a command inside a sentence.

    tests/documentation/prose_test.py PROGRAM
"""
import pathlib
import sys
import unittest

import prose

DEV = (pathlib.Path(__file__).resolve().parents[2] / "dev").read_text()
PROGRAM = pathlib.Path("build/plimsoll")


class Prose(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.parser = prose.Parser(PROGRAM.resolve(), DEV)

    def test_what_is_no_command_or_option_is_named(self):
        for code, why in {
                "plimsoll simulte --json": "no command 'simulte'",
                "plimsoll simulate --jsn": "'simulate' has no option '--jsn'",
                "simulate --schedule-in FILE": "'simulate' has no option '--schedule-in'",
                "plimsoll sweep FILE -o DIR && plimsoll report DIR --fast": "'report' has no option '--fast'",
                "plimsoll simulate --json --trace": None,
                "plimsoll list platform": "'list' knows no 'platform' there, but strategies, platforms, traces, models",
                "plimsoll replay --schedule FILE --backend gpu": "'replay' knows no 'gpu' there, but cpu, cuda",
                "plimsoll report DIR OTHER": "'report' takes no argument 'OTHER'",
                "plimsoll report DIR [-o DIR]": None,
                "plimsoll --verson": "'plimsoll' has no option '--verson'",
                "./dev tets": "./dev has no command 'tets'",
                "./dev mutate --quick": None,
                "plimsoll man > plimsoll.1": None,
                "plimsoll.trace.v1": None,
                "list of things": None}.items():
            self.assertEqual(self.parser.complaint(code), why, code)

    def test_only_code_inside_sentences_is_taken(self):
        text = "Say `plimsoll\nhelp`, or\n```\n`plimsoll no`\n```\n| `plimsoll plan -s 'a\\|b'` | `plimsoll help` |\n"
        self.assertEqual(prose.codes(text), ["plimsoll help", "plimsoll plan -s 'a|b'"])
        self.assertEqual(prose.comment_lines("# word\n#   plimsoll report out\nname: x\n"), ["plimsoll report out"])

    def test_what_has_a_place_to_fill_in_is_not_run(self):
        for code, runs in {"plimsoll list strategies": True, "plimsoll replay": False, "plimsoll describe NAME": False,
                           "plimsoll sweep x.yaml -o out/NAME": False, "simulate --json": False, "./dev test": False}.items():
            self.assertEqual(prose.can_be_run(code), runs, code)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        PROGRAM = pathlib.Path(sys.argv.pop(1))
    unittest.main()
