"""What is refused, and how."""

import os
import unittest

from plimsoll.trace import exporter
from plimsoll.trace.errors import UsageError

from .support import NO_TORCH, WithFolder, run, torch
from .turns import eleventh


class WrongUsage(WithFolder):
    def refused(self, expected, *arguments):
        done = run(*arguments)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        self.assertIn(expected, done.stderr)

    def test_a_wrong_command_gives_one_line_and_exit_code_2(self):
        output = os.path.join(self.folder.name, "none.json")
        self.refused("--model", "-o", output)
        self.refused("--output", "--model", "mlp")
        self.refused("unrecognized arguments: --bach 8", "--model", "mlp", "--bach", "8", "-o", output)
        self.refused("expected a positive integer, found '-1'", "--model", "mlp", "--batch", "-1", "-o", output)
        self.refused("invalid choice: 'tpu'", "--model", "mlp", "--device", "tpu", "-o", output)
        self.refused("--bytes-of is for chains", "--model", "mlp", "--graph", "--bytes-of", output, "-o", output)
        self.refused("--bytes-of measures no times; leave --optimizer out", "--model", "mlp", "--optimizer", "adam", "--bytes-of", output,
                     "-o", output)
        self.refused("--compile is for chains; leave --graph out", "--model", "mlp", "--graph", "--compile", "-o", output)
        self.refused("no folder", "--model", "mlp", "-o", "/no/such/folder/trace.json")
        self.assertFalse(os.path.exists(output))

    @unittest.skipIf(torch is None, NO_TORCH)
    @eleventh(2)
    def test_a_wrong_model_gives_one_line_and_exit_code_2(self):
        output = ("-o", os.path.join(self.folder.name, "none.json"))
        self.refused("unknown; built in are mlp, gpt, resnet18", "--model", "resnet", *output)
        if not torch.cuda.is_available():
            self.refused("--device cuda: torch sees no CUDA device", "--model", "mlp", "--device", "cuda", *output)
        if torch is not None and not hasattr(torch, "compile"):
            self.refused("--compile: stages cannot be compiled: torch.compile needs torch 2, this is ", "--model", "mlp", "--compile", *output)
        self.refused("overwrites its input in place, so the model cannot be cut before '1': cut elsewhere (--stages auto,", "--model",
                     f"{self.model}:in_place", *output)

    @unittest.skipIf(torch is None, NO_TORCH)
    def test_a_loss_that_is_no_number_is_refused(self):
        for name, expected in (("no_loss", "the loss must be one number that some parameter's gradient flows to, found a tensor of shape [4, 8]"),
                               ("none_given", "no number that some parameter's gradient flows to: give a loss")):
            for kind in ((), ("--graph",), ("--stages", "auto")):
                with self.subTest(name, kind=kind), self.assertRaises(UsageError) as raised:
                    self.measure("--model", f"{self.model}:{name}", *kind, "-o", os.path.join(self.folder.name, "none.json"))
                self.assertIn(expected, str(raised.exception))

    @unittest.skipIf(torch is None, NO_TORCH)
    def test_a_file_without_the_model_is_refused_with_the_reason(self):
        from plimsoll.trace.models import chain_for
        for name, expected in (("missing.py:build", "no file missing.py"),
                               (f"{self.model}:build", "has no 'build'"),
                               (f"{self.model}:no_model", "expected an nn.Module or a list of modules, found int"),
                               (f"{self.model}:two", "expected (model, loss, input) or (model, loss, input, targets), found a tuple of 2"),
                               (f"{self.model}:sequential", "--input-shape is needed")):
            with self.subTest(model=name), self.assertRaises(UsageError) as raised:
                chain_for(exporter.command_line().parse_args(["--model", name, "-o", "none.json"]))
            self.assertIn(expected, str(raised.exception))

    @unittest.skipIf(torch is None, NO_TORCH)
    def test_trouble_in_the_models_own_code_is_told_in_one_line(self):
        for name, expected in (("broken", "user_model.py:broken: KeyError: 'weights'"),
                               ("kept_weight", "module 'stage0.0' makes its weight in a hook (WeightNorm) and holds it from run to run"),
                               ("branching", "module 'stage1': its forward reads numbers out of a tensor (__bool__), so its course depends on the data"),
                               ("two_arguments", "module 'stage1' does not run on the example: TypeError: "),
                               ("late", "backward of stage 'stage1': RuntimeError: no such")):
            with self.subTest(name), self.assertRaises(UsageError) as raised:
                self.measure("--model", f"{self.model}:{name}", "-o", os.path.join(self.folder.name, "none.json"))
            self.assertIn(expected, str(raised.exception))
            self.assertEqual(len(str(raised.exception).splitlines()), 1)

    def test_help_names_the_built_in_models_and_the_options(self):
        done = run("--help")
        self.assertEqual(done.returncode, 0)
        for word in ("resnet50", "--batch", "--device", "my_model.py:build"):
            self.assertIn(word, done.stdout)
