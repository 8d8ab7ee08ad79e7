#!/usr/bin/env python3
"""Kernels of one GPU in fp32: products as tables for `plimsoll calibrate table`, and the shares of other kernels.

    python3 experiments/papers/fp32_tables.py FOLDER GPU -o OUT

GPU is `h100_sxm`, `l4`, `t4` or `v100_pcie`. FOLDER has `gpu_kernels/matmul_fp32_neusight.csv.gz` and
`gpu_kernels/elementwise_fp32_neusight.csv.gz` (sitar-lab/NeuSight 6945927, MIT: PyTorch 2.1, CUDA events round one call), and
`h100/kernels.json` (kernel_shares.py). OUT gets `product.csv` (m,n,k,time_us) and `batched.csv` (batch,m,n,k,time_us):
NeuSight's rows of 30 us and more, without the latency of events and launches that each has. For an H100 products are our own,
of forwards and both gradients, and NeuSight's forwards where ours do not reach: up to 1,024 rows (`--products` takes one of
both alone). Rows of matrices begin at multiples of 16 bytes. Printed are the shares of the memory's bandwidth that element-wise kernels, norms and softmaxes reach,
forwards of 50 us and more, and how far single kernels are from them.
"""
import argparse
import csv
import gzip
import json
import pathlib
import statistics

# us in each row, as ops that launch nothing show; and what platforms/*.yaml have.
LATENCY_US = {"h100_sxm": 7, "l4": 11, "t4": 11, "v100_pcie": 11}
BANDWIDTH = {"h100_sxm": 3.35e12, "l4": 0.3e12, "t4": 0.32e12, "v100_pcie": 0.9e12}
FLOOR_US, SHORTEST_PRODUCT_US, SHORTEST_US, FEWEST, SEEN_ROWS = 2, 30, 50, 10, 1024
SORTS = {"elementwise": {"add": 12, "mul": 12, "pow": 12, "addu": 8, "relu": 8, "gelu": 8, "tanh": 8},
         "norm": {"ln": 8}, "softmax": {"softmax": 8}}  # bytes of a number
PASSES = {"linear_fwd": lambda m, n, k: (m, n, k), "linear_dx": lambda m, n, k: (m, k, n), "linear_dw": lambda m, n, k: (n, k, m)}


def rows_of(folder, name, gpu):
    with gzip.open(folder / "gpu_kernels" / name, "rt") as file:
        return [row for row in csv.DictReader(file) if row["gpu"] == gpu]


def is_aligned(n, k):
    return n % 4 == 0 and k % 4 == 0


def own_products(folder):
    with open(folder / "h100/kernels.json", encoding="utf-8") as file:
        rows = json.load(file)["rows"]
    for row in rows:
        if row["kind"] in PASSES and row["dtype"] == "fp32" and not row.get("tf32") and is_aligned(*row["shape"][1:]):
            yield (*PASSES[row["kind"]](*row["shape"]), row["us"])


def products(rows, op, latency, most_rows=None):
    for row in rows:
        batch, m, n, k = (int(row[column]) for column in ("batch", "m", "n", "k"))
        time = float(row["time_us"]) - latency
        if row["op"] != op or time < SHORTEST_PRODUCT_US or not is_aligned(n, k) or most_rows and m > most_rows:
            continue
        yield (m, n, k, time) if op == "linear" else (batch, m, n, k, time)


def write(path, columns, rows):
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        file.write(columns + "\n")
        for *sizes, time in rows:
            file.write(",".join(str(size) for size in sizes) + f",{time:.4g}\n")


def report(sort, numbers, rows, gpu):
    reached = []
    for row in rows:
        time = float(row["time_us"]) - LATENCY_US[gpu]
        if row["op"] in numbers and time >= SHORTEST_US:
            moving = 1e6 * numbers[row["op"]] * float(row["rows"]) * float(row["width"]) / BANDWIDTH[gpu]
            reached.append(moving / (time - FLOOR_US))
    if len(reached) < FEWEST:
        return
    share = statistics.median(reached)
    ratios = sorted(share / each for each in reached)
    last = len(ratios) - 1
    print(f"{sort}: {len(reached)} rows, share {share:.2f}, spread [{ratios[last // 10]:.3g}, {ratios[last - last // 10]:.3g}]")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("gpu", choices=LATENCY_US)
    parser.add_argument("-o", dest="out", type=pathlib.Path, required=True)
    parser.add_argument("--products", choices=("both", "own", "neusight"), default="both")
    arguments = parser.parse_args()
    rows, latency = rows_of(arguments.folder, "matmul_fp32_neusight.csv.gz", arguments.gpu), LATENCY_US[arguments.gpu]
    has_own = arguments.gpu == "h100_sxm" and arguments.products != "neusight"
    own = list(own_products(arguments.folder)) if has_own else []
    others = [] if arguments.products == "own" else products(rows, "linear", latency, SEEN_ROWS if own else None)
    arguments.out.mkdir(parents=True, exist_ok=True)
    write(arguments.out / "product.csv", "m,n,k,time_us", [*own, *others])
    write(arguments.out / "batched.csv", "batch,m,n,k,time_us", products(rows, "bmm", latency))
    moving = rows_of(arguments.folder, "elementwise_fp32_neusight.csv.gz", arguments.gpu)
    for sort, numbers in SORTS.items():
        report(sort, numbers, moving, arguments.gpu)


if __name__ == "__main__":
    main()
