#!/usr/bin/env python3
"""Products in fp8 of one H100, as a table for `plimsoll calibrate table`.

    python3 experiments/papers/fp8_table.py FOLDER -o fp8.csv
    plimsoll calibrate table fp8.csv --of h100_sxm_8 --dtype fp8 --with h100_sxm -o h100_sxm.yaml --source TEXT

FOLDER has `gpu_kernels/gemm_fp8_h100_sxm.csv.gz` (ai-dynamo/aiconfigurator 095f58a, Apache-2.0: vLLM 0.24.0, CUTLASS). Its times
contain the scaling of the left operand: one kernel reads its numbers in bf16 for the largest of them, another reads them and
writes 8 bits each. Graphs have that as an op of its own. So both kernels are subtracted, as the efficiencies time them: 5 bytes
a number at the share of element-wise kernels, and two floors. Rows of which less than 20 us are left are passed by. Printed is
which part of the other times this is.
"""
import argparse
import csv
import gzip
import pathlib
import statistics

BANDWIDTH, ELEMENTWISE, FLOOR_US = 3.35e12, 0.88, 2  # platforms/h100_sxm_8.yaml, platforms/efficiency/h100_sxm.yaml
BYTES_OF_SCALING, KERNELS_OF_SCALING, SHORTEST_US = 2 + 2 + 1, 2, 20


def scaling_us(m, k):
    return 1e6 * BYTES_OF_SCALING * m * k / (ELEMENTWISE * BANDWIDTH) + KERNELS_OF_SCALING * FLOOR_US


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("-o", dest="out", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    shares = []
    with gzip.open(arguments.folder / "gpu_kernels/gemm_fp8_h100_sxm.csv.gz", "rt") as read, \
            open(arguments.out, "w", encoding="utf-8", newline="\n") as made:
        made.write("m,n,k,time_us\n")
        for row in csv.DictReader(read):
            m, n, k, time = int(row["m"]), int(row["n"]), int(row["k"]), float(row["time_us"])
            scaling = scaling_us(m, k)
            if time - scaling >= SHORTEST_US:
                shares.append(scaling / time)
                made.write(f"{m},{n},{k},{time - scaling:.5g}\n")
    shares.sort()
    last = len(shares) - 1
    print(f"{len(shares)} rows; scaling is {shares[last // 10]:.0%}, {statistics.median(shares):.0%} and {shares[last - last // 10]:.0%} "
          "of the time of the tenth, the middle and the ninetieth of a hundred")


if __name__ == "__main__":
    main()
