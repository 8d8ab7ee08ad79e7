#!/usr/bin/env python3
"""Every command of the program, every strategy and every network once, on something small. What there is, the program
says itself: a new strategy or network is run without a change here, a new command is missed by name.

    tests/program/smoke.py build-sanitize/plimsoll
"""

import json
import os
import re
import shlex
import sys
import tempfile
import time

import program as runs
import readers
import turns

CHAIN, GRAPH, NETWORK = "tests/program/chain.json", "tests/program/graph.json", readers.NETWORK
MEASURED = """format: plimsoll.validation.v1
name: smoke
platform: validate/cpu_link.yaml
rounds: 1
networks: ['mlp:layers=2,width=8,batch=4']
chain_strategies: [chen_sqrt]
graph_strategies: []
"""


class Smoke:
    def __init__(self, program, folder):
        self.program, self.folder = program, folder
        self.failures, self.commands, self.count = [], set(), 0

    def run(self, command, codes=(0,)):
        """The run of a command, {} being the folder; what is wrong with it is kept."""
        words = shlex.split(command.replace("{}", self.folder))
        started = time.monotonic()
        run = runs.run(self.program, words, self.folder, cpu_s=60, wall_s=300)
        self.count += 1
        self.commands.add(words[0])
        wrong = runs.complaints(run, codes, cpu_s=60, resident_bytes=2 * 10**9)
        print(f"{time.monotonic() - started:6.1f} s  {shlex.join(words)}", flush=True)
        if wrong:
            self.failures.append(f"{self.program} {shlex.join(words)}\n  {'; '.join(wrong)}\n{run.err.decode(errors='replace')[:3000]}")
        return run

    def listed(self, what):
        answer = self.run(f"list {what} --json")
        return [entry["name"] for entry in json.loads(answer.out)[what]] if answer.code == 0 else []

    def answers(self):
        """Questions about a chain: every way to ask, and every file that can be written."""
        ask = f"--trace {CHAIN} --platform {{}}/machine.yaml --strategy 'rotor|offload_greedy' --optimizer adam"
        self.run(f"simulate {ask} --json --engine simgrid --allocator cuda --timeline {{}}/t.json --memory-profile {{}}/m.csv "
                 "--schedule-out {}/s.json")
        self.run(f"simulate {ask} --memory 150B --micro-batches 2 --gradients existing --engine event "
                 "--allocator cuda-expandable --memory-profile {}/m.json")
        self.run("simulate --trace gpt12_w768_t256_b4_cpu --platform h200 --strategy chen_sqrt --memory front --engine event")
        self.run(f"simulate {ask} --allocator cuda --within reserved")
        self.run(f"plan {ask} --guaranteed -o {{}}/s.json --addresses {{}}/addresses.json")
        self.run(f"check --schedule {{}}/s.json --trace {CHAIN} --platform {{}}/machine.yaml --addresses {{}}/addresses.json")
        self.run(f"explain {{}}/s.json --trace {CHAIN} --platform {{}}/machine.yaml --engine event --json")
        self.run(f"explain {ask}")
        for format in ("perfetto", "csv", "dot", "trace"):
            self.run(f"export {format} --schedule {{}}/s.json --trace {CHAIN} --platform {{}}/machine.yaml -o {{}}/exported.{format}")
        self.run(f"export chakra {ask} --engine event -o {{}}/chakra")
        self.run("import dot {}/exported.dot -o {}/imported.json")
        self.run("describe {}/exported.trace")
        self.run("verify tests/program/graph.order --library tests/program/library.json")
        self.run("bounds --trace gpt4_ops_w256_t128_b4_cpu --platform ib_2x8_h100")
        self.run("load --trace transformer:layers=1,width=64,heads=4,sequence=64,vocabulary=64 --platform h200 --vary batch "
                 "--strategy store_all --strategy rotor --to 4 --points 2 --json")
        self.run("fits qwen25_0_5b:layers=2 -p h200 --sequence 64 --json")
        self.run("fits qwen25_0_5b:layers=2 -p h200 --sequence 64 --memory 1GB --precision mixed", codes=(1,))
        self.run("compare {}/t.json {}/t.json")
        self.run("compare {}/t.json {}/kineto.json --within 1", codes=(1,))
        self.run("import checkmate-graph {}/checkmate.json -o {}/imported.json")
        self.run("import dtr-log {}/dtr.log -o {}/log.json")
        self.run("import pardnn-dag {}/pardnn.dag -o {}/imported.json")
        self.run("import dot {}/net.dot -o {}/imported.json")
        self.run("import fx tests/traces/foreign/mlp_aot_graphs.txt -o {}/imported.json")
        self.run("import onnx tests/traces/foreign/cnn.onnx --set batch=2 -o {}/imported.json")
        self.run("import pytorch-et tests/traces/foreign/execution_mlp_torch113.json.gz -o {}/imported.json")
        self.run("import chakra {}/chakra.0.et -o {}/imported.json")
        self.run("import kineto tests/traces/foreign/kineto_gpt2_h100.json.gz -o {}/imported.json")
        self.run("import fx tests/traces/foreign/two_layers.csv --set layers=3 -o {}/imported.json")
        self.run(f"export pipeline-csv --trace {CHAIN} --platform h100_sxm_8 --strategy '1f1b(stages=2)' --micro-batches 4 -o {{}}/order.csv")
        self.run("import pipeline-csv {}/order.csv -o {}/again.csv")
        self.run("describe {}/log.json")
        self.run("import pipedream {}/profile.txt --device 'some model' -o {}/imported.json")
        self.run("import dnn-partitioning {}/placement.json --device 'some model' -o {}/imported.json")
        self.run("import dnn-partitioning {}/placement.json --as layers -o {}/layers.json")
        self.run("stages {}/layers.json --planner ideals --json")
        self.run("import piper {}/piper.json -o {}/imported.json")
        self.run("import piper {}/piper.json --as layers -o {}/layers.json")
        for planner in ("ideals", "piper", "alpa"):
            self.run(f"stages {{}}/layers.json --planner {planner} --devices 2 --bandwidth 1GB/s")
        self.run("stages {}/layers.json --planner piper --json")
        self.run("import sapp {}/sapp.json -o {}/imported.json")
        self.run("import sapp {}/sapp.json --as layers -o {}/layers.json")
        self.run("stages {}/layers.json --planner sapp --devices 2 --memory 100MB --micro-batches 4")
        self.run("splits {}/splits.json --rounds 100")
        self.run("replay-log {}/dtr.log --json")
        self.run("reproduce truth --runs {}/runs.yaml --factors --json")
        self.run("reproduce truth --runs {}/runs.yaml --csv")
        self.run("completion bash")
        self.run("man")

    def strategies(self):
        """Each of this turn on a chain and on a graph, within half of the memory between the bound and the need of store_all; it must
        have an answer to one of the two, if need be with all memory, or on two devices."""
        budgets = {}
        for model in (CHAIN, GRAPH):
            on = f"--trace {model} --platform {{}}/machine.yaml --engine event"
            stored = self.run(f"simulate --json {on} --strategy store_all --optimizer adam")
            answer = json.loads(stored.out)
            budgets[model] = (answer["peak_bytes"] + answer["lower_bound_bytes"]) // 2
        names = turns.chosen(self.listed("strategies"))
        for name in names:
            answered = False
            for model, budget in budgets.items():
                on = f"--trace {model} --platform {{}}/machine.yaml --engine event --optimizer adam --strategy {name}"
                code = self.run(f"simulate {on} --memory '{budget} B'", codes=(0, 1, 2)).code
                if code == 1:
                    code = self.run(f"simulate {on}", codes=(0, 1)).code
                answered |= code == 0
            if not answered:
                options = "file={}/order.csv" if name == "order" else "stages=2"
                on = f"--trace {CHAIN} --platform h100_sxm_8 --engine event --micro-batches 4 --strategy '{name}({options})'"
                answered = self.run(f"simulate {on}", codes=(0, 1, 2)).code == 0
            for model in ("resnet18", "deit_ti"):  # what packs values, or states of matrices, needs shapes
                if not answered:
                    on = f"--trace {model}:batch=2 --platform h200 --engine event --optimizer adam --strategy {name}"
                    answered = self.run(f"simulate {on}", codes=(0, 1, 2)).code == 0
            for operators in ("transformer:layers=1,width=64,heads=8,sequence=16,batch=8,vocabulary=64,view=graph",
                              "llama:layers=1,width=64,heads=8,kv_heads=8,inner=64,sequence=16,batch=8,vocabulary=64,experts=8"):
                if not answered:  # what cuts operators, of mixtures of experts too, or trains replicas of them
                    on = f"--trace {operators} --platform h100_sxm_8 --engine event --micro-batches 8 --optimizer adam"
                    answered = self.run(f"simulate {on} --strategy {name}", codes=(0, 1, 2)).code == 0
            if not answered:
                self.failures.append(f"{name}: no answer on a chain nor on a graph")
            self.run(f"describe {name}")
        return names

    def networks(self):
        """Each of this turn at a small size: planned, replayed with real kernels."""
        text = self.run("list traces").out.decode()
        lines = text.partition("networks that")[2].splitlines()[1:]
        lines = turns.chosen(lines)
        for line in lines:
            name, _, options = line.strip().partition(":")
            small = ",".join(re.sub(r"=(\d+)$", lambda n: f"={min(int(n[1]), 16)}", option) for option in options.split(",")
                             if re.search(r"=\d+$", option))
            for view, strategy in (("chain", "chen_sqrt"), ("graph", "ap_sqrt")):
                network = f"{name}:{small},view={view}"
                self.run(f"describe {network}")
                self.run(f"plan --trace {network} --platform validate/cpu_link.yaml --engine event --strategy {strategy} -o {{}}/n.json")
                self.run(f"replay --schedule {{}}/n.json --trace {network} --platform validate/cpu_link.yaml --backend cpu "
                         "--pace memcpy --repetitions 1 --timeline {}/replayed.json")
        return lines

    def sweeps(self):
        self.run("sweep {}/swept.yaml -o {}/sweep -j 2")
        self.run("sweep {}/swept.yaml -o {}/sweep --resume")
        self.run("sweep {}/swept.yaml --dry-run --set \"micro_batches='{1..2}'\"")
        self.run("merge {}/sweep -o {}/merged")
        self.run("report {}/sweep -o {}/report")

    def measurements(self):
        self.run(f"calibrate validate/cpu_link.yaml --backend cpu --repetitions 1 -o {{}}/mine.yaml --trace {NETWORK} "
                 "--trace-out {}/mine.json --optimizer adam")
        self.run("calibrate recording tests/traces/foreign/kineto_gpt2_h100.json.gz --of h100_sxm_8 -o {}/recorded.yaml")
        self.run("simulate --trace gpt2:layers=1,batch=1 --platform 'h100_sxm_8:efficiency={}/recorded.yaml' --strategy store_all")
        self.run("validate {}/measured.yaml --backend cpu -o {}/validation")
        self.run(f"train {NETWORK} --data {{}}/rows.csv --strategy 'rotor|quantize(bits=2,group=8)' --steps 3")

    def lists(self):
        """Every command that help names has been run by now."""
        self.run("help")
        names = re.findall(r"^  ([a-z]\S*)   ", self.run("--help").out.decode(), re.MULTILINE)
        if not names:
            self.failures.append("--help names no commands")
        for name in names:
            self.run(f"help {name}")
        for kind in ("platforms", "traces"):
            for name in self.listed(kind):
                self.run(f"describe {name}")
        for name in set(names) - self.commands:
            self.failures.append(f"no run of the command '{name}': add one to {__file__}")


