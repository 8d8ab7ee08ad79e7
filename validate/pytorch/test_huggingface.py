#!/usr/bin/env python3
"""Models of transformers and timm by plans made by hand, on batches that were not recorded, bit for bit, and what the exporter measures of some.
Skipped where this Python has no torch, transformers or timm; a minute. PLIMSOLL_TESTS=all: all of huggingface.py; names: these.

  python3 validate/pytorch/test_huggingface.py [NAME...]
"""

import contextlib
import copy
import io
import json
import os
import sys
import tempfile
import unittest

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import left_out

try:
    import torch
    import timm  # noqa: F401
    import transformers  # noqa: F401

    from plimsoll.trace import exporter
    import hand_plans
    import huggingface
    from beside_plain import differences
    from plimsoll.torch import Refused
    from plimsoll.torch.stages import split
except ModuleNotFoundError as error:
    left_out.end_without(error, "models of transformers and timm were not run")

torch.set_num_threads(1)
FEW = ("olmo2", "qwen2_moe", "albert", "deberta_v2", "mt5", "swin", "mnasnet", "clip", "router_loss", "hidden_states", "with_cache", "padded")
EXPORTED = ("olmoe", "mpnet", "swin")
NAMES = [name for name in sys.argv[1:] if not name.startswith("-")]


class Models(unittest.TestCase):
    def test_each_trains_by_a_plan_as_plainly(self):
        for name in NAMES or (huggingface.MODELS if os.environ.get("PLIMSOLL_TESTS") == "all" else FEW):
            with self.subTest(name):
                model, loss, inputs, targets = huggingface.MODELS[name](batch=2)
                model.train()
                staged = split(copy.deepcopy(model), inputs, "auto", loss, targets)
                self.assertGreater(len(staged.stages), 2)
                saved = [0] * len(staged.stages)
                plan = hand_plans.plan_of(staged, hand_plans.segments(len(staged.stages), 2), saved)
                self.assertEqual(differences(model, loss, inputs, targets, plan, batches=2), [])

    @unittest.skipIf(NAMES, "only those that are named")
    def test_one_that_checkpoints_itself_is_refused(self):
        model, loss, inputs, targets = huggingface.checkpointed()
        with self.assertRaisesRegex(Refused, r"^module 'model(\.\w+)*': recomputes a part of itself \(torch.utils.checkpoint, use_reentrant=False\)"):
            split(model.train(), inputs, "auto", loss, targets)

    def test_what_the_exporter_measures_follows_from_what_autograd_saves(self):
        for name in NAMES or EXPORTED:
            for how in ((), ("--graph",)):
                with self.subTest(name, how=how), tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()):
                    path = os.path.join(folder, "trace.json")
                    arguments = ("--model", f"{huggingface.__file__}:{name}", "--batch", "2", "--repetitions", "1", "--warm-up", "1", "-o", path, *how)
                    exporter.export(exporter.command_line().parse_args(arguments))
                    with open(path, encoding="utf-8") as file:
                        trace = json.load(file)
                    self.assertEqual(trace["source"]["check"].get("identity", "exact on all stages"), "exact on all stages")
                    self.assertGreater(len(trace.get("stages", trace.get("ops"))), 2)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *(word for word in sys.argv[1:] if word.startswith("-"))])
