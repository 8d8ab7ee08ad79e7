#!/usr/bin/env python3
"""Tests of traces/export_pytorch.py. Skipped where this Python has no torch; runs in well under a minute.

  /usr/bin/python3 traces/test_export_pytorch.py
"""

import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAM = os.path.join(HERE, "export_pytorch.py")
sys.path.insert(0, HERE)

import export_pytorch  # noqa: E402
from pytorch_export.errors import MeasurementError, UsageError  # noqa: E402

try:
    import torch
except ImportError:
    torch = None
NO_TORCH = f"{sys.executable} has no torch: apt-get install python3-torch, then run this with /usr/bin/python3"

# A user's file: shapes are small enough for sums by hand.
USER_MODEL = """
import torch
from torch import nn

class Residual(nn.Module):
    def forward(self, x):
        return x + 1

class Frozen(nn.Linear):
    def __init__(self, n):
        super().__init__(n, n)
        for parameter in self.parameters():
            parameter.requires_grad_(False)

def small():
    torch.manual_seed(0)
    stages = [("first", nn.Sequential(nn.Linear(10, 20), nn.ReLU())),
              ("second", nn.Sequential(nn.Linear(20, 5), nn.Sigmoid(), nn.Tanh()))]
    return stages, lambda y: y.exp().sum(), torch.randn(3, 10)

def tied():
    first, last = nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False)
    last.weight = first.weight
    return [first, nn.Tanh(), last], lambda y: y.pow(2).mean(), torch.randn(4, 8)

def frozen():
    return [nn.Linear(8, 8), Frozen(8), Residual()], lambda y: y.pow(2).mean(), torch.randn(4, 8)

class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x):
        return self.layer(torch.tanh(self.layer(x)))

def twice():
    return [nn.Linear(8, 8), Twice()], lambda y: y.pow(2).mean(), torch.randn(4, 8)

class Split(nn.Module):
    def forward(self, x):
        return torch.tanh(x), torch.sigmoid(x)

class Join(nn.Module):
    def forward(self, pair):
        return pair[0] * pair[1]

def pair():
    return [nn.Linear(8, 8), Split(), Join()], lambda y: y.pow(2).mean(), torch.randn(4, 8)

class Fork(nn.Module):
    def forward(self, x):
        return {"main": torch.tanh(x), "more": [torch.sigmoid(x)]}

class Pass(nn.Module):
    def forward(self, boundary):
        return {**boundary, "main": -boundary["main"]}

class Meet(nn.Module):
    def forward(self, boundary):
        return boundary["main"] * boundary["more"][0]

def skip():
    return [nn.Linear(8, 8), Fork(), Pass(), Meet()], lambda y: y.pow(2).mean(), torch.randn(4, 8)

class Hidden(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.hidden = x.clone()  # autograd does not know of it
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        return 2 * ctx.hidden * gradient

class Secret(nn.Module):
    def forward(self, x):
        return Hidden.apply(x)

def hidden():
    return [nn.Linear(8, 8), Secret()], lambda y: y.pow(2).mean(), torch.randn(4, 8)

class Aside(nn.Module):
    def forward(self, x):
        self.aside = torch.tanh(x)  # saved by a node that no gradient reaches
        return 2 * x

def unseen():
    return [nn.Linear(8, 8), Aside()], lambda y: y.pow(2).mean(), torch.randn(4, 8)

def pictures():
    torch.manual_seed(0)
    body = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Conv2d(4, 5, 1))
    head = nn.Sequential(nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(5 * 4 * 4, 6))
    targets = torch.tensor([1, 2])
    return [body, head], lambda y: nn.functional.cross_entropy(y, targets), torch.randn(2, 3, 8, 8)

def no_loss():
    return [nn.Linear(8, 8)], lambda y: y, torch.randn(4, 8)

in_place = nn.Sequential(nn.Linear(8, 8), nn.ReLU(inplace=True))
sequential = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
two = (sequential, None)
no_model = 3
"""

SMALL_GPT = ("--layers", "2", "--width", "16", "--heads", "2", "--sequence", "8", "--vocabulary", "50", "--batch", "2")


def run(*arguments):
    return subprocess.run([sys.executable, PROGRAM, *arguments], capture_output=True, text=True, check=False)


def measured_traces(kind):
    """Traces of data/ that this exporter measured, recognizable by the peaks in source.check."""
    for name in sorted(os.listdir(os.path.join(HERE, "data"))):
        if name.endswith("_cpu.json"):
            with open(os.path.join(HERE, "data", name), encoding="utf-8") as file:
                trace = json.load(file)
            if trace["kind"] == kind and "plain_iteration_peak_bytes" in trace["source"].get("check", {}):
                yield name, trace


