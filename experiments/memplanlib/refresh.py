#!/usr/bin/env python3
"""Asks the project's strategies for plans of the library's instances, and keeps in index.json what is better than what is there.

    experiments/memplanlib/refresh.py build/plimsoll                            # all instances, all strategies of their class
    experiments/memplanlib/refresh.py build/plimsoll --instances vgg16 --strategies 'snapshot' 'rotor|offload_greedy'
    experiments/memplanlib/refresh.py build/plimsoll --plan my.order            # a plan of anybody's, if it is a new best

A plan counts as `plimsoll verify` counts it. A bound is that of `plimsoll bounds`, that of `plimsoll verify` for the best
plan, or what `exact` proves. Equal plans and bounds change nothing. `--by` says who found a plan of a file. table.py then
writes the table of README.md.
"""
import argparse
import datetime
import gzip
import json
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
LARGEST_PLAN = 40_000  # bytes of a plan's file, packed; a larger one is planned again by its strategy
CLOSER = 1e-9  # relative: what is better by less is equal
RECOMPUTING = ["store_all", "snapshot", "rockmate", "greedy_recompute", "dtr", "min_cut", "knapsack", "exact(states=200000,time_limit=1000)"]
CHAINS = ["rotor", "rotor_floating", "revolve_hetero", "chen_sqrt"]
OFFLOADING = ["snapshot", "offload_greedy", "capuchin", "snapshot(offload=no)|offload_greedy", "portfolio"]
CHAINS_OFFLOADING = ["pofo", "rotor|offload_greedy", "offload_dp"]


