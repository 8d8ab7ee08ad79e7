#!/usr/bin/env python3
"""Tests of what a model's code may read out of tensors (plimsoll/torch/origins.py, reads.py, questions.py). Skipped where this Python has no torch.

  /usr/bin/python3 validate/pytorch/test_reads.py
"""

import copy
import random
import unittest
from unittest import mock

import left_out
from turns import eleventh

try:
    import numpy
    import torch

    import adversary
    import hand_plans
    from plimsoll.torch import Refused, apply
    from plimsoll.torch.questions import shown
    from plimsoll.torch.reads import Call, Reads
    from plimsoll.torch.stages import split
    from plimsoll.torch.watch import Watch
except ModuleNotFoundError as error:
    left_out.end_without(error)

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
    @eleventh(3)
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

    def test_what_is_refused_while_a_model_is_recorded_works_behind_it(self):
        lenders = torch.from_dlpack, torch.utils.dlpack.to_dlpack, torch.utils.dlpack.from_dlpack
        with self.assertRaises(Refused):
            Course(adversary.writes.alias_by_dlpack, False)
        self.assertEqual(lenders, (torch.from_dlpack, torch.utils.dlpack.to_dlpack, torch.utils.dlpack.from_dlpack))

    @eleventh(7)
    def test_each_trick_trains_another_model_where_nobody_watches(self):
        """So that the test above is none of empty words."""
        for name, (trick, kind) in adversary.TRICKS.items():
            if kind == "fixed" or name.startswith("uninitialised") or name == "enlarged":  # memory is often zero
                continue
            with self.subTest(name), mock.patch.object(Reads, "settle", lambda *_: None), mock.patch.object(Call, "look_at", lambda *_: None), \
                    mock.patch.object(Watch, "is_same", lambda _: True):
                self.assertTrue(self.is_wrong(trick))

    @staticmethod
    def is_wrong(trick):
        try:
            course = Course(trick)
            return not all([course.is_right(ones) for ones in (True, False, False, True)])
        except (Refused, ValueError, RuntimeError):  # seen by chance, or in the middle of a step
            return True


