#!/usr/bin/env python3
"""Tests of what a model's code may read out of tensors (plimsoll_torch/origins.py, reads.py, questions.py). Skipped where this Python has no torch.

  /usr/bin/python3 validate/pytorch/test_reads.py
"""

import copy
import os
import random
import sys
import unittest
from unittest import mock

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

try:
    import numpy
    import torch

    import adversary
    import hand_plans
    from plimsoll_torch import Refused, apply
    from plimsoll_torch.reads import Call, Reads
    from plimsoll_torch.stages import split
except ModuleNotFoundError as error:
    raise SystemExit(0 if print(f"skipped: {sys.executable} has no {error.name} (Debian: apt-get install python3-torch "
                                "python3-torchvision, then /usr/bin/python3)") is None else 1)

torch.set_num_threads(1)


def made(trick, kind=adversary.Model):
    torch.manual_seed(0)
    adversary.BOX.clear()
    adversary.BOX["flag"], adversary.BOX["generator"] = torch.zeros(()), torch.Generator()
    return kind(trick)


def seeded(seed):
    torch.manual_seed(seed)
    random.seed(seed)
    numpy.random.seed(seed)
    adversary.BOX["generator"].manual_seed(seed)


def planned(model, example):
    staged = split(copy.deepcopy(model), example, "auto" if hasattr(model, "model") else ["second", "head"])
    return hand_plans.plan_of(staged, hand_plans.recompute_all(len(staged.stages)), [0] * len(staged.stages))


def trained(model, run, inputs, seed):
    """What a step leaves: loss and gradients."""
    model.zero_grad(set_to_none=True)
    seeded(seed)
    loss = run(inputs)
    return [loss.detach(), *(p.grad for p in model.parameters())]


def plainly(model):
    def run(inputs):
        loss = model(**inputs)
        loss.backward()
        return loss
    return run


def are_same(a, b):
    return len(a) == len(b) and all((p is None) == (q is None) and (p is None or torch.equal(p, q)) for p, q in zip(a, b))


class Course:
    """Steps by a plan beside plain training, each on a model of its own."""

    def __init__(self, trick, inside=False):
        self.plain = adversary.Inside(made(trick)) if inside else made(trick)
        self.model, example = copy.deepcopy(self.plain), adversary.batch(0)
        adversary.BOX["example"] = example["mask"]
        seeded(0)
        self.step = apply(self.model, planned(self.model, example))
        self.seed = 0

    def is_right(self, ones):
        """Whether one more step is as in plain training."""
        self.seed += 1
        inputs = adversary.batch(self.seed, ones)
        found = trained(self.model, self.step, inputs, self.seed)
        expected = trained(self.plain, plainly(self.plain), inputs, self.seed)
        for model in (self.plain, self.model):
            changed_between_steps(model)
        adversary.BOX["flag"].add_(1)
        return are_same(expected, found)


def changed_between_steps(model):
    """Parameters, and what a script changes beside."""
    with torch.no_grad():
        for p in model.parameters():
            p.sub_(p.grad if p.grad is not None else 0.0, alpha=0.3)
    inner = getattr(model, "model", model)
    inner.count.add_(1), inner.flag.add_(1)
    inner.array += 1


class Adversary(unittest.TestCase):
    def test_no_trick_is_taken_wrongly(self):
        for name, (trick, kind) in adversary.TRICKS.items():
            for inside in (False, True):
                with self.subTest(name, inside=inside):
                    {"fixed": self.fixed, "asked": self.asked}.get(kind, lambda *of: self.refused(*of, kind))(trick, inside)

    def fixed(self, trick, inside):
        course = Course(trick, inside)
        for ones in (True, False, True):
            self.assertTrue(course.is_right(ones))

    def asked(self, trick, inside):
        course = Course(trick, inside)
        self.assertTrue(course.is_right(True))
        before = [tensor.clone() for tensor in course.model.state_dict().values()]
        with self.assertRaisesRegex(Refused, r"^(the model itself|module '[\w.]+'): its forward reads a (number|shape) \([\w. ]+\) that follows from 'mask': "
                                             "for the example .+, for these inputs .+$"):
            trained(course.model, course.step, adversary.batch(7, ones=False), 7)
        self.assertTrue(all(p.grad is None for p in course.model.parameters()))
        self.assertTrue(are_same(before, list(course.model.state_dict().values())))

    def refused(self, trick, inside, words):
        with self.assertRaises(Refused) as raised:
            Course(trick, inside)
        self.assertIn(words if isinstance(words, str) else words[inside], str(raised.exception))

    def test_each_trick_trains_another_model_where_nobody_watches(self):
        """So that the test above is none of empty words."""
        for name, (trick, kind) in adversary.TRICKS.items():
            if kind == "fixed" or name.startswith("uninitialised") or name == "enlarged":  # memory is often zero
                continue
            with self.subTest(name), mock.patch.object(Reads, "settle", lambda *_: None), mock.patch.object(Call, "look_at", lambda *_: None):
                self.assertTrue(self.is_wrong(trick))

    @staticmethod
    def is_wrong(trick):
        try:
            course = Course(trick)
            return not all([course.is_right(ones) for ones in (True, False, False, True)])
        except (Refused, ValueError, RuntimeError):  # seen by chance, or in the middle of a step
            return True


if __name__ == "__main__":
    unittest.main()
