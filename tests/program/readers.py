"""What the program reads: for each reader its files, how they are changed, and the commands that read them.

{file} in a command is the changed file, {folder} a new folder for what it writes, {made} the folder of what prepare() made.
"""

import os
import shlex
import subprocess

import mutations

# Takes every trace's times; has what a strategy may need: a host that updates, a disk behind it.
MACHINE = """format: plimsoll.platform.v1
name: machine
source: "made for a test"
devices:
  - {name: gpu, memory: unlimited, launch_overhead: 0 s, times: trace}
memories:
  - {name: host, size: 1 TB, bandwidth: 20 GBps, adam: 2 GBps}
  - {name: disk, size: 1 TB, bandwidth: 5 GBps}
links:
  - {name: copy, between: [gpu, host], bandwidth: 10 GBps, latency: 0 s}
  - {name: disk, between: [host, disk], bandwidth: 5 GBps, latency: 0 s}
"""
# Without memory_limit: AddressSanitizer reserves more addresses than any limit.
EXPERIMENT = """format: plimsoll.experiment.v1
name: small
traces: [uniform:3, "random:stages=4,seed=2"]
platforms: [ideal]
strategies: [store_all, 'chen_sqrt(segments=2)']
memory: {from: smallest, to: store_all, count: 2}
micro_batches: [1, 2]
optimizer: [none, adam]
states: by_dtype
gradients: new
engine: event
allocator: cuda
timelines: true
timeout: 5 s
"""

SWEPT = """format: plimsoll.experiment.v1
name: swept
traces: uniform:3
platforms: ideal
strategies: [store_all, chen_sqrt]
memory: [9 MB, capacity]
engine: event
timelines: true
"""

# A platform that is nowhere: the file is read to its end, and nothing is measured.
VALIDATION = """format: plimsoll.validation.v1
name: small
platform: nowhere.yaml
rounds: 1
between: 0.4
optimizer: adam
networks:
  - mlp:layers=2,width=8,batch=4
  - gpt:layers=1,width=8,heads=1,sequence=4,batch=2,vocabulary=8,view=graph,updates=adam
chain_strategies: [chen_sqrt, 'periodic(every=2)']
graph_strategies: [ap_sqrt]
"""

CHECKMATE = """{"name": "two layers", "nodes": [
  {"name": "a", "bytes": 40, "cost": 2, "backward": false},
  {"name": "b", "bytes": 20, "cost": 3, "backward": false},
  {"name": "b grad", "bytes": 20, "cost": 6, "backward": true},
  {"name": "a grad", "bytes": 40, "cost": 4.5, "backward": true}],
 "edges": [[0, 1], [1, 2], [0, 3], [2, 3]], "total_cost": 15.5, "largest_working_set_bytes": 100}
"""

DTR_LOG = """{"INSTRUCTION":"RELEASE","NAME":"of before"}
{"ANNOTATION":"START","INSTRUCTION":"ANNOTATE"}
{"INSTRUCTION":"CONSTANT","NAME":"w"}
{"INSTRUCTION":"MEMORY","MEMORY":"8","NAME":"w"}
{"DST":"w2","INSTRUCTION":"COPY","SRC":"w"}
{"ARGS":["w2"],"INSTRUCTION":"CALL","NAME":"f","RESULT":["x"],"TIME":"1000"}
{"INSTRUCTION":"MEMORY","MEMORY":"100","NAME":"x"}
{"ALIAS":"-1","INSTRUCTION":"ALIAS","NAME":"x"}
{"ARGS":["x"],"INSTRUCTION":"CALL","NAME":"view","RESULT":["v"],"TIME":"5"}
{"INSTRUCTION":"MEMORY","MEMORY":"100","NAME":"v"}
{"ALIAS":"0","INSTRUCTION":"ALIAS","NAME":"v"}
{"ARGS":["x"],"INSTRUCTION":"MUTATE","MUTATE":[0],"NAME":"relu_","TIME":"20"}
{"INSTRUCTION":"RELEASE","NAME":"v"}
{"ANNOTATION":"BACKWARD","INSTRUCTION":"ANNOTATE"}
{"ARGS":["x","w"],"INSTRUCTION":"CALL","NAME":"b","RESULT":["dw"],"TIME":"7000"}
{"INSTRUCTION":"MEMORY","MEMORY":"8","NAME":"dw"}
{"ALIAS":"-1","INSTRUCTION":"ALIAS","NAME":"dw"}
{"DST":"w2","INSTRUCTION":"COPY_FROM","SRC":"dw"}
{"INSTRUCTION":"RELEASE","NAME":"x"}
"""