def store_all_peak(trace):
    """The peak that the fields promise when nothing is dropped, above parameters and input."""
    live, peak, with_gradient, output_gradient = 0, 0, set(), 0
    for stage in trace["stages"]:
        peak = max(peak, live + stage["saved_bytes"] + stage["forward_workspace_bytes"])
        live += stage["saved_bytes"]
    for stage in reversed(trace["stages"]):
        new = set(stage["parameters"]) - with_gradient
        with_gradient |= new
        made = stage["input_gradient_bytes"] + sum(trace["parameters"][i]["bytes"] for i in new)
        peak = max(peak, live + made + stage["backward_workspace_bytes"])
        live += made - stage["saved_bytes"] - output_gradient
        output_gradient = stage["input_gradient_bytes"]
    return peak


def plain_peak(trace, new_gradients):
    """The peak that the fields promise of plain training, of a chain with one tensor a boundary, above parameters, input
    and existing gradients: a boundary tensor dies when neither backward beside it reads it any more."""
    stages, with_gradient, live, peak = trace["stages"], set(), 0, 0
    inner = [stage["saved_bytes"] - stage["output_bytes"] for stage in stages]
    lives = [stage["keeps_output"] or after["keeps_input"] for stage, after in zip(stages, stages[1:])] + [False]
    workspace = "backward_released_workspace_bytes" if new_gradients else "backward_accumulate_released_workspace_bytes"
    for k, stage in enumerate(stages):
        peak = max(peak, live + stage["saved_bytes"] + stage["forward_workspace_bytes"])
        before = stages[k - 1]["output_bytes"] if k > 0 and not lives[k - 1] else 0
        live += stage["saved_bytes"] - before
    for k, stage in reversed(list(enumerate(stages))):
        new = set(stage["parameters"]) - with_gradient if new_gradients else set()
        with_gradient |= new
        made = stage["input_gradient_bytes"] + sum(trace["parameters"][i]["bytes"] for i in new)
        peak = max(peak, live + made + stage[workspace])
        after = stages[k + 1] if k + 1 < len(stages) else {"keeps_input": False, "input_gradient_bytes": 0}
        live += made - inner[k] - after["input_gradient_bytes"]
        live -= stage["output_bytes"] if stage["keeps_output"] else 0
        live -= stages[k - 1]["output_bytes"] if k > 0 and stage["keeps_input"] and not stages[k - 1]["keeps_output"] else 0
    return peak


def freed_after_last_use_peak(trace):
    """The peak of an op graph whose storages die with the last op that touches them, above parameters and input."""
    tensors, last, size = trace["tensors"], {}, {}
    for k, op in enumerate(trace["ops"]):
        for i in op["inputs"] + op["outputs"]:
            last[tensors[i]["storage"]] = k
            size[tensors[i]["storage"]] = tensors[i]["bytes"]
    born = {t["storage"] for t in tensors if t["kind"] in ("input", "parameter")}
    stays = born | {t["storage"] for t in tensors if t["kind"] == "parameter_gradient"}
    live = peak = 0
    for k, op in enumerate(trace["ops"]):
        new = {tensors[i]["storage"] for i in op["outputs"]} - born
        born |= new
        live += sum(size[s] for s in new)
        peak = max(peak, live + op["workspace_bytes"])
        live -= sum(size[s] for s in {tensors[i]["storage"] for i in op["inputs"] + op["outputs"]} - stays if last[s] == k)
    return peak


class WithFolder(unittest.TestCase):
    traces = {}

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.model = os.path.join(cls.folder.name, "user_model.py")
        with open(cls.model, "w", encoding="utf-8") as file:
            file.write(USER_MODEL)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def trace(self, name, *options, counter="sweep"):
        """The trace of one of USER_MODEL's functions, or of the built-in gpt; measured once for each set of options."""
        key = (name, counter, *options)
        if key not in self.traces:
            output = os.path.join(self.folder.name, "trace.json")
            model = name if name == "gpt" else f"{self.model}:{name}"
            self.measure("--model", model, "--repetitions", "2", "--memory-counter", counter, "-o", output, *options)
            with open(output, encoding="utf-8") as file:
                self.traces[key] = json.load(file)
        return self.traces[key]

    def measure(self, *arguments):
        """The exact counter must be loaded when a process begins; the portable one works here, which is quicker."""
        if "malloc" in arguments:
            done = run(*arguments)
            self.assertEqual(done.returncode, 0, done.stderr)
        else:
            with contextlib.redirect_stderr(io.StringIO()):
                export_pytorch.export(export_pytorch.command_line().parse_args(arguments))


