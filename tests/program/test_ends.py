#!/usr/bin/env python3
"""Where the program cannot write, has no memory, or is given what is hard to take: every command, every reader.

    tests/program/test_ends.py build/plimsoll
"""

import csv
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import program as runs
import readers
from turns import eleventh

PROGRAM = ""
SMALL = "--trace uniform:6 --platform ideal --engine event --strategy store_all"
NETWORK = f"--trace {readers.NETWORK} --platform validate/cpu_link.yaml"

# What each command prints, {made} being the folder of readers.prepare().
PRINTING = {
    "simulate": f"simulate --json {SMALL}", "plan": f"plan {SMALL}", "bounds": "bounds --trace uniform:6 --platform ideal",
    "explain": f"explain --without-better {SMALL}",
    "check": "check --trace uniform:4 --platform ideal --schedule {made}/plain.json", "list": "list traces", "verify": "verify tests/program/graph.order",
    "describe": "describe h200", "merge": "merge {made}/sweep -o {folder}/merged", "report": "report {made}/sweep -o {folder}/report",
    "replay": f"replay {NETWORK} --schedule {{made}}/network.json --backend cpu --pace memcpy --repetitions 1",
    "train": f"train {readers.NETWORK} --data {{made}}/rows.csv --strategy store_all --steps 1",
    "calibrate": "calibrate validate/cpu_link.yaml --backend cpu --repetitions 1 -o {folder}/mine.yaml",
    "compare": "compare {made}/timeline.json {made}/timeline.json", "help": "help plan", "load": "load -t resnet18 -p h200 --vary batch --to 2 -s store_all --points 0",
    "fits": "fits tinyllama_1_1b -p h200",
    "import": "import checkmate-graph {made}/checkmate.json -o {folder}/t.json", "man": "man", "completion": "completion bash",
    "replay-log": "replay-log {made}/dtr.log", "splits": "splits {made}/splits.json",
    "export": "export pipeline-csv --trace gpt12_w768_t256_b4_cpu --platform h100_sxm_8 --strategy '1f1b(stages=2)'",
    "reproduce": "reproduce truth --runs {made}/runs.yaml", "stages": "stages {made}/layers.json --planner ideals --devices 2 --bandwidth 1GB/s",
}
PRINTING_NOTHING = {"sweep", "validate"}  # what validate prints comes after minutes of measuring, by the same stream

# Files that a command writes, {out}.
WRITING = [
    f"simulate {SMALL} --schedule-out {{out}}", f"simulate {SMALL} --timeline {{out}}", f"simulate {SMALL} --memory-profile {{out}}",
    f"plan {SMALL} -o {{out}}", f"plan {SMALL} -o {{made}}/written.json --addresses {{out}}", "import checkmate-graph {made}/checkmate.json -o {out}", "import dtr-log {made}/dtr.log -o {out}",
    "import pardnn-dag {made}/pardnn.dag -o {out}", "import dot {made}/net.dot -o {out}",
    "export pipeline-csv --trace gpt12_w768_t256_b4_cpu --platform h100_sxm_8 --strategy '1f1b(stages=2)' --micro-batches 200 -o {out}",
    f"export perfetto {SMALL} -o {{out}}", f"export csv {SMALL} -o {{out}}", f"export dot {SMALL} -o {{out}}", f"export trace {SMALL} -o {{out}}",
    "import pipedream {made}/profile.txt -o {out}", "import piper {made}/piper.json -o {out}", "import sapp {made}/sapp.json -o {out}",
    "import dnn-partitioning {made}/placement.json -o {out}",
    f"replay {NETWORK} --schedule {{made}}/network.json --backend cpu --pace memcpy --repetitions 1 --timeline {{out}}",
    f"replay {NETWORK} --schedule {{made}}/network.json --backend cpu --pace memcpy --repetitions 1 --memory-profile {{out}}",
    "calibrate validate/cpu_link.yaml --backend cpu --repetitions 1 -o {out}",
]
FOLDERS = ["sweep {made}/swept.yaml -o {out}", "report {made}/sweep -o {out}", "validate {made}/validation.yaml --backend cpu -o {out}"]