PARDNN_DAG = """# dag1 4 4 kind=diamond profiled
0 F 2 0 40 7
1 F 3.5 100 20 -1
2 F 0 0 0 -1
3 B 6 0 8 7
0 1
0 2
1 3
2 3
"""

DOT = """digraph net {
  node [weight=5, shape=box];
  a [label="input", size="2 kB", phase=forward];
  b [time="3 ms", parameters=64, colocate=left];
  c [device=host, colocate=left, size=8];
  "d 1" [phase=backward];
  a -> b -> "d 1" [bytes=100];  // each
  a -> c -> "d 1";
}
"""

PROFILE = """node1 -- Input -- forward_compute_time=1.0, backward_compute_time=0.0, activation_size=50.0, parameter_size=0.0
node2 -- Conv2d(3, 4) -- forward_compute_time=1.5, backward_compute_time=2.0, activation_size=[80.0; 20.0], parameter_size=8.0
node3 -- ReLU -- forward_compute_time=2.0, backward_compute_time=4.0, activation_size=60.0, parameter_size=0.0
\tnode1 -- node2
\tnode2 -- node3
"""

PLACEMENT = """{"maxSizePerFPGA": 1000.0, "maxFPGAs": 2, "maxCPUs": 1, "nodes": [
  {"name": "a", "id": 7, "supportedOnFpga": 1, "cpuLatency": 20, "fpgaLatency": 2.5, "isBackwardNode": 0, "colorClass": 3, "size": 100.0},
  {"id": 8, "supportedOnFpga": true, "cpuLatency": 20, "fpgaLatency": 2, "isBackwardNode": false, "colorClass": null, "size": 1},
  {"id": 1, "supportedOnFpga": false, "cpuLatency": 1, "fpgaLatency": 0, "isBackwardNode": true, "colorClass": null, "size": 0}],
 "edges": [{"sourceId": 7, "destId": 8, "cost": 0.5, "size": 64}, {"sourceId": 8, "destId": 1, "cost": 0.25, "size": 64}]}
"""

SPLITS = """{"problem": {"name": "small", "usage_limit": 10, "nodes": {"intervals": [[0, 5], [3, 9], [9, 12]],
  "costs": [[1, 9], [2, 8], [0, 0]], "usages": [[7, 2], [6, 1], [4, 5]]},
  "edges": {"nodes": [[1, 0], [1, 2]], "costs": [[0, 1, 5, 0], [0, 3, 4, 1000000000000000000]]}}}
"""

PIPER = """{"maxDevices": 8, "maxMemoryPerDevice": 8e9, "bandwidth": 25e9, "mbsInBatch": 16, "nodes": [
  {"id": 5, "name": "a", "TMPCs": {
   "1": [{"id": "vanilla", "timePerSample": 0.5, "parameterSize": 10.0, "memoryUsageA": 20.4, "memoryUsageB": 30.0,
          "syncTimeFw": {}, "syncTimeBw": {"9": 0.0}}],
   "2": [{"id": "vanilla", "timePerSample": 0.3, "parameterSize": 5.0, "memoryUsageA": 10.0, "memoryUsageB": 15.0,
          "syncTimeFw": {}, "syncTimeBw": {"9": 7.0}}]}},
  {"id": 9, "name": "b", "TMPCs": {"1": [{"id": "vanilla", "timePerSample": 1, "parameterSize": 0, "memoryUsageA": 0,
   "memoryUsageB": 0, "syncTimeFw": {"5": 3.0}, "syncTimeBw": {}}]}}],
 "edges": [{"sourceId": 5, "destId": 9, "communicationCost": 64.0}]}
"""

