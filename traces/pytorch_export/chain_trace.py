"""Measures a chain and puts the numbers together as a plimsoll.trace.v1 chain."""

import gc
import math
import statistics

import torch

from . import executor
from .clocks import TimeProbe
from .errors import MeasurementError
from .executor import Probe
from .memory import LiveProbe, PlainProbe, SavedProbe
from .storages import storage_bytes, storage_of, tensors_in
from .work import WorkProbe


def measure_chain(chain, clock, counter, repetitions, warm_up, say, check_identity=True):
    """Returns the trace without its command-line part of `source`."""
    executor.clear_gradients(chain)
    for _ in range(warm_up):
        executor.run_without_gradients(chain, Probe())
        executor.run_stagewise(chain, Probe())
        executor.clear_gradients(chain)
    say("saved tensors and work")
    saved = measure_saved(chain)
    work = measure_work(chain)
    say("memory")
    memory, checkpoints = measure_memory(chain, counter, saved)
    deviations = identity_deviations(chain, saved, memory["new"])
    if check_identity and counter.exact and deviations:
        raise MeasurementError("live bytes do not follow from what autograd saves: " + "; ".join(deviations)
                               + " (--no-identity-check writes the trace nevertheless)")
    say(f"times, {repetitions} repetitions")
    times = measure_times(chain, clock, repetitions)
    return assemble(chain, saved, work, memory, times, deviations, checkpoints, sum_is_in_place(chain, counter))


# --- measurements -------------------------------------------------------------------------------------------------------

def measure_saved(chain):
    probe = SavedProbe(chain)
    executor.run_stagewise(chain, probe)
    executor.clear_gradients(chain)
    return probe


def measure_work(chain):
    probe = WorkProbe()
    executor.run_stagewise(chain, probe)
    executor.clear_gradients(chain)
    return probe.work


def measure_memory(chain, counter, saved):
    """Passes without gradients, with new gradients, with existing ones, plain iterations, and a checkpointed sequence."""
    passes = {}
    steps = executor.checkpointed(len(chain.stages), math.isqrt(len(chain.stages) - 1) + 1)
    gc.collect()
    with counter.counting():
        executor.clear_gradients(chain)
        passes["no_grad"] = LiveProbe(chain, counter)
        executor.run_without_gradients(chain, passes["no_grad"])
        passes["new"] = LiveProbe(chain, counter)
        executor.run_stagewise(chain, passes["new"])
        passes["accumulate"] = LiveProbe(chain, counter)
        executor.run_stagewise(chain, passes["accumulate"])
        for kind, existing in (("plain", False), ("plain_accumulate", True)):
            passes[kind] = whole_pass(chain, counter, existing, lambda probe: executor.run_plain(chain, probe))
            prepare_gradients(chain, existing)
            passes[f"{kind}_by_stage"] = PlainProbe(counter)
            executor.run_plain(chain, passes[f"{kind}_by_stage"], at_stages=True)
        for kind, sequence in (("store_all", executor.store_all(len(chain.stages))), ("checkpointed", steps)):
            passes[kind] = whole_pass(chain, counter, False,
                                      lambda probe, s=sequence: executor.run_sequence(chain, probe, s, saved.facts()))
        executor.clear_gradients(chain)
    return passes, executor.sequence_text(steps)


def prepare_gradients(chain, existing):
    """An iteration's worth of gradients, or none."""
    executor.clear_gradients(chain)
    if existing:
        executor.run_plain(chain, Probe())
    gc.collect()


def whole_pass(chain, counter, existing, run):
    prepare_gradients(chain, existing)
    probe = LiveProbe(chain, counter)
    run(probe)
    return probe


def sum_is_in_place(chain, counter):
    """Whether autograd adds a shared parameter's contributions in place, seen on one with two uses."""
    shared = torch.zeros(1 << 16, device=next(iter(chain.parameters())).device, requires_grad=True)
    with counter.counting():
        loss = (shared * 2).sum() + (shared * 3).sum()
        counter.reset_peak()
        before = counter.live()
        loss.backward()
        copies = (counter.peak() - before) / storage_of(shared).nbytes()
    return copies < 2.5


