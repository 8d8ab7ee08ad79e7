#!/usr/bin/env python3
"""Pages of papers: each experiment of experiments/papers has one, with its command, its picture and the table that `plimsoll reproduce` prints;
numbers of that table again from the sweep's records, by another reading of expected.yaml.

    PYTHONPATH=tests/program tests/documentation/papers_test.py PROGRAM                 # without PyYAML fewer checks
    PYTHONPATH=tests/program tests/documentation/papers_test.py PROGRAM --write [NAME]  # runs sweeps, writes tables and pictures

Two papers are run always, each other one in one of eleven turns, and those of SLOW only with PLIMSOLL_TESTS=all.
"""
import fnmatch
import json
import math
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import pages
import turns

try:
    import yaml
except ImportError:
    yaml = None

PROGRAM = "build/plimsoll"
PAPERS, DOCS = pages.ROOT / "experiments/papers", pages.ROOT / "docs/papers"
NAMES = sorted(file.stem for file in PAPERS.glob("*.yaml") if file.stem != "measured_runs")
ALWAYS = ("controllable_memory", "pipedream")
SLOW = ("hsm2dl", "llama3_8b", "madpipe", "pardnn", "placement_small", "pofo")  # more than ten seconds of CPU each
LISTS = {"trace": "traces", "platform": "platforms", "strategy": "strategies", "micro_batches": "micro_batches", "optimizer": "optimizer"}
MOST_BYTES = 60_000  # of a picture


def mark(name):
    return f"differences of {name}"


def reproduce(*words, code=0, data=None):
    environment = dict(os.environ, **({"PLIMSOLL_DATA": str(data)} if data else {}))
    done = subprocess.run([PROGRAM, "reproduce", *words], capture_output=True, text=True, check=False, cwd=pages.ROOT, env=environment)
    if done.returncode != code:
        raise AssertionError(f"exit code {done.returncode}: {done.stdout}{done.stderr}")
    return done


def table_of(name):
    """The table of a paper's page, as text."""
    text = (DOCS / f"{name}.md").read_text()
    return text.split(f"<!-- {mark(name)} -->\n")[1].split(f"<!-- end of {mark(name)} -->")[0]