SAPP = """{"name": "small", "pre_defined_layer": {"a": 0}, "auto_partition_layer": {"b": 6}, "layers_description": [
  {"name": "a", "model_name": "m", "type": "HEAD", "time": 3, "nb_layer": 1, "memory_parameter": 11},
  {"name": "b", "model_name": "m", "type": "BODY", "time": 18, "nb_layer": 6, "memory_parameter": 15, "memory_activation": 8,
   "memory_recompute": 1, "backward_coef": 0, "select_rec_coef": 0.125, "recompute_coef": 0.5},
  {"name": "c", "model_name": "m", "type": "TAIL", "time": 9, "nb_layer": 1, "memory_parameter": 2}]}
"""

KINETO = """{"traceEvents": [
  {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 0, "dur": 5, "args": {"External id": 1}},
  {"ph": "X", "cat": "cpu_op", "name": "autograd::engine::evaluate_function: MmBackward0", "ts": 10, "dur": 9},
  {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 11, "dur": 5, "args": {"External id": 2}},
  {"ph": "X", "cat": "user_annotation", "name": "Optimizer.step#SGD.step", "ts": 20, "dur": 9},
  {"ph": "X", "cat": "cpu_op", "name": "aten::add_", "ts": 21, "dur": 5, "args": {"External id": 3}},
  {"ph": "X", "cat": "kernel", "name": "gemm", "ts": 2, "dur": 100, "args": {"External id": 1, "correlation": 7}},
  {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 1, "dur": 1, "args": {"External id": 1, "correlation": 7}},
  {"ph": "X", "cat": "kernel", "name": "gemm", "ts": 102, "dur": 200, "args": {"External id": 2, "correlation": 8}},
  {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 12, "dur": 1, "args": {"External id": 2, "correlation": 8}},
  {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy DtoH (Device -> Pinned)", "ts": 110, "dur": 30},
  {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy HtoD (Pinned -> Device)", "ts": 150, "dur": 40},
  {"ph": "C", "name": "memory", "ts": 150, "args": {"live": 40}}]}
"""

EXECUTION = """{"schema": "1.1.0-chakra.0.0.4", "nodes": [
  {"id": 1, "name": "[pytorch|profiler|execution_trace|process]", "ctrl_deps": 1, "attrs": [{"name": "scope", "type": "uint64", "value": 7}]},
  {"id": 2, "name": "aten::mm", "ctrl_deps": 1, "inputs": {"values": [[3, 4, 0, 8, 4, "cuda:0"], [5, 6, 0, 4, 4, "cuda:0"]],
   "shapes": [[4, 2], [2, 2]], "types": ["Tensor(float)", "Tensor(float)"]},
   "outputs": {"values": [[7, 8, 0, 8, 4, "cuda:0"]], "shapes": [[4, 2]], "types": ["Tensor(float)"]},
   "attrs": [{"name": "seq_id", "type": "int64", "value": 1}, {"name": "op_schema", "type": "string", "value": "aten::mm(Tensor self, Tensor mat2) -> Tensor"}]},
  {"id": 9, "name": "gemm", "ctrl_deps": 2, "cat": "kernel", "exclusive_dur": 3, "stream": 7},
  {"id": 10, "name": "autograd::engine::evaluate_function: MmBackward0", "ctrl_deps": 1},
  {"id": 11, "name": "aten::mm", "ctrl_deps": 10, "inputs": {"values": [[12, 4, 0, 8, 4, "cuda:0"], [7, 8, 0, 8, 4, "cuda:0"]],
   "shapes": [[2, 4], [4, 2]], "types": ["Tensor(float)", "Tensor(float)"]},
   "outputs": {"values": [[13, 14, 0, 4, 4, "cuda:0"]], "shapes": [[2, 2]], "types": ["Tensor(float)"]}},
  {"id": 15, "name": "torch::autograd::AccumulateGrad", "ctrl_deps": 10, "inputs": {"values": [[13, 14, 0, 4, 4, "cuda:0"]],
   "shapes": [[2, 2]], "types": ["Tensor(float)"]}},
  {"id": 16, "name": "Optimizer.step#SGD.step", "ctrl_deps": 1, "attrs": [{"name": "scope", "type": "uint64", "value": 7}]},
  {"id": 17, "name": "aten::add_", "ctrl_deps": 16, "inputs": {"values": [[5, 6, 0, 4, 4, "cuda:0"], [13, 14, 0, 4, 4, "cuda:0"]],
   "shapes": [[2, 2], [2, 2]], "types": ["Tensor(float)", "Tensor(float)"]}}]}
"""

