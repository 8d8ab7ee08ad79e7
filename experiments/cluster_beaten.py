#!/usr/bin/env python3
"""Whether any strategy or random composition is faster than what `cluster` answers. Fails if one is.

    experiments/cluster_beaten.py build/plimsoll [compositions] [devices,devices] [unlike]

Devices (1, 2, 8, 16 where not given) are alike, and of two kinds where the answer is that of `portfolio`. Each is asked
with and without an optimizer, within the capacity and within 1.2 times the least memory that the answer names.
Compositions (500 where not given) are the same in every run. Those that train otherwise are left out: approximate
values, other optimizers, updates from older parameters. `unlike`: two kinds alone, for a smaller model and shorter searches.
"""
import json
import pathlib
import random
import subprocess
import sys
import tempfile

MARGIN = 1e-3
UNLIKE = sys.argv[4:] == ["unlike"]
MODEL = f"transformer:layers={2 if UNLIKE else 4},width=256,heads=8,sequence=128,vocabulary=512,view=graph"
MICRO_BATCHES = 16
LIMIT = 15 if UNLIKE else 60  # seconds a question: a search that takes longer is said, and not compared
OF_CLUSTER = 600  # the same for the answer that is compared with
ALL = "cluster(context=auto,copies=auto,offload=auto,updates=auto)"
OTHERWISE = {"adam8bit", "adafactor", "galore", "sparse_update", "seer", "channel_prune", "pipedream", "pipedream_2bw",
             "prune_bsr", "quantize", "actnn", "gact", "alam", "mesa", "blpa", "acgc", "fewbit", "approx_bp", "wta_crs",
             "compress_plan", "pool", "gist", "cluster", "portfolio", "patch", "shared_norm"}


def platform(devices, alike):
    kinds = [("gpu", devices, 10, 100)] if alike else [("fast", (devices + 1) // 2, 10, 100),
                                                       ("slow", devices // 2, 6, 80)]
    text = "format: plimsoll.platform.v1\nname: machine\nsource: made up\nnodes: 1\ndevices:\n"
    for name, count, peak, bandwidth in kinds:
        if count:
            text += (f"  - {{name: {name}, count: {count}, memory: 200 MB, peak: {{bf16: {peak} TFLOPS}}, "
                     f"memory_bandwidth: {bandwidth} GBps, launch_overhead: 1 us}}\n")
    text += ("memories:\n  - {name: host, size: 100 GB, bandwidth: 50 GBps, adam: 2 GBps}\nswitches:\n"
             "  - {name: inside}\nlinks:\n")
    for name, count, _, _ in kinds:
        if count:
            text += (f"  - {{name: {name}_link, between: [{name}, inside], bandwidth: 20 GBps, latency: 1 us}}\n"
                     f"  - {{name: {name}_bus, between: [{name}, host], bandwidth: 10 GBps, latency: 2 us}}\n")
    return text


class Asked:
    def __init__(self, program, folder, devices, alike, optimizer):
        self.program, self.optimizer = program, optimizer
        self.file = pathlib.Path(folder, f"{devices}_{alike}.yaml")
        self.file.write_text(platform(devices, alike))

    def answer(self, strategy, memory, limit=LIMIT):
        command = [self.program, "simulate", "--json", "-t", MODEL, "-p", self.file, "-s", strategy, "--micro-batches",
                   str(MICRO_BATCHES), "--optimizer", self.optimizer, "--engine", "event"]
        if memory:
            command += ["-m", f"{memory} B"]
        try:
            run = subprocess.run(command, capture_output=True, text=True, timeout=limit)
        except subprocess.TimeoutExpired:
            return "stopped"
        if run.returncode not in (0, 1, 2):
            raise SystemExit(f"exit {run.returncode}: {' '.join(map(str, command))}\n{run.stderr}")
        return json.loads(run.stdout) if run.stdout.strip() else None


def strategies(program):
    listed = json.loads(subprocess.run([program, "list", "strategies", "--json"], capture_output=True, text=True,
                                       check=True).stdout)["strategies"]
    return {each["name"]: each["family"] for each in listed if each["name"] not in OTHERWISE}


def composition(names, devices, draw):
    """Passes in an order that can stand: transforms, splits, replicas, a pipeline or a placement, memory, updates."""
    of = lambda *families: [name for name, family in names.items() if family in families]
    divisors = [n for n in (1, 2, 4, 8, 16) if n <= devices]
    passes = []
    if draw.random() < 0.3:
        passes.append("recompute_ops")
    if draw.random() < 0.5 and devices > 1:
        passes.append(f"megatron(tensor={draw.choice(divisors)},sequence={draw.choice(['yes', 'no'])})")
    if draw.random() < 0.5 and devices > 1:
        passes.append(draw.choice(["data_parallel", "zero1", "zero2", "zero3"]) + f"(ranks={draw.choice(divisors)})")
    if draw.random() < 0.6:
        passes.append(draw.choice(of("pipelining", "placement")))
    if draw.random() < 0.5:
        passes.append(draw.choice(of("rematerialization")))
    if draw.random() < 0.4:
        passes.append(draw.choice(of("offloading")))
    if draw.random() < 0.1:
        passes.append("lossless")
    return "|".join(passes) or "store_all"


def main(program, compositions, sizes):
    names = strategies(program)
    compared = beaten = stopped = 0
    with tempfile.TemporaryDirectory() as folder:
        for devices in sizes:
            draw = random.Random(devices)
            others = list(names) + [composition(names, devices, draw) for _ in range(compositions)]
            for alike in (False,) if UNLIKE else (True, False) if devices > 1 else (True,):
                for optimizer in ("adam", "none"):
                    asked = Asked(program, folder, devices, alike, optimizer)
                    best = ALL if alike else "portfolio"
                    memories = [None]
                    least = asked.answer(best, 1, OF_CLUSTER)
                    least = least and least != "stopped" and least["smallest_feasible_bytes"]
                    if least:
                        memories.append(int(1.2 * least))
                    for memory in memories:
                        made = asked.answer(best, memory, OF_CLUSTER)
                        own = made["makespan_s"] if made != "stopped" and made and made["feasible"] else float("inf")
                        where = f"{devices} {'alike' if alike else 'unlike'}, {optimizer}, {memory or 'capacity'}"
                        print(f"{where}: {best.split('(')[0]} {own:.6g} s {made['strategy'] if own < 1e9 else ''}", flush=True)
                        for strategy in sorted(set(others)):
                            found = asked.answer(strategy, memory)
                            if found == "stopped":
                                stopped += 1
                                print(f"  stopped: {strategy}", flush=True)
                                continue
                            if not found or not found["feasible"]:
                                continue
                            compared += 1
                            if found["makespan_s"] < (1 - MARGIN) * own:
                                beaten += 1
                                print(f"  {strategy}: {found['makespan_s']:.6g} s, {own / found['makespan_s']:.4f}", flush=True)
    print(f"{compared} plans compared, {beaten} faster, {stopped} searches stopped after {LIMIT} s")
    return 1 if beaten else 0


if __name__ == "__main__":
    if not 2 <= len(sys.argv) <= 5 or (len(sys.argv) == 5 and not UNLIKE):
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 500,
                  [int(n) for n in sys.argv[3].split(",")] if len(sys.argv) > 3 else [1, 2, 8, 16]))