def measure_times(chain, clock, repetitions):
    """Interleaved passes, so that a slow spell of the machine falls on all of them."""
    times = {kind: TimeProbe(clock) for kind in ("training", "no_grad", "inputs_only", "plain")}
    gc.collect()
    gc.disable()
    try:
        for _ in range(repetitions):
            executor.run_stagewise(chain, times["training"])
            executor.clear_gradients(chain)
            executor.run_without_gradients(chain, times["no_grad"])
            executor.run_stagewise(chain, times["inputs_only"], inputs_only=True)
            executor.clear_gradients(chain)
            executor.run_plain(chain, times["plain"])
            executor.clear_gradients(chain)
            for probe in times.values():
                probe.settle()
    finally:
        gc.enable()
    return times


# --- checks ---------------------------------------------------------------------------------------------------------------

def identity_deviations(chain, saved, live):
    """Autograd's saves must explain the allocator's counts, to the byte.

    forward:  live delta = inner + new output storages
    backward: live delta = -inner - freed output - its gradient + new gradients of the input + new parameter gradients,
              once the boundary tensors are released
    """
    problems = []
    for k, (stage, facts) in enumerate(zip(chain.stages, saved.stages)):
        kept = facts["inner"] + facts["new_output"]
        expected = {
            "forward": (live.delta["forward", k], kept),
            "backward": (live.final_delta["backward", k],
                         -kept - saved.gradient_read(k) + facts["new_gradient"] + live.new_gradients["backward", k]),
        }
        for phase, (measured, explained) in expected.items():
            if measured != explained:
                problems.append(f"{phase} of '{stage.name}' changes live bytes by {measured}, expected {explained}")
    return problems


def at_least_zero(value, what, clamped):
    if value < 0:
        clamped.append(f"{what}: {value}")
    return max(0, value)


# --- the trace --------------------------------------------------------------------------------------------------------------

def assemble(chain, saved, work, memory, times, deviations, checkpoints, in_place):
    clamped = []
    parameters = {id(p): i for i, p in enumerate(chain.parameters())}
    released = released_workspaces(chain, saved, memory, clamped)
    stages = [stage_fields(chain, k, saved, work, memory, times, parameters, clamped) | released[k]
              for k in range(len(chain.stages))]
    if has_several_tensors(saved):
        for stage, facts in zip(stages, saved.stages):
            stage |= {"kept_tensors": facts["kept"], "gradient_tensors": facts["gradient_tensors"]}
    shared = shared_groups(stages, "in_place" if in_place else "out_of_place")
    return {
        "format": "plimsoll.trace.v1",
        "kind": "chain",
        "name": chain.name,
        "source": evidence(chain, saved, memory, times, deviations, clamped, checkpoints),
        "input_bytes": sum(storage_bytes(tensors_in(chain.input)).values()),
        "tensors": tensor_list(saved),
        "boundaries": saved.boundaries[:-1] + [[]],
        "parameters": parameter_list(chain),
        **({"shared": shared} if shared else {}),
        "stages": stages,
    }


def has_several_tensors(saved):
    """Whether some boundary is not one tensor of its own."""
    ids = [tensor for boundary in saved.boundaries[:-1] for tensor in boundary]
    return len(set(ids)) < len(ids) or any(len(boundary) != 1 for boundary in saved.boundaries[:-1])


def tensor_list(saved):
    tensors, plain = [], not has_several_tensors(saved)
    for number, tensor in enumerate(saved.tensors[:len(saved.tensors) - len(set(saved.boundaries[-1]))]):
        j, first = tensor["boundary"], saved.boundaries[tensor["boundary"]][0]
        name = f"x{j}" + ("" if number == first else f".{number - first}")
        fields = {"name": name, "bytes": tensor["bytes"], "shape": tensor["shape"], "dtype": tensor["dtype"]}
        gradient = saved.gradient_bytes.get(number, 0)
        tensors.append(fields if plain or gradient == tensor["bytes"] else fields | {"gradient_bytes": gradient})
    return tensors


