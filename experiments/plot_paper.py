"""Draws the figure of a paper's kind, with the published points next to ours.

python3 plot_paper.py FIGURE.json PICTURE.png

The figure is that of `plimsoll reproduce NAME -o DIR`: bars, lines, or slow-down by budget. Ours are filled, published numbers are
rings. Exit code 42: matplotlib is missing; 43: the picture cannot be written.
"""

import json
import os
import sys
import tempfile

if not os.access(os.path.expanduser("~"), os.W_OK):
    os.environ.setdefault("MPLCONFIGDIR", tempfile.mkdtemp())

try:
    import matplotlib
except ImportError:
    sys.exit(42)

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.lines import Line2D

matplotlib.rcParams.update({"font.family": "DejaVu Sans", "font.size": 8, "axes.spines.top": False, "axes.spines.right": False})
# Okabe and Ito's colours, which people with any colour vision tell apart, as plot.py has them.
COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000"]
MARKERS = ["o", "s", "^", "D", "v", "p", "X"]
GREY, INK = "#9ca3af", "#222222"
RING = {"marker": "o", "linestyle": "none", "markerfacecolor": "none", "markeredgecolor": INK, "markersize": 7, "markeredgewidth": 1.1}


def series_of(panels):
    """All names of series, in the order in which they come first."""
    return list(dict.fromkeys(row["series"] for panel in panels for row in panel["rows"]))


def style_of(index):
    return COLOURS[index % len(COLOURS)], MARKERS[(index + index // len(COLOURS)) % len(MARKERS)]


def shortened(name, most=46):
    return name if len(name) <= most else name[:most - 1] + "…"


def draw_bars(panel, axes, names):
    """A bar a row; from left to right, as the file has them."""
    one_a_row = all(row["series"] == row["name"] for row in panel["rows"])
    for at, row in enumerate(panel["rows"]):
        colour = COLOURS[0] if one_a_row else style_of(names.index(row["series"]))[0]
        if row["ours"] is not None:
            axes.bar(at, row["ours"], width=0.7, color=colour, alpha=0.85)
        if row["published"] is not None:
            axes.plot(at, row["published"], **RING)
    axes.set_xticks(range(len(panel["rows"])), [shortened(row["name"], 34) for row in panel["rows"]], rotation=40, ha="right",
                    rotation_mode="anchor", fontsize=6.5)
    return [] if one_a_row else [name for name in names if any(row["series"] == name for row in panel["rows"])]


def draw_lines(panel, axes, names):
    """A line a series through its rows with an x."""
    shown = []
    for name in names:
        rows = sorted((row for row in panel["rows"] if row["series"] == name and row["x"] is not None), key=lambda row: row["x"])
        if not rows:
            continue
        shown.append(name)
        colour, marker = style_of(names.index(name))
        ours = [row for row in rows if row["ours"] is not None]
        axes.plot([row["x"] for row in ours], [row["ours"] for row in ours], color=colour, marker=marker, markersize=4, linewidth=1.2)
        published = [row for row in rows if row["published"] is not None]
        axes.plot([row["x"] for row in published], [row["published"] for row in published], **{**RING, "markeredgecolor": colour})
    return shown


def draw_budgets(panel, axes, names):
    """Slow-down by budget, a line a strategy."""
    for series in panel["series"]:
        colour, marker = style_of(names.index(series["name"]))
        points = series["points"]
        axes.plot([x for x, _ in points], [y for _, y in points], color=colour, marker=marker, markersize=2.6, linewidth=0.9, alpha=0.9)
    return names


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        figure = json.load(file)
    panels, kind = figure["panels"], figure["kind"]
    columns = max(1, min(len(panels), 3 if len(panels) in (3, 5, 6, 9) else 4 if len(panels) > 6 else 2))
    lines = max(1, -(-len(panels) // columns))
    names = [each["name"] for each in panels[0]["series"]] if kind == "budgets" and panels else [] if kind == "budgets" else series_of(panels)
    canvas, grid = plt.subplots(lines, columns, figsize=(min(10.5, 1.6 + 3.6 * columns), 0.6 + (2.7 if columns < 4 else 2.1) * lines), squeeze=False)
    for empty in grid.flat[len(panels):]:
        empty.set_visible(False)
    draw = {"bars": draw_bars, "lines": draw_lines, "budgets": draw_budgets}[kind]
    shown = []
    for panel, axes in zip(panels, grid.flat):
        shown += draw(panel, axes, names)
        axes.set_title(panel["title"], fontsize=8)
        axes.set_xlabel(figure["x"], fontsize=7.5)
        axes.set_ylabel(panel["y"], fontsize=7.5)
        axes.set_axisbelow(True)
        axes.grid(axis="y", color=GREY, linewidth=0.4, alpha=0.6)
        if figure["most"] is not None:
            low, most = min((y for line in axes.get_lines() for y in line.get_ydata()), default=0), figure["most"]
            axes.set_ylim(low - 0.04 * (most - low), most)
        if kind == "bars":
            axes.margins(x=0.02, y=0.12)
            axes.set_ylim(min(0, axes.get_ylim()[0]), None if figure["most"] is None else figure["most"])
    keys = []
    for name in dict.fromkeys(shown):
        colour, marker = style_of(names.index(name))
        keys.append(Line2D([], [], color=colour, marker="s" if kind == "bars" else marker, linestyle="none" if kind == "bars" else "-",
                           markersize=5, label=shortened(name)))
    if kind != "budgets":
        if any(row["published"] is not None for panel in panels for row in panel["rows"]):
            keys.append(Line2D([], [], **RING, label="published"))
    columns_of_keys = max(1, min(len(keys), int(canvas.get_figwidth() // 2.5)))
    rows_of_keys = -(-len(keys) // columns_of_keys)
    canvas.tight_layout(rect=(0, 0.01 + 0.22 * rows_of_keys / canvas.get_figheight(), 1, 1))
    if keys:
        canvas.legend(handles=keys, loc="lower center", ncol=columns_of_keys, fontsize=7, frameon=False)
    try:
        canvas.savefig(sys.argv[2], dpi=85, metadata={"Software": None}, pil_kwargs={"optimize": True})
    except OSError as error:
        print(error, file=sys.stderr)
        sys.exit(43)


main()
