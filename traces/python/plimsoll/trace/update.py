"""What an optimizer's step takes: its time in each of torch's implementations, its memory, its states; as an op for each parameter.

The steps have a learning rate of 0, so that the model stays as it is; the same operations run.
"""

import gc
import statistics

import torch
from plimsoll.torch.versions import has_implementation

from . import executor
from .errors import UsageError, first_line
from .executor import Probe
from .storages import dtype_name, storage_bytes, tensors_in

NAMES = ("sgd", "momentum", "adam", "adamw")
IMPLEMENTATIONS = {"default": {}, "for-loop": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True}}


def optimizer_for(name, parameters, options):
    if name in ("sgd", "momentum"):
        return torch.optim.SGD(parameters, lr=0.0, momentum=0.9 if name == "momentum" else 0.0, **options)
    return {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[name](parameters, lr=0.0, **options)


def measure_update(chain, name, clock, counter, repetitions, say):
    """(what the trace's source says of it, facts by parameter for add_update_ops). Gradients are those of one iteration."""
    say(f"updates by {name}")
    executor.clear_gradients(chain)
    executor.run_plain(chain, Probe())
    trained = [parameter for parameter in chain.parameters() if parameter.grad is not None]
    ways = {way: measured_way(name, way, trained, clock, counter, repetitions) for way in IMPLEMENTATIONS}
    if "not_measured" in ways["default"]:
        raise UsageError(f"--optimizer {name}: {ways['default']['not_measured']}")
    parts = [measured_part(name, parameter, clock, counter, repetitions) for parameter in trained]
    zero_s = measured_zero(trained, clock, repetitions)
    executor.clear_gradients(chain)
    source = {"optimizer": name, "state_bytes": ways["default"]["state_bytes"], "steps": ways, "zero_s": zero_s,
              "meaning": "step_s: median of a step for all parameters; zero_s: gradients set to 0 instead of to None"}
    return source, parts


def measured_way(name, way, parameters, clock, counter, repetitions):
    if not has_implementation(name, way):
        return {"not_measured": f"torch {torch.__version__} has none for {name}"}
    try:
        optimizer = optimizer_for(name, parameters, IMPLEMENTATIONS[way])
        optimizer.step()  # makes the states
        return measured_step(optimizer, clock, counter, repetitions)
    except (RuntimeError, TypeError, ValueError) as error:  # each version refuses in its own way what it has not
        return {"not_measured": first_line(error)}


def measured_step(optimizer, clock, counter, repetitions):
    return {"state_bytes": sum(storage_bytes(states_of(optimizer)).values()),
            "step_s": statistics.median(samples := times_of(optimizer.step, clock, repetitions)),
            "spread": round((max(samples) - min(samples)) / statistics.median(samples), 4),
            "workspace_bytes": peak_of(optimizer.step, counter)}


def times_of(action, clock, repetitions):
    pending = []
    gc.disable()
    try:
        for _ in range(repetitions):
            start = clock.mark()
            action()
            pending.append((start, clock.mark()))
    finally:
        gc.enable()
    clock.settle()
    return [clock.seconds(*marks) for marks in pending]


def peak_of(action, counter):
    with counter.counting():
        counter.reset_peak()
        start = counter.live()
        action()
        return counter.peak() - start


def states_of(optimizer):
    return [tensor for state in optimizer.state.values() for tensor in tensors_in(state)]


def measured_part(name, parameter, clock, counter, repetitions):
    """Of one parameter's update, as torch does it by default. Numbers of steps (tensors without a dimension) are no states here."""
    optimizer = optimizer_for(name, [parameter], {})
    optimizer.step()
    return {"parameter": parameter, "states": [(tensor.shape, dtype_name(tensor), next(iter(storage_bytes([tensor]).values())))
                                               for tensor in states_of(optimizer) if tensor.dim() > 0],
            "seconds": statistics.median(times_of(optimizer.step, clock, repetitions)), "workspace": peak_of(optimizer.step, counter)}


def measured_zero(parameters, clock, repetitions):
    def zero():
        for parameter in parameters:
            parameter.grad.zero_()
    return statistics.median(times_of(zero, clock, repetitions))


def add_update_ops(trace, source, parts, numbers):
    """An op for each trained parameter, the times scaled so that together they are the measured step of all. `numbers`: of tensors of
    the graph, by id of the parameter."""
    gradients = {tensor["gradient_of"]: i for i, tensor in enumerate(trace["tensors"]) if "gradient_of" in tensor}
    scale = source["steps"]["default"]["step_s"] / sum(part["seconds"] for part in parts)
    storage = 1 + max(tensor["storage"] for tensor in trace["tensors"])
    for part in parts:
        number = numbers[id(part["parameter"])]
        own, states = trace["tensors"][number], []
        for k, (shape, dtype, size) in enumerate(part["states"]):
            states.append(len(trace["tensors"]))
            trace["tensors"].append({"name": f"state {k} of {own['name']}", "kind": "optimizer_state", "bytes": size, "shape": list(shape),
                                     "dtype": dtype, "storage": storage})
            storage += 1
        moved = 2 * own["bytes"] + trace["tensors"][gradients[number]]["bytes"] + 2 * sum(size for _, _, size in part["states"])
        trace["ops"].append({"name": f"update of {own['name']}", "kind": source["optimizer"], "phase": "update",
                             "stage": stage_of(trace, number), "time_s": part["seconds"] * scale, "flops": 0, "bytes": moved,
                             "workspace_bytes": part["workspace"], "inputs": [number, gradients[number], *states], "outputs": [],
                             "saved": [], "mutates": [number, *states], "recomputable": False})


def stage_of(trace, parameter):
    return next(op["stage"] for op in trace["ops"] if parameter in op["inputs"])
