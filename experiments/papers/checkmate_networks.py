#!/usr/bin/env python3
"""Checkmate's seven networks: every graph method at 0.9, 0.8, 0.6 and 0.5 of the peak, as the tables of docs/papers/checkmate.md.

    experiments/papers/checkmate_networks.py GRAPHS build/plimsoll out/checkmate_networks
    experiments/papers/checkmate_networks.py GRAPHS build/plimsoll out/checkmate_networks --proven

--proven: the table of docs/strategies/rematerialization/snapshot.md instead, what snapshot proves of them and of shipped traces.

GRAPHS holds the networks as `plimsoll import checkmate-graph` takes them, packed with gzip or not. A cell is the time over
that of plain training. The last column says what is proven of the best: that it is optimal, or how far from it at most.
checkmate, monet and poet stop after 10 s a budget, checkmate_lp after 30 s a network, exact after 5 s a budget, so another machine may
get other numbers for the largest networks. poet alone may page, over a link of 12 GB/s; what is proven is proven of the others. A star:
no integer program, the network has more ops than monet or poet take. Begun again, it goes on where it was stopped.
"""
import gzip
import json
import math
import os
import pathlib
import subprocess
import sys

TENTHS = (9, 8, 6, 5)
SHIPPED = ("densenet121_b8_cpu", "resnet50_b8_cpu", "resnet18_ops_b8_cpu")  # of traces/data
HEURISTICS = ("ap_sqrt", "ap_greedy", "ap_greedy(points=all)", "greedy_recompute", "rockmate", "dtr", "min_cut", "knapsack")
LP, PROGRAM, SEARCH = "checkmate_lp(time_limit=30)", "checkmate(time_limit=10)", "exact(time_limit=5)"
MONET, PAGING = "monet(time_limit=10)", "poet(time_limit=10)"
KEEPING = HEURISTICS + (LP, PROGRAM, MONET, SEARCH)
STRATEGIES = KEEPING + (PAGING,)
LINK = """format: plimsoll.platform.v1
name: link
source: "platforms/ideal.yaml with the link of platforms/v100_pcie.yaml"
devices:
  - {name: gpu, memory: unlimited, launch_overhead: 0 s, times: trace}
memories:
  - {name: host, size: unlimited, bandwidth: unlimited}
links:
  - {name: copy, between: [gpu, host], bandwidth: 12 GBps, latency: 2 us}
"""
TABLE_2 = ("MobileNet", "VGG16", "VGG19", "vgg_unet", "ResNet50")  # of Checkmate's paper
PUBLISHED = {  # there: cost over optimum, geometric mean over all budgets: LP rounding, the best heuristic
    "MobileNet": (1.06, 1.07), "VGG16": (1.01, 1.06), "VGG19": (1.00, 1.39), "vgg_unet": (1.03, 1.23), "ResNet50": (1.05, 1.20)}


def import_graph(file, plimsoll, out):
    name = file.name.split("_train")[0]
    unpacked, trace = out / f"{name}.graph.json", out / f"{name}.json"
    unpacked.write_bytes(gzip.open(file).read() if file.suffix == ".gz" else file.read_bytes())
    subprocess.run([plimsoll, "import", "checkmate-graph", unpacked, "-o", trace], check=True, stdout=subprocess.DEVNULL)
    return name, trace


