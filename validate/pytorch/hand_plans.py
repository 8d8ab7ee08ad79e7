"""Plans written without the program, for tests of the executor: from a sequence of steps to a plan.v1 in which every value is dropped after its
last use. Times and totals of memory are not predicted: they are 0.
"""

import copy
import functools
import random

import models
import torch

from plimsoll.torch.recorder import constants_in
from plimsoll.torch.saved import SavedByStage
from plimsoll.torch.stages import split
from plimsoll.torch.versions import storage_of

# Steps are (kind, stage): "F" a forward that keeps nothing, "S" one that saves, "B" a backward; ("out", value) and ("in", value) copies.


def store_all(n):
    return [("S", k) for k in range(n)] + [("B", k) for k in reversed(range(n))]


def recompute_all(n):
    """Every stage from the input: the most recomputation there is."""
    steps = [("F", k) for k in range(n)]
    for last in reversed(range(n)):
        steps += [("F", k) for k in range(last)] + [("S", last), ("B", last)]
    return steps


def segments(n, length):
    first = list(range(0, n, length))
    steps = [("S" if k >= first[-1] else "F", k) for k in range(n)]
    for begin in reversed(first):
        own = range(begin, min(begin + length, n))
        steps += [("S", k) for k in own] if begin != first[-1] else []
        steps += [("B", k) for k in reversed(own)]
    return steps


def by_chance(n, seed):
    """A random recursion: a part of the chain is kept, or run to a random checkpoint whose right part comes first."""
    chance = random.Random(seed)

    def part(begin, end):
        if begin == end:
            return []
        if end - begin == 1 or chance.random() < 0.3:
            return [("S", k) for k in range(begin, end)] + [("B", k) for k in reversed(range(begin, end))]
        if chance.random() < 0.3:
            return [("S", begin), *part(begin + 1, end), ("B", begin)]
        cut = chance.randrange(begin + 1, end)
        return [("F", k) for k in range(begin, cut)] + part(cut, end) + part(begin, cut)

    return part(0, n)


def offload(steps, staged):
    """What a saving forward leaves goes to the host behind it, and so does its input; all comes back before the first step that needs it."""
    result, away = [], set()
    for kind, k in steps:
        stage = staged.stages[k]
        needed = [*stage.reads, *(stage.makes if kind == "B" else ()), *([f"saved by {k}"] if kind == "B" else ())]
        for name in needed:
            if name in away:
                result.append(("in", name))
                away.discard(name)
        result.append((kind, k))
        if kind == "S":
            for name in [f"saved by {k}", *stage.reads]:
                if name not in staged.boundaries[0]:
                    result.append(("out", name))
                    away.add(name)
    return result


def in_parts(plan, parts):
    """The plan with each copy as `parts` copies of ranges, as a strategy with chunks has them: what goes out is dropped with the last."""
    bytes_, actions = {value["name"]: value["bytes"] for value in plan["values"]}, []
    for action in plan["actions"]:
        if action["do"] != "copy":
            actions.append(action)
            continue
        size, drops = bytes_[action["value"]], ("drops", "drops_on_host")
        ends = [size * k // parts for k in range(parts + 1)]
        pieces = [{key: value for key, value in action.items() if key not in drops} | {"first_byte": begin, "bytes": end - begin}
                  for begin, end in zip(ends, ends[1:])]
        pieces[-1] |= {key: action[key] for key in drops if key in action}
        actions += pieces
    return plan | {"actions": actions}


def saved_bytes(staged, inputs, targets):
    """Bytes of the storages that autograd saves in each stage, beside parameters, constants and what stands on boundaries."""
    kept = [*staged.model.parameters(), *staged.model.buffers(), *staged.outside, *([targets] if isinstance(targets, torch.Tensor) else [])]
    kept += [tensor for stage in staged.stages for operation in stage.operations for tensor in constants_in(operation.arguments)]
    known = {storage_of(tensor).data_ptr() for tensor in kept}
    values, found, everything = dict(zip(staged.boundaries[0], staged.values_of(inputs))), [], []
    for stage in staged.stages:
        packed = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t, packed=packed: packed.append(t.detach()) or t.detach(), lambda t: t):
            made = stage(tuple(values[name].detach().requires_grad_(values[name].is_floating_point()) for name in stage.reads), targets)
        values.update({name: tensor.detach() for name, tensor in zip(stage.makes, made)})
        everything += [packed, made]
        borders = known | {storage_of(tensor).data_ptr() for tensor in values.values()} - (
            {storage_of(made[0]).data_ptr()} if stage.is_last else set())
        seen = {storage_of(t).data_ptr(): storage_of(t).nbytes() for t in packed if t.device == made[0].device}
        unseen = SavedByStage(stage.name, known | set(seen), made[0].device).bytes_of_numbers(made)
        found.append(sum(size for address, size in seen.items() if address not in borders) + unseen)
    found[-1] += storage_of(made[0]).nbytes()
    return found


