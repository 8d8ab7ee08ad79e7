#!/usr/bin/env python3
"""The shares of one H100 in platforms/efficiency/h100_sxm.yaml, again from its kernels, and how far off they leave these.

    python3 experiments/papers/kernel_shares.py FOLDER

FOLDER has `h100/kernels.json`: medians in us of one H100 80GB HBM3, 2026-11-26 (PyTorch 2.11, L2 flushed before each kernel).
`linear_*` are [m, n, k] of x(m, k) w(n, k)^T and its two gradients, `conv_*` [batch, in, side, out, kernel, stride].
"""
import json
import math
import pathlib
import re
import statistics
import sys

PEAK = {"fp32": 67e12, "tf32": 494.7e12, "bf16": 989.4e12}  # platforms/h100_sxm_8.yaml
BYTES = {"fp32": 4, "tf32": 4, "bf16": 2}
BANDWIDTH, FLOOR_US, ALIGNMENT = 3.35e12, 2, 16
PASSES = {"linear": ("linear_fwd", "linear_dx", "linear_dw"), "convolution": ("conv_fwd",),
          "convolution_input_gradient": ("conv_dx",), "convolution_weight_gradient": ("conv_dw",)}
CHANNELS_LAST = "channels_last_"


def shipped():
    text = (pathlib.Path(__file__).parents[2] / "platforms/efficiency/h100_sxm.yaml").read_text(encoding="utf-8")
    return {key: dict((dtype, float(share)) for dtype, share in re.findall(r"(\w+): ([\d.]+)", shares))
            for key, shares in re.findall(r"^(\w+): \{(.*)\}", text, re.M)}


def work(row, dtype):
    """Flops, bytes, and whether rows begin at multiples of 16 bytes."""
    if row["kind"].startswith("linear"):
        m, n, k = row["shape"]
        return 2 * m * n * k, BYTES[dtype] * (m * n + n * k + m * k), all(size * BYTES[dtype] % ALIGNMENT == 0 for size in (n, k))
    batch, inner, side, outer, kernel, stride = row["shape"]
    made = batch * outer * (side // stride) ** 2
    return 2 * made * inner * kernel**2, BYTES[dtype] * (batch * inner * side**2 + made + outer * inner * kernel**2), True


def product_of(row):
    """ln m, ln n, ln k of the product that a convolution is."""
    batch, inner, side, outer, kernel, stride = row["shape"]
    return [math.log(size) for size in (batch * (side // stride) ** 2, outer, inner * kernel**2)]


def held_out(of_pass):
    """`of_pass`: pairs of sizes and reached share. How far each is off by the median share of the others, and by that of the
    nearest one."""
    by_median, by_nearest = [], []
    for held, (size, reached) in enumerate(of_pass):
        others = of_pass[:held] + of_pass[held + 1:]
        by_median.append(abs(reached / statistics.median(share for _, share in others) - 1))
        by_nearest.append(abs(reached / min(others, key=lambda other: math.dist(other[0], size))[1] - 1))
    return by_median, by_nearest


def report(key, dtype, share, rows):
    """`rows`: by pass pairs of the share that a kernel has reached and the time that the shipped share gives, over the measured."""
    medians = [statistics.median(reached for reached, _ in of_pass) for of_pass in rows.values()]
    errors = [abs(ratio - 1) for of_pass in rows.values() for _, ratio in of_pass]
    print(f"{key:<28} {dtype}  {len(errors):3} rows: share {statistics.harmonic_mean(medians):.3f} "
          f"(of each pass {', '.join(f'{median:.3f}' for median in medians)}), shipped {share:.3f}; "
          f"error {statistics.mean(errors):.1%} in the mean, {statistics.median(errors):.1%} in the middle")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    measured = json.loads((pathlib.Path(sys.argv[1]) / "h100/kernels.json").read_text(encoding="utf-8"))["rows"]
    by_median, by_nearest = [], []
    for key, by_dtype in shipped().items():
        is_unaligned = key == "unaligned_product"
        for dtype, share in by_dtype.items():
            rows, sizes = {}, {}
            for row in measured:
                if row["kind"] not in PASSES.get(key.removeprefix(CHANNELS_LAST), PASSES["linear"]):
                    continue
                if row.get("channels_last", False) != key.startswith(CHANNELS_LAST):
                    continue
                if ("tf32" if row.get("tf32") else row["dtype"]) != dtype:
                    continue
                flops, moved, is_aligned = work(row, dtype)
                if is_unaligned == is_aligned:
                    continue
                computing, moving = 1e6 * flops / PEAK[dtype], 1e6 * moved / BANDWIDTH
                roofline = max(computing, moving) + FLOOR_US
                time = max(computing / share, moving) + FLOOR_US if is_unaligned else roofline / share
                reached = (computing if is_unaligned else roofline) / row["us"]
                rows.setdefault(row["kind"], []).append((reached, time / row["us"]))
                if row["kind"].startswith("conv"):
                    sizes.setdefault(row["kind"], []).append((product_of(row), reached))
            report(key, dtype, share, rows)
            for of_pass in sizes.values():
                for sums, errors in zip((by_median, by_nearest), held_out(of_pass)):
                    sums += errors
    print(f"{len(by_median)} convolutions, each held out: {statistics.mean(by_median):.0%} off by the median share of its pass's "
          f"other sizes, {statistics.mean(by_nearest):.0%} by that of the nearest size")


if __name__ == "__main__":
    main()
