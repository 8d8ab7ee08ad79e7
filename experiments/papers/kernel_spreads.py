#!/usr/bin/env python3
"""The spreads that platforms/efficiency/*.yaml state for kernels behind a share, and that of rooflines, again from kernels.

    python3 experiments/papers/kernel_spreads.py FOLDER

A spread is measured over predicted: a tenth of kernels is below the first number, a tenth above the second. Spreads of tables
are printed by `plimsoll calibrate table`, those of the V100 by fp32_tables.py. FOLDER has

- `gpu_kernels/gemm_bf16_*.csv.gz` (ai-dynamo/aiconfigurator 095f58a, Apache-2.0): products of 0.1 ms and more on five GPUs;
- `gpu_kernels/*_fp32_neusight.csv.gz` (sitar-lab/NeuSight 6945927, MIT): kernels in fp32 of two A100 PCIe, of 50 us and more,
  and products in batches of 64 x 64 x 64 and more;
- `h100/kernels.json`: one H100 of our own (kernel_shares.py), 50 us and more of kernels that move bytes.
"""
import csv
import gzip
import json
import pathlib
import re
import sys

from kernel_shares import ALIGNMENT, BANDWIDTH, BYTES, CHANNELS_LAST, FLOOR_US, PASSES, PEAK, work

ROOT = pathlib.Path(__file__).parents[2]
GPUS = {"a100_sxm": (312e12, 2.039e12), "h100_sxm": (989.4e12, 3.35e12), "h200_sxm": (989.4e12, 4.8e12),
        "b200_sxm": (2250e12, 7.7e12), "l40s": (362e12, 0.864e12)}  # bf16 without sparsity, by data sheets
A100_PCIE = {"a100_pcie_40": (19.5e12, 1.555e12), "a100_pcie_80": (19.5e12, 1.935e12)}
LAUNCH_US, LONG_US, SHORTEST_US, LONG_STEP_US, SMALLEST = 3, 100, 50, 1000, 64
MOVED = {"add": 12, "mul": 12, "pow": 12, "addu": 8, "relu": 8, "gelu": 8, "tanh": 8, "ln": 8, "softmax": 8}  # of fp32
OWN_MOVED = {  # numbers read and written; masks of dropout are bytes
    "elementwise": {"add_fwd": 3, "mul_fwd": 3, "mul_bwd": 2, "gelu_fwd": 2, "gelu_bwd": 3, "silu_fwd": 2, "silu_bwd": 3,
                    "dropout_fwd": 2, "dropout_bwd": 2},
    "norm": {"layer_norm_fwd": 2, "layer_norm_bwd": 3, "rms_norm_fwd": 2, "rms_norm_bwd": 3},
    "softmax": {"softmax_fwd": 2, "softmax_bwd": 3}}


def shares_of(name):
    text = (ROOT / f"platforms/efficiency/{name}.yaml").read_text(encoding="utf-8")
    return {key: float(share) for key, share in re.findall(r"^(\w+): ([\d.]+) ", text, re.M)}, {
        key: dict((dtype, float(share)) for dtype, share in re.findall(r"(\w+): ([\d.]+)", shares))
        for key, shares in re.findall(r"^(\w+): \{(.*)\}", text, re.M)}


def report(name, ratios):
    ratios.sort()
    last = len(ratios) - 1
    print(f"{name}: {len(ratios)} rows, [{ratios[last // 10]:.3g}, {ratios[last - last // 10]:.3g}]")


def table(folder, name):
    with gzip.open(folder / "gpu_kernels" / name, "rt") as file:
        yield from csv.DictReader(file)


def rooflines(folder):
    ratios = []
    for gpu, (peak, bandwidth) in GPUS.items():
        for row in table(folder, f"gemm_bf16_{gpu}.csv.gz"):
            m, n, k = (float(row[key]) for key in "mnk")
            if float(row["time_us"]) >= LONG_US:
                least = max(2 * m * n * k / peak, 2 * (m * n + n * k + m * k) / bandwidth)
                ratios.append(float(row["time_us"]) / (1e6 * least + LAUNCH_US))
    report("rooflines", ratios)


