#!/usr/bin/env python3
"""How mutate.py draws by lot and plants: its list of bugs, without building anything."""
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

import mutate


class Lots(unittest.TestCase):
    def test_a_seed_draws_the_same_forty(self):
        bugs = mutate.read_bugs()
        names = [bug.name for bug in mutate.drawn(bugs, 7)]
        self.assertEqual(names, [bug.name for bug in mutate.drawn(bugs, 7)])
        self.assertEqual(len(set(names)), mutate.lot)
        self.assertNotEqual(names, [bug.name for bug in mutate.drawn(bugs, 8)])
        self.assertEqual(len(mutate.drawn(bugs[:5], 7)), 5)

    def test_names_are_not_drawn_among(self):
        bugs = mutate.read_bugs()
        with mock.patch.object(sys, "argv", ["mutate.py", "--quick", "torch-input-gradient"]):
            self.assertEqual([bug.name for bug in mutate.chosen_of(bugs, mutate.asked())], ["torch-input-gradient"])


class Places(unittest.TestCase):
    def bug(self, test="core"):
        bug = mutate.Bug("a", "what", 1)
        bug.file, bug.tests, bug.old, bug.new = "source", [test], ["one"], ["two"]
        return bug

    def messages(self, text, bug):
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(mutate, "root", pathlib.Path(folder)):
            (mutate.root / "source").write_text(text)
            return mutate.check([bug])

    def test_old_lines_stand_there_once(self):
        self.assertEqual(self.bug().place("zero\none\n"), "zero\ntwo\n")
        self.assertEqual(self.messages("one\n", self.bug()), [])
        self.assertEqual(self.messages("one\none\n", self.bug()), ["bugs.txt:1: a: source has its lines 2 times, not once"])
        self.assertEqual(self.messages("one\n", self.bug("cor")), ["bugs.txt:1: a: no test program 'cor'"])

    def test_those_of_the_list_have_theirs(self):
        self.assertEqual(mutate.check(mutate.read_bugs()), [])


if __name__ == "__main__":
    unittest.main()
