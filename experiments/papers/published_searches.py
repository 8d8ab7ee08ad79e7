#!/usr/bin/env python3
"""The searches of Galvatron, Mist and Calculon on the costs of this program: what each takes, what it promises, what that costs.

    python3 experiments/papers/published_searches.py build/plimsoll [80GB 40GB ...]

Each search has its own space, its own model of an iteration and its own way to look for the best, written after their
descriptions. Their costs of layers are the program's (layer_costs.py), so that differences are those of spaces and models. The
plan that a search takes is then simulated, or the nearest one that can be expressed, and compared with the answer of `cluster`.
"""
import dataclasses
import functools
import itertools
import math
import sys

import layer_costs
import published_spaces
from layer_costs import share_of_level, spec_of, tensor_pass

MOST_SAMPLES = 16  # of a micro-batch of a replica
SHARES = (0.0, 0.5, 1.0)  # what Mist keeps on the host
UNITS = 512  # of memory in Galvatron's program


@dataclasses.dataclass(frozen=True)
class Plan:
    promised: float
    words: str  # as its authors would say it
    nearest: tuple  # (strategy, samples of a micro-batch) of those that can be expressed
    other: str = ""  # what these have otherwise


def divisors(number):
    return [each for each in range(1, number + 1) if number % each == 0]


def levels_of(replicas, levels):
    return levels if replicas > 1 else (0,)


def pipeline_pass(stages, chunks=1):
    if stages == 1:
        return ""
    return f"interleaved(chunks={chunks},stages={stages})" if chunks > 1 else f"1f1b(stages={stages})"


def replica_pass(replicas, level):
    return f"{layer_costs.LEVELS[level]}(ranks={replicas})" if replicas > 1 else ""


def recompute_pass(layers, of):
    """Megatron's full recomputation of so many of a stage's layers, each an attention and an MLP."""
    if layers == 0:
        return ""
    return "full_recompute" if layers >= of else f"full_recompute(layers={2 * layers},method=block)"


# ------------------------------------------------------------------------------------------------------------------ Galvatron


def not_worse(options):
    """Those that no other one beats in memory and time: options (name, units of memory, seconds)."""
    kept = []
    for option in sorted(options, key=lambda each: each[1:]):
        if not kept or option[2] < kept[-1][2]:
            kept.append(option)
    return kept


def layer_choices(layers, units, kind, moving):
    """Choices of layers one after the other with the least sum of times within memory.

    `layers[l]` has options (name, units of memory, seconds). Changing from options of a kind a to those of kind b takes
    `moving(a, b)`. For each number of units up to `units`: (seconds, names), or None where nothing fits.
    """
    table = [{None: (0.0, None)} for _ in range(units + 1)]  # at each number of units: the last kind -> least time, (name, those before)
    for options in layers:
        kinds = {kind(name) for name, _, _ in options}
        best = [option for each in sorted(kinds) for option in not_worse(option for option in options if kind(option[0]) == each)]
        longer = [{} for _ in range(units + 1)]
        for at, before in enumerate(table):
            arrived = {each: min(((sofar + (moving(last, each) if last is not None else 0.0), names) for last, (sofar, names) in before.items()),
                                 key=lambda reached: reached[0], default=None) for each in kinds}
            for name, memory, time in best:
                reached = arrived[kind(name)]
                if reached is None or at + memory > units:
                    continue
                there = longer[at + memory].get(kind(name))
                if there is None or reached[0] + time < there[0]:
                    longer[at + memory][kind(name)] = (reached[0] + time, (name, reached[1]))
        table = longer
    found, least = [], None
    for at in table:  # what fits into less fits, too
        least = min([*at.values(), *([least] if least else [])], key=lambda best: best[0], default=None)
        found.append(least)
    return [best and (best[0], tuple(reversed(list(names_in(best[1]))))) for best in found]


def names_in(links):
    while links is not None:
        yield links[0]
        links = links[1]


