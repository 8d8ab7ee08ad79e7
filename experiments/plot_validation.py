"""Draws what a validation found: measured against predicted times, one panel a network, and errors by schedule.

python3 plot_validation.py validation.json FOLDER    writes FOLDER/validation.svg and .png

The same input gives the same SVG, byte for byte.
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
    sys.exit("plot_validation.py needs matplotlib: apt-get install python3-matplotlib")

matplotlib.use("Agg")
import matplotlib.pyplot as plt

matplotlib.rcParams.update({"svg.hashsalt": "plimsoll", "font.family": "DejaVu Sans", "font.size": 8.5,
                            "axes.spines.top": False, "axes.spines.right": False})
BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#6b7280"
MOVES = ("vdnn", "superneurons", "capuchin", "save_on_cpu", "offload", "zero", "twinflow", "deep_optimizer")


def draw(rows, network, axes):
    """Measured against predicted; the bars are the measured spread, the band is 3 %."""
    own = [row for row in rows if row["network"] == network]
    ends = [min(min(r["predicted_relative"], r["measured_relative"]) for r in own) - 0.02,
            max(max(r["predicted_relative"], r["measured_relative"]) for r in own) + 0.02]
    axes.plot(ends, ends, color=GREY, linewidth=0.8)
    axes.fill_between(ends, [0.97 * e for e in ends], [1.03 * e for e in ends], color=GREY, alpha=0.15, linewidth=0)
    for label, colour, moves in (("rematerializing", BLUE, False), ("moving to the host", ORANGE, True)):
        kind = [r for r in own if r["strategy"].startswith(MOVES) == moves]
        axes.errorbar([r["predicted_relative"] for r in kind], [r["measured_relative"] for r in kind],
                      yerr=[r["measured_spread"] for r in kind], fmt="o", markersize=3.5, linewidth=0.8,
                      color=colour, label=label)
    axes.set_title(network.replace(",view", "\nview"), fontsize=7.5)
    axes.set_xlabel("predicted time of store_all's")
    axes.set_ylabel("measured")


def main():
    data = json.load(open(sys.argv[1], encoding="utf-8"))
    networks = list(dict.fromkeys(row["network"] for row in data["rows"]))
    columns = min(3, len(networks))
    lines = -(-len(networks) // columns)
    figure, axes = plt.subplots(lines, columns, figsize=(3.4 * columns, 3.1 * lines), squeeze=False)
    for panel in axes.flat[len(networks):]:
        panel.set_visible(False)
    for network, panel in zip(networks, axes.flat):
        draw(data["rows"], network, panel)
    axes.flat[0].legend(frameon=False, fontsize=7)
    figure.suptitle(f"{data['device']}, {data['date']}, {data['rounds']} rounds", fontsize=8)
    figure.tight_layout()
    for ending in ("svg", "png"):
        figure.savefig(os.path.join(sys.argv[2], f"validation.{ending}"), dpi=150, metadata={"Date": None}
                       if ending == "svg" else {})


main()
