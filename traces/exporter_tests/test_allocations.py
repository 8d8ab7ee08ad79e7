"""Allocations in order: replayed, they give the peaks that the counter saw of other passes."""

import os
import unittest
import unittest.mock

from .peaks import plain_order_peak, replayed_peak
from .support import MODELS, NO_TORCH, SMALL_GPT, WithFolder, torch
from .turns import eleventh

if torch is not None:
    from plimsoll.trace import allocation_log
    from plimsoll.trace.allocation_log import Unexplained, cut_at_marks, events_of
    from plimsoll.trace.allocations import Order, lists, replayed


@unittest.skipIf(torch is None, NO_TORCH)
class Allocations(WithFolder):
    def test_those_of_a_small_network_are_those_found_by_hand(self):
        """x (3, 10) -> linear, ReLU (3, 20) -> linear, sigmoid, tanh (3, 5) -> exp, sum; 4 bytes an element."""
        first, second, loss = self.trace("small", counter="malloc")["allocations"]["stages"]
        self.assertEqual(first["forward"], {"order": [240, 240, -1], "tensors": [[2, 1]]})
        self.assertEqual(first["forward_nograd"], first["forward"])
        self.assertEqual(second["forward"], {"order": [60, 60, -1, 60], "saved": [2], "tensors": [[3, 2]]})
        self.assertEqual(second["forward_nograd"], {"order": [60, 60, -1, 60, -2], "tensors": [[3, 2]]})
        self.assertEqual(loss["forward"], {"order": [60, 4], "saved": [1, 2]})
        self.assertEqual(sorted(loss["forward_nograd"]["order"]), [-2, -1, 4, 60])
        self.assertEqual(loss["backward"]["tensors"][0][1], 2)
        self.assertEqual(sorted(index for _, index in first["backward"]["parameters"]), [0, 1])
        self.assertNotIn("parameters", first["backward_accumulate"])

    def check_peaks(self, trace, plain):
        check = trace["source"]["check"]
        stages = range(len(trace["stages"]))
        all_kept = [f"S{k}" for k in stages] + [f"B{k}" for k in reversed(stages)]
        self.assertEqual(replayed_peak(trace, all_kept), check["store_all_peak_bytes"])
        self.assertEqual(replayed_peak(trace, check["checkpointed_sequence"].split()), check["checkpointed_peak_bytes"])
        for name, key in (("new", f"{plain}_peak_bytes"), ("accumulate", f"{plain.removesuffix('_iteration')}_accumulate_peak_bytes")):
            self.assertEqual(plain_order_peak(trace["allocations"]["plain"][name]), check[key])

    @eleventh(5)
    def test_replayed_they_give_the_peaks_of_whole_iterations(self):
        self.check_peaks(self.trace("gpt", *SMALL_GPT, counter="malloc"), "plain_iteration")
        for name in ("early", "skip", "tied"):
            with self.subTest(name):
                self.check_peaks(self.trace(name, counter="malloc"), "plain_iteration")

    @eleventh(0)
    def test_of_a_model_that_is_cut_they_are_those_of_its_calls(self):
        for name in ("lstm",):
            with self.subTest(name):
                self.check_peaks(self.trace_of(f"{MODELS}:{name}", "--stages", "auto", counter="malloc"), "calls")

    def test_the_portable_counter_writes_none(self):
        trace = self.trace("small")
        self.assertNotIn("allocations", trace)
        self.assertNotIn("no_allocations_because", trace["source"])

    def test_what_nothing_explains_is_not_written_and_said(self):
        output = os.path.join(self.folder.name, "hidden.json")
        self.measure("--model", f"{self.model}:hidden", "--repetitions", "1", "--memory-counter", "malloc", "--no-identity-check", "-o", output)
        trace = self.read(output)
        self.assertNotIn("allocations", trace)
        self.assertEqual(trace["source"]["no_allocations_because"],
                         "the forward of stage 1 (new) leaves 128 B in addition to its output, autograd saves 0")


