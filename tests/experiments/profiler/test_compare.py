#!/usr/bin/env python3
"""`plimsoll compare` on profiler traces: against made-up ones of which the truth is known, and against the second
reader (independent_reader.py) on a real recording and, where ../shared is there, on public ones.

usage: test_compare.py PLIMSOLL      from the root of the repository
"""
import glob
import gzip
import json
import os
import random
import subprocess
import sys
import tempfile
import unittest

import independent_reader
import synthesize
from turns import eleventh

PLIMSOLL = "build/plimsoll"
HERE = os.path.dirname(os.path.abspath(__file__))
SHARED = sorted(glob.glob(os.path.join(HERE, "../../../../shared/data/kineto/*.json.gz")) +
                glob.glob(os.path.join(os.environ.get("PLIMSOLL_SHARED", "/nowhere"), "data/kineto/*.json.gz")))


def compare(trace):
    """The answer, or None and why it was refused."""
    run = subprocess.run([PLIMSOLL, "compare", "--json", trace, trace], capture_output=True, text=True)
    if run.returncode == 2:
        return None, run.stderr
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout), ""


def kinds(answer, value):
    return {row["kind"]: row[value] for row in answer["kinds"] if row["kind"] != "whole"}


class Compare(unittest.TestCase):
    maxDiff = None

    def same(self, got, expected, within, what):
        for kind in set(got) | set(expected):
            a, b = got.get(kind, 0), expected.get(kind, 0)
            self.assertLessEqual(abs(a - b), within * b + 1e-9, f"{what}: {kind}: {a} s by compare, {b} s expected")

    def hold_against_reader(self, trace, within):
        answer, why = compare(trace)
        expected = independent_reader.read(trace)
        name = os.path.basename(trace)
        if answer is None:
            self.assertIn("belongs to no operator", why)
            self.assertGreater(expected["unmatched_share"], 0.05, name)
            return
        self.same(kinds(answer, "measured_recorded_s"), expected["recorded"], within, name)
        if expected["steps"]:
            self.same(kinds(answer, "measured_s"), expected["median"], within, name)
            self.assertEqual(answer["measured_iterations"], len(expected["steps"]))
            self.assertAlmostEqual(answer["kinds"][0]["measured_s"] / expected["whole"], 1, delta=within)

    def test_made_up_traces_are_read_to_the_nanosecond(self):
        for style in synthesize.WORDS:
            for seed in range(6):
                events = []
                truth = synthesize.synthesize(4, seed, style, events.append)
                random.Random(seed).shuffle(events)
                with tempfile.TemporaryDirectory() as folder:
                    trace = os.path.join(folder, "t.json.gz" if seed % 2 else "t.json")
                    with (gzip.open if seed % 2 else open)(trace, "wt") as file:
                        body = ",\n".join(map(synthesize.text_of, events))
                        file.write(f"[{body}]" if seed % 3 == 0 else f'{{"traceEvents": [{body}]}}')
                    answer, why = compare(trace)
                    self.assertIsNotNone(answer, why)
                    what = f"synthesize.py --iterations 4 --seed {seed} --style {style}"
                    self.same(kinds(answer, "measured_recorded_s"), truth["recorded"], 1e-9, what)
                    self.same(kinds(answer, "measured_s"), truth["median"], 1e-9, what)
                    self.assertEqual(answer["measured_iterations"], truth["steps"], what)
                    self.assertAlmostEqual(answer["kinds"][0]["measured_s"], truth["whole"], delta=1e-9, msg=what)
                    self.assertEqual(answer["measured_peak_bytes"], truth["peak"], what)
                    self.assertEqual(answer["measured_unmatched_share"], 0, what)
                    if style == "amd":  # whose dates a double holds
                        self.hold_against_reader(trace, 1e-6)

    def test_the_real_recording_agrees_with_the_second_reader(self):
        self.hold_against_reader(os.path.join(HERE, "recording_torch113_cpu.json.gz"), 0.001)

    @unittest.skipUnless(SHARED, "no public traces here (../shared/data/kineto): SKIPPED")
    @eleventh(4)
    def test_public_traces_agree_with_the_second_reader(self):
        for trace in SHARED:
            self.hold_against_reader(trace, 0.02)

    @unittest.skipUnless(SHARED, "no public traces here (../shared/data/kineto): SKIPPED")
    @eleventh(8)
    def test_public_traces_have_the_times_that_somebody_else_read(self):
        """Forward, backward and update in ms by a third reader, which has no kinds for zero_grad and communication."""
        known = {"hta_memory_events_ddp_rank1": (206, 747, 26), "resnet_kineto": (1288, 2786, 29),
                 "linear_kineto": (125, 224, 20)}
        for trace in SHARED:
            name = os.path.basename(trace).split(".")[0]
            if name not in known:
                continue
            got = kinds(compare(trace)[0], "measured_recorded_s")
            sums = (got["forward"] + got.get("zero_grad", 0), got["backward"] + got.get("collective", 0), got["update"])
            for ms, expected in zip(sums, known.pop(name)):
                self.assertAlmostEqual(ms * 1e3, expected, delta=0.5 + 0.001 * expected)  # whole ms, and who has the borders
        self.assertEqual(known, {})

    def memory_of_comparing(self, trace):
        """Bytes that the program takes, asked by a small process: until exec a child's peak is its parent's."""
        program = ("import os, sys; p = os.spawnv(os.P_NOWAIT, sys.argv[1], sys.argv[1:]); "
                   "print(os.waitstatus_to_exitcode(os.wait4(p, 0)[1]), __import__('resource').getrusage(-1).ru_maxrss)")
        run = subprocess.run([sys.executable, "-S", "-c", program, PLIMSOLL, "compare", "--json", trace, trace],
                             capture_output=True, text=True, check=True)
        status, kilobytes = map(int, run.stdout.split()[-2:])
        self.assertEqual(status, 0)
        return kilobytes * 1024

    @eleventh(1)
    def test_a_large_file_takes_little_memory(self):
        with tempfile.TemporaryDirectory() as folder:
            trace = os.path.join(folder, "t.json")
            with open(trace, "w") as file:
                subprocess.run([sys.executable, os.path.join(HERE, "synthesize.py"), "--iterations", "1100"],
                               stdout=file, stderr=subprocess.DEVNULL, check=True)
            alone = self.memory_of_comparing(os.path.join(HERE, "recording_torch113_cpu.json.gz"))
            # 1 GB in 500 MB, of which the program alone takes 45.
            self.assertLess(self.memory_of_comparing(trace), alone + 0.45 * os.path.getsize(trace))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        PLIMSOLL = sys.argv.pop(1)
    if not SHARED:
        print("public traces (../shared/data/kineto) are not here: what they are held against is skipped")
    unittest.main(verbosity=2)