FEEDER = """{"workload_graph": [
  {"Id": 1, "Name": "load", "NodeType": 4, "runtime": 9, "data_deps": [], "is_cpu_op": true},
  {"Id": 2, "Name": "gemm", "NodeType": 4, "runtime": 30, "data_deps": [1], "is_cpu_op": false},
  {"Id": 3, "Name": "reduce", "NodeType": 7, "runtime": 12, "data_deps": [2], "is_cpu_op": false, "comm_type": 0, "comm_size": 400}]}
"""

NETWORK = "mlp:layers=2,width=8,batch=4"

ROWS = """# a label and the 8 numbers that the network reads of a row
0,1,2,3,4,5,6,7,8
3,0.5,-1e-3,0,0,0,0,0,1
15,1,1,1,1,1,1,1,1

1, -1, 2, 2, 2, 2, 2, 2, 2
test
2,0,0,0,0,0,0,0,0
"""

# Schedules, a timeline and a sweep's folder to start from.
MADE = [
    "plan --trace uniform:4 --platform ideal --strategy store_all -o {made}/plain.json",
    "plan --trace uniform:6 --platform ideal --strategy rotor --memory 5MB -o {made}/recomputing.json",
    f"plan --trace {NETWORK} --platform validate/cpu_link.yaml --strategy 'save_on_cpu|zero_offload' --optimizer adam -o {{made}}/offloading.json",
    f"plan --trace {NETWORK} --platform validate/cpu_link.yaml --strategy chen_sqrt -o {{made}}/network.json",
    "simulate --trace uniform:4 --platform ideal --engine event --strategy store_all --timeline {made}/timeline.json",
    "sweep {made}/swept.yaml -o {made}/sweep",
    "import dnn-partitioning {made}/placement.json --as layers -o {made}/layers.json",
    "import piper {made}/piper.json --as layers -o {made}/ways.json",
]

ON_CHAINS = ["store_all", "rotor", "chen_sqrt", "periodic", "selective", "revolve", "offload_greedy", "offload_dp", "save_on_cpu",
             "pofo", "zero_offload --optimizer adam", "twinflow --optimizer momentum", "demand_layering --optimizer sgd",
             "'sparse_update(train=last:1)|store_all' --optimizer adam"]
ON_GRAPHS = ["store_all", "ap_sqrt", "min_cut", "knapsack", "dtr", "greedy_recompute", "exact", "checkmate", "monet", "vdnn",
             "superneurons", "capuchin", "offload_greedy", "poet", "zero_offload --optimizer adam"]


def simulations(strategies):
    """Commands that read a trace."""
    answers = [f"simulate --json --trace {{file}} --platform {{made}}/machine.yaml --engine event --strategy {strategy} {more}".strip()
               for strategy in strategies
               for more in ("", "--memory front", "--memory 80B --allocator cuda", "--micro-batches 2 --gradients existing")]
    return answers + ["describe {file}", "bounds --json --trace {file} --platform ideal --optimizer adam",
                      "plan --trace {file} --platform ideal --strategy store_all",
                      "simulate --json --trace {file} --platform h200 --strategy store_all",
                      "simulate --trace {file} --platform ideal --strategy store_all --timeline {folder}/t.json "
                      "--memory-profile {folder}/m.csv --schedule-out {folder}/s.json"]

