#!/usr/bin/env python3
"""Where any strategy of a sweep is faster than `portfolio` by more than a thousandth. Fails if one is.

    plimsoll sweep experiments/portfolio_all.yaml -o out/portfolio_all -j 0
    experiments/portfolio_beaten.py out/portfolio_all
"""
import collections
import json
import pathlib
import sys

MARGIN = 1e-3


def main(folder):
    times, stopped = collections.defaultdict(dict), set()  # by point; points at which portfolio took too long
    for line in pathlib.Path(folder, "results.jsonl").read_text().splitlines():
        record = json.loads(line)
        point = record["trace"], record["platform"], record["memory_budget_bytes"]
        if record["feasible"]:
            times[point][record["strategy"]] = record["makespan_s"]
        if record["strategy"] == "portfolio" and record["outcome"] == "stopped":
            stopped.add(point)
    compared = beaten = 0
    for (trace, platform, budget), by in sorted(times.items()):
        if (trace, platform, budget) in stopped:
            continue
        compared += 1
        own = by.pop("portfolio", float("inf"))
        for strategy, seconds in sorted(by.items(), key=lambda item: item[1]):
            if seconds < (1 - MARGIN) * own:
                print(f"{trace} on {platform} within {budget} B: {strategy} takes {seconds:.6g} s, portfolio {own:.6g} s")
                beaten += 1
    print(f"{compared} budgets, {beaten} faster plans of others, {len(stopped)} budgets at which portfolio was stopped")
    return 1 if beaten else 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1]))
