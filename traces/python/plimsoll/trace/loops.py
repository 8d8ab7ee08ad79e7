"""What each operation computes as one loop over named dimensions: the attribute `loop` (sim/ops/op_loop.h).

What an operation does with the dimensions of its operands follows from its name and arguments (`OPERANDS`), which of
them are one from the views (axes.py). So strategies that cut operators need not guess from shapes: heads within a row
of numbers, samples within a row of positions. Names that say what a dimension is for are global: b samples, s
positions, w the width between blocks, a heads, f the inner numbers of an MLP, v the words of a vocabulary.
"""

import math

from .axes import Storage, leaves_of, match
from .storages import tensors_in
from .work import operation_name

POINTWISE = set("""abs add add_ addcdiv addcmul bernoulli_ clamp clamp_min clone copy copy_ cos div div_ elu empty_like eq erf
exp fill_ full_like ge gelu gelu_backward gt hardswish hardtanh isneginf le leaky_relu lerp log logical_and logical_not lt
masked_fill masked_fill_ maximum minimum mul mul_ native_dropout native_dropout_backward ne neg ones_like pow reciprocal
relu relu_ rsqrt rsub sigmoid sigmoid_ sigmoid_backward sign silu silu_ silu_backward sin sqrt square sub sub_ tanh
tanh_backward threshold_backward where zero_ zeros_like _to_copy""".split())
BY_TABLE = {"native_batch_norm", "native_batch_norm_backward",
            "max_pool2d_with_indices", "max_pool2d_with_indices_backward"}  # of sim/ops/split_rules.cpp
PREFERRED = "bavfsw"


class Operand:
    """A tensor with a symbol for each dimension; equal symbols are one dimension."""

    def __init__(self, tensor, symbols):
        self.tensor, self.symbols = tensor, symbols


def aligned(tensors):
    """Broadcast: dimensions counted from the last."""
    return [Operand(t, [f"d{t.dim() - d}" for d in range(t.dim())]) for t in tensors], ()


def spelled(text, *tensors):
    return [Operand(t, list(word)) for t, word in zip(tensors, text.split()) if t is not None]


def products(name, args, result):
    if name == "mm":
        return spelled("mk kn mn", args[0], args[1], result), ()
    if name == "bmm":
        return spelled("zmk zkn zmn", args[0], args[1], result), ()
    if name == "baddbmm":
        return spelled("zmk zkn zmn", args[1], args[2], result) + [Operand(args[0], list("zmn")[-args[0].dim():])], ()
    return spelled("mk kn mn", args[1], args[2], result) + [Operand(args[0], list("mn")[-args[0].dim():])], ()


def along(tensors, dim):
    """All alike, and whole along one dimension."""
    operands, _ = aligned(tensors)
    return operands, {f"d{tensors[0].dim() - dim % tensors[0].dim()}"}


def reduced(args, kwargs, result, linear):
    x = args[0]
    dims = args[1] if len(args) > 1 else kwargs.get("dim")
    dims = list(range(x.dim())) if dims is None or dims == [] else [dims] if isinstance(dims, int) else dims
    dims = {d % x.dim() for d in dims}
    symbols = [f"d{d}" for d in range(x.dim())]
    keeps = result.dim() == x.dim()
    kept = ["-" if d in dims else symbols[d] for d in range(x.dim()) if keeps or d not in dims]
    return [Operand(x, symbols), Operand(result, kept)], () if linear else {symbols[d] for d in dims}


def norm(name, args, result):
    x, width = (args[0], len(args[1])) if name == "native_layer_norm" else (args[1], len(args[2]))
    outer, inner = [f"o{d}" for d in range(x.dim() - width)], [f"i{d}" for d in range(width)]
    operands = []
    for tensor in tensors_in(list(args)) + tensors_in([result]):
        is_of_rows = tensor.dim() == x.dim() and tuple(tensor.shape[len(outer):]) != tuple(x.shape[len(outer):])
        if tensor.dim() == x.dim():
            operands.append(Operand(tensor, outer + (["-"] * width if is_of_rows else inner)))
        else:
            operands.append(Operand(tensor, inner))
    return operands, set(inner)