@unittest.skipIf(torch is None, NO_TORCH)
class ChainTrace(WithFolder):
    def check_small_network(self, trace):
        """x (3, 10) -> linear, ReLU (3, 20) -> linear, sigmoid, tanh (3, 5) -> exp, sum; 4 bytes an element."""
        first, second, loss = trace["stages"]
        self.assertEqual(trace["input_bytes"], 3 * 10 * 4)
        # The ReLU keeps its result, which is the output; the sum before it dies.
        self.assertEqual((first["output_bytes"], first["saved_bytes"]), (3 * 20 * 4, 3 * 20 * 4))
        self.assertEqual(first["forward_workspace_bytes"], 3 * 20 * 4)
        self.assertEqual(first["input_gradient_bytes"], 0)
        # Tanh keeps the output, sigmoid its result.
        self.assertEqual((second["output_bytes"], second["saved_bytes"]), (3 * 5 * 4, 2 * 3 * 5 * 4))
        self.assertEqual(second["input_gradient_bytes"], 3 * 20 * 4)
        # exp keeps its result; the loss itself is 4 bytes.
        self.assertEqual((loss["output_bytes"], loss["saved_bytes"]), (0, 3 * 5 * 4 + 4))
        self.assertEqual(loss["input_gradient_bytes"], 3 * 5 * 4)
        self.assertEqual([p["bytes"] for p in trace["parameters"]], [10 * 20 * 4, 20 * 4, 20 * 5 * 4, 5 * 4])
        self.assertEqual([s["parameters"] for s in trace["stages"]], [[0, 1], [2, 3], []])
        self.assertEqual([s["keeps_input"] for s in trace["stages"]], [True, True, False])
        self.assertEqual([s["keeps_output"] for s in trace["stages"]], [True, True, False])
        self.assertEqual([s["forward_flops"] for s in trace["stages"]], [2 * 3 * 10 * 20, 2 * 3 * 20 * 5, 0])
        self.assertEqual([s["backward_flops"] for s in trace["stages"]], [2 * 3 * 10 * 20, 2 * 2 * 3 * 20 * 5, 0])
        # The first linear reads x, weight, bias and writes the sum; the ReLU reads and writes 240 bytes.
        self.assertEqual(first["forward_bytes_moved"], 120 + 800 + 80 + 240 + 2 * 240)
        self.assertEqual(trace["source"]["check"]["identity"], "exact on all stages")

    def check_weight_parts(self, trace, expected):
        """(all that stays, of it made by the input's part, output's gradient, input, output) of each stage."""
        keys = ("weight_saved_bytes", "weight_made_bytes", "weight_keeps_gradient", "weight_keeps_input", "weight_keeps_output")
        self.assertEqual([tuple(stage[key] for key in keys) for stage in trace["stages"]], expected)

    def test_what_stays_for_the_weights_of_a_small_network_is_that_computed_by_hand(self):
        # Nothing needs the gradient of the input: all of the first backward is for the weights. Of the second, the linear op needs
        # its input and the gradient behind it, which the input's part makes out of that of the output.
        trace = self.trace("small")
        self.check_weight_parts(trace, [(0, 0, True, True, True), (60, 60, False, True, False), (0, 0, False, False, False)])
        self.assertEqual(trace["stages"][2]["backward_weight_s"], 0)
        self.assertGreater(trace["stages"][0]["backward_weight_s"], 0)

    def test_a_frozen_layer_has_no_part_for_weights(self):
        trace = self.trace("frozen")
        self.check_weight_parts(trace, [(0, 0, True, True, True)] + 3 * [(0, 0, False, False, False)])
        self.assertEqual([stage["backward_weight_s"] for stage in trace["stages"][1:]], [0, 0, 0])

    def test_what_stays_for_the_weights_of_a_gpt_is_that_computed_by_hand(self):
        row, statistics = 2 * 8 * 16 * 4, 2 * 2 * 8 * 4  # (batch, sequence, width), and a norm's mean and deviation
        # Attention: norm, qkv (3 wide) and projection save what they read; made behind the norm and behind qkv.
        # Mlp: the same with 4 wide. The last gradient of both is that of the output, for they end in a sum.
        attention = (6 * row + statistics, 4 * row, True, True, False)
        mlp = (10 * row + statistics, 5 * row, True, True, False)
        head = (2 * row + statistics, row, True, True, False)
        self.check_weight_parts(self.trace("gpt", *SMALL_GPT, counter="malloc"),
                                [(0, 0, True, True, True), *2 * [attention, mlp], head, (0, 0, False, False, False)])

    def check_part_workspaces(self, trace, expected):
        """(of the input's part, of the weights' part, of that with existing gradients) of each stage."""
        keys = [f"backward_{part}_workspace_bytes" for part in ("input", "weight", "weight_accumulate")]
        self.assertEqual([tuple(stage.get(key) for key in keys) for stage in trace["stages"]], expected)

    def test_workspaces_of_the_two_parts_of_a_small_network_are_those_computed_by_hand(self):
        # First: all is for the weights, and the whole backward makes the gradient behind the ReLU (240) and weight and bias (880).
        # Second: when the linear op's turn comes tanh's gradient is gone; weight and bias (420) come out of one operation. exp's
        # gradient reads that of the sum, an expanded 4 bytes.
        for counter in ("malloc", "sweep"):
            self.check_part_workspaces(self.trace("small", counter=counter), [(0, 240, 240 + 880), (0, 0, 420), (4, 0, 0)])

    def test_workspaces_of_the_two_parts_of_a_gpt_are_those_computed_by_hand(self):
        # Attention: the gradient that comes back through the norm, beside its sum with that of the residual. Mlp: GELU reads and
        # makes 4 rows, of the 8 are 5 kept for the weights and 1 is the result. A norm's kernel has a buffer for its weights' gradients.
        row, norm = 2 * 8 * 16 * 4, 2 * 16 * 4
        attention, mlp = (row, norm, (16 + 1) * 3 * 16 * 4), (2 * row, norm, (16 + 1) * 4 * 16 * 4)
        trace = self.trace("gpt", *SMALL_GPT, counter="malloc")
        whole = [(0, stage["backward_workspace_bytes"], stage["backward_accumulate_workspace_bytes"]) for stage in trace["stages"]]
        logits = 2 * 8 * 50 * 4
        self.check_part_workspaces(trace, [whole[0], *2 * [attention, mlp], (0, norm, 50 * 16 * 4), (logits + 4, 0, 0)])

    def test_of_operations_that_share_a_parameter_only_the_inputs_part_has_a_workspace(self):
        trace = self.trace("twice")
        # 128 B each: kept are both gradients that reach the linear op, so tanh's and the result's leave nothing over. The
        # loss makes the sum's 4, the mean's, and two products before the result.
        self.check_part_workspaces(trace, [(0, 0, 288), (0, None, None), (4 + 3 * 128, 0, 0)])

    def test_saved_tensors_that_no_node_shows_leave_what_stays_for_the_weights_unknown(self):
        trace = self.trace("unseen", "--no-identity-check")
        for key in ("weight_saved_bytes", "backward_input_workspace_bytes"):
            self.assertEqual([key in stage for stage in trace["stages"]], [True, False, True])
        self.assertEqual(trace["source"]["weight_saved_bytes_not_known_of"], ["stage1"])

    def test_bytes_of_a_small_network_are_those_computed_by_hand(self):
        self.check_small_network(self.trace("small", counter="malloc"))

    def test_the_portable_counter_finds_the_same_bytes(self):
        self.check_small_network(self.trace("small", counter="sweep"))

    def test_a_last_stage_is_the_loss_and_every_required_field_is_there(self):
        trace = self.trace("small")
        self.assertEqual((trace["format"], trace["kind"], trace["source"]["kind"]), ("plimsoll.trace.v1", "chain", "measured"))
        for stage in trace["stages"]:
            self.assertGreaterEqual(stage["saved_bytes"], stage["output_bytes"])
            self.assertTrue(all(stage[key] >= 0 for key in stage if key.endswith(("_s", "_bytes", "_flops", "_moved"))
                                and "_released_" not in key))
        self.assertEqual(trace["stages"][-1]["output_bytes"], 0)
        self.assertEqual(trace["boundaries"], [[0], [1], [2], []])
        self.assertEqual([t["bytes"] for t in trace["tensors"]], [120, 240, 60])

    def test_tied_parameters_are_one_id_in_several_stages(self):
        trace = self.trace("tied")
        self.assertEqual(trace["parameters"], [{"name": "stage0.weight", "bytes": 8 * 8 * 4}])
        self.assertEqual([s["parameters"] for s in trace["stages"]], [[0], [], [0], []])

    def test_a_frozen_layer_has_no_parameter_gradient_and_does_not_keep_its_input(self):
        trace = self.trace("frozen")
        _, frozen, residual, _ = trace["stages"]
        self.assertEqual(frozen["parameter_gradient_bytes"], 0)
        self.assertFalse(frozen["keeps_input"])
        self.assertEqual(residual["saved_bytes"], residual["output_bytes"])
        self.assertFalse(residual["keeps_input"] or residual["keeps_output"])

    def test_a_tuple_boundary_lists_each_tensor(self):
        trace = self.trace("pair")
        self.assertEqual(trace["boundaries"], [[0], [1], [2, 3], [4], []])
        self.assertEqual(trace["stages"][1]["output_bytes"], 2 * 4 * 8 * 4)
        self.assertEqual(trace["stages"][2]["input_gradient_bytes"], 2 * 4 * 8 * 4)

    def test_what_passes_a_stage_by_is_one_tensor_with_one_gradient(self):
        """x (4, 8) -> linear -> tanh, sigmoid -> minus the tanh -> product; every tensor has 128 bytes."""
        trace = self.trace("skip", counter="malloc")
        self.assertEqual(trace["boundaries"], [[0], [1], [2, 3], [4, 3], [5], []])
        self.assertEqual([s["kept_tensors"] for s in trace["stages"]], [[0], [2, 3], [], [3, 4], [5]])
        self.assertEqual([s["gradient_tensors"] for s in trace["stages"]], [[], [1], [2], [3, 4], [5]])
        self.assertEqual([s["output_bytes"] for s in trace["stages"]], [128, 256, 256, 128, 0])
        self.assertEqual([s["saved_bytes"] for s in trace["stages"]], [128, 256, 256, 128, 4])
        self.assertEqual([s["input_gradient_bytes"] for s in trace["stages"]], [0, 128, 256, 256, 128])
        self.assertEqual([t.get("gradient_bytes", t["bytes"]) for t in trace["tensors"]], [0, 128, 128, 128, 128, 128])
        self.assertEqual(trace["source"]["check"]["identity"], "exact on all stages")

    def test_shared_parameters_say_which_stages_contribute_in_which_order(self):
        shared, = self.trace("tied")["shared"]
        self.assertEqual((shared["parameter"], shared["stages"]), (0, [2, 0]))
        if torch.__version__.startswith("1.13"):
            self.assertEqual(shared["sum"], "out_of_place")

    def test_released_workspaces_give_back_the_peak_of_plain_training(self):
        trace = self.trace("gpt", *SMALL_GPT, counter="malloc")
        check = trace["source"]["check"]
        for key, gradients in (("plain_iteration_peak_bytes", True), ("plain_accumulate_peak_bytes", False)):
            promised = plain_peak(trace, gradients)
            self.assertGreaterEqual(promised, check[key])
            if not trace["source"]["workspaces_clamped_to_zero"]:
                self.assertEqual(promised, check[key])

    def test_the_fields_give_back_the_measured_peak_of_a_small_gpt(self):
        trace = self.trace("gpt", *SMALL_GPT, counter="malloc")
        self.assertEqual(trace["source"]["check"]["identity"], "exact on all stages")
        self.assertEqual(trace["stages"][-2]["forward_flops"], 2 * (2 * 8) * 16 * 50)
        promised, measured = store_all_peak(trace), trace["source"]["check"]["stagewise_peak_bytes"]
        self.assertGreaterEqual(promised, measured)
        if not trace["source"]["workspaces_clamped_to_zero"]:
            self.assertEqual(promised, measured)

    def test_uses_of_saved_tensors_are_those_of_the_layers(self):
        trace = self.trace("pictures")
        picture = 2 * 8 * 8 * 4  # bytes of a channel of both pictures
        lists = [[(tensor["bytes"], sorted(tensor["uses"])) for tensor in stage["saved_tensors"]] for stage in trace["stages"]]
        self.assertEqual(lists[0], [(4 * picture, ["bn.input"]), (16, ["bn.output"]), (16, ["bn.output"]),
                                    (4 * picture, ["conv1x1.input", "relu.output"])])
        self.assertEqual(lists[1], [(5 * picture, ["pool.shape", "relu.output"]), (2 * 5 * 4 * 4 * 8, ["pool.output"]),
                                    (2 * 5 * 4 * 4 * 4, ["linear.input"])])
        self.assertEqual([use for _, uses in lists[2] for use in uses], ["loss.input", "loss.output", "loss.output"])  # log-probabilities, weight
        self.assertEqual([stage.get("boundary_uses") for stage in trace["stages"]],
                         [[{"tensor": 0, "uses": ["conv3x3.input"]}], None, None])
        self.assertEqual([tensor["shape"] for tensor in trace["stages"][1]["saved_tensors"]],
                         [[2, 5, 8, 8], [2, 5, 4, 4], [2, 80]])

    def test_listed_tensors_add_up_to_what_hooks_count_in_plain_training(self):
        for name in ("small", "pictures", "twice", "pair", "skip"):
            trace, names = self.trace(name), {}
            exec(USER_MODEL, names)  # the models of this file
            stages, loss, x = names[name]()
            modules = [stage[1] if isinstance(stage, tuple) else stage for stage in stages]
            apart = {p.data_ptr() for module in modules for p in [*module.parameters(), *module.buffers()]}
            saved = {}

            def count(tensor):
                storage = tensor.storage()
                if storage.data_ptr() not in apart:
                    saved[storage.data_ptr()] = len(storage) * tensor.element_size()
                return tensor

            with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
                value = x
                for module in modules:
                    value = module(value)
                value = loss(value)
            inner = sum(tensor["bytes"] for stage in trace["stages"] for tensor in stage.get("saved_tensors", []))
            used = {use["tensor"] for stage in trace["stages"] for use in stage.get("boundary_uses", [])}
            total = inner + sum(trace["tensors"][tensor]["bytes"] for tensor in used)
            # The targets of a loss were there before.
            elsewhere = sum(trace["source"].get("saved_but_alive_before_and_not_counted_bytes", {}).values())
            with self.subTest(name):
                self.assertEqual(total + elsewhere, sum(saved.values()))

    def test_bytes_measured_again_leave_times_and_work_as_they_were(self):
        before = json.loads(json.dumps(self.trace("small")))
        truth = json.loads(json.dumps(before["stages"]))
        for stage in before["stages"]:
            stage["backward_s"] += 1
            stage["saved_bytes"] += 4
            stage["kept_tensors"] = [0]
            del stage["backward_released_workspace_bytes"]
        old, new = (os.path.join(self.folder.name, name) for name in ("old.json", "new.json"))
        with open(old, "w", encoding="utf-8") as file:
            json.dump(before, file)
        self.measure("--model", f"{self.model}:small", "--memory-counter", "sweep", "--bytes-of", old, "-o", new)
        with open(new, encoding="utf-8") as file:
            after = json.load(file)
        for stage, expected, stated in zip(after["stages"], truth, before["stages"]):
            self.assertEqual(stage, expected | {"backward_s": stated["backward_s"]})
        self.assertEqual(after["source"]["command"], before["source"]["command"])
        self.assertIn("times and work are of the command above", after["source"]["bytes"]["measured_again"])

    def test_bytes_of_another_chain_are_refused(self):
        old = os.path.join(self.folder.name, "of_small.json")
        with open(old, "w", encoding="utf-8") as file:
            json.dump(self.trace("small") | {"name": "tied"}, file)
        with self.assertRaises(UsageError) as raised:
            self.measure("--model", f"{self.model}:tied", "--bytes-of", old, "-o", os.path.join(self.folder.name, "none.json"))
        self.assertIn("--bytes-of: the trace is of another chain: stages: ['first', 'second', 'loss'] in the trace, "
                      "['stage0', 'stage1', 'stage2', 'loss'] in the model", str(raised.exception))

    def test_tensors_hidden_from_autograd_break_the_identity_and_no_trace_is_written(self):
        output = os.path.join(self.folder.name, "hidden.json")
        arguments = ("--model", f"{self.model}:hidden", "--repetitions", "2", "-o", output)
        with self.assertRaises(MeasurementError) as raised:
            self.measure(*arguments)
        self.assertIn("forward of 'stage1' changes live bytes by 256, expected 128", str(raised.exception))
        self.assertEqual(raised.exception.exit_code, 1)
        self.assertFalse(os.path.exists(output))
        self.measure(*arguments, "--no-identity-check")
        self.assertTrue(os.path.exists(output))