@unittest.skipIf(torch is None, NO_TORCH)
class Orders(unittest.TestCase):
    def order(self, *events, there=()):
        order = Order(there)
        order.follow(events)
        return order

    def test_an_address_that_is_used_again_is_another_allocation(self):
        order = self.order((7, 100), (7, -100), (7, 50), (8, 10), (8, -10))
        self.assertEqual(order.order, [100, -1, 50, 10, -3])
        self.assertEqual(order.alive, {7: 2})
        self.assertEqual(replayed(order.order), (100, 50))

    def test_numbers_of_a_backward_begin_with_what_was_saved(self):
        order = self.order((1, -30), (3, 5), there=[(1, 30), (2, 40)])
        self.assertEqual(order.order, [-1, 5])
        self.assertEqual(order.named({3: 9, 4: 8}), [[3, 9]])
        self.assertEqual(replayed(order.order, [30, 40]), (0, -25))

    def test_what_has_no_explanation_is_refused(self):
        with self.assertRaisesRegex(Unexplained, "12 B are freed that were there before"):
            self.order((1, -12))
        with self.assertRaisesRegex(Unexplained, "12 B live on"):
            lists(self.order((1, 12)), [], [], [])
        with self.assertRaisesRegex(Unexplained, "8 B are allocated behind the pass"):
            self.order().follow_frees([(1, 8)])


@unittest.skipIf(torch is None, NO_TORCH)
class MemoryHistory(unittest.TestCase):
    """Of torch.cuda.memory._snapshot(): what its documentation shows."""

    HISTORY = [{"action": action, "addr": address, "size": size, "stream": 0} for action, address, size in (
        ("alloc", 512, 1), ("free_requested", 512, 1), ("free_completed", 512, 1),  # a mark of an earlier pass
        ("segment_alloc", 4096, 2097152), ("alloc", 512, 1), ("free_requested", 512, 1), ("free_completed", 512, 1),
        ("alloc", 4096, 1000), ("alloc", 512, 1), ("free_requested", 4096, 1000), ("free_completed", 4096, 1000),
        ("alloc", 1024, 2), ("free_requested", 1024, 2), ("free_completed", 1024, 2), ("alloc", 8192, 3))]

    def test_it_is_cut_at_the_last_marks_of_their_sizes(self):
        events = events_of(self.HISTORY)
        self.assertEqual(events[:2], [(512, 1), (512, -1)])
        self.assertEqual(cut_at_marks(events, [(512, 1), (1024, 2)]), [[(4096, 1000), (512, 1), (4096, -1000)]])

    def test_a_log_marks_by_blocks_of_its_own(self):
        history = []

        class Block:
            def __init__(self, size, dtype, device):
                self.size = size
                history.append({"action": "alloc", "addr": 512, "size": size})

            def data_ptr(self):
                return 512

            def numel(self):
                return self.size

            def __del__(self):
                history.extend({"action": action, "addr": 512, "size": self.size} for action in ("free_requested", "free_completed"))

        with unittest.mock.patch.multiple(allocation_log, torch=unittest.mock.Mock(empty=Block), write_memory_history=unittest.mock.DEFAULT) as stand_in:
            allocation_log.torch.cuda.memory._snapshot.return_value = {"device_traces": [[], history]}
            allocation_log.torch.cuda.current_device.return_value = 1
            log = allocation_log.CudaLog()
            log.begin()
            for address in (4096, 8192):
                log.mark()
                history.append({"action": "alloc", "addr": address, "size": 100})
            log.mark()
            self.assertEqual(log.end(), [[(4096, 100)], [(8192, 100)]])
            self.assertEqual([call[0] for call in stand_in["write_memory_history"].call_args_list], [(True,), (False,)])

    def test_a_history_that_has_lost_its_begin_is_refused(self):
        with self.assertRaisesRegex(Unexplained, "does not hold"):
            cut_at_marks(events_of(self.HISTORY[5:]), [(512, 1), (1024, 2)])


if __name__ == "__main__":
    unittest.main()
