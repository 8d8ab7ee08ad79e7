"""Puts what was measured of a chain together as a plimsoll.trace.v1 chain."""

import contextlib
import dataclasses
import statistics

from .errors import UsageError
from .memory import SavedProbe
from .other_batch import Sizes, at_most
from .part_workspaces import PartWorkspacesProbe
from .storages import dtype_name, storage_bytes, tensors_in


WEIGHT_PART = ("weight_saved_bytes", "weight_made_bytes", "weight_keeps_gradient", "weight_keeps_input", "weight_keeps_output")
PART_WORKSPACES = ("backward_input_workspace_bytes", "backward_weight_workspace_bytes",
                   "backward_weight_accumulate_workspace_bytes")


@dataclasses.dataclass
class ByteFacts:
    """All that is counted in bytes, and the checks of it."""

    saved: SavedProbe
    weight_parts: dict
    part_workspaces: PartWorkspacesProbe
    memory: dict
    checkpoints: str
    deviations: list
    in_place: bool  # autograd's sums of a shared parameter's contributions
    allocations: dict  # in order; None where they are not known
    allocations_unexplained: str  # why, where the allocator could be followed
    at_most: Sizes = None  # where sizes differ on another batch
    other: object = None   # the ByteFacts of that
    same_numbers_because: str = None  # why sizes have not been seen on other numbers

    def sizes(self):
        """What is planned for."""
        return self.at_most.saved if self.at_most else self.saved


def assemble(chain, facts, work, times):
    stages = []
    for k, (own, bytes_) in enumerate(zip(chain.stages, byte_fields(chain, facts))):
        once = {"recomputable": False} if own.runs_once else {}
        stages.append({"name": own.name} | time_fields(k, times, facts.weight_parts[k]) | bytes_
                      | work_fields(k, work, has_backward(own, bytes_)) | once)
    return {
        "format": "plimsoll.trace.v1",
        "kind": "chain",
        "name": chain.name,
        "source": evidence(chain, times, byte_evidence(chain, facts)) | pytorch_source(chain, facts),
        "plain_iteration_s": times["plain"].median("iteration", 0),
        **chain_bytes(chain, facts),
        **shared_groups(stages, facts.in_place),
        "stages": stages,
    }


def with_bytes(trace, chain, facts):
    """The trace with the bytes of `facts`; times and work stay as they were."""
    refuse_unless_same_chain(trace, chain)
    unstated = dict.fromkeys(("backward_released_workspace_bytes", "backward_accumulate_released_workspace_bytes",
                              "kept_tensors", "gradient_tensors", "parameter_gradient_bytes", "saved_tensors", "boundary_uses",
                              *WEIGHT_PART, *PART_WORKSPACES))
    stages = []
    for before, bytes_ in zip(trace["stages"], byte_fields(chain, facts)):
        stages.append({key: value for key, value in (before | unstated | bytes_).items() if value is not None})
    evidence_now = byte_evidence(chain, facts)
    check = trace["source"].get("check", {}) | evidence_now.pop("check")
    source = trace["source"] | {"check": check} | evidence_now | pytorch_source(chain, facts)
    made = trace | {"source": source, **chain_bytes(chain, facts)}
    made.pop("shared", None)
    if facts.allocations is None:
        made.pop("allocations", None)
    del made["stages"]
    return made | shared_groups(stages, facts.in_place) | {"stages": stages}


def refuse_unless_same_chain(trace, chain):
    """Times of one chain beside bytes of another would be nobody's."""
    def refuse(what, expected, found):
        raise UsageError(f"--bytes-of: the trace is of another chain: {what}: {expected} in the trace, {found} in the model")

    if trace.get("kind") != "chain":
        raise UsageError(f"--bytes-of: expected a trace of kind chain, found {trace.get('kind')!r}")
    for what, expected, found in (
            ("name", trace["name"], chain.name),
            ("stages", [stage["name"] for stage in trace["stages"]], [stage.name for stage in chain.stages]),
            ("input_bytes", trace["input_bytes"], sum(storage_bytes(tensors_in(chain.input)).values())),
            ("parameters", *(without_trained(parameters) for parameters in (trace["parameters"], parameter_list(chain))))):
        if expected != found:
            refuse(what, expected, found)


