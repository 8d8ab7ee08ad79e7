#!/usr/bin/env python3
"""docs/truth.md says what `plimsoll reproduce truth` finds: its statistics again from the runs, its runs again by the program.

    PYTHONPATH=tests/program tests/experiments/truth_test.py PROGRAM

Steps on one H100 and one run of each other group run always; all runs in one of eleven turns (tests/README.md).
"""
import collections
import csv
import io
import itertools
import json
import math
import pathlib
import random
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


def work_of(command):
    """What a command asks for, less its plan, micro-batches and padding; by another reading than the program's."""
    words = shlex.split(command)
    options = dict(zip(words[2::2], words[3::2]))
    strategy = options.pop("-s")
    name, _, text = options.pop("-t").partition(":")
    numbers = dict(option.partition("=")[::2] for option in text.split(",") if option)
    batch = int(numbers.pop("batch", 1)) * int(options.pop("--micro-batches", 1))
    if "vocabulary" in numbers and "ops=megatron" in text:  # any vocabulary that Megatron-LM pads to this one
        ranks = int(re.search(r"megatron\(tensor=(\d+)", strategy)[1]) if "megatron(" in strategy else 1
        padded = int(numbers.pop("vocabulary"))
        return (name, numbers, batch, options), range(padded - 128 * ranks + 1, padded + 1)
    return (name, numbers, batch, options), range(0)


def orders_of(rows):
    """Indices of runs of the same work, of each of two runs or more."""
    works = []
    for at, row in enumerate(rows):
        work, vocabulary = work_of(row["command"])
        for each in works:
            if each[0] == work and (vocabulary == each[1] or max(vocabulary.start, each[1].start) < min(vocabulary.stop, each[1].stop)):
                each[2].append(at)
                break
        else:
            works.append((work, vocabulary, [at]))
    return [of for _, _, of in works if len(of) > 1]


