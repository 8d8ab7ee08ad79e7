"""Draws what each factor of the model of times brings: from rooflines to what was measured, one panel a group of runs.

python3 plot_truth.py GROUPS FOLDER    writes FOLDER/truth.png

GROUPS are those of `plimsoll reproduce truth --factors --json`, as text. Exit code 42: matplotlib is missing; 43: the picture
cannot be written.
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

matplotlib.rcParams.update({"font.family": "DejaVu Sans", "font.size": 8, "axes.spines.top": False, "axes.spines.right": False})
BLUE, ORANGE, GREY, INK = "#0072B2", "#D55E00", "#9ca3af", "#222222"
WORDS = {"free_sends": "rooflines of\na data sheet", "rooflines": "sends that\nblock", "floors": "shortest\nkernel", "products": "measured\nproducts",
         "kernels": "other\nkernels", "collectives": "NCCL's rule,\ntables in a node", "network": "share of\nthe network"}


def waterfall(group, axes):
    """Shares of the measured time, in percent: what the first factor says, what each one adds, what is left."""
    ratios = [100 * factor["ratio"] for factor in group["factors"]]
    begins, ends = [0, *ratios[:-1], ratios[-1]], [*ratios, 100]
    for at, (begin, end) in enumerate(zip(begins, ends)):
        first, last = at == 0, at + 1 == len(begins)
        colour = GREY if first else "white" if last else BLUE if end >= begin else ORANGE
        axes.bar(at, end - begin, bottom=begin, color=colour, width=0.66, edgecolor=INK if last else colour,
                 hatch="////" if last else None, linewidth=0.7)
        if not last:
            axes.plot([at + 0.33, at + 1 - 0.33], [end, end], color=INK, linewidth=0.6)
        label = f"{end:.0f}" if first else f"{end - begin:+.1f}"
        axes.text(at, max(begin, end) + 1.2, label, ha="center", va="bottom", fontsize=7,
                  bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.4})
    axes.axhline(100, color=INK, linewidth=0.8, linestyle=(0, (4, 3)))
    runs = group["time"]["runs"]
    axes.set_title(f"{group['title']}\n{runs} run{'s' if runs > 1 else ''}", fontsize=7.5)
    axes.set_xticks(range(len(begins)), [*(WORDS[factor["factor"]] for factor in group["factors"]), "not\nexplained"], fontsize=6)
    axes.set_ylim(0, 1.12 * max(100, *ratios))
    axes.set_ylabel("% of the measured time, mean")


def main():
    groups = [group for group in json.loads(sys.argv[1]) if group["factors"]]
    columns = min(2, len(groups))
    lines = -(-len(groups) // columns)
    figure, panels = plt.subplots(lines, columns, figsize=(6.2 * columns, 2.7 * lines), squeeze=False)
    for panel in panels.flat[len(groups):]:
        panel.set_visible(False)
    for group, panel in zip(groups, panels.flat):
        waterfall(group, panel)
    figure.tight_layout()
    try:
        figure.savefig(os.path.join(sys.argv[2], "truth.png"), dpi=110, metadata={"Software": None})
    except OSError as error:
        print(error, file=sys.stderr)
        sys.exit(43)


main()
