#!/usr/bin/env python3
"""A random layered graph as a trace: ops in layers, values of which some are read far on.

    experiments/memplanlib/layered_graph.py 100 0.27 --seed 1 -o experiments/memplanlib/traces/layered100.json.gz

Of the kind on which MOCCASIN (Bartan et al., ICML 2023) is measured, after Gagrani et al., "Neural topological ordering for
computation graphs", NeurIPS 2022; with MOCCASIN's parameters by default, but drawn anew, by rules of our own:

  - Layers have N ** width ops in the mean, each between 1 - variability and 1 + variability times that.
  - An op reads each value of the layer before with probability `edges`, one at least; `skips` x N more edges skip layers.
  - Values have 1 to 64 MB, ops take 1 to 64 ms, whole numbers, all equally likely. There is no backward.
"""
import argparse
import gzip
import json
import pathlib
import random


def layers_of(ops, width, variability, chance):
    mean = ops ** width
    layers, made = [], 0
    while made < ops:
        size = min(ops - made, max(1, round(mean * chance.uniform(1 - variability, 1 + variability))))
        layers.append(list(range(made, made + size)))
        made += size
    return layers


def inputs_of(layers, edges, skips, chance):
    """By op, ascending."""
    inputs = {op: set() for layer in layers for op in layer}
    for before, layer in zip(layers, layers[1:]):
        for op in layer:
            inputs[op].update(value for value in before if chance.random() < edges)
            inputs[op] = inputs[op] or {chance.choice(before)}
    layer_of = {op: i for i, layer in enumerate(layers) for op in layer}
    for _ in range(round(skips * len(inputs))):
        op = chance.choice([op for op in inputs if layer_of[op] > 1])
        inputs[op].add(chance.choice([value for value in range(op) if layer_of[value] + 1 < layer_of[op]]))
    return {op: sorted(read) for op, read in inputs.items()}


def trace_of(words):
    chance = random.Random(words.seed)
    inputs = inputs_of(layers_of(words.ops, words.width, words.variability, chance), words.edges, words.skips, chance)
    tensors = [{"name": f"v{op}", "kind": "activation", "bytes": chance.randint(1, 64) * 1_000_000} for op in inputs]
    ops = [{"name": f"op{op}", "phase": "forward", "time_s": chance.randint(1, 64) / 1000, "inputs": read, "outputs": [op]}
           for op, read in inputs.items()]
    command = (f"experiments/memplanlib/layered_graph.py {words.ops} {words.width} --variability {words.variability} --edges "
               f"{words.edges} --skips {words.skips} --seed {words.seed}")
    return {"format": "plimsoll.trace.v1", "kind": "graph", "name": f"layered{words.ops}",
            "source": {"kind": "computed", "command": command}, "tensors": tensors, "ops": ops}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ops", type=int)
    parser.add_argument("width", type=float, help="exponent of the number of ops in a layer")
    parser.add_argument("--variability", type=float, default=0.75)
    parser.add_argument("--edges", type=float, default=0.2)
    parser.add_argument("--skips", type=float, default=0.14)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-o", type=pathlib.Path, required=True, help="the trace, packed")
    words = parser.parse_args()
    words.o.write_bytes(gzip.compress(json.dumps(trace_of(words), separators=(",", ":")).encode(), 9, mtime=0))


if __name__ == "__main__":
    main()
