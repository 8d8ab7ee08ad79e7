#!/usr/bin/env python3
"""Tests of what is watched from step to step, and of what a forward does that no step would do: plans made by hand beside plain training. Skipped
where this Python has no torch; seconds.

  /usr/bin/python3 validate/pytorch/test_watch.py
"""

import collections
import contextlib
import contextvars
import copy
import ctypes
import dataclasses
import datetime
import functools
import multiprocessing
import os
import random
import sys
import threading
import time
import types
import unittest
import weakref

import left_out

try:
    import numpy
    import torch
    from torch import nn

    import hand_plans
    from models import mean_square
    from plimsoll.torch import Refused, apply
    from plimsoll.torch.stages import split
except ModuleNotFoundError as error:
    left_out.end_without(error)

torch.set_num_threads(1)


class Layers(nn.Module):
    """`between(model, x, i)`: what the model does behind each layer."""

    own_factor = 1.0

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


# --- what the model's code reads, each in another place -------------------------------------------------------------------------------------------

class Settings:
    by_class = 1.0

    def __init__(self):
        self.factor, self.deep, self.scale_1 = 1.0, {"list": [{"factor": 1.0}]}, 1.0
        self.tuple = (1.0, [1.0])

    @property
    def seen(self):
        return self.factor * 2

    def value(self):
        return self.factor + 1

    @staticmethod
    def of_class():
        return Settings.by_class


class Outer:
    def __init__(self):
        self.inner = Settings()


class Slotted:
    __slots__ = ("factor",)

    def __init__(self):
        self.factor = 1.0


class Heir(Settings):
    pass


@dataclasses.dataclass
class Record:
    factor: float = 1.0


GLOBAL, TABLE, COUNTED = 1.0, {"factor": 1.0}, collections.Counter(a=1)
OTHER = types.ModuleType("settings_of_others")
OTHER.factor = 1.0
CELL, VARIABLE = [1.0], contextvars.ContextVar("factor")


def with_default(x, factors=[1.0], *, more={"factor": 1.0}):
    return x * factors[0] * more["factor"]


def plain_default(x, factor=1.0):
    return x * factor


def doubled(function):
    @functools.wraps(function)
    def wrapper(x):
        return function(x) + function(x)
    return wrapper


def made_with_cell():
    factor = 1.0

    def scaled(x):
        return x * factor

    def set_to(number):
        nonlocal factor
        factor = number
    return doubled(scaled), set_to


SCALED, SET_CELL = made_with_cell()


def helper(x):
    return x * GLOBAL


def set_global(model, to):
    globals()["GLOBAL"] = to


def set_helper(model, to):
    globals()["helper"] = lambda x: x * to


class Outside(nn.Module):
    def __init__(self):
        super().__init__()
        self.factor = 1.0

    def forward(self, x):
        return x * self.factor


def setter(*path):
    """`model.thing` and from there by attributes, to a number."""
    def change(model, to):
        owner = model.thing
        for name in path[:-1]:
            owner = getattr(owner, name)
        setattr(owner, path[-1], to)
    return change