def shared_groups(stages, rule):
    """Parameters of several stages, with the stages in the order in which they contribute to the gradient."""
    users = {}
    for k, stage in reversed(list(enumerate(stages))):
        for parameter in stage["parameters"]:
            users.setdefault(parameter, []).append(k)
    return [{"parameter": parameter, "stages": of, "sum": rule} for parameter, of in sorted(users.items()) if len(of) > 1]


def released_workspaces(chain, saved, memory, clamped):
    """Peak of each stage's backward in a plain iteration, less what the trace's other fields say is alive in it."""
    fields = [{} for _ in chain.stages]
    for key, kind, new in (("backward_released_workspace_bytes", "plain", True),
                           ("backward_accumulate_released_workspace_bytes", "plain_accumulate", False)):
        peaks, live = memory[f"{kind}_by_stage"].peak, live_before_backwards(chain, saved, memory["new"], new)
        for k, stage in enumerate(chain.stages):
            if k not in peaks:
                continue  # autograd never enters it: left to the default
            made = saved.stages[k]["new_gradient"] + (memory["new"].new_gradients["backward", k] if new else 0)
            what = f"{stage.name} {'' if new else 'accumulating '}released backward"
            fields[k][key] = at_least_zero(peaks[k] - live[k] - made, what, clamped)
    return fields


def live_before_backwards(chain, saved, live, new_gradients):
    """What the fields say is alive before each backward when nothing is dropped that a backward needs."""
    inner = [facts["inner"] + (facts["output"] if k == len(saved.stages) - 1 else 0) for k, facts in enumerate(saved.stages)]
    size = [tensor["bytes"] for tensor in saved.tensors]
    result, gradients, parameter_gradients = {}, set(), 0
    for k in reversed(range(len(chain.stages))):
        kept = {tensor for facts in saved.stages[:k + 1] for tensor in facts["kept"]} - set(saved.boundaries[0])
        if k == len(chain.stages) - 1:
            kept -= set(saved.boundaries[-1])
        result[k] = (sum(inner[:k + 1]) + sum(size[tensor] for tensor in kept)
                     + sum(saved.gradient_bytes[tensor] for tensor in gradients) + parameter_gradients)
        gradients |= set(saved.stages[k]["gradient_tensors"])
        gradients &= set(saved.boundaries[k])
        parameter_gradients += live.new_gradients["backward", k] if new_gradients else 0
    return result


def parameter_list(chain):
    """In the order of chain.parameters(); a tied parameter has the name of its first stage."""
    names = {}
    for stage in chain.stages:
        for name, parameter in stage.module.named_parameters():
            names.setdefault(id(parameter), f"{stage.name}.{name}")
    return [{"name": names[id(p)], "bytes": p.numel() * p.element_size()} for p in chain.parameters()]


