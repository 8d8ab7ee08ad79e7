"""Graphs with more layers than were run: those of whole exports."""

import os
import re
import unittest

from .support import MODELS, NO_TORCH, WithFolder, run, torch

GPT = ("--width", "16", "--heads", "2", "--sequence", "8", "--vocabulary", "50", "--batch", "2", "--dropout", "0.1")


LISTS = f'''
import importlib.util

import torch

spec = importlib.util.spec_from_file_location("models", "{MODELS}")
models = importlib.util.module_from_spec(spec)
spec.loader.exec_module(models)
WORDS, Gpt, cross_entropy = models.WORDS, models.Gpt, models.cross_entropy


class ByTurns(Gpt):
    def forward(self, tokens):
        masks = [torch.ones(8, 8, dtype=torch.bool).triu(k) for k in (1, 2)]
        x = self.tokens(tokens)
        for k, block in enumerate(self.blocks):
            x = block(x, masks[k % 2])
        return self.head(self.norm(x))


def words():
    return torch.randint(WORDS, (2, 8))


def of(kind, layers):
    return lambda: (kind(layers=layers, width=16, heads=2, length=8), cross_entropy, words(), words())


two, three, six = (of(Gpt, layers) for layers in (2, 3, 6))
turns4, turns6, turns8 = (of(ByTurns, layers) for layers in (4, 6, 8))
'''


def loop_of(op):
    """With axes named in the order in which the operation has them."""
    names = {}
    return re.sub("[a-z][0-9]*", lambda found: names.setdefault(found.group(), f"axis{len(names)}"), op.get("attributes", {}).get("loop", ""))


def canonical(trace):
    """Operations, and tensors in the order in which these name them; without names and measured times."""
    numbers, storages = {}, {}
    number = lambda i: numbers.setdefault(i, len(numbers))
    ops = [{key: value for key, value in op.items() if key not in ("name", "time_s", "attributes")} | {"loop": loop_of(op)}
           | {key: [number(i) for i in op[key]] for key in ("inputs", "outputs", "saved", "mutates")} for op in trace["ops"]]
    tensors = [trace["tensors"][i] for i in sorted(numbers, key=numbers.get)]
    return ops, [{"kind": tensor["kind"], "bytes": tensor["bytes"], "shape": tensor["shape"], "dtype": tensor["dtype"],
                  "storage": storages.setdefault(tensor["storage"], len(storages)),
                  "gradient_of": number(tensor["gradient_of"]) if "gradient_of" in tensor else None} for tensor in tensors]


@unittest.skipIf(torch is None, NO_TORCH)
class RepeatedLayers(WithFolder):
    def of(self, model, layers, *more):
        return self.measured(model, "1", "sweep", ("--graph", "--layers", str(layers), *more))

    def test_copies_of_a_layer_give_the_graph_of_a_deeper_model(self):
        for meta in ((), ("--meta",)):
            whole = canonical(self.of("gpt", 6, *GPT, *meta))
            for layers in (2, 3):
                with self.subTest(layers=layers, meta=meta):
                    self.assertEqual(canonical(self.of("gpt", layers, *GPT, *meta, "--repeat", "layers=6")), whole)
        # The first layer's input has no gradient: three of four are equal.
        wide = ("--meta", "--width", "8", "--batch", "2")
        self.assertEqual(canonical(self.of("mlp", 4, *wide, "--repeat", "layers=6")), canonical(self.of("mlp", 7, *wide)))

    def test_layers_in_a_list_of_any_other_model_are_found(self):
        path = os.path.join(self.folder.name, "lists.py")
        with open(path, "w", encoding="utf-8") as file:
            file.write(LISTS)
        of = lambda name, *more: self.measured(f"{path}:{name}", "1", "sweep", ("--graph", "--meta", *more))
        whole = canonical(of("six"))
        for name in ("two", "three"):
            self.assertEqual(canonical(of(name, "--repeat", "layers=6")), whole, name)
        # Two masks by turns: a layer is two modules.
        whole = canonical(of("turns8"))
        for name in ("turns4", "turns6"):
            self.assertEqual(canonical(of(name, "--repeat", "layers=4")), whole, name)
        done = run("--model", f"{path}:turns6", "--graph", "--meta", "--repeat", "layers=2", "-o", os.path.join(self.folder.name, "none.json"))
        self.assertEqual(done.stderr, "export_pytorch.py: --repeat layers=2: the model has 3 equal layers in a row\n")

    def test_a_trace_says_how_many_layers_were_run(self):
        trace = self.of("gpt", 2, *GPT, "--meta", "--repeat", "layers=3")
        self.assertEqual(trace["source"]["repeated"], "2 equal layers were run, of 3")
        self.assertEqual(trace["source"]["stages"][3:7], ["block1.attention", "block1.mlp", "block1.attention+1", "block1.mlp+1"])
        self.assertEqual(len({op["name"] for op in trace["ops"]}), len(trace["ops"]))
        self.assertEqual(len({tensor["name"] for tensor in trace["tensors"]}), len(trace["tensors"]))

    def test_what_has_no_equal_layers_is_refused(self):
        output = os.path.join(self.folder.name, "none.json")
        for expected, more in (("--repeat: no two equal layers stand in a row", ("--model", f"{self.model}:small", "--graph", "--meta", "--repeat", "layers=4")),
                               ("--repeat layers=2: the model has 3 equal layers in a row", ("--model", "mlp", "--layers", "4", "--width", "8", "--graph", "--meta",
                                                                                             "--repeat", "layers=2")),
                               ("expected layers=N, found '4'", ("--model", "mlp", "--graph", "--repeat", "4")),
                               ("--repeat is for operations: give --graph, too", ("--model", "mlp", "--repeat", "layers=4")),
                               ("--repeat has no updates: leave --optimizer out", ("--model", "mlp", "--graph", "--optimizer", "sgd", "--repeat", "layers=4"))):
            done = run(*more, "-o", output)
            self.assertEqual((done.returncode, len(done.stderr.splitlines())), (2, 1), done.stderr)
            self.assertIn(expected, done.stderr)
        self.assertFalse(os.path.exists(output))