WHERE = [  # (name, what the model gets as `thing`, what its forward does with x, how a script changes it)
    ("attribute of an object", Settings, lambda m, x: x * m.thing.factor, setter("factor")),
    ("deep in an object", Settings, lambda m, x: x * m.thing.deep["list"][0]["factor"], lambda m, to: m.thing.deep["list"][0].update(factor=to)),
    ("in a tuple", Settings, lambda m, x: x * m.thing.tuple[1][0], lambda m, to: m.thing.tuple[1].__setitem__(0, to)),
    ("an object's attribute in front of its class's", Settings, lambda m, x: x * m.thing.by_class, setter("by_class")),
    ("a class's attribute", Settings, lambda m, x: x * m.thing.by_class, lambda m, to: setattr(Settings, "by_class", to)),
    ("a base's attribute", Heir, lambda m, x: x * m.thing.by_class, lambda m, to: setattr(Settings, "by_class", to)),
    ("a class by its name", int, lambda m, x: x * Settings.by_class, lambda m, to: setattr(Settings, "by_class", to)),
    ("the model's own class", int, lambda m, x: x * m.own_factor, lambda m, to: setattr(Layers, "own_factor", to)),
    ("a property", Settings, lambda m, x: x * m.thing.seen, setter("factor")),
    ("a method", Settings, lambda m, x: x * m.thing.value(), setter("factor")),
    ("a bound method", lambda: Settings().value, lambda m, x: x * m.thing(), setter("__self__", "factor")),
    ("a static method", Settings, lambda m, x: x * m.thing.of_class(), lambda m, to: setattr(Settings, "by_class", to)),
    ("a slot", Slotted, lambda m, x: x * m.thing.factor, setter("factor")),
    ("a dataclass", Record, lambda m, x: x * dataclasses.asdict(m.thing)["factor"], setter("factor")),
    ("a namespace", lambda: types.SimpleNamespace(factor=1.0), lambda m, x: x * m.thing.factor, setter("factor")),
    ("a name that is made", Settings, lambda m, x: x * getattr(m.thing, f"scale_{len(m.layers) - 2}"), setter("scale_1")),
    ("a word", lambda: types.SimpleNamespace(inner=Settings()), lambda m, x: x * getattr(m.thing, "inner").factor, setter("inner", "factor")),
    ("a word of an object", lambda: Outer(), lambda m, x: x * getattr(m.thing, "inner").factor, setter("inner", "factor")),
    ("a global", int, lambda m, x: x * GLOBAL, set_global),
    ("a global of a function", int, lambda m, x: helper(x), set_global),
    ("a function by its name", int, lambda m, x: helper(x), set_helper),
    ("a global table", int, lambda m, x: x * TABLE["factor"], lambda m, to: TABLE.update(factor=to)),
    ("a counter", int, lambda m, x: x * COUNTED["a"], lambda m, to: COUNTED.update(a=int(to))),
    ("another file", int, lambda m, x: x * OTHER.factor, lambda m, to: setattr(OTHER, "factor", to)),
    ("the environment", int, lambda m, x: x * float(os.environ.get("PLIMSOLL_TEST_FACTOR", "1")),
       lambda m, to: os.environ.__setitem__("PLIMSOLL_TEST_FACTOR", str(to))),
    ("a cell", int, lambda m, x: SCALED(x), lambda m, to: SET_CELL(to)),
    ("a list in a cell", lambda: (lambda box: lambda x: x * box[0])(CELL), lambda m, x: m.thing(x), lambda m, to: CELL.__setitem__(0, to)),
    ("a list among defaults", int, lambda m, x: with_default(x), lambda m, to: with_default.__defaults__[0].__setitem__(0, to)),
    ("a default by name", int, lambda m, x: with_default(x), lambda m, to: with_default.__kwdefaults__["more"].update(factor=to)),
    ("a default", int, lambda m, x: plain_default(x), lambda m, to: setattr(plain_default, "__defaults__", (to,))),
    ("what a partial function has", lambda: functools.partial(plain_default, factor=1.0), lambda m, x: m.thing(x),
       lambda m, to: m.thing.keywords.update(factor=to)),
    ("an array of numpy", lambda: numpy.ones(3), lambda m, x: x * float(m.thing[1]), lambda m, to: m.thing.__setitem__(1, to)),
    ("memory of C", lambda: ctypes.c_double(1.0), lambda m, x: x * m.thing.value, setter("value")),
    ("a set", lambda: {1}, lambda m, x: x * max(m.thing), lambda m, to: m.thing.add(int(10 * to))),
    ("a queue", lambda: collections.deque([1.0], maxlen=1), lambda m, x: x * m.thing[0], lambda m, to: m.thing.append(to)),
    ("a weak reference", lambda: (lambda kept: [kept, weakref.ref(kept)])(Settings()), lambda m, x: x * m.thing[1]().factor,
       lambda m, to: setattr(m.thing[0], "factor", to)),
    ("a weak proxy", lambda: (lambda kept: {"kept": kept, "proxy": weakref.proxy(kept)})(Settings()), lambda m, x: x * m.thing["proxy"].factor,
       lambda m, to: setattr(m.thing["kept"], "factor", to)),
    ("a module that is not the model's", lambda: [Outside()], lambda m, x: m.thing[0](x), lambda m, to: setattr(m.thing[0], "factor", to)),
    ("a local of the thread", lambda: local_of_thread(), lambda m, x: x * m.thing.factor, setter("factor")),
    ("a schedule of torch's", lambda: schedule(), lambda m, x: x * m.thing.get_last_lr()[0], lambda m, to: m.thing._last_lr.__setitem__(0, to)),
    ("a variable of the context", lambda: VARIABLE, lambda m, x: x * m.thing.get(1.0), lambda m, to: VARIABLE.set(to)),
    ("a function in an attribute", lambda: (lambda x: x * 1.0), lambda m, x: m.thing(x), lambda m, to: setattr(m, "thing", lambda x: x * to)),
    ("a method of a class", Settings, lambda m, x: x * m.thing.value(), lambda m, to: setattr(Settings, "value", lambda self: to)),
]


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