def plan_of(staged, steps, saved, micro_batches=1):
    """`saved`: bytes by stage, as above."""
    from plimsoll.torch.refusals import fingerprint_of, frozen_in
    of = {value.name: value for value in staged.values}
    tensors = {}
    for boundary in staged.boundaries[:-1]:
        for name in boundary:
            tensors.setdefault(of[name].storage, len(tensors))
    number = {name: tensors[of[name].storage] for boundary in staged.boundaries[:-1] for name in boundary}
    values = [{"name": f"x{t}", "kind": "boundary", "tensor": t, "bytes": next(v.bytes for v in staged.values if v.storage == s)}
              for s, t in tensors.items()]
    values += [{"name": f"gradient of x{t}", "kind": "gradient", "tensor": t, "bytes": 0} for t in tensors.values()]
    values += [{"name": f"saved by {k}", "kind": "saved", "stage": k, "bytes": saved[k]} for k in range(len(staged.stages))]
    actions = []
    for micro_batch in range(micro_batches):
        actions += actions_of(staged, steps, number, micro_batch)
    return {"format": "plimsoll.plan.v1", "micro_batches": micro_batches, "backward": "by_stage", "strategy": "by hand",
            "predicted": {"resident_bytes": 0},
            "model": {"stages": [{"name": stage.name} for stage in staged.stages], "boundaries": staged.boundaries, "how": staged.how,
                      "tensors": [[number[name] for name in boundary] for boundary in staged.boundaries[:-1]] + [[]],
                      "fingerprint": fingerprint_of(staged.model), "input_shapes": staged.input_shapes(),
                      "answers": staged.questions.answers(), "frozen": frozen_in(staged.model)},
            "values": values, "actions": actions}


def actions_of(staged, steps, number, micro_batch):
    actions, ran, away = [], set(), set()
    for kind, what in steps:
        if kind in ("out", "in"):
            name = what if what.startswith("saved by") else f"x{number[what]}"
            action = {"do": "copy", "value": name, "from": "device" if kind == "out" else "host", "to": "host" if kind == "out" else "device"}
            if kind == "out":
                action["drops"] = [name]
                away.add(name)
            else:
                action["drops_on_host"] = [name]
                away.discard(name)
        elif kind == "B":
            action = {"do": "backward", "stage": what, "drops": [f"saved by {what}"]}
        else:
            action = {"do": "forward", "stage": what, "saves": kind == "S", "again": what in ran,
                      "makes": sorted({f"x{number[name]}" for name in staged.stages[what].makes if name in number})}
            ran.add(what)
        actions.append({"micro_batch": micro_batch, "peak_bytes": 0, "after_bytes": 0} | action)
    needed = set()
    for (kind, what), action in zip(reversed(steps), reversed(actions)):
        touched, made = set(), set()
        if kind in ("F", "S", "B"):
            stage = staged.stages[what]
            touched = {f"x{number[name]}" for name in stage.reads}
            passed = {f"x{number[name]}" for name in staged.boundaries[what]}
            if kind == "B":
                touched |= {f"x{number[name]}" for name in stage.makes if name in number}
            else:
                made = set(action["makes"]) - passed
        dying = sorted((touched | made) - needed)
        if dying:
            action["drops"] = action.get("drops", []) + dying
        needed = (needed - made) | touched
        if kind == "in" and not what.startswith("saved by"):
            needed.discard(action["value"])
        if kind == "out" and not what.startswith("saved by"):
            needed.add(action["value"])
    return actions


@functools.lru_cache(maxsize=None)
def prepared(name):
    """((model, inputs, targets), loss, its stages, what they save), made once."""
    model, loss, inputs, targets = models.MODELS[name]()
    staged = split(copy.deepcopy(model), inputs, how="auto", loss=loss, targets=targets)
    return (model, inputs, targets), loss, staged, saved_bytes(staged, inputs, targets)


def planned(name, sequence, micro_batches=1):
    """(model, plan, loss, inputs, targets)."""
    made, loss, staged, saved = prepared(name)
    model, inputs, targets = copy.deepcopy(made)
    return model, plan_of(staged, sequence(staged), saved, micro_batches), loss, inputs, targets


SEQUENCES = {
    "store all": lambda staged: store_all(len(staged.stages)),
    "recompute all": lambda staged: recompute_all(len(staged.stages)),
    "segments of 2": lambda staged: segments(len(staged.stages), 2),
    "segments of 3": lambda staged: segments(len(staged.stages), 3),
    **{f"by chance {seed}": lambda staged, seed=seed: by_chance(len(staged.stages), seed) for seed in range(4)},
    "offload": lambda staged: offload(store_all(len(staged.stages)), staged),
    "offload segments": lambda staged: offload(segments(len(staged.stages), 3), staged),
}