def lookup(name, args, result):
    if name == "embedding":
        table, ids, rows = args[0], args[1], result
    else:
        table, ids, rows = result, args[1], args[0]
    places = [f"i{d}" for d in range(ids.dim())]
    return [Operand(table, ["v", "w"]), Operand(ids, places), Operand(rows, places + ["w"])], ()


def pieces(name, args, result):
    """Some numbers of a dimension in a larger one, or several put together along one: that dimension is whole."""
    if name == "stack":
        dim, parts = (args[1] if len(args) > 1 else 0) % result.dim(), args[0]
        symbols = [f"d{d}" for d in range(result.dim())]
        return ([Operand(t, symbols[:dim] + symbols[dim + 1:]) for t in parts] +
                [Operand(result, symbols[:dim] + ["-"] + symbols[dim + 1:])]), ()
    if name == "select_backward":
        dim = args[2] % result.dim()
        symbols = [f"d{d}" for d in range(result.dim())]
        return [Operand(args[0], symbols[:dim] + symbols[dim + 1:]),
                Operand(result, symbols[:dim] + ["-"] + symbols[dim + 1:])], ()
    tensors = list(args[0]) if name == "cat" else [args[0]]
    dim = (args[1] if name == "cat" and len(args) > 1 else args[2] if name == "slice_backward" else 0) % result.dim()
    return [Operand(t, ["-" if d == dim else f"d{d}" for d in range(t.dim())]) for t in tensors + [result]], ()


def picked(args, result):
    """gather and scatter: along their dimension by an index."""
    dim = args[1] % result.dim()
    operands = [Operand(t, ["-" if d == dim else f"d{d}" for d in range(t.dim())]) for t in tensors_in(list(args) + [result])]
    return operands, ()


def negative_log_likelihood(args, result):
    operands = [Operand(t, ["n", "-"]) for t in tensors_in(list(args)) + tensors_in([result]) if t.dim() == 2]
    return operands + [Operand(t, ["n"]) for t in tensors_in(list(args) + [result]) if t.dim() == 1], ()


def attention(args, result):
    """Fused: samples and heads are free, all else is whole."""
    tensors = [t for t in tensors_in(list(args)) + tensors_in([result]) if t.dim() >= 3]
    batch = tensors[0].shape[:2]
    return [Operand(t, (["z", "h"] if t.shape[:2] == batch else ["-", "-"]) + ["-"] * (t.dim() - 2)) for t in tensors], ()


def is_by_table(name, args):
    """Of convolutions those of pictures in one group."""
    if name in ("convolution", "convolution_backward"):
        return args[0].dim() == 4 and args[-1 if name == "convolution" else -2] == 1
    return name in BY_TABLE


def convolved(name, args, result):
    """Samples; of pictures in one group also channels, which are the table's to name."""
    if name == "convolution" and is_by_table(name, args):
        return spelled("bk nk bn", *(Picture(t) for t in (args[0], args[1], result))), ()
    of_samples = [args[0], result] if name == "convolution" else [args[0], args[1], result[0]]
    others = [args[1], args[2]] if name == "convolution" else [args[2], *result[1:]]
    return [Operand(t, ["b"] + ["-"] * (t.dim() - 1)) for t in of_samples if t is not None] + \
        [Operand(t, ["-"] * t.dim()) for t in others if t is not None], ()


