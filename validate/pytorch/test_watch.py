#!/usr/bin/env python3
"""Tests of what is watched from step to step, and of what a forward does that no step would do: plans made by hand beside plain training. Skipped
where this Python has no torch; seconds.

  /usr/bin/python3 validate/pytorch/test_watch.py
"""

import contextlib
import copy
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

try:
    import torch
    from torch import nn

    import hand_plans
    from models import mean_square
    from plimsoll_torch import Refused, apply
    from plimsoll_torch.stages import split
except ModuleNotFoundError as error:
    raise SystemExit(0 if print(f"skipped: {sys.executable} has no {error.name} (Debian: apt-get install python3-torch "
                                "python3-torchvision, then /usr/bin/python3)") is None else 1)

torch.set_num_threads(1)


class Layers(nn.Module):
    """`between(model, x, i)`: what the model does behind each layer."""

    def __init__(self, between=lambda model, x, i: x, layers=3):
        super().__init__()
        torch.manual_seed(0)
        self.read, self.layers, self.head = nn.Linear(4, 8), nn.ModuleList(nn.Linear(8, 8) for _ in range(layers)), nn.Linear(8, 2)
        self.between = between

    def forward(self, x):
        x = self.read(x)
        for i, layer in enumerate(self.layers):
            x = self.between(self, torch.tanh(layer(x)), i)
        return self.head(x)


def batch(seed, rows=3):
    return torch.randn(rows, 4, generator=torch.Generator().manual_seed(seed))


def planned(model, x, loss=mean_square, how="auto"):
    staged = split(model, x, how=how, loss=loss)
    return hand_plans.plan_of(staged, hand_plans.recompute_all(len(staged.stages)), [0] * len(staged.stages))


class Beside(unittest.TestCase):
    """A model by a plan beside the same one in plain training."""

    def begin(self, model, loss=mean_square):
        self.model, self.loss = model, loss
        self.plain, self.plan = copy.deepcopy(model), planned(copy.deepcopy(model), batch(0), loss)
        self.step = apply(self.model, self.plan, loss=loss)

    def check(self, seed, change=lambda model: None, around=contextlib.nullcontext):
        """One step of both, behind `change` of both; `around`: the context of forwards."""
        for model in (self.plain, self.model):
            model.zero_grad(set_to_none=True)
            change(model)
        torch.manual_seed(seed)
        with around():
            found = self.step(batch(seed))
        torch.manual_seed(seed)
        with around():
            expected = self.loss(self.plain(batch(seed)), None)
        expected.backward()
        self.assertTrue(torch.equal(found, expected.detach()), (found, expected))
        for (name, p), q in zip(self.plain.named_parameters(), self.model.parameters()):
            self.assertEqual(p.grad is None, q.grad is None, name)
            self.assertTrue(p.grad is None or torch.equal(p.grad, q.grad), name)


class Trained(Beside):
    """Which parameters are trained."""

    def freeze(self, *layers):
        def change(model):
            for module in [model.read, *(model.layers[i] for i in layers)]:
                module.requires_grad_(False)
        return change

    def test_fewer_than_when_it_was_measured(self):
        self.begin(Layers())
        self.check(1)
        self.check(2, self.freeze(0, 1))
        self.check(3)
        self.assertEqual([stage.needs_gradients for stage in self.step.staged.stages[:3]], [[False]] * 3)
        self.check(4, lambda model: model.requires_grad_(True))

    def test_more_than_when_it_was_measured_is_refused_and_another_plan_may_be_for_it(self):
        model = Layers()
        self.freeze(0)(model)
        self.begin(model)
        self.check(1)
        frozen, whole = self.plan, planned(Layers(), batch(0))
        for one in (self.plain, self.model):
            one.requires_grad_(True)
        with self.assertRaisesRegex(Refused, "^parameter 'read.weight' is trained, and was frozen when the model was measured for plan: measure and plan "
                                             "anew$"):
            self.step(batch(2))
        self.assertTrue(all(p.grad is None or torch.equal(p.grad, q.grad) for p, q in zip(self.model.parameters(), self.plain.parameters())))
        self.step = apply(self.model, [frozen, whole], loss=mean_square)
        self.check(3)
        self.check(4, self.freeze(0))


class OtherAutocast(Beside):
    def test_what_is_switched_off_inside_stays_off_where_the_caller_switches_it_on(self):
        def between(model, x, i):
            with torch.autocast("cpu", enabled=False):
                return x.float() + nn.functional.linear(x.float(), model.layers[i].weight)
        self.begin(Layers(between))
        self.check(1)
        self.check(2, around=lambda: torch.autocast("cpu", dtype=torch.bfloat16))
        self.check(3)