MEASURED_RUNS = """format: plimsoll.measured_runs.v1
groups:
  - name: one
    title: "a chain"
    origin: nobody measured it
    efficiency: h200_sxm
    runs:
      - {name: chain, trace: "uniform:3", platform: ideal, strategy: store_all, optimizer: none, measured: 9 s}
      - {name: again, trace: "uniform:3", platform: ideal, strategy: chen_sqrt, optimizer: none, measured: 12 s, choice: c}
      - {name: left, measured: 2 s, measured_peak: 3 GB, not_expressed: "for want of a trace"}
"""


class Reader:
    """`beside`: what lies in {folder}, unchanged, beside the changed file."""

    def __init__(self, name, seeds, mutated, commands, weight=1.0, beside=()):
        self.name, self.seeds, self.mutated, self.commands = name, seeds, mutated, commands
        self.weight, self.beside = weight, beside


TRANSFORMER = "transformer:layers=1,width=64,heads=4,sequence=32,vocabulary=100,dtype=fp32"  # its times can be had on every device
ON_PLATFORMS = ["describe {file}", f"bounds --trace {TRANSFORMER} --platform {{file}} --json",
                *[f"simulate --json --trace {TRANSFORMER} --platform {{file}} {more}" for more in (
                    "--engine event --strategy store_all", "--strategy offload_greedy --memory 1MB",
                    "--engine event --strategy zero_offload --optimizer adam",
                    "--engine event --strategy zero_infinity --optimizer adam", "--engine event --strategy periodic --memory 1MB")]]
LARGE = ["platforms/h100_sxm_8.yaml", "platforms/ib_2x8_h100.yaml"]
# calibrate refuses all but one device, one host and one link before it measures.
CALIBRATE = ["calibrate {file} -o {folder}/measured.yaml"]

