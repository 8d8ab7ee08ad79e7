#!/usr/bin/env python3
"""The library of memory planning keeps its word: best plans are legal and as fast as stated, bounds are found again.

    PYTHONPATH=experiments/memplanlib tests/experiments/memplanlib_test.py PROGRAM

A third of the rows, which the commit chooses (tests/README.md); PLIMSOLL_TESTS=all: all of them.
"""
import gzip
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import refresh
import table

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIBRARY = ROOT / "experiments/memplanlib"

PROGRAM = str(ROOT / "build/plimsoll")
TOLERANCE = 1e-9  # relative


def rows():
    index = refresh.read_index(LIBRARY / "index.json")
    return [(instance, budget) for instance in index["instances"] for budget in instance["budgets"]]


def rotating(all_rows):
    if os.environ.get("PLIMSOLL_TESTS") == "all":
        return all_rows
    turn = int(os.environ.get("PLIMSOLL_TURN", "0")) % 3
    return all_rows[turn::3]


def question(instance, budget):
    return ["-t", refresh.reference(instance["trace"]), "-p", instance["platform"], "-m", f"{budget['bytes']} B"]


def planned(instance, budget, folder):
    """The file of a best plan, which its strategy plans again where the library does not keep it."""
    if "plan" in budget["best"]:
        return LIBRARY / budget["best"]["plan"]
    plan = pathlib.Path(folder) / "plan.json"
    answer, _ = refresh.run(PROGRAM, "simulate", *question(instance, budget), "-s", budget["best"]["by"], "--engine", "event", "--json",
                            "--schedule-out", plan)
    assert answer is not None and answer["feasible"], budget
    return plan


class MemPlanLib(unittest.TestCase):
    def test_layered_graphs_are_made_again(self):
        made = 0
        for instance in refresh.read_index(LIBRARY / "index.json")["instances"]:
            if not instance["origin"].startswith("layered_graph.py"):
                continue
            ops, width = instance["origin"].split(":")[0].split()[1:]
            with self.subTest(instance=instance["name"]), tempfile.TemporaryDirectory() as folder:
                trace = pathlib.Path(folder) / "made.json.gz"
                subprocess.run([sys.executable, LIBRARY / "layered_graph.py", ops, width, "-o", trace], check=True)
                kept = gzip.decompress((LIBRARY / instance["trace"]).read_bytes())
                self.assertEqual(gzip.decompress(trace.read_bytes()), kept)
                graph = json.loads(kept)
                self.assertEqual(len(graph["ops"]), int(ops))
                self.assertTrue(all(value < op for op, row in enumerate(graph["ops"]) for value in row["inputs"]))
                made += 1
        self.assertEqual(made, 4)

    def test_best_plans_and_bounds(self):
        chosen = rotating(rows())
        self.assertGreater(len(chosen), 10)
        for instance, budget in chosen:
            with self.subTest(instance=instance["name"], budget=budget["bytes"]), tempfile.TemporaryDirectory() as folder:
                self.check(instance, budget, folder)

    def check(self, instance, budget, folder):
        best, bound = budget["best"], budget["bound"]
        plan = planned(instance, budget, folder)
        verdict, code = refresh.run(PROGRAM, "verify", plan, *question(instance, budget), "--json")
        self.assertEqual(code, 0)
        self.assertEqual((verdict["legal"], verdict["fits"], verdict["outside"]), (True, True, None))
        self.assertLessEqual(verdict["makespan_s"], best["time_s"] * (1 + TOLERANCE))
        if "plan" in best:  # a strategy that plans it again may have become better
            self.assertEqual(verdict["peak_bytes"], best["peak_bytes"])
            self.assertGreaterEqual(verdict["makespan_s"], best["time_s"] * (1 - TOLERANCE))
            self.assertFalse(verdict["new_best"])
        self.assertLessEqual(verdict["peak_bytes"], budget["bytes"])
        self.assertIn(instance["class"], (verdict["class"], "offload"))
        self.assertEqual((verdict["instance"], verdict["instance_budget_bytes"]), (instance["name"], budget["bytes"]))
        self.assertLessEqual(bound["time_s"], best["time_s"])
        again = self.bound_again(instance, budget, verdict)
        self.assertGreaterEqual(again, bound["time_s"] * (1 - TOLERANCE))
        self.assertLessEqual(again, best["time_s"] * (1 + TOLERANCE))

    def bound_again(self, instance, budget, verdict):
        by = budget["bound"]["by"]
        if by == "verify":
            return verdict["cut_bound_s"]
        if by == "bounds":
            bounds, _ = refresh.run(PROGRAM, "bounds", *question(instance, budget), "--json")
            kind = "recomputing" if instance["class"] == "recompute" else "offloading"
            return bounds["within_budget"][kind]["lower_bound_s"]
        self.assertTrue(by.startswith("exact") and instance["class"] == "recompute", by)
        answer, _ = refresh.run(PROGRAM, "simulate", *question(instance, budget), "-s", by, "--engine", "event", "--json")
        return answer["makespan_s"] / (1 + answer["gap"])

    def test_the_page_has_the_table(self):
        page = (LIBRARY / "README.md").read_text()
        self.assertEqual(table.with_table(page, refresh.read_index(LIBRARY / "index.json")), page, "run experiments/memplanlib/table.py --write")

    def test_every_file_is_a_best_plan_or_a_trace(self):
        named = {budget["best"]["plan"] for _, budget in rows() if "plan" in budget["best"]}
        self.assertEqual(named, {str(file.relative_to(LIBRARY)) for file in (LIBRARY / "plans").rglob("*") if file.is_file()})
        traces = {instance["trace"].removeprefix("./") for instance, _ in rows() if instance["trace"].startswith(".")}
        self.assertEqual(traces, {str(file.relative_to(LIBRARY)) for file in (LIBRARY / "traces").iterdir()})

    def test_the_index_is_as_refresh_writes_it(self):
        index = LIBRARY / "index.json"
        with tempfile.TemporaryDirectory() as folder:
            written = pathlib.Path(folder) / "index.json"
            refresh.write_index(written, refresh.read_index(index))
            self.assertEqual(written.read_text(), index.read_text())