def tau_b(times):
    """By tied groups: (agreeing - contradicting) / sqrt((pairs - tied in one) (pairs - tied in the other)); None: all are tied."""
    pairs = list(itertools.combinations(times, 2))
    signs = [((p > q) - (p < q)) * ((m > n) - (m < n)) for (p, m), (q, n) in pairs]
    untied = [len(pairs) - sum(many * (many - 1) // 2 for many in collections.Counter(each).values()) for each in zip(*times)]
    return sum(signs) / math.sqrt(untied[0] * untied[1]) if all(untied) else None


def regret_of(times):
    least = min(time for time, _ in times)
    return max(measured for time, measured in times if time == least) / min(measured for _, measured in times) - 1


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
        rows = predicted(results())
        orders = orders_of(rows)
        shown = table("order")
        self.assertEqual([each[0] for each in shown], [rows[of[0]]["choice"] for of in orders])
        for (_, count, tau, regret), of in zip(shown, orders, strict=True):
            times = [(float(rows[each]["predicted_s"]), float(rows[each]["measured_s"])) for each in of]
            self.assertEqual(int(count), len(of))
            self.assertEqual(tau, f"{tau_b(times):.2f}")
            self.assertEqual(regret, percent(regret_of(times)))
        for row in (row for at, row in enumerate(rows) if not any(at in of for of in orders)):
            self.assertEqual(row["choice"], "")

    def test_whoever_follows_predictions_loses_at_most_5_percent(self):
        rows = predicted(results())
        times = [[(float(rows[each]["predicted_s"]), float(rows[each]["measured_s"])) for each in of] for of in orders_of(rows)]
        self.assertGreaterEqual(len(times), 13)
        self.assertLessEqual(max(map(regret_of, times)), 0.05)

    def test_pipelines_beat_zero3_as_measured(self):
        rows = {(row["group"], row["run"]): row for row in results()}
        for gpus in (384, 768, 1536):
            pipeline, zero3 = (rows[group, f"table 2, 174.6B on {gpus}"] for group in ("sc21", "sc21_zero3"))
            self.assertEqual(pipeline["choice"], zero3["choice"])
            for time in ("predicted_s", "measured_s"):
                self.assertLess(float(pipeline[time]), float(zero3[time]), gpus)

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

    def same(self, text, of_groups=True):
        found = {(row["group"], row["run"]): row for row in csv.DictReader(io.StringIO(text))}
        self.assertTrue(found)
        for row in results():
            if (row["group"], row["run"]) in found:
                said = found[row["group"], row["run"]]
                self.assertEqual(said, row if of_groups else {**row, "choice": said["choice"]})
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
            self.assertGreaterEqual(len(self.same(program("--runs", str(file), "--csv"), of_groups=False)), 7)

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


class Order(unittest.TestCase):
    """Of made-up runs: ties, repeats, works of one run."""

    HEAD = "format: plimsoll.measured_runs.v1\ngroups:\n"
    GROUP = "  - {name: %s, title: b, origin: c, efficiency: %s, runs: [\n%s]}\n"
    RUN = "{name: '%s', trace: '%s', platform: %s, strategy: '%s', micro_batches: %d, optimizer: %s, measured: %s s},\n"

    def orders(self, *groups):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "runs.yaml"
            file.write_text(self.HEAD + "".join(self.GROUP % (name, efficiency, "".join(self.RUN % run for run in runs))
                                                for name, efficiency, runs in groups), encoding="utf-8")
            return json.loads(program("--runs", str(file), "--json"))

    def test_random_runs(self):
        chance = random.Random(4)
        strategies = ["store_all", "chen_sqrt", "full_recompute", "periodic(every=2)", "periodic(every=1)"]
        runs = [(f"run {at}", f"uniform:{chance.choice((8, 9))}", "ideal", chance.choice(strategies), chance.choice((1, 1, 2)),
                 chance.choice(("none", "none", "adam")), chance.choice(("1", "2", "2", "3.5"))) for at in range(60)]
        found = self.orders(("a", "a100_sxm", runs[:30]), ("b", "a100_sxm", runs[30:]))
        expected = {}
        for run, said in zip(runs, found["runs"], strict=True):
            expected.setdefault((run[1], run[4], run[5]), []).append((said["predicted_s"], said["measured_s"]))
        expected = [times for times in expected.values() if len(times) > 1]
        self.assertEqual(len(found["choices"]), len(expected))
        self.assertGreater(len(expected), 6)
        for said, times in zip(found["choices"], expected):
            self.assertEqual(said["runs"], len(times))
            self.assertAlmostEqual(said["regret"], regret_of(times), delta=1e-12)
            tau = tau_b(times)
            if tau is None:
                self.assertIsNone(said["tau"])
            else:
                self.assertAlmostEqual(said["tau"], tau, delta=1e-12)

    def test_of_equal_predictions_the_slowest_is_taken(self):
        run = lambda name, strategy, time: (name, "uniform:3", "ideal", strategy, 1, "none", time)
        found = self.orders(("a", "a100_sxm", [run("a model, x", "store_all", 3), run("a model, y", "store_all", 4), run("a model, z", "store_all", 2)]))
        (order,) = found["choices"]
        self.assertEqual((order["choice"], order["tau"], order["regret"]), ("a model, 1 sample on ideal", None, 1.0))
        self.assertEqual((order["taken"]["name"], order["fastest"]["name"]), ("a model, y", "a model, z"))
        self.assertEqual({each["choice"] for each in found["runs"]}, {order["choice"]})

    def test_a_choice_by_hand_changes_nothing(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "runs.yaml"
            runs = [self.RUN % (name, f"uniform:{layers}", "ideal", "store_all", 1, "none", 1) for name, layers in (("a", 3), ("b", 4))]
            file.write_text(self.HEAD + self.GROUP % ("a", "a100_sxm", "".join(runs).replace(" s}", " s, choice: c}")), encoding="utf-8")
            self.assertEqual(json.loads(program("--runs", str(file), "--json"))["choices"], [])

    def test_other_works_are_not_compared(self):
        base = ["r", "transformer:layers=2,width=64,heads=2,sequence=16,batch=2,vocabulary=1000,view=graph", "ideal", "store_all", 2, "none", 1]
        def other(name, at, value):
            return tuple([name, *base[1:]][:at] + [value] + base[at + 1:])
        one = lambda old, new: base[1].replace(old, new)
        apart = [other("layers", 1, one("layers=2", "layers=3")), other("samples", 4, 3), other("platform", 2, "h200"), other("optimizer", 5, "sgd"),
                 other("dtype", 1, base[1] + ",dtype=fp16"), other("vocabulary", 1, one("=1000", "=3000"))]
        found = self.orders(("a", "a100_sxm", [tuple(base), *apart]), ("b", "h100_sxm", [tuple(base)]))
        self.assertEqual(found["choices"], [])
        self.assertEqual([each["choice"] for each in found["runs"]], [None] * 8)
        same = [other("strategy", 3, "chain|full_recompute"), other("micro-batch", 1, one("batch=2", "batch=4"))[:4] + (1, "none", 1),
                other("padded", 1, one("=1000", "=1024")),
                other("order", 1, "transformer:" + ",".join(reversed(base[1].partition(":")[2].split(","))) + ",decoder=0"),
                other("elsewhere", 3, "recompute_ops")]
        found = self.orders(("a", "a100_sxm", [tuple(base), *same[:-1]]), ("b", "a100_sxm", [same[-1]]))
        self.assertEqual([each["runs"] for each in found["choices"]], [6])


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
    PROGRAM = next((str(pathlib.Path(word).resolve()) for word in sys.argv[1:] if word.endswith("plimsoll")), PROGRAM)
    unittest.main(argv=[word for word in sys.argv if not word.endswith("plimsoll")])
