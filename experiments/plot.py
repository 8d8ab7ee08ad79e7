"""Draws the figures of a report: iteration time against memory, one figure a case, and timelines where it has them.

python3 plot.py report.json FOLDER [N]    writes FOLDER/<file>.svg, .pdf and .png for every figure of report.json, or the
                                          first N, and FOLDER/<file>-timelines.svg, .pdf and .png, and
                                          FOLDER/<file>-prices.svg, .pdf and .png

The same input gives the same SVG, byte for byte. Exit code 42: matplotlib is missing; 43: a figure cannot be written.
"""

import json
import math
import os
import sys
import tempfile

if not os.access(os.path.expanduser("~"), os.W_OK):
    os.environ.setdefault("MPLCONFIGDIR", tempfile.mkdtemp())

try:
    import matplotlib
except ImportError:
    sys.exit(42)

sys.dont_write_bytecode = True  # the folder of this file may be read-only, and stays as it is
matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

from plot_prices import draw_prices, has_prices
from plot_timelines import draw_timelines

# Okabe and Ito's colours, which people with any colour vision tell apart, without yellow. A strategy's pair of colour and
# marker is its own up to 49; report_page/values.js has the same.
COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000"]
MARKERS = ["o", "s", "^", "D", "v", "p", "X"]
PALE = 0.25  # of points that are dominated
INK, GREY, SHADE = "#222222", "#6b7280", "#eceff3"

matplotlib.rcParams.update({
    "svg.hashsalt": "plimsoll",
    "font.family": "DejaVu Sans",
    "font.size": 9.5,
    "axes.edgecolor": "#9ca3af",
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "pdf.fonttype": 42,
})


