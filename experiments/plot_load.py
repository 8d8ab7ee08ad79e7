"""Draws load lines: time against what is made larger, a line a strategy up to its load mark, and memory below.

python3 plot_load.py load.json FOLDER    writes FOLDER/load.svg, .pdf and .png

The same input gives the same SVG, byte for byte. Exit code 42: matplotlib is missing; 43: a figure cannot be written.
"""

import json
import os
import sys

from plot import GREY, INK, SHADE, Line2D, make_logarithmic, memory_unit, plt, save, style_of

WHAT = {"batch": "samples in a micro-batch", "sequence": "tokens in a sequence", "layers": "layers", "width": "width of the model"}
TIMES = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9))


def time_unit(largest):
    """The largest unit that leaves at least 1."""
    return next(((name, size) for name, size in TIMES if largest >= size), TIMES[-1])


def time_of(load):
    """What a point's time is called, and the time in seconds: of a sample, of a token where sequences grow."""
    batch, sequence = load["batch"], load["sequence"]

    def samples(value):
        return load["micro_batches"] * (value if load["vary"] == "batch" else batch)

    if batch is None:
        return "iteration time", lambda point: point["makespan_s"]
    if load["vary"] == "sequence" and sequence is not None:
        return "time per token", lambda point: point["makespan_s"] / samples(point["value"]) / point["value"]
    return "time per sample", lambda point: point["makespan_s"] / samples(point["value"])


def fitting(line):
    return [point for point in line["points"] if point["outcome"] == "feasible"]


def draw_mark(axes, x, y, colour):
    """The load line's mark: a circle crossed by a horizontal bar."""
    for marker, size in (("o", 9), ("_", 18)):
        axes.plot([x], [y], marker, markersize=size, markerfacecolor="white", markeredgecolor=colour, markeredgewidth=1.5,
                  clip_on=False, zorder=6)


def details_of(load):
    unit, size = memory_unit(load["memory_budget_bytes"])
    words = ["%.4g %s of memory" % (load["memory_budget_bytes"] / size, unit)]
    if load["micro_batches"] > 1:
        words.append("%d micro-batches" % load["micro_batches"])
    if load["optimizer"] != "none":
        words.append(load["optimizer"])
    return ", ".join(words)


def legend_of(load):
    handles = []
    for index, line in enumerate(load["lines"]):
        colour, _ = style_of(index)
        largest = line["largest"]["value"] if line["largest"] else "none fits"
        handles.append(Line2D([], [], color=colour, marker="o", markersize=7, markerfacecolor="white",
                              label="%s: %s" % (line["strategy"], largest)))
    if load["bound"]["largest"] is not None:
        handles.append(Line2D([], [], color=GREY, linestyle=":", label="no schedule on one device\nneeds less: %d" % load["bound"]["largest"]))
    return handles


def draw(load):
    name, time = time_of(load)
    capacity = load["memory_budget_bytes"]
    lines = [(style_of(index)[0], line) for index, line in enumerate(load["lines"]) if line["largest"]]
    marks = [line["largest"]["value"] for _, line in lines]
    times = [time(point) for _, line in lines for point in fitting(line)]
    bound = [point for point in load["bound"]["points"] if point["least_bytes"] <= capacity]
    (time_name, second), (memory_name, size) = time_unit(max(times)), memory_unit(capacity)

    canvas, (upper, lower) = plt.subplots(2, 1, sharex=True, figsize=(8.6, 6.4), height_ratios=(3, 2))
    canvas.subplots_adjust(left=0.085, right=0.69, top=0.88, bottom=0.085, hspace=0.1)
    for colour, line in lines:
        points, mark = fitting(line), line["largest"]
        values = [point["value"] for point in points]
        for axes, heights in ((upper, [time(point) / second for point in points]), (lower, [point["peak_bytes"] / size for point in points])):
            axes.plot(values, heights, ".-", color=colour, markersize=4, linewidth=1.3, zorder=4)
            draw_mark(axes, mark["value"], heights[-1], colour)
    lower.plot([point["value"] for point in bound], [point["least_bytes"] / size for point in bound], ":", color=GREY, linewidth=1.6, zorder=3)
    lower.axhline(capacity / size, color=INK, linewidth=1.1, zorder=3)
    lower.annotate("memory of the device", (0.01, capacity / size), xycoords=lower.get_yaxis_transform(), xytext=(0, 4),
                   textcoords="offset points", fontsize=8, color=INK)
    if max(marks) > 8 * min(marks):
        upper.set_xscale("log")
        make_logarithmic(upper.xaxis)
    else:
        upper.set_xlim(0, 1.04 * max(marks))
    if max(times) > 5 * min(times):
        upper.set_yscale("log")
        make_logarithmic(upper.yaxis)
    else:
        upper.set_ylim(0, 1.08 * max(times) / second)
    lower.set_ylim(0, 1.18 * capacity / size)
    upper.set_ylabel("%s (%s)" % (name, time_name))
    lower.set_ylabel("peak memory (%s)" % memory_name)
    lower.set_xlabel(WHAT[load["vary"]])
    for axes in (upper, lower):
        axes.grid(color=SHADE, linewidth=0.8)
        axes.set_axisbelow(True)
        axes.spines["right"].set_visible(False)
    upper.legend(handles=legend_of(load), title="load line: the largest that fits", loc="upper left", bbox_to_anchor=(1.02, 1.02),
                 frameon=False, fontsize=8.5, title_fontsize=9, alignment="left")
    canvas.text(0.085, 0.945, "%s on %s" % (load["trace"], load["platform"]), fontsize=11.5, fontweight="bold")
    canvas.text(0.085, 0.905, details_of(load), fontsize=9, color=GREY)
    return canvas


def main():
    source, folder = sys.argv[1:]
    with open(source, encoding="utf-8") as file:
        load = json.load(file)
    if any(line["largest"] for line in load["lines"]):
        save(draw(load), os.path.join(folder, "load"))


if __name__ == "__main__":
    try:
        main()
    except OSError as error:
        print(error, file=sys.stderr)
        sys.exit(43)