def sweep(name, trace, platform, strategies, peak, plimsoll, out):
    """By strategy and tenths: the sweep's record."""
    budgets = ", ".join(f"{peak * tenth // 10} B" for tenth in TENTHS)
    experiment = out / f"{name}.yaml"
    experiment.write_text(f"""format: plimsoll.experiment.v1
name: {name}
traces: ['{trace.resolve()}']
platforms: [{platform}]
strategies: [{', '.join(f"'{s}'" for s in strategies)}]
memory: [{budgets}]
engine: event
""")
    folder = out / name
    subprocess.run([plimsoll, "sweep", experiment, "-o", folder, "--resume"], check=True, stderr=subprocess.DEVNULL)
    records = [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]
    return {(r["strategy"], TENTHS[[peak * t // 10 for t in TENTHS].index(r["memory_budget_bytes"])]): r for r in records}


def answers(name, trace, peak, plimsoll, out):
    link = out / "link.yaml"
    link.write_text(LINK)
    return (sweep(name, trace, "ideal", KEEPING, peak, plimsoll, out) |
            sweep(f"{name}_paging", trace, link.resolve(), (PAGING,), peak, plimsoll, out))


def cell(record, plain):
    if not record["feasible"]:
        return "-"
    return f"{record['makespan_s'] / plain['makespan_s']:.4f}" + ("*" if "no integer program" in (record["note"] or "") else "")


def proven(records):
    """The best time, and the proven part of it that no schedule goes below."""
    feasible = [r for r in records if r["feasible"] and r["strategy"] != PAGING]
    if not feasible:
        return None
    best = min(r["makespan_s"] for r in feasible)
    # exact's gap is from all schedules, checkmate's from those that keep the order of first runs.
    bounds = [r["makespan_s"] / (1 + r["gap"]) for r in feasible if r["gap"] is not None and r["strategy"] in (SEARCH, PROGRAM)]
    return best, min(best, max(bounds, default=0))


def proven_by_snapshot(graphs, plimsoll, out):
    """Bound, plan and gap of snapshot, in % over plain training, with the CPU seconds of the whole command, and rockmate's plan."""
    def asked(trace, strategy, tenth):
        before = os.times()
        run = subprocess.run([plimsoll, "simulate", "-t", trace, "-p", "ideal", "-s", strategy, "-m", f"{10 * tenth} %", "--engine", "event",
                              "--json"], capture_output=True, text=True)
        after = os.times()
        if run.returncode not in (0, 1):
            sys.exit(run.stderr)
        seconds = sum(getattr(after, f) - getattr(before, f) for f in ("children_user", "children_system"))
        return (json.loads(run.stdout) if run.returncode == 0 else None), seconds

    print("| network | of the peak | bound | plan | gap | seconds | rockmate |\n|---|---|---|---|---|---|---|")
    networks = [import_graph(file, plimsoll, out) for file in sorted(graphs.glob("*_train*.json*"))]
    for name, trace in networks + [(shipped, shipped) for shipped in SHIPPED]:
        for tenth in TENTHS:
            (made, seconds), (other, _) = asked(trace, "snapshot(offload=no)", tenth), asked(trace, "rockmate", tenth)
            if made is None:
                print(f"| {name} | 0.{tenth} | - | - | - | {seconds:.1f} | - |", flush=True)
                continue
            least = made["lower_bound_s"]
            over = lambda s: f"{100 * (s / least - 1):.4f}"
            gap = "0" if made["gap"] == 0 else f"{100 * made['gap']:.4f}"
            print(f"| {name} | 0.{tenth} | {over(made['makespan_s'] / (1 + made['gap']))} | {over(made['makespan_s'])} | {gap} | {seconds:.1f} | "
                  f"{over(other['makespan_s']) if other else '-'} |", flush=True)


def main():
    graphs, plimsoll, out = pathlib.Path(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3])
    out.mkdir(parents=True, exist_ok=True)
    if sys.argv[4:] == ["--proven"]:
        return proven_by_snapshot(graphs, plimsoll, out)
    print("| network | of the peak | " + " | ".join(f"`{s}`" for s in STRATEGIES) + " | best is |")
    print("|---" * (len(STRATEGIES) + 3) + "|")
    ratios = {}
    for file in sorted(graphs.glob("*_train*.json*")):
        name, trace = import_graph(file, plimsoll, out)
        plain = json.loads(subprocess.run([plimsoll, "simulate", "-t", trace, "-p", "ideal", "-s", "store_all", "--engine", "event",
                                           "--json"], check=True, capture_output=True, text=True).stdout)
        by = answers(name, trace, plain["peak_bytes"], plimsoll, out)
        for tenth in TENTHS:
            records = [by[s, tenth] for s in STRATEGIES]
            found = proven(records)
            cells = [cell(r, plain) for r in records]
            if found is None:
                last = "infeasible" if by[SEARCH, tenth]["smallest_is_proven"] else "none found"
            else:
                gap = found[0] / found[1] - 1
                last = "optimal" if gap < 1e-6 else f"within {100 * gap:.2f} %"
                for s in KEEPING:
                    if by[s, tenth]["feasible"]:
                        ratios.setdefault((name, s), []).append(by[s, tenth]["makespan_s"] / found[0])
            print(f"| {name} | 0.{tenth} | " + " | ".join(cells) + f" | {last} |", flush=True)
    print("\n| network | LP rounding, published | `checkmate_lp` | best heuristic, published | best heuristic here |\n|---|---|---|---|---|")
    mean = lambda values: math.exp(sum(map(math.log, values)) / len(values))
    for start in TABLE_2:
        name = next(n for n, _ in ratios if n.startswith(start))
        most = max(len(ratios.get((name, s), [])) for s in KEEPING)
        best = min((mean(ratios[name, s]), s) for s in HEURISTICS if len(ratios.get((name, s), [])) == most)
        lp = ratios.get((name, LP), [])
        print(f"| {name} | {PUBLISHED[start][0]:.2f} | {mean(lp):.4f} at {len(lp)} of {most} budgets | {PUBLISHED[start][1]:.2f} | "
              f"{best[0]:.4f} (`{best[1]}`) |")


main()
