"""Draws what `cluster` chooses: iteration time and its cost in GPU-seconds against GPUs, and the plan wherever it changes.

python3 plot_cluster.py SWEEP GPUS [FOLDER]    writes FOLDER/cluster.svg, .pdf and .png (default: the folder of the sweep)

GPUS: of a node; names of platforms say how many nodes there are, `a100_sxm_64:nodes=2`. A curve is what differs only by
its number of GPUs. A number at a point stands for a plan that is not that of the point to its left, where replicas are not
counted. Hollow: the search has ended without a proof. The same results give the same SVG, byte for byte. Exit code 42:
matplotlib is missing; 43: a figure cannot be written.
"""

import json
import os
import re
import sys

from plot import GREY, INK, SHADE, Line2D, make_logarithmic, memory_unit, plt, save, style_of

TIMES = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9))


def plan_of(record):
    """The chosen plan as its candidates name it, without what only replicas make: `megatron(tensor=2)|zero1, 1 a micro-batch`."""
    taken = next(each["strategy"] for each in record["candidates"] if each["taken"])
    for word in (r"\(ranks=\d+\)", r"ranks=\d+,", r",ranks=\d+", r"sequence=yes,"):
        taken = re.sub(word, "", taken)
    return taken


def nodes_of(platform):
    """How many nodes it names, and what a curve is of: its name and its other options."""
    name, _, options = platform.partition(":")
    count = re.search(r"(?:^|,)nodes=(\d+)", options)
    if count is None:
        sys.exit("%s: says no number of nodes (nodes=)" % platform)
    rest = [option for option in options.split(",") if option and not option.startswith("nodes=")]
    return int(count[1]), name + (":" + ",".join(rest) if rest else "")


def curves_of(records, in_node):
    """By what a curve is of, its points by number of GPUs: what is feasible."""
    machines = []
    for record in records:
        machine = nodes_of(record["platform"])[1]
        if machine not in machines:
            machines.append(machine)
    budgets = sorted({record["memory_budget_bytes"] for record in records})
    curves = []
    for machine in machines:
        for budget in budgets:
            points = {in_node * nodes_of(record["platform"])[0]: record for record in records if record["feasible"]
                      and record["memory_budget_bytes"] == budget and nodes_of(record["platform"])[1] == machine}
            if points:
                curves.append((machine, budget, sorted(points.items())))
    return curves


def flips_of(points):
    """The points whose plan is not that of the one before."""
    plans = [plan_of(record) for _, record in points]
    return [(place, plan) for place, plan in enumerate(plans) if place == 0 or plan != plans[place - 1]]


def unit_of(largest, units):
    return next(((name, size) for name, size in units if largest >= size), units[-1])


def draw(records, in_node):
    curves = curves_of(records, in_node)
    plans = []  # in the order in which they are met
    for _, _, points in curves:
        plans.extend(plan for _, plan in flips_of(points) if plan not in plans)
    times = [record["makespan_s"] for _, _, points in curves for _, record in points]
    name, second = unit_of(max(times), TIMES)
    canvas, (upper, lower) = plt.subplots(2, 1, sharex=True, figsize=(10.4, 7.2))
    canvas.subplots_adjust(left=0.07, right=0.56, top=0.885, bottom=0.075, hspace=0.1)
    handles = []
    for index, (machine, budget, points) in enumerate(curves):
        colour, marker = style_of(index)
        unit, size = memory_unit(budget)
        gpus = [count for count, _ in points]
        seconds = [record["makespan_s"] / second for _, record in points]
        cost = [count * record["makespan_s"] for count, record in points]
        for axes, heights in ((upper, seconds), (lower, cost)):
            axes.plot(gpus, heights, color=colour, linewidth=1.3, zorder=3)
            for x, y, (_, record) in zip(gpus, heights, points):
                axes.plot([x], [y], marker=marker, color=colour, markersize=6, zorder=4,
                          markerfacecolor="white" if record["gap"] > 0 else colour)
        side, above = (1, -1)[index // 2 % 2], (1, -1)[index % 2]  # numbers of curves that are close lie apart
        for place, plan in flips_of(points):
            lower.annotate(str(plans.index(plan) + 1), (gpus[place], cost[place]), xytext=(7 * side, 6 * above),
                           textcoords="offset points", ha="left" if side > 0 else "right", va="center", fontsize=8,
                           color=colour, fontweight="bold", zorder=5)
        handles.append(Line2D([], [], color=colour, marker=marker, markersize=5, label="%s, %.4g %s" % (machine, budget / size, unit)))
    if any(record["gap"] > 0 for _, _, points in curves for _, record in points):
        handles.append(Line2D([], [], color=GREY, marker="o", markersize=6, markerfacecolor="white", linewidth=0,
                              label="hollow: ended at its limit of points, without a proof"))
    counts = sorted({count for _, _, points in curves for count, _ in points})
    for axes in (upper, lower):
        axes.set_xscale("log")
        axes.set_yscale("log")
        make_logarithmic(axes.yaxis)
        axes.set_xticks(counts, [str(count) for count in counts])
        axes.minorticks_off()
        axes.grid(color=SHADE, linewidth=0.8)
        axes.set_axisbelow(True)
        axes.spines["right"].set_visible(False)
    upper.set_ylabel("iteration time (%s)" % name)
    lower.set_ylabel("cost (GPU-seconds)")
    lower.set_xlabel("GPUs")
    first = records[0]
    canvas.text(0.07, 0.95, first["trace"], fontsize=11, fontweight="bold")
    canvas.text(0.07, 0.915, "%d micro-batches of the trace, %s" % (first["micro_batches"], first["optimizer"]), fontsize=9, color=GREY)
    legend = canvas.legend(handles=handles, title="machine and memory of a GPU", loc="upper left", bbox_to_anchor=(0.57, 0.9), frameon=False,
                           fontsize=8, title_fontsize=9, alignment="left")
    canvas.add_artist(legend)
    listed = "\n".join("%2d  %s" % (number, plan) for number, plan in enumerate(plans, 1))
    canvas.text(0.575, 0.86 - 0.027 * len(handles), "plans, numbered where another one is chosen\n" + listed, fontsize=7.5, color=INK, va="top",
                linespacing=1.5)
    return canvas


def main():
    if len(sys.argv) not in (3, 4) or not sys.argv[2].isdigit() or int(sys.argv[2]) == 0:
        sys.exit(__doc__)
    sweep, in_node, folder = sys.argv[1], int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else sys.argv[1]
    with open(os.path.join(sweep, "results.jsonl"), encoding="utf-8") as file:
        records = [json.loads(line) for line in file]
    records = [record for record in records if record["strategy"].startswith("cluster")]
    if not any(record["feasible"] for record in records):
        sys.exit("%s: no result of a cluster that fits" % sweep)
    save(draw(sorted(records, key=lambda record: record["point"]), in_node), os.path.join(folder, "cluster"))


if __name__ == "__main__":
    try:
        main()
    except OSError as error:
        print(error, file=sys.stderr)
        sys.exit(43)
