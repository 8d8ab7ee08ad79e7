#!/usr/bin/env python3
"""`import plimsoll` against the program: the same numbers to the digit, read a second time from the program's own files; errors;
Ctrl-C; and the examples of docs/python.md.

    PYTHONPATH=build/python tests/program/test_python.py build/plimsoll
"""

import ast
import csv
import doctest
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import warnings

PROGRAM = os.path.abspath(sys.argv.pop(1))
ROOT = pathlib.Path(__file__).resolve().parents[2]
SKIPPED = 77
sys.dont_write_bytecode = True
TAKEN = {"solve_s", "simulate_s"}  # wall times
CASES = (
    (("resnet50_b8_cpu", "cpu_host", "rotor"), {"memory": 600_000_000}, ["-m", "600 MB"]),
    (("transformer:layers=2,width=256,heads=4,view=graph", "h200", "snapshot"), {"memory": "95 %", "optimizer": "adam", "ema": True,
                                                                          "parameter_groups": {"*": "sgd"}, "engine": "event"},
     ["-m", "95 %", "--optimizer", "adam", "--ema", "--parameter-group", "*=sgd", "--engine", "event"]),
    (("transformer:layers=8,width=256,heads=4", "a100_sxm_8", "1f1b|rotor"), {"micro_batches": 8, "allocator": "cuda"}, ["--micro-batches", "8", "--allocator", "cuda"]),
)
LONG = ("resnet18_ops_b8_cpu", "cpu_host", "checkmate")  # seconds, and what is asked takes far longer


def built():
    try:
        import plimsoll.answers  # noqa: F401
    except ImportError as missing:
        return str(missing)
    return None


def program(*words, code=0):
    run = subprocess.run([PROGRAM, *words], capture_output=True, text=True)
    assert run.returncode == code, (words, run.stderr)
    return run


def without(fields, left_out=TAKEN):
    return {name: value for name, value in fields.items() if name not in left_out}


def without_maker(text):
    return re.sub(r'"made_by": *"[^"]*"', "", text)