# Every reader that holds the whole file, which {file} is; compare reads as it goes.
READING = [
    "describe {file}", "bounds --trace {file} --platform ideal", "simulate --trace {file} --platform ideal --strategy store_all",
    "plan --trace {file} --platform ideal --strategy store_all", "bounds --trace uniform:3 --platform {file}",
    "check --schedule {file} --trace uniform:4 --platform ideal", "explain {file} --trace uniform:4 --platform ideal", "verify {file} --trace uniform:4 --platform ideal", f"replay {NETWORK} --schedule {{file}} --backend cpu",
    "import checkmate-graph {file} -o {folder}/t.json",
    "import pardnn-dag {file} -o {folder}/t.json", "import dot {file} -o {folder}/t.json", "import fx {file} -o {folder}/t.json", "import onnx {file} -o {folder}/t.json",
    "import dtr-log {file} -o {folder}/t.json", "replay-log {file}", "splits {file}", "import pipedream {file} -o {folder}/t.json",
    "import piper {file} -o {folder}/t.json", "import sapp {file} -o {folder}/t.json", "import dnn-partitioning {file} -o {folder}/t.json",
    "stages {file} --planner piper --devices 2 --bandwidth 1GB/s", "sweep {file} -o {folder}/out", "validate {file} --backend cpu -o {folder}/out",
    "calibrate {file} --backend cpu -o {folder}/mine.yaml", "reproduce truth --runs {file}", f"train {readers.NETWORK} --data {{file}} --strategy store_all --steps 1",
]


class Program(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.made_folder = tempfile.TemporaryDirectory(prefix="plimsoll_made_")
        cls.made = cls.made_folder.name
        readers.prepare(PROGRAM, cls.made)

    @classmethod
    def tearDownClass(cls):
        cls.made_folder.cleanup()

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="plimsoll_ends_")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, text):
        data = text if isinstance(text, bytes) else text.encode()
        with open(os.path.join(os.fsencode(self.folder), os.fsencode(name)), "wb") as file:
            file.write(data)
        return self.path(name)

    def end(self, command, limits="", into="/dev/null", **places):
        """Exit code and standard error of a command, under `limits` of a shell."""
        places = {"made": self.made, "folder": self.folder, **places}
        words = [word.format(**places) for word in shlex.split(command)]
        with open(into, "wb") as out:
            run = subprocess.run(["/bin/sh", "-c", f'{limits or ":"}; exec "$@"', "sh", PROGRAM, *words], stdout=out,
                                 stderr=subprocess.PIPE, timeout=300)
        return run.returncode, run.stderr.decode()

    def expect(self, code, message, command, **how):
        with self.subTest(command=command, **how):
            found, said = self.end(command, **how)
            self.assertEqual(found, code, said)
            if message:
                self.assertRegex(said, message)


