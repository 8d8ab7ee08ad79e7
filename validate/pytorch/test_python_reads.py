#!/usr/bin/env python3
"""Tests of what a model's Python code reads beside tensors, each in another place: a change between two steps is seen in the second, as in plain
training. Skipped where this Python has no torch; seconds.

  /usr/bin/python3 validate/pytorch/test_python_reads.py
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
from turns import eleventh

try:
    import numpy
    import torch
    from torch import nn

    from layers import Beside, Layers, batch, planned
    from models import mean_square
    from plimsoll.torch import Refused, apply
    from plimsoll.torch.stages import split
except ModuleNotFoundError as error:
    left_out.end_without(error)

torch.set_num_threads(1)


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

    @eleventh(10)
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
                (int, lambda m, x: x * len(in_a_file()), "its forward reads values from outside of it, which cannot be watched (open)"),
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
