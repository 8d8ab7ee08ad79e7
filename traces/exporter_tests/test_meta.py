"""Op graphs of models without memory: the same as where the model really runs."""

import os
import unittest

from .support import MODELS, NO_TORCH, SMALL_GPT, WithFolder, bytes_saved_by_hooks, run, torch
from .user_models import USER_MODEL

MEASURED_ALONE = ("time_s", "workspace_bytes")


def without(op, *keys):
    return {key: value for key, value in op.items() if key not in keys}


def kept_bytes(trace):
    """Of what forwards make and backwards read, by storage."""
    tensors = trace["tensors"]
    made = {i for op in trace["ops"] if op["phase"] == "forward" for i in op["outputs"]}
    read = {i for op in trace["ops"] if op["phase"] == "backward" for i in op["inputs"]}
    return sum({tensors[i]["storage"]: tensors[i]["bytes"] for i in made & read}.values())


def by_name(trace):
    """Operations, and {name of a parameter: what is said of it}, with names in the place of parameters' numbers."""
    tensors = trace["tensors"]
    name = lambda i: tensors[i]["name"] if tensors[i]["kind"] == "parameter" else i
    ops = [without(op, *MEASURED_ALONE, "name", "stage") | {"inputs": [name(i) for i in op["inputs"]]} for op in trace["ops"]]
    rest = [without(tensor, "name") | ({"gradient_of": name(tensor["gradient_of"])} if "gradient_of" in tensor else {})
            for tensor in tensors if tensor["kind"] != "parameter"]
    return ops, rest, {tensor["name"]: without(tensor, "storage") for tensor in tensors if tensor["kind"] == "parameter"}


@unittest.skipIf(torch is None, NO_TORCH)
class MetaTrace(WithFolder):
    def test_modules_in_a_row_give_the_graph_of_a_real_iteration(self):
        for name, options in (("gpt", SMALL_GPT), ("gpt", (*SMALL_GPT, "--dropout", "0.1", "--amp", "bf16")), ("small", ()), ("once", ())):
            with self.subTest(name, options=options):
                meta, measured = self.trace(name, "--graph", "--meta", *options), self.trace(name, "--graph", *options)
                self.assertEqual([without(op, "workspace_bytes") for op in meta["ops"]], [without(op, *MEASURED_ALONE) for op in measured["ops"]])
                self.assertEqual(meta["tensors"], measured["tensors"])
                self.assertEqual(meta["source"]["buffers_changed"], measured["source"]["buffers_changed"])
                self.assertEqual({op["workspace_bytes"] for op in meta["ops"]}, {0})

    def test_any_other_model_has_the_same_operations(self):
        """Stages order their parameters, which have the same names."""
        meta, measured = (by_name(self.trace_of(f"{MODELS}:unet", "--graph", *more)) for more in (("--meta",), ()))
        self.assertEqual(meta, measured)

    def test_stages_of_any_other_model_are_the_modules_of_its_lists(self):
        parts = {"forward": {}, "backward": {}}
        trace = self.trace_of(f"{MODELS}:encoder_decoder", "--graph", "--meta")
        names, tensors = trace["source"]["stages"], trace["tensors"]
        for op in trace["ops"]:
            for i in op["inputs"] if op["phase"] == "forward" else op["outputs"]:
                i = i if op["phase"] == "forward" else tensors[i].get("gradient_of", i)
                if tensors[i]["kind"] == "parameter":
                    parts[op["phase"]].setdefault(names[op["stage"]], set()).add(tensors[i]["name"])
        # Names of parameters say in which module they are.
        layers = ["encoder.0", "encoder.1", "decoder.0", "decoder.1"]
        self.assertEqual(names, ["model", *layers[:2], *layers[2:], "behind decoder.1"])
        for phase, found in parts.items():
            self.assertEqual(found["model"], {"source.weight", "target.weight"}, phase)
            self.assertEqual(found["behind decoder.1"], {"head.weight", "head.bias"}, phase)
            for layer in layers:
                self.assertTrue(len(found[layer]) >= 12 and all(name.startswith(f"{layer}.") for name in found[layer]), (phase, layer, found[layer]))
        self.assertEqual([op["stage"] for op in trace["ops"] if op["phase"] == "forward"],
                         sorted(op["stage"] for op in trace["ops"] if op["phase"] == "forward"))
        # A U-Net's lists of blocks, and of convolutions between them; what pools between blocks is of none.
        named = self.trace_of(f"{MODELS}:unet", "--graph", "--meta")["source"]["stages"]
        self.assertEqual(named[:3], ["down.0", "behind down.0", "down.1"])
        self.assertEqual(named[-2:], [name for name in named if name.startswith(("up", "behind up"))][-2:])

    def test_what_backwards_read_is_what_hooks_count_where_the_model_runs(self):
        from plimsoll.torch.outside import storages_seen_by_python  # needs torch

        for name in ("small", "pictures", "twice", "pair", "skip"):
            names = {}
            exec(USER_MODEL, names)  # the models of this file
            stages, loss, x = names[name]()
            modules = [stage[1] if isinstance(stage, tuple) else stage for stage in stages]
            apart = {tensor.data_ptr() for module in modules for tensor in [*module.parameters(), *module.buffers()]} | {x.data_ptr()}
            there = storages_seen_by_python()  # targets of a loss
            saved = bytes_saved_by_hooks(modules, loss, x, apart | set(there))
            with self.subTest(name):
                self.assertEqual(kept_bytes(self.trace(name, "--graph", "--meta")), saved)

    def test_a_model_larger_than_any_memory_has_a_graph(self):
        trace = self.trace("gpt", "--graph", "--meta", "--layers", "2", "--width", "65536", "--heads", "64", "--sequence", "8", "--vocabulary", "64")
        parameters = sum(tensor["bytes"] for tensor in trace["tensors"] if tensor["kind"] == "parameter") // 4
        # Of a layer four products of width by width and two by four widths, 13 biases and norms of a width; the table, positions, the last norm.
        self.assertEqual(parameters, 2 * (12 * 65536**2 + 13 * 65536) + (64 + 8 + 2) * 65536)

    def test_what_asks_for_numbers_or_measurements_is_refused(self):
        path, output = os.path.join(self.folder.name, "asks.py"), os.path.join(self.folder.name, "none.json")
        with open(path, "w", encoding="utf-8") as file:
            file.write("import torch\n\n\nclass Asks(torch.nn.Linear):\n    def forward(self, x):\n"
                       "        return super().forward(x) * x.sum().item()\n\n\n"
                       "def build():\n    return Asks(4, 4), lambda y: y.sum(), torch.randn(2, 4)\n")
        for expected, more in (("--meta writes operations: give --graph, too", ("--model", "mlp", "--meta")),
                               ("--meta measures nothing on a device: leave --optimizer out", ("--model", "mlp", "--meta", "--graph", "--optimizer", "sgd")),
                               ("the model does not run on shapes alone: ", ("--model", f"{path}:build", "--graph", "--meta"))):
            done = run(*more, "-o", output)
            self.assertEqual((done.returncode, len(done.stderr.splitlines())), (2, 1), done.stderr)
            self.assertIn(expected, done.stderr)
        self.assertFalse(os.path.exists(output))
