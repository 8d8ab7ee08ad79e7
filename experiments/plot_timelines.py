"""Draws the timelines of a report's case side by side: what each stream did when, above what filled the memory."""

import matplotlib.pyplot as plt
from matplotlib.patches import Patch

# What a lane does or moves, and what fills a memory; report_page/timeline.js has the same.
COLOURS = {
    "forward": "#0072B2", "backward": "#56B4E9", "recompute": "#E69F00", "update": "#009E73",
    "activation": "#CC79A7", "gradient": "#E3B7CF", "parameter": "#D55E00", "parameter_gradient": "#F2A977",
    "optimizer_state": "#8C6BB1", "input": "#9ca3af", "workspace": "#d5dbe1",
    "packed": "#7B2D5B", "pack": "#6B7A1F", "unpack": "#B9C46A",
}
LANES = {"compute": "compute", "device_to_host": "D2H", "host_to_device": "H2D", "host": "host", "host_to_disk": "to disk",
         "disk_to_host": "from disk"}
INK, GREY = "#222222", "#6b7280"
COLUMNS = 2
OWN_AXIS = 4  # times the median iteration: what takes longer has a time axis of its own


def time_unit(longest):
    for name, size in (("s", 1.0), ("ms", 1e-3)):
        if longest >= size:
            return name, size
    return "\u00b5s", 1e-6


def common_end(timelines):
    """Where the time axis that most timelines share ends."""
    times = sorted(timeline["makespan_s"] for timeline in timelines)
    limit = OWN_AXIS * times[len(times) // 2]
    return max(time for time in times if time <= limit)


def bars_of(spans, what, end):
    """Spans as (start, length), joined where no eye could tell them apart."""
    bars = []
    for start, finish, kind in spans:
        if kind != what:
            continue
        if bars and start - sum(bars[-1]) <= end / 4000:
            bars[-1] = (bars[-1][0], finish - bars[-1][0])
        else:
            bars.append((start, finish - start))
    return bars


def draw_lanes(axes, timeline, lanes, size, end):
    for row, lane in enumerate(lanes):
        spans = next((each["spans"] for each in timeline["lanes"] if each["name"] == lane), [])
        for what in sorted({span[2] for span in spans}):
            bars = [(start / size, length / size) for start, length in bars_of(spans, what, end)]
            axes.broken_barh(bars, (row - 0.4, 0.8), facecolors=COLOURS.get(what, GREY), linewidth=0)
    axes.set_ylim(len(lanes) - 0.5, -0.5)
    axes.set_yticks(range(len(lanes)), [LANES.get(lane, lane) for lane in lanes], fontsize=8)
    axes.tick_params(axis="both", length=0)
    axes.set_xticklabels([])
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)


def thinned(rows, end):
    """The fullest row of those that no eye could tell apart, and the last."""
    kept = []
    for row in rows:
        if kept and row is not rows[-1] and row[0] - kept[-1][0] <= end / 2000:
            if sum(row[1:]) > sum(kept[-1][1:]):
                kept[-1] = [kept[-1][0]] + row[1:]
        else:
            kept.append(row)
    return kept


def draw_memory(axes, timeline, size, unit_bytes, end):
    rows = thinned(timeline["memory"], timeline["makespan_s"])
    dates = [row[0] / size for row in rows] + [end]
    order = ["parameter", "optimizer_state", "parameter_gradient", "packed", "activation", "gradient", "input", "workspace"]
    order = [kind for kind in order if kind in timeline["memory_kinds"]]
    columns = [timeline["memory_kinds"].index(kind) + 1 for kind in order]
    stack = [[row[column] / unit_bytes for row in rows] + [rows[-1][column] / unit_bytes] for column in columns]
    axes.stackplot(dates, *stack, colors=[COLOURS[kind] for kind in order], step="post", linewidth=0)
    if timeline["memory_budget_bytes"]:
        axes.axhline(timeline["memory_budget_bytes"] / unit_bytes, color=INK, linestyle="--", linewidth=0.8)


def legend_of(timelines):
    used = {span[2] for timeline in timelines for lane in timeline["lanes"] for span in lane["spans"]}
    for timeline in timelines:
        for column, kind in enumerate(timeline["memory_kinds"], 1):
            if any(row[column] for row in timeline["memory"]):
                used.add(kind)
    return [Patch(color=colour, label=what.replace("_", " ")) for what, colour in COLOURS.items() if what in used]


def draw_timelines(figure, title, details, memory_unit):
    timelines = figure["timelines"]
    common = common_end(timelines)
    unit, size = time_unit(common)
    fullest = max(timeline["peak_bytes"] for timeline in timelines)
    unit_memory, unit_bytes = memory_unit(fullest)
    usual = [lane for lane in LANES if "disk" not in lane
             and any(each["name"] == lane for timeline in timelines for each in timeline["lanes"])]
    rows = (len(timelines) + COLUMNS - 1) // COLUMNS
    height = 1.45 + rows * (1.4 + 0.17 * len(usual))
    canvas = plt.figure(figsize=(7.2 * COLUMNS, height))
    grid = canvas.add_gridspec(rows, COLUMNS, left=0.06, right=0.985, top=1 - 1.3 / height, bottom=0.42 / height,
                               hspace=0.45, wspace=0.12)
    for index, timeline in enumerate(timelines):
        cell = grid[index // COLUMNS, index % COLUMNS].subgridspec(2, 1, height_ratios=[0.17 * len(usual), 0.85], hspace=0.06)
        above, below = canvas.add_subplot(cell[0]), canvas.add_subplot(cell[1])
        disk = [lane for lane in LANES if "disk" in lane and any(each["name"] == lane for each in timeline["lanes"])]
        end = max(common, timeline["makespan_s"])
        draw_lanes(above, timeline, usual + disk, size, end)
        draw_memory(below, timeline, size, unit_bytes, timeline["makespan_s"] / size)
        for axes in (above, below):
            axes.set_xlim(0, 1.01 * end / size)
            axes.axvline(timeline["makespan_s"] / size, color=INK, linewidth=0.9)
        below.set_ylim(0, 1.06 * fullest / unit_bytes)
        below.tick_params(labelsize=8)
        below.set_ylabel(unit_memory, fontsize=8)
        if index + COLUMNS >= len(timelines):
            below.set_xlabel("time (%s)" % unit, fontsize=8.5)
        note = "" if end == common else "    (its own time axis)"
        above.set_title("%s    %.4g %s, %.3g %s%s" % (timeline["strategy"], timeline["makespan_s"] / size, unit,
                                                      timeline["peak_bytes"] / unit_bytes, unit_memory, note),
                        loc="left", fontsize=9.5, pad=4)
    canvas.text(0.06, 1 - 0.3 / height, title, fontsize=12.5, fontweight="bold")
    canvas.text(0.06, 1 - 0.53 / height, details + "; each strategy within the least memory that it was given (dashed)",
                fontsize=9, color=GREY)
    canvas.legend(handles=legend_of(timelines), loc="upper left", bbox_to_anchor=(0.052, 1 - 0.58 / height), ncols=11,
                  frameon=False, fontsize=8.5, handlelength=1.2, columnspacing=1.2)
    return canvas
