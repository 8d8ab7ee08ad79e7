"""What the tests of the exporter share: traces of a user's models, measured once each."""

import atexit
import contextlib
import functools
import io
import json
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PROGRAM = os.path.join(HERE, "export_pytorch.py")
MODELS = os.path.join(HERE, "..", "validate", "pytorch", "models.py")  # eight models, shared with the executor's tests

from plimsoll.trace import exporter

from .user_models import USER_MODEL

try:
    import torch
except ImportError:
    torch = None
NO_TORCH = f"{sys.executable} has no torch: apt-get install python3-torch, then run this with /usr/bin/python3"

SMALL_GPT = ("--layers", "2", "--width", "16", "--heads", "2", "--sequence", "8", "--vocabulary", "50", "--batch", "2")


def run(*arguments):
    return subprocess.run([sys.executable, PROGRAM, *arguments], capture_output=True, text=True, check=False)


def bytes_saved_by_hooks(modules, loss, x, apart):
    """Bytes of all storages that autograd saves when the modules and the loss run on x, without those at the addresses `apart`."""
    saved = {}

    def count(tensor):
        storage = tensor.storage()
        if storage.data_ptr() not in apart:
            saved[storage.data_ptr()] = len(storage) * tensor.element_size()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
        value = x
        for module in modules:
            value = module(value)
        loss(value)
    return sum(saved.values())


def measured_apart(arguments):
    """(exit code, what it said)"""
    measuring = measuring_process()
    measuring.stdin.write(json.dumps(arguments) + "\n")
    measuring.stdin.flush()
    return json.loads(measuring.stdout.readline())


@functools.lru_cache(maxsize=None)
def measuring_process():
    options = exporter.command_line().parse_args(["--model", "mlp", "--memory-counter", "malloc", "-o", "none.json"])
    process = subprocess.Popen([sys.executable, "-m", "exporter_tests.measuring"], cwd=HERE, env=exporter.environment_of(options),
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    atexit.register(process.communicate)  # whose input ends there
    return process


class WithFolder(unittest.TestCase):
    traces = {}

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.model = os.path.join(cls.folder.name, "user_model.py")
        with open(cls.model, "w", encoding="utf-8") as file:
            file.write(USER_MODEL)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def trace(self, name, *options, counter="sweep"):
        """The trace of one of USER_MODEL's functions, or of the built-in gpt; measured once for each set of options."""
        key = (name, counter, *options)
        if key not in self.traces:
            self.traces[key] = self.measured(name if name == "gpt" else f"{self.model}:{name}", "2", counter, options)
        return self.traces[key]

    def trace_of(self, model, *options, counter="sweep"):
        """The same of one of the eight models; of a batch of 2."""
        key = (model, counter, *options)
        if key not in self.traces:
            self.traces[key] = self.measured(model, "1", counter, ("--batch", "2", "--warm-up", "1", *options))
        return self.traces[key]

    def measured(self, model, repetitions, counter, options):
        output = os.path.join(self.folder.name, "trace.json")
        self.measure("--model", model, "--repetitions", repetitions, "--memory-counter", counter, "-o", output, *options)
        return self.read(output)

    @staticmethod
    def read(path):
        with open(path, encoding="utf-8") as file:
            return json.load(file)

    def measure(self, *arguments):
        """The exact counter must be loaded when a process begins, and there is one that has it; the portable one works here."""
        if "malloc" in arguments:
            code, said = measured_apart(arguments)
            self.assertEqual(code, 0, said)
        else:
            with contextlib.redirect_stderr(io.StringIO()):
                exporter.export(exporter.command_line().parse_args(arguments))