class SameAsTheProgram(unittest.TestCase):
    def setUp(self):
        warnings.simplefilter("ignore", plimsoll.Note)

    def test_simulate_its_steps_and_its_memories(self):
        for question, options, words in CASES:
            with self.subTest(question), tempfile.TemporaryDirectory() as folder:
                profile, schedule = os.path.join(folder, "memory.csv"), os.path.join(folder, "schedule.json")
                asked = [word for pair in zip(("-t", "-p", "-s"), question) for word in pair]
                said = json.loads(program("simulate", *asked, *words, "--json", "--memory-profile", profile, "--schedule-out", schedule).stdout)
                run = plimsoll.simulate(*question, **options)
                self.assertEqual(list(run), list(said))
                self.assertEqual(without(run), without(said))
                with open(profile, encoding="utf-8") as file:
                    rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
                for name, memory in run.memory.items():
                    self.assertEqual(memory["date_s"].tolist(), [float(row["date_s"]) for row in rows if row["memory"] == name])
                    self.assertEqual(memory["live_bytes"].tolist(), [int(row["live_bytes"]) for row in rows if row["memory"] == name])
                self.assertEqual(set(run.memory), {row["memory"] for row in rows})
                self.assertEqual(max(memory["live_bytes"].max() for memory in run.memory.values()), max(run["peak_bytes"], run["host_peak_bytes"]))
                self.assertEqual(run.steps["finish_s"].max(), run["makespan_s"])
                with open(schedule, encoding="utf-8") as file:
                    self.assertEqual(len(run.steps["kind"]), len(json.load(file)["steps"]))

    def test_steps_are_those_of_the_exported_table(self):
        question, options, words = CASES[0]
        with tempfile.TemporaryDirectory() as folder:
            schedule, table = os.path.join(folder, "schedule.json"), os.path.join(folder, "steps.csv")
            plimsoll.plan(*question, **options).save(schedule)
            program("export", "csv", "--schedule", schedule, "-o", table)
            with open(table, encoding="utf-8") as file:
                rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
        steps = plimsoll.simulate(*question, **options).steps
        for name in ("device", "lane", "kind", "name"):
            self.assertEqual(steps[name].tolist(), [row[name] for row in rows], name)
        for name in ("start_s", "finish_s", "moved_bytes", "workspace_bytes", "micro_batch"):
            self.assertEqual(steps[name].tolist(), [float(row[name]) for row in rows], name)
        self.assertEqual(steps["op"].tolist(), [int(row["op"] or -1) for row in rows])

    def test_plans_are_the_files_that_the_program_writes(self):
        question, options, words = CASES[0]
        asked = [word for pair in zip(("-t", "-p", "-s"), question) for word in pair]
        for made_for in (None, "pytorch"):
            written = program("plan", *asked, *words, *(["--for", made_for] if made_for else [])).stdout
            plan = plimsoll.plan(*question, **options, made_for=made_for)
            self.assertEqual(without_maker(plan.text), without_maker(written))
        plan = plimsoll.plan(*question, **options)
        again = plimsoll.simulate(schedule=plan)
        self.assertEqual((again["makespan_s"], again["peak_bytes"]), (plan["makespan_s"], plan["peak_bytes"]))

    def test_explain_and_fits(self):
        question, options, words = CASES[0]
        asked = [word for pair in zip(("-t", "-p", "-s"), question) for word in pair]
        said = json.loads(program("explain", *asked, *words, "--without-better", "--json").stdout)
        self.assertEqual(plimsoll.explain(*question, **options, better=False), said)
        said = program("fits", "gpt2", "-p", "rtx_4090_pcie4", "--batch", "1", "--memory", "2000000000 B", "--no-changes", "--json", code=1).stdout
        made = plimsoll.fits("gpt2", "rtx_4090_pcie4", batch=1, memory=2_000_000_000, changes=False)
        self.assertEqual(without(made, {"made_by"}), without(json.loads(said), {"made_by"}))

    def test_sweeps_are_tables(self):
        experiment = {"traces": ["uniform:8"], "platforms": ["ideal"], "strategies": ["rotor", "chen_sqrt", "store_all"],
                      "memory": ["30 %", "60 %", "100 %"], "engine": "event"}
        table = plimsoll.sweep(experiment, jobs=2)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "experiment.yaml")
            with open(path, "w", encoding="utf-8") as file:
                json.dump({"format": "plimsoll.experiment.v1", "name": "python", **experiment}, file)
            program("sweep", path, "-q", "-o", os.path.join(folder, "out"))
            with open(os.path.join(folder, "out/results.jsonl"), encoding="utf-8") as file:
                rows = [json.loads(line) for line in file]
            self.assertEqual(plimsoll.sweep(path, settings={"memory": ["30 %"]}, output=os.path.join(folder, "some"))["point"].tolist(), [0, 1, 2])
        self.assertEqual(len(rows), 9)
        self.assertIn(False, table["feasible"])
        self.assertEqual(table["makespan_s"].dtype, float)
        for name, column in table.items():
            if name in TAKEN:
                continue
            self.assertEqual([None if value != value else value for value in column], [row[name] for row in rows], name)