def cells(table):
    return [[cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in table.splitlines()[2:]]


def rows_of(name):
    """The rows of expected.yaml with what their groups say, and their points."""
    with open(PAPERS / name / "expected.yaml", encoding="utf-8") as file:
        expected = yaml.safe_load(file)
    for group in expected["groups"]:
        shared = {key: value for key, value in group.items() if key not in ("title", "rows", "points")}
        for row in group["rows"]:
            yield group["title"], {**shared, **row}, group.get("points", {})


def shown(number, row):
    if number is None:
        return ""
    text = f"{number:.{row['decimals']}f}" if "decimals" in row else f"{number:.4g}"
    return (text if float(text) else text.lstrip("-")) + (f" {row['unit']}" if "unit" in row else "")


class Records:
    """The records of a sweep, and the arithmetic of `ours` by Python's own."""

    def __init__(self, folder):
        self.records = [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]
        self.records.sort(key=lambda record: math.inf if record["memory_budget_bytes"] is None else record["memory_budget_bytes"])

    def chosen(self, point):
        """Records by budget of the point that the keys mean."""
        found = self.records
        for key in LISTS:
            if key in point:
                word = str(point[key])
                exact = [record for record in found if str(record[key]) == word]
                found = exact or [record for record in found if fnmatch.fnmatchcase(str(record[key]), word)
                                  or fnmatch.fnmatchcase(str(record[key]), "*/" + word)]
        return found

    def one(self, point):
        found = self.chosen(point)
        if "memory" in point:
            number, unit = str(point["memory"]).split()
            found = [record for record in found if record["memory_budget_bytes"] == float(number) * {"MB": 10**6, "GB": 10**9}[unit]]
        if "budget" in point:
            return found[-1] if point["budget"] == "last" else found[int(point["budget"]) - 1]
        assert len(found) == 1, (point, len(found))
        return found[0]

    def value(self, row, points):
        def number(word, at):
            """The number of a name at a budget; None: at the row's own."""
            head, _, field = word.partition(".")
            keys = {**row, **points[head]} if head in points else row
            fixed = at is None or (head in points and {"memory", "budget"} & set(points[head]))
            found = self.one(keys) if fixed else next(record for record in self.chosen(keys) if record["memory_budget_bytes"] == at)
            for step in (field if head in points else word).split("."):
                found = found[step]
            return found

        def asked(text, at):
            """Python's own value of a text without mean and its like."""
            named = re.sub(r"(?<![\w.])[a-z_]\w*(?:\.[a-z_]\w*)*", lambda word: repr(number(word[0], at)), text)
            try:
                return eval(named)  # pylint: disable=eval-used
            except (TypeError, ZeroDivisionError):  # a number is missing
                return None

        whole = row["ours"]
        for aggregate in re.findall(r"(?:mean|least|largest)\((?:[^()]|\([^()]*\))*\)", whole):
            function, inner = aggregate.split("(", 1)
            parts = re.split(r", (?![^(]*\))", inner[:-1])
            taken = []
            for record in self.chosen(row):
                of_budget = asked(parts[0], record["memory_budget_bytes"])
                if of_budget is not None and (len(parts) == 1 or asked(parts[1], record["memory_budget_bytes"])):
                    taken.append(of_budget)
            of = {"mean": lambda all_of: sum(all_of) / len(all_of), "least": min, "largest": max}[function](taken)
            whole = whole.replace(aggregate, repr(of))
        return asked(whole, None)


class Pages(unittest.TestCase):
    def test_every_paper_has_its_page(self):
        index = (pages.ROOT / "docs/papers.md").read_text()
        for name in NAMES:
            text = (DOCS / f"{name}.md").read_text()
            self.assertIn(f"(papers/{name}.md)", index)
            self.assertIn(f"\nplimsoll reproduce {name} -o out/{name}\n", text)
            self.assertIn(f"({name}.png)", text)
            self.assertLess((DOCS / f"{name}.png").stat().st_size, MOST_BYTES, name)
        self.assertEqual(sorted(file.stem for file in DOCS.glob("*.md")), NAMES)

    @unittest.skipIf(yaml is None, "PyYAML is not here")
    def test_tables_are_those_of_the_expected_numbers(self):
        for name in NAMES:
            expected, table = list(rows_of(name)), cells(table_of(name))
            self.assertEqual(len(table), len(expected), name)
            title = None
            for (group, row, _), (in_group, label, published, ours, _, _, verdict, where) in zip(expected, table):
                self.assertEqual(in_group, "" if group == title else group)
                title = group
                self.assertEqual(label.strip("`"), row.get("name", row.get("strategy")))
                self.assertEqual(published, shown(row.get("published"), row))
                self.assertEqual(where, row.get("where", "") if "published" in row else "")
                self.assertIn(verdict.partition(":")[0], ("agrees", "as recorded", "differs", "not here"))
                self.assertEqual(verdict.partition(": ")[2], row.get("why_not", ""))
                if "ours" not in row:
                    self.assertEqual(ours, "-")
                elif "recorded" in row:
                    most = 10.0 ** -row["decimals"] + 0.011 * abs(row["recorded"])
                    self.assertLessEqual(abs(float(ours.split(" ")[0]) - row["recorded"]), most, (name, label))


class Runs(unittest.TestCase):
    def check(self, name):
        with tempfile.TemporaryDirectory() as folder:
            said = reproduce(name, "-o", folder, "-j", "2")
            self.assertIn(table_of(name), said.stdout)
            self.assertEqual((pathlib.Path(folder) / "differences.md").read_text(), table_of(name))
            figure = json.loads((pathlib.Path(folder) / "figure.json").read_text())
            self.assertTrue((pathlib.Path(folder) / f"{name}.png").read_bytes().startswith(b"\x89PNG"))
            self.assertGreater(len(figure["panels"]), 0)
            rows = json.loads(reproduce(name, "-o", folder, "--json").stdout)["rows"]  # nothing is left to run
            if yaml is None:
                return
            records = Records(pathlib.Path(folder))
            for (_, row, points), ours in zip(rows_of(name), rows, strict=True):
                if "ours" in row:
                    self.assertAlmostEqual(ours["ours"], records.value(row, points), delta=1e-9 * abs(ours["ours"]) + 1e-15, msg=ours["name"])

    def test_quick_papers(self):
        for name in ALWAYS:
            self.check(name)

    def test_a_paper_a_turn(self):
        for name in turns.chosen([name for name in NAMES if name not in ALWAYS + SLOW]):
            self.check(name)

    @unittest.skipUnless(os.environ.get("PLIMSOLL_TESTS") == "all", "takes minutes: runs with PLIMSOLL_TESTS=all")
    def test_slow_papers(self):
        for name in SLOW:
            self.check(name)


class MadeUp(unittest.TestCase):
    """Of a made-up paper: two strategies of a chain of nine stages, each of a second forward and two back."""

    EXPERIMENT = ("format: plimsoll.experiment.v1\nname: made_up\ntraces: ['uniform:9']\nplatforms: [ideal]\n"
                  "strategies: [store_all, chen_sqrt]\nengine: event\n")
    HEAD = "format: plimsoll.expected.v1\npaper: made up\nfigure: {kind: bars, y: s}\ngroups:\n  - title: g\n    where: t\n    rows:\n"
    ROW = "      - {name: r, strategy: store_all, ours: %s, %s}\n"

    def said(self, text, code=0, name="made_up", words=()):
        with tempfile.TemporaryDirectory() as folder:
            home = pathlib.Path(folder) / "experiments/papers"
            (home / "made_up").mkdir(parents=True)
            (home / "made_up.yaml").write_text(self.EXPERIMENT)
            (home / "made_up/expected.yaml").write_text(text)
            done = reproduce(name, *words, code=code, data=folder)
            return (done.stdout or done.stderr).replace(str(home) + "/", "")

    POINTS = "    points: {plain: {strategy: store_all, budget: last}, same: {strategy: chen_sqrt}}\n"

    def rows(self, asked, code=0):
        """The rows of one run: pairs of `ours` and of what else they say."""
        text = self.HEAD.replace("    where: t\n", "    where: t\n" + self.POINTS)
        text += "".join(f"      - {{name: r{at}, strategy: store_all, ours: '{ours}', {says}}}\n" for at, (ours, says) in enumerate(asked))
        return json.loads(self.said(text, code, words=("--json",)))["rows"]

    def test_verdicts(self):
        (plain,) = self.rows([("makespan_s", "recorded: 1, recorded_within: 1000000")])
        plain = plain["ours"]
        fine = ((f"published: {plain}, within: 0", "agrees", 0),
                (f"published: {plain / 1.02}, within: 2.1 %", "agrees", 0.02),
                (f"published: {plain + 0.5}, within: 0.51", "agrees", -0.5 / (plain + 0.5)),
                (f"published: {plain * 2}, why_not: w", "differs", -0.5),
                (f"published: {plain * 2}, why_not: w, recorded: {plain}", "differs", -0.5),
                (f"recorded: {plain * 1.0009}", "as recorded", 1 / 1.0009 - 1))
        wrong = ((f"published: {plain / 1.02}, within: 1.9 %", "off", 0.02),
                 (f"published: {plain + 0.5}, within: 0.49", "off", -0.5 / (plain + 0.5)),
                 (f"published: {plain * 2}, why_not: w, recorded: {plain * 1.002}", "off", -0.5),
                 (f"published: {plain}, within: 0, recorded: {plain * 1.002}", "off", 0),
                 (f"recorded: {plain * 1.0011}", "off", 1 / 1.0011 - 1))
        found = self.rows([("makespan_s", says) for says, _, _ in fine]) + self.rows([("makespan_s", says) for says, _, _ in wrong], 1)
        for (says, verdict, difference), row in zip(fine + wrong, found, strict=True):
            self.assertEqual(row["verdict"], verdict, says)
            self.assertAlmostEqual(row["difference"], difference, delta=1e-9, msg=says)
        self.rows([("makespan_s", fine[0][0]), ("makespan_s", wrong[0][0])], 1)  # one is enough
        (row,) = self.rows([("peak_reserved_bytes", "recorded: 1")], 1)
        self.assertEqual(row["verdict"], "missing")
        self.assertEqual(json.loads(self.said(self.HEAD + "      - {name: r, published: 1, why_not: w}\n", words=("--json",)))["rows"][0]["verdict"], "not here")

    def values(self, expected):
        found = self.rows([(ours, "recorded: 1, recorded_within: 1e12") for ours, _ in expected], 1)
        for (ours, value), row in zip(expected, found, strict=True):
            self.assertEqual(row["ours"] is None, value is None, ours)
            if value is not None:
                self.assertAlmostEqual(row["ours"], value, delta=1 if value > 1e6 else 1e-12, msg=ours)

    def test_arithmetic(self):
        self.values((("1 + 2 * 3", 7), ("8 - 4 - 2", 2), ("8 / 4 / 2", 1), ("-(1 - 3) * 2", 4), ("2e3 / 1e-3", 2e6), ("1 <= 2", 1), ("2 <= 1", 0),
                     ("makespan_s / makespan_s", 1), ("mean(2 * feasible)", 2), ("least(3, 0)", None), ("largest(3, 1 <= 1)", 3), ("1 / 0", None),
                     ("least(peak_bytes) - peak_bytes", 0)))

    def test_budgets(self):
        """store_all fits the last of three budgets only."""
        self.EXPERIMENT += "memory: {from: smallest, to: store_all, count: 3}\n"
        last, first = (row["ours"] for row in self.rows([("peak_bytes", "budget: last, recorded: 1, recorded_within: 1e12"),
                                                         ("memory_budget_bytes", "budget: 1, recorded: 1, recorded_within: 1e12")]))
        self.values((("mean(memory_budget_bytes)", (first + last) / 2), ("largest(memory_budget_bytes)", last), ("least(memory_budget_bytes)", first),
                     ("least(memory_budget_bytes, 1 <= feasible)", last), ("largest(memory_budget_bytes, feasible <= 0)", (first + last) / 2),
                     ("mean(peak_bytes)", last), ("1 - mean(feasible)", 2 / 3), ("mean(plain.peak_bytes, 1 <= feasible)", last),
                     ("mean(same.memory_budget_bytes - memory_budget_bytes)", 0), ("mean(plain.memory_budget_bytes)", last),
                     ("memory_budget_bytes", None)))

    def test_tables_and_csv(self):
        text = self.HEAD + self.ROW % ("1 + 1", "published: 2.5, within: 25 %, unit: 's', decimals: 1")
        self.assertIn("| g | r | 2.5 s | 2.0 s | -20.00 % | 25 % | agrees | t |\n", self.said(text))
        self.assertIn("g,r,s,2.5,,2,-0.2,agrees,,t\n", self.said(text, words=("--csv",)))

    def test_wrong_input(self):
        good = self.HEAD + self.ROW % ("makespan_s", "recorded: 1")
        for old, new, what in (("v1\npaper", "v2\npaper", "made_up/expected.yaml:1:9: format: expected plimsoll.expected.v1, found plimsoll.expected.v2"),
                               ("paper: made up\n", "", "missing key 'paper'"),
                               ("kind: bars", "kind: bras", "figure.kind: expected bars, lines or budgets, found 'bras'; did you mean 'bars'?"),
                               ("store_all,", "store_al,", "8:29: groups[0].rows[0].strategy: 'store_al' is none of the experiment's strategies; did you mean 'store_all'?"),
                               ("strategy: store_all, ", "", "8:9: groups[0].rows[0]: the experiment has 2 strategies: say which by 'strategy'"),
                               ("store_all,", "'*',", "'*' fits 2 of the experiment's strategies"),
                               ("makespan_s", "makespn_s", "groups[0].rows[0].ours: results have no number 'makespn_s'; did you mean 'makespan_s'?"),
                               ("makespan_s", "plain.makespan_s", "ours: 'plain' is neither a point under 'points' nor an object of results"),
                               ("makespan_s", "1 +", "ours: expected a number, a field or '(' in column 4, found the end"),
                               ("makespan_s", "(1", "ours: expected ')' in column 3, found the end"),
                               ("makespan_s", "1 2", "ours: expected an operator in column 3, found '2'"),
                               ("makespan_s", "most(1)", "ours: 'most' is unknown; expected mean, least or largest before '('"),
                               ("recorded: 1", "unit: s", "groups[0].rows[0]: expected 'published', 'recorded' or both"),
                               ("recorded: 1", "published: 1", "missing key 'within'"),
                               ("recorded: 1", "published: 1, within: -1", "expected a number from 0 on, or a share such as '2 %', found '-1'"),
                               ("recorded: 1", "recordd: 1", "unknown key; did you mean 'recorded'?"),
                               ("recorded: 1}", "recorded: 1}\n      - {name: r, strategy: store_all, ours: gap, recorded: 1}", "a second row 'r' in this group"),
                               ("paper:", "preset: quick\npaper:", "no preset 'quick'")):
            self.assertEqual(good.count(old), 1, old)
            self.assertIn(what, self.said(good.replace(old, new), 2))
        deep = good.replace("makespan_s", "(" * 501 + "1" + ")" * 501)
        self.assertIn("expected at most 500 characters", self.said(deep, 2))

    def test_names(self):
        self.assertIn("'zero_bubbel' is neither truth nor an experiment of experiments/papers; did you mean 'zero_bubble'?", reproduce("zero_bubbel", code=2).stderr)
        self.assertIn("--runs, --group and --factors are for 'reproduce truth' alone", reproduce("rotor", "--factors", code=2).stderr)
        self.assertIn("'measured_runs' is neither truth nor", reproduce("measured_runs", code=2).stderr)


def write(names):
    for name in names or NAMES:
        folder = pages.ROOT / "out" / name  # as the page has it: what is there is not run again
        subprocess.run([PROGRAM, "reproduce", name, "-o", folder, "-j", "2"], check=False, cwd=pages.ROOT)
        page = DOCS / f"{name}.md"
        text = pages.with_table(page.read_text(), mark(name), (folder / "differences.md").read_text().rstrip("\n"))
        if text is None:
            sys.exit(f"{page} has no place for '{mark(name)}'")
        page.write_text(text)
        shutil.copy(folder / f"{name}.png", DOCS / f"{name}.png")


if __name__ == "__main__":
    PROGRAM = str(pathlib.Path(sys.argv.pop(1)).resolve())
    if "--write" in sys.argv:
        write(sys.argv[sys.argv.index("--write") + 1:])
    else:
        unittest.main()
