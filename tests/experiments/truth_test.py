#!/usr/bin/env python3
"""docs/truth.md says what `plimsoll reproduce truth` finds: its statistics again from the runs, its runs again by the program.

    PYTHONPATH=tests/program tests/experiments/truth_test.py PROGRAM

Steps on one H100 and one run of each other group run always; all runs in one of eleven turns (tests/README.md).
"""
import csv
import io
import itertools
import json
import pathlib
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
import unittest

from turns import eleventh

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE, RESULTS, RUNS = ROOT / "docs/truth.md", ROOT / "docs/truth.csv", ROOT / "experiments/papers/measured_runs.yaml"
PROGRAM = str(ROOT / "build/plimsoll")


def program(*words, code=0):
    done = subprocess.run([PROGRAM, "reproduce", "truth", *words], capture_output=True, text=True, check=False)
    if done.returncode != code:
        raise AssertionError(f"exit code {done.returncode}: {done.stderr}")
    return done.stdout if code == 0 else done.stderr


def table(name):
    """The rows of a table of the page, their cells."""
    text = PAGE.read_text(encoding="utf-8")
    between = text.split(f"<!-- {name} -->\n")[1].split(f"<!-- end of {name} -->")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in between.splitlines()[2:] if line.startswith("|")]


def results():
    return list(csv.DictReader(io.StringIO(RESULTS.read_text(encoding="utf-8"))))


def predicted(rows):
    return [row for row in rows if row["predicted_s"]]


def percent(share, sign=""):
    return f"{100 * share:{sign}.1f} %".replace("-0.0", "0.0")


class Page(unittest.TestCase):
    """By other code than the program's, from the runs alone."""

    def test_errors_are_those_of_the_runs(self):
        for row in predicted(results()):
            self.assertAlmostEqual(float(row["error"]), float(row["predicted_s"]) / float(row["measured_s"]) - 1, delta=1.1e-4)

    def test_groups(self):
        groups = {}
        for row in predicted(results()):
            groups.setdefault(row["group"], []).append(row)
        self.assertGreaterEqual(len(groups), 7)
        rows = [*groups.values(), [row for of in groups.values() for row in of]]
        for shown, of in zip(table("runs"), rows, strict=True):
            errors = [float(row["predicted_s"]) / float(row["measured_s"]) - 1 for row in of]
            rooflines = [abs(float(row["rooflines_s"]) / float(row["measured_s"]) - 1) for row in of]
            sizes = [abs(error) for error in errors]
            expected = [statistics.mean(sizes), statistics.median(sizes), max(sizes), statistics.mean(errors), statistics.mean(rooflines)]
            self.assertEqual(int(shown[1]), len(of))
            self.assertEqual(int(shown[6]), sum(float(row["low_s"]) <= float(row["measured_s"]) <= float(row["high_s"]) for row in of))
            for cell, value in zip([*shown[2:6], shown[7]], expected, strict=True):
                self.assertAlmostEqual(float(cell.split()[0]), 100 * value, delta=0.06, msg=shown[0])

    def test_order_and_regret(self):
        choices = {}
        for row in predicted(results()):
            if row["choice"]:
                choices.setdefault(row["choice"], []).append((float(row["predicted_s"]), float(row["measured_s"])))
        self.assertEqual([shown[0] for shown in table("order")], list(choices))
        for name, count, tau, regret in (row[:4] for row in table("order")):
            pairs = list(itertools.combinations(choices[name], 2))
            agree = sum((p - q) * (m - n) > 0 for (p, m), (q, n) in pairs)
            differ = sum((p - q) * (m - n) < 0 for (p, m), (q, n) in pairs)
            self.assertEqual(int(count), len(choices[name]))
            self.assertEqual(tau, f"{(agree - differ) / len(pairs):.2f}")
            chosen, fastest = min(choices[name])[1], min(measured for _, measured in choices[name])
            self.assertEqual(regret, percent(chosen / fastest - 1))

    def test_runs_of_the_page_are_those_of_the_file(self):
        names = re.findall(r'^      - name: "(.+)"$', RUNS.read_text(encoding="utf-8"), re.M)
        self.assertEqual([row["run"] for row in results()], names)
        shown = [row[0] for group in dict.fromkeys(r["group"] for r in predicted(results())) for row in table(f"group {group}")]
        self.assertEqual(shown + [row[0] for row in table("not expressed")],
                         [r["run"] for r in predicted(results())] + [r["run"] for r in results() if not r["predicted_s"]])

    def test_no_group_is_worse_than_it_was(self):
        """The bars of the page's first days, in percent of the mean."""
        bars = {"korthikanti": 4, "sc21": 6, "sc21_zero3": 10, "vtrain": 12, "mt_nlg": 25, "bloom": 20, "h100_steps": 10, "torchtitan": 30,
                "neusight_h100": 3, "neusight_v100": 9}
        errors = {}
        for row in predicted(results()):
            errors.setdefault(row["group"], []).append(abs(float(row["error"])))
        self.assertEqual(set(errors), set(bars))
        for group, of in errors.items():
            self.assertLessEqual(100 * statistics.mean(of), bars[group], group)

    def test_verdicts_of_measured_steps(self):
        script = ROOT / "experiments" / "papers" / "h100_verdicts.py"
        said = subprocess.run([sys.executable, script, ROOT / "docs" / "truth.csv"], capture_output=True, text=True, check=True).stdout
        self.assertNotIn("false fits", said)
        self.assertEqual(re.findall(r"^(.+?), checkpointed.*false does not fit", said, re.M), ["ResNet-50, tf32, momentum"])

    def test_reserved_memory_of_steps_is_near(self):
        rows = [row for row in predicted(results()) if row["group"] == "h100_steps"]
        errors = [abs(float(row["predicted_reserved_bytes"]) / float(row["measured_reserved_bytes"]) - 1) for row in rows]
        self.assertEqual(len(errors), 13)
        by_ops = [error for row, error in zip(rows, errors) if row["run"] != "ResNet-50, tf32, momentum, checkpointed"]
        self.assertEqual(len(by_ops), 12)
        self.assertLessEqual(statistics.mean(by_ops), 0.03)
        self.assertLessEqual(statistics.mean(errors), 0.06)  # behind chain all values of a stage are one buffer
        said = re.search(r"The error of reserved memory is ([\d.]+) % in the mean, ([\d.]+) % at worst",
                         PAGE.read_text(encoding="utf-8"))
        self.assertAlmostEqual(float(said[1]), 100 * statistics.mean(errors), delta=0.06)
        self.assertAlmostEqual(float(said[2]), 100 * max(errors), delta=0.06)


