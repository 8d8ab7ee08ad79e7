#!/usr/bin/env python3
"""Whether `fits` would say the truth of the measured steps of one H100, at every size of memory from 8 to 96 GB.

    python3 experiments/papers/h100_verdicts.py [docs/truth.csv]

A step fits where its measured reserved bytes and CUDA's context do. It does not where its live bytes and the context do not
fit. Between both nobody has tried: the allocator gives segments back. Sizes within 6 % of a measured sum say nothing either.
`fits` says that a step fits where its predicted reserved bytes, 5 % more of them, and the context do.
"""
import csv
import sys

GB, CONTEXT, MARGIN, NEAR = 10**9, 450 * 10**6, 0.05, 0.06
SIZES = [size * GB for size in range(8, 97)]


def verdicts(row):
    """Sizes at which the verdict is right, falsely "fits", falsely "does not fit", and not decided."""
    live, reserved = (int(row[f"measured_{what}_bytes"]) + CONTEXT for what in ("peak", "reserved"))
    needed = int(row["predicted_reserved_bytes"]) * (1 + MARGIN) + CONTEXT
    counts = dict.fromkeys(("right", "false fits", "false does not fit", "undecided"), 0)
    for size in SIZES:
        if live <= size < reserved or any(abs(size - each) <= NEAR * each for each in (live, reserved)):
            counts["undecided"] += 1
        elif (needed <= size) == (reserved <= size):
            counts["right"] += 1
        else:
            counts["false fits" if needed <= size else "false does not fit"] += 1
    return counts


def main():
    path = sys.argv[1] if len(sys.argv) > 1 else "docs/truth.csv"
    rows = [each for each in csv.DictReader(open(path)) if each["group"] == "h100_steps" and each["predicted_reserved_bytes"]]
    for row in rows:
        counts = verdicts(row)
        print(f"{row['run']:<48}" + ", ".join(f"{count} {what}" for what, count in counts.items() if count))
    wrong = sum(verdicts(row)["false fits"] + verdicts(row)["false does not fit"] for row in rows)
    print(f"{len(rows)} steps at {len(SIZES)} sizes: {wrong} verdicts are wrong")


if __name__ == "__main__":
    main()