def without_trained(parameters):
    """What traces have said since before they said which parameters are trained."""
    return [{key: value for key, value in parameter.items() if key != "trained"} for parameter in parameters]


def chain_bytes(chain, facts):
    return {
        "input_bytes": sum(storage_bytes(tensors_in(chain.input)).values()),
        "tensors": tensor_list(facts.sizes()),
        "boundaries": facts.saved.boundaries[:-1] + [[]],
        "parameters": parameter_list(chain),
        **({} if facts.allocations is None else {"allocations": facts.allocations}),
    }


def byte_fields(chain, facts):
    """By stage: all that is counted in bytes, and which tensors and parameters the stage touches."""
    numbers = {id(p): i for i, p in enumerate(chain.parameters())}
    workspaces = at_most_of(facts, lambda of: [stage_workspaces(chain, k, of) for k in range(len(chain.stages))])
    released = at_most_of(facts, lambda of: released_workspaces(chain, of.saved, of.memory))
    stages = [stage_bytes(chain, k, facts, numbers, workspaces[k]) | released[k] for k in range(len(chain.stages))]
    if has_several_tensors(facts.saved):
        for stage, of in zip(stages, facts.saved.stages):
            stage |= {"kept_tensors": of["kept"], "gradient_tensors": of["gradient_tensors"]}
    return stages


def at_most_of(facts, fields):
    """By stage; where sizes differ on another batch, at most."""
    own = fields(facts)
    if facts.other is None:
        return own
    return [{key: at_most(value, two.get(key, value)) for key, value in one.items()} for one, two in zip(own, fields(facts.other))]


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


def shared_groups(stages, in_place):
    """Parameters of several stages, with the stages in the order in which they contribute to the gradient."""
    users = {}
    for k, stage in reversed(list(enumerate(stages))):
        for parameter in stage["parameters"]:
            users.setdefault(parameter, []).append(k)
    rule = "in_place" if in_place else "out_of_place"
    groups = [{"parameter": parameter, "stages": of, "sum": rule} for parameter, of in sorted(users.items()) if len(of) > 1]
    return {"shared": groups} if groups else {}


def released_workspaces(chain, saved, memory):
    """Peak of each stage's backward in a plain iteration, less what the trace's other fields say is alive in it: below 0
    where autograd lets go of more than it makes before the peak."""
    fields = [{} for _ in chain.stages]
    for key, kind, new in (("backward_released_workspace_bytes", "plain", True),
                           ("backward_accumulate_released_workspace_bytes", "plain_accumulate", False)):
        peaks, live = memory[f"{kind}_by_stage"].peak, live_before_backwards(chain, saved, memory["new"], new)
        for k in range(len(chain.stages)):
            if k not in peaks:
                continue  # autograd never enters it: left to the default
            made = saved.stages[k]["new_gradient"] + (memory["new"].new_gradients["backward", k] if new else 0)
            fields[k][key] = peaks[k] - live[k] - made
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
    """In the order of chain.parameters()."""
    names = chain.tensor_names()
    return [{"name": names[id(p)], "bytes": p.numel() * p.element_size(), **own_dtype(chain, p), **frozen(p)} for p in chain.parameters()]


def frozen(parameter):
    return {} if parameter.requires_grad else {"trained": False}


def own_dtype(chain, parameter):
    """Named where autocast computes in another."""
    return {} if chain.precision is contextlib.nullcontext else {"dtype": dtype_name(parameter)}


def time_fields(k, times, part):
    backward = times["training"].median("backward", k)
    inputs_only = times["inputs_only"].median("backward", k)
    return {
        "forward_s": times["training"].median("forward", k),
        "backward_s": backward,
        "forward_nograd_s": times["no_grad"].median("forward", k),
        # A difference of noise is no time: where no gradient reaches a parameter there is no such part.
        "backward_weight_s": max(0.0, backward - inputs_only) if part is None or makes_weights(part) else 0.0,
    }


def makes_weights(part):
    return part["made"] > 0 or part["keeps_gradient"]