@unittest.skipIf(torch is None, NO_TORCH)
class GraphTrace(WithFolder):
    def test_every_tensor_is_made_before_it_is_read_and_every_parameter_has_one_gradient(self):
        trace = self.trace("small", "--graph")
        self.assertEqual(trace["kind"], "graph")
        kinds = [t["kind"] for t in trace["tensors"]]
        made = {i for i, kind in enumerate(kinds) if kind in ("input", "parameter")}
        for op in trace["ops"]:
            self.assertLessEqual(set(op["inputs"]) | set(op["mutates"]), made, op["name"])
            self.assertFalse(set(op["outputs"]) & made, op["name"])
            made |= set(op["outputs"])
        self.assertEqual(len(made), len(trace["tensors"]))
        self.assertEqual(kinds.count("parameter_gradient"), 4)
        self.assertEqual(sorted(t["gradient_of"] for t in trace["tensors"] if t["kind"] == "parameter_gradient"),
                         [i for i, kind in enumerate(kinds) if kind == "parameter"])
        self.assertEqual([op["stage"] for op in trace["ops"]], sorted((o["stage"] for o in trace["ops"] if o["phase"] == "forward"))
                         + sorted((o["stage"] for o in trace["ops"] if o["phase"] == "backward"), reverse=True))


    def test_tensors_freed_after_their_last_use_give_back_the_measured_peak(self):
        trace = self.trace("gpt", "--graph", *SMALL_GPT, counter="malloc")
        measured = trace["source"]["check"]["plain_iteration_peak_bytes"]
        # The caller holds the loss to the end; the graph lets its few bytes go.
        self.assertAlmostEqual(freed_after_last_use_peak(trace), measured, delta=64)