def galvatron(costs, batch, memory, units=UNITS):
    """Each layer has its own tensor ranks, ZeRO level (0, 2 or 3) and recomputation; a stage has equally many layers."""
    best = None
    unit = memory / units
    for stages, micro_batches in itertools.product(divisors(math.gcd(costs.devices, costs.layers)), divisors(batch)):
        group = costs.devices // stages
        options = []
        for tensor in divisors(group):
            replicas = group // tensor
            samples, rest = divmod(batch, micro_batches * replicas)
            if rest or not 1 <= samples <= MOST_SAMPLES:
                continue
            for level, saver in itertools.product(levels_of(replicas, (0, 2, 3)), ("none", "full")):
                options.append((tensor, replicas, level, saver, samples))
        if not options:
            continue

        samples_of = {option[0]: option[4] for option in options}

        def moving(before, after):
            return 0.0 if before == after else 2 * micro_batches * max(costs.send(each, samples_of[each]) for each in (before, after))

        def layer_of(option, in_flight):
            tensor, replicas, level, saver, samples = option
            layer, states = costs.layer(tensor, samples, saver), costs.states(tensor)
            exchange = costs.exchange(tensor, replicas, level)
            parameters, gradients, rest = share_of_level(level, replicas)
            need = states.parameters * parameters + states.gradients * gradients + states.states * rest + layer.kept * in_flight
            computing = layer.forward + layer.backward
            return need, max(computing, exchange.each), max(0.0, exchange.once - layer.backward)

        def other_of(option, first, last):
            tensor, replicas, level, saver, samples = option
            layer, states = costs.layer(tensor, samples, saver), costs.states(tensor)
            exchange, half = costs.exchange(tensor, replicas, level), (first + last) / 2
            parameters, gradients, rest = share_of_level(level, replicas)
            need = half * (states.other_parameters * parameters + states.other_gradients * gradients + states.other_states * rest)
            computing = layer.first * first + layer.last * last
            return need + (layer.other if last else 0), max(computing, half * exchange.other_each), half * exchange.other_once

        chosen = []
        for stage in range(stages):
            in_flight, ends = min(micro_batches, stages - stage), (stage == 0, stage == stages - 1)
            of_layer = {option: layer_of(option, in_flight) for option in options}
            table = layer_choices([[(option, math.ceil(need / unit), micro_batches * each + once) for option, (need, each, once)
                                    in of_layer.items()]] * (costs.layers // stages), units, lambda name: name[0], moving)
            least = None
            for option in options if any(ends) else [None]:
                need, each, once = other_of(option, *ends) if option else (0.0, 0.0, 0.0)
                left = units - math.ceil(need / unit)
                if left < 0 or table[left] is None:
                    continue
                time, names = table[left]
                if least is None or time + micro_batches * each + once < least[0]:
                    micro = each + sum(of_layer[name][1] for name in names) + sum(moving(a[0], b[0]) for a, b in zip(names, names[1:])) / micro_batches
                    least = (time + micro_batches * each + once, names, micro, once + sum(of_layer[name][2] for name in names))
            if least is None:
                break
            chosen.append(least)
        if len(chosen) < stages:
            continue
        sends = 2 * (stages - 1) * max(costs.send(option[0], option[4]) for option in options)
        micros = [each for _, _, each, _ in chosen]
        promised = sum(micros) + (micro_batches - 1) * max(micros) + sends + max(once for *_, once in chosen)
        if best is None or promised < best[0]:
            best = (promised, stages, [names for _, names, _, _ in chosen])
    return galvatron_plan(costs, *best) if best else None


def galvatron_plan(costs, promised, stages, names):
    """Each of its ways for all layers, with as many that run again as the stage with most has."""
    every = [name for of in names for name in of]
    again = max(sum(name[3] == "full" for name in of) for of in names)
    words = ", ".join(f"{every.count(name)} layers t={name[0]} d={name[1]} z={name[2]}{' again' if name[3] == 'full' else ''}"
                      for name in dict.fromkeys(every))
    ways = dict.fromkeys((tensor, replicas, level, samples) for tensor, replicas, level, _, samples in every)
    nearest = tuple((spec_of(tensor_pass(tensor), replica_pass(replicas, level), pipeline_pass(stages), recompute_pass(again, costs.layers // stages)),
                     samples) for tensor, replicas, level, samples in ways)
    return Plan(promised, f"p={stages}: {words}", nearest, "one way for all layers" if len(ways) > 1 else "")


# ----------------------------------------------------------------------------------------------------------------------- Mist


@dataclasses.dataclass(frozen=True)
class Stage:
    time: float  # of a micro-batch
    once: float  # more in an iteration
    layers: int
    tensor: int
    replicas: int
    level: int
    again: int
    shares: tuple  # of parameters, gradients, states and activations on the host
    samples: int


def frontier(points, key):
    """Those that no other one beats in all of what `key` says; of equal ones the first."""
    kept = []
    for point in sorted(points, key=key):
        if not any(all(a <= b for a, b in zip(key(other), key(point))) for other in kept):
            kept.append(point)
    return kept


def mist_stage(costs, batch, memory, micro_batches, group, layers, in_flight, first, last):
    """The best ways of one stage on `group` devices."""
    found = []
    half = (first + last) / 2
    for tensor in divisors(group):
        replicas = group // tensor
        samples, rest = divmod(batch, micro_batches * replicas)
        if rest or not 1 <= samples <= MOST_SAMPLES:
            continue
        layer, light, states = costs.layer(tensor, samples, "none"), costs.layer(tensor, samples, "full"), costs.states(tensor)
        bytes_of = [layers * own + half * other for own, other in ((states.parameters, states.other_parameters), (states.gradients, states.other_gradients),
                                                                   (states.states, states.other_states))]
        update = layers * states.update + half * states.other_update
        for level in levels_of(replicas, (0, 1, 2, 3)):
            exchange = costs.exchange(tensor, replicas, level)
            shared = [size * share for size, share in zip(bytes_of, share_of_level(level, replicas))]
            each = layers * exchange.each + half * exchange.other_each
            once = layers * exchange.once + half * exchange.other_once + update * share_of_level(level, replicas)[2]
            for shares in itertools.product(SHARES, repeat=4) if costs.host_rate else [(0.0,) * 4]:
                room = memory - sum(size * (1 - share) for size, share in zip(shared, shares)) - (layer.other if last else 0)
                if level == 3 or shares[0] > 0:
                    room -= 2 * states.parameters
                if level >= 2 or shares[1] > 0:
                    room -= states.gradients
                if shares[3] > 0:
                    room -= 2 * layer.kept
                stays = in_flight * (1 - shares[3])
                again = 0
                if stays * layers * layer.kept > room:
                    again = math.ceil((stays * layers * layer.kept + layer.kept - room) / (stays * (layer.kept - light.kept))) if stays else layers + 1
                if again > layers or room < 0:
                    continue
                left = layers * layer.kept - again * (layer.kept - light.kept)
                computing = layers * (layer.forward + layer.backward) + again * layer.forward + first * layer.first + last * layer.last
                out = shares[3] * left + shares[1] * shared[1]
                back = shares[3] * left + 2 * shares[0] * shared[0]
                copying = max(out, back) / costs.host_rate if costs.host_rate else 0.0
                time = max(computing, each, copying)
                swapped = shares[2] * shared[2] / costs.host_rate if costs.host_rate else 0.0  # behind the first forward, which updates
                late = max(0.0, swapped - layers * layer.forward)
                found.append(Stage(time, once + late, layers, tensor, replicas, level, again, shares, samples))
    return frontier(found, lambda stage: (stage.time, stage.once, sum(stage.shares)))


def iteration_of(stages, micro_batches):
    return sum(stage.time for stage in stages) + (micro_batches - 1) * max(stage.time for stage in stages) + max(stage.once for stage in stages)


def best_stages(layers, count, ways, micro_batches, less_than=math.inf):
    """Stages of `layers` layers in all with the least `iteration_of`: by `ways(stage, layers)`, the best of each stage.

    Exact: rows of stages are left out only where another one is no worse in sum, longest and once, or where the best is passed.
    """
    best, rows = None, {0: [(0.0, 0.0, 0.0, ())]}
    for stage in range(count):
        reached = {}
        for used, before in rows.items():
            sizes = [layers - used] if stage == count - 1 else range(1, layers - used - (count - 1 - stage) + 1)
            for size in sizes:
                for way, (total, longest, once, row) in itertools.product(ways(stage, size), before):
                    longest_now = max(longest, way.time)
                    point = (total + way.time, longest_now, max(once, way.once), (*row, way))
                    if point[0] + (micro_batches - 1) * longest_now + point[2] < less_than:
                        reached.setdefault(used + size, []).append(point)
        rows = {used: frontier(points, lambda point: point[:3]) for used, points in reached.items()}
    for total, longest, once, row in rows.get(layers, []):
        if best is None or total + (micro_batches - 1) * longest + once < best[0]:
            best = (total + (micro_batches - 1) * longest + once, row)
    return best


def mist(costs, batch, memory):
    """Each stage has its own layers, tensor ranks, ZeRO level, layers that run again, and shares on the host."""
    best = None
    for stages, micro_batches in itertools.product(divisors(costs.devices), divisors(batch)):
        if stages > costs.layers:
            continue
        group = costs.devices // stages

        @functools.lru_cache(maxsize=None)
        def ways(stage, layers):
            return mist_stage(costs, batch, memory, micro_batches, group, layers, min(micro_batches, stages - stage), stage == 0, stage == stages - 1)

        samples = batch // (micro_batches * group)
        sends = 2 * (stages - 1) * costs.send(1, max(1, samples)) if stages > 1 else 0.0
        found = best_stages(costs.layers, stages, ways, micro_batches, (best[0] if best else math.inf) - sends)
        if found and (best is None or found[0] + sends < best[0]):
            best = (found[0] + sends, found[1])
    return mist_plan(*best) if best else None


def mist_plan(promised, stages):
    ways = dict.fromkeys((stage.tensor, stage.replicas, stage.level, stage.samples) for stage in stages)
    words = "; ".join(f"{stage.layers} layers t={stage.tensor} d={stage.replicas} z={stage.level}, {stage.again} again" +
                      "".join(f", {share:.0%} of {what} on the host" for what, share
                              in zip(("parameters", "gradients", "states", "activations"), stage.shares) if share)
                      for stage in stages)
    otherwise = ["layers by cut=balanced"] if len({stage.layers for stage in stages}) > 1 else []
    if len(ways) > 1:
        otherwise.append("one way for all stages")
    if any(stage.shares[0] or stage.shares[1] for stage in stages):
        otherwise.append("parameters and gradients stay")
    behind = (recompute_pass(max(stage.again for stage in stages), max(stage.layers for stage in stages)),
              "offload_fractional" if any(stage.shares[3] for stage in stages) else "")
    hosted = max(stage.shares[2] for stage in stages)
    updates = ("deep_optimizer_states(stride=1)", f"twinflow(host={hosted:.0%})") if hosted else ("",)
    nearest = tuple((spec_of(tensor_pass(tensor), replica_pass(replicas, level), pipeline_pass(len(stages)), *behind, update), samples)
                    for (tensor, replicas, level, samples), update in itertools.product(ways, updates))
    return Plan(promised, f"p={len(stages)}: {words}", nearest, ", ".join(otherwise))


# ------------------------------------------------------------------------------------------------------------------- Calculon


@dataclasses.dataclass(frozen=True)
class Point:
    tensor: int
    stages: int
    chunks: int
    replicas: int
    samples: int
    saver: str
    shared: bool  # gradients and states over replicas
    asynchronous: bool  # tensor exchanges behind products
    hosted: tuple  # whether parameters, activations and states are on the host


def calculon_points(costs, batch):
    for tensor, stages in itertools.product(divisors(costs.devices), repeat=2):
        replicas, rest = divmod(costs.devices, tensor * stages)
        if rest or replicas < 1 or costs.layers % stages or batch % replicas:
            continue
        for samples in divisors(batch // replicas):
            micro_batches = batch // (replicas * samples)
            for chunks in divisors(costs.layers // stages) if stages > 1 else [1]:
                if samples > MOST_SAMPLES or (chunks > 1 and micro_batches % stages):
                    continue
                for saver, shared, asynchronous in itertools.product(layer_costs.SAVERS, (False, True), (False, True)):
                    if (shared and replicas == 1) or (asynchronous and tensor == 1):
                        continue
                    for hosted in itertools.product((False, True), repeat=3) if costs.host_rate else [(False,) * 3]:
                        yield Point(tensor, stages, chunks, replicas, samples, saver, shared, asynchronous, hosted)


def calculon_cost(costs, batch, point):
    """Seconds and bytes in closed form, without embedding, head and loss."""
    layer, states = costs.layer(point.tensor, point.samples, point.saver), costs.states(point.tensor)
    plain = costs.layer(point.tensor, point.samples, "none")
    layers, micro_batches = costs.layers // point.stages, batch // (point.replicas * point.samples)
    share = 1 / point.replicas if point.shared else 1.0
    of_host = costs.host_rate or 1.0
    passes = []
    for time, exchanged in ((layer.forward, layer.tensor_forward), (layer.backward, layer.tensor_backward)):
        computing = time - exchanged
        time = max(computing, exchanged) if point.asynchronous else time
        copied = states.parameters * point.hosted[0] + layer.kept * point.hosted[1]
        passes.append(max(time, copied / of_host))
    block = sum(passes)
    sends = 2 * micro_batches * point.chunks * costs.send(point.tensor, point.samples) if point.stages > 1 else 0.0
    exchange = layers * costs.exchange(point.tensor, point.replicas, 1 if point.shared else 0).once
    exposed = max(exchange - (layers - 1) * passes[1], exchange / layers)
    update = layers * states.update * share
    if point.hosted[2]:
        update = max(update, layers * states.states * share / of_host)
    time = micro_batches * layers * block + (point.stages - 1) * layers / point.chunks * block + sends + exposed + update
    in_flight = min(micro_batches, point.stages + (point.stages - 1) / point.chunks if point.chunks > 1 else point.stages)
    kept = min(layers * in_flight, 2) * layer.kept if point.hosted[1] else layers * in_flight * layer.kept
    memory = (min(layers, 3 if point.hosted[0] else layers) * states.parameters + layers * states.gradients * share +
              (1 if point.hosted[2] else layers) * states.states * share + kept + (plain.kept if point.saver == "full" else 0))
    return time, memory


def calculon(costs, batch, memory):
    """All points, each in closed form."""
    best = None
    for point in calculon_points(costs, batch):
        time, need = calculon_cost(costs, batch, point)
        if need <= memory and (best is None or (time, sum(point.hosted)) < best[0]):
            best = ((time, sum(point.hosted)), point)
    return calculon_plan(best[0][0], best[1]) if best else None


def calculon_plan(promised, point):
    hosted = [what for what, there in zip(("parameters", "activations", "states"), point.hosted) if there]
    words = (f"t={point.tensor} p={point.stages} v={point.chunks} d={point.replicas}, recomputing {point.saver}" + ", states shared" * point.shared +
             ", tensor exchanges behind products" * point.asynchronous + (f", on the host: {' and '.join(hosted)}" if hosted else ""))
    strategy = spec_of(layer_costs.SAVERS[point.saver][0], tensor_pass(point.tensor, ",asynchronous=yes" if point.asynchronous else ""),
                       replica_pass(point.replicas, 1 if point.shared else 0), pipeline_pass(point.stages, point.chunks),
                       layer_costs.SAVERS[point.saver][1], "offload_greedy" if point.hosted[1] else "",
                       "deep_optimizer_states(stride=1)" if point.hosted[2] else "")
    return Plan(promised, words, ((strategy, point.samples),), "parameters stay" if point.hosted[0] else "")


SEARCHES = (("Galvatron", galvatron), ("Mist", mist), ("Calculon", calculon))


def simulated(given, plan, memory):
    """The fastest of the nearest strategies that fits, else the last one: strategy, samples of its micro-batches, what it takes."""
    found = []
    for strategy, samples in plan.nearest:
        said = published_spaces.simulated(given.program, f"{given.trace},batch={samples}", given.platform, strategy, given.samples // samples, "-m", memory)
        found.append((strategy, samples, said))
    return min(found, key=lambda each: each[2]["makespan_s"] if each[2]["feasible"] else math.inf)


def rows(given):
    costs = layer_costs.Costs(given.program, given.trace, given.platform)
    yield "| memory | search | its plan | promised | simulated as | takes | `cluster` |"
    yield "|---|---|---|--:|---|--:|--:|"
    for memory in given.memory:
        best, _, proven = published_spaces.of_space(given, given.options, memory)
        whole = published_spaces.cell(best, None, proven)
        for name, search in SEARCHES:
            plan = search(costs, given.samples, published_spaces.bytes_of(memory))
            if plan is None:
                yield f"| {memory} | {name} | nothing fits | | | | {whole} |"
                continue
            strategy, samples, said = simulated(given, plan, memory)
            takes = published_spaces.cell(said["makespan_s"], best, True) if said["feasible"] else "does not fit"
            shown = "`" + strategy.replace("|", "\\|") + f"`, {samples} a micro-batch" + (f" ({plan.other})" if plan.other else "")
            yield f"| {memory} | {name} | {plan.words} | {plan.promised:#.4g} s | {shown} | {takes} | {whole} |"


def main():
    for row in rows(published_spaces.arguments_of(sys.argv[1:], __doc__)):
        print(row, flush=True)


if __name__ == "__main__":
    main()
