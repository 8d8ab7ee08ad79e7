#!/usr/bin/env python3
"""Tests of measure_kernels.py: work by hand, and one short run on a CPU whose tables the program reads. Skipped where this Python has no torch.

  /usr/bin/python3 validate/pytorch/test_kernels.py
"""

import contextlib
import csv
import importlib.util
import io
import json
import os
import tempfile
import unittest

import left_out

if importlib.util.find_spec("torch") is None:
    left_out.end(f"this Python has no torch {left_out.TO_INSTALL}")

import measure_kernels as kernels
import torch


class Cases(unittest.TestCase):
    def test_the_order_is_the_same_every_time_and_mixed(self):
        first, second = ([case[:2] for case in kernels.cases(1 << 22)] for _ in range(2))
        self.assertEqual(first, second)
        self.assertEqual({table for table, _ in first[:60]}, {"products", "batched", "attention", "sorts"} if hasattr(
            torch.nn.functional, "scaled_dot_product_attention") else {"products", "batched", "sorts"})

    def test_work_by_hand(self):
        """A convolution of 16 pictures of 256 x 14 x 14 to 256 channels by 3 x 3; a norm's backward of 1024 rows of 768 reads two and writes one."""
        of = {table: {} for table in kernels.COLUMNS}
        for table, sizes, largest, _ in kernels.cases(1 << 40):
            of[table].setdefault(sizes[0] if table == "sorts" else None, []).append((sizes[1:], largest))
        numbers = 2 * 16 * 256 * 14 * 14 + 256 * 256 * 9
        self.assertIn(((2 * 16 * 256 * 14 * 14 * 256 * 9, numbers), 2 * numbers), of["sorts"]["channels_last_convolution_weight_gradient"])
        self.assertIn(((1, 3 * 1024 * 768), 2 * 3 * 1024 * 768), of["sorts"]["norm"])
        self.assertIn(((1, 28 << 20), 16 << 20), of["sorts"]["optimizer"])  # seven times four bytes of a million parameters

    def test_every_kernel_computes_what_its_sizes_say(self):
        """On the smallest of each table: results and, of convolutions, gradients of the right shapes."""
        smallest = {}
        for table, sizes, largest, make in kernels.cases(1 << 23):
            key = (table, sizes[0] if table == "sorts" else None)
            if key not in smallest or smallest[key][1] > largest:
                smallest[key] = sizes, largest, make
        for (table, sort), (sizes, _, make) in smallest.items():
            made = make("cpu", torch.float32)()
            if table == "products":
                self.assertEqual(made.shape, (sizes[0], sizes[1]))
            elif table == "batched":
                self.assertEqual(made.shape, (sizes[0], sizes[1], sizes[2]))
            elif table == "attention":
                self.assertEqual(made.shape, (sizes[0], sizes[2], sizes[1], sizes[3]))
            elif sort.endswith("gradient"):
                self.assertEqual([one is not None for one in made], [sort.endswith("input_gradient"), sort.endswith("weight_gradient"), False])


class Run(unittest.TestCase):
    def test_a_short_run_writes_tables(self):
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()) as said:
            self.assertEqual(kernels.main(["--device", "cpu", "--dtype", "fp32", "--largest", "1000000", "--rounds", "1", "-o", folder]), 0)
            with open(os.path.join(folder, "kernels.json"), encoding="utf-8") as file:
                result = json.load(file)
            with open(os.path.join(folder, "products.csv"), encoding="utf-8") as file:
                table = list(csv.DictReader(file))
        self.assertIn("products.csv: ", said.getvalue())
        measured = [row for row in result["rows"] if row["table"] == "products"]
        self.assertEqual([[int(row[c]) for c in "mnk"] for row in table], [row["sizes"] for row in measured])
        for row, line in zip(measured, table):
            self.assertEqual(f"{row['us'][1]:.3f}", line["time_us"])
            self.assertLessEqual(row["us"][0], row["us"][2])
        self.assertEqual(result["left_out"], 0)

    def test_what_cannot_be_is_refused(self):
        for words, why in ((["--device", "cuda"], "--device cuda: PyTorch finds no GPU here"), (["--rounds", "0"], "--rounds")):
            if words[1] == "cuda" and torch.cuda.is_available():
                continue
            with contextlib.redirect_stderr(io.StringIO()) as said:
                try:
                    code = kernels.main([*words, "-o", "/nonexistent/folder"])
                except SystemExit as error:
                    code = error.code
            self.assertEqual(code, 2)
            self.assertIn(why, said.getvalue())

    def test_a_kernel_that_fails_is_told(self):
        def broken(*_):
            raise RuntimeError("no kernel of this dtype\nmore")
        original, kernels.cases = kernels.cases, lambda largest: [("products", (1, 2, 3), 4, broken)]
        try:
            with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()) as said:
                self.assertEqual(kernels.main(["--device", "cpu", "-o", folder]), 0)
                self.assertFalse(os.path.exists(os.path.join(folder, "products.csv")))
        finally:
            kernels.cases = original
        self.assertIn("1 failed: no kernel of this dtype\n", said.getvalue())


if __name__ == "__main__":
    unittest.main()
