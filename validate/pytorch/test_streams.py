#!/usr/bin/env python3
"""Plans that offload, run by the step's own code on a stand-in for a CUDA device (stand_in.py): peaks in the order of issue, times, and that nothing
is read or used again too early. Skipped where this Python has no torch.

  /usr/bin/python3 validate/pytorch/test_streams.py
  /usr/bin/python3 validate/pytorch/test_streams.py FOLDER...   # beside it a line for each plan*.json there that is run by stages
"""

import glob
import json
import os
import sys
import unittest
from types import SimpleNamespace
from unittest import mock

HERE = os.path.dirname(os.path.abspath(__file__))

import left_out

try:
    import torch

    import stand_in
    from plimsoll.torch.device import CudaCopies
    from plimsoll.torch.plan import read_plan
    from plimsoll.torch.versions import storage_of
    from stand_in import Hazard
except ModuleNotFoundError as error:
    left_out.end_without(error)

torch.set_num_threads(1)


def plan_of(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


PLANS = {name: plan_of(os.path.join(HERE, "stand_in_plans", f"unet_{name}.json")) for name in ("save_on_cpu", "vdnn")}


class InOrderOfIssue(unittest.TestCase):
    def test_peaks_and_times_are_those_that_were_promised(self):
        for name, plan in PLANS.items():
            device = stand_in.run(plan, steps=2)
            self.assertEqual(device.peak, plan["predicted"]["peak_bytes"], name)
            self.assertLess(device.kernels.time, 2 * 1.005 * plan["predicted"]["makespan_s"], name)

    def test_a_copy_that_is_issued_where_it_stands_runs_beside_no_kernel(self):
        device = stand_in.run(PLANS["vdnn"], steps=1, change=where_they_stand)
        self.assertGreater(device.kernels.time, 1.05 * PLANS["vdnn"]["predicted"]["makespan_s"])

    def test_copies_are_not_issued_before_there_is_room(self):
        plan = PLANS["vdnn"] | {"predicted": PLANS["vdnn"]["predicted"] | {"peak_bytes": 0}}
        step = []
        stand_in.run(plan, steps=1, change=step.append)
        self.assertTrue(all(copies == [number] for number, copies in step[0].copies.before.items()))

    def test_what_is_moved_in_part_stays(self):
        plan = json.loads(json.dumps(PLANS["vdnn"]))
        back = next(k for k, action in enumerate(plan["actions"]) if action["do"] == "copy" and action["to"] == "device")
        value = plan["actions"][back]["value"]
        for action in plan["actions"][:back + 1]:
            if action.get("value") == value:
                action |= {"first_byte": 0, "bytes": 8}
            action["drops"] = [name for name in action.get("drops", []) if name != value]
        self.assertEqual(read_plan(plan).stays, {back})
        stand_in.run(plan, steps=1)


def where_they_stand(step):
    step.copies.before = {number: [number] for number, action in enumerate(step.plan.actions) if action.do == "copy" and not action.to_host}


class Planted(unittest.TestCase):
    """What has to be found: what was there before, and each wait left out."""

    def hazard(self, text, name, replacement, plan="vdnn", change=None):
        with mock.patch.object(CudaCopies, name, replacement), self.assertRaisesRegex(Hazard, text):
            stand_in.run(PLANS[plan], steps=1, change=change)

    def test_marks_of_other_streams_keep_memory(self):
        """What comes back is of the inward stream and marked as used by the kernels: it serves nobody until the device has got there."""
        def marked(copies, sizes, device):
            with torch.cuda.stream(copies.inward) if device.type == "cuda" else copies_of_step.torch.cuda.stream(copies.inward):
                made = [copies_of_step.torch.empty(size, dtype=torch.uint8, device=device) for size in sizes]
            for tensor in made:
                tensor.record_stream(copies.kernels())
            return [storage_of(tensor) for tensor in made]

        copies_of_step = stand_in.device_of_step
        for name, plan in PLANS.items():
            with mock.patch.object(CudaCopies, "empty_storages", marked):
                self.assertGreater(stand_in.run(plan, steps=1).peak, 1.2 * plan["predicted"]["peak_bytes"], name)

    def test_a_kernel_that_does_not_wait_for_a_copy(self):
        wait = CudaCopies.wait
        self.hazard("kernels reads .* that inward may not have written yet", "wait",
                    lambda copies, number: wait(copies, number) if copies.streams[number] != "kernels" else None)

    def test_a_copy_that_does_not_wait_for_a_kernel(self):
        wait = CudaCopies.wait
        self.hazard("outward reads .* that kernels may not have written yet", "wait",
                    lambda copies, number: wait(copies, number) if copies.streams[number] != "outward" else None)

    def test_memory_that_kernels_may_still_use(self):
        empty = super(CudaCopies, CudaCopies).empty_storages
        self.hazard("inward writes .* that may still be in use by kernels", "empty_storages", empty,
                    change=where_they_stand)

    def test_a_source_that_is_let_go_before_the_copy_is_over(self):
        def let_go(copies, number):
            copies.kept.clear()
            end(copies, number)

        end = CudaCopies.end
        self.hazard("writes .* that may still be in use by outward from before they were freed", "end", let_go)

    def test_a_source_that_is_let_go_without_a_wait(self):
        def let_go(copies, copy):
            copies.kept = {other: source for other, source in copies.kept.items() if other > copy}

        self.hazard("writes .* that may still be in use by outward from before they were freed", "let_go", let_go)

    def test_a_copy_that_is_left_out(self):
        self.hazard("kernels reads .* that nobody has written", "back", lambda *_: None)

    def test_a_copy_to_a_wrong_place(self):
        out = CudaCopies.out
        self.hazard("kernels reads .* in which something else stands", "out", lambda copies, buffer, first, storage, begin, end:
                    out(copies, buffer, 0, storage, begin, end) or first and out(copies, buffer, first, storage, begin, end), "save_on_cpu")


class ByHand(unittest.TestCase):
    """Forward, copy to the host, forward, copy to the device, which there is room to issue before the second forward."""

    def setUp(self):
        action = lambda do, to_host=False, waits=(), drops=(): SimpleNamespace(
            do=do, to_host=to_host, waits=waits, drops=drops, micro_batch=0, value="x" if do == "copy" else "", peak_bytes=8)
        actions = [action("forward"), action("copy", True, (0,), ("x",)), action("forward"), action("copy", False, (1,))]
        plan = SimpleNamespace(actions=actions, values={"x": SimpleNamespace(bytes=8)}, predicted={"peak_bytes": 24})
        self.device = stand_in.Device(0, 1.0)
        in_use = self.device.in_use()
        in_use.__enter__()
        self.addCleanup(in_use.__exit__, None, None, None)
        self.copies = CudaCopies(torch.device("cpu"), plan)
        self.tensor, self.buffer = self.device.empty(8, torch.uint8), self.copies.host_buffer(8)
        self.issue(0, lambda: self.device.kernel([], [(storage_of(self.tensor), "x")], 1.0))
        self.issue(1, lambda: self.copies.out(self.buffer, 0, storage_of(self.tensor), 0, 8))

    def issue(self, number, work):
        self.copies.begin(number)
        work()
        self.copies.end(number)

    def back(self):
        self.copies.back(self.copies.empty_storages([8], torch.device("cpu"))[0], 0, 8, self.buffer, 0)

    def test_a_copy_back_waits_for_the_copy_out(self):
        self.assertEqual(self.copies.before, {2: [3]})
        with self.assertRaisesRegex(Hazard, "inward reads 8 B that outward may not have written yet"):
            self.back()
        self.copies.begin_inward(3)
        self.back()

    def test_a_buffer_that_is_read_back_is_not_written_before(self):
        for forgets in (False, True):
            self.copies.begin_inward(3)
            self.back()
            self.copies.release(self.buffer)
            if forgets:
                self.copies.free[8] = [(self.buffer, stand_in.Stream("nothing").record_event())]
            self.assertIs(self.copies.host_buffer(8), self.buffer)
            again = lambda: self.issue(1, lambda: self.copies.out(self.buffer, 0, storage_of(self.tensor), 0, 8))
            if forgets:
                with self.assertRaisesRegex(Hazard, "outward writes 8 B that inward may not have read yet"):
                    again()
            else:
                again()

    def test_the_end_of_a_step_is_that_of_its_copies(self):
        self.copies.begin_inward(3)
        self.back()
        self.assertEqual(set(self.device.kernels.clock), {"kernels"})
        self.copies.finish()
        self.assertEqual(set(self.device.kernels.clock), {"kernels", "outward", "inward"})
        self.assertEqual((self.copies.kept, self.copies.events), ({}, {}))


def report(folders):
    """Whether all peaks are those that were promised."""
    exact = True
    for path in [path for folder in folders for path in sorted(glob.glob(os.path.join(folder, "plan*.json")))]:
        plan = plan_of(path)
        if plan["backward"] != "by_stage":
            continue
        device, promised = stand_in.run(plan, steps=2), plan["predicted"]
        exact = exact and device.peak == promised["peak_bytes"]
        print(f"{path}: {plan['strategy']}: peak {device.peak} B, promised {promised['peak_bytes']}; time {device.kernels.time / 2 * 1e3:.3f} ms, "
              f"promised {promised['makespan_s'] * 1e3:.3f}")
    return exact


if __name__ == "__main__":
    folders = [argument for argument in sys.argv[1:] if os.path.isdir(argument)]
    if folders:
        sys.exit(0 if report(folders) else 1)
    unittest.main(verbosity=0)
