#!/usr/bin/env python3
"""What is alive while plimsoll.torch.apply runs plans made by hand: nothing that the plan has freed. Skipped where this Python has no torch.

  /usr/bin/python3 validate/pytorch/test_memory.py
"""

import copy
import gc
import unittest
import weakref
from unittest import mock

import left_out
from turns import eleventh

try:
    import torch
    from torch import nn

    import hand_plans

    from models import mean_square
    from plimsoll.torch import LimitExceeded, apply
    from plimsoll.torch.saved import SavedByStage
    from plimsoll.torch.stages import split
    from plimsoll.torch.versions import storage_of
except ModuleNotFoundError as error:
    left_out.end_without(error)

torch.set_num_threads(1)


def live_bytes():
    """Of all storages that Python reaches and of what autograd holds: counted by the collector, not by the executor. Bytes as such are copies on
    the host, which is the same memory here."""
    gc.collect()
    sizes = {}
    for thing in gc.get_objects():
        if issubclass(type(thing), torch.Tensor) and thing.dtype != torch.uint8:
            sizes[storage_of(thing).data_ptr()] = storage_of(thing).nbytes()
    return sum(sizes.values())


class Memory(unittest.TestCase):
    def test_nothing_is_left_but_gradients(self):
        model, plan, loss, inputs, targets = hand_plans.planned("densenet", hand_plans.SEQUENCES["offload segments"])
        step = apply(model, plan, loss=loss)
        step(inputs, targets)
        for p in model.parameters():
            p.grad = None
        before = live_bytes()
        got = step(inputs, targets)
        gradients = sum(p.grad.numel() * p.grad.element_size() for p in model.parameters())
        self.assertEqual(live_bytes() - before, gradients + storage_of(got).nbytes())

    @eleventh(0)
    def test_what_a_plan_drops_is_gone_at_once(self):
        """A stage's input that no backward reads; what the stage saves; and what autograd saved, as the backward goes on."""
        torch.manual_seed(0)
        model = nn.Sequential(*[nn.Sequential(nn.Linear(100, 100), nn.Tanh()) for _ in range(6)])
        x = torch.randn(1000, 100)  # a value has 400 kB
        staged = split(copy.deepcopy(model), x, how=None, loss=mean_square)
        plan = hand_plans.plan_of(staged, hand_plans.segments(len(staged.stages), 3), [0] * len(staged.stages))
        step, seen = apply(model, plan, loss=mean_square), []
        step.watch = lambda number, action: seen.append((live_bytes() if number is not None else 0, action))
        step(x)
        value, base = 400_000, seen[0][0]
        held = [round((live - base) / value) for live, action in seen[:4]]
        self.assertEqual(held, [0, 1, 1, 1], "forwards that keep nothing: the last output alone")

    def asked(self, steps, drops=None, micro_batches=1):
        """How many tensors the hooks are handed in the first and in the second step, and live values (400 kB) before each action of the
        second. `drops`: {number of an action: values that are dropped there too}."""
        torch.manual_seed(0)
        model = nn.Sequential(*[nn.Sequential(nn.Linear(100, 100), nn.Tanh(), nn.Linear(100, 100)) for _ in range(3)])
        x = torch.randn(1000, 100)
        staged = split(copy.deepcopy(model), x, how=None, loss=mean_square)
        plan = hand_plans.plan_of(staged, steps, [800_000] * 3 + [0], micro_batches)
        x = x.repeat(micro_batches, 1)
        for number, names in (drops or {}).items():
            for action in plan["actions"]:
                action["drops"] = [name for name in action.get("drops", ()) if name not in names]
            plan["actions"][number]["drops"] = names
        step, counts, seen, pack = apply(model, plan, loss=mean_square), [], [], SavedByStage.pack
        for _ in range(2):
            counts.append(0)

            def counted(of, tensor):
                counts[-1] += 1
                return pack(of, tensor)

            for parameter in model.parameters():
                parameter.grad = None
            step.watch = lambda number, action: seen.append(live_bytes())
            seen.clear()
            with mock.patch.object(SavedByStage, "pack", counted):
                step(x)
        return counts, [round((live - seen[0]) / 400_000) for live in seen[:-1]]

    @eleventh(9)
    def test_autograd_holds_what_the_plan_leaves_alone(self):
        counts, live = self.asked(hand_plans.store_all(4))
        self.assertGreater(counts[0], 6)
        self.assertEqual(counts[1], 0)
        self.assertEqual(live[:4], [0, 2, 4, 6], "the result of its Tanh and its output, of each stage")
        self.assertEqual(live[5:], [7, 5, 3], "with the gradient of the output")

    @eleventh(1)
    def test_autograd_holds_the_same_of_each_micro_batch(self):
        """Of which the second goes the short way in the first step already, before anybody knows what it saves."""
        counts, _ = self.asked(hand_plans.store_all(4), micro_batches=2)
        self.assertGreater(counts[0], 12)
        self.assertEqual(counts[1], 0)

    def test_a_step_goes_with_its_last_name(self):
        """And with it the memory of its model, before any garbage is collected."""
        model, plan, loss, inputs, targets = hand_plans.planned("gpt", hand_plans.SEQUENCES["offload segments"])
        step = apply(model, plan, loss=loss)
        for _ in range(3):
            step(inputs, targets)
        gone = weakref.ref(step), weakref.ref(model)
        gc.collect()
        gc.disable()
        del step, model
        gc.enable()
        self.assertEqual([one() for one in gone], [None, None])

    @eleventh(6)
    def test_autograd_holds_nothing_that_the_plan_drops_before(self):
        steps = [("S", 0), ("S", 1), ("S", 2), ("F", 0), ("S", 3), ("B", 3), ("B", 2), ("B", 1), ("B", 0)]
        counts, live = self.asked(steps, {2: ["x1"]})  # what stage 1 reads, dropped and made anew
        self.assertLess(counts[1], counts[0])
        self.assertGreater(counts[1], 0, "of stage 1")
        self.assertEqual(live[:4], [0, 2, 4, 5])

    @eleventh(5)
    def test_autograd_holds_no_second_copy_of_what_is_there(self):
        """What a forward makes that runs again stays as it is: its backward reads that, not what it has made a second time."""
        class Both(nn.Linear):
            def forward(self, x):
                made = super().forward(x)
                return made, made.sin()  # whose backward reads its input

        class Sum(nn.Module):
            def forward(self, pair):
                return pair[0] + pair[1]

        torch.manual_seed(0)
        model, x = nn.Sequential(Both(100, 100), Sum(), nn.Tanh()), torch.randn(1000, 100)  # a value has 400 kB
        staged = split(copy.deepcopy(model), x, how=None, loss=mean_square)
        steps = [("F", 0), ("S", 1), ("S", 0), ("S", 2), ("S", 3), ("B", 3), ("B", 2), ("B", 1), ("B", 0)]
        plan = hand_plans.plan_of(staged, steps, [0] * 4)
        dropped = plan["actions"][1]["drops"]
        kept = [name for name in dropped if name in plan["actions"][0]["makes"]]
        plan["actions"][1]["drops"] = [name for name in dropped if name not in kept]  # they are there when their stage runs again
        step, seen = apply(model, plan, loss=mean_square), []
        step.watch = lambda number, action: seen.append(live_bytes())
        for _ in range(2):
            for parameter in model.parameters():
                parameter.grad = None
            seen.clear()
            step(x)
            self.assertEqual([round((live - seen[0]) / 400_000) for live in seen[1:5]], [2, 3, 3, 4])

    def test_in_one_call_holds_nothing_for_names_in_the_forward(self):
        class First(nn.Linear):
            def forward(self, x):
                made = super().forward(x)
                self.made = weakref.ref(made)
                return made

        class Last(nn.Linear):
            def forward(self, x):
                self.is_gone = self.first[0].made() is None
                return super().forward(x)

        class Holds(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.last = First(4, 4), Last(4, 4)
                self.last.first = [self.first]

            def forward(self, x):
                x = self.first(x)
                y = x + 1
                return self.last(y)

        model, x = Holds(), torch.randn(2, 4)
        staged = split(copy.deepcopy(model), x, loss=mean_square)
        plan = hand_plans.plan_of(staged, hand_plans.store_all(len(staged.stages)), [0] * len(staged.stages)) | {"backward": "in_one_call"}
        apply(model, plan, loss=mean_square)(x)
        self.assertTrue(model.last.is_gone)
        model(x)
        self.assertFalse(model.last.is_gone)

    @eleventh(0)
    def test_what_goes_to_the_host_is_gone_until_it_comes_back(self):
        torch.manual_seed(0)
        model = nn.Sequential(*[nn.Sequential(nn.Linear(100, 100), nn.Tanh(), nn.Linear(100, 100)) for _ in range(4)])
        x = torch.randn(1000, 100)  # a stage saves its input and the result of its Tanh, 400 kB each
        staged = split(copy.deepcopy(model), x, how=None, loss=mean_square)
        steps = [("S", 0), ("S", 1), ("out", "saved by 0"), ("S", 2), ("S", 3), ("S", 4), ("B", 4), ("B", 3), ("B", 2), ("B", 1),
                 ("in", "saved by 0"), ("B", 0)]
        plan = hand_plans.plan_of(staged, steps, [400_000] * 4 + [0])
        step, seen = apply(model, plan, loss=mean_square), []
        step.watch = lambda number, action: seen.append(live_bytes())
        step(x)
        held = [round((live - seen[0]) / 400_000) for live in seen]
        self.assertEqual(held[1:4], [2, 4, 3], "saved and output of stage 0; of 1; without what stage 0 has saved")
        self.assertEqual(held[11] - held[10], 1, "it has come back")

    @eleventh(10)
    def test_a_value_between_stages_that_goes_to_the_host_is_gone_too(self):
        torch.manual_seed(0)
        model, x = nn.Sequential(*[nn.Linear(100, 100) for _ in range(4)]), torch.randn(1000, 100)  # a stage saves its input alone
        staged = split(copy.deepcopy(model), x, how=None, loss=mean_square)
        value, = staged.stages[0].makes
        steps = [("S", 0), ("S", 1), ("out", value), ("S", 2), ("S", 3), ("S", 4), ("B", 4), ("B", 3), ("B", 2), ("in", value), ("B", 1), ("B", 0)]
        step, seen = apply(model, hand_plans.plan_of(staged, steps, [0] * 5), loss=mean_square), []
        step.watch = lambda number, action: seen.append(live_bytes())
        for _ in range(2):
            seen.clear()
            step(x)
            held = [round((live - seen[0]) / 400_000) for live in seen]
            self.assertEqual(held[1:5], [1, 2, 1, 2], "outputs of stages 0 and 1; without that of 0; of 2")
            self.assertEqual(held[10] - held[9], 1, "it has come back")

    def test_the_limit_stops_before_the_action(self):
        model, plan, loss, inputs, targets = hand_plans.planned("unet", hand_plans.SEQUENCES["store all"])
        plan["actions"][3]["peak_bytes"] = 5000
        with self.assertRaisesRegex(LimitExceeded, r"^action 3 \(forward of .*\) needs 5000 B by the plan, above the limit of 4000 B$"):
            apply(model, plan, loss=loss, limit="4 kB")
        apply(copy.deepcopy(model), plan, loss=loss, limit=5000)  # no more is needed than that
        step = apply(copy.deepcopy(model), plan, loss=loss, limit=live_bytes_of(model) + 40_000)
        with self.assertRaisesRegex(LimitExceeded, r"^action \d+ .* in addition to the \d+ B that are there"):
            step(inputs, targets)
        self.assertTrue(all(p.grad is None for p in step.model.parameters()))


def live_bytes_of(model):
    return sum(p.numel() * p.element_size() for p in model.parameters())


if __name__ == "__main__":
    unittest.main(verbosity=0)
