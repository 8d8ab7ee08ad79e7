"""The loops of operations: what ranks with halves compute is what the whole does."""

import collections
import os
import unittest
from unittest import mock

from .loop_models import LOOP_MODELS
from .support import NO_TORCH, WithFolder, torch
from .turns import eleventh

if torch is not None:
    from plimsoll.trace import loops as subject

MODELS = ("rotating", "gathered", "plain", "pictures")
OTHERS = ("sounds", "windows")
NAMES_SIZES = {"slice_backward", "select_backward", "embedding_dense_backward"}  # among their arguments
NOT_CUT = {"embedding", "embedding_dense_backward"}                              # by words: ids are places in the whole table


class Watched(subject.Loops if torch is not None else object):
    """Runs each operation on halves, along all axes that its loop might name."""

    last = None

    def __init__(self, recorder):
        super().__init__(recorder)
        Watched.last, self.checked = self, {}

    def add(self, op, func, args, kwargs, result):
        before = len(self.ops)
        super().add(op, func, args, kwargs, result)
        if len(self.ops) == before or op["kind"].endswith("_"):
            return
        keys = {key for of in subject.LoopText.keys(self.ops[-1]).values() for key in of.values() if key}
        self.checked[id(op)] = {key for key in keys if cut_gives_the_whole(self, self.ops[-1], func, args, kwargs, result, key)}


def half_of(tensor, dims, symbols, key, number):
    """The tensor with one of two halves of an axis: of the key's place in the dimension of its symbol."""
    symbol, place = key
    for d, (of, axes) in enumerate(zip(symbols, dims)):
        if of != symbol or not axes:
            continue
        sizes = [axis.size for axis in subject.leaves_of(axes)]
        parts = tensor.reshape(*tensor.shape[:d], *sizes, *tensor.shape[d + 1:])
        half = sizes[place] // 2
        parts = parts.narrow(d + place, number * half, half)
        shape = list(tensor.shape)
        shape[d] //= 2
        return parts.reshape(shape).contiguous()
    return None


def cut_gives_the_whole(loops, op, func, args, kwargs, result, key):
    """Whether it was cut: some operations name sizes, or places in what is cut."""
    if op.name in NAMES_SIZES or op.name in NOT_CUT and key[0] == "v" or "empty" in op.name or "new_" in op.name:
        return False
    operands, _ = subject.operands_of(op.name, args, kwargs, result)
    outputs = [t for t in (result if isinstance(result, tuple) else (result,)) if isinstance(t, torch.Tensor)]
    dims = {}
    for operand in operands:
        number = loops.number_of(operand.tensor)
        constant = [op.axes(symbol) if size > 1 else [] for symbol, size in zip(operand.symbols, operand.tensor.shape)]
        axes = constant if number is None else loops.storages[number].dims(operand.tensor)
        axes = [repeated if run == [] else run for run, repeated in zip(axes, constant)]
        dims[id(operand.tensor)] = (axes, operand.symbols)
        if number is not None:
            runs = [subject.leaves_of(run) for symbol, run in zip(operand.symbols, axes) if symbol == key[0] and run]
            if any(run[key[1]].size % 2 for run in runs):
                return False
    if not all(id(t) in dims for t in outputs):
        return False

    def halved(value, number):
        if isinstance(value, (list, tuple)):
            return type(value)(halved(each, number) for each in value)
        if not isinstance(value, torch.Tensor) or id(value) not in dims:
            return value
        half = half_of(value, *dims[id(value)], key, number)
        return value if half is None else half

    parts = []
    for number in (0, 1):
        made = func(*[halved(a, number) for a in args], **{k: halved(v, number) for k, v in kwargs.items()})
        parts.append(made if isinstance(made, tuple) else (made,))
    for place, tensor in ((p, t) for p, t in enumerate(result if isinstance(result, tuple) else (result,)) if t is not None):
        halves = [half_of(tensor, *dims[id(tensor)], key, number) for number in (0, 1)]
        if halves[0] is None:  # partial sums; a mean is one of as many times too large numbers, a bias is added once
            total = parts[0][place] + parts[1][place]
            total = total / 2 if op.name == "mean" else total - args[0] if op.name == "addmm" else total
            torch.testing.assert_close(total, tensor, rtol=1e-4, atol=1e-5, msg=f"{op.op['name']}: sums over {key}")
        for number, half in enumerate(halves):
            if half is not None:
                torch.testing.assert_close(parts[number][place], half, rtol=1e-4, atol=1e-5, msg=f"{op.op['name']} along {key}")
    return True


