"""Draws what validate/pytorch/measure.py found.

python3 plot_pytorch.py measurement.json FOLDER                     FOLDER/pytorch.svg and .png: measured against predicted, time and peak
python3 plot_pytorch.py measurement.json FOLDER --memory MODEL STRATEGY   FOLDER/pytorch_memory.svg and .png: bytes over an iteration, predicted
                                                                    and measured, one above the other (of several plans the first)

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
    sys.exit("plot_pytorch.py needs matplotlib: apt-get install python3-matplotlib")

matplotlib.use("Agg")
import matplotlib.pyplot as plt

matplotlib.rcParams.update({"svg.hashsalt": "plimsoll", "font.family": "DejaVu Sans", "font.size": 8.5,
                            "axes.spines.top": False, "axes.spines.right": False})
BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#6b7280"
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#6b7280")


def diagonal(axes, low, high):
    axes.plot([low, high], [low, high], color=GREY, linewidth=0.8)


def scatter(data, folder):
    models = list(dict.fromkeys(row["model"] for row in data["rows"]))
    figure, (time, peak) = plt.subplots(1, 2, figsize=(8.4, 4.0))
    for model, colour in zip(models, COLOURS):
        own = [row for row in data["rows"] if row["model"] == model]
        time.errorbar([row["predicted"]["relative"] for row in own], [row["measured"]["relative"] for row in own],
                      yerr=[row["measured"]["spread"] for row in own], fmt="o", markersize=3.5, linewidth=0.7, color=colour, label=model)
        peak.loglog([row["predicted"]["peak_bytes"] / 1e6 for row in own], [row["measured"]["peak_bytes"] / 1e6 for row in own], "o",
                    markersize=3.5, color=colour)
    for axes, key, scale in ((time, "relative", 1), (peak, "peak_bytes", 1e6)):
        ends = [row[side][key] / scale for row in data["rows"] for side in ("predicted", "measured")]
        diagonal(axes, 0.95 * min(ends), 1.05 * max(ends))
    time.set(xlabel="predicted time of plain training's", ylabel="measured", title="time of an iteration")
    peak.set(xlabel="predicted peak, MB", ylabel="measured, MB", title="peak memory")
    time.legend(frameon=False, fontsize=7)
    figure.suptitle(f"PyTorch {data['versions']['torch']}, {data['device']}, {data['date']}, {data['rounds']} rounds", fontsize=8)
    save(figure, folder, "pytorch")


def memory(data, folder, model, strategy):
    found = [row for row in data["rows"] if (row["model"], row["strategy"]) == (model, strategy) and "profile" in row]
    if not found:
        sys.exit(f"plot_pytorch.py: no profile of {model} with {strategy} in the file")
    profile = found[0]["profile"]
    figure, panels = plt.subplots(2, 1, figsize=(7.2, 4.2), sharex=True, sharey=True)
    dates = [0.0]
    for seconds in profile["seconds"]:
        dates.append(dates[-1] + seconds * 1e3)
    plain = found[0]["plain"]["rise_bytes"] / 1e6
    for axes, key, title, colour in ((panels[0], "predicted_bytes", "predicted by plimsoll", BLUE),
                                     (panels[1], "measured_bytes", "measured in PyTorch", ORANGE)):
        values = [bytes_ / 1e6 for bytes_ in profile[key]]
        axes.stairs(values, dates, fill=True, color=colour, alpha=0.35)
        axes.stairs(values, dates, color=colour, linewidth=0.9)
        axes.axhline(plain, color=GREY, linewidth=0.8, linestyle="--")
        axes.annotate("peak of plain training", (dates[-1], plain), ha="right", va="bottom", fontsize=7, color=GREY)
        axes.set_title(f"{title}: {max(values):.2f} MB at its peak", fontsize=8.5, loc="left")
        axes.set_ylabel("MB")
    panels[1].set_ylim(0, 1.12 * max(plain, *(bytes_ / 1e6 for bytes_ in profile["measured_bytes"])))
    panels[1].set_xlabel("ms of the predicted iteration (each action at its predicted length)")
    budget = f" within {found[0]['budget_bytes'] / 1e6:.1f} MB" if found[0]["budget_bytes"] else ""
    figure.suptitle(f"{model}, {strategy}{budget}: memory above parameters and input; PyTorch {data['versions']['torch']}, {data['device']}",
                    fontsize=8)
    save(figure, folder, "pytorch_memory")


def save(figure, folder, name):
    figure.tight_layout()
    os.makedirs(folder, exist_ok=True)
    for ending in ("svg", "png"):
        figure.savefig(os.path.join(folder, f"{name}.{ending}"), dpi=150, metadata={"Date": None} if ending == "svg" else {})


def main(arguments):
    data = json.load(open(arguments[0], encoding="utf-8"))
    if arguments[2:3] == ["--memory"]:
        memory(data, arguments[1], *arguments[3:5])
    else:
        scatter(data, arguments[1])


main(sys.argv[1:])
