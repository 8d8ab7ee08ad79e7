"""Measures a chain; chain_fields.py puts the numbers together as a plimsoll.trace.v1 chain."""

import dataclasses
import gc
import math

import torch
from plimsoll.torch.versions import storage_of

from . import executor
from .allocation_log import Unexplained, log_for
from .allocations import Both, OrderProbe, PlainOrderProbe, StageOrders, logged, plain_orders
from .chain_fields import ByteFacts, assemble, with_bytes
from .clocks import TimeProbe, even_out
from .errors import MeasurementError, first_line
from .executor import Probe
from .live_bytes import SweepCounter
from .memory import LiveProbe, PlainProbe, SavedProbe
from .other_batch import differing
from .part_workspaces import PartWorkspacesProbe
from .update import measure_update
from .weight_part import WeightPartProbe
from .work import WorkProbe


def measure_chain(chain, clock, counter, repetitions, warm_up, say, check_identity=True, optimizer=None):
    """Returns the trace without its command-line part of `source`."""
    run_warm(chain, warm_up)
    facts = measure_bytes(chain, counter, say, check_identity)
    say("work")
    work = measure_work(chain)
    say(f"times, {repetitions} repetitions")
    trace = assemble(chain, facts, work, measure_times(chain, clock, repetitions))
    if optimizer is not None:
        trace["source"]["update"], _ = measure_update(chain, optimizer, clock, counter, repetitions, say)
    return trace


def measure_chain_again(chain, trace, counter, warm_up, say, check_identity=True):
    """The trace of the same chain with the bytes that are measured now, and the times and the work of before."""
    run_warm(chain, warm_up)
    facts = measure_bytes(chain, counter, say, check_identity)
    return with_bytes(trace, chain, facts)


def run_warm(chain, passes):
    executor.clear_gradients(chain)
    for _ in range(passes):
        executor.run_without_gradients(chain, Probe())
        executor.run_stagewise(chain, Probe())
        executor.clear_gradients(chain)


def measure_bytes(chain, counter, say, check_identity):
    say("saved tensors")
    saved = measure_saved(chain)
    say("memory")
    memory, logs, checkpoints = measure_memory(chain, counter, saved)
    deviations = identity_deviations(chain, saved, memory["new"], counter)
    if check_identity and counter.exact and deviations:
        raise MeasurementError("live bytes do not follow from what autograd saves: " + "; ".join(deviations)
                               + " (--no-identity-check writes the trace nevertheless)")
    facts = ByteFacts(saved, measure_weight_parts(chain), measure_part_workspaces(chain, counter), memory, checkpoints, deviations,
                      sum_is_in_place(chain, counter), *explained_allocations(chain, saved, memory, logs))
    plan_at_most(chain, facts, counter)
    return facts


def plan_at_most(chain, facts, counter):
    """What another batch needs beside, where its sizes differ."""
    other, saved = on_another_batch(chain, facts)
    facts.at_most = differing(facts.saved, saved) if other is not None else None
    if facts.at_most is None:
        return
    facts.other = dataclasses.replace(facts, saved=saved, memory=measure_memory(other, counter, saved)[0], at_most=None)
    facts.weight_parts |= dict.fromkeys(facts.at_most.stages)  # the parts of their backwards are not known
    facts.allocations, facts.allocations_unexplained = None, "sizes follow from data"


def on_another_batch(chain, facts):
    """(chain, what it saves) of the first batch that the model takes like its own."""
    for make in chain.on_others():
        try:
            other = make()
            return other, measure_saved(other)
        except Exception as error:  # whatever the model's own code raises where it does not like the numbers
            facts.same_numbers_because = facts.same_numbers_because or first_line(error)
    return None, None


# --- measurements -------------------------------------------------------------------------------------------------------

def measure_saved(chain):
    probe = SavedProbe(chain)
    try:
        executor.run_stagewise(chain, probe)
    finally:
        probe.let_go()
        executor.clear_gradients(chain)
    return probe


def measure_weight_parts(chain):
    probe = WeightPartProbe(chain)
    executor.run_stagewise(chain, probe, inputs_only=True)
    executor.clear_gradients(chain)
    return probe.parts


def measure_part_workspaces(chain, counter):
    probe = PartWorkspacesProbe(counter)
    gc.collect()
    with counter.counting():
        executor.run_stagewise(chain, probe, inputs_only=True)
    executor.clear_gradients(chain)
    return probe


def measure_work(chain):
    probe = WorkProbe()
    executor.run_stagewise(chain, probe)
    executor.clear_gradients(chain)
    return probe.work


