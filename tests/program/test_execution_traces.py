"""What 'import pytorch-et' and 'import chakra' make of execution traces, against a second reader and the arithmetic of the model.

/usr/bin/python3 tests/program/test_execution_traces.py build/plimsoll
PLIMSOLL_SHARED names the folder of public files; without it those are not read.
"""
import collections
import copy
import gzip
import json
import os
import struct
import subprocess
import sys
import tarfile
import tempfile
import unittest

PROGRAM = os.path.abspath(sys.argv.pop(1))
SHARED = os.environ.get("PLIMSOLL_SHARED")
MLP = "tests/traces/foreign/execution_mlp_torch113.json.gz"
LAYER = 16 * 32, 32, 32, 32, 32 * 10, 10  # weights, biases, and the norm's two


def run(*words):
    return subprocess.run([PROGRAM, *words], capture_output=True, text=True, check=False)


def recorded():
    with gzip.open(MLP) as file:
        return json.load(file)


# --- the layout since 1.0.2, and kernels as Chakra's linker adds them

def in_new_layout(trace):
    made = dict(trace, schema="1.1.0-chakra.0.0.4", nodes=[])
    for node in trace["nodes"]:
        attributes = [{"name": key, "type": "int64", "value": node[key]}
                      for key in ("rf_id", "fw_parent", "seq_id", "scope", "tid", "fw_tid", "op_schema")]
        made["nodes"].append({"id": node["id"], "name": node["name"], "ctrl_deps": node["parent"], "attrs": attributes,
                              **{side + "s": {"values": node[side + "s"], "shapes": node[side + "_shapes"],
                                              "types": node[side + "_types"]} for side in ("input", "output")}})
    return made


LAUNCHING = ("aten::addmm", "aten::mm", "aten::clamp_min", "aten::native_layer_norm", "aten::add_", "aten::mul_")


def linked(trace):
    """Two kernels, of 1.5 and 2.25 us, on two streams for each of some operators."""
    made = dict(trace, nodes=[])
    for node in trace["nodes"]:
        node = dict(node, id=10 * node["id"], parent=10 * node["parent"])
        made["nodes"].append(node)
        for k, (stream, time) in enumerate(((7, 1.5), (20, 2.25)), 1):
            if node["name"] in LAUNCHING:
                made["nodes"].append({"id": node["id"] + k, "name": f"kernel_{k}", "parent": node["id"], "inputs": [], "outputs": [],
                                      "cat": "kernel", "exclusive_dur": time, "inclusive_dur": time, "ts": 17, "stream": stream})
    return made


def step_of(trace, number):
    """Nodes between the step's range and the next on its thread: the file is of one thread."""
    begin = next(n["id"] for n in trace["nodes"] if n["name"] == f"ProfilerStep#{number}")
    later = [n["id"] for n in trace["nodes"] if n["name"].startswith("ProfilerStep#") and n["id"] > begin]
    return [n for n in trace["nodes"] if begin < n["id"] < min(later, default=10**9)]


# --- Chakra's messages, decoded by hand