def operands_of(name, args, kwargs, result):
    """Operands, and symbols of dimensions that must be whole; None where nobody knows."""
    everything = tensors_in(list(args) + list(kwargs.values())) + tensors_in([result])
    if name in POINTWISE:
        return aligned(everything)
    if name in ("mm", "bmm", "addmm", "baddbmm"):
        return products(name, args, result)
    if name in ("_softmax", "_log_softmax", "_safe_softmax"):
        return along([args[0], result], args[1])
    if name in ("_softmax_backward_data", "_log_softmax_backward_data"):
        return along([args[0], args[1], result], args[2])
    if name in ("sum", "mean", "amax", "amin", "logsumexp"):
        return reduced(args, kwargs, result, name in ("sum", "mean"))
    if name in ("native_layer_norm", "native_layer_norm_backward"):
        return norm(name, args, result)
    if name in ("embedding", "embedding_dense_backward"):
        return lookup(name, args, result)
    if name in ("cat", "stack", "slice_backward", "select_backward"):
        return pieces(name, args, result)
    if name in ("gather", "scatter", "scatter_add", "scatter_add_"):
        return picked(args, result)
    if name in ("nll_loss_forward", "nll_loss_backward"):
        return negative_log_likelihood(args, result)
    if name in ("convolution", "convolution_backward"):
        return convolved(name, args, result)
    if "scaled_dot_product" in name:
        return attention(args, result)
    return None


class Picture:
    """The first two dimensions of a tensor."""

    def __init__(self, tensor):
        self.whole, self.shape = tensor, tensor.shape[:2]
        self.strides = tensor.stride()[:2]

    def dim(self):
        return 2

    def stride(self):
        return self.strides


class NamedOp:
    """An operation's operands by storage, as (symbol, axes of that dimension), and which symbols must be whole."""

    def __init__(self, op, name, operands, whole):
        self.op, self.name, self.operands, self.whole = op, name, operands, set(whole) | {"-"}
        for _, dims in operands:
            self.whole |= {symbol for symbol, axes in dims if axes is None}

    def axes(self, symbol):
        """Of the first operand that has them."""
        for _, dims in self.operands:
            for of, axes in dims:
                if of == symbol and axes:
                    return leaves_of(axes)
        return []


