"""Measures a chain and puts the numbers together as a plimsoll.trace.v1 chain."""

import gc
import statistics

import torch

from . import executor
from .clocks import TimeProbe
from .errors import MeasurementError
from .executor import Probe
from .memory import LiveProbe, SavedProbe
from .storages import storage_bytes, tensors_in
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
    memory = measure_memory(chain, counter)
    deviations = identity_deviations(chain, saved, memory["new"])
    if check_identity and counter.exact and deviations:
        raise MeasurementError("live bytes do not follow from what autograd saves: " + "; ".join(deviations)
                               + " (--no-identity-check writes the trace nevertheless)")
    say(f"times, {repetitions} repetitions")
    times = measure_times(chain, clock, repetitions)
    return assemble(chain, saved, work, memory, times, deviations)


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


def measure_memory(chain, counter):
    """Passes without gradients, with new gradients, with existing ones, and a plain iteration."""
    passes = {}
    gc.collect()
    with counter.counting():
        executor.clear_gradients(chain)
        passes["no_grad"] = LiveProbe(chain, counter)
        executor.run_without_gradients(chain, passes["no_grad"])
        passes["new"] = LiveProbe(chain, counter)
        executor.run_stagewise(chain, passes["new"])
        passes["accumulate"] = LiveProbe(chain, counter)
        executor.run_stagewise(chain, passes["accumulate"])
        executor.clear_gradients(chain)
        passes["plain"] = LiveProbe(chain, counter)
        executor.run_plain(chain, passes["plain"])
        executor.clear_gradients(chain)
    return passes


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
    backward: live delta = -inner - freed output - output gradient + input gradient + new parameter gradients,
              once the boundary tensors are released
    """
    problems = []
    last = len(chain.stages) - 1
    for k, (stage, facts) in enumerate(zip(chain.stages, saved.stages)):
        kept = facts["inner"] + facts["new_output"]
        output_gradient = sum(saved.gradient_inputs[k + 1].values()) if k < last else 0
        input_gradient = sum(saved.gradient_inputs[k].values())
        expected = {
            "forward": (live.delta["forward", k], kept),
            "backward": (live.final_delta["backward", k],
                         -kept - output_gradient + input_gradient + live.new_gradients["backward", k]),
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

def assemble(chain, saved, work, memory, times, deviations):
    clamped = []
    ids, boundaries, tensors = {}, [], []
    for j, boundary in enumerate(saved.boundaries[:-1]):
        boundaries.append([tensor_id(entry, ids, tensors, j) for entry in boundary])
    boundaries.append([])
    parameters = {id(p): i for i, p in enumerate(chain.parameters())}
    stages = [stage_fields(chain, k, saved, work, memory, times, parameters, clamped) for k in range(len(chain.stages))]
    return {
        "format": "plimsoll.trace.v1",
        "kind": "chain",
        "name": chain.name,
        "source": evidence(chain, saved, memory, times, deviations, clamped),
        "input_bytes": sum(storage_bytes(tensors_in(chain.input)).values()),
        "tensors": tensors,
        "boundaries": boundaries,
        "parameters": parameter_list(chain),
        "stages": stages,
    }


def tensor_id(entry, ids, tensors, boundary):
    """One id per storage: boundaries that share a storage share the id."""
    address, bytes_, shape, dtype = entry
    if address not in ids:
        ids[address] = len(tensors)
        tensors.append({"name": f"x{boundary}" + (f".{len(tensors)}" if len(tensors) != boundary else ""),
                        "bytes": bytes_, "shape": shape, "dtype": dtype})
    return ids[address]


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
    input_gradient = sum(saved.gradient_inputs[k].values())
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
        "forward_workspace_bytes": at_least_zero(new.peak["forward", k] - kept, f"{name} forward", clamped),
        "forward_nograd_workspace_bytes": at_least_zero(no_grad.peak["forward", k] - output, f"{name} no-grad forward", clamped),
        "input_gradient_bytes": input_gradient,
        "backward_workspace_bytes": at_least_zero(
            new.peak["backward", k] - input_gradient - new_gradients, f"{name} backward", clamped),
        "backward_accumulate_workspace_bytes": at_least_zero(
            accumulate.peak["backward", k] - input_gradient, f"{name} accumulating backward", clamped),
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


def evidence(chain, saved, memory, times, deviations, clamped):
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
            "stagewise_peak_bytes": memory["new"].highest,
            "peaks_are_above": "parameters, buffers and input",
            "identity": "exact on all stages" if not deviations else deviations,
        },
        "workspaces_clamped_to_zero": clamped,
        "buffer_bytes": sum(storage_bytes(chain.buffers()).values()),
    }
    elsewhere = {stage.name: f["elsewhere"] for stage, f in zip(chain.stages, saved.stages) if f["elsewhere"]}
    if elsewhere:
        facts["saved_but_alive_before_and_not_counted_bytes"] = elsewhere
    shared = [stage.name for stage, f in zip(chain.stages[:-1], saved.stages) if f["new_output"] != f["output"]]
    if shared:
        facts["outputs_that_share_a_storage_with_what_was_there"] = shared
    return facts
