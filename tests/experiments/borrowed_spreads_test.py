#!/usr/bin/env python3
"""platforms/borrowed/spreads.yaml says what experiments/papers/borrowed_spreads.py finds, in public times where they are there.

    PYTHONPATH=tests/program:experiments/papers tests/experiments/borrowed_spreads_test.py
"""
import contextlib
import io
import math
import os
import pathlib
import re
import unittest

import borrowed_spreads
from turns import eleventh

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = [folder for folder in (ROOT.parent / "shared/data", pathlib.Path(os.environ.get("PLIMSOLL_SHARED", "/nowhere")) / "data")
           if (folder / "gpu_kernels").is_dir()]
GENERATIONS = {"h100_sxm": "hopper", "h200_sxm": "hopper", "b200_sxm": "blackwell", "gb200": "blackwell",
               "rtx_pro_6000_server": "blackwell", "a100_sxm": "ampere", "l40s": "ada"}


def spreads(file):
    text = (ROOT / "platforms" / file).read_text(encoding="utf-8")
    return {sort: (float(low), float(high)) for sort, low, high in re.findall(r"^  (\w+): \[([\d.]+), ([\d.]+)\]", text, re.M)}


class Spreads(unittest.TestCase):
    def test_sorts_of_one_gpu_are_its_own_times_others(self):
        borrowed, own = spreads("borrowed/spreads.yaml"), spreads("efficiency/h100_sxm.yaml")
        for sort, by in (("optimizer", "elementwise"), ("unaligned_product", "product"), ("product_without_table", "product"),
                         ("convolution", "product")):
            for end in (0, 1):
                self.assertEqual(borrowed[sort][end], float(f"{own[sort][end] * borrowed[by][end]:.3g}"), sort)
        self.assertEqual(set(own) - set(borrowed), set())

    def test_a_gpu_is_timed_by_the_nearest_other_table(self):
        gpus = borrowed_spreads.BF16
        for gpu, lender in borrowed_spreads.NEAREST["bf16"].items():
            def distance(other, gpu=gpu):
                ratios = [peak / bandwidth for peak, bandwidth in (gpus[gpu], gpus[other])]
                return GENERATIONS[gpu] != GENERATIONS[other], abs(math.log(ratios[0] / ratios[1]))
            self.assertEqual(lender, min((other for other in borrowed_spreads.GPUS if other != gpu), key=distance), gpu)

    def test_a_grid_is_linear_between_logarithms(self):
        grid = borrowed_spreads.Grid([[1, 4], [8]], [0.2, 0.8])
        self.assertAlmostEqual(grid.share(2, 100), 0.4)
        self.assertAlmostEqual(grid.share(64, 1), 0.8)

    @unittest.skipUnless(FOLDERS, "no public times here (../shared/data/gpu_kernels): SKIPPED")
    @eleventh(5)
    def test_shipped_spreads_are_those_of_public_times(self):
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            borrowed_spreads.report_all(FOLDERS[0])
        found = {sort: (float(low), float(high))
                 for sort, low, high in re.findall(r"^(\w+): .*\[([\d.]+), ([\d.]+)\]$", said.getvalue(), re.M)}
        shipped = spreads("borrowed/spreads.yaml")
        self.assertEqual(len(found), 10)
        self.assertEqual({sort: shipped[sort] for sort in found}, found)


if __name__ == "__main__":
    unittest.main()
