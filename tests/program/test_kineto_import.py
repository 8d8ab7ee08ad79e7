"""What 'import kineto' makes of a recording has the times that a reader which is not ours finds by stream, and becomes a schedule.

/usr/bin/python3 tests/program/test_kineto_import.py build/plimsoll [RECORDING...]
"""
import collections
import gzip
import json
import os
import subprocess
import sys
import tempfile
import unittest

PROGRAM = os.path.abspath(sys.argv.pop(1))
SHIPPED = "tests/traces/foreign/kineto_gpt2_h100.json.gz"
RECORDINGS = [SHIPPED, *sys.argv[1:]]
del sys.argv[1:]
WORK = ("kernel", "gpu_memcpy", "gpu_memset")


def run(*words):
    return subprocess.run([PROGRAM, *words], capture_output=True, text=True, check=False)


def events_of(path):
    with gzip.open(path) as file:
        read = json.load(file)
    return read if isinstance(read, list) else read["traceEvents"]


def totals_by_stream(events):
    """{stream: (pieces of work, us)} of what was launched within the last step, by correlation."""
    steps = [e for e in events if e.get("name", "").startswith("ProfilerStep#") and not e["cat"].startswith("gpu")]
    last = max(steps, key=lambda e: e["ts"]) if steps else {"ts": float("-inf"), "dur": float("inf")}
    launched = {e["args"]["correlation"] for e in events if e.get("ph") == "X" and e["cat"] in ("cuda_runtime", "cuda_driver")
                and "correlation" in e.get("args", {}) and last["ts"] <= e["ts"] < last["ts"] + last["dur"]}
    found = collections.defaultdict(lambda: [0, 0.0])
    for e in events:
        if e.get("cat") in WORK and e["args"].get("correlation") in launched:
            found[e["args"]["stream"]][0] += 1
            found[e["args"]["stream"]][1] += e["dur"]
    return found


