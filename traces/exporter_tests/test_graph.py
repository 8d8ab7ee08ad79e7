"""Op graphs."""

import unittest

from .peaks import freed_after_last_use_peak
from .support import NO_TORCH, SMALL_GPT, WithFolder, torch


@unittest.skipIf(torch is None, NO_TORCH)
class GraphTrace(WithFolder):
    def test_every_tensor_is_made_before_it_is_read_and_every_parameter_has_one_gradient(self):
        trace = self.trace("small", "--graph")
        self.assertEqual(trace["kind"], "graph")
        kinds = [t["kind"] for t in trace["tensors"]]
        made = {i for i, kind in enumerate(kinds) if kind in ("input", "parameter")}
        for op in trace["ops"]:
            self.assertLessEqual(set(op["inputs"]) | set(op["mutates"]), made, op["name"])
            self.assertFalse(set(op["outputs"]) & made, op["name"])
            made |= set(op["outputs"])
        self.assertEqual(len(made), len(trace["tensors"]))
        self.assertEqual(kinds.count("parameter_gradient"), 4)
        self.assertEqual(sorted(t["gradient_of"] for t in trace["tensors"] if t["kind"] == "parameter_gradient"),
                         [i for i, kind in enumerate(kinds) if kind == "parameter"])
        self.assertEqual([op["stage"] for op in trace["ops"]], sorted((o["stage"] for o in trace["ops"] if o["phase"] == "forward"))
                         + sorted((o["stage"] for o in trace["ops"] if o["phase"] == "backward"), reverse=True))


    def test_tensors_freed_after_their_last_use_give_back_the_measured_peak(self):
        trace = self.trace("gpt", "--graph", *SMALL_GPT, counter="malloc")
        measured = trace["source"]["check"]["plain_iteration_peak_bytes"]
        # The caller holds the loss to the end; the graph lets its few bytes go.
        self.assertAlmostEqual(freed_after_last_use_peak(trace), measured, delta=64)

    def test_what_touches_changed_buffers_or_draws_behind_another_runs_once(self):
        trace = self.trace("once", "--graph")
        forward = [op for op in trace["ops"] if op["phase"] == "forward"]
        self.assertEqual(trace["source"]["buffers_changed"], ["moving.mean", "norm.num_batches_tracked", "norm.running_mean", "norm.running_var"])
        touched = {(op["kind"], *op["attributes"]["buffers"]) for op in forward if "buffers" in op.get("attributes", {})}
        self.assertEqual(touched, {("add_", "norm.num_batches_tracked"), ("native_batch_norm", "norm.running_mean", "norm.running_var"),
                                   ("clone", "moving.mean"), ("mul_", "moving.mean")}, "the factor stays what it is")
        self.assertEqual([op["recomputable"] for op in forward if "buffers" in op.get("attributes", {})], 4 * [False])
        self.assertEqual([op["name"] for op in trace["ops"] if "loop" not in op.get("attributes", {}) and "batch_norm" not in op["kind"]], [])
        draws = [(op["stage"], op["kind"], op.get("recomputable", True)) for op in forward if op.get("attributes", {}).get("random") == "yes"]
        self.assertEqual(draws, [(1, "bernoulli_", True), (1, "bernoulli_", False), (2, "bernoulli_", True), (3, "rand", False)])
        self.assertEqual(sum(op.get("recomputable", True) for op in forward), len(forward) - 6)