class NoRoom(Program):
    def test_each_command_has_a_line(self):
        """Every turn: a new command is missed at once."""
        named = re.findall(r"^  ([a-z]\S*)   ", subprocess.run([PROGRAM, "--help"], capture_output=True, text=True).stdout, re.MULTILINE)
        self.assertEqual(set(named), set(PRINTING) | PRINTING_NOTHING, "each command has a line above")

    @eleventh(5)
    def test_standard_output(self):
        for command in PRINTING.values():
            self.expect(4, "cannot write to the standard output", command, into="/dev/full")

    @eleventh(9)
    def test_files(self):
        for command in WRITING:
            self.expect(4, "^(.*\n)*/dev/full: cannot write: No space left on device\n$", command, out="/dev/full")
            self.expect(4, "cannot write: Is a directory\n$", command, out=self.folder)
            self.expect(4, "cannot write: No such file or directory\n$", command, out=self.path("nowhere/x"))

    def test_folders(self):
        self.write("file", "")
        for command in FOLDERS:
            self.expect(4, "(cannot make the folder|Not a directory)", command, out=self.path("file/x"))

    def test_what_was_there_stays(self):
        """A file that may have 512 bytes only: a full disk."""
        for command in WRITING:
            out = self.write("out", "as it was")
            self.expect(4, "cannot write: File too large\n$", command, limits="ulimit -f 1", out=out)
            with open(out, encoding="utf-8") as file:
                self.assertEqual(file.read(), "as it was")
            self.assertEqual([name for name in os.listdir(self.folder) if "unfinished" in name], [])

    def test_figures(self):
        """A folder stands where a figure would go."""
        os.makedirs(self.path("report/uniform_3-ideal.svg"))
        self.expect(4, "Is a directory.*\nfigures: cannot be written, see above\n$", "report {made}/sweep -o {folder}/report")
        written = os.listdir(self.path("report"))
        self.assertIn("report.html", written)
        self.assertEqual([name for name in written if "unfinished" in name], [])

    def test_sweep(self):
        self.expect(4, "cannot write: File too large\n", "sweep {made}/swept.yaml -o {folder}/out", limits="ulimit -f 1")

    def test_memory(self):
        """Every reader, and a planner that needs much."""
        large = self.write("large", " " * 60_000_000)
        for command in READING:
            self.expect(4, "^plimsoll: not enough memory\n$", command, limits="ulimit -d 40000", file=large)
        with open(os.path.join(self.made, "sweep", "manifest.json"), "rb") as file:
            manifest = file.read()
        os.mkdir(self.path("sweep"))
        self.write("sweep/manifest.json", manifest)
        self.write("sweep/results.jsonl", " " * 60_000_000)
        self.expect(4, "^plimsoll: not enough memory\n$", "report {folder}/sweep", limits="ulimit -d 40000")
        self.expect(4, "^plimsoll: not enough memory\n$", "sweep {made}/swept.yaml -o {folder}/sweep --resume", limits="ulimit -d 40000")
        many = "simulate --trace random:stages=1000,seed=1 --platform ideal --strategy 'rotor(slots=500)' --memory 300MB"
        for engine in ("event", "simgrid"):
            self.expect(4, "^plimsoll: not enough memory\n$", f"{many} --engine {engine}", limits="ulimit -d 40000")

    def test_help_and_version(self):
        for command in ("--version", "--help", "plan --help", "help"):
            self.expect(4, "cannot write to the standard output", command, into="/dev/full")

    def test_closed_streams(self):
        """Files and pipes that are opened later must not take their numbers."""
        chimera = "simulate --trace transformer:layers=4,vocabulary=1000 --platform h100_sxm_8 --strategy chimera --micro-batches 8 --json"
        for engine in ("event", "simgrid"):
            for closed in ("0<&-", "1>&-", "0<&- 1>&-", "0<&- 1>&- 2>&-"):
                with self.subTest(engine=engine, closed=closed):
                    words = shlex.split(f"{chimera} --engine {engine}")
                    run = subprocess.run(["/bin/sh", "-c", f'exec "$@" {closed}', "sh", PROGRAM, *words], stdout=subprocess.DEVNULL,
                                         stderr=subprocess.PIPE, timeout=100)
                    self.assertEqual(run.returncode, 4 if "1" in closed else 0, run.stderr)

    @eleventh(2)
    def test_what_was_killed_left_nothing(self):
        """Leftovers go with the next run; those of a process that lives stay."""
        ended = subprocess.Popen(["true"])
        ended.wait()
        names = ("results.csv", "report.html", "uniform_3-ideal.svg", "uniform_3-ideal.png")
        os.mkdir(self.path("report"))
        for name in names:
            self.write(f"report/{name}.unfinished-{ended.pid}", "half")
        self.write(f"report/report.html.unfinished-{os.getpid()}", "half")
        self.expect(0, "", "report {made}/sweep -o {folder}/report")
        self.assertEqual([name for name in os.listdir(self.path("report")) if "unfinished" in name],
                         [f"report.html.unfinished-{os.getpid()}"])

    def test_figures_that_were_killed(self):
        os.makedirs(self.path("data/experiments"))
        shutil.copytree("experiments/report_page", self.path("data/experiments/report_page"))
        self.write("data/experiments/plot.py", "import os\nos.kill(os.getpid(), 9)\n")
        with mock.patch.dict(os.environ, PLIMSOLL_DATA=self.path("data")):
            self.expect(4, "^figures: .*plot.py was ended by signal 9 [(]Killed[)]\n$", "report {made}/sweep -o {folder}/report")

    def test_no_thread(self):
        """Memory for the program, none for a thread's stack."""
        self.expect(4, "^plimsoll: ", PRINTING["replay"], limits="ulimit -s 1000000; ulimit -d 100000")

    def test_a_sweep_within_less_than_it_may_have(self):
        experiment = self.write("e.yaml", readers.SWEPT + "memory_limit: 8 GB\n")
        self.expect(0, "complete, 4 of 4 points", "sweep {file} -o {folder}/out", limits="ulimit -d 500000", file=experiment)