def stage_bytes(chain, k, facts, numbers, workspaces):
    saved = facts.sizes()
    of, last, own = saved.stages[k], k == len(chain.stages) - 1, list(chain.stages[k].module.parameters())
    fields = {
        "output_bytes": 0 if last else of["output"],
        # The loss itself is a few bytes that live until its backward: an inner tensor, since nothing is handed on.
        "saved_bytes": of["inner"] + of["output"],
        "input_gradient_bytes": saved.input_gradient(k),
        **workspaces,
        "parameters": [numbers[id(p)] for p in own],
        "keeps_input": of["keeps_input"],
        "keeps_output": of["keeps_output"] and not last,
    }
    if of["saved_tensors"]:
        fields["saved_tensors"] = of["saved_tensors"]
    uses = [use for use in of["boundary_uses"] if not last or use["tensor"] in saved.boundaries[k]]
    if uses:
        fields["boundary_uses"] = uses
    part = facts.weight_parts[k]
    if part is not None:
        values = (part["saved"] + part["made"], part["made"], part["keeps_gradient"], part["keeps_input"], part["keeps_output"])
        fields |= dict(zip(WEIGHT_PART, values)) | part_workspaces(k, facts, workspaces)[0]
    if any(not p.requires_grad for p in own):
        fields["parameter_gradient_bytes"] = sum(p.numel() * p.element_size() for p in own if p.requires_grad)
    return fields


def part_workspaces(k, facts, whole):
    """(fields, those that would be below 0). Those of the weights' part are left out where they cannot be measured."""
    measured = facts.part_workspaces
    if k not in measured.input_peaks:  # the whole backward is for the weights
        values = (0, whole["backward_workspace_bytes"], whole["backward_accumulate_workspace_bytes"])
    else:
        made = facts.saved.stages[k]["new_gradient"] + facts.weight_parts[k]["made"]
        values = (measured.input_peaks[k] - made, *(measured.weights[k] or ()))
    return ({key: max(0, value) for key, value in zip(PART_WORKSPACES, values)},
            [f"{key.removesuffix('_workspace_bytes').replace('_', ' ')}: {value}" for key, value in zip(PART_WORKSPACES, values) if value < 0])


def stage_workspaces(chain, k, facts):
    """Of a stage that a caller runs. That of a backward is below 0 where inner tensors die before gradients appear."""
    of, last, memory = facts.saved.stages[k], k == len(chain.stages) - 1, facts.memory
    made = of["inner"] + (of["output"] if last else of["new_output"])
    new_gradients = memory["new"].new_gradients["backward", k]
    return {
        "forward_workspace_bytes": max(0, memory["new"].peak["forward", k] - made),
        "forward_nograd_workspace_bytes": max(0, memory["no_grad"].peak["forward", k] - (0 if last else of["new_output"])),
        "backward_workspace_bytes": memory["new"].peak["backward", k] - of["new_gradient"] - new_gradients,
        "backward_accumulate_workspace_bytes": memory["accumulate"].peak["backward", k] - of["new_gradient"],
    }


def clamped_workspaces(chain, k, facts):
    """Parts of backwards that would be below 0: there the promised peak is too high."""
    if facts.weight_parts[k] is None:
        return []
    return [f"{chain.stages[k].name} {text}" for text in part_workspaces(k, facts, stage_workspaces(chain, k, facts))[1]]


def has_backward(stage, bytes_):
    """Whether any gradient comes out of it: frozen stages before the first that is trained have none."""
    return bytes_["input_gradient_bytes"] > 0 or any(p.requires_grad for p in stage.module.parameters())


def work_fields(k, work, runs_backward):
    """What is unknown is left out: an operation without a formula, or a backward that the mode did not see."""
    fields = {}
    for phase in ("forward", "backward"):
        flops, bytes_moved, operations = work[phase, k]
        if operations == 0 and phase == "backward" and runs_backward:
            continue
        if flops is not None:
            fields[f"{phase}_flops"] = flops
        fields[f"{phase}_bytes_moved"] = bytes_moved
    return fields