def run(program, *words, timeout=None):
    """The JSON that a command prints, and its exit code; null where it prints none or runs longer."""
    try:
        done = subprocess.run([program, *map(str, words)], cwd=ROOT, capture_output=True, text=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        return None, 1
    if done.returncode > 2:
        raise SystemExit(f"plimsoll {' '.join(map(str, words))}: {done.stderr}")
    return (json.loads(done.stdout) if done.stdout.startswith("{") else None), done.returncode


def read_index(file):
    return json.loads(file.read_text())


def write_index(file, index):
    """A line a budget's plan and bound, so that changes are seen line by line."""
    def flat(value):
        return json.dumps(value, ensure_ascii=False)
    lines = ["{", f'  "format": {flat(index["format"])},', '  "instances": [']
    for i, instance in enumerate(index["instances"]):
        lines.append("    {")
        lines += [f'      "{key}": {flat(value)},' for key, value in instance.items() if key != "budgets"]
        lines.append('      "budgets": [')
        for b, row in enumerate(instance["budgets"]):
            parts = [f'        {{"bytes": {row["bytes"]}'] + [f'         "{key}": {flat(row[key])}' for key in ("best", "bound") if key in row]
            lines.append(",\n".join(parts) + "}" + ("," if b + 1 < len(instance["budgets"]) else ""))
        lines += ["      ]", "    }" + ("," if i + 1 < len(index["instances"]) else "")]
    lines += ["  ]", "}"]
    file.write_text("\n".join(lines) + "\n")


def reference(name):
    """A trace of the index as the program takes it in ROOT."""
    return str((HERE / name).resolve().relative_to(ROOT)) if name.startswith(".") else name


def is_better(time, known, lower=True):
    if known is None:
        return True
    return time < known["time_s"] * (1 - CLOSER) if lower else time > known["time_s"] * (1 + CLOSER)


class Library:
    def __init__(self, program, file, date, timeout=None):
        self.program, self.file, self.date, self.timeout = program, file, date, timeout
        self.index = read_index(file)
        version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
        self.version = re.sub(r"^plimsoll |[()]|-dirty\S*", "", version).strip()

    def found(self, time, by):
        return {"time_s": time, "by": by, "version": self.version, "date": self.date}

    def offer_bound(self, row, time, by):
        if time is None or not is_better(time, row.get("bound"), lower=False):
            return
        if "best" in row:
            time = min(time, row["best"]["time_s"])
        row["bound"] = self.found(time, by)

    def offer_plan(self, instance, plan, by, strategy, budget=None):
        """A plan's file, at all budgets of the instance that it fits; whether it was a new best of one."""
        took = False
        for row in instance["budgets"]:
            if budget is not None and row["bytes"] != budget:
                continue
            verdict, code = run(self.program, "verify", plan, "-t", reference(instance["trace"]), "-p", instance["platform"],
                                "-m", f"{row['bytes']} B", "--json", "--library", self.file)
            if code == 2 or not verdict["legal"] or verdict["outside"] is not None:
                raise SystemExit(f"{instance['name']}: {by} has made a plan that the library cannot have: {verdict}")
            if not verdict["fits"] or (verdict["class"] == "offload" and instance["class"] == "recompute"):
                continue
            if not is_better(verdict["makespan_s"], row.get("best")):
                continue
            row["best"] = {"time_s": verdict["makespan_s"], "peak_bytes": verdict["peak_bytes"], "by": by, "version": self.version,
                           "date": self.date, **self.keep(instance, row, plan, strategy)}
            print(f"{instance['name']} {row['bytes']} B: {verdict['makespan_s']:.6g} s by {by}", flush=True)
            took = True
            self.offer_bound(row, verdict["cut_bound_s"], "verify")
        return took

    def keep(self, instance, row, plan, strategy):
        """The file of a best plan in the library; none if it is large and a strategy plans it again."""
        text = plan.read_bytes()
        if text.startswith(b"\x1f\x8b"):
            text = gzip.decompress(text)
        if strategy:  # the same bytes wherever it was planned
            made_by = json.dumps(f"plimsoll {self.version}: {strategy}").encode()
            text = re.sub(rb'"made_by": *"(?:[^"\\]|\\.)*"', lambda _: b'"made_by": ' + made_by, text, count=1)
        packed = gzip.compress(text, 9, mtime=0)
        ending = ".json.gz" if text.lstrip().startswith(b"{") else ".order.gz"
        name = pathlib.Path("plans") / instance["name"] / f"{row['bytes']}{ending}"
        for old in (self.file.parent / name.parent).glob(f"{row['bytes']}.*"):
            old.unlink()
        if strategy and len(packed) > LARGEST_PLAN:
            return {}
        (self.file.parent / name).parent.mkdir(parents=True, exist_ok=True)
        (self.file.parent / name).write_bytes(packed)
        return {"plan": str(name)}

    def ask(self, instance, row, strategy):
        words = ["-t", reference(instance["trace"]), "-p", instance["platform"], "-m", f"{row['bytes']} B"]
        own = strategy if instance["class"] == "offload" or strategy.split("(")[0] != "snapshot" else "snapshot(offload=no)"
        folder = self.file.parent / "plans" / instance["name"]  # where the plan is kept: it names its trace from there
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as beside:
            plan = folder / f"{pathlib.Path(beside).name}.json"
            try:
                answer, _ = run(self.program, "simulate", *words, "-s", own, "--engine", "event", "--json", "--schedule-out", plan,
                                timeout=self.timeout)
                if answer is None or not answer["feasible"]:
                    return
                self.offer_plan(instance, plan, own, own, row["bytes"])
                if own.startswith("exact") and answer["gap"] is not None:  # of all plans that run ops again
                    self.offer_bound(row, answer["makespan_s"] / (1 + answer["gap"]), own)
            finally:
                plan.unlink(missing_ok=True)

    def refresh(self, instance, strategies):
        for row in instance["budgets"]:
            bounds, _ = run(self.program, "bounds", "-t", reference(instance["trace"]), "-p", instance["platform"],
                            "-m", f"{row['bytes']} B", "--json")
            kind = "recomputing" if instance["class"] == "recompute" else "offloading"
            if bounds is not None:
                self.offer_bound(row, bounds["within_budget"][kind]["lower_bound_s"], "bounds")
            for strategy in strategies:
                self.ask(instance, row, strategy)
            write_index(self.file, self.index)

    def strategies(self, instance):
        """Those of its class; of chains those of chains, too."""
        about = subprocess.run([self.program, "describe", reference(instance["trace"])], cwd=ROOT, capture_output=True, text=True, check=True)
        is_chain = " (chain, " in about.stdout.splitlines()[0]
        if instance["class"] == "recompute":
            return RECOMPUTING + (CHAINS if is_chain else [])
        return OFFLOADING + (CHAINS_OFFLOADING if is_chain else [])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--instances", nargs="+", help="names; all of the index if not given")
    parser.add_argument("--strategies", nargs="+", help="specs; those of the instance's class if not given")
    parser.add_argument("--plan", type=pathlib.Path, help="the file of a plan to take if it is a new best, in place of strategies")
    parser.add_argument("--by", default="", help="who found that plan")
    parser.add_argument("--index", type=pathlib.Path, default=HERE / "index.json")
    parser.add_argument("--date", default=datetime.date.today().isoformat())
    parser.add_argument("--timeout", type=float, help="seconds for a strategy at a budget; what takes longer is left out")
    words = parser.parse_args()
    library = Library(str(pathlib.Path(words.program).resolve()), words.index.resolve(), words.date, words.timeout)
    names = [instance["name"] for instance in library.index["instances"]]
    unknown = set(words.instances or []) - set(names)
    if unknown:
        sys.exit(f"refresh.py: no instance is called {sorted(unknown)[0]}; there are {', '.join(names)}")
    if words.plan:
        verdict, code = run(library.program, "verify", words.plan.resolve(), "--json", "--library", library.file)
        if code != 0 or verdict["instance"] is None or not words.by:
            sys.exit("refresh.py: --plan needs a legal plan of one of the instances, and --by")
        instance = next(i for i in library.index["instances"] if i["name"] == verdict["instance"])
        if not library.offer_plan(instance, words.plan.resolve(), words.by, None):
            print("no new best")
        write_index(library.file, library.index)
        return
    for instance in library.index["instances"]:
        if words.instances is None or instance["name"] in words.instances:
            library.refresh(instance, words.strategies or library.strategies(instance))
            write_index(library.file, library.index)


if __name__ == "__main__":
    main()
