#!/usr/bin/env python3
"""Tests of plimsoll/torch/versions.py: what other versions of torch answer is stood in for. Skipped where this Python has no torch.

  /usr/bin/python3 validate/pytorch/test_versions.py
"""

import unittest
from types import SimpleNamespace
from unittest import mock

import left_out

try:
    import torch
    from torch import nn
    from torch.utils import checkpoint

    from plimsoll.torch import Refused, again, modes, policies, versions
    from plimsoll.torch.refusals import refuse_what_cannot_run
except ModuleNotFoundError as error:
    left_out.end_without(error)


def given(place, **answers):
    """What torch would have there."""
    return mock.patch.multiple(place, create=True, **answers)


class Autocast(unittest.TestCase):
    """From 2.4 on devices are asked by name, and the older questions warn: they must not be asked."""

    def setUp(self):
        self.on = {"cuda": torch.float16}
        old = {name: mock.Mock(side_effect=DeprecationWarning(name))
               for name in ("is_autocast_cpu_enabled", "get_autocast_gpu_dtype", "get_autocast_cpu_dtype")}
        patch = given(torch, is_autocast_enabled=lambda device: device in self.on, get_autocast_dtype=lambda device: self.on[device], **old)
        patch.start()
        self.addCleanup(patch.stop)

    def test_each_device_is_asked_by_name(self):
        self.assertEqual(versions.autocast_now(), (("cuda", torch.float16),))
        self.on["cpu"] = torch.bfloat16
        self.assertEqual(versions.autocast_now(), (("cuda", torch.float16), ("cpu", torch.bfloat16)))
        self.on.clear()
        self.assertEqual(versions.autocast_now(), ())

    def test_what_the_model_has_switched_on_is_seen(self):
        outer = versions.autocast_now()
        self.assertEqual(modes.difference(outer), (False, None))
        self.on["cpu"] = torch.bfloat16
        self.assertEqual(modes.difference(outer), (False, (("cuda", torch.float16), ("cpu", torch.bfloat16))))

    def test_backwards_run_outside_of_each_and_casts_are_forgotten(self):
        self.on["cpu"] = torch.bfloat16
        with given(torch, set_autocast_enabled=mock.Mock(), clear_autocast_cache=mock.Mock()):
            with again.without_autocast():
                self.assertEqual([call.args for call in torch.set_autocast_enabled.call_args_list], [("cuda", False), ("cpu", False)])
            self.assertEqual([call.args for call in torch.set_autocast_enabled.call_args_list[2:]], [("cuda", True), ("cpu", True)])
            again.forget_casts()
            torch.clear_autocast_cache.assert_called_once_with()
            self.on.clear()
            again.forget_casts()
            torch.clear_autocast_cache.assert_called_once_with()

    def test_a_card_without_bf16(self):
        with mock.patch.object(torch.cuda, "is_bf16_supported", lambda: False):
            self.assertEqual(versions.why_no_autocast("cuda", "bf16"), "torch.cuda.is_bf16_supported() is false on this GPU; fp16 works")
        with mock.patch.object(torch.cuda, "is_bf16_supported", lambda: True):
            self.assertIsNone(versions.why_no_autocast("cuda", "bf16"))


class What(unittest.TestCase):
    def test_version(self):
        for text, expected in (("1.13.0a0", (1, 13)), ("2.11.0+cu130", (2, 11)), ("2.0.1", (2, 0))):
            with mock.patch.object(torch, "__version__", text):
                self.assertEqual(versions.version(), expected)

    def test_bytes_as_asked_for_where_the_allocator_reports_them(self):
        for stats, expected in (({"requested_bytes.all.current": 3}, ("requested_bytes", True)),
                                ({"allocated_bytes.all.current": 512}, ("allocated_bytes", False))):
            with mock.patch.object(torch.cuda, "memory_stats", lambda stats=stats: stats):
                self.assertEqual(versions.byte_counter_of_cuda(), expected)

    def test_fused_attention(self):
        with given(nn.functional, scaled_dot_product_attention=lambda: None):
            self.assertIsNone(versions.why_no_fused_attention())

    def test_implementations_are_those_of_the_signature(self):
        class Sgd:
            def __init__(self, params, foreach=None, fused=None):
                pass
        with mock.patch.object(torch.optim, "SGD", Sgd):
            self.assertTrue(versions.has_implementation("momentum", "fused"))


class Modules(unittest.TestCase):
    def refused(self, model):
        with self.assertRaises(Refused) as raised:
            refuse_what_cannot_run(model)
        return str(raised.exception)

    def test_what_2_x_hangs_on_modules_and_parameters(self):
        for change, expected in (
                (lambda model: setattr(model[1], "_compiled_call_impl", lambda: None), "module '1' is compiled as a whole (Module.compile)"),
                (lambda model: setattr(model[0], "_backward_pre_hooks", {0: print}), "module '0' has backward pre hooks"),
                (lambda model: setattr(model[1].weight, "_post_accumulate_grad_hooks", {0: print}), "parameter '1.weight' has a hook on its gradient")):
            model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
            refuse_what_cannot_run(model)
            change(model)
            self.assertIn(expected, self.refused(model))

    def test_sharded_modules(self):
        class FSDPModule:  # fully_shard of 2.6 puts it among a module's classes
            pass

        class FSDPLinear(FSDPModule, nn.Linear):
            pass
        self.assertIn("module '1' is wrapped in FSDPModule, which gathers and frees parameters", self.refused(nn.Sequential(nn.ReLU(), FSDPLinear(2, 2))))


class SelectiveCheckpointing(unittest.TestCase):
    """What a checkpoint of 2.4 asks, and one of later versions, which asks in the forward alone and says of no run that it is one again."""

    PLAN = {"format": "plimsoll.policy.v1", "stages": [{"name": "block", "ops": [{"op": "mm", "save": True}, {"op": "relu", "save": False},
                                                                                {"op": "mm", "save": False}]}]}

    def contexts(self):
        policy = SimpleNamespace(MUST_SAVE="must save", PREFER_RECOMPUTE="prefer recompute")
        with given(checkpoint, CheckpointPolicy=policy, create_selective_checkpoint_contexts=lambda function, allow_cache_entry_mutation: function):
            return policies(self.PLAN)["block"]

    def answers(self, function, again):
        ops = [SimpleNamespace(_schema=SimpleNamespace(name=f"aten::{name}")) for name in ("t", "mm", "relu", "mm")]
        return [function(SimpleNamespace(is_recompute=again), op, 1, a=2) for op in (*ops, "an operator of higher order")]

    def test_asked_in_both_runs(self):
        expected, function = ["prefer recompute", "must save", *["prefer recompute"] * 3], self.contexts()()
        self.assertEqual(self.answers(function, False), expected)
        self.assertEqual(self.answers(function, True), expected)

    def test_asked_in_the_forward_alone(self):
        contexts = self.contexts()
        for _ in range(2):  # each call of the checkpoint makes contexts of its own
            self.assertEqual(self.answers(contexts(), False)[1], "must save")


if __name__ == "__main__":
    unittest.main(verbosity=0)
