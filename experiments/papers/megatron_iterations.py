#!/usr/bin/env python3
"""Megatron-LM's eight published iterations on A100 (Korthikanti et al. 2022, tables 3 and 5) beside simulated ones.

    python3 experiments/papers/megatron_iterations.py build/plimsoll

Each with the data sheet's rates, as platforms/a100_sxm_64.yaml has them, and with rates that others measured: 267.9
TFLOPS for products of large bf16 matrices on an A100 SXM (github stas00/ml-engineering, compute/accelerator, "Maximum
Achievable Matmul FLOPS") and 0.893 of the memory's bandwidth for PyTorch's elementwise ops (1727.5 of 1935 GB/s on an
A800 80 GB PCIe: github mli/transformers-benchmarks, issue 4); and by kernels and collectives as others measured them,
platforms/efficiency/a100_sxm.yaml. None of them is fitted to the eight.
"""

import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

# Name, layers, width, heads, samples a micro-batch, nodes of 8 devices, micro-batches, chunks of layers a device; seconds
# with full recomputation, and with shared positions and attention's core recomputed.
MODELS = [
    ("22B", 48, 6144, 64, 4, 1, 1, 1, 1.42, 1.10),
    ("175B", 96, 12288, 96, 1, 8, 64, 3, 18.13, 13.75),
    ("530B", 105, 20480, 128, 1, 35, 280, 3, 49.05, 37.83),
    ("1T", 128, 25600, 160, 1, 64, 512, 1, 94.42, 71.49),
]
DATA_SHEET = (312.0, 2039.0)
RATES = {"data sheet": (*DATA_SHEET, ""), "measured by others": (267.9, 0.893 * 2039.0, ""),
         "kernels and collectives measured by others": (*DATA_SHEET, "    efficiency: a100_sxm\n")}
SHIPPED = pathlib.Path(__file__).resolve().parents[2] / "platforms" / "a100_sxm_64.yaml"


def platform(nodes, tflops, bandwidth, efficiency):
    text = SHIPPED.read_text()
    for key, value in ((r"nodes: \d+", f"nodes: {nodes}"), (r"((?:bf|fp)16): [\d.]+ TFLOPS", rf"\1: {tflops} TFLOPS"),
                       (r"memory_bandwidth: [\d.]+ GBps", f"memory_bandwidth: {bandwidth} GBps"),
                       (r"(    launch_overhead)", rf"{efficiency}\1")):
        text, found = re.subn(key, value, text)
        if found == 0:
            sys.exit(f"{SHIPPED}: no place for {value}")
    return text


def iteration(program, folder, model, rates, is_full):
    _, layers, width, heads, batch, nodes, micro_batches, chunks, _, _ = model
    file = pathlib.Path(folder) / "platform.yaml"
    file.write_text(platform(nodes, *rates))
    pipeline = "" if nodes == 1 else "|1f1b(sends=blocking)" if chunks == 1 else f"|interleaved(chunks={chunks},sends=blocking)"
    strategy = (f"megatron(tensor=8){pipeline}|full_recompute" if is_full else
                f"recompute_ops|megatron(tensor=8,sequence=yes){pipeline}")
    trace = (f"transformer:layers={layers},width={width},heads={heads},sequence=2048,batch={batch},vocabulary=51200,"
             "view=graph,dropout=yes")
    done = subprocess.run([program, "simulate", "-t", trace, "-p", str(file), "-s", strategy, "--optimizer", "adam",
                           "--micro-batches", str(micro_batches), "--engine", "event", "--json"],
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return json.loads(done.stdout)["makespan_s"]


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        for name, rates in RATES.items():
            ratios = []
            print(f"rates: {name}, {rates[0]} TFLOPS, {rates[1]:.0f} GB/s at most")
            for model in MODELS:
                for is_full, published in ((True, model[8]), (False, model[9])):
                    seconds = iteration(sys.argv[1], folder, model, rates, is_full)
                    ratios.append(seconds / published)
                    what = "full recomputation" if is_full else "shared positions, attention's core recomputed"
                    print(f"  {model[0]:>4} {what:<45} {seconds:6.2f} s, published {published:5.2f}: {ratios[-1]:.3f}")
            errors = [abs(ratio - 1) for ratio in ratios]
            middle = statistics.mean(ratios)
            spread = [abs(ratio / middle - 1) for ratio in ratios]
            print(f"  error {statistics.mean(errors):.1%} in the mean, {max(errors):.1%} at worst; "
                  f"around their mean of {middle:.3f}: {statistics.mean(spread):.1%}, {max(spread):.1%}")


if __name__ == "__main__":
    main()
