#!/usr/bin/env python3
"""Every point of a space one by one, against what `cluster` says is its best. Fails where one is faster.

    experiments/cluster_every_point.py build/plimsoll 22b|175b|22b_moving [jobs]

22b: GPT of 22 billion parameters on 8 A100, batch 32. 175b: of 175 billion on 64, batch 64. Tensor parallelism with shared
positions, the most replicas, ZeRO 0 to 3, five schedules, micro-batches of 1 to 4, no, chosen and full recomputation.
22b_moving: the first with rotor and offloading (offload_greedy), too, and 1f1b, interleaved and zb_h1 as schedules.
"""
import concurrent.futures
import itertools
import json
import subprocess
import sys
import time

MODELS = {"22b": ("transformer:layers=48,width=6144,heads=64", "a100_sxm_8", 8, 32),
          "175b": ("transformer:layers=96,width=12288,heads=96", "a100_sxm_64", 64, 64)}
MODELS["22b_moving"] = MODELS["22b"]
SCHEDULES = ["1f1b", "interleaved", "zb_h1", "zb_v", "dualpipe_v"]
FEW_SCHEDULES = ["1f1b", "interleaved", "zb_h1"]
BEHIND = {"full": "full_recompute", "rotor": "rotor", "offload": "offload_greedy"}  # a pipeline
ASKED = {"22b_moving": "saver=none+core+full+rotor,offload=none+offload_greedy,schedule=none+1f1b+interleaved+zb_h1,points=2000"}
CHUNKS = [2, 3, 4, 6]
SHARING = ["data_parallel", "zero1", "zero2", "zero3"]


def divisors(number, most):
    return [n for n in range(1, most + 1) if number % n == 0]


def points(devices, batch, schedules, savers):
    """(micro-batch, passes) of each."""
    for t, p, samples in itertools.product(divisors(8, 8), divisors(devices, devices), (1, 2, 4)):
        if t * p > devices or batch % samples:
            continue
        d = max(n for n in range(1, devices // (t * p) + 1) if batch // samples % n == 0)
        micro_batches = batch // samples // d
        for z, saver in itertools.product(range(4 if d > 1 else 1), savers):
            ways = [""] if p == 1 else [f"{s}(stages={p})" for s in schedules if s != "interleaved"]
            ways += [f"interleaved(chunks={c},stages={p})" for c in CHUNKS if p > 1]
            for way in ways:
                if way.startswith("dualpipe_v") and micro_batches < 2 * p:
                    continue
                passes = ["recompute_ops"] * (saver == "core") + [f"megatron(tensor={t},sequence=yes)"] * (t > 1)
                passes += [f"{SHARING[z]}(ranks={d})"] * (d > 1) + [way] * (p > 1)
                passes += [BEHIND.get(saver)] * (saver in BEHIND)
                yield samples, "|".join(passes) or "store_all"


def ask(program, model, platform, samples, micro_batches, strategy):
    run = subprocess.run([program, "simulate", "--json", "-t", f"{model},sequence=2048,vocabulary=51200,view=graph,batch={samples}",
                          "-p", platform, "-s", strategy, "--micro-batches", str(micro_batches), "--optimizer", "adam",
                          "--engine", "event"], capture_output=True, text=True)
    if run.returncode not in (0, 1, 2):
        sys.exit(f"exit {run.returncode}: {strategy}\n{run.stderr}")
    return json.loads(run.stdout) if run.stdout.strip() else None


def main(program, name, jobs):
    model, platform, devices, batch = MODELS[name]
    started = time.monotonic()
    best = ask(program, model, platform, 1, batch, f"cluster({ASKED.get(name, 'points=100')})")
    searched = time.monotonic() - started
    moves = name == "22b_moving"
    space = list(points(devices, batch, FEW_SCHEDULES if moves else SCHEDULES,
                        ("", "core", "full", "rotor", "offload") if moves else ("", "core", "full")))
    fit = [(best["makespan_s"], "cluster", 0)]
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for (samples, strategy), found in zip(space, pool.map(
                lambda point: ask(program, model, platform, point[0], batch // point[0], point[1]), space)):
            if found and found["feasible"]:
                fit.append((found["makespan_s"], strategy, samples))
    print(f"cluster: {best['makespan_s']:.6g} s, {best['strategy']}, {best['note']}; {searched:.0f} s\n"
          f"{len(space)} points, {len(fit) - 1} fit; {time.monotonic() - started:.0f} s with {jobs} jobs; the fastest:")
    for seconds, strategy, samples in sorted(fit[1:])[:5]:
        print(f"  {seconds:.6g} s, {strategy}, {samples} a micro-batch")
    return 0 if min(fit)[0] >= best["makespan_s"] * (1 - 1e-9) else 1


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4) or sys.argv[2] not in MODELS:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) == 4 else 1))