@unittest.skipIf(torch is None, NO_TORCH)
class Loops(WithFolder):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.file = os.path.join(cls.folder.name, "loop_models.py")
        with open(cls.file, "w", encoding="utf-8") as file:
            file.write(LOOP_MODELS)

    def exported(self, name):
        torch.manual_seed(1)
        return self.measured(f"{self.file}:{name}", "1", "sweep", ("--graph", "--warm-up", "1"))

    @eleventh(1)
    def test_halves_of_every_axis_that_a_loop_names_give_the_whole(self):
        checked = collections.Counter()
        for name in MODELS + OTHERS:
            with mock.patch("plimsoll.trace.graph_trace.Loops", Watched):
                self.exported(name)
            loops = Watched.last
            names = loops.names()
            for op in loops.ops:
                shown = [dim for dims in subject.LoopText(loops, op, names).chosen.values() for dim in dims if dim]
                for axis, key in {key: (axis, key) for axis, key in shown}.values():
                    checked[op.name, names.get(axis, "")] += key in loops.checked.get(id(op.op), ())
        for kind, axis in (("mm", "f"), ("mm", "a"), ("mm", "b"), ("bmm", "a"), ("_softmax", "a"), ("silu", "f"), ("cat", "a"), ("rsqrt", "b"),
                           ("pow", "w"), ("mean", "w"), ("clone", "a"), ("gelu", "f"), ("addmm", "f"), ("gather", "b"), ("stack", "a"),
                           ("convolution", "b"), ("convolution_backward", "b")):
            self.assertGreater(checked[kind, axis], 0, f"{kind} was never cut along '{axis}'")

    @eleventh(5)
    def test_names_say_what_dimensions_are_for(self):
        for name in MODELS:
            trace = self.exported(name)
            loops = collections.defaultdict(list)
            for op in trace["ops"]:
                if op["phase"] != "update" and "convolution" not in op["kind"]:
                    loops[op["kind"], op["phase"]].append(op["attributes"]["loop"])
            with self.subTest(name):
                self.assertEqual({loop.split()[1] for loop in loops["_softmax", "forward"]}, {"a"})
                self.assertEqual({loop.split()[0] for loop in loops["_softmax_backward_data", "backward"]}, {"b"})
                inner = [loop for kind in ("mm", "addmm") for loop in loops[kind, "forward"] if "f" in loop.split()]
                self.assertEqual(len(inner), 6 if name in ("rotating", "gathered") else 4)
                heads = [loop for kind in ("mm", "addmm") for loop in loops[kind, "forward"] if "a*" in loop]
                self.assertEqual(len(heads), 8 if name in ("rotating", "gathered") else 4)
                if name != "pictures":
                    self.assertEqual(set(loops["_softmax", "forward"]), {"b a s - -> b a s -"}, "positions that ask may be cut")
                    self.assertEqual(loops["embedding", "forward"][0], "v w, b s -> b s w")
                    self.assertEqual(loops["mm", "forward"][-1], "b s w, v w -> b s v")

    @unittest.skipUnless(hasattr(torch and torch.nn.functional, "scaled_dot_product_attention"), "this torch has no fused attention")
    def test_heads_of_a_fused_attention_are_heads(self):
        trace = self.exported("fused")
        loops = {op["attributes"]["loop"].split("->")[1].split(",")[0].split()[:2] == ["b", "a"] for op in trace["ops"]
                 if "scaled_dot_product" in op["kind"] and op["phase"] == "forward"}
        self.assertEqual(loops, {True})

    def test_heads_are_no_windows(self):
        trace = self.exported("windows")
        softmax = next(op for op in trace["ops"] if op["kind"] == "_softmax")
        shape, loop = trace["tensors"][softmax["outputs"][0]]["shape"], softmax["attributes"]["loop"].split("->")[1].split()
        self.assertEqual((shape, loop[loop.index("a")], loop.index("a")), ([4, 2, 2, 3, 3], "a", 2))

    def test_gradients_have_their_parameters_shapes(self):
        trace = self.exported("plain")
        for tensor in trace["tensors"]:
            if tensor["kind"] == "parameter_gradient":
                self.assertEqual(tensor["shape"], trace["tensors"][tensor["gradient_of"]]["shape"])