class Loops:
    """Follows a recorder's operations, and gives them their loops when all have been seen."""

    def __init__(self, recorder):
        self.recorder = recorder
        self.storages = {}  # number -> Storage
        self.values = {}    # index of a tensor of the trace -> its dimensions' axes
        self.ops, self.products = [], []

    def add_tensor(self, index, tensor):
        storage = self.storages.setdefault(self.recorder.tensors[index]["storage"], None) or Storage(tensor)
        self.storages[self.recorder.tensors[index]["storage"]] = storage
        self.values[index] = storage.dims(tensor)

    def number_of(self, tensor):
        index = self.recorder.present_value(tensor.whole if isinstance(tensor, Picture) else tensor)
        return None if index is None else self.recorder.tensors[index]["storage"]

    def add(self, op, func, args, kwargs, result):
        name = operation_name(func)
        found = operands_of(name, args, kwargs, result)
        if found is None:
            if not is_by_table(name, args):
                self.ops.append(NamedOp(op, name, [], ()))
            return
        operands = []
        for operand in found[0]:
            number = self.number_of(operand.tensor)
            if number is not None:
                dims = [self.storages[number].dim(*each) for each in zip(operand.tensor.shape, operand.tensor.stride())]
                operands.append((number, list(zip(operand.symbols, dims))))
        named = NamedOp(op, name, operands, found[1])
        self.unite(named)
        if not is_by_table(name, args):
            self.ops.append(named)
        if name in ("mm", "addmm", "bmm"):
            self.products.append((named, any(self.is_parameter(number) for number, _ in operands)))

    def is_parameter(self, number):
        return any(t["storage"] == number and t["kind"] == "parameter" for t in self.recorder.tensors)

    def unite(self, op):
        def may_unite(x, y):
            """Not where one operand has both: it would have one axis twice."""
            for number, _ in op.operands:
                leaves = self.storages[number].leaves()
                if x in leaves and y in leaves:
                    return False
            return True

        first = {}
        for _, dims in op.operands:
            for symbol, axes in dims:
                if not axes or symbol == "-":
                    continue
                if symbol in first:
                    match(first[symbol], axes, may_unite)
                first.setdefault(symbol, axes)

    def is_gradient(self, index, tensor, parameter):
        """The tensor of that index is a parameter's gradient: it has its shape, and its dimensions are the same ones."""
        recorded = self.recorder.tensors[index]
        recorded["shape"], self.values[index] = list(tensor.shape), self.storages[recorded["storage"]].dims(tensor)
        self.same(parameter, index)

    def same(self, parameter, gradient):
        for mine, its in zip(self.values[parameter], self.values[gradient]):
            if mine and its:
                match(mine, its, lambda x, y: True)

    # --- names ---------------------------------------------------------------------------------------------------------

    def names(self):
        """{axis: name} of those that say what they are for."""
        names = {}
        inputs = [self.values[i] for i, t in enumerate(self.recorder.tensors) if t["kind"] == "input"]
        for dims in inputs:
            is_text = len(dims) == 2
            for name, axes in list(zip("bs", dims))[:2 if is_text else 1]:
                for axis in leaves_of(axes or []):
                    names.setdefault(axis, name)
                    for other in axis.other_than if name == "s" else ():  # where attention answers
                        names.setdefault(other.root(), name)
        for op in self.ops:
            if op.name == "native_layer_norm" or op.name == "mean" and not self.is_of_all(op):
                for symbol in {s for _, dims in op.operands for s, _ in dims}:
                    if symbol in op.whole or op.name == "mean" and self.is_reduced(op, symbol):
                        for axis in op.axes(symbol):
                            names.setdefault(axis, "w")
        self.name_blocks(names)
        return names

    @staticmethod
    def is_of_all(op):
        return not op.operands[-1][1]

    @staticmethod
    def is_reduced(op, symbol):
        return symbol not in [s for s, _ in op.operands[-1][1]]

    def name_blocks(self, names):
        """Heads are in the batch of products of values, and made by products with parameters (windows of pictures are in
        the batch, too); inner numbers are made by one such product and read by another, and words are looked up or
        softmaxed at the end."""
        within = set()
        columns = {axis for op, has_parameter in self.products if has_parameter for axis in op.axes("n")}
        for op, has_parameter in self.products:
            if op.name == "bmm" and not has_parameter:
                for axis in [axis for axis in op.axes("z") if axis in columns][:1]:
                    names.setdefault(axis, "a")
                within |= {axis for symbol in "mkn" for axis in op.axes(symbol)}
        for op in self.ops:
            if "scaled_dot_product" in op.name:
                for axis in op.axes("h"):
                    names.setdefault(axis, "a")
        made, read = [], set()
        for op, has_parameter in self.products:
            if has_parameter and op.op["phase"] == "forward":
                made.append(op)
                read |= set(op.axes("k"))
        for op in made:
            if any(names.get(axis) == "f" for axis in op.axes("k")):
                continue
            for axis in op.axes("n"):
                if axis in read and axis not in within:
                    names.setdefault(axis, "f")
        if not set("af") & set(names.values()):
            return
        for op in self.ops:
            words = op.axes("v") if op.name == "embedding" and any(names.get(a) == "b" for a in op.axes("i0")) else []
            if op.name == "_log_softmax":
                words = [axis for symbol in op.whole for axis in op.axes(symbol)]
            for axis in words:
                names.setdefault(axis, "v")

    # --- loops ---------------------------------------------------------------------------------------------------------

    def write(self):
        names = self.names()
        for index, tensor in enumerate(self.recorder.tensors):
            if tensor["kind"] in ("activation", "gradient"):
                tensor["shape"], self.values[index] = self.spread(tensor["shape"], self.values[index], names)
        for op in self.ops:
            op.op.setdefault("attributes", {})["loop"] = LoopText(self, op, names).text()


    @staticmethod
    def spread(shape, dims, names):
        """A loop names one axis of a dimension: one with several that have names (samples x positions, samples x heads) is
        written as these."""
        sizes, spread = [], []
        for size, axes in zip(shape, dims):
            leaves = leaves_of(axes or [])
            starts = [k for k, axis in enumerate(leaves) if axis in names]
            if len(starts) < 2:
                sizes.append(size)
                spread.append(axes)
                continue
            for first, last in zip([0] + starts[1:], starts[1:] + [len(leaves)]):
                sizes.append(math.prod(axis.size for axis in leaves[first:last]))
                spread.append(leaves[first:last])
        return sizes, spread