def varint(text, at):
    value = shift = 0
    while True:
        byte = text[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def fields(text):
    at = 0
    while at < len(text):
        key, at = varint(text, at)
        kind = key & 7
        if kind == 0:
            value, at = varint(text, at)
        elif kind == 2:
            size, at = varint(text, at)
            value, at = text[at:at + size], at + size
        else:
            size = {1: 8, 5: 4}[kind]
            value, at = text[at:at + size], at + size
        yield key >> 3, kind, value


def attribute(text):
    name, value = "", None
    for field, kind, read in fields(text):
        if field == 1:
            name = read.decode()
        elif field == 3:
            value = struct.unpack("<d", read)[0]
        elif field == 29:
            value = read.decode()
        elif field == 30:
            value = [each.decode() for _, _, each in fields(read)]
        elif kind == 0:
            value = read
    return name, value


def messages(text):
    at = 0
    while at < len(text):
        size, at = varint(text, at)
        yield text[at:at + size]
        at += size


def chakra_nodes(text):
    """[(type, microseconds, attributes)]"""
    made = []
    for message in list(messages(text))[1:]:
        node = {1: 0, 3: 0, 7: 0}
        attributes = {}
        for field, _, value in fields(message):
            if field in node:
                node[field] = value
            if field == 10:
                attributes.update([attribute(value)])
        made.append((node[3], node[7], attributes))
    return made


class Traces(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.trace = self.path("trace.json")

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, value):
        with open(self.path(name), "w", encoding="utf-8") as file:
            json.dump(value, file)
        return self.path(name)

    def imported(self, form, path, *words):
        answer = run("import", form, path, "-o", self.trace, *words)
        self.assertEqual(answer.returncode, 0, answer.stderr)
        with open(self.trace, encoding="utf-8") as file:
            return json.load(file)

    def refused(self, form, path, said):
        answer = run("import", form, path, "-o", self.path("none.json"))
        self.assertEqual(answer.returncode, 2, answer.stdout)
        self.assertTrue(answer.stderr.startswith(path), answer.stderr)
        self.assertIn(said, answer.stderr.splitlines()[0])
        self.assertFalse(os.path.exists(self.path("none.json")))

    def plans(self, platform="h200"):
        for strategy in ("store_all", "min_cut"):
            answer = run("simulate", "-t", self.trace, "-p", platform, "-s", strategy, "--json")
            self.assertEqual(answer.returncode, 0, answer.stderr)


def bytes_of(trace, kind):
    return sum({t["storage"] if "storage" in t else ("own", k): t["bytes"]
                for k, t in enumerate(trace["tensors"]) if t["kind"] == kind and not t["name"].endswith(" updated")}.values())


def flops_in(trace, phase):
    return sum(op.get("flops", 0) for op in trace["ops"] if op["phase"] == phase)


class PyTorch(Traces):
    # Linear(16, 32), ReLU, LayerNorm(32), Linear(32, 10), cross entropy, 8 samples: as of tests/traces/fx_graph_test.cpp.
    def test_a_recorded_step_has_the_model_s_work_and_tensors(self):
        trace = self.imported("pytorch-et", MLP)
        self.assertEqual(trace["source"]["step"], 2)
        self.assertEqual(flops_in(trace, "forward"), 2 * (8 * 16 * 32 + 8 * 32 * 10))
        self.assertEqual(flops_in(trace, "backward"), 2 * (2 * 8 * 32 * 10 + 8 * 16 * 32))
        parameters = 4 * sum(LAYER)
        for kind in ("parameter", "parameter_gradient", "optimizer_state"):  # SGD with a momentum
            self.assertEqual(bytes_of(trace, kind), parameters, kind)
        self.assertEqual(bytes_of(trace, "input"), 4 * 8 * 16 + 8 * 8)
        owners = [trace["tensors"][t["gradient_of"]]["shape"] for t in trace["tensors"] if "gradient_of" in t]
        self.assertEqual(sorted(owners), sorted([[32, 16], [32], [32], [32], [10, 32], [10]]))
        made = {t for op in trace["ops"] if op["phase"] == "forward" for t in op["outputs"]}
        saved = {t for op in trace["ops"] if op["phase"] == "backward" for t in op["inputs"]} & made
        kept = collections.Counter(trace["tensors"][t]["bytes"] for t in saved)
        # ReLU's result and the norm's, its mean and deviation, log softmax, weight of the loss, and ones for the loss
        self.assertEqual(kept, {1024: 2, 32: 2, 320: 1, 4: 2})
        self.plans()

    def test_the_first_step_is_chosen_and_another_refused(self):
        self.assertEqual(self.imported("pytorch-et", MLP, "--set", "step=1")["source"]["step"], 1)
        answer = run("import", "pytorch-et", MLP, "-o", self.trace, "--set", "step=7")
        self.assertEqual(answer.returncode, 2)
        self.assertIn("no ProfilerStep#7", answer.stderr)

    def test_the_layout_since_1_0_2_gives_the_same_graph(self):
        old = self.imported("pytorch-et", MLP)
        new = self.imported("pytorch-et", self.write("execution_mlp_torch113.json", in_new_layout(recorded())))
        for trace in (old, new):
            del trace["source"]
        self.assertEqual(old, new)

    def test_kernels_of_a_linked_file_are_the_ops_times(self):
        path = self.write("linked.json", linked(recorded()))
        trace = self.imported("pytorch-et", path)
        launching = [n for n in step_of(recorded(), 2) if n["name"] in LAUNCHING]
        total = sum(op["time_s"] for op in trace["ops"])
        self.assertAlmostEqual(total, 3.75e-6 * len(launching), delta=1e-12)
        for stream, time in (("7", 1.5e-6), ("20", 2.25e-6)):
            said = trace["source"][f"stream_{stream}"].split()
            self.assertEqual(int(said[0]), len(launching))
            self.assertAlmostEqual(float(said[-2]), time * len(launching), delta=1e-12)
        first = next(op for op in trace["ops"] if op["kind"] == "addmm")
        self.assertEqual((first["time_s"], first["kernels"]), (3.75e-6, 2))
        self.plans("ideal")

    def test_what_is_no_such_file_is_refused(self):
        trace = recorded()
        self.refused("pytorch-et", self.write("schema.json", dict(trace, schema="9.0")), "'9.0'")
        self.refused("pytorch-et", self.write("twice.json", dict(trace, nodes=trace["nodes"] * 2)), "several ranks")
        text = json.dumps(trace).replace('"cpu"', '"cuda:0"')
        at = text.index('"cuda:0"', 3 * len(text) // 4)
        two = json.loads(text[:at] + text[at:].replace('"cuda:0"', '"cuda:1"'))
        self.refused("pytorch-et", self.write("two.json", two), "expected those of one rank")
        unmarked = copy.deepcopy(trace)
        for node in unmarked["nodes"]:
            node["name"] = node["name"].replace("ProfilerStep#", "step ")
        self.refused("pytorch-et", self.write("unmarked.json", unmarked), "expected one step")
        self.refused("pytorch-et", self.write("other.json", {"nodes": []}), "missing key 'schema'")
        with open(MLP, "rb") as file, open(self.path("cut.json.gz"), "wb") as made:
            made.write(file.read()[:6000])
        self.refused("pytorch-et", self.path("cut.json.gz"), "ends too early")

    def test_one_where_a_trace_belongs_names_the_importer(self):
        for path, importer in ((MLP, "import pytorch-et"), (self.write("feed.json", FEEDER), "import chakra")):
            answer = run("bounds", "-t", path, "-p", "ideal")
            self.assertEqual(answer.returncode, 2)
            self.assertIn(importer, answer.stderr)

    @unittest.skipUnless(SHARED, "PLIMSOLL_SHARED is not set: no public file is compared")
    def test_public_files_have_the_parameters_of_their_models(self):
        folder = os.path.join(SHARED, "data/pytorch_et")
        for name, parameters, gradients in (("resnet_et.json.gz", 25_557_032, 161), ("resnet_2gpu_et.json.gz", 25_557_032, 161),
                                            ("torch113_cpu_resnet18_eg.json.gz", 11_689_512, 62), ("linear_et.json.gz", 21 * (1024 * 1024 + 1024), 42)):
            trace = self.imported("pytorch-et", os.path.join(folder, name))
            owned = {t["gradient_of"] for t in trace["tensors"] if "gradient_of" in t}
            self.assertEqual(sum(trace["tensors"][t]["bytes"] for t in owned), 4 * parameters, name)
            self.assertEqual(len(owned), gradients, name)
            if parameters == 25_557_032:  # the reference resnet50:batch=32 has as many
                self.assertEqual(flops_in(trace, "forward"), 261_707_792_384)
                self.assertEqual(bytes_of(trace, "input") - 4 * 32 * (3 * 224 * 224 + 1000), 8 * 53 + 0, name)
            self.plans()


FEEDER = {"workload_graph": [
    {"Id": 1, "Name": "load", "NodeType": 4, "runtime": 9, "data_deps": [], "is_cpu_op": True},
    {"Id": 2, "Name": "gemm", "NodeType": 4, "runtime": 30, "data_deps": [1], "is_cpu_op": False},
    {"Id": 3, "Name": "reduce", "NodeType": 7, "runtime": 12, "data_deps": [2], "is_cpu_op": False, "comm_type": 0, "comm_size": 400}]}


class Chakra(Traces):
    def check_totals(self, path, nodes):
        """Counts, durations and bytes of messages are those of the second reader."""
        trace = self.imported("chakra", path)
        on_device = [n for n in nodes if n[0] != 1 and not n[2].get("is_cpu_op")] or nodes
        self.assertEqual(len(trace["ops"]), len(on_device), path)
        time = sum(n[2]["duration_ns"] * 1e-9 if "duration_ns" in n[2] else n[1] * 1e-6 for n in on_device)
        self.assertAlmostEqual(sum(op.get("time_s", 0) for op in trace["ops"]), time, delta=1e-9 * (1 + time))
        exchanged = [n[2].get("comm_size", 0) for n in on_device if n[0] in (5, 6, 7)]
        said = trace["source"]["messages"].split()
        self.assertEqual((int(said[0]), int(said[-2])), (len(exchanged), sum(exchanged)), path)
        self.assertEqual(sum(op.get("flops", 0) for op in trace["ops"]), sum(n[2].get("num_ops", 0) for n in on_device))
        return trace

    def exported(self, trace, *words):
        answer = run("export", "chakra", "-t", trace, "-p", "ideal", "-s", "store_all", "--engine", "event", "-o", self.path("made"), *words)
        self.assertEqual(answer.returncode, 0, answer.stderr)
        with open(self.path("made.0.et"), "rb") as file:
            return chakra_nodes(file.read())

    def said_by(self, trace, shown=()):
        """What the format can say of a graph: views show what they are of."""
        names = [dict(shown).get(t["name"], t["name"]) for t in trace["tensors"]]
        return [(op["name"], op.get("kind", ""), op["phase"], op.get("time_s"), op.get("flops"), op.get("bytes"), op.get("accumulate_workspace_bytes", op.get("workspace_bytes", 0)),
                 sorted({names[t] for t in op["inputs"]}), sorted(names[t] for t in op["outputs"]))
                for op in trace["ops"] if op["name"] != "t"], {
                    names[k]: (t["kind"], t["bytes"], "gradient_of" in t) for k, t in enumerate(trace["tensors"]) if t["name"] not in dict(shown)}

    def test_what_export_writes_is_read_to_the_same_graph(self):
        nodes = self.exported("tests/program/graph.json")
        read = self.check_totals(self.path("made.0.et"), nodes)
        with open("tests/program/graph.json", encoding="utf-8") as file:
            graph = json.load(file)
        self.assertEqual(self.said_by(read), self.said_by(graph, {"a.t": "a", "w.t": "w"}.items()))
        self.plans("ideal")

    def test_a_step_with_its_update_is_read_to_the_same_graph(self):
        path = self.write("linked.json", linked(recorded()))
        graph = self.imported("pytorch-et", path)
        os.rename(self.trace, self.path("graph.json"))
        nodes = self.exported(self.path("graph.json"))
        read = self.check_totals(self.path("made.0.et"), nodes)
        for kind in ("parameter", "parameter_gradient", "optimizer_state", "input"):
            self.assertEqual(bytes_of(read, kind), bytes_of(graph, kind), kind)
        self.assertEqual([op["name"] for op in read["ops"]], [op["name"] for op in graph["ops"]])
        self.plans("ideal")

    def test_the_feeder_s_json_keeps_what_devices_run(self):
        trace = self.imported("chakra", self.write("feed.json", FEEDER))
        self.assertEqual([(op["name"], op["time_s"]) for op in trace["ops"]], [("gemm", 30e-6), ("reduce", 12e-6)])
        self.assertEqual(set(trace["ops"][0]["outputs"]) & set(trace["ops"][1]["inputs"]), set(trace["ops"][1]["inputs"]))
        self.assertEqual(len(trace["ops"][1]["inputs"]), 1)
        left_out = trace["source"]["left_out"]
        self.assertIn("1 nodes of hosts, 0.000009 s", left_out)
        self.assertIn("one of several", left_out)
        self.plans("ideal")

    def test_what_is_no_such_file_is_refused(self):
        self.exported("tests/program/graph.json")
        with open(self.path("made.0.et"), "rb") as file:
            text = file.read()
        for name, content, said in (("cut.et", text[:-5], "cut off"), ("twice.et", text + text[sum(varint(text, 0)):], "several ranks"),
                                    ("empty.et", b"", "no nodes")):
            with open(self.path(name), "wb") as made:
                made.write(content)
            self.refused("chakra", self.path(name), said)
        self.refused("chakra", "tests/traces/foreign/cnn.onnx", "byte")
        circle = copy.deepcopy(FEEDER)
        circle["workload_graph"][1]["data_deps"] = [3]
        self.refused("chakra", self.write("circle.json", circle), "which needs it in turn")
        answer = run("describe", self.path("made.0.et"))
        self.assertEqual(answer.returncode, 2)
        self.assertIn("import chakra", answer.stderr)

    @unittest.skipUnless(SHARED, "PLIMSOLL_SHARED is not set: no public file is compared")
    def test_public_files_have_the_totals_of_a_second_reader(self):
        folder = os.path.join(SHARED, "data/chakra")
        for archive, member in (("feeder_tests_trace.tar.gz", "tests/data/chakra.0.et"), ("json_trace.tar.gz", "jsonData/chakra.0.json")):
            with tarfile.open(os.path.join(folder, archive)) as files, open(self.path(os.path.basename(member)), "wb") as made:
                made.write(files.extractfile(member).read())
        paths = [os.path.join(folder, name) for name in ("all_reduce.0.et", "all_reduce.1.et", "w.0.et", "w.4.et")]
        for path in [*paths, self.path("chakra.0.et")]:
            with open(path, "rb") as file:
                self.check_totals(path, chakra_nodes(file.read()))
            self.plans("ideal" if path.startswith(self.folder) else "h200")
        with open(self.path("chakra.0.json"), encoding="utf-8") as file:
            nodes = [(n["NodeType"], n.get("runtime", 0), n) for n in json.load(file)["workload_graph"]]
        self.check_totals(self.path("chakra.0.json"), nodes)


if __name__ == "__main__":
    unittest.main()