def style_of(index):
    """A strategy's colour and marker."""
    return COLOURS[index % len(COLOURS)], MARKERS[(index + index // len(COLOURS)) % len(MARKERS)]


def memory_unit(largest):
    """The largest unit that leaves at least 1: powers of 1000, as everywhere in Plimsoll."""
    for name, size in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if largest >= size:
            return name, size
    return "B", 1


def front(points):
    """The feasible points by memory, one for each peak: the fastest."""
    best = {}
    for point in points:
        if point["feasible"]:
            peak = point["peak_bytes"]
            best[peak] = min(point["makespan_s"], best.get(peak, point["makespan_s"]))
    return sorted(best.items())


def reserved(points):
    """What the allocator takes for each point of the front, where one was asked: (peak, reserved, time)."""
    shown = set(front(points))
    return sorted({(point["peak_bytes"], point["peak_reserved_bytes"], point["makespan_s"]) for point in points
                   if point["feasible"] and point.get("peak_reserved_bytes")
                   and (point["peak_bytes"], point["makespan_s"]) in shown})


def proven(figure):
    """What is proven of time by budget, ascending: a list for each class of schedules, of points (budget, time) below
    which none of the class is. A class is what strategies' bounds agree on, to a percent. A budget between two has at
    least the bound of the larger one. Bounds of another problem, which a strategy's first pass has made, are left out."""
    classes = []
    for series in figure["series"]:
        if series.get("changes_problem"):
            continue
        bounds = {point["memory_budget_bytes"]: point["makespan_s"] / (1 + point["gap"]) for point in series["points"]
                  if point["feasible"] and point.get("gap") is not None and point.get("memory_budget_bytes")}
        for same in classes:
            common = bounds.keys() & same.keys()
            if common and all(abs(bounds[b] / same[b] - 1) < 0.01 for b in common):
                same.update({b: max(time, same.get(b, 0)) for b, time in bounds.items()})
                break
        else:
            if len(bounds) > 1:
                classes.append(bounds)
    return [sorted(bounds.items()) for bounds in classes]


def error_of(points):
    """Of all gradients as one vector, from the least to the most; nothing where all are exact."""
    errors = [point.get("gradient_error") or 0 for point in points if point["feasible"]]
    least, most = ("%.2g" % error for error in (min(errors, default=0), max(errors, default=0)))
    return "" if most == "0" else ", error %s" % (most if least == most else least + " to " + most)


def title_of(figure):
    what = figure["model"] + " on " + figure["machine"]
    details = []
    if figure["micro_batches"] > 1:
        details.append("%d micro-batches" % figure["micro_batches"])
    if figure["optimizer"] != "none":
        details.append(figure["optimizer"])
    if figure["times_rescaled"] is None:
        return what, ", ".join(details)
    details.append("times re-scaled from the trace's device by flops and bytes" if figure["times_rescaled"]
                   else "times as the trace states them")
    return what, ", ".join(details)


def undominated(fronts):
    """The points for which no strategy has one as fast within less memory, or faster within as much."""
    best, least = set(), float("inf")
    points = sorted({point for points in fronts.values() for point in points})
    for peak in sorted({peak for peak, _ in points}):
        fastest = min(time for p, time in points if p == peak)
        if fastest < least:
            best.add((peak, fastest))
            least = fastest
    return best


def spans_a_decade(low, high):
    return low > 0 and high > 10 * low


def limits(values, room):
    """From the least to the largest value with some room, and whether it is logarithmic; the page has the same."""
    if not values:
        return 0, 1, False
    low, high = min(values), max(values)
    if spans_a_decade(low, high):
        return low / (high / low) ** room, high * (high / low) ** room, True
    more = room * (high - low) or room * high or 1
    return low - more, high + more, False


def axis_ticks(low, high, is_log, wanted):
    """At 1, 2 and 5 of each decade where it is logarithmic, or at powers of ten where these are too many; else at a step
    of 1, 2, 2.5 or 5 with as many as are wanted at most. report_page/values.js has the same."""
    if is_log:
        decades = range(math.floor(math.log10(low)), math.floor(math.log10(high)) + 1)
        inside = [(f, float("%de%d" % (f, k))) for k in decades for f in (1, 2, 5) if low <= float("%de%d" % (f, k)) <= high]
        if len(inside) >= 2:
            return [v for f, v in inside if f == 1 or len(inside) <= 2 * wanted]
    rough = (high - low) / wanted
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(f * power for f in (1, 2, 2.5, 5, 10) if f * power >= rough * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [float("%.12g" % (i * step)) for i in range(first, last + 1)]


def number(value):
    """Six digits, and no power of ten."""
    text = "%.6g" % value
    return text if "e" not in text else ("%.15f" % float(text)).rstrip("0").rstrip(".")


def set_ticks(axis, low, high, is_log, wanted):
    axis.set_major_locator(FixedLocator(axis_ticks(low, high, is_log, wanted)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))


def luminance(colour):
    parts = [int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5)]
    return sum(w * (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4) for w, c in zip((0.2126, 0.7152, 0.0722), parts))


def text_colour(colour):
    """For a name on white: as near to black as it must be to be read, a contrast of 4.5."""
    for share in range(0, 21):
        mixed = "#" + "".join("%02x" % round(int(colour[i:i + 2], 16) * (1 - share / 20)) for i in (1, 3, 5))
        if 1.05 / (luminance(mixed) + 0.05) >= 4.6:
            return mixed
    return "#000000"


def make_logarithmic(axis):
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))


def label_curves(canvas, axes, curves):
    """Names beside curves, wherever there is room: none covers a point or another name. The legend has them all."""
    canvas.canvas.draw()
    inside, taken = axes.get_window_extent(), []
    to_screen = axes.transData.transform
    dots = [tuple(dot) for _, _, points in curves for dot in to_screen(points)]
    height, gap = 9.5 * canvas.dpi / 72, 7 * canvas.dpi / 72
    for name, colour, points in curves:
        text = axes.text(0, 0, name, fontsize=8, color=text_colour(colour), fontweight="bold", va="bottom", zorder=7)
        width = text.get_window_extent().width
        anchors = [points[0], points[-1]] + points[1:-1]
        boxes = [(x + dx, y + dy) for x, y in to_screen(anchors) for dx, dy in (
            (gap, gap / 2), (gap, -height / 2), (gap, -height - gap / 2), (-width - gap, -height / 2), (-width / 2, gap),
            (-width / 2, -height - gap))]
        place = next(((x, y) for x, y in boxes
                      if inside.x0 <= x and x + width <= inside.x1 and inside.y0 <= y and y + height <= inside.y1
                      and not any(x < u + w and u < x + width and y < v + height and v < y + height for u, v, w in taken)
                      and not any(x - 3 <= u <= x + width + 3 and y - 3 <= v <= y + height + 3 for u, v in dots)), None)
        if place is None:
            text.remove()
            continue
        taken.append((*place, width))
        text.set_position(axes.transData.inverted().transform(place))


