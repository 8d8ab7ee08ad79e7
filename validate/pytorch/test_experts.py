#!/usr/bin/env python3
"""Mixture of experts by index: which expert gets how many rows is another matter in each batch, and one may get none. Steps by plans made by hand, bit
for bit. Skipped where this Python has no torch; some seconds.

  /usr/bin/python3 validate/pytorch/test_experts.py
"""

import copy
import unittest

import left_out
from turns import eleventh

try:
    import torch
    from torch import nn

    import hand_plans
    from plimsoll.torch import Refused, apply
    from plimsoll.torch.stages import split
    from plimsoll.torch.versions import why_no_bf16_products
except ModuleNotFoundError as error:
    left_out.end_without(error, "mixtures of experts were not run")

torch.set_num_threads(1)
WIDTH, ROWS = 8, 24


class Experts(nn.Module):
    """Each row goes to the expert that likes it best."""

    def __init__(self):
        super().__init__()
        self.choice = nn.Linear(WIDTH, 3, bias=False)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH)) for _ in range(3))

    def forward(self, x):
        weight, chosen = torch.softmax(self.choice(x), -1).max(-1)
        y = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            rows = torch.nonzero(chosen == number).squeeze(1)
            y = y.index_add(0, rows, expert(x[rows]) * weight[rows].unsqueeze(1))
        return x + y.reshape(x.shape)


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.layers, self.last = nn.Linear(4, WIDTH), nn.ModuleList(Experts() for _ in range(2)), nn.Linear(WIDTH, 3)

    def forward(self, x):
        x = self.first(x)
        for layer in self.layers:
            x = layer(x)
        return self.last(x)


INSIDE = ["layers.0", "layers.0.experts.2", "layers.1", "layers.1.experts.1", "last"]


class Chosen(nn.Module):
    """Goes on with some of the rows alone."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = nn.Linear(4, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 3)

    def forward(self, x):
        return self.third(torch.tanh(self.second(torch.tanh(self.first(x))[x[:, 0] > 0])))


def mean_square(outputs, _):
    return outputs.pow(2).mean()


def batch(number):
    """From the fourth on with equal rows, which all go to one expert."""
    numbers = torch.Generator().manual_seed(number)
    x = torch.randn(ROWS, 4, generator=numbers)
    return (x[:1].repeat(ROWS, 1) if number > 2 else x), torch.randint(3, (ROWS,), generator=numbers)


class Routed(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        self.model = Network()

    def planned(self, how, at_most=True, share=1.0, loss=nn.functional.cross_entropy):
        """Everything goes to the host and comes back."""
        x, y = batch(0)
        staged = split(copy.deepcopy(self.model), x, how, loss, y)
        steps = hand_plans.offload(hand_plans.segments(len(staged.stages), 3), staged)
        plan = hand_plans.plan_of(staged, steps, [int(share * bytes_) for bytes_ in hand_plans.saved_bytes(staged, x, y)])
        if at_most:
            plan["model"]["at_most"] = {"stages": [stage.name for stage in staged.stages], "values": [name for names in staged.boundaries for name in names]}
        return plan

    def trained(self, plan, loss=nn.functional.cross_entropy, batches=range(8), **options):
        """The step, when each of some batches has had the gradients of plain training."""
        plain, model = copy.deepcopy(self.model), copy.deepcopy(self.model)
        step = apply(model, plan, loss=loss, **options)
        for number in batches:
            x, y = batch(number)
            loss(plain(x), y).backward()
            step(x, y)
            for expected, found in zip(plain.parameters(), model.parameters()):
                self.assertTrue(torch.equal(expected.grad, found.grad), number)
        return step

    def test_no_cut_stands_where_a_shape_follows_from_data(self):
        x, y = batch(0)
        staged = split(copy.deepcopy(self.model), x, "auto", nn.functional.cross_entropy, y)
        self.assertEqual([stage.name for stage in staged.stages], ["first", "layers.0", "layers.1", "last", "loss"])

    @eleventh(6)
    def test_each_batch_trains_as_plainly(self):
        for how in ("auto", INSIDE):
            for limit in (None, "1 GB"):
                for parts in (1, 3):
                    with self.subTest(how=how, limit=limit, parts=parts):
                        plan = self.planned(how)
                        self.trained(plan if parts == 1 else hand_plans.in_parts(plan, parts), limit=limit, batches=(7, *range(8)))

    def test_rows_that_are_left_train_as_plainly(self):
        self.model = Chosen()
        self.trained(self.planned(["second", "third"], loss=mean_square), loss=mean_square, batches=range(3))

    def test_nothing_that_is_empty_is_another_one(self):
        """The rows of the expert behind a cut are dropped before the backward of the stage that has chosen them, which does not read them. Where there
        are none, and none of another expert of that stage either, these are not the same memory."""
        x, y = batch(0)
        staged = split(copy.deepcopy(self.model), x, INSIDE, nn.functional.cross_entropy, y)
        plan = hand_plans.plan_of(staged, hand_plans.store_all(len(staged.stages)), [0] * len(staged.stages))
        before, k = staged.boundaries[2], 1
        number = plan["model"]["tensors"][2][before.index(staged.stages[k].makes[-1])]
        self.assertIn("__getitem__", staged.stages[k].makes[-1])
        backward = {action["stage"]: action for action in plan["actions"] if action["do"] == "backward"}
        backward[k]["drops"].remove(f"x{number}")
        backward[k + 1]["drops"].append(f"x{number}")
        self.trained(plan, limit="1 GB")
        self.trained(plan)

    @unittest.skipIf(why_no_bf16_products(), why_no_bf16_products())
    def test_of_what_was_planned_to_have_no_bytes_all_is_copied(self):
        """Under an autocast for which it was not planned."""
        plan, plain, model = self.planned("auto", share=0), copy.deepcopy(self.model), copy.deepcopy(self.model)
        for parts in (1, 3):
            step = apply(model, plan if parts == 1 else hand_plans.in_parts(plan, parts), loss=nn.functional.cross_entropy)
            for one in (plain, model):
                one.zero_grad(set_to_none=True)
            x, y = batch(1)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss, found = nn.functional.cross_entropy(plain(x), y), step(x, y)
            loss.backward()
            self.assertTrue(torch.equal(loss.detach(), found))
            for expected, own in zip(plain.parameters(), model.parameters()):
                self.assertTrue(torch.equal(expected.grad, own.grad), parts)

    def test_what_is_no_size_of_data_must_be_as_planned(self):
        with self.assertRaisesRegex(Refused, r"has \d+ B, by the plan \d+ B: the model is another now"):
            self.trained(self.planned(INSIDE, at_most=False))

    def test_more_than_planned_is_told(self):
        step = self.trained(self.planned("auto", share=0.5))
        self.assertIn("'saved by 1', whose size follows from data, had ", str(step.report()))
        self.assertNotIn("follows from data", str(self.trained(self.planned("auto")).report()))


if __name__ == "__main__":
    unittest.main(verbosity=0)