class ShippedTraces(unittest.TestCase):
    def test_the_tensors_of_each_measured_graph_give_back_its_measured_peak(self):
        for name, trace in measured_traces("graph"):
            with self.subTest(trace=name):
                measured = trace["source"]["check"]["plain_iteration_peak_bytes"]
                self.assertAlmostEqual(freed_after_last_use_peak(trace), measured, delta=64)

    def test_the_fields_of_each_measured_chain_give_back_its_measured_peak(self):
        for name, trace in measured_traces("chain"):
            with self.subTest(trace=name):
                promised, measured = store_all_peak(trace), trace["source"]["check"]["stagewise_peak_bytes"]
                self.assertGreaterEqual(promised, measured)
                if not trace["source"]["workspaces_clamped_to_zero"]:
                    self.assertEqual(promised, measured)
                check = trace["source"]["check"]
                self.assertEqual(plain_peak(trace, True), check["plain_iteration_peak_bytes"])
                self.assertEqual(plain_peak(trace, False), check["plain_accumulate_peak_bytes"])


class WrongUsage(WithFolder):
    def refused(self, expected, *arguments):
        done = run(*arguments)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        self.assertIn(expected, done.stderr)

    def test_a_wrong_command_gives_one_line_and_exit_code_2(self):
        output = os.path.join(self.folder.name, "none.json")
        self.refused("--model", "-o", output)
        self.refused("--output", "--model", "mlp")
        self.refused("unrecognized arguments: --bach 8", "--model", "mlp", "--bach", "8", "-o", output)
        self.refused("expected a positive integer, found '-1'", "--model", "mlp", "--batch", "-1", "-o", output)
        self.refused("invalid choice: 'tpu'", "--model", "mlp", "--device", "tpu", "-o", output)
        self.refused("--bytes-of is for chains", "--model", "mlp", "--graph", "--bytes-of", output, "-o", output)
        self.refused("no folder", "--model", "mlp", "-o", "/no/such/folder/trace.json")
        self.assertFalse(os.path.exists(output))

    @unittest.skipIf(torch is None, NO_TORCH)
    def test_a_wrong_model_gives_one_line_and_exit_code_2(self):
        output = ("-o", os.path.join(self.folder.name, "none.json"))
        self.refused("unknown; built in are mlp, gpt, resnet18", "--model", "resnet", *output)
        self.refused("overwrites its input in place", "--model", f"{self.model}:in_place", "--input-shape", "4,8", *output)

    @unittest.skipIf(torch is None, NO_TORCH)
    def test_a_loss_that_is_no_number_is_refused(self):
        with self.assertRaises(UsageError) as raised:
            self.measure("--model", f"{self.model}:no_loss", "-o", os.path.join(self.folder.name, "none.json"))
        self.assertIn("the loss must be one number that some parameter's gradient flows to, found a tensor of shape [4, 8]",
                      str(raised.exception))

    @unittest.skipIf(torch is None, NO_TORCH)
    def test_a_file_without_the_model_is_refused_with_the_reason(self):
        from pytorch_export.models import chain_for
        for name, expected in (("missing.py:build", "no file missing.py"),
                               (f"{self.model}:build", "has no 'build'"),
                               (f"{self.model}:no_model", "expected an nn.Module or a list of modules, found int"),
                               (f"{self.model}:two", "expected (model, loss, input) or (model, loss, input, targets), found a tuple of 2"),
                               (f"{self.model}:sequential", "--input-shape is needed")):
            with self.subTest(model=name), self.assertRaises(UsageError) as raised:
                chain_for(export_pytorch.command_line().parse_args(["--model", name, "-o", "none.json"]))
            self.assertIn(expected, str(raised.exception))

    def test_help_names_the_built_in_models_and_the_options(self):
        done = run("--help")
        self.assertEqual(done.returncode, 0)
        for word in ("resnet50", "--batch", "--device", "my_model.py:build"):
            self.assertIn(word, done.stdout)


