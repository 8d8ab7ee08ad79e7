#!/usr/bin/env python3
"""experiments/cluster.yaml on a small model, and its figure: curves, costs, and the plan wherever another one is chosen.

    PYTHONPATH=experiments tests/experiments/cluster_figure_test.py PROGRAM        # without matplotlib it is skipped
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = str(ROOT / "build/plimsoll")
try:
    import plot_cluster
except SystemExit:  # its word for: no matplotlib
    plot_cluster = None


def record(nodes, seconds, plan, network="", budget=10**9, point=0):
    return {"point": point, "trace": "t", "platform": "p:nodes=%d%s" % (nodes, network), "strategy": "cluster", "micro_batches": 4,
            "optimizer": "adam", "feasible": seconds is not None, "memory_budget_bytes": budget, "makespan_s": seconds, "gap": 0.0 if plan == "a" else 0.1,
            "candidates": [{"strategy": "other", "taken": False}, {"strategy": plan, "taken": True}]}


@unittest.skipIf(plot_cluster is None, "python3-matplotlib is not here")
class Figure(unittest.TestCase):
    def test_replicas_make_no_other_plan(self):
        plans = ["megatron(sequence=yes,tensor=2)|zero1(ranks=%d)|1f1b(stages=2), 1 a micro-batch" % ranks for ranks in (2, 8)]
        self.assertEqual({plot_cluster.plan_of(record(1, 1.0, plan)) for plan in plans},
                         {"megatron(tensor=2)|zero1|1f1b(stages=2), 1 a micro-batch"})

    def test_numbers_stand_where_another_plan_is_chosen(self):
        records = [record(1, 4.0, "a"), record(2, 2.0, "a"), record(4, 1.5, "b"), record(8, None, "b"), record(1, 5.0, "b", ",network=1 GBps")]
        curves = plot_cluster.curves_of(records, 8)
        self.assertEqual([(machine, [count for count, _ in points]) for machine, _, points in curves],
                         [("p", [8, 16, 32]), ("p:network=1 GBps", [8])])
        self.assertEqual(plot_cluster.flips_of(curves[0][2]), [(0, "a"), (2, "b")])
        canvas = plot_cluster.draw(records, 8)
        upper, lower = canvas.axes
        curve = lambda axes: [list(line.get_ydata()) for line in axes.lines if line.get_marker() == "None"]
        self.assertEqual(curve(upper), [[4.0, 2.0, 1.5], [5.0]])
        self.assertEqual(curve(lower), [[32.0, 32.0, 48.0], [40.0]])  # GPU-seconds
        hollow = [line.get_markerfacecolor() == "white" for line in upper.lines if line.get_marker() != "None"]
        self.assertEqual(hollow, [False, False, True, True])
        self.assertEqual([text.get_text() for text in lower.texts], ["1", "2", "2"])
        self.assertIn(" 1  a\n 2  b", canvas.texts[-1].get_text())

    def test_the_experiment_gives_a_figure_of_a_small_model(self):
        text = (ROOT / "experiments/cluster.yaml").read_text()
        self.assertIn("/usr/bin/python3 experiments/plot_cluster.py out/cluster 8\n", text)
        text = re.sub(r"traces: .*", "traces: ['transformer:layers=2,width=256,heads=8,sequence=128,vocabulary=1024,view=graph']", text)
        text = text.replace("points=40", "t=1+2,micro_batch=1,schedule=none+1f1b,points=5").replace("memory: [20 GB,", "memory: [20 MB,")
        with tempfile.TemporaryDirectory() as folder:
            experiment, out = pathlib.Path(folder) / "cluster.yaml", pathlib.Path(folder) / "out"
            experiment.write_text(text)
            subprocess.run([PROGRAM, "sweep", str(experiment), "-o", str(out), "-j", "2"], cwd=ROOT, check=True, capture_output=True)
            records = [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]
            self.assertEqual(len(records), 14)
            self.assertTrue(all(record["feasible"] for record in records if record["memory_budget_bytes"] == 80 * 10**9))
            svg = []
            for where in ("first", "second"):
                (pathlib.Path(folder) / where).mkdir()
                subprocess.run(["/usr/bin/python3", ROOT / "experiments/plot_cluster.py", out, "8", pathlib.Path(folder) / where], check=True)
                svg.append((pathlib.Path(folder) / where / "cluster.svg").read_bytes())
            self.assertEqual(*svg)
            self.assertGreater(len(svg[0]), 10000)


if __name__ == "__main__":
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
        PROGRAM = sys.argv.pop(1)
    unittest.main()