def draw_plimsoll_mark(axes, x):
    """The load line's mark, a circle crossed by a line, above the axes."""
    at = axes.get_xaxis_transform()
    for marker, size in (("o", 9), ("_", 17)):
        axes.plot([x], [1.035], marker, transform=at, markersize=size, markerfacecolor="white", markeredgecolor=INK,
                  markeredgewidth=1.3, clip_on=False, zorder=6)


def draw(figure, strategies):
    seconds_only = not figure["lower_bound_s"]
    base = figure["lower_bound_s"] or 1.0
    marks = [figure[key] for key in ("lower_bound_bytes", "smallest_feasible_bytes", "store_all_bytes") if figure[key]]
    fronts = {series["strategy"]: front(series["points"]) for series in figure["series"]}
    errors = {series["strategy"]: error_of(series["points"]) for series in figure["series"]}
    notes = {series["strategy"]: series["note"] for series in figure["series"]}
    takes = {series["strategy"]: reserved(series["points"]) for series in figure["series"]}
    feasible = [point for series in figure["series"] for point in series["points"] if point["feasible"]]
    peaks = marks + [point["peak_bytes"] for point in feasible]
    peaks += [point["peak_reserved_bytes"] for point in feasible if point.get("peak_reserved_bytes")]
    unit, size = memory_unit(max(peaks, default=1))
    left, right, x_is_log = limits([peak / size for peak in peaks], 0.05)

    legend_rows = len(strategies) + 1 + 7  # the title, and the lines below
    height = max(4.7, 1.1 + 0.245 * legend_rows)
    canvas, axes = plt.subplots(figsize=(8.6, height))
    canvas.subplots_adjust(left=0.085, right=0.655, top=0.835, bottom=0.125)
    if x_is_log:
        axes.set_xscale("log")
    axes.set_xlim(left, right)
    set_ticks(axes.xaxis, left, right, x_is_log, 7)
    rows = []

    smallest = figure["smallest_feasible_bytes"]
    if smallest and smallest / size > left:
        axes.axvspan(left, smallest / size, facecolor=SHADE, edgecolor="#c5ccd6", hatch="///", linewidth=0, zorder=0)
        rows.append(Patch(facecolor=SHADE, edgecolor="#c5ccd6", hatch="///", linewidth=0, label="no strategy here fits"))
    if figure["lower_bound_bytes"]:
        rows.append(axes.axvline(figure["lower_bound_bytes"] / size, color=GREY, linestyle=":", linewidth=1.4, zorder=1,
                                 label="memory lower bound"))
    capacity = figure["capacity_bytes"]
    if capacity and capacity / size < right:
        rows.append(axes.axvline(capacity / size, color="#b91c1c", linewidth=1.2, zorder=1, label="device memory"))
    if figure["store_all_bytes"]:
        x = figure["store_all_bytes"] / size
        rows.append(axes.axvline(x, color=INK, linestyle="--", linewidth=1.1, zorder=1, label="load line (peak of store_all)"))
        draw_plimsoll_mark(axes, x)
    if not seconds_only:
        rows.append(axes.axhline(1, color=GREY, linestyle="-.", linewidth=1.1, zorder=1, label="time lower bound"))

    if any(takes.values()):
        rows.append(Line2D([], [], color=GREY, linewidth=1, marker="|", markersize=8, markeredgewidth=1.6,
                           label="from live to reserved bytes"))

    cases = {series["strategy"]: tuple(series.get("case", ())) for series in figure["series"]}
    best_of = {case: undominated({s: points for s, points in fronts.items() if cases[s] == case}) for case in cases.values()}
    series_rows, curves, best = [], [], set().union(*best_of.values())
    for index, strategy in enumerate(strategies):
        points = fronts.get(strategy, [])
        colour, marker = style_of(index)
        # What takes the same memory whatever the budget is one point, large enough to show behind a curve's.
        style = dict(color=colour, marker=marker, markersize=6.5 if len(points) > 1 else 10, markeredgecolor="white",
                     markeredgewidth=0.7)
        label = strategy + errors.get(strategy, "") + (" (%s)" % notes[strategy] if notes.get(strategy) else "")
        series_rows.append(Line2D([], [], linewidth=1.6 if len(points) > 1 else 0, label=label, **style))
        x = [peak / size for peak, _ in points]
        y = [time / base for _, time in points]
        is_best = [point in best_of[cases[strategy]] for point in points]
        axes.plot(x, y, drawstyle="steps-post", linewidth=1.6, zorder=3, color=colour, alpha=0.8 if any(is_best) else PALE)
        for shown, alpha, zorder in ((True, 1, 5), (False, PALE, 4)):
            xs, ys = ([v for v, b in zip(values, is_best) if b == shown] for values in (x, y))
            axes.plot(xs, ys, linestyle="none", zorder=zorder - 0.5 * (len(points) == 1), alpha=alpha, **style)
        for peak, most, time in takes.get(strategy, []):
            axes.plot([peak / size, most / size], [time / base] * 2, color=colour, linewidth=1, alpha=0.6, zorder=2)
            axes.plot([most / size], [time / base], marker="|", markersize=8, markeredgewidth=1.6, color=colour, zorder=4)
        if points:
            curves.append((strategy, colour, list(zip(x, y))))

    classes = proven(figure) if len(best_of) == 1 else []
    for bounds in classes:
        axes.plot([budget / size for budget, _ in bounds], [time / base for _, time in bounds], color=INK,
                  drawstyle="steps-pre", linestyle=(0, (1, 1)), linewidth=1.4, zorder=4.5)
    if classes:
        rows.append(Line2D([], [], color=INK, linestyle=(0, (1, 1)), linewidth=1.4,
                           label="proven: none of a class is faster"))
    times = [point["makespan_s"] / base for point in feasible] + ([] if seconds_only else [1.0])
    fastest, slowest = min(times, default=0), max(times, default=1)
    if not spans_a_decade(fastest, slowest):
        # What takes far longer than all that are worth their memory would leave no room for these; unless it is more than
        # a quarter.
        limit = fastest + 2.2 * max((time / base - fastest for _, time in best), default=slowest)
        if sum(time > limit for time in times) <= len(feasible) / 4:
            slowest = min(slowest, limit)
    above = sum(time > slowest for time in times)
    bottom, top, y_is_log = limits([min(time, slowest) for time in times], 0.08)
    if y_is_log:
        axes.set_yscale("log")
    axes.set_ylim(bottom, top)
    set_ticks(axes.yaxis, bottom, top, y_is_log, 6)
    if above:
        canvas.text(0.085, 0.845, "%d slower %s above" % (above, "point is" if above == 1 else "points are"), fontsize=8,
                    color=GREY)
    axes.set_xlabel("peak memory (%s)" % unit)
    axes.set_ylabel("iteration time (s)" if seconds_only else "iteration time / lower bound")
    axes.grid(True, color="#e5e7eb", linewidth=0.7, zorder=0)
    axes.set_axisbelow(True)
    axes.spines["right"].set_visible(False)
    if not seconds_only and not figure.get("has_own_bounds"):
        milli = slowest * base < 0.5
        scale = base * (1e3 if milli else 1)
        right = axes.secondary_yaxis("right", functions=(lambda v: v * scale, lambda v: v / scale))
        right.set_ylabel("iteration time (%s)" % ("ms" if milli else "s"))
        set_ticks(right.yaxis, bottom * scale, top * scale, y_is_log, 6)
        right.spines["right"].set_color("#9ca3af")

    # Of the figure, not of the axes, whose second legend would not count where the figure is cut to what is in it.
    beside = dict(bbox_transform=axes.transAxes, frameon=False, handlelength=2.4)
    canvas.legend(handles=series_rows, loc="upper left", bbox_to_anchor=(1.155, 1.03), title="strategy", alignment="left",
                  **beside)
    canvas.legend(handles=rows, loc="lower left", bbox_to_anchor=(1.155, -0.03), **beside)
    what, details = title_of(figure)
    canvas.text(0.085, 0.948, what, fontsize=12.5, fontweight="bold")
    canvas.text(0.085, 0.903, details, fontsize=9, color=GREY)
    label_curves(canvas, axes, curves)
    return canvas