def evidence(chain, times, bytes_):
    """What the reader needs to judge the numbers."""
    worst = max(((times["training"].spread(phase, k), f"{chain.stages[k].name} {phase}")
                 for phase, k in times["training"].samples), default=(0.0, ""))
    spreads = [times["training"].spread(*key) for key in times["training"].samples]
    quartiles = [times["training"].quartile_spread(*key) for key in times["training"].samples]
    passes = times["training"].passes()
    plain, plain_median = times["plain"].samples["iteration", 0], times["plain"].median("iteration", 0)
    return {
        "model": chain.description,
        "spread": {
            "meaning": "(largest - smallest) / median over the repetitions",
            "stage_median": round(statistics.median(spreads), 4),
            "stage_median_between_quartiles": round(statistics.median(quartiles), 4),
            "stage_worst": round(worst[0], 4),
            "stage_worst_is": worst[1],
            "whole_pass": round((max(passes) - min(passes)) / statistics.median(passes), 4),
        },
        **bytes_,
        "check": {
            "sum_of_stage_times_s": sum(times["training"].median(*key) for key in times["training"].samples),
            "plain_iteration_s": plain_median,
            "plain_iteration_spread": round((max(plain) - min(plain)) / plain_median, 4),
            "plain_accumulate_s": times["accumulate"].median("iteration", 0),
            **issue_evidence(times),
            **bytes_["check"],
        },
    }


def issue_evidence(times):
    """Where a device does later what the host issues: how long the host issues a plain iteration, and the share of samples in which the device was
    done with what kept it busy before the host had issued all."""
    if not times["plain"].issue:
        return {}
    stages = [times[kind] for kind in ("training", "no_grad", "inputs_only")]
    return {"plain_issue_s": times["plain"].issue["iteration", 0], "stages_ran_dry": round(statistics.mean(probe.dry_share() for probe in stages), 4)}


def pytorch_source(chain, facts):
    """With which of the trace's `tensors` each value of a boundary is; and which sizes follow from data, where some do."""
    if chain.pytorch is None:
        return {}
    source = chain.pytorch | {"tensors": facts.saved.positions[:-1] + [[]]}
    if facts.at_most is not None:
        named = [pair for names, numbers in zip(source["boundaries"], source["tensors"]) for pair in zip(names, numbers)]
        source["at_most"] = {"stages": [chain.stages[k].name for k in facts.at_most.stages],
                             "values": list(dict.fromkeys(name for name, number in named if number in facts.at_most.tensors))}
    return {"pytorch": source}


def byte_evidence(chain, facts):
    saved, memory = facts.saved, facts.memory
    found = {
        "check": {
            "plain_iteration_peak_bytes": memory["plain"].highest,
            "plain_accumulate_peak_bytes": memory["plain_accumulate"].highest,
            **({} if chain.whole is None else {"calls_peak_bytes": memory["plain_by_calls"].highest,
                                               "calls_accumulate_peak_bytes": memory["plain_accumulate_by_calls"].highest}),
            "stagewise_peak_bytes": memory["new"].highest,
            "store_all_peak_bytes": memory["store_all"].highest,
            "checkpointed_peak_bytes": memory["checkpointed"].highest,
            "checkpointed_sequence": facts.checkpoints,
            "peaks_are_above": "parameters, buffers and input",
            "identity": "exact on all stages" if not facts.deviations else facts.deviations,
        },
        "workspaces_clamped_to_zero": [text for k in range(len(chain.stages)) for text in clamped_workspaces(chain, k, facts)],
        "buffer_bytes": sum(storage_bytes(chain.buffers()).values()),
    }
    unseen = [stage.name for k, stage in enumerate(chain.stages) if facts.weight_parts[k] is None]
    if unseen:
        found["weight_saved_bytes_not_known_of"] = unseen
    if facts.allocations_unexplained:
        found["no_allocations_because"] = facts.allocations_unexplained
    if facts.same_numbers_because:
        found["sizes_not_seen_on_other_numbers_because"] = facts.same_numbers_because
    elsewhere = {stage.name: f["elsewhere"] for stage, f in zip(chain.stages, saved.stages) if f["elsewhere"]}
    if elsewhere:
        found["saved_but_alive_before_and_not_counted_bytes"] = elsewhere
    shared = [stage.name for stage, f in zip(chain.stages[:-1], saved.stages) if f["new_output"] + f["passed"] != f["output"]]
    if shared:
        found["outputs_that_share_a_storage_with_what_was_there"] = shared
    return found