class WhatGoesWrong(unittest.TestCase):
    def wrong(self, *question, kind=None, **options):
        with self.assertRaises(kind or plimsoll.InputError) as raised:
            plimsoll.simulate(*question, **options)
        return raised.exception

    def test_wrong_input_is_located(self):
        question = CASES[0][0]
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "mine.yaml")
            text = (ROOT / "platforms/rtx_4090_pcie4.yaml").read_text(encoding="utf-8").replace("1008 GBps", "1008")
            pathlib.Path(path).write_text(text, encoding="utf-8")
            wrong = self.wrong(question[0], path, "rotor")
            line = 1 + text[:text.index("1008")].count("\n")
            self.assertEqual((wrong.file, wrong.line, wrong.column), (path, line, text.splitlines()[line - 1].index("1008") + 1), wrong)
            self.assertEqual(wrong.key, re.search(r"([\w.]+): *1008", text)[1] if wrong.key.count(".") == 0 else wrong.key)
            said = program("simulate", "-t", question[0], "-p", path, "-s", "rotor", code=2).stderr
            self.assertTrue(said.startswith(str(wrong).splitlines()[0]))
        for options, key in (({"memory": "7 GX"}, "memory"), ({"micro_batches": 0}, "micro_batches"), ({"optimizer": "adm"}, "optimizer"),
                             ({"timeout": 3}, "timeout"), ({"colour": "red"}, "colour")):
            self.assertEqual(self.wrong(*question, **options).key, key)
        wrong = self.wrong(*question[:2], "rotor|offload(x=1)")
        self.assertEqual((wrong.file, wrong.line, wrong.column, wrong.key), (None, 1, 7, "strategy"))
        self.assertIn("did you mean", str(self.wrong("resnet50_b8_cp", *question[1:])))
        with self.assertRaises(TypeError):
            plimsoll.simulate(question[0], question[1])
        with self.assertRaises(plimsoll.InputError):
            plimsoll.sweep({"traces": ["no such trace"], "platforms": ["ideal"], "strategies": ["rotor"], "memory": ["capacity"]})
        for ask, key in ((lambda: plimsoll.sweep("no such file", jobs=-1), "jobs"), (lambda: plimsoll.plan(*question, made_for="tf"), "made_for")):
            with self.assertRaises(plimsoll.InputError) as raised:
                ask()
            self.assertEqual(raised.exception.key, key)
        with self.assertRaises(plimsoll.InputError) as raised:
            plimsoll.fits("gpt2", "rtx_4090_pcie4", batch="many")
        self.assertEqual(raised.exception.key, "batch")
        with self.assertRaises(plimsoll.InputError):
            plimsoll.fits("gpt2", "rtx_4090_pcie4", colour="red")

    def test_the_least_budget_is_the_least(self):
        question = CASES[0][0]
        nothing = self.wrong(*question, memory=1_000_000, kind=plimsoll.Infeasible)
        self.assertTrue(nothing.least_is_proven)
        self.assertEqual(plimsoll.plan(*question, memory=nothing.least_bytes)["feasible"], True)
        with self.assertRaises(plimsoll.Infeasible) as raised:
            plimsoll.plan(*question, memory=nothing.least_bytes - 1)
        self.assertEqual(raised.exception.least_bytes, nothing.least_bytes)
        self.assertEqual(raised.exception.result["outcome"], "infeasible")

    def test_a_schedule_that_breaks_rules(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "broken.json")
            plan = json.loads(plimsoll.plan(*CASES[0][0]).text)
            plan["steps"][0]["work_s"] += 1
            pathlib.Path(path).write_text(json.dumps(plan), encoding="utf-8")
            self.assertIn(path, str(self.wrong(schedule=path, kind=plimsoll.Illegal)))

    def test_notes_are_warnings(self):
        with self.assertWarnsRegex(plimsoll.Note, "re-scaled"):
            plimsoll.simulate("resnet50_b8_cpu", "h200", "store_all")

    def test_the_child_that_dies_is_told(self):
        def end_it():
            while not (children := children_of(os.getpid())):
                time.sleep(0.01)
            os.kill(children[0], signal.SIGKILL)
        killer = threading.Thread(target=end_it)
        killer.start()
        with self.assertRaisesRegex(RuntimeError, "signal 9"):
            plimsoll.simulate(*LONG, memory="50 %")
        killer.join()


def children_of(process):
    return [int(word) for task in os.listdir(f"/proc/{process}/task")
            for word in pathlib.Path(f"/proc/{process}/task/{task}/children").read_text().split()]