class Losses(unittest.TestCase):
    class Made(Layers):
        """`made(logits, loss)`: what it returns of them."""

        def __init__(self, made):
            super().__init__()
            self.made = made

        def forward(self, x):
            logits = super().forward(x)
            return self.made(logits, logits.pow(2).mean())

    def begins_as_plain(self, made, of_output, loss=None):
        model, x = self.Made(made), batch(0)
        plain = copy.deepcopy(model)
        step = apply(model, planned(copy.deepcopy(model), x, loss), loss=loss)
        expected = of_output(plain(x))
        expected.backward()
        self.assertTrue(torch.equal(step(x), expected.detach()))
        self.assertTrue(all(torch.equal(p.grad, q.grad) for p, q in zip(plain.parameters(), model.parameters())))

    def test_the_one_number_that_a_gradient_flows_to(self):
        self.begins_as_plain(lambda logits, loss: (logits, loss), lambda output: output[1])
        self.begins_as_plain(lambda logits, loss: (loss.detach(), {"inner": loss}, logits), lambda output: output[1]["inner"])
        self.begins_as_plain(lambda logits, loss: {"aside": 2 * loss, "loss": loss}, lambda output: output["loss"])
        self.begins_as_plain(lambda logits, loss: (loss, loss), lambda output: output[0])

    def test_one_that_a_function_takes_out(self):
        self.begins_as_plain(lambda logits, loss: (logits, loss, 2 * loss), lambda output: output[1], lambda output, _: output[1])

    def test_none_is_invented(self):
        for made, expected in ((lambda logits, loss: (logits, loss, 2 * loss), "2 numbers that gradients flow to"),
                               (lambda logits, loss: logits, "no number that some parameter's gradient flows to"),
                               (lambda logits, loss: (logits, loss.detach()), "no number that some parameter's gradient flows to"),
                               (lambda logits, loss: {"loss": logits.pow(2), "other": loss}, "no number that some parameter's gradient flows to")):
            with self.assertRaises(Refused) as raised:
                split(self.Made(made), batch(0))
            self.assertEqual(str(raised.exception), f"no loss function is given, and the model returns {expected}: give a loss, a function of "
                                                    "(outputs, targets)")


class Noting(nn.Module):
    """A module that is one call."""

    def forward(self, x):
        if x.requires_grad:
            x.register_hook(lambda gradient: 2 * gradient)
        return x * 1


class Hooks(unittest.TestCase):
    def refused(self, between, expected):
        with self.assertRaises(Refused) as raised:
            split(Layers(between), batch(0), loss=mean_square)
        self.assertIn(expected, str(raised.exception))

    def test_on_gradients_are_refused_by_name(self):
        half = lambda gradient: 0.5 * gradient
        self.refused(lambda model, x, i: (x.register_hook(half), x)[1],
                     "the model itself: its forward registers a hook on a tensor's gradient (register_hook), which runs when it is recorded and in no step")
        self.refused(lambda model, x, i: (model.head.weight.register_hook(half), x)[1], "(register_hook)")
        self.refused(lambda model, x, i: (x.retain_grad(), x)[1], "keeps the gradient of what is inside (retain_grad)")
        inside = Noting()
        with self.assertRaisesRegex(Refused, r"^module '1': its forward registers a hook on a tensor's gradient \(register_hook\)"):
            split(nn.Sequential(nn.Linear(4, 4), inside, nn.Linear(4, 4)), batch(0), loss=mean_square)
        if hasattr(torch.Tensor, "register_post_accumulate_grad_hook"):
            self.refused(lambda model, x, i: (model.head.weight.register_post_accumulate_grad_hook(lambda p: None), x)[1],
                         "registers a hook on a parameter's gradient (register_post_accumulate_grad_hook)")
        if hasattr(torch.autograd.graph, "register_multi_grad_hook"):
            self.refused(lambda model, x, i: (torch.autograd.graph.register_multi_grad_hook((x, model.head.weight), lambda gradients: None), x)[1], "hook")

    def test_on_nodes_are_refused_by_name(self):
        expected = "the model itself: its forward puts a hook on a node of autograd's graph (grad_fn.register_hook)"
        self.refused(lambda model, x, i: (x.grad_fn.register_hook(lambda *_: None), x)[1], expected)
        self.refused(lambda model, x, i: (x.grad_fn.next_functions[0][0].register_hook(lambda *_: None), x)[1], expected)

    def test_a_node_may_be_looked_at(self):
        looked = []

        def between(model, x, i):
            looked.append((x.grad_fn is None, x.grad_fn == x.grad_fn, x.grad_fn.name(), len({x.grad_fn, x.grad_fn})))
            return x
        split(Layers(between), batch(0), loss=mean_square)
        self.assertEqual(looked[0], (False, True, "TanhBackward0", 1))

    def test_on_what_is_saved_are_refused_by_name(self):
        def between(model, x, i):
            with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor * 2, lambda tensor: tensor):
                return x.sin()

        def on_cpu(model, x, i):
            with torch.autograd.graph.save_on_cpu():
                return x.sin()
        own = torch.autograd.graph.saved_tensors_hooks.__enter__
        self.refused(between, "the model itself: its forward has hooks on what autograd saves (saved_tensors_hooks)")
        self.refused(on_cpu, "its forward has hooks on what autograd saves (saved_tensors_hooks)")
        self.assertIs(torch.autograd.graph.saved_tensors_hooks.__enter__, own)


if __name__ == "__main__":
    unittest.main()
