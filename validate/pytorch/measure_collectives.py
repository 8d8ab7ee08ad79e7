#!/usr/bin/env python3
"""Times of collectives by size on this machine's ranks (gloo on a CPU, NCCL where each rank has a GPU), beside the model's: a ring of hops, whose latency
and bandwidth are measured by neighbours that send to each other, not by collectives.

  /usr/bin/python3 validate/pytorch/measure_collectives.py --ranks 2 -o out/collectives
  plimsoll calibrate table out/collectives/collectives.csv --of PLATFORM -o mine.yaml --source "measure_collectives.py"

Writes collectives.json (times with their origin, and predictions) and collectives.csv, prints a table. gloo has no reduce_scatter in every torch: there it
is a reduction to each rank of its part, as `plimsoll.torch.sharded` does it, which the table says.
"""

import argparse
import csv
import datetime
import json
import os
import statistics
import sys
import time

from plimsoll.trace import exporter

try:
    import torch
    import torch.distributed as dist

    import measured_ranks
except ModuleNotFoundError as missing:
    print(f"measure_collectives.py: {sys.executable} has no {missing.name} (Debian: apt-get install python3-torch, then /usr/bin/python3)", file=sys.stderr)
    sys.exit(2)

OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter")


def command_line():
    parser = exporter.OneLineParser(prog="measure_collectives.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    positive = exporter.positive
    parser.add_argument("--ranks", type=positive, default=2, metavar="N", help="processes (default 2; with --device cuda a GPU for each)")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--largest", type=positive, default=1 << 24, metavar="BYTES", help="of the whole value; the others are fourths of it (default 16 MiB)")
    parser.add_argument("--rounds", type=positive, default=9, metavar="N", help="timed rounds of each size (default 9)")
    parser.add_argument("-o", "--output", required=True, metavar="FOLDER")
    return parser


def main(arguments):
    try:
        if measured_ranks.is_one():
            return measured_ranks.answer(arguments, of_rank)
        options = command_line().parse_args(arguments)
        if options.ranks < 2:
            raise exporter.UsageError("--ranks: expected at least 2, found 1")
        if options.device == "cuda" and torch.cuda.device_count() < options.ranks:
            raise exporter.UsageError(f"--ranks {options.ranks}: this machine has {torch.cuda.device_count()} GPUs")
        result = measured(options)
    except (exporter.UsageError, exporter.MeasurementError) as error:
        print(f"measure_collectives.py: {error}", file=sys.stderr)
        return error.exit_code
    write(result, options.output)
    print(table(result))
    return 0


def sizes_up_to(largest, ranks):
    """Of the whole value, each four times the one before, from 4 kB on, parts of whole numbers."""
    found = [largest]
    while found[0] // 4 >= 4096:
        found.insert(0, found[0] // 4)
    return [max(1, size // (4 * ranks)) * 4 * ranks for size in found]


# --- the model ------------------------------------------------------------------------------------------------------------------------------

def ring_seconds(operation, bytes_, ranks, latency_s, bytes_per_s):
    """Of a collective of so many bytes of the whole value, as sim/mesh/collective_times.h has it."""
    once = (ranks - 1) * (latency_s + bytes_ / ranks / bytes_per_s)
    return 2 * once if operation == "all_reduce" else once


def hop_of(rows):
    """(latency, bytes a second) of a hop: the time of the smallest message, and what more the largest takes."""
    (small, short), (large, long) = [(row["bytes"], statistics.median(row["seconds"])) for row in (rows[0], rows[-1])]
    if long <= short:
        raise exporter.MeasurementError(f"a message of {large} B took no longer than one of {small} B: measure while nothing else runs")
    rate = (large - small) / (long - short)
    return max(0.0, short - small / rate), rate


def measured(options):
    os.makedirs(options.output, exist_ok=True)
    task = {"ranks": options.ranks, "device": options.device, "sizes": sizes_up_to(options.largest, options.ranks), "rounds": options.rounds}
    found = slowest(measured_ranks.answers(__file__, task, options.output, os.environ | {"OMP_NUM_THREADS": "1"}))
    latency, rate = hop_of(found["hops"])
    for row in found["rows"]:
        row["predicted_s"] = ring_seconds(row["operation"], row["bytes"], options.ranks, latency, rate)
    return {"format": "plimsoll.collectives_measurement.v1", "origin": f"measured by measure_collectives.py, torch {torch.__version__}, {found['backend']}",
            "device": found["device"], "date": datetime.date.today().isoformat(), "load_average": list(os.getloadavg()), "ranks": options.ranks,
            "hop": {"latency_s": latency, "bytes_per_s": rate}, "reduce_scatter": found["reduce_scatter"], "hops": found["hops"], "rows": found["rows"]}


def slowest(of_ranks):
    """In each round the slowest rank's time: a collective is over when it is over everywhere."""
    first = of_ranks[0]
    for kind in ("hops", "rows"):
        for number, row in enumerate(first[kind]):
            row["seconds"] = [max(times) for times in zip(*(of[kind][number]["seconds"] for of in of_ranks))]
    return first


def write(result, folder):
    with open(os.path.join(folder, "collectives.json"), "w", encoding="utf-8") as file:
        json.dump(result, file, indent=1)
    with open(os.path.join(folder, "collectives.csv"), "w", encoding="utf-8", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(("operation", "ranks", "bytes", "time_us"))
        out.writerows((row["operation"], result["ranks"], row["bytes"], f"{statistics.median(row['seconds']) * 1e6:.3f}") for row in result["rows"])


def table(result):
    hop = result["hop"]
    lines = [f"{result['ranks']} ranks, {result['origin'].rpartition(', ')[2]}; a hop takes {hop['latency_s'] * 1e6:.1f} us and carries {hop['bytes_per_s'] / 1e9:.2f} GB/s; "
             f"reduce_scatter is {result['reduce_scatter']}", f"{'operation':<16}{'bytes':>12}{'measured':>14}{'ring':>14}{'off':>9}"]
    for row in result["rows"]:
        seconds = statistics.median(row["seconds"])
        lines.append(f"{row['operation']:<16}{row['bytes']:>12}{seconds * 1e6:>11.1f} us{row['predicted_s'] * 1e6:>11.1f} us{100 * (row['predicted_s'] / seconds - 1):>+8.1f}%")
    return "\n".join(lines)


# --- a rank -------------------------------------------------------------------------------------------------------------------------------------

def of_rank(task, rank):
    device = torch.device("cuda", rank) if task["device"] == "cuda" else torch.device("cpu")
    calls, how = calls_of(rank, task["ranks"], device)
    rows = [{"operation": operation, "bytes": size, "seconds": seconds_of(calls[operation](size), task["rounds"], device)}
            for operation in OPERATIONS for size in task["sizes"]]
    hops = [{"bytes": size, "seconds": seconds_of(calls["hop"](size), task["rounds"], device)} for size in (64, task["sizes"][-1] // task["ranks"])]
    return {"backend": dist.get_backend(), "device": torch.cuda.get_device_name() if device.type == "cuda" else "CPU", "reduce_scatter": how, "hops": hops, "rows": rows}


def calls_of(rank, ranks, device):
    """({operation: function of bytes that returns a function}, what reduce_scatter is)."""
    def tensor(bytes_):
        return torch.zeros(max(1, bytes_ // 4), device=device)

    def all_reduce(bytes_):
        value = tensor(bytes_)
        return lambda: dist.all_reduce(value)

    def all_gather(bytes_):
        value, own = tensor(bytes_), tensor(bytes_ // ranks)
        parts = list(value.split(own.numel()))
        return lambda: dist.all_gather(parts, own)

    def reduce_scatter(bytes_):
        value, own = tensor(bytes_), tensor(bytes_ // ranks)
        parts = list(value.split(own.numel()))
        if device.type == "cuda":
            return lambda: dist.reduce_scatter(own, parts)
        return lambda: [work.wait() for work in [dist.reduce(part, of, async_op=True) for of, part in enumerate(parts)]]

    def hop(bytes_):
        """To the next rank, while the one before sends."""
        value, other = tensor(bytes_), tensor(bytes_)

        def once():
            # all send and receive at once, as in a ring
            works = [dist.P2POp(dist.isend, value, (rank + 1) % ranks), dist.P2POp(dist.irecv, other, (rank - 1) % ranks)]
            for work in dist.batch_isend_irecv(works) if device.type == "cuda" else [works[0].op(value, works[0].peer), works[1].op(other, works[1].peer)]:
                work.wait()
        return once

    how = "its own" if device.type == "cuda" else "a reduction to each rank of its part"
    return {"all_reduce": all_reduce, "all_gather": all_gather, "reduce_scatter": reduce_scatter, "hop": hop}, how


def seconds_of(call, rounds, device):
    """Each behind a barrier, after two that do not count."""
    found = []
    for _ in range(rounds + 2):
        dist.barrier()
        if device.type == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        if device.type == "cuda":
            torch.cuda.synchronize()
        found.append(time.perf_counter() - start)
    return found[2:]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