class Interrupted(unittest.TestCase):
    def test_control_c_ends_a_plan_while_others_run(self):
        script = f"""
import threading, time
import plimsoll
count = 0
def work():
    global count
    while True:
        count += 1
        time.sleep(0.001)
threading.Thread(target=work, daemon=True).start()
plimsoll.version()
print("begins", flush=True)
try:
    plimsoll.plan(*{LONG!r}, memory="50 %")
except KeyboardInterrupt:
    print("interrupted", count, flush=True)
"""
        with subprocess.Popen([sys.executable, "-B", "-c", script], stdout=subprocess.PIPE, text=True) as run:
            self.assertEqual(run.stdout.readline(), "begins\n")
            while not (children := children_of(run.pid)):
                time.sleep(0.01)
            time.sleep(0.2)
            run.send_signal(signal.SIGINT)
            asked = time.monotonic()
            word, count = run.stdout.readline().split()
            self.assertLess(time.monotonic() - asked, 1)
            self.assertEqual(word, "interrupted")
            self.assertGreater(int(count), 20)
        self.assertFalse(os.path.exists(f"/proc/{children[0]}"))

    def test_threads_ask_at_once(self):
        made = {}
        def ask(number):
            made[number] = plimsoll.simulate(*CASES[0][0], memory=600_000_000 + 50_000_000 * number)["peak_bytes"]
        threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(made, {number: plimsoll.simulate(*CASES[0][0], memory=600_000_000 + 50_000_000 * number)["peak_bytes"] for number in range(4)})


class ThePackage(unittest.TestCase):
    def test_it_loads_the_module_when_it_is_asked(self):
        script = ("import sys, plimsoll; assert not {'plimsoll._core', 'numpy'} & set(sys.modules); plimsoll.simulate; "
                  "assert 'plimsoll._core' in sys.modules and 'sweep' in dir(plimsoll)")
        subprocess.run([sys.executable, "-B", "-c", script], check=True)

    def test_without_the_module_it_says_so(self):
        script = ("import plimsoll, plimsoll.trace\n"
                  "try: plimsoll.simulate\n"
                  "except ImportError as missing: print(missing)\n"
                  "try: plimsoll.simulat\n"
                  "except AttributeError as missing: print(missing)")
        run = subprocess.run([sys.executable, "-B", "-c", script], check=True, env=os.environ | {"PYTHONPATH": str(ROOT / "traces/python")},
                             capture_output=True, text=True)
        self.assertRegex(run.stdout, "compiled part of plimsoll is not here.*docs/python.md.*\n.*no attribute 'simulat'")

    def test_its_stubs_are_the_modules(self):
        tree = ast.parse((ROOT / "traces/python/plimsoll/_core.pyi").read_text(encoding="utf-8"))
        stubs = {}
        for function in (node for node in tree.body if isinstance(node, ast.FunctionDef)):
            arguments = ", ".join(f"{each.arg}: {ast.unparse(each.annotation)}" for each in function.args.args)
            stubs[function.name] = f"{function.name}({arguments}) -> {ast.unparse(function.returns)}"
        core = plimsoll.answers._core
        functions = {name: getattr(core, name).__doc__.splitlines()[0] for name in dir(core) if not name.startswith("_")}
        for old, new in {"List[": "list[", "Tuple[": "tuple["}.items():  # of pybind11 before 2.12
            functions = {name: line.replace(old, new) for name, line in functions.items()}
        self.assertEqual(stubs, functions)
        for name in ("simulate", "plan", "explain", "fits", "sweep"):
            self.assertRegex(getattr(plimsoll, name).__doc__, "(?s)seconds|bytes|as of `simulate`", name)

    def test_the_page_shows_what_it_prints(self):
        text = (ROOT / "docs/python.md").read_text(encoding="utf-8")
        code = "\n".join(re.findall(r"```python\n(.*?)```", text, re.S))
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            try:
                failed = doctest.DocTestRunner(verbose=False).run(doctest.DocTestParser().get_doctest(code, {}, "docs/python.md", None, 0))
            finally:
                os.chdir(ROOT)
        self.assertGreater(failed.attempted, 10)
        self.assertEqual(failed.failed, 0)


if __name__ == "__main__":
    if missing := built():
        print(f"skipped: {missing}")
        sys.exit(SKIPPED)
    import plimsoll

    unittest.main()
