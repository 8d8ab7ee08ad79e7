#!/usr/bin/env python3
"""Tests of what is watched from step to step, and of what a forward does that no step would do: plans made by hand beside plain training. Skipped
where this Python has no torch; seconds.

  /usr/bin/python3 validate/pytorch/test_watch.py
"""

import copy
import types
import unittest

import left_out

try:
    import torch
    from torch import nn

    import hand_plans
    from layers import Beside, Layers, batch, planned
    from models import mean_square
    from plimsoll.torch import Refused, apply
    from plimsoll.torch.stages import split
except ModuleNotFoundError as error:
    left_out.end_without(error)

torch.set_num_threads(1)


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


class Moves(nn.Module):
    """Keeps a mean of what it is given, in a buffer or in a tensor that is none, and may be called before it has moved it."""

    def __init__(self, kept):
        super().__init__()
        self.kept = kept

    def forward(self, x):
        with torch.no_grad():
            self.kept.mul_(0.9).add_(0.1 * x.mean(0))
        return x * 1


class Inner(nn.Module):
    def __init__(self, moves):
        super().__init__()
        self.moves, self.linear = moves, nn.Linear(8, 8)

    def forward(self, x):
        return self.linear(self.moves(x))


class Plus(nn.Module):
    def __init__(self, kept):
        super().__init__()
        self.kept, self.linear = kept, nn.Linear(8, 8)

    def forward(self, x):
        return self.linear(x) + self.kept.clone()


class RunsOnce(unittest.TestCase):
    def stages(self, *modules):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), *modules, nn.Linear(8, 2))
        before = [tensor.clone() for tensor in model.state_dict().values()]
        staged = split(model, batch(0), [str(k) for k in range(1, len(model))], mean_square)
        self.assertTrue(all(map(torch.equal, before, model.state_dict().values())))
        return model, {stage.name: stage.runs_once for stage in staged.stages if stage.runs_once}

    def kept_by(self, is_buffer):
        kept = torch.zeros(8)
        moves, plus = Moves(kept), Plus(kept)
        if is_buffer:
            del moves.kept, plus.kept
            moves.register_buffer("kept", kept)
            plus.register_buffer("kept", kept)
        return moves, plus

    def test_what_changes_a_buffer_and_what_reads_it_before(self):
        for is_buffer in (True, False):
            for whole in (lambda moves: moves, Inner):
                moves, plus = self.kept_by(is_buffer)
                model, found = self.stages(plus, whole(moves), Plus(torch.ones(8)))
                self.assertEqual(set(found), {"1", "2"})
                self.assertRegex(found["1"], r"^its forward reads the buffer '[12]\.(moves\.)?kept', which the model changes behind it$")
                self.assertRegex(found["2"], r"^its forward changes the buffer '[12]\.(moves\.)?kept'$")
                self.assertTrue(torch.equal(moves.kept, torch.zeros(8)), "cutting leaves it")

    def test_what_reads_it_behind_finds_what_it_found(self):
        moves, plus = self.kept_by(True)
        self.assertEqual(set(self.stages(moves, plus)[1]), {"1"})

    def test_statistics_stay_but_for_those_who_read_them_before(self):
        norm, plus = nn.BatchNorm1d(8), Plus(torch.zeros(8))
        self.assertEqual(self.stages(plus, norm)[1], {})
        plus.kept = norm.running_mean
        self.assertEqual(list(self.stages(plus, norm)[1]), ["1"])
        self.assertEqual(self.stages(norm, plus)[1], {})

    def test_a_plan_that_runs_them_again_is_refused_and_one_that_does_not_trains(self):
        moves, plus = self.kept_by(True)
        model, _ = self.stages(plus, moves)
        plain, steps = copy.deepcopy(model), {}
        staged = split(copy.deepcopy(model), batch(0), ["1", "2", "3"], mean_square)
        for name, sequence in (("again", hand_plans.recompute_all(5)), ("once", [("F", 0), ("S", 1), ("S", 2), ("S", 3), ("S", 4), ("B", 4), ("B", 3), ("B", 2),
                                                                                 ("B", 1), ("S", 0), ("B", 0)])):
            steps[name] = apply(copy.deepcopy(model), hand_plans.plan_of(staged, sequence, [0] * 5), loss=mean_square)
        with self.assertRaisesRegex(Refused, "^stage '1': its forward reads the buffer '[12].kept', which the model changes behind it, so it cannot be run "
                                             "again as the plan asks$"):
            steps["again"](batch(1))
        for seed in range(3):
            mean_square(plain(batch(seed))).backward()
            steps["once"](batch(seed))
        for one, other in zip([*plain.state_dict().values(), *(p.grad for p in plain.parameters())],
                              [*steps["once"].model.state_dict().values(), *(p.grad for p in steps["once"].model.parameters())]):
            self.assertTrue(torch.equal(one, other))

    def test_a_parameter_that_a_forward_overwrites_is_refused_before_it_is(self):
        def in_place(m, x, i):
            with torch.no_grad():
                m.head.weight.mul_(0.9)
            return x

        def by_data(m, x, i):
            m.head.weight.data = 0.9 * m.head.weight.data
            return x

        def through_data(m, x, i):
            m.head.weight.data.add_(1)
            return x
        for between, name in ((in_place, "mul_"), (by_data, "data"), (through_data, "add_")):
            model = Layers(between)
            before = model.head.weight.detach().clone()
            with self.assertRaisesRegex(Refused, rf"^the model's forward overwrites the parameter 'head.weight' \({name}\), which would move with each run"):
                split(model, batch(0), loss=mean_square)
            self.assertTrue(torch.equal(model.head.weight, before))


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
        self.refused(lambda model, x, i: (x.retain_grad(), x)[1], "keeps the gradient of an inner tensor (retain_grad)")
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