def stage_fields(chain, k, saved, work, memory, times, parameters, clamped):
    stage, facts = chain.stages[k], saved.stages[k]
    name = stage.name
    last = k == len(chain.stages) - 1
    new, accumulate, no_grad = memory["new"], memory["accumulate"], memory["no_grad"]
    output = 0 if last else facts["output"]
    # The loss itself is a few bytes that live until its backward: an inner tensor, since nothing is handed on.
    kept = facts["inner"] + facts["output"]
    made = facts["inner"] + (facts["output"] if last else facts["new_output"])
    new_gradients = new.new_gradients["backward", k]
    own = list(stage.module.parameters())
    backward = times["training"].median("backward", k)
    inputs_only = times["inputs_only"].median("backward", k)
    fields = {
        "name": name,
        "forward_s": times["training"].median("forward", k),
        "backward_s": backward,
        "output_bytes": output,
        "saved_bytes": kept,
        "forward_workspace_bytes": at_least_zero(new.peak["forward", k] - made, f"{name} forward", clamped),
        "forward_nograd_workspace_bytes": at_least_zero(no_grad.peak["forward", k] - (0 if last else facts["new_output"]), f"{name} no-grad forward", clamped),
        "input_gradient_bytes": saved.input_gradient(k),
        "backward_workspace_bytes": at_least_zero(
            new.peak["backward", k] - facts["new_gradient"] - new_gradients, f"{name} backward", clamped),
        "backward_accumulate_workspace_bytes": at_least_zero(
            accumulate.peak["backward", k] - facts["new_gradient"], f"{name} accumulating backward", clamped),
        "parameters": [parameters[id(p)] for p in own],
        "keeps_input": facts["keeps_input"],
        "keeps_output": facts["keeps_output"] and not last,
        "forward_nograd_s": times["no_grad"].median("forward", k),
        "backward_weight_s": max(0.0, backward - inputs_only) if own else 0.0,
    }
    if any(not p.requires_grad for p in own):
        fields["parameter_gradient_bytes"] = sum(p.numel() * p.element_size() for p in own if p.requires_grad)
    return fields | work_fields(k, work)


def work_fields(k, work):
    """What is unknown is left out: an operation without a formula, or a backward that the mode did not see."""
    fields = {}
    for phase in ("forward", "backward"):
        flops, bytes_moved, operations = work[phase, k]
        if operations == 0 and phase == "backward":
            continue
        if flops is not None:
            fields[f"{phase}_flops"] = flops
        fields[f"{phase}_bytes_moved"] = bytes_moved
    return fields


def evidence(chain, saved, memory, times, deviations, clamped, checkpoints):
    """What the reader needs to judge the numbers."""
    worst = max(((times["training"].spread(phase, k), f"{chain.stages[k].name} {phase}")
                 for phase, k in times["training"].samples), default=(0.0, ""))
    spreads = [times["training"].spread(*key) for key in times["training"].samples]
    quartiles = [times["training"].quartile_spread(*key) for key in times["training"].samples]
    passes = times["training"].passes()
    plain = times["plain"].samples["iteration", 0]
    stage_sum = sum(times["training"].median(*key) for key in times["training"].samples)
    plain_median = statistics.median(plain)
    facts = {
        "model": chain.description,
        "spread": {
            "meaning": "(largest - smallest) / median over the repetitions",
            "stage_median": round(statistics.median(spreads), 4),
            "stage_median_between_quartiles": round(statistics.median(quartiles), 4),
            "stage_worst": round(worst[0], 4),
            "stage_worst_is": worst[1],
            "whole_pass": round((max(passes) - min(passes)) / statistics.median(passes), 4),
        },
        "check": {
            "sum_of_stage_times_s": stage_sum,
            "plain_iteration_s": plain_median,
            "plain_iteration_spread": round((max(plain) - min(plain)) / plain_median, 4),
            "plain_iteration_peak_bytes": memory["plain"].highest,
            "plain_accumulate_peak_bytes": memory["plain_accumulate"].highest,
            "stagewise_peak_bytes": memory["new"].highest,
            "store_all_peak_bytes": memory["store_all"].highest,
            "checkpointed_peak_bytes": memory["checkpointed"].highest,
            "checkpointed_sequence": checkpoints,
            "peaks_are_above": "parameters, buffers and input",
            "identity": "exact on all stages" if not deviations else deviations,
        },
        "workspaces_clamped_to_zero": clamped,
        "buffer_bytes": sum(storage_bytes(chain.buffers()).values()),
    }
    elsewhere = {stage.name: f["elsewhere"] for stage, f in zip(chain.stages, saved.stages) if f["elsewhere"]}
    if elsewhere:
        facts["saved_but_alive_before_and_not_counted_bytes"] = elsewhere
    shared = [stage.name for stage, f in zip(chain.stages[:-1], saved.stages) if f["new_output"] + f["passed"] != f["output"]]
    if shared:
        facts["outputs_that_share_a_storage_with_what_was_there"] = shared
    return facts