READERS = [
    Reader("chain", ["tests/program/chain.json"], mutations.mutated_json, simulations(ON_CHAINS), 4),
    Reader("graph", ["tests/program/graph.json"], mutations.mutated_json, simulations(ON_GRAPHS), 4),
    Reader("trace", ["tests/fuzz/corpus/trace/chain.json", "tests/fuzz/corpus/trace/graph.json", "traces/data/resnet50_b8_cpu.json"],
           mutations.mutated_json, ["describe {file}"]),
    Reader("platform", ["platforms/cpu_host.yaml", "platforms/h200.yaml", "platforms/rtx_4090_pcie4.yaml", "{made}/machine.yaml"],
           mutations.mutated_lines, ON_PLATFORMS, 3),
    Reader("platform", ["platforms/ideal.yaml", "tests/fuzz/corpus/platform/all_keys.yaml"], mutations.mutated_lines, ["describe {file}"]),
    Reader("platform", LARGE, mutations.mutated_lines, ON_PLATFORMS + CALIBRATE),
    Reader("experiment", ["{made}/small.yaml"], mutations.mutated_lines, ["sweep {file} -o {folder}/out -j 2"], 2),
    Reader("results", ["{made}/sweep/results.jsonl"], mutations.mutated_json_lines,
           ["sweep {made}/swept.yaml -o {folder} --resume", "report {folder} -o {folder}/report"], beside=["{made}/sweep/manifest.json"]),
    Reader("manifest", ["{made}/sweep/manifest.json"], mutations.mutated_json,
           ["sweep {made}/swept.yaml -o {folder} --resume", "report {folder} -o {folder}/report"], beside=["{made}/sweep/results.jsonl"]),
    Reader("schedule", ["{made}/plain.json"], mutations.mutated_json, ["check --json --schedule {file} --trace uniform:4 --platform ideal"]),
    Reader("schedule", ["{made}/recomputing.json"], mutations.mutated_json, ["check --schedule {file} --trace uniform:6 --platform ideal"]),
    Reader("schedule", ["{made}/offloading.json"], mutations.mutated_json,
           [f"check --json --schedule {{file}} --trace {NETWORK} --platform validate/cpu_link.yaml"]),
    Reader("list of ops", ["tests/program/graph.order"], mutations.mutated_lines,
           ["verify --json {file} --trace tests/program/graph.json --platform {made}/machine.yaml"], 2),
    Reader("plan library", ["tests/program/library.json"], mutations.mutated_json,
           ["verify tests/program/graph.order --library {file}"]),
    Reader("replay", ["{made}/network.json"], mutations.mutated_json,
           [f"replay --json --schedule {{file}} --trace {NETWORK} --platform validate/cpu_link.yaml --backend cpu --pace memcpy "
            "--repetitions 1"]),
    Reader("timeline", ["{made}/kineto.json", "{made}/timeline.json"], mutations.mutated_json,
           ["compare --json {file} {made}/timeline.json", "compare {made}/timeline.json {file} --within 5"], 1.5),
    Reader("plan for PyTorch", ["tests/program/pytorch_chain.json"], mutations.mutated_json,
           ["plan --for pytorch --trace {file} --platform ideal --strategy rotor --memory '70 %'",
            "plan --for pytorch --trace {file} --platform ideal --strategy save_on_cpu --micro-batches 2 -o {folder}/plan.json"]),
    Reader("PyTorch's measurement", ["tests/program/pytorch_measurement.json"], mutations.mutated_json,
           ["compare --pytorch {file}", "compare --pytorch {file} --json"]),
    Reader("checkmate graph", ["{made}/checkmate.json"], mutations.mutated_json, ["import checkmate-graph {file} -o {folder}/trace.json"]),
    Reader("DTR log", ["{made}/dtr.log"], mutations.mutated_json_lines, ["import dtr-log {file} -o {folder}/trace.json",
           "replay-log {file} --json --memory '60 %'"]),
    Reader("ParDNN dag", ["{made}/pardnn.dag"], mutations.mutated_lines, ["import pardnn-dag {file} -o {folder}/trace.json"]),
    Reader("printed torch.fx graph", ["tests/traces/foreign/mlp_aot_graphs.txt", "tests/traces/foreign/mlp_joint_graph.txt"], mutations.mutated_lines,
           ["import fx {file} -o {folder}/trace.json"]),
    Reader("recorded step", ["{made}/kineto.json"], mutations.mutated_json, ["import kineto {file} -o {folder}/trace.json"]),
    Reader("execution trace", ["{made}/execution.json"], mutations.mutated_json, ["import pytorch-et {file} -o {folder}/trace.json"]),
    Reader("Chakra's JSON", ["{made}/feeder.json"], mutations.mutated_json, ["import chakra {file} -o {folder}/trace.json"]),
    Reader("list of operators", ["tests/traces/foreign/two_layers.csv"], mutations.mutated_lines,
           ["import fx {file} --set layers=3 -o {folder}/trace.json"]),
    Reader("DOT graph", ["{made}/net.dot"], mutations.mutated_lines, ["import dot {file} -o {folder}/trace.json"]),
    Reader("PipeDream profile", ["{made}/profile.txt"], mutations.mutated_lines, ["import pipedream {file} -o {folder}/trace.json"]),
    Reader("dnn-partitioning graph", ["{made}/placement.json"], mutations.mutated_json, ["import dnn-partitioning {file} -o {folder}/trace.json",
           "import dnn-partitioning {file} --as layers -o {folder}/layers.json"]),
    Reader("Piper graph", ["{made}/piper.json"], mutations.mutated_json, ["import piper {file} -o {folder}/trace.json",
           "import piper {file} --as layers -o {folder}/layers.json"]),
    Reader("SAPP layers", ["{made}/sapp.json"], mutations.mutated_json, ["import sapp {file} -o {folder}/trace.json",
           "import sapp {file} --as layers -o {folder}/layers.json"]),
    Reader("layers", ["{made}/layers.json", "{made}/ways.json"], mutations.mutated_json, [
        f"stages {{file}} --json --devices 4 --bandwidth 1GB/s --planner {planner}" for planner in ("ideals", "piper", "alpa", "sapp --memory 8GB --seconds 5")]),
    Reader("table of splits", ["{made}/splits.json"], mutations.mutated_json, ["splits {file} --json --rounds 20"]),
    Reader("measured runs", ["{made}/runs.yaml"], mutations.mutated_lines, ["reproduce truth --json --runs {file}"]),
    Reader("labelled rows", ["{made}/rows.csv"], mutations.mutated_lines,
           [f"train {NETWORK} --data {{file}} --strategy chen_sqrt --steps 2 --json"]),
    Reader("validation", ["{made}/validation.yaml"], mutations.mutated_lines, ["validate {file} --backend cpu -o {folder}/out"]),
]

