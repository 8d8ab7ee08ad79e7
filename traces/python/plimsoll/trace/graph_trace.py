"""Records one training iteration operation by operation, as a plimsoll.trace.v1 graph.

Operations are those dispatched below autograd, forward and backward. Views are no operations: a tensor of the graph is
one value of one storage, and an operation that overwrites its argument makes the next value of that storage.
Buffers (batch statistics, masks, targets) are no tensors of the graph; `source` gives their bytes and says which of them the iteration changes,
and each operation which of these it touches (runs_once.py).
"""

import gc
import statistics

import torch
from plimsoll.torch.versions import address_of, storage_of
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from . import executor
from .errors import MeasurementError, UsageError, first_line
from .layers import StagesOfLayers
from .live_bytes import SweepCounter
from .loops import Loops
from .memory import LiveProbe
from .other_batch import EMPTY_IN_EXAMPLE, at_most
from .runs_once import Watch
from .storages import dtype_name, storage_bytes, tensors_in
from .update import add_update_ops, measure_update
from .work import bytes_moved_by, flops_of, is_view, operation_name, reads_only_the_shape


def measure_graph(chain, clock, counter, repetitions, warm_up, say, optimizer=None):
    """Returns the trace without its command-line part of `source`; the portable counter cannot see workspaces."""
    every_counter, counter = counter, None if isinstance(counter, SweepCounter) else counter
    for _ in range(warm_up):
        executor.run_plain(chain, executor.Probe())
        executor.clear_gradients(chain)
    say("operations and memory")
    graph, watch = recorded(chain, None, counter), Watch(chain)
    refuse_other_operations(recorded(chain, None, None, watch), graph)
    watch.mark(graph.ops)
    live = plain_peak(chain, counter) if counter else None
    say(f"{len(graph.ops)} operations; times, {repetitions} repetitions")
    gc.collect()
    gc.disable()
    try:
        times = [operation_times(recorded(chain, clock, None), graph, clock) for _ in range(repetitions)]
    finally:
        gc.enable()
    medians = [statistics.median(samples) for samples in zip(*times)]
    trace = assemble(chain, graph, medians, times, live)
    trace["source"] |= sizes_at_most(chain, graph, trace, counter) | {"buffers_changed": sorted(watch.changed)}
    if optimizer is not None:
        trace["source"]["update"], parts = measure_update(chain, optimizer, clock, every_counter, repetitions, say)
        add_update_ops(trace, trace["source"]["update"], parts, graph.numbers)
    return trace


def plain_peak(chain, counter):
    """Bytes above parameters, buffers and input in one iteration without a recorder."""
    gc.collect()
    probe = LiveProbe(chain, counter)
    executor.run_plain(chain, probe)
    executor.clear_gradients(chain)
    return probe.highest


def sizes_at_most(chain, graph, trace, counter):
    """Writes the sizes that follow from data into the trace as those that they have at most; gives what is said of them in the source."""
    other, why = on_another_batch(chain, graph, counter)
    found = {"sizes_not_seen_on_other_numbers_because": why} if why else {}
    if other is None:
        return found
    varying = []
    for number, place in other_places(graph, other).items():
        own, size = trace["tensors"][number], 0 if place is None else other.tensors[place]["bytes"]
        if size != own["bytes"]:
            varying.append(own["name"])
            own["bytes"] = at_most(own["bytes"], size)
    for op, same in zip(trace["ops"], other.ops) if varying else ():
        op["workspace_bytes"] = at_most(op["workspace_bytes"], same["workspace_bytes"])
    return found | ({"at_most": {"tensors": varying}} if varying else {})


def on_another_batch(chain, graph, counter):
    """(what is recorded of the first batch that the model takes like its own, why not of another)."""
    why = None
    for make in chain.on_others():
        try:
            other = recorded(make(), None, counter)
            refuse_other_operations(other, graph, "another batch dispatches other operations")
            return other, why
        except Exception as error:  # whatever the model's own code raises where it does not like the numbers
            why = why or first_line(error)
        finally:
            executor.clear_gradients(chain)
    return None, why


def other_places(graph, other):
    """{number of a tensor: its number in the other graph, None where it is empty there}"""
    given = sum(tensor["kind"] in ("input", "parameter") for tensor in graph.tensors)
    found = {number: number for number in range(given)}
    for own, same, places, others in zip(graph.ops, other.ops, graph.made, other.made):
        for number, place in zip(places, others):
            if number is None and place is not None:
                raise UsageError(EMPTY_IN_EXAMPLE.format("a tensor"))
            found.update({} if number is None else {number: place})
        for number, of in zip(own["outputs"][len(own["outputs"]) - len(own["mutates"]):], own["mutates"]):
            there = same["mutates"].index(found[of]) if found[of] is not None else None
            found[number] = None if there is None else same["outputs"][len(same["outputs"]) - len(same["mutates"]) + there]
    return found