class Refresh(unittest.TestCase):
    def test_only_better_plans_and_bounds_are_kept(self):
        trace = ROOT / "tests/experiments/worked_example.json"
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            index = folder / "index.json"
            instance = {"name": "paper", "trace": str(trace), "platform": "ideal", "class": "recompute", "origin": "by hand",
                        "store_all_bytes": 22, "budgets": [{"bytes": 21}, {"bytes": 22}]}
            refresh.write_index(index, {"format": "plimsoll.memplanlib.v1", "instances": [instance]})
            library = refresh.Library(PROGRAM, index, "2026-11-27")
            library.refresh(library.index["instances"][0], ["store_all", "rotor", "exact"])
            small, large = library.index["instances"][0]["budgets"]
            self.assertEqual((large["best"]["time_s"], large["best"]["by"], large["best"]["peak_bytes"]), (7, "store_all", 22))
            self.assertEqual(small["best"]["by"], "rotor")
            self.assertGreater(small["best"]["time_s"], 7)
            self.assertEqual(small["bound"]["by"], "bounds")  # whole values: as high as what exact proves
            self.assertAlmostEqual(small["bound"]["time_s"], small["best"]["time_s"], delta=8 * TOLERANCE)
            self.assertEqual({file.name for file in (folder / "plans/paper").iterdir()}, {"21.json.gz", "22.json.gz"})
            before = index.read_text()
            library.date = "2027-01-01"
            library.refresh(library.index["instances"][0], ["exact", "rotor", "store_all"])
            self.assertEqual(index.read_text(), before)
            worse = folder / "worse.order"
            worse.write_text("first\nsecond\nloss\nloss backward\nsecond backward\nfirst\nfirst\nfirst backward\n")
            self.assertFalse(library.offer_plan(library.index["instances"][0], worse, "nobody", None))


if __name__ == "__main__":
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
        PROGRAM = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