# Words on the command line: each {} is one of them, or one of mutations' own.
REFERENCES = ["uniform:{}", "uniform:stages={}", "uniform:3,activation={}", "uniform:3,forward={}", "random:stages={}", "random:stages=3,seed={}",
              "transformer:layers={}", "transformer:layers=1,rate={}", "transformer:layers=1,width={}", "transformer:layers=1,heads={}",
              "transformer:layers=1,dtype={}", "transformer:layers=1,batch={}", "transformer:layers=1,{}=1", "{}", "{}:3",
              "mlp:layers={}", "mlp:layers=1,rate={}", "mlp:layers=1,width={}", "gpt:layers=1,heads={}", "resnet:blocks={}",
              "lstm:steps={},width=8,batch=2", "mlp:layers=1,view={}", "mlp:layers=1,kernels={}"]
SPECS = ["{}", "rotor(slots={})", "rotor({}=1)", "chen_greedy(b={})", "chen_sqrt(segments={})", "periodic(every={})", "revolve(slots={})",
         "selective(every={})", "twinflow(share={})", "sparse_update(train=last:{})|store_all", "sparse_update(train={})|store_all",
         "store_all|{}", "{}|store_all", "rotor|offload_greedy(chunks={})", "dtr(heuristic={})", "rockmate(block={})", "offmate(steps={})",
         "pofo(slots={})", "offload_fractional(chunk={})", "knapsack(solver={})", "checkmate(nodes={})"]
OPTIONS = ["--memory", "--micro-batches", "--optimizer", "--states", "--gradients", "--allocator", "--engine", "--platform", "{}"]


def word(random):
    return random.choice(random.choice([mutations.NUMBERS, mutations.QUANTITIES, mutations.WORDS, ["1", "2", "4", "1 MB", "2 GFLOPS"]]))


def command_line(random):
    """A command with a word that is hard to take."""
    words = ["simulate", "--trace", "uniform:3", "--platform", "ideal", "--strategy", "store_all", "--engine", "event"]
    kind = random.choice(["trace", "trace", "strategy", "strategy", "option", "bounds", "describe", "list"])
    if kind == "trace":
        words[2] = random.choice(REFERENCES).format(word(random))
    elif kind == "strategy":
        words[6] = random.choice(SPECS).format(word(random))
    elif kind == "option":
        words += [random.choice(OPTIONS).format(word(random)), word(random)]
    elif kind == "bounds":
        words = ["bounds", "--trace", random.choice(REFERENCES).format(word(random)), "--platform", "ideal", "--json"]
    elif kind == "describe":
        words = ["describe", random.choice(REFERENCES).format(word(random))]
    else:
        words = [random.choice(["list", "help", "describe", word(random)]), word(random)]
    return [w.replace("\x00", "").encode("latin-1" if random.random() < 0.3 else "utf-8", "replace") for w in words]


def prepare(program, made):
    """Files to start from, those that the program itself makes included."""
    for name, text in (("machine.yaml", MACHINE), ("small.yaml", EXPERIMENT), ("swept.yaml", SWEPT), ("validation.yaml", VALIDATION), ("checkmate.json", CHECKMATE), ("dtr.log", DTR_LOG),
                       ("pardnn.dag", PARDNN_DAG), ("net.dot", DOT), ("profile.txt", PROFILE), ("placement.json", PLACEMENT), ("piper.json", PIPER), ("sapp.json", SAPP), ("splits.json", SPLITS), ("runs.yaml", MEASURED_RUNS),
                       ("kineto.json", KINETO), ("execution.json", EXECUTION), ("feeder.json", FEEDER), ("rows.csv", ROWS)):
        with open(os.path.join(made, name), "w", encoding="utf-8") as file:
            file.write(text)
    for command in MADE:
        subprocess.run([program, *shlex.split(command.format(made=made))], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