class Asking(unittest.TestCase):
    """Of models whose course follows from inputs: when it is asked, and of what."""

    def every(self):
        return copy.deepcopy(made(adversary.inputs.every))

    def other(self, ones, rows=4):
        whole = [adversary.batch(seed, ones or seed == 3) for seed in range(3, 3 + rows // 4)]
        return {name: torch.cat([one[name] for one in whole]) for name in whole[0]}

    def refused(self, step, inputs, expected):
        with self.assertRaises(Refused) as raised:
            step(inputs)
        self.assertEqual(str(raised.exception), f"the model itself: its forward reads a number (__float__) that follows from {expected}, for these inputs False")
        self.assertTrue(all(p.grad is None for p in step.model.parameters()))

    def test_every_micro_batch_is_asked_before_the_first_runs(self):
        model, example = self.every(), adversary.batch(0)
        staged = split(copy.deepcopy(model), example, ["second", "head"])
        plan = hand_plans.plan_of(staged, hand_plans.recompute_all(len(staged.stages)), [0] * len(staged.stages), micro_batches=2)
        plain, step = copy.deepcopy(model), apply(model, plan)
        inputs = self.other(True, 8)
        loss = step(inputs)
        losses = [plain(inputs["x"][k:k + 4], inputs["mask"][k:k + 4]) / 2 for k in (0, 4)]
        [one.backward() for one in losses]
        self.assertTrue(torch.equal(loss, (losses[0] + losses[1]).detach()))
        self.assertTrue(all(torch.equal(p.grad, q.grad) for p, q in zip(plain.parameters(), model.parameters()) if p.grad is not None))
        model.zero_grad(set_to_none=True)
        started = []
        step.watch = lambda number, _: started.append(number)
        self.refused(step, self.other(False, 8), "'mask': for the example True")
        self.assertEqual(started, [])

    def test_the_first_inputs_are_asked_too_for_the_plan_is_of_the_example(self):
        model = self.every()
        self.refused(apply(model, planned(model, adversary.batch(0))), adversary.batch(1, ones=False), "'mask': for the example True")

    def test_inputs_in_containers_have_names(self):
        torch.manual_seed(0)
        model = adversary.Nested(adversary.inputs.every)
        nested = [{"x": one["x"], "more": {"batch": adversary.Batch(one["mask"])}} for one in (adversary.batch(0), adversary.batch(1, ones=False))]
        step = apply(model, planned(model, nested[0]))
        step(nested[0])
        model.zero_grad(set_to_none=True)
        self.refused(step, nested[1], "'more.batch.mask': for the example True")

    def test_two_inputs_that_share_memory_are_two(self):
        for overlap in (lambda mask: mask, lambda mask: mask.view(4, 6)):
            model, mask = made(lambda m, x, mask, h: (x == mask).all()), adversary.batch(0)["mask"].float()
            step = apply(model, planned(model, {"x": mask, "mask": overlap(mask)}))
            step({"x": mask, "mask": overlap(mask)})
            model.zero_grad(set_to_none=True)
            self.refused(step, {"x": mask, "mask": mask * 2}, "'mask' and 'x': for the example True")

    def test_inputs_that_lie_otherwise_in_memory_are_asked_as_well(self):
        model = self.every()
        step = apply(model, planned(model, adversary.batch(0)))
        inputs = adversary.batch(2)
        for mask in (torch.ones(6, 4, dtype=torch.long).t(), torch.ones(9, 6, dtype=torch.long)[3:7], torch.ones(1, 1, dtype=torch.long).expand(4, 6)):
            self.assertEqual(step({"x": inputs["x"], "mask": mask}).numel(), 1)
        staged, mask = split(made(lambda m, x, mask, h: mask.tolist()[0].count(1)), adversary.batch(0), ["head"]), torch.ones(6, 4, dtype=torch.long).t()
        mask[1] = 0  # a part of the first row of numbers in memory
        staged.values_of({"x": inputs["x"], "mask": torch.ones(6, 4, dtype=torch.long).t()})
        with self.assertRaisesRegex(Refused, r"for these inputs \[\[1, 1, 1, 1, 1, 1\], \[0, 0, 0, 0, 0, 0\], \[1"):
            staged.values_of({"x": inputs["x"], "mask": mask})

    def test_what_is_asked_leaves_the_inputs_as_they_are(self):
        def doubled(m, x, mask, h):
            adversary.Hidden.apply(mask, mask)  # adds to the mask
            return mask.sum()
        inputs = adversary.batch(0)
        staged = split(made(doubled), inputs, ["head"], check=False)
        self.assertEqual(len(staged.questions.answers()), 1)
        staged.values_of(inputs)
        self.assertTrue(torch.equal(inputs["mask"], adversary.batch(0)["mask"]))

    def test_an_answer_by_way_of_other_shapes_is_another(self):
        staged = split(made(lambda m, x, mask, h: mask[mask.bool()].max()), adversary.batch(0), ["head"])
        staged.values_of(adversary.batch(1))
        with self.assertRaisesRegex(Refused, r"for the example by way of a tensor of shape \[24\], for these inputs of shape \[16\]$"):
            staged.values_of(adversary.batch(1, ones=False))

    def test_plans_of_one_shape_are_told_apart_by_what_is_read(self):
        model = self.every()
        plain, examples = copy.deepcopy(model), [adversary.batch(0), adversary.batch(0, ones=False)]
        plans = [planned(model, example) for example in examples]
        step = apply(model, plans)
        for ones in (True, False, True):
            inputs = adversary.batch(5, ones)
            self.assertTrue(are_same(trained(model, step, inputs, 0), trained(plain, plainly(plain), inputs, 0)))
        alone = apply(model, plans[:1], otherwise="plain")
        self.assertTrue(are_same(trained(model, alone, examples[1], 0), trained(plain, plainly(plain), examples[1], 0)))
        with self.assertRaisesRegex(Refused, "are both for x float32"):
            apply(model, plans + plans[:1])

    def test_a_buffer_that_torchs_own_modules_read_is_asked(self):
        class Own(torch.nn.Sequential):  # looked into like torch's own, since it says that it is one
            __module__ = "torch.nn.modules.container"

            def forward(self, x):
                return super().forward(x) * (1.0 if self.mask.all() else 2.0)

        class Outer(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = Own(torch.nn.Linear(6, 6))
                self.inner.register_buffer("mask", torch.ones(2))
                self.head = torch.nn.Linear(6, 1)

            def forward(self, x):
                return self.head(self.inner(x)).pow(2).mean()
        torch.manual_seed(0)
        model, x = Outer(), adversary.batch(0)["x"]
        staged = split(model, x, ["head"])
        staged.values_of(x)
        model.inner.mask[1] = 0
        with self.assertRaisesRegex(Refused, "^module 'inner': its forward reads a number .__bool__. that follows from the buffer 'inner.mask': for the "
                                             "example True, for these inputs False$"):
            staged.values_of(x)

    def test_long_answers_differ_behind_what_is_shown(self):
        answers = [list(range(99)), [*range(98), 0]]
        self.assertEqual(shown(answers[0])[:60], shown(answers[1])[:60])
        self.assertNotEqual(shown(answers[0]), shown(answers[1]))

    def test_casts_that_autocast_keeps_are_no_hidden_tensors(self):
        class Tied(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.inner, self.head = torch.nn.Linear(6, 6), torch.nn.Linear(6, 1)

            def forward(self, x):
                h = self.inner(self.inner(x).tanh()) + torch.nn.functional.linear(x, self.inner.weight)
                return self.head(h).float().pow(2).mean()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            self.assertEqual(split(Tied(), adversary.batch(0)["x"], ["head"]).questions.answers(), [])


if __name__ == "__main__":
    unittest.main()