def in_a_file():
    with open(os.devnull, encoding="utf-8") as file:
        return file.read()


def local_of_thread():
    made = threading.local()
    made.factor = 1.0
    return made


def schedule():
    return torch.optim.lr_scheduler.StepLR(torch.optim.SGD([torch.zeros(1)], 1.0), 10)


class WhatIsRead(Beside):
    def setUp(self):
        kept = dict(vars(Settings)), plain_default.__defaults__
        self.addCleanup(self.as_before, *kept)

    def as_before(self, settings, defaults):
        Settings.by_class, Settings.value, plain_default.__defaults__, Layers.own_factor = settings["by_class"], settings["value"], defaults, 1.0
        globals().update(GLOBAL=1.0, helper=self.helper)
        TABLE["factor"], OTHER.factor, CELL[0] = 1.0, 1.0, 1.0
        with_default.__defaults__[0][0], with_default.__kwdefaults__["more"]["factor"] = 1.0, 1.0
        os.environ.pop("PLIMSOLL_TEST_FACTOR", None)
        SET_CELL(1.0)

    helper = staticmethod(helper)

    def begin_with(self, made, read):
        """Both models have the one thing, as they have the same globals."""
        thing = made()

        def model():
            found = Layers(lambda m, x, i: read(m, x))
            found.thing = thing
            return found
        self.loss, self.model, self.plain = mean_square, model(), model()
        self.plan = planned(model(), batch(0))
        self.step = apply(self.model, self.plan, loss=mean_square)

    def test_what_changes_between_steps_is_seen(self):
        for name, made, read, change in WHERE:
            with self.subTest(name):
                self.setUp()
                self.begin_with(made, read)
                self.check(1)
                before = self.step.staged
                self.check(2)
                self.assertIs(self.step.staged, before, "nothing has changed")
                self.check(3, lambda model: change(model, 3.0))
                self.assertIsNot(self.step.staged, before)
                self.check(4, lambda model: change(model, 2.0))
                self.doCleanups()

    def test_the_same_numbers_in_other_objects_are_the_same(self):
        self.begin_with(Settings, lambda m, x: x * m.thing.factor * m.thing.deep["list"][0]["factor"])
        self.check(1)
        before = self.step.staged
        self.model.thing = Settings()
        self.model.thing.factor = float("1.0")
        self.check(2)
        self.assertIs(self.step.staged, before)
        self.assertTrue(before.watch.is_untouched(), "what is there now is what is compared")
        self.model.thing.factor = 1  # which makes another tensor of whole numbers
        self.assertFalse(before.is_course_of(batch(3)))

    def test_what_a_loss_that_only_takes_out_reads(self):
        made = lambda model: {"a": model.pow(2).mean(), "b": model.pow(4).mean()}

        class Two(Layers):
            def forward(self, x):
                return made(super().forward(x))
        self.begin(Two(), lambda output, _: output["a"] if TABLE["factor"] == 1.0 else output["b"])
        self.check(1)
        self.check(2, lambda model: TABLE.update(factor=2.0))

    def test_what_an_object_among_the_inputs_has(self):
        class Asked(Layers):
            def forward(self, x, settings):
                return super().forward(x) * settings.factor
        model, settings, x = Asked(), Settings(), batch(0)
        plain = copy.deepcopy(model)
        step = apply(model, planned(copy.deepcopy(model), (x, settings)), loss=mean_square)
        for factor in (1.0, 3.0):
            settings.factor = factor
            self.assertTrue(torch.equal(step((x, settings)), mean_square(plain(x, settings)).detach()))

    def test_a_table_is_watched_where_the_code_names_it(self):
        self.begin_with(lambda: [1.0] * 1000, lambda m, x: x * m.thing[500])
        self.model.other = self.plain.other = [1.0] * 1000
        self.check(1)
        before = self.step.staged
        self.model.other[500] = 2.0
        self.check(2)
        self.assertIs(self.step.staged, before)
        self.check(3, lambda model: model.thing.__setitem__(500, 2.0))

    def test_what_is_not_named_is_not_watched(self):
        self.begin_with(Settings, lambda m, x: x * m.thing.factor)
        self.check(1)
        before = self.step.staged
        self.model.thing.by_class = 7
        TABLE["factor"] = 9.0
        self.check(2)
        self.assertIs(self.step.staged, before)

    def test_what_cannot_be_watched_is_refused_when_it_is_cut(self):
        for made, read, expected in (
                (lambda: iter([1.0] * 999), lambda m, x: x * next(m.thing),
                 "the model: thing is an iterator (list_iterator), which gives the model's code something else each time"),
                (lambda: (1.0 for i in range(999)), lambda m, x: x * next(m.thing), "is an iterator (generator)"),
                (lambda: multiprocessing.Value("d", 1.0), lambda m, x: x * m.thing.value, "what it gives the model's code nobody can watch"),
                (lambda: numpy.ones(1 << 18), lambda m, x: x * float(m.thing[0]), "is an array of numpy of 2097152 B, too large to be compared in each step"),
                (int, lambda m, x: x * min(1.0, time.time()), "the model itself: its forward reads the clock (time)"),
                (int, lambda m, x: x * min(1.0, time.perf_counter() + 1), "its forward reads the clock (perf_counter)"),
                (int, lambda m, x: x * min(1.0, datetime.datetime.now().year), "its forward reads the clock (now)"),
                (int, lambda m, x: x * len(in_a_file()), "its forward reads what is outside of it, which nobody can watch (open)"),
                (int, lambda m, x: x if random.choice([1, 2]) else -x, "its forward draws random numbers of Python or numpy"),
                (int, lambda m, x: x if numpy.random.randint(4) < 9 else -x, "its forward draws random numbers of Python or numpy"),
                (lambda: random.Random(0), lambda m, x: x if m.thing.random() < 2 else -x, "what it gives the model's code nobody can watch"),
                (lambda: numpy.random.default_rng(0), lambda m, x: x if m.thing.random() < 2 else -x, "what it gives the model's code nobody can watch")):
            with self.subTest(expected), self.assertRaises(Refused) as raised:
                self.begin_with(made, read)
            self.assertIn(expected, str(raised.exception))

    def test_random_numbers_that_decide_nothing_are_taken(self):
        for draw in (random.random, lambda: random.random(), lambda: random.uniform(0, 1), lambda: numpy.random.uniform(0, 1), lambda: numpy.random.rand()):
            for p, is_taken in ((0.0, True), (1.0, True), (0.01, False), (0.99, False)):
                model = Layers(lambda m, x, i: x * 2 if draw() < p else x)
                with self.subTest(p=p), contextlib.nullcontext() if is_taken and draw is not random.random else self.assertRaisesRegex(
                        Refused, "^the model itself: its forward draws random numbers of Python or numpy"):
                    split(model, batch(0), loss=mean_square)
        self.assertNotEqual(random.random(), random.random(), "as before")
        for between in (lambda m, x, i: x * numpy.random.rand(8).astype("float32").mean().item(), lambda m, x, i: x if 0.4 < random.random() < 0.6 else 2 * x):
            with self.assertRaisesRegex(Refused, "random numbers of Python or numpy"):
                split(Layers(between), batch(0), loss=mean_square)

    def test_a_profiler_of_the_caller_goes_on(self):
        seen = []
        profiler = lambda frame, event, arg: seen.append(event)
        sys.setprofile(profiler)
        try:
            split(Layers(), batch(0), loss=mean_square)
            self.assertIs(sys.getprofile(), profiler)
        finally:
            sys.setprofile(None)

    def test_hooks_that_come_later_are_refused(self):
        self.begin(Layers())
        self.check(1)
        seen = []
        handle = self.model.layers[1].register_forward_hook(lambda *_: seen.append(1))
        with self.assertRaisesRegex(Refused, "^module 'layers.1' has forward hooks, which would run again with each recomputation$"):
            self.step(batch(2))
        handle.remove()
        self.check(2)
        handle = self.model.head.weight.register_hook(lambda gradient: 2 * gradient)
        with self.assertRaisesRegex(Refused, "^parameter 'head.weight' has a hook on its gradient"):
            self.step(batch(2))
        handle.remove()
        self.check(3)
        step = apply(self.model, self.plan, loss=mean_square)
        self.model.layers[0].register_forward_pre_hook(lambda *_: None)
        with self.assertRaisesRegex(Refused, "^module 'layers.0' has forward pre hooks"):
            step(batch(4))
        self.assertEqual(seen, [])


if __name__ == "__main__":
    unittest.main()
