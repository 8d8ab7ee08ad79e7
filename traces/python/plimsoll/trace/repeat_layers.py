"""An op graph with more layers than the model has that was run: copies of its last layer, where equal layers stand in a row.

A layer is one stage or several. Two stages are equal where their operations are, with sizes and flops. A copy reads where
the last layer reads: what it makes itself, its own parameters, what all layers read, and of the layer before it what the
last one reads of the one before. Its backward gets its gradients likewise from the layer behind it.
"""

import dataclasses

from .errors import UsageError

OF_THE_WHOLE = ("check", "spread", "pytorch", "at_most", "update")  # parts of the source that are of the model as it was run


def repeated(trace, layers):
    """The trace with so many layers. Raises UsageError where it has no two equal ones in a row, more than `layers`, or layers that reach into others.

    Stages may be equal and read different things from before them, such as masks by turns: then two stages are a layer.
    """
    problem = None
    for row in rows_of_equal_layers(trace):
        try:
            copy = Copies(trace, row, max(1, layers - row.count)).trace()
        except UsageError as error:
            problem = problem or error
            continue
        if layers < row.count:
            raise UsageError(f"--repeat layers={layers}: the model has {row.count} equal layers in a row")
        return copy if layers > row.count else trace
    raise problem or UsageError("--repeat: no two equal layers stand in a row")


