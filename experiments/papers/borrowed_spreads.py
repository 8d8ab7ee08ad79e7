#!/usr/bin/env python3
"""How far kernels of a GPU are from another GPU's efficiencies, which platforms/borrowed/spreads.yaml states.

    python3 experiments/papers/borrowed_spreads.py FOLDER

Each GPU of which kernels were measured is timed by its own peak and bandwidth, and by the efficiencies of the shipped file that
is the nearest to it without its own (`NEAREST`, by the rule of platforms/nearest_efficiency.h among files that measured the
sort). A spread is measured over predicted: a tenth of kernels is below the first number, a tenth above the second. Each GPU
counts as much as another, however many rows it has. FOLDER is as for kernel_spreads.py; times in fp32 are without the latency
of events and launches (fp32_tables.py).
"""
import bisect
import math
import pathlib
import re
import sys

from fp8_table import SHORTEST_US as SHORTEST_FP8_US
from fp8_table import BYTES_OF_SCALING, KERNELS_OF_SCALING
from kernel_shares import FLOOR_US
from kernel_spreads import GPUS, LONG_US, MOVED, SHORTEST_US, SMALLEST, shares_of, table

ROOT = pathlib.Path(__file__).parents[2]
# Peak and bandwidth by data sheets, without sparsity; `fp32` of GPUs whose kernels were measured in fp32.
BF16 = GPUS | {"gb200": (2500e12, 8e12), "rtx_pro_6000_server": (503.8e12, 1.597e12)}
FP32 = {"a100_pcie_40": (19.5e12, 1.555e12), "a100_pcie_80": (19.5e12, 1.935e12), "h100_sxm": (67e12, 3.35e12),
        "v100_pcie": (14e12, 0.9e12), "t4": (8.1e12, 0.32e12), "l4": (30.3e12, 0.3e12)}
LATENCY_US = {"a100_pcie_40": 11, "a100_pcie_80": 11, "h100_sxm": 7, "v100_pcie": 11, "t4": 11, "l4": 11}
FP8 = {"b200_sxm": (4500e12, 7.7e12)}
NEAREST = {
    # Of one generation: Hopper, Blackwell. Else by flops in 16 bits for a byte.
    "bf16": {"h100_sxm": "h200_sxm", "h200_sxm": "h100_sxm", "gb200": "b200_sxm", "rtx_pro_6000_server": "b200_sxm",
             "a100_sxm": "h200_sxm", "b200_sxm": "h100_sxm", "l40s": "h100_sxm"},
    # In fp32 four files have products; of those that may be borrowed, which need products in 16 bits, only one.
    "fp32": {"a100_pcie_40": "h100_sxm", "a100_pcie_80": "h100_sxm", "v100_pcie": "h100_sxm", "t4": "h100_sxm", "l4": "h100_sxm"},
    "moving": {"v100_pcie": "a100_sxm", "t4": "h100_sxm", "l4": "h100_sxm", "a100_pcie_40": "h100_sxm",
               "a100_pcie_80": "h100_sxm"},
    "fp8": {"b200_sxm": "h100_sxm"}}


class Grid:
    """Logarithms of shares, linear between logarithms of sizes, flat outside."""

    def __init__(self, axes, shares):
        self.axes = [[math.log(size) for size in axis] for axis in axes]
        self.logarithms = [math.log(share) for share in shares]

    def share(self, *sizes):
        corners = [(0, 1.0)]
        for axis, size in zip(self.axes, sizes):
            at = math.log(size)
            high = min(bisect.bisect_right(axis, at), len(axis) - 1)
            low = max(high - 1, 0)
            part = min(max((at - axis[low]) / (axis[high] - axis[low]), 0), 1) if high > low else 0
            corners = [(point * len(axis) + end, weight * of) for point, weight in corners for end, of in ((low, 1 - part), (high, part))]
        return math.exp(sum(weight * self.logarithms[point] for point, weight in corners if weight))


def block(lines, *keys):
    """The lines below nested keys."""
    for depth, key in enumerate(keys):
        head = " " * (2 * depth) + key + ":"
        at = next(i for i, line in enumerate(lines) if line.split("#")[0].rstrip() == head)
        inner = lines[at + 1:]
        end = next((i for i, line in enumerate(inner) if line[:2 * depth + 1].strip() and line.strip()), len(inner))
        lines = inner[:end]
    return lines


def numbers(lines, key):
    text = " ".join(lines)
    return [float(number) for number in re.search(rf"\b{key}: \[([^\]]*)\]", text).group(1).split(",")]


def grid(name, axes, *keys):
    lines = (ROOT / f"platforms/efficiency/{name}.yaml").read_text(encoding="utf-8").splitlines()
    of = block(lines, *keys)
    return Grid([numbers(of, axis) for axis in axes], numbers(of, "share"))


def roofline_us(peak, bandwidth, each, batch, m, n, k):
    return 1e6 * max(2 * batch * m * n * k / peak, each * batch * (m * n + n * k + m * k) / bandwidth)


def by_grid(of, peak, bandwidth, each, m, n, k, batch=1):
    least = 2e6 * batch * m * n * k / peak
    return max((roofline_us(peak, bandwidth, each, batch, m, n, k) + FLOOR_US) / of.share(m, n, k), least)


def sizes(row, *keys):
    return [int(row[key]) for key in keys]


def products(folder):
    for gpu, lender in NEAREST["bf16"].items():
        of, (peak, bandwidth) = grid(lender, "mnk", "product", "bf16"), BF16[gpu]
        for row in table(folder, f"gemm_bf16_{gpu}.csv.gz"):
            if float(row["time_us"]) >= LONG_US:
                yield gpu, lender, float(row["time_us"]) / by_grid(of, peak, bandwidth, 2, *sizes(row, "m", "n", "k"))