class Inputs(Program):
    def test_an_input_twice_and_tied_parameters_are_ordinary(self):
        for strategy in ("store_all", "dtr", "checkmate"):
            self.expect(0, "", f"simulate --trace tests/program/graph.json --platform ideal --strategy {strategy} --optimizer adam")

    def test_times_that_no_device_takes(self):
        self.expect(2, "rate", "simulate --trace 'transformer:rate=1e-300 FLOPS' --platform ideal --strategy store_all")
        self.expect(2, "rate", "describe 'mlp:rate=1e-300 FLOPS'")

    def test_results_with_a_wrong_type(self):
        with open(os.path.join(self.made, "sweep", "results.jsonl"), encoding="utf-8") as file:
            records = [json.loads(line) for line in file]
        with open(os.path.join(self.made, "sweep", "manifest.json"), "rb") as file:
            manifest = file.read()
        keys = ["trace", "platform", "strategy", "optimizer", "micro_batches", "times_rescaled", "feasible", "memory_budget_bytes",
                "makespan_s", "peak_bytes", "lower_bound_s", "lower_bound_bytes", "recompute_s", "bytes_moved", "gap", "case",
                "timeline"]
        for n, key in enumerate(keys):
            folder = f"s{n}"
            os.mkdir(self.path(folder))
            self.write(f"{folder}/manifest.json", manifest)
            changed = {**records[0], key: [1]}
            self.write(f"{folder}/results.jsonl", "".join(json.dumps(record) + "\n" for record in [changed, *records[1:]]))
            for command in ("report {folder}/%s -o {folder}/report", "sweep {made}/swept.yaml -o {folder}/%s --resume"):
                self.expect(2, f"results.jsonl:1:1: {key}: expected ", command % folder)

    def test_manifests_without_a_key(self):
        """At the place of what should have it."""
        with open(os.path.join(self.made, "sweep", "manifest.json"), encoding="utf-8") as file:
            manifest = json.load(file)
        with open(os.path.join(self.made, "sweep", "results.jsonl"), "rb") as file:
            results = file.read()
        missing = [(("cases",), "1:1: missing key 'cases'"), (("identity",), "1:1: missing key 'identity'"),
                   (("identity", "version"), "[0-9]+:[0-9]+: identity: missing key 'version'"),
                   (("identity", "experiment"), "[0-9]+:[0-9]+: identity: missing key 'experiment'"),
                   (("identity", "experiment", "strategies"), "[0-9]+:[0-9]+: identity.experiment: missing key 'strategies'")]
        missing += [(("cases", 0, key), f"[0-9]+:[0-9]+: cases.0.: missing key '{key}'") for key in manifest["cases"][0]]
        for n, (path, where) in enumerate(missing):
            changed = json.loads(json.dumps(manifest))
            within = changed
            for part in path[:-1]:
                within = within[part]
            del within[path[-1]]
            os.mkdir(self.path(f"m{n}"))
            self.write(f"m{n}/manifest.json", json.dumps(changed, indent=2))
            self.write(f"m{n}/results.jsonl", results)
            for command in ("report {folder}/m%d -o {folder}/report", "sweep {made}/swept.yaml -o {folder}/m%d --resume"):
                self.expect(2, f"manifest.json:{where}\n", command % n)
        manifest["cases"][0]["micro_batches"] = -1
        os.mkdir(self.path("typed"))
        self.write("typed/manifest.json", json.dumps(manifest, indent=2))
        self.expect(2, "manifest.json:[0-9]+:[0-9]+: cases.0..micro_batches: expected a whole number", "report {folder}/typed")

    def test_results_nested_deep(self):
        with open(os.path.join(self.made, "sweep", "manifest.json"), "rb") as file:
            manifest = file.read()
        os.mkdir(self.path("deep"))
        self.write("deep/manifest.json", manifest)
        self.write("deep/results.jsonl", '{"point": 0, "x": ' + "[" * 100_000 + "]" * 100_000 + "}\n")
        for command in ("report {folder}/deep -o {folder}/report", "sweep {made}/swept.yaml -o {folder}/deep --resume"):
            self.expect(2, "results.jsonl:1:1: is not a record of a sweep", command)
        self.write("deep/results.jsonl", "")
        self.write("deep/manifest.json", '{"format": "plimsoll.sweep.v1", "cases": ' + "[" * 100_000 + "]" * 100_000 + "}")
        self.expect(2, "manifest.json: is not the manifest of a sweep", "report {folder}/deep")

    def test_inputs_without_an_end(self):
        for command in ("describe {file}", "bounds --trace uniform:3 --platform {file}", "replay-log {file}"):
            self.expect(2, "^/dev/zero: cannot read: it has no size, and does not end within", command, file="/dev/zero")

    def test_links_that_lead_to_themselves(self):
        os.symlink(self.path("loop"), self.path("loop"))
        for command in READING:
            if "{file}" in command:
                self.expect(2, "/loop: cannot read: Too many levels of symbolic links\n", command, file=self.path("loop"))
        for command in WRITING:
            self.expect(4, "cannot write: ", command, out=self.path("loop/x"))
        self.write("v.yaml", "format: plimsoll.validation.v1\nname: n\nplatform: loop\nnetworks: ['mlp:layers=1']\nchain_strategies: [chen_sqrt]\n"
                             "graph_strategies: []\n")
        self.expect(2, "loop", "validate {folder}/v.yaml --backend cpu -o {folder}/out")

    def test_numbers_beyond_the_counters(self):
        """Schedules, platforms, logs and graphs: 2^63 and more, and durations below 0."""
        with open(os.path.join(self.made, "plain.json"), encoding="utf-8") as file:
            schedule = file.read()
        for number in ("9223372036854775808", "18446744073709551616", "1e400", "-1"):
            for key in ("bytes", "micro_batches", "work_s", "micro_batch", "op", "workspace_bytes"):
                text, count = re.subn(f'"{key}": *[0-9.e-]+', f'"{key}": {number}', schedule, count=1)
                if count == 0 or (number[0] != "-" and number != "1e400" and key == "work_s"):
                    continue
                file = self.write("s.json", text)
                self.expect(2, f"s.json:[0-9]+:[0-9]+: .*{key}", "check --schedule {file} --trace uniform:4 --platform ideal", file=file)
            for what, text, old in (("import dtr-log", readers.DTR_LOG, '"TIME":"1000"'), ("import dtr-log", readers.DTR_LOG, '"MEMORY":"100"'),
                                    ("import checkmate-graph", readers.CHECKMATE, '"bytes": 40'),
                                    ("import checkmate-graph", readers.CHECKMATE, '"cost": 2')):
                key, value = old.rsplit(":", 1)
                new = key + (f':"{number}"' if value[0] == '"' else f": {number}")
                file = self.write("f", text.replace(old, new, 1))
                self.expect(2, "f:[0-9]+:[0-9]+: ", what + " {file} -o {folder}/t.json", file=file)
            for key, unit in (("memory", "B"), ("bandwidth", "B/s"), ("latency", "s"), ("launch_overhead", "s"), ("size", "B")):
                with open("platforms/ideal.yaml", encoding="utf-8") as file:
                    text = re.sub(f"{key}: (unlimited|0 s)", f"{key}: {number} {unit}", file.read(), count=1)
                file = self.write("p.yaml", text)
                found, said = self.end("describe {file}", file=file)
                self.assertEqual(found, 2, f"{key}: {number}: {said}")
                self.assertRegex(said, f"p.yaml:[0-9]+:[0-9]+: .*{key}")

    def test_files_of_any_name(self):
        """Paths are bytes, and messages about them are UTF-8."""
        for what, source, command in (
                ("trace", "tests/fuzz/corpus/trace/graph.json", "describe {file}"), ("platform", "platforms/h200.yaml", "describe {file}"),
                ("schedule", f"{self.made}/plain.json", "check --schedule {file} --trace uniform:4 --platform ideal"),
                ("experiment", f"{self.made}/swept.yaml", "sweep {file} -o {folder}/out"),
                ("timeline", f"{self.made}/timeline.json", "compare {file} {file}"),
                ("log", f"{self.made}/dtr.log", "import dtr-log {file} -o {file}.json"),
                ("graph", f"{self.made}/checkmate.json", "import checkmate-graph {file} -o {file}.json")):
            with open(source, "rb") as file:
                data = file.read()
            suffix = os.path.splitext(source)[1]
            path = self.write(os.fsdecode(b"caf\xe9 \x1b[2J" + what.encode() + suffix.encode()), data)
            self.expect(0, "", command, file=path)
            code, said = self.end(command, file=path + ".missing.json" if what == "trace" else path + ".missing" + suffix)
            self.assertEqual(code, 2, said)
            self.assertIn("caf\\xE9", said)
            self.assertNotIn("\x1b", said)

    def test_comments_and_names_that_are_no_utf8(self):
        with open("platforms/h200.yaml", "rb") as file:
            platform = file.read()
        for what, data in (("comment", b"# caf\xe9\n" + platform), ("name", platform.replace(b"name: gpu", b"name: caf\xe9").replace(b"[gpu,", b"[caf\xe9,"))):
            path = self.write(what + ".yaml", data)
            code, said = self.end("describe {file}", file=path)
            self.assertIn(code, (0, 2), said)
        swept = self.write("e.yaml", b"# caf\xe9\n" + readers.SWEPT.replace("swept", "caf\u00e9").encode("latin-1"))
        self.assertIn(self.end("sweep {file} -o {folder}/out", file=swept)[0], (0, 2))

    @eleventh(6)
    def test_spreadsheets_take_no_names_for_formulas(self):
        """Every CSV file, every column of text."""
        for name in ("=1+1", "+1", "-1", "@SUM(A1)"):
            path = self.write("t.json", json.dumps({"format": "plimsoll.trace.v1", "kind": "chain", "name": name, "input_bytes": 1, "stages": [
                {"name": name, "forward_s": 1, "backward_s": 1, "output_bytes": 0, "saved_bytes": 1}]}))
            with open("platforms/ideal.yaml", encoding="utf-8") as file:
                platform = self.write("p.yaml", file.read().replace("name: gpu", f"name: '{name}'").replace("[gpu,", f"['{name}',"))
            self.expect(0, "", "simulate --trace {trace} --platform {platform} --strategy store_all --memory-profile {folder}/m.csv",
                        trace=path, platform=platform)
            self.write("e.yaml", readers.SWEPT.replace("uniform:3", path).replace("ideal", platform).replace("chen_sqrt", "'chen_sqrt(segments=1)'"))
            self.expect(0, "", f"sweep {{folder}}/e.yaml -o {{folder}}/sweep{ord(name[0])}")
            self.expect(0, "", f"report {{folder}}/sweep{ord(name[0])}")
            for file in ("m.csv", f"sweep{ord(name[0])}/results.csv"):
                with open(self.path(file), encoding="utf-8", newline="") as lines:
                    rows = [row for row in csv.reader(lines) if not row[0].startswith("#")]
                self.assertGreater(len(rows), 2)
                for row in rows:
                    for cell in row:
                        self.assertFalse(cell[:1] in "=+-@" and cell[:1] and not re.fullmatch(r"-?[0-9.e+-]+", cell), (file, cell))

    @eleventh(10)
    def test_control_characters(self):
        """Names from every reader that reach a terminal."""
        bad = "a\x1b[2J\x07\u202eb"
        graph = self.write("c.json", readers.CHECKMATE.replace('"a"', json.dumps(bad)))
        self.expect(0, "", "import checkmate-graph {file} -o {folder}/t.json", file=graph)
        log = self.write("d.log", readers.DTR_LOG.replace('"f"', f'"{bad}"'))
        self.expect(0, "", "import dtr-log {file} -o {folder}/l.json", file=log)
        platform = self.write("p.yaml", readers.SWEPT.replace("swept", json.dumps(bad)))
        for command in ("describe {folder}/t.json", "describe {folder}/l.json", "sweep {folder}/p.yaml -o {folder}/out",
                        "report {folder}/out -o {folder}/out", "simulate --trace {folder}/t.json --platform ideal --strategy store_all",
                        "check --schedule {folder}/c.json --trace {folder}/t.json --platform ideal"):
            with self.subTest(command=command):
                run = runs.run(PROGRAM, [w.format(folder=self.folder, made=self.made) for w in shlex.split(command)], self.folder)
                self.assertEqual([w for w in runs.complaints(run) if "CPU" not in w], [], platform)


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    unittest.main()