def recorded(chain, clock, counter, watch=None):
    """One plain iteration under a recorder: with a clock for times, with a counter for workspaces, with a watch for what may run once only."""
    recorder = Recorder(chain, clock, counter, watch)
    x = chain.input
    with recorder, recorder.layers.watched(), torch.autograd.graph.saved_tensors_hooks(torch.Tensor.detach, recorder.takes_back):
        for k, stage in enumerate(chain.stages):
            recorder.stage, given = k, {id(tensor) for tensor in tensors_in(x)}
            with chain.precision():
                x = stage.module(x)
            for tensor in tensors_in(x):
                if tensor.requires_grad and id(tensor) not in given:
                    tensor.register_hook(recorder.enters_backward_of(recorder.stage))
        del tensor
        recorder.phase = "backward"
        x.backward()
    recorder.close(chain, x)
    executor.clear_gradients(chain)
    return recorder


def is_detached_number(func, args):
    """The 3 of x / 3 is saved as a tensor, which a dispatch mode is shown as a number."""
    return operation_name(func) == "detach" and not isinstance(args[0], torch.Tensor)


def is_question(func):
    """Of a fake tensor's device: it computes nothing."""
    return func._schema.name.startswith("prim::")


def wanted_of(func, args, result):
    """Of a backward's results those that it was asked for: fake tensors stand for the others, too."""
    at = next((i for i, argument in enumerate(func._schema.arguments) if argument.name == "output_mask"), len(args))
    if at >= len(args) or not isinstance(result, tuple):
        return result
    return tuple(each if is_wanted else None for each, is_wanted in zip(result, args[at]))


def operation_times(recorder, reference, clock):
    clock.settle()
    refuse_other_operations(recorder, reference)
    return [clock.seconds(*marks) for marks in recorder.marks]


def refuse_other_operations(recorder, reference, why="two iterations dispatched different operations, so no graph of one iteration exists"):
    if [op["kind"] for op in recorder.ops] != [op["kind"] for op in reference.ops]:
        raise MeasurementError(why)