def has_ended(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):  # somebody else's, or no process at all
        return False
    return False


def remove_leftovers(path):
    """What processes that have ended since left of the same file."""
    folder, stem = os.path.dirname(path) or ".", os.path.basename(path) + ".unfinished-"
    for name in os.listdir(folder):
        process = name[len(stem):]
        if name.startswith(stem) and process.isdigit() and has_ended(int(process)):
            os.remove(os.path.join(folder, name))


def write(canvas, path, box, **how):
    """Written beside and renamed: readers see the old figure or the new one."""
    remove_leftovers(path)
    unfinished = "%s.unfinished-%d" % (path, os.getpid())
    try:
        canvas.savefig(unfinished, format=path.rpartition(".")[2], bbox_inches=box, **how)
        os.replace(unfinished, path)
    finally:
        if os.path.exists(unfinished):
            os.remove(unfinished)


def save(canvas, stem):
    # Long names of strategies widen the figure. Asked for once: it takes as long as drawing.
    box = canvas.get_tightbbox(canvas.canvas.get_renderer()).padded(0.12)
    write(canvas, stem + ".svg", box, metadata={"Date": None, "Creator": "plimsoll report"})
    write(canvas, stem + ".pdf", box, metadata={"CreationDate": None, "Creator": "plimsoll report", "Producer": None})
    write(canvas, stem + ".png", box, dpi=160, metadata={"Software": None})
    plt.close(canvas)


