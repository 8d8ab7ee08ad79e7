#!/usr/bin/env python3
"""Why schedules whose copies run alone are slower than predicted: kernels, copies, and what lies between them.

  python3 validate/results/where_time_goes.py validate/results/*/validation.json

For save_on_cpu, in percent of store_all's time, predicted -> measured. Its copies and kernels take turns, so what the
makespan is longer than their sum is time in which nothing runs: a thread is woken.
"""

import json
import sys

COPIES = ("offload_s", "prefetch_s")


def shares(by_kind, whole, relative):
    copies = sum(seconds for kind, seconds in by_kind.items() if kind in COPIES) / whole
    kernels = sum(seconds for kind, seconds in by_kind.items() if kind not in COPIES) / whole
    return kernels, copies, relative - kernels - copies


def main(files):
    for file in files:
        print(file)
        for row in json.load(open(file, encoding="utf-8"))["rows"]:
            if row["strategy"] != "save_on_cpu":
                continue
            predicted = shares(row["predicted_by_kind"], row["predicted_s"] / row["predicted_relative"], row["predicted_relative"])
            measured = shares(row["measured_by_kind"], row["measured_s"] / row["measured_relative"], row["measured_relative"])
            parts = "  ".join(f"{name} {100 * p:5.1f} -> {100 * m:5.1f}"
                              for name, p, m in zip(("kernels", "copies", "between"), predicted, measured))
            print(f"  {row['network'][:44]:<46}error {100 * row['time_error']:+5.1f} %  {parts}")


if __name__ == "__main__":
    main(sys.argv[1:])