class Recorder(TorchDispatchMode):
    def __init__(self, chain, clock, counter, watch):
        super().__init__()
        self.chain, self.clock, self.counter, self.watch = chain, clock, counter, watch
        self.phase, self.stage, self.names = "forward", 0, [stage.name for stage in chain.stages]
        self.layers = StagesOfLayers(self, chain.layers)
        self.tensors, self.ops, self.marks = [], [], []
        self.made = []    # of each operation: of each tensor of its result the number, None where it has no memory of its own
        self.values = {}  # address -> (weak reference to the storage, index of its present tensor)
        self.storages = 0
        self.held = []    # values that autograd has saved for what runs next in the backward
        self.loops = None if clock else Loops(self)  # times have no names
        for tensor in tensors_in(chain.input):
            self.add_storage(tensor, "input", "input")
        names = chain.tensor_names()
        self.numbers = {id(p): self.add_storage(p, "parameter", names[id(p)]) for p in chain.parameters()}

    def enters_backward_of(self, stage):
        def set_stage(_):
            self.stage = stage
        return set_stage

    def takes_back(self, tensor):
        """Autograd lets go of what it has saved when the ops of the backward that it was saved for have run, whether they read it or, as in
        the backward of a mean in torch 1.13, its shape alone."""
        value = self.present_value(tensor)
        if value is not None and self.tensors[value]["kind"] == "activation":
            self.held.append(value)
        return tensor

    # --- tensors ---------------------------------------------------------------------------------------------------

    def add_tensor(self, tensor, kind, name, storage):
        self.tensors.append({"name": name, "kind": kind, "bytes": storage_of(tensor).nbytes(), "shape": list(tensor.shape),
                             "dtype": dtype_name(tensor), "storage": storage})
        self.values[address_of(storage_of(tensor))] = (StorageWeakRef(storage_of(tensor)), len(self.tensors) - 1)
        if self.loops:
            self.loops.add_tensor(len(self.tensors) - 1, tensor)
        return len(self.tensors) - 1

    def add_storage(self, tensor, kind, name):
        self.storages += 1
        return self.add_tensor(tensor, kind, name, self.storages - 1)

    def present_value(self, tensor):
        """Index of the tensor's present value; None for buffers and constants."""
        entry = self.values.get(address_of(storage_of(tensor)))
        return None if entry is None or entry[0].expired() else entry[1]

    def present_values(self, tensors):
        found = [self.present_value(tensor) for tensor in tensors]
        return list(dict.fromkeys(i for i in found if i is not None))

    # --- operations ------------------------------------------------------------------------------------------------

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if is_detached_number(func, args):
            return torch.tensor(args[0])
        if is_question(func):
            return func(*args, **kwargs)
        arguments = tensors_in(list(args) + list(kwargs.values()))
        inputs = [] if reads_only_the_shape(operation_name(func)) else self.present_values(arguments)
        written = written_arguments(func, args, kwargs)
        mutates = self.present_values(written)
        addresses = storage_bytes(arguments)
        before = self.watch and self.watch.before(func, [tensor for tensor in arguments if self.present_value(tensor) is None])
        result, marks, peak = self.run(func, args, kwargs)
        outputs = tensors_in([result])
        views = is_view(func, arguments, outputs)
        if not views:
            self.layers.before_operation()
        if self.watch:
            self.watch.behind([*args, *kwargs.values()], self.stage, before, written, views)
        if not views:
            self.marks.append(marks)
            self.add_operation(func, args, result, arguments, addresses, inputs, mutates, peak)
            if self.loops:
                self.loops.add(self.ops[-1], func, args, kwargs, result)
        return result

    def run(self, func, args, kwargs):
        if self.counter:
            self.counter.reset_peak()
            start = self.counter.live()
        begun = self.clock.mark() if self.clock else None
        result = func(*args, **kwargs)
        ended = self.clock.mark() if self.clock else None
        return wanted_of(func, args, result), (begun, ended), self.counter.peak() - start if self.counter else 0

    def add_operation(self, func, args, result, arguments, addresses, inputs, mutates, peak):
        name = operation_name(func)
        inputs, self.held = list(dict.fromkeys(inputs + self.held)), []
        label = f"{self.names[self.stage]}.{name}.{len(self.ops)}"
        kind = "activation" if self.phase == "forward" else "gradient"
        outputs, fresh_bytes, made = [], 0, []
        for tensor in tensors_in([result]):
            address = address_of(storage_of(tensor))
            made.append(None)
            if storage_of(tensor).nbytes() == 0 or address in addresses:
                continue
            addresses[address] = storage_of(tensor).nbytes()
            fresh_bytes += addresses[address]
            outputs.append(self.add_storage(tensor, kind, f"{label}:{len(outputs)}"))
            made[-1] = outputs[-1]
        self.made.append(made)
        for index in mutates:
            old = self.tensors[index]
            owner = next(t for t in arguments if self.present_value(t) == index)
            outputs.append(self.add_tensor(owner, kind, f"{label}:{len(outputs)}", old["storage"]))
        op = {"name": label, "kind": name, "phase": self.phase, "stage": self.stage}
        flops = flops_of(name, args, result)
        if flops is not None:
            op["flops"] = flops
        op["bytes"] = bytes_moved_by(func, name, arguments, tensors_in([result]))
        op["workspace_bytes"] = max(0, peak - fresh_bytes)
        self.ops.append(op | {"inputs": inputs, "outputs": outputs, "saved": [], "mutates": mutates})

    # --- afterwards ------------------------------------------------------------------------------------------------

    def close(self, chain, loss):
        """What only the end of the iteration shows: parameter gradients, and outputs that only the backward reads."""
        for parameter in chain.parameters():
            index = self.present_value(parameter.grad) if parameter.grad is not None else None
            if index is not None:
                self.tensors[index] |= {"kind": "parameter_gradient", "gradient_of": self.present_value(parameter)}
                if self.loops:
                    self.loops.is_gradient(index, parameter.grad, self.present_value(parameter))
        if self.loops:
            self.loops.write()
        read_in = {"forward": set(), "backward": set()}
        for op in self.ops:
            read_in[op["phase"]].update(op["inputs"])
        of_loss = self.present_value(loss)
        for op in self.ops:
            if op["phase"] == "forward":
                op["saved"] = [i for i in op["outputs"]
                               if i in read_in["backward"] and i not in read_in["forward"] and i != of_loss]


def written_arguments(func, args, kwargs):
    """The tensors that an operation's schema says it overwrites."""
    written = []
    for i, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            written += tensors_in(args[i] if i < len(args) else kwargs.get(argument.name))
    return written


def assemble(chain, graph, medians, times, plain_peak_bytes):
    totals = [sum(samples) for samples in times]
    ops = [{key: op[key] for key in ("name", "kind", "phase", "stage")} | {"time_s": seconds}
           | {key: value for key, value in op.items() if key not in ("name", "kind", "phase", "stage")}
           for op, seconds in zip(graph.ops, medians)]
    return {
        "format": "plimsoll.trace.v1",
        "kind": "graph",
        "name": f"{chain.name}_ops",
        "source": {
            "model": chain.description,
            "stages": [stage.name for stage in chain.stages],
            "spread": {"meaning": "(largest - smallest) / median over the repetitions, of the sum of all operations",
                       "whole_pass": round((max(totals) - min(totals)) / statistics.median(totals), 4)},
            "check": {"sum_of_operation_times_s": sum(medians),
                      **({} if plain_peak_bytes is None else {"plain_iteration_peak_bytes": plain_peak_bytes,
                                                              "peaks_are_above": "parameters, buffers and input"})},
            "workspaces": "measured" if graph.counter else "unknown, written as 0: the portable counter does not see them",
            "buffers_left_out_bytes": sum(storage_bytes(chain.buffers()).values()),
            **({} if chain.pytorch is None else {"pytorch": chain.pytorch}),
        },
        "tensors": graph.tensors,
        "ops": ops,
    }

