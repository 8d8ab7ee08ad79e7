#!/usr/bin/env python3
"""The Python package as pip installs it, without a network, and as the kit for GPUs has it: all of its files are there, and its
commands run. What needs pip and setuptools is skipped where they are missing.

    tests/program/test_package.py
"""

import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "traces/python/plimsoll"
MISSING = [name for name in ("pip", "setuptools", "wheel") if importlib.util.find_spec(name) is None]


def sources(folder):
    return {str(file.relative_to(folder)) for file in folder.rglob("*") if file.suffix in (".py", ".c")}


@unittest.skipIf(MISSING, f"{sys.executable} has no {', '.join(MISSING)}: pip install was not tried")
class InstalledByPip(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        tree, cls.target = pathlib.Path(cls.folder.name, "tree"), pathlib.Path(cls.folder.name, "installed")
        shutil.copytree(PACKAGE, tree / "traces/python/plimsoll", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", tree)
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--no-build-isolation", "--no-index", "--no-deps",
                        "--target", cls.target, tree], check=True, capture_output=True)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_all_of_its_files_are_there(self):
        self.assertEqual(sources(self.target / "plimsoll"), sources(PACKAGE))

    def test_its_command_is_the_exporter(self):
        environment = os.environ | {"PYTHONPATH": str(self.target)}
        installed = subprocess.run([sys.executable, "-m", "plimsoll.trace", "--help"], cwd=self.target, env=environment, capture_output=True, text=True)
        beside = subprocess.run([sys.executable, ROOT / "traces/export_pytorch.py", "--help"], capture_output=True, text=True)
        self.assertEqual((installed.returncode, installed.stdout), (0, beside.stdout))


class Errors(unittest.TestCase):
    """Places of what is wrong, as the program's messages have them."""

    def test_places(self):
        spec = importlib.util.spec_from_file_location("errors", PACKAGE / "errors.py")
        errors = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(errors)
        for message, place in {
                "mine.yaml:3:17: devices.gpu.memory: expected a size, found '3'": ("mine.yaml", 3, 17, "devices.gpu.memory"),
                "/a b/mine.json:3:17: not valid JSON: no: end": ("/a b/mine.json", 3, 17, None),
                "--memory: expected a size, found '7 GX'": (None, None, None, "memory"),
                "--strategy:1:7: no strategy 'x': try: y": (None, 1, 7, "strategy"),
                "--update-kernels: 'x' needs an --optimizer": (None, None, None, "update_kernels"),
                "--within reserved: 'cluster' chooses": (None, None, None, "within"),
                "mine.json: tensors[3].bytes: missing": ("mine.json", None, None, "tensors[3].bytes"),
                "no file and no shipped trace is called 'x.y: z'": (None, None, None, None),
                "a.yaml:1:2: key: first\nb.yaml:3:4: second": ("a.yaml", 1, 2, "key")}.items():
            error = errors.InputError(message)
            self.assertEqual(((error.file, error.line, error.column, error.key), str(error)), (place, message))
            self.assertIsInstance(error, ValueError)


class InTheKitForGpus(unittest.TestCase):
    """What ./dev pack-gpu takes to a machine that has none of ours (validate/gpu_pack)."""

    def test_commands_find_the_package(self):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([ROOT / "validate/gpu_pack/copy_sources.sh", ROOT, folder], check=True)
            self.assertEqual(sources(pathlib.Path(folder, "traces/python/plimsoll")), sources(PACKAGE))
            for command in ("traces/export_pytorch.py", "traces/measure_training.py", "validate/pytorch/measure.py", "validate/pytorch/measure_kernels.py",
                            "validate/pytorch/beside_checkpoint.py"):
                done = subprocess.run([sys.executable, os.path.join(folder, command), "--help"], capture_output=True, text=True)
                without_torch = done.returncode == 2 and "has no torch" in done.stderr
                self.assertTrue(without_torch or (done.returncode == 0 and done.stdout.startswith("usage: ")), f"{command}: {done.stderr}")


if __name__ == "__main__":
    unittest.main()
