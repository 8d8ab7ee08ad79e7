"""Peaks that the fields of a trace promise, added up by hand."""


def store_all_peak(trace):
    """The peak that the fields promise when nothing is dropped, above parameters and input."""
    live, peak, with_gradient, output_gradient = 0, 0, set(), 0
    for stage in trace["stages"]:
        peak = max(peak, live + stage["saved_bytes"] + stage["forward_workspace_bytes"])
        live += stage["saved_bytes"]
    for stage in reversed(trace["stages"]):
        new = set(stage["parameters"]) - with_gradient
        with_gradient |= new
        made = stage["input_gradient_bytes"] + sum(trace["parameters"][i]["bytes"] for i in new)
        peak = max(peak, live + made + stage["backward_workspace_bytes"])
        live += made - stage["saved_bytes"] - output_gradient
        output_gradient = stage["input_gradient_bytes"]
    return peak


def plain_peak(trace, new_gradients):
    """The peak that the fields promise of plain training, of a chain with one tensor a boundary, above parameters, input
    and existing gradients: a boundary tensor dies when neither backward beside it reads it any more."""
    stages, with_gradient, live, peak = trace["stages"], set(), 0, 0
    inner = [stage["saved_bytes"] - stage["output_bytes"] for stage in stages]
    lives = [stage["keeps_output"] or after["keeps_input"] for stage, after in zip(stages, stages[1:])] + [False]
    workspace = "backward_released_workspace_bytes" if new_gradients else "backward_accumulate_released_workspace_bytes"
    for k, stage in enumerate(stages):
        peak = max(peak, live + stage["saved_bytes"] + stage["forward_workspace_bytes"])
        before = stages[k - 1]["output_bytes"] if k > 0 and not lives[k - 1] else 0
        live += stage["saved_bytes"] - before
    for k, stage in reversed(list(enumerate(stages))):
        new = set(stage["parameters"]) - with_gradient if new_gradients else set()
        with_gradient |= new
        made = stage["input_gradient_bytes"] + sum(trace["parameters"][i]["bytes"] for i in new)
        peak = max(peak, live + made + stage[workspace])
        after = stages[k + 1] if k + 1 < len(stages) else {"keeps_input": False, "input_gradient_bytes": 0}
        live += made - inner[k] - after["input_gradient_bytes"]
        live -= stage["output_bytes"] if stage["keeps_output"] else 0
        live -= stages[k - 1]["output_bytes"] if k > 0 and stage["keeps_input"] and not stages[k - 1]["keeps_output"] else 0
    return peak


def plain_peak_of_tensors(trace, new_gradients):
    """The same of a chain with several tensors at a boundary: each is there from the stage that makes it until nobody reads it any
    more, its gradient from the first backward that makes it to that of the stage that made the tensor."""
    stages, boundaries, tensors = trace["stages"], trace["boundaries"], trace["tensors"]
    kept = [set(stage.get("kept_tensors", [t for j, flag in ((k, "keeps_input"), (k + 1, "keeps_output")) if stage[flag]
                                           for t in boundaries[j]])) - set(boundaries[0]) for k, stage in enumerate(stages)]
    read = [set(stage.get("gradient_tensors", boundaries[k] if stage["input_gradient_bytes"] else [])) for k, stage in enumerate(stages)]
    inner = [stage["saved_bytes"] - stage["output_bytes"] for stage in stages]
    gradient = lambda t: tensors[t].get("gradient_bytes", tensors[t]["bytes"])
    workspace = "backward_released_workspace_bytes" if new_gradients else "backward_accumulate_released_workspace_bytes"
    total = lambda numbers, size: sum(size(t) for t in numbers)
    bytes_of = lambda t: tensors[t]["bytes"]
    peak, alive, saved = 0, set(), 0
    for k, stage in enumerate(stages):
        new = set(boundaries[k + 1]) - set(boundaries[k])
        peak = max(peak, saved + inner[k] + total(alive | new, bytes_of) + stage["forward_workspace_bytes"])
        saved += inner[k]
        alive = (alive | new) & (set(boundaries[k + 1]) | set().union(*kept[:k + 1]))
    gradients, parameters = set(), set()
    of_parameters = 0
    for k, stage in reversed(list(enumerate(stages))):
        here = sum(inner[:k + 1]) + total(set().union(*kept[:k + 1]), bytes_of)
        own = set(stage["parameters"]) - parameters if new_gradients else set()
        parameters |= own
        trained = stage.get("parameter_gradient_bytes", None)
        made = sum(trace["parameters"][i]["bytes"] for i in own)
        made = min(made, trained) if trained is not None and own else made
        peak = max(peak, here + total(gradients | read[k], gradient) + of_parameters + made + stage.get(workspace, stage["backward_workspace_bytes"]))
        of_parameters += made
        gradients = (gradients | read[k]) & set(boundaries[k])
    return peak


