#!/usr/bin/env python3
"""Small rules of the step, each by itself: sums of gradients, ranges of copies, the order of issue, parts of a batch, the limit. Skipped where this
Python has no torch.

  /usr/bin/python3 validate/pytorch/test_rules.py
"""

import unittest
from types import SimpleNamespace

import left_out

try:
    import torch

    from plimsoll.torch import LimitExceeded, Refused
    from plimsoll.torch.borders import GradientBox
    from plimsoll.torch.device import OnHost
    from plimsoll.torch.order import issue_order, last_waits, peaks_as_issued
    from plimsoll.torch.step import Step, of_every, part
    from plimsoll.torch.values import map_leaves
    from plimsoll.torch.versions import storage_of
except ModuleNotFoundError as error:
    left_out.end_without(error)


class Gradients(unittest.TestCase):
    def test_to_one_number_for_many_is_added_out_of_place(self):
        box, one = GradientBox(set()), torch.ones(())
        box.take(one.expand(3))
        box.take(torch.tensor([1.0, 2.0, 3.0]))
        self.assertEqual(box.gradient.tolist(), [2, 3, 4])
        self.assertEqual(one.item(), 1)

    def test_a_window_keeps_nothing_of_what_lies_around_it(self):
        box = GradientBox(set())
        box.take(torch.ones(100)[2:4])
        self.assertEqual(storage_of(box.gradient).nbytes(), 2 * 4)


def action(do, to_host=False, waits=(), drops=(), peak=0, value=""):
    return SimpleNamespace(do=do, to_host=to_host, waits=waits, drops=drops, micro_batch=0, value=value, peak_bytes=peak)


def planned(actions, sizes, peak=0):
    return SimpleNamespace(actions=actions, values={name: SimpleNamespace(bytes=size) for name, size in sizes.items()},
                           predicted={"peak_bytes": peak})


class OrderOfIssue(unittest.TestCase):
    def test_who_waits_for_a_wait_waits_for_what_that_waits_for(self):
        actions = [action("forward"), action("copy", True, (0,), value="x"), action("wait", waits=(1,)), action("forward", waits=(2,))]
        self.assertEqual(last_waits(planned(actions, {"x": 8})), [{}, {"kernels": 0}, {"outward": 1}, {"outward": 1}])

    def back(self, peaks, sizes):
        """Three forwards, then two copies to the device that wait for nothing; a peak of 100."""
        kinds = [("forward", ""), ("forward", ""), ("forward", ""), ("copy", "x"), ("copy", "y")]
        actions = [action(do, peak=peak, value=value) for (do, value), peak in zip(kinds, peaks)]
        return issue_order(planned(actions, dict(zip("xy", sizes)), 100))

    def test_copies_to_the_device_are_issued_in_their_own_order(self):
        self.assertEqual(self.back((85, 60, 40, 90, 100), (50, 10)), {2: [3, 4]})

    def test_what_comes_back_early_takes_room(self):
        self.assertEqual(self.back((85, 60, 40, 70, 80), (50, 20)), {2: [3], 3: [4]})

    def test_what_goes_out_is_held_until_somebody_waits_for_it(self):
        actions = [action("forward", peak=10), action("copy", True, (0,), ("x",), 10, "x"), action("forward", peak=5), action("forward", waits=(1,), peak=5)]
        self.assertEqual(peaks_as_issued(planned(actions, {"x": 8})), [10, 10, 13, 5])


class Ranges(unittest.TestCase):
    def test_a_range_over_two_storages(self):
        host = OnHost([SimpleNamespace(nbytes=lambda size=size: size) for size in (4, 8, 2)], None, SimpleNamespace(host_buffer=lambda bytes_: None))
        self.assertEqual(list(host.pieces((2, 4))), [(0, 0, 2, 4), (1, 4, 0, 2)])
        self.assertEqual(list(host.pieces((6, 8))), [(1, 4, 2, 8), (2, 12, 0, 2)])
        self.assertEqual(list(host.pieces(None)), [(0, 0, 0, 4), (1, 4, 0, 8), (2, 12, 0, 2)])

    def test_slices_have_steps(self):
        self.assertEqual(map_leaves((slice(1, 8, 2), [3]), lambda leaf: leaf and leaf + 1), (slice(2, 9, 3), [4]))


class MicroBatches(unittest.TestCase):
    def test_they_are_of_equal_size(self):
        self.assertEqual([len(piece) for piece in part(torch.zeros(4, 3), 2)], [2, 2])
        for tensor in (torch.zeros(5, 3), torch.zeros(())):
            with self.assertRaisesRegex(Refused, "the plan has 2 micro-batches, into which a tensor of shape .* cannot be cut"):
                part(tensor, 2)

    def test_one_row_goes_to_all_beside_others_of_more(self):
        plan = SimpleNamespace(micro_batches=2, model={"input_shapes": {"positions": {"shape": [1, 3]}, "x": {"shape": [1, 3]}}})
        positions, x = torch.zeros(1, 3), torch.zeros(1, 3)
        self.assertEqual(of_every([("positions", positions), ("x", torch.zeros(2, 3))], plan), {id(positions)})
        self.assertEqual(of_every([("positions", positions), ("x", x)], plan), set())


class Limit(unittest.TestCase):
    def test_what_is_there_already_may_be_above_it(self):
        """Others' tensors, when an action needs less than what was there before."""
        actions = [SimpleNamespace(after_bytes=50), SimpleNamespace(peak_bytes=10)]
        step = SimpleNamespace(plan=SimpleNamespace(actions=actions, name_of=lambda number: "an action"), limit=100, live_bytes=lambda: 101)
        with self.assertRaises(LimitExceeded):
            Step.refuse_above_limit(step, 1)
        step.limit = 101
        Step.refuse_above_limit(step, 1)


if __name__ == "__main__":
    unittest.main(verbosity=0)
