#!/usr/bin/env python3
"""One page of a validation: its figures by hand, those of a recorded run against what `validate` said itself, and refusals."""
import contextlib
import io
import json
import os
import pathlib
import tempfile
import unittest

import validation_page

results = pathlib.Path(__file__).resolve().parents[2] / "validate" / "results"


def row(strategy, error, peaks=(1000, 1000), reserved=None, as_issued=True, network="mlp:layers=2,width=8", measured=1.25):
    made = {"network": network, "strategy": strategy, "predicted_relative": measured * (1 + error), "measured_relative": measured,
            "measured_spread": 0.001, "predicted_s": 0.002, "measured_s": 0.0025, "predicted_peak_bytes": peaks[0],
            "measured_peak_bytes": peaks[1], "legal_peaks_bytes": [900, 1000],
            "predicted_by_kind": {"forward_s": 0.001, "offload_s": 0.001},
            "measured_by_kind": {"forward_s": 0.001, "offload_s": 0.0015 if strategy == "vdnn" else 0.001}}
    if reserved:
        made.update(predicted_reserved_bytes=reserved[0], measured_reserved_bytes=reserved[1], reserved_as_issued=as_issued)
    return made


def page(rows):
    return "\n".join(validation_page.page({"rows": rows}))


def goals(rows):
    """By goal: whether it is met."""
    lines = page(rows).split("\n")
    return {line[2:20].strip(): line.split()[-1] for line in lines[1:lines.index("")]}


class Goals(unittest.TestCase):
    def test_each_is_met_and_missed_alone(self):
        good = [row("rotor", 0.01, measured=1.5), row("vdnn", -0.02)]
        met = {"time, mean": "met", "time, worst": "met", "live peak": "met", "order, tau-b": "met"}
        self.assertEqual(goals(good), {**met, "reserved": "simulated"})
        reserving = [row("rotor", 0.01, reserved=(5, 5), measured=1.5)]
        self.assertEqual(goals(reserving)["reserved"], "met")
        for name, rows in (("time, mean", good + [row("min_cut", 0.05, measured=2)]),
                           ("live peak", good + [row("min_cut", 0, peaks=(1000, 1001), measured=2)]),
                           ("live peak", good + [row("min_cut", 0, peaks=(1000, 899), measured=2)]),
                           ("reserved", reserving + [row("min_cut", 0, reserved=(5, 4), measured=2)]),
                           ("order, tau-b", [row("rotor", 0, measured=1.02), row("vdnn", 0.03, measured=1)]),
                           ("time, worst", [row(f"a{n}", 0, measured=1 + n) for n in range(9)] + [row("min_cut", -0.081, measured=20)])):
            self.assertEqual({key for key, found in goals(rows).items() if found == "missed"}, {name})

    def test_a_peak_of_another_order_of_the_plan_is_not_equal_and_not_wrong(self):
        text = page([row("rotor", 0, peaks=(1000, 950)), row("vdnn", 0, measured=3)])
        self.assertIn("equal in 1 of 2, not of its plan's order in 0", text)

    def test_plans_in_chunks_reserve_by_other_rules(self):
        text = page([row("rotor", 0, reserved=(5, 5)), row("vdnn", 0, reserved=(5, 9), as_issued=False, measured=3)])
        self.assertIn("equal in 1 of 1, 1 in chunks not counted", text)


class Lines(unittest.TestCase):
    def test_kinds_are_summed_and_name_their_worst_plan(self):
        text = page([row("rotor", 0), row("vdnn", 0)])
        self.assertIn("  offload                   0.0020       0.0025  -20.0 %  -0.500 ms, vdnn of mlp:layers=2\n", text)
        self.assertIn("  forward                   0.0020       0.0020   +0.0 %  +0.000 ms, rotor of mlp:layers=2\n", text)

    def test_a_line_a_plan_below_its_network(self):
        text = page([row("rotor", 0.01, peaks=(1000000, 999900), reserved=(5, 9)), row("vdnn", 0, network="gpt:layers=1")])
        self.assertIn("\nmlp:layers=2,width=8\n  rotor                                   2.000    2.500   +1.0 %"
                      "       1.0      1.0     -100           4\n", text)
        self.assertTrue(text.split("gpt:layers=1\n")[-1].startswith("  vdnn  "))
        self.assertLessEqual(max(map(len, text.split("\n"))), 110)


class Recorded(unittest.TestCase):
    def test_figures_are_those_that_the_validation_gave(self):
        file = results / "2026-11-23_cpu" / "validation.json"
        said = json.loads(file.read_text())["summary"]["all"]
        text = page(json.loads(file.read_text())["rows"])
        self.assertIn(f"{100 * said['time_error_mean']:.1f} % of {said['schedules']} plans", text)
        self.assertIn(f"{100 * said['time_error_worst']:+.1f} %: ", text)
        self.assertIn(f" {said['tau_b']:.3f}, mean of 6 networks", text)
        self.assertIn("not of its plan's order in 0", text)
        self.assertLessEqual(max(map(len, text.split("\n"))), 110)


class Ends(unittest.TestCase):
    def ended(self, *words):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = validation_page.main(list(words))
        return code, out.getvalue(), err.getvalue()

    def test_rows_of_a_run_that_was_cut_are_read(self):
        with tempfile.TemporaryDirectory() as folder:
            file, to = os.path.join(folder, "page.txt"), os.path.join(folder, "rows.jsonl")
            pathlib.Path(to).write_text(json.dumps(row("rotor", 0)) + "\n" + json.dumps(row("vdnn", 0)) + "\n")
            code, out, _ = self.ended(to, file)
            self.assertEqual((code, out), (0, pathlib.Path(file).read_text()))

    def test_wrong_files_are_refused_with_a_line(self):
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "v.json")
            self.assertEqual(self.ended(file), (2, "", f"{file}: cannot read: No such file or directory\n"))
            for text, why in (("{", "not a validation: "), ("{}", "not a validation: 'rows'"), ("[]", "not a validation: "),
                              ('{"rows": []}', "no rows: no network was finished"),
                              ('{"rows": [{"network": "mlp"}]}', "row 1: no 'strategy'")):
                pathlib.Path(file).write_text(text)
                code, out, err = self.ended(file)
                self.assertEqual((code, out, err.count("\n")), (2, "", 1))
                self.assertTrue(err.startswith(f"{file}: {why}"), err)
            self.assertEqual(self.ended()[0], 2)


if __name__ == "__main__":
    unittest.main()