def rows_of_equal_layers(trace):
    """Of each period the row with most operations; of all periods those with most first, then the shortest period."""
    tensors = trace["tensors"]
    shapes = lambda numbers: tuple((tuple(tensors[i]["shape"]), tensors[i]["dtype"], tensors[i]["kind"]) for i in numbers)
    stages = [[] for _ in trace["source"]["stages"]]
    for op in trace["ops"]:
        stages[op["stage"]].append((op["kind"], op["phase"], op.get("flops"), op["bytes"], shapes(op["inputs"]), shapes(op["outputs"])))
    found = {}
    for period in range(1, len(stages) // 2 + 1):
        for first in range(len(stages) - period):
            count = 1
            while stages[first:first + period] == stages[first + count * period:first + (count + 1) * period]:
                count += 1
            size = sum(map(len, stages[first:first + count * period]))
            if count > 1 and size > found.get(period, (0, None))[0]:
                found[period] = (size, LayersInARow(first, period, count))
    return [row for _, row in sorted(found.values(), key=lambda each: (-each[0], each[1].period))]


@dataclasses.dataclass
class LayersInARow:
    """From stage `first` on `count` times `period` stages."""

    first: int
    period: int
    count: int

    def layer_of(self, stage):
        """Its number; -1 before the row, `count` behind it."""
        return max(-1, min(self.count, (stage - self.first) // self.period))


class Copies:
    def __init__(self, trace, row, more):
        self.given, self.row, self.more = trace, row, more
        self.tensors, self.storages = [dict(tensor) for tensor in trace["tensors"]], 1 + max(tensor["storage"] for tensor in trace["tensors"])
        self.layer = {}  # number of a tensor: the layer that makes it
        for op in trace["ops"]:
            self.layer.update({i: row.layer_of(op["stage"]) for i in op["outputs"]})
        self.last, self.before = self.ops_of(row.count - 1), self.ops_of(row.count - 2)
        self.next = {}   # of what the layer before the last one makes or alone reads: what stands in its place in the last one
        for one, other in zip(self.before, self.last):
            for key in ("inputs", "outputs", "mutates"):
                self.pair(one[key], other[key])
        self.made = {}   # (number, copy): number of the copy's own
        self.places = {}  # (storage, copy): storage

    def ops_of(self, layer):
        return [op for op in self.given["ops"] if self.row.layer_of(op["stage"]) == layer]

    def pair(self, ones, others):
        for one, other in zip(ones, others):
            if self.next.setdefault(one, other) != other:
                raise UsageError("--repeat: a layer reads twice what its copy reads once")

    def is_own(self, number):
        """Of the last layer: what it makes, and parameters that the one before it does not read."""
        return self.layer.get(number) == self.row.count - 1 or (number not in self.layer and self.next.get(number) != number)

    def copy_of(self, number, copy):
        """The tensor in the place of the last layer's `number` in a copy; copy 0 is the last layer."""
        if copy == 0 or not self.is_own(number):
            return number
        if (number, copy) not in self.made:
            tensor = dict(self.given["tensors"][number])
            tensor["name"] += f"+{copy}"
            tensor["storage"] = self.place_of(tensor["storage"], copy)
            if "gradient_of" in tensor:
                tensor["gradient_of"] = self.copy_of(tensor["gradient_of"], copy)
            self.tensors.append(tensor)
            self.made[number, copy] = len(self.tensors) - 1
        return self.made[number, copy]

    def place_of(self, storage, copy):
        if (storage, copy) not in self.places:
            self.places[storage, copy] = self.storages
            self.storages += 1
        return self.places[storage, copy]

    def read(self, one, other, copy):
        """What a copy reads where the layer before the last one reads `one`, and the last one `other`."""
        if one == other or self.is_own(other):
            return self.copy_of(other, copy)
        if self.layer.get(other) == self.row.count - 2:  # of the layer before
            return self.copy_of(self.next[other], copy - 1) if copy > 0 else other
        if self.layer.get(other) == self.row.count and self.layer.get(one) == self.row.count - 1:  # of the layer behind
            return self.copy_of(one, copy + 1) if copy < self.more else other
        raise UsageError("--repeat: layers read values of others than their neighbours")

    def op(self, one, other, copy):
        """In a copy; of the last layer, copy 0, what it reads of the layer behind it is new."""
        made = dict(other)
        made["inputs"] = [self.read(*pair, copy) for pair in zip(one["inputs"], other["inputs"])]
        made["mutates"] = [self.read(*pair, copy) for pair in zip(one["mutates"], other["mutates"])]
        for key in ("outputs", "saved"):
            made[key] = [self.copy_of(i, copy) for i in other[key]]
        made["stage"] += copy * self.row.period
        made["name"] += f"+{copy}" if copy else ""
        return made

    def behind(self, op):
        """Of a stage behind the row: it reads the last copy."""
        made = dict(op)
        for key in ("inputs", "mutates"):
            if any(0 <= self.layer.get(i, -1) < self.row.count - 1 for i in op[key]):
                raise UsageError("--repeat: a stage after the layers reads values of others than the last")
            made[key] = [self.copy_of(i, self.more) if self.layer.get(i) == self.row.count - 1 else i for i in op[key]]
        made["stage"] += self.more * self.row.period
        return made

    def trace(self):
        ops, pairs = {}, {"forward": [], "backward": []}
        for one, other in zip(self.before, self.last):
            pairs[other["phase"]].append((one, other))
        done = []
        for op in self.given["ops"]:
            layer, phase = self.row.layer_of(op["stage"]), op["phase"]
            if layer == self.row.count:
                done.append(self.behind(op))
            elif layer < self.row.count - 1:
                done.append(op)
            elif phase not in ops:
                ops[phase] = True
                copies = range(self.more + 1) if phase == "forward" else range(self.more, -1, -1)
                done += [self.op(*pair, copy) for copy in copies for pair in pairs[phase]]
        source = {key: value for key, value in self.given["source"].items() if key not in OF_THE_WHOLE}
        stages, last = source["stages"], self.row.first + (self.row.count - 1) * self.row.period
        layer = stages[last:last + self.row.period]
        source["stages"] = stages[:last] + layer + [f"{name}+{copy}" for copy in range(1, self.more + 1) for name in layer] + stages[last + self.row.period:]
        source["repeated"] = f"{self.row.count} equal layers were run, of {self.row.count + self.more}"
        return self.given | {"name": f"{self.given['name']}_layers{self.row.count + self.more}", "source": source, "tensors": self.tensors, "ops": done}