def a100(folder):
    shares, _ = shares_of("a100_sxm")
    ratios = {"elementwise": [], "norm": [], "softmax": [], "batched_product": []}
    for row in table(folder, "elementwise_fp32_neusight.csv.gz"):
        if row["gpu"] in A100_PCIE and float(row["time_us"]) >= SHORTEST_US:
            sort = {"ln": "norm", "softmax": "softmax"}.get(row["op"], "elementwise")
            moved = MOVED[row["op"]] * float(row["rows"]) * float(row["width"])
            predicted = 1e6 * moved / (shares[sort] * A100_PCIE[row["gpu"]][1]) + FLOOR_US
            ratios[sort].append(float(row["time_us"]) / predicted)
    for row in table(folder, "matmul_fp32_neusight.csv.gz"):
        batch, m, n, k = (float(row[key]) for key in ("batch", "m", "n", "k"))
        if row["gpu"] in A100_PCIE and row["op"] == "bmm" and float(row["time_us"]) >= SHORTEST_US and min(m, n, k) >= SMALLEST:
            peak, bandwidth = A100_PCIE[row["gpu"]]
            moving = 4 * batch * (m * n + n * k + m * k) / (shares["elementwise"] * bandwidth)
            computing = 2 * batch * m * n * k / (shares.get("batched_product", 1) * peak)
            ratios["batched_product"].append(float(row["time_us"]) / (1e6 * max(computing, moving) + FLOOR_US))
    for sort, of in ratios.items():
        report(f"a100_sxm, {sort}", of)


def own_moving(rows, shares):
    for sort, kinds in OWN_MOVED.items():
        ratios = []
        for row in rows:
            if row["kind"] in kinds and row["us"] >= SHORTEST_US:
                numbers = row["shape"][0] * row["shape"][1]
                moved = numbers * (kinds[row["kind"]] * BYTES[row["dtype"]] + row["kind"].startswith("dropout"))
                ratios.append(row["us"] / (1e6 * moved / (shares[sort] * BANDWIDTH) + FLOOR_US))
        report(f"h100_sxm, {sort}", ratios)
    ratios = []
    for row in rows:
        if row["kind"] == "adamw_fused" and row["us"] >= LONG_STEP_US:
            moved = 7 * BYTES[row["dtype"]] * row["shape"][0] * row["shape"][1]  # the gradient, and three that are written too
            ratios.append(row["us"] / (1e6 * moved / (shares["optimizer"] * BANDWIDTH) + FLOOR_US))
    report("h100_sxm, optimizer", ratios)


def own_computing(rows, by_dtype):
    ratios = {"unaligned_product": [], "product_without_table": [], "convolution": []}
    for row in rows:
        dtype = "tf32" if row.get("tf32") else row["dtype"]
        key = next((key for key, kinds in PASSES.items() if row["kind"] in kinds), None)
        if key is None:
            continue
        flops, moved, is_aligned = work(row, dtype)
        computing, moving = 1e6 * flops / PEAK[dtype], 1e6 * moved / BANDWIDTH
        if key != "linear":
            share = by_dtype.get(CHANNELS_LAST + key, {}).get(dtype) if row.get("channels_last") else None
            share = share or by_dtype[key][dtype]
            ratios["convolution"].append(row["us"] * share / (max(computing, moving) + FLOOR_US))
        elif not is_aligned and dtype in by_dtype["unaligned_product"]:
            share = by_dtype["unaligned_product"][dtype]
            ratios["unaligned_product"].append(row["us"] / (max(computing / share, moving) + FLOOR_US))
        elif dtype in by_dtype["product_without_table"]:
            share = by_dtype["product_without_table"][dtype]
            ratios["product_without_table"].append(row["us"] * share / (max(computing, moving) + FLOOR_US))
    for sort, of in ratios.items():
        report(f"h100_sxm, {sort}", of)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[1])
    rooflines(folder)
    a100(folder)
    with open(folder / "h100/kernels.json", encoding="utf-8") as file:
        rows = json.load(file)["rows"]
    shares, by_dtype = shares_of("h100_sxm")
    own_moving(rows, shares)
    own_computing(rows, by_dtype)


if __name__ == "__main__":
    main()
