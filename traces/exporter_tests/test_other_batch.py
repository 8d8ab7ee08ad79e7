"""Sizes that follow from data, seen on another batch: planned for as "at most"."""

import unittest
from unittest import mock

from .support import NO_TORCH, WithFolder, torch
from .turns import eleventh

if torch is not None:
    from plimsoll.trace import graph_trace
    from plimsoll.trace.errors import UsageError
    from plimsoll.trace.other_batch import at_most, other_batches


@unittest.skipIf(torch is None, NO_TORCH)
class OtherBatch(WithFolder):
    def test_another_batch_is_of_the_same_form(self):
        given = {"x": torch.randn(6, 3) * 2 + 5, "ids": torch.arange(6), "none": None, "one": torch.tensor(3.5)}
        (numbers, targets), (rows, _) = other_batches(given, torch.tensor([True, False]))
        for other in (numbers, rows):
            self.assertEqual([(key, None if tensor is None else (tensor.shape, tensor.dtype)) for key, tensor in other.items()],
                             [(key, None if tensor is None else (tensor.shape, tensor.dtype)) for key, tensor in given.items()])
        self.assertFalse(torch.equal(numbers["x"], given["x"]))
        self.assertTrue(0 < numbers["x"].mean() < 10)
        self.assertLessEqual(set(numbers["ids"].tolist()), set(range(6)))
        self.assertTrue(torch.equal(rows["x"], given["x"].flip(0)))
        self.assertEqual(targets.dtype, torch.bool)

    @eleventh(9)
    def test_what_follows_from_data_is_planned_for_at_most(self):
        trace = self.trace("chosen", "--stages", "first,second")
        x = torch.ones(10, 4)
        x[7:, 0] = -1
        rows = at_most(7, int((other_batches(x)[0][0][:, 0] > 0).sum()))
        self.assertGreater(rows, 7)
        boundary = trace["source"]["pytorch"]["boundaries"][1][0]
        self.assertEqual(trace["source"]["pytorch"]["at_most"]["values"], [boundary, trace["source"]["pytorch"]["boundaries"][2][0]])
        self.assertEqual([tensor["bytes"] for tensor in trace["tensors"]], [160, 32 * rows, 32 * rows])
        self.assertEqual([stage["output_bytes"] for stage in trace["stages"]], [32 * rows, 32 * rows, 0])
        self.assertEqual(trace["stages"][1]["input_gradient_bytes"], 32 * rows)
        self.assertEqual(trace["source"]["no_allocations_because"], "sizes follow from data")
        self.assertNotIn("allocations", trace)

    @eleventh(6)
    def test_a_model_that_takes_no_other_numbers_is_asked_with_other_rows(self):
        trace = self.trace("chosen_strictly", "--stages", "first,second")
        self.assertNotIn("at_most", trace["source"]["pytorch"])
        self.assertEqual([tensor["bytes"] for tensor in trace["tensors"]], [160, 32 * 7, 32 * 7])
        self.assertIn("the model itself: its forward reads a number (", trace["source"]["sizes_not_seen_on_other_numbers_because"])

    def test_an_example_without_rows_is_refused(self):
        with self.assertRaisesRegex(UsageError, "^a tensor between two stages is empty in the example, and not in another batch: take an example"):
            self.trace("none_chosen", "--stages", "first,second")

    def test_where_sizes_stay_nothing_is_said(self):
        self.assertNotIn("at_most", self.trace("small")["source"]["pytorch"])

    def test_a_graph_has_sizes_at_most(self):
        trace, one = self.trace("chosen", "--graph"), self.one_batch("chosen")
        x = torch.ones(10, 4)
        x[7:, 0] = -1
        rows = at_most(7, int((other_batches(x)[0][0][:, 0] > 0).sum()))
        varying = set(trace["source"]["at_most"]["tensors"])
        self.assertGreater(len(varying), 5)
        for tensor, before in zip(trace["tensors"], one["tensors"]):
            with self.subTest(tensor["name"]):
                self.assertEqual(tensor["name"] in varying, 7 in tensor["shape"])
                self.assertEqual(tensor["bytes"], before["bytes"] // 7 * rows if 7 in tensor["shape"] else before["bytes"])
        self.assertEqual(len({tensor["storage"] for tensor in trace["tensors"] if tensor["name"] in varying}),
                         len({tensor["storage"] for tensor in one["tensors"] if 7 in tensor["shape"]}))

    def one_batch(self, name):
        """The trace of a model that is never asked with another batch."""
        with mock.patch.object(graph_trace, "on_another_batch", lambda *_: (None, None)):
            return self.measured(f"{self.model}:{name}", "1", "sweep", ("--graph",))

    def test_experts_of_whom_one_gets_no_rows_on_another_batch(self):
        """Their operations are the same, and their results have no memory there."""
        trace, one = self.trace("one_or_other", "--graph"), self.one_batch("one_or_other")
        self.assertEqual([op["kind"] for op in trace["ops"]], [op["kind"] for op in one["ops"]])
        self.assertNotIn("sizes_not_seen_on_other_numbers_because", trace["source"])
        grown = {(before["shape"][0], tensor["bytes"] / before["bytes"]) for tensor, before in zip(trace["tensors"], one["tensors"])
                 if tensor["bytes"] != before["bytes"]}
        self.assertEqual(grown, {(6, at_most(6, 0) / 6), (2, at_most(2, 8) / 2)}, "all rows go to the second expert there")
        self.assertEqual({tensor["name"] for tensor, before in zip(trace["tensors"], one["tensors"]) if set(before["shape"][:1]) & {2, 6}},
                         set(trace["source"]["at_most"]["tensors"]))

    def test_a_graph_of_an_example_without_rows_is_refused(self):
        with self.assertRaisesRegex(UsageError, "^a tensor is empty in the example, and not in another batch: take an example in which it has rows$"):
            self.trace("none_chosen", "--graph")

    def test_a_graph_whose_operations_are_others_on_another_batch_says_so(self):
        trace = self.trace("chosen_strictly", "--graph")
        self.assertIn("the model itself: its forward reads a number (", trace["source"]["sizes_not_seen_on_other_numbers_because"])
        self.assertNotIn("at_most", trace["source"])


if __name__ == "__main__":
    unittest.main()
