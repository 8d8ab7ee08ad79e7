#!/usr/bin/env python3
"""What the test programs of this folder do where a library is missing: each says so and passes; where our own package is missing, none does.

  python3 validate/pytorch/test_left_out.py
"""

import contextlib
import io
import pathlib
import subprocess
import sys
import tempfile
import unittest

import left_out

HERE = pathlib.Path(__file__).parent
PROGRAMS = sorted(file for file in HERE.glob("test_*.py") if file.name != pathlib.Path(__file__).name)


class WithoutALibrary(unittest.TestCase):
    def test_every_program_says_so(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "sitecustomize.py").write_text("import sys\nsys.modules['torch'] = None  # hidden\n", encoding="utf-8")
            running = {file.name: subprocess.Popen([sys.executable, file, "build/plimsoll"], env={"PYTHONPATH": folder}, stdout=subprocess.PIPE,
                                                   stderr=subprocess.STDOUT, text=True) for file in PROGRAMS}
            said = {name: (process.communicate()[0], process.returncode) for name, process in running.items()}
        self.assertGreater(len(said), 18)
        for name, (text, code) in said.items():
            self.assertEqual(code, 0, f"{name}: {text}")
            self.assertRegex(text, "^skipped: .* has no ", name)

    def test_a_module_of_our_own_is_an_error(self):
        for name in ("plimsoll", "plimsoll.torch.step", "hand_plans"):
            with self.assertRaises(ModuleNotFoundError):
                left_out.end_without(ModuleNotFoundError("no module", name=name))
        with self.assertRaises(SystemExit) as ended, contextlib.redirect_stdout(io.StringIO()) as said:
            left_out.end_without(ModuleNotFoundError("no module", name="peft"), "LoRA was not run")
        self.assertEqual((ended.exception.code, said.getvalue()), (0, f"skipped: {sys.executable} has no peft: LoRA was not run\n"))


if __name__ == "__main__":
    unittest.main()
