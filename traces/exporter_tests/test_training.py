"""measure_training.py and reference_networks.py."""

import contextlib
import io
import json
import os
import unittest

from plimsoll.trace import exporter

from .support import NO_TORCH, WithFolder, torch
from .turns import eleventh


@unittest.skipIf(torch is None, NO_TORCH)
class MeasuredTraining(WithFolder):
    def test_three_ways_train_alike_and_checkpointing_runs_the_forwards_twice(self):
        import measure_training
        calls = []
        output = os.path.join(self.folder.name, "training.json")
        options = exporter.command_line().parse_args(
            ["--model", "mlp", "--layers", "3", "--width", "8", "--batch", "4", "--repetitions", "2", "-o", output])
        plain = torch.nn.Linear.forward
        torch.nn.Linear.forward = lambda *arguments: calls.append(1) or plain(*arguments)
        counts = {}
        try:
            from plimsoll.trace.models import chain_for
            chain = chain_for(options)
            for way in (measure_training.plain, measure_training.checkpointed, measure_training.offloaded):
                calls.clear()
                measure_training.iteration(chain, way, options)
                counts[way.__name__] = len(calls)
        finally:
            torch.nn.Linear.forward = plain
        self.assertEqual(counts, {"plain": 3, "checkpointed": 6, "offloaded": 3})
        with contextlib.redirect_stderr(io.StringIO()):
            self.assertEqual(measure_training.main(["--model", "mlp", "--layers", "3", "--width", "8", "--batch", "4",
                                                    "--repetitions", "2", "-o", output]), 0)
        with open(output, encoding="utf-8") as file:
            measured = json.load(file)
        self.assertEqual(list(measured["ways"]), ["plain", "checkpointed", "offloaded"])
        self.assertEqual(len({way["loss"] for way in measured["ways"].values()}), 1)
        self.assertTrue(all(way["iteration_s"] > 0 for way in measured["ways"].values()))
        from plimsoll.trace.device_name import this_processor
        self.assertEqual(measured["device"], this_processor())

    def test_what_is_offloaded_goes_through_the_hooks_that_copy_it(self):
        import measure_training
        packed = []
        options = exporter.command_line().parse_args(["--model", "mlp", "--layers", "2", "--width", "8", "-o", "none.json"])
        from plimsoll.trace.models import chain_for
        chain = chain_for(options)
        usual = torch.autograd.graph.save_on_cpu.__init__

        def counted(hooks, *arguments, **named):
            usual(hooks, *arguments, **named)
            pack = hooks.pack_hook
            hooks.pack_hook = lambda tensor: packed.append(tensor.shape) or pack(tensor)
        torch.autograd.graph.save_on_cpu.__init__ = counted
        try:
            measure_training.iteration(chain, measure_training.plain, options)
            self.assertEqual(packed, [])
            measure_training.iteration(chain, measure_training.offloaded, options)
        finally:
            torch.autograd.graph.save_on_cpu.__init__ = usual
        self.assertGreaterEqual(len(packed), 4)  # inputs and outputs of two layers


@unittest.skipIf(torch is None, NO_TORCH)
class Kept(unittest.TestCase):
    @eleventh(9)
    def test_of_reference_networks_autograd_keeps_what_their_graphs_do(self):
        """The same numbers as in tests/traces/framework_graphs_test.cpp, as torch 1.13 has them. Of torch 2 a mean does not keep its input
        (patches x 384), and hooks are not shown the number of a product: one a block of DeiT."""
        import reference_networks as networks
        expected = {("resmlp_s12", 1, 224): (51787172, 15350872), ("resmlp_s12", 2, 224): (103574340, 15350872),
                    ("resmlp_s24", 2, 224): (204729156, 30020680), ("resmlp_s36", 1, 224): (152941988, 44690488),
                    ("resmlp_s12", 2, 96): (19032900, 14903512), ("deit_ti", 2, 224): (71170964, 5717416),
                    ("deit_s", 2, 224): (141050804, 22050664), ("deit_b", 2, 224): (280810484, 86567656)}
        for (name, batch, size), counted in expected.items():
            with self.subTest(name=name, batch=batch, size=size):
                model = networks.network(name, size)
                kept, numbers = counted
                if int(torch.__version__.split(".")[0]) >= 2:
                    kept -= 4 * batch * (size // networks.PATCH) ** 2 * 384 if name in networks.RESMLP_LAYERS else 12 * 8
                self.assertEqual((networks.kept_bytes(model, batch, size), networks.numbers_of(model)), (kept, numbers))