def freed_after_last_use_peak(trace):
    """The peak of an op graph whose storages die with the last op that touches them, above parameters and input."""
    tensors, last, size = trace["tensors"], {}, {}
    for k, op in enumerate(trace["ops"]):
        for i in op["inputs"] + op["outputs"]:
            last[tensors[i]["storage"]] = k
            size[tensors[i]["storage"]] = tensors[i]["bytes"]
    born = {t["storage"] for t in tensors if t["kind"] in ("input", "parameter")}
    stays = born | {t["storage"] for t in tensors if t["kind"] == "parameter_gradient"}
    live = peak = 0
    for k, op in enumerate(trace["ops"]):
        new = {tensors[i]["storage"] for i in op["outputs"]} - born
        born |= new
        live += sum(size[s] for s in new)
        peak = max(peak, live + op["workspace_bytes"])
        live -= sum(size[s] for s in {tensors[i]["storage"] for i in op["inputs"] + op["outputs"]} - stays if last[s] == k)
    return peak


def plain_order_peak(orders):
    """The peak of an iteration's allocations, list by list."""
    sizes, live, peak = [], 0, 0
    for number in (number for order in orders for number in order):
        if number > 0:
            sizes.append(number)
        live += number if number > 0 else -sizes[-number - 1]
        peak = max(peak, live)
    return peak


def replayed_peak(trace, steps):
    """The peak of passes (F: a forward that keeps nothing, S: one that saves, B: a backward) by their allocations, where each tensor of a boundary is
    dropped as soon as no later step reads it before it is made anew, and its gradient behind the backward of the stage that made it."""
    stages, boundaries = trace["stages"], trace["boundaries"]
    alive, live, peak = {}, 0, 0  # ("tensor", t), ("gradient", t), ("parameter", p), ("saved", stage) -> sizes

    def reads(kind, k):
        stage = stages[k]
        if kind != "B":
            return set(boundaries[k])
        flags = [t for j, flag in ((k, "keeps_input"), (k + 1, "keeps_output")) if stage[flag] for t in boundaries[j]]
        return set(stage.get("kept_tensors", flags))

    steps = [(step[0], int(step[1:])) for step in steps]
    for number, (kind, k) in enumerate(steps):
        of = trace["allocations"]["stages"][k][{"F": "forward_nograd", "S": "forward", "B": "backward"}[kind]]
        sizes, own = list(alive.pop(("saved", k), [])) if kind == "B" else [], live
        for entry in of["order"]:
            if entry > 0:
                sizes.append(entry)
            own += entry if entry > 0 else -sizes[-entry - 1]
            peak = max(peak, own)
        live = own
        for one, index in of.get("tensors", []):
            alive["gradient" if kind == "B" else "tensor", index] = [sizes[one - 1]]
        for one, index in of.get("parameters", []):
            alive["parameter", index] = [sizes[one - 1]]
        if "saved" in of:
            alive["saved", k] = [sizes[one - 1] for one in of["saved"]]
        needed, made = set(), set()
        for later, stage in steps[number + 1:]:
            needed |= reads(later, stage) - made
            made |= set() if later == "B" else set(boundaries[stage + 1]) - set(boundaries[stage])
        gone = [key for key in alive if key[0] == "tensor" and key[1] not in needed]
        if kind == "B":
            gone += [("gradient", t) for t in set(boundaries[k + 1]) - set(boundaries[k]) if ("gradient", t) in alive]
        live -= sum(sum(alive.pop(key)) for key in gone)
    return peak
