#!/usr/bin/env python3
"""Tests of measure_collectives.py: its predictions by hand, and one run of two processes. Skipped where this Python has no torch.

  /usr/bin/python3 validate/pytorch/test_collectives.py
"""

import contextlib
import csv
import importlib.util
import io
import json
import os
import subprocess
import sys
import tempfile
import unittest

import left_out
from turns import eleventh

if importlib.util.find_spec("torch") is None:
    left_out.end(f"{sys.executable} has no torch {left_out.TO_INSTALL}")

import measure_collectives as collectives

from plimsoll.trace import exporter


class Model(unittest.TestCase):
    def test_a_ring_by_hand(self):
        """Of 4 ranks, 1 ms a message and 1 GB/s: three steps of 1 MB each."""
        for operation, expected in (("all_gather", 3 * (1e-3 + 1e-3)), ("reduce_scatter", 3 * (1e-3 + 1e-3)), ("all_reduce", 6 * (1e-3 + 1e-3))):
            self.assertAlmostEqual(collectives.ring_seconds(operation, 4_000_000, 4, 1e-3, 1e9), expected, places=12)

    def test_a_hop_goes_through_both_messages(self):
        latency, rate = collectives.hop_of([{"bytes": 64, "seconds": [9.0, 1.064e-4, 1e-9]}, {"bytes": 1_000_000, "seconds": [1.1e-3]}])
        self.assertAlmostEqual(latency + 64 / rate, 1.064e-4, places=15)
        self.assertAlmostEqual(latency + 1_000_000 / rate, 1.1e-3, places=15)

    def test_a_hop_that_takes_no_time_is_refused(self):
        with self.assertRaisesRegex(exporter.MeasurementError, "took no longer than one of 64 B"):
            collectives.hop_of([{"bytes": 64, "seconds": [2e-3]}, {"bytes": 1_000_000, "seconds": [1e-3]}])

    def test_sizes_are_shared_out_in_whole_numbers(self):
        self.assertEqual(collectives.sizes_up_to(1 << 16, 2), [4096, 16384, 65536])
        self.assertTrue(all(size % 12 == 0 for size in collectives.sizes_up_to(1 << 20, 3)))
        self.assertEqual(collectives.sizes_up_to(1000, 2), [1000])

    def test_a_collective_takes_as_long_as_its_slowest_rank(self):
        of_rank = [{"hops": [{"bytes": 64, "seconds": [1, 5]}], "rows": [{"bytes": 4, "seconds": [2, 2]}]},
                   {"hops": [{"bytes": 64, "seconds": [3, 4]}], "rows": [{"bytes": 4, "seconds": [1, 7]}]}]
        found = collectives.slowest(of_rank)
        self.assertEqual([found["hops"][0]["seconds"], found["rows"][0]["seconds"]], [[3, 5], [2, 7]])

    def test_options_that_make_no_sense_are_refused(self):
        for words, why in ((["--ranks", "1"], "--ranks: expected at least 2, found 1"), (["--device", "cuda", "--ranks", "99"], "--ranks 99: this machine has")):
            with contextlib.redirect_stderr(io.StringIO()) as said:
                self.assertEqual(collectives.main([*words, "-o", "/nonexistent/folder"]), 2)
            self.assertIn(f"measure_collectives.py: {why}", said.getvalue())


class TwoProcesses(unittest.TestCase):
    @eleventh(9)
    def test_what_a_run_writes(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([sys.executable, collectives.__file__, "--rounds", "3", "--largest", "1048576", "-o", folder], capture_output=True,
                                  text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(sorted(os.listdir(folder)), ["collectives.csv", "collectives.json"])
            with open(os.path.join(folder, "collectives.json"), encoding="utf-8") as file:
                result = json.load(file)
            with open(os.path.join(folder, "collectives.csv"), encoding="utf-8") as file:
                rows = list(csv.DictReader(file))
        sizes = [4096, 16384, 65536, 262144, 1048576]
        self.assertEqual([(row["operation"], row["bytes"]) for row in result["rows"]], [(of, size) for of in collectives.OPERATIONS for size in sizes])
        self.assertTrue(all(len(row["seconds"]) == 3 and min(row["seconds"]) > 0 for row in result["rows"]))
        hop = result["hop"]
        for row in result["rows"]:
            self.assertEqual(row["predicted_s"], collectives.ring_seconds(row["operation"], row["bytes"], 2, hop["latency_s"], hop["bytes_per_s"]))
        self.assertEqual([(row["operation"], row["ranks"], row["bytes"]) for row in rows], [(row["operation"], "2", str(row["bytes"])) for row in result["rows"]])
        self.assertIn("gloo", result["origin"])
        self.assertEqual(len(done.stdout.splitlines()), 2 + len(rows))


if __name__ == "__main__":
    unittest.main()
