#!/usr/bin/env python3
"""What zsh and fish offer where somebody types; of bash, tests/experiments/shell_test.cpp. A shell that is not installed is left out.

    tests/program/test_shells.py build/plimsoll
"""

import os
import pty
import select
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM = os.path.abspath(sys.argv.pop(1))


@unittest.skipUnless(shutil.which("fish"), "no fish: its completion was not tried")
class Fish(unittest.TestCase):
    def offers(self, typed):
        with tempfile.TemporaryDirectory() as folder:
            script = os.path.join(folder, "plimsoll.fish")
            with open(script, "wb") as file:
                file.write(subprocess.run([PROGRAM, "completion", "fish"], check=True, capture_output=True).stdout)
            asked = f"source {script}; complete -C '{typed}'"
            run = subprocess.run(["fish", "--no-config", "-c", asked], check=True, capture_output=True, text=True)
        return {line.split("\t")[0] for line in run.stdout.splitlines() if line}

    def test_offers(self):
        self.assertEqual(self.offers("plimsoll sim"), {"simulate"})
        self.assertEqual(self.offers("plimsoll simulate --me"), {"--memory", "--memory-profile"})
        self.assertEqual(self.offers("plimsoll simulate --engine "), {"event", "simgrid"})
        self.assertEqual(self.offers("plimsoll simulate -s rotor"), {"rotor", "rotor_floating"})
        self.assertEqual(self.offers("plimsoll help com"), {"compare", "completion"})
        self.assertEqual(self.offers("plimsoll list p"), {"platforms"})


@unittest.skipUnless(shutil.which("zsh"), "no zsh: its completion was not tried")
class Zsh(unittest.TestCase):
    def setUp(self):
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.environ.update(TERM="dumb", PS1="> ")
            os.execvp("zsh", ["zsh", "-fi"])
        self.typed(f'plimsoll() {{ {PROGRAM} "$@"; }}; eval "$(plimsoll completion zsh)"; echo is rea""dy\n', "is ready")

    def tearDown(self):
        os.close(self.terminal)
        os.waitpid(self.pid, 0)

    def typed(self, text, until):
        """What the terminal shows once `until` stands there."""
        os.write(self.terminal, text.encode())
        shown, end = "", time.monotonic() + 30
        while until not in shown and time.monotonic() < end:
            if select.select([self.terminal], [], [], 0.1)[0]:
                shown += os.read(self.terminal, 65536).decode(errors="replace")
        self.assertIn(until, shown)
        os.write(self.terminal, b"\x15")

    def test_offers(self):
        for typed, whole in (("plimsoll simu\t", "plimsoll simulate "), ("plimsoll simulate --engine ev\t", "--engine event "),
                             ("plimsoll simulate -s rotor_f\t", "-s rotor_floating ")):
            self.typed(typed, whole)


if __name__ == "__main__":
    unittest.main()
