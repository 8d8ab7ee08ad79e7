"""Operations and bytes moved of single operations, by hand."""

import unittest

from .support import NO_TORCH, torch

if torch is not None:
    from plimsoll.trace.work import WorkMode


@unittest.skipIf(torch is None, NO_TORCH)
class Work(unittest.TestCase):
    def counted(self, run):
        with WorkMode() as mode:
            run()
        return mode.flops, mode.bytes_moved

    def test_a_lookup_reads_only_the_rows_that_it_returns(self):
        table, rows = torch.zeros(1000, 8), torch.tensor([3, 7, 7])
        self.assertEqual(self.counted(lambda: torch.nn.functional.embedding(rows, table)), (0, 2 * 3 * 8 * 4 + 3 * 8))
        few, rows = torch.zeros(2, 8), rows % 2  # no more than there are
        self.assertEqual(self.counted(lambda: torch.nn.functional.embedding(rows, few))[1], (3 + 2) * 8 * 4 + 3 * 8)

    def test_of_an_added_product_what_is_added_counts_no_operations(self):
        added, a, b = torch.zeros(5), torch.zeros(3, 4), torch.zeros(4, 5)
        self.assertEqual(self.counted(lambda: torch.addmm(added, a, b)), (2 * 3 * 4 * 5, 4 * (5 + 12 + 20 + 15)))

    def test_the_backward_of_a_convolution_counts_the_products_that_it_makes(self):
        weight, once = torch.zeros(4, 3, 3, 3, requires_grad=True), 2 * (2 * 4 * 6 * 6) * 3 * 3 * 3
        for needs, products in ((False, 1), (True, 2)):
            y = torch.nn.functional.conv2d(torch.zeros(2, 3, 8, 8, requires_grad=needs), weight)
            self.assertEqual(self.counted(lambda y=y: y.backward(torch.ones_like(y)))[0], products * once)