class Runs(unittest.TestCase):
    """By the program."""

    def same(self, text):
        found = {(row["group"], row["run"]): row for row in csv.DictReader(io.StringIO(text))}
        self.assertTrue(found)
        for row in results():
            if (row["group"], row["run"]) in found:
                self.assertEqual(found[row["group"], row["run"]], row)
        return found

    def test_steps_on_one_gpu(self):
        found = self.same(program("--group", "h100_steps", "--csv"))
        self.assertEqual(len(found), sum(row["group"] == "h100_steps" for row in results()))

    def test_one_run_of_each_group(self):
        blocks = re.split(r"(?=^      - name: )", RUNS.read_text(encoding="utf-8"), flags=re.M)
        kept, group = [], None
        for block in blocks:
            run, heading, rest = block.partition("\n  - name: ")
            if group != "taken" or not run.lstrip().startswith("- name:"):
                kept.append(run)
                group = "taken" if run.lstrip().startswith("- name:") else None
            if heading:
                kept.append(heading + rest)
                group = None
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "runs.yaml"
            file.write_text("".join(kept), encoding="utf-8")
            self.assertGreaterEqual(len(self.same(program("--runs", str(file), "--csv"))), 7)

    @eleventh(4)
    def test_all_runs_and_the_page(self):
        with tempfile.TemporaryDirectory() as folder:
            page = pathlib.Path(folder) / "truth.md"
            page.write_text(PAGE.read_text(encoding="utf-8"), encoding="utf-8")
            program("-o", folder)
            self.assertEqual(page.read_text(encoding="utf-8"), PAGE.read_text(encoding="utf-8"))
            self.assertEqual((pathlib.Path(folder) / "truth.csv").read_text(encoding="utf-8"), RESULTS.read_text(encoding="utf-8"))

    def test_a_command_of_json_predicts_its_run(self):
        run = json.loads(program("--group", "h100_steps", "--json"))["runs"][1]
        words = shlex.split(run["command"])
        self.assertEqual(words[:2], ["plimsoll", "simulate"])
        done = subprocess.run([PROGRAM, *words[1:], "--json"], capture_output=True, text=True, check=True)
        alone = json.loads(done.stdout)
        self.assertEqual((alone["makespan_s"], alone["peak_bytes"]), (run["predicted_s"], run["predicted_peak_bytes"]))


class WrongInput(unittest.TestCase):
    def complaint(self, text, code=2):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "runs.yaml"
            file.write_text(text, encoding="utf-8")
            return program("--runs", str(file), code=code).replace(str(file), "runs.yaml")

    RUN = ("format: plimsoll.measured_runs.v1\ngroups:\n  - name: a\n    title: b\n    origin: c\n    efficiency: a100_sxm\n    runs:\n"
           "      - {name: r, trace: uniform:3, platform: ideal, strategy: store_all, measured: 1 s}\n")

    def test_places(self):
        for old, new, what in (("runs.v1", "runs.v2", "runs.yaml:1:9: format: expected plimsoll.measured_runs.v1, found"),
                               ("1 s}", "1}", "runs.yaml:8:85: groups[0].runs[0].measured: missing unit"),
                               (", measured: 1 s", "", "runs.yaml:8:9: groups[0].runs[0]: "),
                               ("1 s}", "0 s}", "runs.yaml:8:85: groups[0].runs[0].measured: expected a time above 0"),
                               ("store_all", "store_al", "did you mean 'store_all'?"),
                               ("platform", "platfrom", "did you mean 'platform'?")):
            self.assertIn(what, self.complaint(self.RUN.replace(old, new)))

    def test_runs_without_a_prediction(self):
        for old, new, what in (("platform: ideal", "platform: idael", "did you mean 'ideal'?"),
                               ("a100_sxm", "a100_smx", "did you mean 'a100_sxm'?"),
                               ("uniform:3", "uniform:3x", "uniform:3x")):
            said = self.complaint(self.RUN.replace(old, new), code=1)
            self.assertIn("no prediction of 'r' of a: ", said)
            self.assertIn(what, said)

    def test_groups(self):
        self.assertIn("did you mean 'vtrain'?", program("--group", "vtrian", code=2))


if __name__ == "__main__":
    PROGRAM = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
