"""The bound on time against memory with its bends, the measured points above it, and under it what a GB more is worth."""
import matplotlib.pyplot as plt
from matplotlib.lines import Line2D

STYLES = {"recompute": ("ops run again", "-"), "offload": ("values are also copied", (0, (5, 3)))}
INK = "#222222"


def has_prices(figure):
    return any(len(curve["points"]) > 1 for curve in figure.get("bound_curves") or [])


def draw_prices(figure, what, details, memory_unit, fronts, style_of):
    """`fronts`: by strategy, in the order of the experiment, pairs of peak and time."""
    points = [point for curve in figure["bound_curves"] for point in curve["points"]]
    most, fastest = max(p["budget_bytes"] for p in points), min(p["lower_bound_s"] for p in points)
    measured = [(i, peak, time) for i, front in enumerate(fronts) for peak, time in front if peak <= most]
    slowest = max([p["lower_bound_s"] for p in points] + [time for _, _, time in measured if time <= 2 * fastest])
    unit, size = memory_unit(most)
    canvas, (upper, lower) = plt.subplots(2, 1, sharex=True, figsize=(8.6, 5.6), height_ratios=(2, 1))
    for i, peak, time in measured:
        if time <= slowest:
            colour, marker = style_of(i)
            upper.plot([peak / size], [time], marker, color=colour, markersize=4.5, markeredgecolor="white", markeredgewidth=0.5)
    for curve in figure["bound_curves"]:
        words, dash = STYLES[curve["plans"]]
        memory = [p["budget_bytes"] / size for p in curve["points"]]
        upper.plot(memory, [p["lower_bound_s"] for p in curve["points"]], linestyle=dash, color=INK, linewidth=1.4)
        lower.step(memory, [1e3 * p["price_s_per_gb"] for p in curve["points"]], where="post", linestyle=dash, color=INK, linewidth=1.4)
        bends = [p for p in curve["points"] if p["bends"]]
        upper.plot([p["budget_bytes"] / size for p in bends], [p["lower_bound_s"] for p in bends], "o", markersize=3.4,
                   markerfacecolor="white", markeredgecolor=INK, markeredgewidth=0.9)
    upper.set_ylabel("iteration time (s)")
    lower.set_ylabel("ms per GB")
    lower.set_xlabel("memory (%s)" % unit)
    lower.set_ylim(bottom=0)
    for axes in (upper, lower):
        axes.grid(color="#eceff3", linewidth=0.8)
        axes.set_axisbelow(True)
        axes.spines["right"].set_visible(False)
    handles = [Line2D([], [], color=INK, linestyle=STYLES[curve["plans"]][1], label="bound where " + STYLES[curve["plans"]][0])
               for curve in figure["bound_curves"]]
    handles.append(Line2D([], [], color=INK, linestyle="", marker="o", markersize=4, markerfacecolor="white", label="a bend of it"))
    upper.legend(handles=handles, frameon=False, fontsize=8.5)
    canvas.subplots_adjust(left=0.1, right=0.97, top=0.88, bottom=0.1, hspace=0.1)
    canvas.text(0.1, 0.945, what, fontsize=11.5, fontweight="bold")
    canvas.text(0.1, 0.905, details, fontsize=9, color="#6b7280")
    return canvas