def together(figures):
    """One figure of several: what differs names a series, and bounds stay that all share; without a common bound on time
    each series is over its own. The page has the same."""
    names = {"folder": lambda f: f.get("folder", ""), "model": lambda f: f["model"], "machine": lambda f: f["machine"],
             "micro_batches": lambda f: "%d micro-batches" % f["micro_batches"], "optimizer": lambda f: f["optimizer"]}
    differ = [key for key in names if len({f.get(key) for f in figures}) > 1]

    def common(key):
        return figures[0].get(key) if len({f.get(key) for f in figures}) == 1 else None

    joint = {key: common(key) for key in ("lower_bound_s", "lower_bound_bytes", "smallest_feasible_bytes", "store_all_bytes",
                                          "capacity_bytes", "model", "machine", "times_rescaled")}
    joint["micro_batches"], joint["optimizer"] = common("micro_batches") or 1, common("optimizer") or "none"
    for key, word in (("model", "models"), ("machine", "platforms")):
        joint[key] = joint[key] or "%d %s" % (len({f[key] for f in figures}), word)
    joint["has_own_bounds"] = not joint["lower_bound_s"] and all(f["lower_bound_s"] for f in figures)
    if joint["has_own_bounds"]:
        joint["lower_bound_s"] = 1.0
    joint["series"] = []
    for f in figures:
        scale = f["lower_bound_s"] if joint["has_own_bounds"] else 1
        for series in f["series"]:
            points = [{**p, "makespan_s": p["makespan_s"] and p["makespan_s"] / scale} for p in series["points"]]
            joint["series"].append({**series, "strategy": ", ".join(names[key](f) for key in differ) + ": " + series["strategy"],
                                    "case": [f["model"], f["machine"], f["micro_batches"], f["optimizer"]], "points": points})
    return joint


def draw_all(figure, strategies, folder):
    stem = os.path.join(folder, figure["file"])
    save(draw(figure, strategies), stem)
    if has_prices(figure):
        fronts = [front(series["points"]) for series in figure["series"]]
        save(draw_prices(figure, *title_of(figure), memory_unit, fronts, style_of), stem + "-prices")
    if "timelines" in figure:
        save(draw_timelines(figure, *title_of(figure), memory_unit), stem + "-timelines")


def say_what_is_left(figures, most):
    if most is not None and most < figures:
        print("pictures are of the first %d of %d cases; --figures all draws all" % (most, figures), file=sys.stderr)


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    with open(sys.argv[1], encoding="utf-8") as file:
        report = json.load(file)
    most = int(sys.argv[3]) if len(sys.argv) == 4 else None
    for joint in report.get("together", [])[:most]:
        figure = together([report["figures"][i] for i in joint["figures"]])
        save(draw(figure, [series["strategy"] for series in figure["series"]]), os.path.join(sys.argv[2], joint["file"]))
    if "together" in report:
        say_what_is_left(len(report["together"]), most)
        return
    figures = report["figures"][:most]
    for figure in figures:
        draw_all(figure, report["experiment"]["strategies"], sys.argv[2])
    say_what_is_left(len(report["figures"]), most)


if __name__ == "__main__":
    try:
        main()
    except OSError as error:
        print(error, file=sys.stderr)
        sys.exit(43)