class LoopText:
    """A loop names one axis of each dimension, and one that is named must be so wherever the operation has it."""

    def __init__(self, loops, op, names):
        self.op, self.names, self.tensors = op, names, loops.recorder.tensors
        keys = self.keys(op)
        self.shown = {}  # index of a tensor: by dimension, the (axis, key) that may be named
        self.sizes = {}
        for index in op.op["inputs"] + op.op["outputs"]:
            storage = loops.recorder.tensors[index]["storage"]
            of = keys.get(storage, {})
            dims = []
            for axes, size in zip(loops.values[index], self.tensors[index]["shape"]):
                leaves = leaves_of(axes or [])
                known = of if storage in keys else self.keys_anywhere(keys)
                dims.append([(leaf, known[leaf]) for leaf in leaves if known.get(leaf) is not None])
            self.shown[index] = dims
        self.choose()

    @staticmethod
    def keys_anywhere(keys):
        """For what is only held on to: an axis that has one key among the operands."""
        found = {}
        for of in keys.values():
            for axis, key in of.items():
                found[axis] = key if found.get(axis, key) == key else None
        return found

    @staticmethod
    def keys(op):
        """{storage: {axis: (symbol, place)}}, None for an axis that must be whole."""
        runs = {}
        for _, dims in op.operands:
            for symbol, axes in dims:
                if axes:
                    runs.setdefault(symbol, []).append([axis.size for axis in leaves_of(axes)])
        alike = {symbol for symbol, sizes in runs.items() if all(run == sizes[0] for run in sizes)}
        keys = {}
        for number, dims in op.operands:
            of = keys.setdefault(number, {})
            for symbol, axes in dims:
                for place, axis in enumerate(leaves_of(axes or [])):
                    key = (symbol, place) if symbol in alike and symbol not in op.whole else None
                    of[axis] = key if of.get(axis, key) == key else None
        return keys

    def rank(self, shown):
        name = self.names.get(shown[0], "")
        return (PREFERRED + name).index(name) if name else len(PREFERRED)

    def choose(self):
        """The likeliest of each dimension; a key that another dimension hides is out, until none is."""
        out = set()
        while True:
            chosen = {i: [min([s for s in dim if s[1] not in out], key=self.rank, default=None) for dim in dims]
                      for i, dims in self.shown.items()}
            hidden = {key for i, dims in self.shown.items() for d, dim in enumerate(dims) for _, key in dim
                      if key not in out and (chosen[i][d] is None or chosen[i][d][1] != key)}
            if not hidden:
                break
            out |= hidden
        self.chosen = chosen

    def text(self):
        called, used = {}, set()

        def name_of(axis, key):
            if key not in called:
                name = self.names.get(axis)
                called[key] = f"x{len(called)}" if name is None or name in used else name
                used.add(called[key])
            return called[key]

        def operand(index):
            words = []
            for size, shown in zip(self.tensors[index]["shape"], self.chosen[index]):
                if shown is None:
                    words.append("-")
                else:
                    several = size // shown[0].size
                    words.append(name_of(*shown) + (f"*{several}" if several > 1 else ""))
            return " ".join(words)

        inputs, outputs = ([operand(index) for index in self.op.op[side]] for side in ("inputs", "outputs"))
        return f"{', '.join(inputs)} -> {', '.join(outputs)}".strip()