def main():
    program = sys.argv[1]
    with tempfile.TemporaryDirectory(prefix="plimsoll_smoke_") as folder:
        for name, text in (("machine.yaml", readers.MACHINE), ("measured.yaml", MEASURED), ("swept.yaml", readers.SWEPT),
                           ("checkmate.json", readers.CHECKMATE), ("dtr.log", readers.DTR_LOG), ("profile.txt", readers.PROFILE),
                           ("pardnn.dag", readers.PARDNN_DAG), ("net.dot", readers.DOT),
                           ("placement.json", readers.PLACEMENT), ("piper.json", readers.PIPER), ("sapp.json", readers.SAPP),
                           ("splits.json", readers.SPLITS), ("runs.yaml", readers.MEASURED_RUNS), ("kineto.json", readers.KINETO), ("rows.csv", readers.ROWS)):
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                file.write(text)
        smoke = Smoke(program, folder)
        smoke.answers()
        strategies = smoke.strategies()
        networks = smoke.networks()
        smoke.sweeps()
        smoke.measurements()
        smoke.lists()
        if not strategies or not networks:
            smoke.failures.append("no strategies or no networks listed")
    print(f"{smoke.count} runs, {len(strategies)} strategies, {len(networks)} networks, {len(smoke.commands)} commands: "
          f"{len(smoke.failures)} failed")
    print("\n".join(smoke.failures))
    return 1 if smoke.failures else 0


if __name__ == "__main__":
    sys.exit(main())