def measure_memory(chain, counter, saved):
    """Passes without gradients, with new gradients, with existing ones, plain iterations, and a checkpointed sequence; and of some of them what the
    allocator was asked for, where that is written down."""
    passes, logs, log = {}, {}, log_for(counter)

    def counted(kind, probe, run):
        passes[kind] = probe
        if log is None:
            run(probe)
        else:
            logs[kind] = logged(log, OrderProbe(chain, log), lambda outer: run(Both(outer, probe)))

    steps = executor.checkpointed(len(chain.stages), math.isqrt(len(chain.stages) - 1) + 1)
    gc.collect()
    with counter.counting():
        executor.clear_gradients(chain)
        counted("no_grad", LiveProbe(chain, counter), lambda probe: executor.run_without_gradients(chain, probe))
        counted("new", LiveProbe(chain, counter), lambda probe: executor.run_stagewise(chain, probe))
        counted("accumulate", LiveProbe(chain, counter), lambda probe: executor.run_stagewise(chain, probe))
        for kind, existing in (("plain", False), ("plain_accumulate", True)):
            passes[kind] = whole_pass(chain, counter, existing, lambda probe: executor.run_plain(chain, probe))
            passes[f"{kind}_by_calls"] = whole_pass(chain, counter, existing, lambda probe: executor.run_plain(chain, probe, by_calls=True))
            prepare_gradients(chain, existing)
            passes[f"{kind}_by_stage"] = PlainProbe(counter)
            executor.run_plain(chain, passes[f"{kind}_by_stage"], at_stages=True)
            if log is not None:  # in a pass of its own, since what a mark takes would count in the midst of it
                prepare_gradients(chain, existing)
                logs[kind] = logged(log, PlainOrderProbe(chain, log), lambda probe: executor.run_plain(chain, probe, at_stages=True))
        for kind, sequence in (("store_all", executor.store_all(len(chain.stages))), ("checkpointed", steps)):
            passes[kind] = whole_pass(chain, counter, False,
                                      lambda probe, s=sequence: executor.run_sequence(chain, probe, s, saved.facts()))
        executor.clear_gradients(chain)
    return passes, logs, executor.sequence_text(steps)


def explained_allocations(chain, saved, memory, logs):
    """(the trace's `allocations`, None), or (None, why there are none)."""
    if not logs:
        return None, None
    try:
        for reason in filter(lambda of: isinstance(of, Unexplained), logs.values()):
            raise reason
        return {"stages": StageOrders(chain, saved, memory, logs).all(), "plain": plain_orders(chain, logs, memory)}, None
    except Unexplained as reason:
        return None, str(reason)


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
    times = {kind: TimeProbe(clock) for kind in ("training", "no_grad", "inputs_only", "plain", "accumulate")}
    passes = {"training": lambda probe: executor.run_stagewise(chain, probe),
              "no_grad": lambda probe: executor.run_without_gradients(chain, probe),
              "inputs_only": lambda probe: executor.run_stagewise(chain, probe, inputs_only=True),
              "plain": lambda probe: executor.run_plain(chain, probe),
              "accumulate": lambda probe: executor.run_plain(chain, probe)}
    gc.collect()
    gc.disable()
    try:
        if clock.runs_apart:
            for kind, probe in times.items():
                probe.find_covers(lambda: run_with_gradients_of(chain, kind, passes[kind], probe))
        executor.clear_gradients(chain)
        for _ in range(repetitions):
            for kind, probe in times.items():
                run_with_gradients_of(chain, kind, passes[kind], probe)
            for probe in times.values():
                probe.settle()
    finally:
        gc.enable()
    executor.clear_gradients(chain)
    even_out(list(times.values()))
    return times


def run_with_gradients_of(chain, kind, run, probe):
    """The pass `accumulate` adds to gradients, which it finds where the pass before was `plain`; each other one makes new ones."""
    if kind != "accumulate":
        executor.clear_gradients(chain)
    elif all(parameter.grad is None for parameter in chain.parameters()):
        executor.run_plain(chain, Probe())
    run(probe)


# --- checks ---------------------------------------------------------------------------------------------------------------

def identity_deviations(chain, saved, live, counter):
    """Autograd's saves must explain the allocator's counts, to the byte.

    forward:  live delta = inner + new output storages
    backward: live delta = -inner - freed output - its gradient + new gradients of the input + new parameter gradients,
              once the boundary tensors are released. The portable counter does not see the numbers that are saved of x / 3 and the like.
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
            unseen = facts["numbers"] if isinstance(counter, SweepCounter) else 0
            if measured not in (explained, explained + (unseen if phase == "backward" else -unseen)):
                problems.append(f"{phase} of '{stage.name}' changes live bytes by {measured}, expected {explained}")
    return problems