@unittest.skipIf(torch is None, NO_TORCH)
class MeasuredTraining(WithFolder):
    def test_three_ways_train_alike_and_checkpointing_runs_the_forwards_twice(self):
        import measure_training
        calls = []
        output = os.path.join(self.folder.name, "training.json")
        options = export_pytorch.command_line().parse_args(
            ["--model", "mlp", "--layers", "3", "--width", "8", "--batch", "4", "--repetitions", "2", "-o", output])
        plain = torch.nn.Linear.forward
        torch.nn.Linear.forward = lambda *arguments: calls.append(1) or plain(*arguments)
        counts = {}
        try:
            from pytorch_export.models import chain_for
            chain = chain_for(options)
            for way in (measure_training.plain, measure_training.checkpointed, measure_training.offloaded):
                calls.clear()
                measure_training.iteration(chain, way, options)
                counts[way.__name__] = len(calls)
        finally:
            torch.nn.Linear.forward = plain
        self.assertEqual(counts, {"plain": 3, "checkpointed": 6, "offloaded": 3})
        with contextlib.redirect_stderr(io.StringIO()):
            self.assertEqual(measure_training.main(["--model", "mlp", "--layers", "3", "--width", "8", "--batch", "4",
                                                    "--repetitions", "2", "-o", output]), 0)
        with open(output, encoding="utf-8") as file:
            measured = json.load(file)
        self.assertEqual(list(measured["ways"]), ["plain", "checkpointed", "offloaded"])
        self.assertEqual(len({way["loss"] for way in measured["ways"].values()}), 1)
        self.assertTrue(all(way["iteration_s"] > 0 for way in measured["ways"].values()))
        from pytorch_export.device_name import this_processor
        self.assertEqual(measured["device"], this_processor())

    def test_what_is_offloaded_goes_through_the_hooks_that_copy_it(self):
        import measure_training
        packed = []
        options = export_pytorch.command_line().parse_args(["--model", "mlp", "--layers", "2", "--width", "8", "-o", "none.json"])
        from pytorch_export.models import chain_for
        chain = chain_for(options)
        usual = torch.autograd.graph.save_on_cpu.__init__

        def counted(hooks, *arguments, **named):
            usual(hooks, *arguments, **named)
            pack = hooks.pack_hook
            hooks.pack_hook = lambda tensor: packed.append(tensor.shape) or pack(tensor)
        torch.autograd.graph.save_on_cpu.__init__ = counted
        try:
            measure_training.iteration(chain, measure_training.plain, options)
            self.assertEqual(packed, [])
            measure_training.iteration(chain, measure_training.offloaded, options)
        finally:
            torch.autograd.graph.save_on_cpu.__init__ = usual
        self.assertGreaterEqual(len(packed), 4)  # inputs and outputs of two layers


@unittest.skipIf(torch is None, NO_TORCH)
class Kept(unittest.TestCase):
    def test_of_reference_networks_autograd_keeps_what_their_graphs_do(self):
        """The same numbers as in tests/traces/framework_graphs_test.cpp."""
        import reference_networks as networks
        expected = {("resmlp_s12", 1, 224): (51787172, 15350872), ("resmlp_s12", 2, 224): (103574340, 15350872),
                    ("resmlp_s24", 2, 224): (204729156, 30020680), ("resmlp_s36", 1, 224): (152941988, 44690488),
                    ("resmlp_s12", 2, 96): (19032900, 14903512), ("deit_ti", 2, 224): (71170964, 5717416),
                    ("deit_s", 2, 224): (141050804, 22050664), ("deit_b", 2, 224): (280810484, 86567656)}
        for (name, batch, size), counted in expected.items():
            with self.subTest(name=name, batch=batch, size=size):
                model = networks.network(name, size)
                self.assertEqual((networks.kept_bytes(model, batch, size), networks.numbers_of(model)), counted)


if __name__ == "__main__":
    if torch is None:
        print(f"most tests are skipped: {NO_TORCH}", file=sys.stderr)
    unittest.main()