def narrow_products(folder):
    for gpu, lender in NEAREST["fp8"].items():
        of, (peak, bandwidth) = grid(lender, "mnk", "product", "fp8"), FP8[gpu]
        elementwise = shares_of(gpu)[0]["elementwise"]
        for row in table(folder, f"gemm_fp8_{gpu}.csv.gz"):
            m, n, k = sizes(row, "m", "n", "k")
            scaling = 1e6 * BYTES_OF_SCALING * m * k / (elementwise * bandwidth) + KERNELS_OF_SCALING * FLOOR_US
            time = float(row["time_us"]) - scaling
            if time >= SHORTEST_FP8_US:
                yield gpu, lender, time / by_grid(of, peak, bandwidth, 1, m, n, k)


def fp32_products(folder, op, is_by_size):
    for gpu, lender in NEAREST["fp32" if is_by_size else "moving"].items():
        peak, bandwidth = FP32[gpu]
        of = grid(lender, "mnk", "batched_product_by_size" if op == "bmm" else "product", "fp32") if is_by_size else None
        shares = shares_of(lender)[0]
        for row in table(folder, "matmul_fp32_neusight.csv.gz"):
            batch, m, n, k = sizes(row, "batch", "m", "n", "k")
            time = float(row["time_us"]) - LATENCY_US[gpu]
            if row["gpu"] != gpu or row["op"] != op or time < SHORTEST_US or min(m, n, k) < SMALLEST:
                continue
            if is_by_size:
                yield gpu, lender, time / by_grid(of, peak, bandwidth, 4, m, n, k, batch)
            else:
                moving = 4 * batch * (m * n + n * k + m * k) / (shares["elementwise"] * bandwidth)
                computing = 2 * batch * m * n * k / (shares.get("batched_product", 1) * peak)
                yield gpu, lender, time / (1e6 * max(computing, moving) + FLOOR_US)


def attention(folder):
    for gpu, lender in NEAREST["bf16"].items():
        if gpu not in GPUS:
            continue
        of, (peak, _) = grid(lender, ("sequence", "heads"), "attention", "bf16", "128"), BF16[gpu]
        for row in table(folder, f"attention_forward_bf16_{gpu}.csv.gz"):
            batch, sequence, heads, head_size = sizes(row, "batch", "sequence", "heads", "head_size")
            if head_size == 128 and float(row["time_us"]) >= LONG_US:
                computing = 2e6 * batch * heads * sequence ** 2 * head_size / peak
                predicted = max((computing + FLOOR_US) / of.share(sequence, batch * heads), computing)
                yield gpu, lender, float(row["time_us"]) / predicted


def moving(folder, sort):
    for gpu, lender in NEAREST["moving"].items():
        share, bandwidth = shares_of(lender)[0][sort], FP32[gpu][1]
        for row in table(folder, "elementwise_fp32_neusight.csv.gz"):
            time = float(row["time_us"]) - LATENCY_US[gpu]
            of = {"ln": "norm", "softmax": "softmax"}.get(row["op"], "elementwise")
            if row["gpu"] == gpu and of == sort and time >= SHORTEST_US:
                moved = MOVED[row["op"]] * float(row["rows"]) * float(row["width"])
                yield gpu, lender, time / (1e6 * moved / (share * bandwidth) + FLOOR_US)


def collectives(folder):
    """Measured times hold only where links carry them: between GPUs with the same links."""
    times = {}
    for row in table(folder, "nccl_one_node.csv.gz"):
        times.setdefault(row["gpu"], {})[row["operation"], row["ranks"], row["bytes"]] = float(row["time_us"])
    for gpu, lender in (("h100_sxm", "h200_sxm"), ("h200_sxm", "h100_sxm"), ("gb200", "b200_sxm")):
        for key, time in times[gpu].items():
            if time >= LONG_US and key in times[lender]:
                yield gpu, lender, time / times[lender][key]


def of_nine_tenths(weighted, tenth):
    weighted.sort()
    whole = sum(weight for _, weight in weighted)
    until = 0
    for ratio, weight in weighted:
        until += weight
        if until >= tenth * whole:
            return ratio
    return weighted[-1][0]


def report(sort, rows):
    of_gpu = {}
    for gpu, lender, ratio in rows:
        of_gpu.setdefault((gpu, lender), []).append(ratio)
    weighted = [(ratio, 1 / len(ratios)) for ratios in of_gpu.values() for ratio in ratios]
    print(f"{sort}: {len(weighted)} rows of {len(of_gpu)} GPUs, "
          f"[{of_nine_tenths(weighted, 0.1):.3g}, {of_nine_tenths(weighted, 0.9):.3g}]")
    for (gpu, lender), ratios in of_gpu.items():
        own = [(ratio, 1) for ratio in ratios]
        print(f"  {gpu} by {lender}: {len(ratios)} rows, [{of_nine_tenths(own, 0.1):.3g}, {of_nine_tenths(own, 0.9):.3g}]")


def report_all(folder):
    report("product", products(folder))
    report("fp8_product", narrow_products(folder))
    report("attention", attention(folder))
    report("fp32_product", fp32_products(folder, "linear", True))
    report("fp32_batched_product", fp32_products(folder, "bmm", True))
    report("batched_product", fp32_products(folder, "bmm", False))
    for sort in ("elementwise", "norm", "softmax"):
        report(sort, moving(folder, sort))
    report("collectives", collectives(folder))


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    report_all(pathlib.Path(sys.argv[1]))


if __name__ == "__main__":
    main()