class Imported(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.trace = os.path.join(self.folder.name, "trace.json")

    def imported(self, path, *words):
        answer = run("import", "kineto", path, "-o", self.trace, *words)
        self.assertEqual(answer.returncode, 0, answer.stderr)
        with open(self.trace, encoding="utf-8") as file:
            return json.load(file)

    def test_totals_by_stream_are_those_of_a_second_reader(self):
        for path in RECORDINGS:
            ops = self.imported(path)["ops"]
            ours = collections.defaultdict(lambda: [0, 0.0])
            for op in ops:
                if op["phase"] == "update":
                    continue
                ours[int(op["attributes"]["stream"])][0] += op.get("kernels", 1)
                ours[int(op["attributes"]["stream"])][1] += op["time_s"] * 1e6
            update = [op for op in ops if op["phase"] == "update"]
            theirs = totals_by_stream(events_of(path))
            self.assertLessEqual(set(ours), set(theirs))
            kernels, time = (sum(each[k] for each in ours.values()) for k in (0, 1))
            kernels += sum(op.get("kernels", 1) for op in update)
            time += sum(op["time_s"] for op in update) * 1e6
            self.assertEqual(kernels, sum(each[0] for each in theirs.values()), path)
            self.assertAlmostEqual(time, sum(each[1] for each in theirs.values()), delta=0.01)
            with open(self.trace, encoding="utf-8") as file:
                notes = json.load(file)["source"]
            for stream, (pieces, us) in theirs.items():
                said = notes[f"stream_{stream}"]
                self.assertEqual(int(said.split()[0]), pieces)
                self.assertAlmostEqual(float(said.split()[-2]) * 1e6, us, delta=0.01)

    def test_a_step_has_its_phases_gradients_and_device(self):
        trace = self.imported(SHIPPED)
        phases = collections.Counter(op["phase"] for op in trace["ops"])
        self.assertEqual(set(phases), {"forward", "backward", "update"})
        self.assertEqual(trace["source"]["device"], "NVIDIA H100 80GB HBM3")
        self.assertEqual(trace["source"]["dtype"], "bf16")  # of its products; norms are in fp32
        kinds = collections.Counter(tensor["kind"] for tensor in trace["tensors"])
        self.assertGreater(kinds["parameter_gradient"], 3)
        first = next(op for op in trace["ops"] if op["kind"] == "addmm" and op["phase"] == "forward")
        # 8 x 1,024 rows of 768 numbers times 768 x 2,304: 2 multiply-adds each
        self.assertEqual(first["flops"], 2 * 8 * 1024 * 768 * 2304)
        bytes_read = [trace["tensors"][t]["bytes"] for t in first["inputs"]]
        self.assertIn(2 * 768 * 2304, bytes_read)  # the weight in bf16

    def test_it_plans(self):
        self.imported(SHIPPED)
        for strategy in ("store_all", "min_cut"):
            answer = run("simulate", "-t", self.trace, "-p", "ideal", "-s", strategy, "--json")
            self.assertEqual(answer.returncode, 0, answer.stderr)

    def written(self, *operators):
        """A recording of these operators one after the other, each with a kernel."""
        events, at = [{"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "pid": 1, "tid": 1, "ts": 0, "dur": 1000}], 10
        for number, (name, kernel, dims, values, *dates) in enumerate(operators):
            types = ["TensorList" if each and isinstance(each[0], list) else "float" if each else "ScalarList" for each in dims or []]
            begin, length = dates or (at, 8)
            events += [{"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": begin, "dur": length, "args":
                        {"Input Dims": dims, "Input type": types, "Concrete Inputs": values} if dims else {}},
                       {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": at + 2, "dur": 1, "args":
                        {"correlation": number}},
                       {"ph": "X", "cat": "kernel", "name": kernel, "pid": 0, "tid": 7, "ts": at + 4, "dur": 5, "args":
                        {"correlation": number, "stream": 7}}]
            at += 20
        path = os.path.join(self.folder.name, "written.json.gz")
        with gzip.open(path, "wt") as file:
            json.dump({"traceEvents": events}, file)
        return path

    def test_convolutions_have_the_shapes_that_their_arguments_say(self):
        picture, weight = [8, 3, 33, 65], [16, 3, 5, 3]
        trace = self.imported(self.written(
            ("aten::cudnn_convolution", "sm90_xmma_fprop_f32f32_tf32f32_f32", [picture, weight] + 7 * [[]],
             ["", "", "[2, 0]", "[2, 1]", "[1, 3]", "1", "False", "False", "True"]),
            ("aten::convolution", "a", [picture, weight, []] + 6 * [[]], ["", "", "", "[1, 1]", "[0, 0]", "[1, 1]", "False", "[0, 0]", "1"]),
            ("aten::convolution", "b", [picture, weight, []] + 6 * [[]], ["", "", "", "[1, 1]", "[0, 0]", "[1, 1]", "True", "[0, 0]", "1"])))
        library, plain, transposed = trace["ops"]
        # (33 + 2 * 2 - 5) / 2 + 1 = 17 rows, 65 - 3 * 2 = 59 columns; without padding 29 and 63
        self.assertEqual(trace["tensors"][library["outputs"][0]]["shape"], [8, 16, 17, 59])
        self.assertEqual(library["flops"], 2 * 8 * 16 * 17 * 59 * 3 * 5 * 3)
        self.assertEqual(trace["tensors"][plain["outputs"][0]]["shape"], [8, 16, 29, 63])
        self.assertEqual({op["kind"] for op in trace["ops"]}, {"convolution"})
        self.assertNotIn("flops", transposed)
        self.assertEqual(trace["source"]["dtype"], "tf32")

    def test_an_operator_does_not_read_what_operators_that_it_calls_make(self):
        rows = [8, 16]
        trace = self.imported(self.written(("aten::mul", "a", [rows, rows], ["", ""]), ("aten::fill_", "b", [rows, []], ["", "0"], 32, 6),
                                           ("aten::embedding_dense_backward", "c", [rows], [""], 31, 27)))
        product, _, scattered = trace["ops"]
        self.assertEqual(scattered["inputs"], product["outputs"])  # the latest of its size is filled by what it calls

    def test_lists_of_tensors_have_results_and_flops(self):
        first, second = [8, 16, 32], [8, 4, 32]
        trace = self.imported(self.written(
            ("aten::relu", "a", [first], [""]), ("aten::cat", "b", [[first, second, [0]], []], ["", "-2"]),
            ("aten::stack", "c", [[first, first, first], []], ["", "3"]),
            ("aten::_foreach_mul", "d", [[first, second], []], ["", "2"]),
            ("aten::embedding_dense_backward", "e", [[8, 4, 32], [8, 4], [], [], []], ["", "", "77", "-1", "False"])))
        shapes = [[trace["tensors"][t]["shape"] for t in op["outputs"]] for op in trace["ops"]]
        self.assertEqual(shapes, [[first], [[8, 20, 32]], [[8, 16, 32, 3]], [first, second], [[77, 32]]])
        self.assertEqual([op["flops"] for op in trace["ops"]], [0] * 5)
        # 4 bytes each: both are read once, and written into one
        self.assertEqual(trace["ops"][1]["bytes"], 4 * (8 * 16 * 32 + 8 * 4 * 32 + 8 * 20 * 32))
        self.assertIn(trace["ops"][0]["outputs"][0], trace["ops"][1]["inputs"])
        answer = run("simulate", "-t", self.trace, "-p", "h200", "-s", "store_all", "--json")  # times of another GPU
        self.assertEqual(answer.returncode, 0, answer.stderr)
        self.assertTrue(all("flops" in op for op in self.imported(SHIPPED)["ops"] if "kind" in op))

    def test_fused_attention_has_the_flops_of_its_products(self):
        query, key = [2, 12, 1024, 64], [2, 12, 512, 64]  # samples, heads, rows, numbers
        rows_first, keys_first = [2, 1024, 12, 64], [2, 512, 12, 64]
        trace = self.imported(self.written(
            ("aten::_cudnn_attention_forward", "a", [query, key, key], ["", "", ""]),
            ("aten::_cudnn_attention_backward", "b", [query, query, key, key, query], 5 * [""]),
            ("aten::_flash_attention_forward", "c", [rows_first, keys_first, keys_first], ["", "", ""]),
            ("aten::_efficient_attention_backward", "d", [rows_first, rows_first, keys_first, keys_first], 4 * [""]),
            ("aten::_flash_attention_forward", "e", [[2048, 12, 64], [1024, 12, 64], [1024, 12, 64]], ["", "", ""])))
        product = 2 * 2 * 12 * 1024 * 512 * 64
        self.assertEqual(trace["source"]["dtype"], "fp32")
        self.assertEqual([op.get("flops") for op in trace["ops"]], [2 * product, 5 * product, 2 * product, 5 * product, None])
        made = [[trace["tensors"][t]["shape"] for t in op["outputs"]] for op in trace["ops"]]
        self.assertEqual(made[1], [query, key, key])

    def test_blocks_say_what_is_kept_for_the_backward_and_what_is_workspace(self):
        size, rows = 256 * 256 * 4, [256, 256]
        events = [{"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "pid": 1, "tid": 1, "ts": 0, "dur": 1000}]
        total = before = 5 * size

        def block(thread, at, change, address):
            nonlocal total
            total += change
            events.append({"ph": "i", "name": "[memory]", "cat": "cpu_instant_event", "s": "t", "pid": 1, "tid": thread, "ts": at, "args":
                           {"Device Type": 1, "Device Id": 0, "Addr": address, "Bytes": change, "Total Allocated": total}})
            return total

        def operator(thread, at, name, dims, number, dur=10):
            strides = [[256, 1] if each == rows else [] for each in dims]
            events.extend([{"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": thread, "ts": at, "dur": dur, "args":
                            {"Input Dims": dims, "Input Strides": strides, "Input type": ["float"] * len(dims)}},
                           {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": thread, "ts": at + 5, "dur": 1,
                            "args": {"correlation": number}},
                           {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": at + 6, "dur": 3, "args":
                            {"correlation": number, "stream": 7}}])

        operator(1, 10, "aten::mul", [rows, rows], 1)
        block(1, 11, size, 100)  # its result
        block(1, 12, 3 * size, 200)
        block(1, 13, size, 300)
        peak = block(1, 14, 2 * size, 400)
        block(1, 15, -3 * size, 200)
        block(1, 16, -size, 300)
        block(1, 17, -2 * size, 400)
        operator(1, 30, "aten::relu", [rows], 2)
        block(1, 31, size, 500)
        block(1, 42, -size, 100)  # the product is let go of in the forward
        operator(1, 50, "aten::exp", [rows], 3)
        block(1, 51, size, 600)
        block(1, 52, 1024, 700)  # of no result that is known
        events.append({"ph": "X", "cat": "cpu_op", "name": "autograd::engine::evaluate_function: ExpBackward0", "pid": 1, "tid": 2, "ts": 100,
                       "dur": 30, "args": {}})
        operator(2, 102, "aten::neg", [rows], 4)
        block(2, 103, size, 800)
        block(2, 120, -size, 500)  # what relu made was kept until here
        block(2, 121, -1024, 700)
        operator(1, 150, "aten::add_", [rows, rows], 5)
        path = os.path.join(self.folder.name, "memory.json.gz")
        with gzip.open(path, "wt") as file:
            json.dump({"traceEvents": events}, file)
        trace = self.imported(path)
        product, relu, exp, negated, added = trace["ops"]
        self.assertEqual(product["workspace_bytes"], 6 * size)
        self.assertEqual([op["workspace_bytes"] for op in (relu, exp, negated)], [0, 0, 0])
        self.assertIn(relu["outputs"][0], negated["inputs"])
        self.assertNotIn(product["outputs"][0], negated["inputs"])
        other, = set(exp["outputs"]) - {exp["outputs"][0]}
        self.assertEqual(trace["tensors"][other]["bytes"], 1024)
        self.assertIn(other, negated["inputs"])
        storage = [trace["tensors"][t]["storage"] for t in (added["mutates"][0], added["outputs"][0])]
        self.assertEqual(storage[0], storage[1])  # in place, without a block
        self.assertEqual(int(trace["source"]["recorded_peak_bytes"]), peak)
        self.assertEqual(int(trace["source"]["recorded_before_bytes"]), before)

    def test_a_step_that_launched_nothing_is_not_the_last(self):
        path = self.written(("aten::relu", "a", [[4, 4]], [""]))
        with gzip.open(path, "rt") as file:
            recorded = json.load(file)
        recorded["traceEvents"].append({"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#2", "pid": 1, "tid": 1, "ts": 2000, "dur": 9})
        with gzip.open(path, "wt") as file:
            json.dump(recorded, file)
        self.assertEqual(len(self.imported(path)["ops"]), 1)
        answer = run("import", "kineto", path, "-o", self.trace, "--set", "step=2")
        self.assertEqual(answer.returncode, 2)
        self.assertIn("ProfilerStep#2 launched no work of a GPU", answer.stderr)

    def test_kernels_that_inductor_compiled_write_their_last_tensor(self):
        trace = self.imported(self.written(("aten::relu", "a", [[10, 10]], [""]),
                                           ("triton_poi_fused_add_0", "b", [[10, 10], [10], [10, 10], []], ["", "", "", "100"]),
                                           ("triton_tem_fused_mm_1", "c", [[10, 10], [10, 10], [10, 10]], ["", "", ""])))
        first, fused, product = trace["ops"]
        self.assertEqual(len(fused["inputs"]), 2)
        self.assertIn(first["outputs"][0], fused["inputs"])
        self.assertEqual(trace["tensors"][fused["outputs"][0]]["shape"], [10, 10])
        self.assertEqual(fused["flops"], 0)
        self.assertNotIn("flops", product)

    def test_a_platform_of_a_recording_is_that_of_its_efficiencies(self):
        made = os.path.join(self.folder.name, "mine.yaml")
        answer = run("calibrate", "recording", SHIPPED, "--of", "h100_sxm_8", "-o", made, "--source", 'my "own" run')
        self.assertEqual(answer.returncode, 0, answer.stderr)
        for sort in ("attention.bf16.64", "attention_backward"):
            self.assertIn(sort, answer.stdout)
        found = []
        for platform in (made, f"h100_sxm_8:efficiency={made}"):
            answer = run("simulate", "-t", "gpt2:batch=8,dtype=amp,logits=end", "-p", platform, "-s", "store_all", "--json")
            self.assertEqual(answer.returncode, 0, answer.stderr)
            result = json.loads(answer.stdout)
            found.append([result[key] for key in ("makespan_s", "peak_bytes")])
        self.assertEqual(found[0], found[1])
        with open(made, encoding="utf-8") as file:
            self.assertIn("NVIDIA H100 80GB HBM3", file.read().split("\nsource: ")[1].split("\n")[0])
        answer = run("calibrate", "recording", SHIPPED, "--of", "h100_sxm_8:nodes=2", "-o", made)
        self.assertEqual(answer.returncode, 2)

    def test_what_is_no_such_recording_is_refused(self):
        for words, said in (((SHIPPED, "--set", "step=7"), "no ProfilerStep#7"), (("tests/program/graph.json",), "traceEvents")):
            answer = run("import", "kineto", words[0], "-o", self.trace, *words[1:])
            self.assertEqual(answer.returncode, 2)
            self.assertIn(said, answer.stderr)
        path = self.written(("aten::relu", "a", None, None))
        answer = run("import", "kineto", path, "-o", self.trace)
        self.assertEqual(answer.returncode, 2)
        self.assertEqual(answer.stderr, f"{path}: Input Dims: operators without shapes, of which no tensors follow: record again with "
                         "torch.profiler.profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], record_shapes=True, "
                         f"profile_memory=True); its times are what 'plimsoll compare {path}' says\n")
        cut = os.path.join(self.folder.name, "cut.json.gz")
        with open(SHIPPED, "rb") as file, open(cut, "wb") as made:
            made.write(file.read()[:6000])
        answer = run("import", "kineto", cut, "-o", self.trace)
        self.assertEqual(answer.returncode, 2)
        self.assertTrue(answer.stderr.startswith(cut), answer.stderr)

    def test_a_recording_where_a_trace_belongs_names_the_importer(self):
        for file, importer in ((SHIPPED, "import kineto"), ("tests/traces/foreign/mlp_aot_graphs.txt", "import fx"),
                               ("tests/traces/foreign/two_layers.csv", "import fx")):
            answer = run("bounds", "-t", file, "-p", "ideal")
            self.assertEqual(answer.returncode, 2)
            self.assertIn(importer, answer.stderr)


if __name__ == "__main__":
    unittest.main()