class Noise(nn.Module):
    """Of a model's own, and without modules inside: run as a whole."""

    def __init__(self):
        super().__init__()
        self.share, self.settings = 0.0, types.SimpleNamespace(share=0.0)

    def forward(self, x):
        return nn.functional.dropout(x, max(self.share, self.chance()), self.training)

    def chance(self):
        return self.settings.share


class Noisy(nn.Module):
    def __init__(self, noise):
        super().__init__()
        torch.manual_seed(0)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), noise(), nn.Tanh()) for _ in range(3))

    def forward(self, x):
        for block in self.blocks:
            x = x + block(x)
        return x


class WhatRunsAsAWhole(Beside):
    """It reads all anew in each step, and may draw random numbers where it drew none before; or it is another module."""

    def test_random_numbers_from_some_step_on(self):
        def each(change):
            return lambda model: [change(block[1]) for block in model.blocks]
        for name, noise, changes in (
                ("a probability of torch's", lambda: nn.Dropout(0.0), [lambda one: setattr(one, "p", 0.5), lambda one: setattr(one, "p", 1.0)]),
                ("certain before", lambda: nn.Dropout(1.0), [lambda one: setattr(one, "p", 0.5)]),
                ("alone in training", lambda: nn.Dropout(0.5).eval(), [nn.Module.train, nn.Module.eval, nn.Module.train]),
                ("a probability of the model's", Noise, [lambda one: setattr(one, "share", 0.5)]),
                ("an object of the model's", Noise, [lambda one: setattr(one.settings, "share", 0.5)])):
            with self.subTest(name):
                self.begin(Noisy(noise))
                self.check(1)
                for seed, change in enumerate(changes, 2):
                    self.check(seed, each(change))
                    self.check(seed + 10)

    def test_another_probability_is_no_other_course(self):
        self.begin(Noisy(lambda: nn.Dropout(0.2)))
        self.check(1)
        before = self.step.staged
        for seed, p in ((2, 0.3), (3, 0.4)):
            self.check(seed, lambda model, p=p: [setattr(block[1], "p", p) for block in model.blocks])
        self.assertIs(self.step.staged, before)

    def test_another_module_or_parameter_in_its_place(self):
        def other(model):
            numbers = torch.Generator().manual_seed(9)
            made = nn.Linear(8, 8)
            made.weight.data.copy_(torch.randn(8, 8, generator=numbers))
            made.bias.data.zero_()
            return made
        for name, change in (("a module", lambda model: model.layers.__setitem__(1, other(model))),
                             ("a parameter", lambda model: setattr(model.layers[1], "weight", other(model).weight)),
                             ("one that is shared", lambda model: setattr(model.layers[1], "weight", model.layers[0].weight))):
            with self.subTest(name):
                self.begin(Layers())
                self.check(1)
                self.check(2, change)
                self.check(3)

    def test_a_module_that_is_another_kind_is_refused(self):
        for change, expected in ((lambda model: model.layers.append(nn.Linear(8, 8)), r"is of another model: expected module 'head'"),
                                 (lambda model: model.layers.__setitem__(1, nn.Linear(8, 8, bias=False)), r"is of another model: module 'layers.1'")):
            self.begin(Layers())
            self.check(1)
            change(self.model)
            with self.assertRaisesRegex(Refused, expected):
                self.step(batch(2))


if __name__ == "__main__":
    unittest.main()
