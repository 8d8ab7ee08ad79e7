#!/usr/bin/env python3
"""The report's figures and its page: styles, dominated points, units; and, where Chromium is, the page itself in use.

    PYTHONPATH=experiments tests/experiments/report_page_test.py        # what is not installed is said to be skipped
"""
import copy
import html
import json
import pathlib
import random
import re
import resource
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PARTS = ROOT / "experiments/report_page"
SCRIPTS = ("values.js", "load.js", "figure.js", "prices.js", "labels.js", "timeline.js", "detail.js", "filter.js", "page.js", "table.js",
           "cases.js", "start.js")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
try:
    import plot
except SystemExit:  # its word for: no matplotlib
    plot = None


def page_of(report, timelines="", script=""):
    """The page as report.cpp makes it, with a script of ours at its end."""
    page = (PARTS / "page.html").read_text()
    for name in ("page.css", "uplot.js", *SCRIPTS):
        page = page.replace(f"@{name}@", (PARTS / name).read_text(), 1)
    page = page.replace("@TIMELINES@", timelines, 1).replace('"@DATA@"', json.dumps(report), 1)
    return page.replace("</body>", f"<script>{script}</script></body>")


def made_up_report(strategies, points):
    """Curves one above the other; the last point of each is infeasible."""
    series = [{"strategy": f"strategy{s}", "note": "", "reason": None, "points": [
        {"point": s * points + k, "memory_budget_bytes": 10**6 * (k + 1), "feasible": k + 1 < points, "peak_bytes": 10**6 * (k + 1),
         "makespan_s": 1 + 0.1 * s + (points - k) / points, "recompute_s": 0.1, "new_field_bytes": 1000 * k,
         "outcome": "feasible" if k + 1 < points else "infeasible",
         "above_bound": 0.1 * s + (points - k) / points if k + 1 < points else None, "kinds": {"activation": 10**6}} for k in range(points)]} for s in range(strategies)]
    figure = {"trace": "t", "platform": "p", "model": "model", "machine": "machine", "micro_batches": 1, "optimizer": "none",
              "times_rescaled": True, "lower_bound_s": 1.0, "lower_bound_bytes": 10**6, "smallest_feasible_bytes": 10**6,
              "store_all_bytes": 10**6 * points, "capacity_bytes": None, "file": "f", "series": series, "bound_curves": [
                  {"plans": plans, "points": [{"budget_bytes": 10**6 * b, "lower_bound_s": 1 + slope / b, "price_s_per_gb": 1000 * slope / b**2,
                                               "bends": b == 2} for b in range(1, points)]} for plans, slope in (("recompute", .8), ("offload", .4))]}
    fields = [{"name": name, "label": label, "unit": unit, "meaning": f"the {label}"} for name, label, unit in (
        ("memory_budget_bytes", "budget", "B"), ("outcome", "outcome", "text"), ("makespan_s", "time", "s"), ("peak_bytes", "peak", "B"),
        ("recompute_s", "recomputing", "s"), ("new_field_bytes", "a new field", "B"), ("note", "note", "text"))]
    return {"experiment": {"name": "made up", "strategies": [s["strategy"] for s in series]}, "fields": fields, "made_by": "a test", "results_by": "a test",
            "figures": [figure], "impossible": []}


def made_up_load():
    """Of two strategies one has a largest value; of the other no value fits."""
    point = {"value": 49, "makespan_s": 0.442, "peak_bytes": 148 * 10**9}
    following = {"value": 50, "proof": "strategy", "needs_bytes": 152 * 10**9, "needs_is_proven": True, "bound_bytes": None, "reason": "too large"}
    return {"trace": "gpt <2>", "platform": "h200", "vary": "batch", "memory_budget_bytes": 150 * 10**9, "micro_batches": 1,
            "optimizer": "adam", "batch": 1, "sequence": 1024, "bound": {"largest": 600, "points": [
                {"value": 600, "least_bytes": 149 * 10**9}, {"value": 601, "least_bytes": 151 * 10**9}]}, "lines": [
                    {"strategy": "store_all", "largest": point, "next": following, "points": [{"outcome": "feasible", **point}]},
                    {"strategy": "rotor", "largest": None, "next": None, "points": []}]}


def browse(page):
    """The page's elements after its scripts have run, and the CPU time it took."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "page.html"
        file.write_text(page)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        run = subprocess.run([CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}/profile", "--window-size=1400,900",
                              "--virtual-time-budget=3000", "--dump-dom", f"file://{file}"], capture_output=True, text=True, timeout=300)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return run.stdout, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def said(dom, name):
    """What a script has left in the page's data-NAME."""
    return json.loads(html.unescape(re.search(f'data-{name}="(.*?)"', dom)[1]))


def points_of(report):
    return [point for figure in report["figures"] for series in figure["series"] for point in series["points"]]


def reports_by_axes():
    """Cases whose axes are linear, logarithmic over little more than a decade or over many, cut, or with reserved memory."""
    cases = []
    for name, points, change in (
            ("linear", 6, lambda p, k: None), ("decade", 14, lambda p, k: None),
            ("slow", 6, lambda p, k: p.update(makespan_s=p["makespan_s"] * 40**(k % 3))),
            ("wide", 9, lambda p, k: p.update(peak_bytes=p["peak_bytes"] * 10**(k % 9))),
            ("cut", 12, lambda p, k: p.update(makespan_s=p["makespan_s"] + (4 if k % 12 == 4 else 0))),
            ("reserved", 6, lambda p, k: p.update(peak_reserved_bytes=3 * 10**6 * (k + 2)))):
        report = made_up_report(2, points)
        figure = report["figures"][0]
        figure.update(model=name, bound_curves=[], lower_bound_s=None if name == "wide" else 1.0)
        for k, point in enumerate(points_of(report)):
            change(point, k)
        cases.append(figure)
    return {**report, "figures": cases}


# What a reader of the screen and one of weak sight need, of all that is seen: [what is wrong].
LOOKED_AT = """function lookedAt() {
  const wrong = [], say = (what, e) => wrong.push(`${what}: ${e.outerHTML.slice(0, 90)}`);
  const seen = e => e.getClientRects().length && getComputedStyle(e).visibility !== "hidden";
  const hex = text => { const c = text.match(/[\\d.]+/g).map(Number); return c.length > 3 && c[3] === 0 ? null : "#" + c.slice(0, 3).map(v => Math.round(v).toString(16).padStart(2, "0")).join(""); };
  const ground = e => { for (; e; e = e.parentElement) { const colour = hex(getComputedStyle(e).backgroundColor); if (colour) return colour; } return "#ffffff"; };
  const opacity = e => { let all = 1; for (; e; e = e.parentElement) all *= getComputedStyle(e).opacity; return all; };
  let texts = 0;
  for (const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT); walk.nextNode();) {
    const e = walk.currentNode.parentElement;
    if (!walk.currentNode.textContent.trim() || !seen(e) || e.closest(".gantt, script, option, title")) continue;
    const style = getComputedStyle(e), colour = hex(e.closest("svg") ? style.fill : style.color);
    ++texts;
    if (opacity(e) < 1 || contrast(colour, ground(e)) < 4.5) say(`contrast ${contrast(colour, ground(e)).toFixed(2)} of ${colour} on ${ground(e)}`, e);
  }
  if (texts < 60) wrong.push(`only ${texts} texts`);
  for (const e of document.querySelectorAll("input, select, button, summary, [tabindex]")) {
    const name = e.getAttribute("aria-label") || e.textContent.trim() || e.closest("label")?.textContent.trim();
    if (!name) say("no name", e);
    if (!seen(e)) continue;
    e.focus();
    if (document.activeElement === e && getComputedStyle(e).outlineStyle === "none") say("focus is not seen", e);
  }
  const ids = [...document.querySelectorAll("[id]")].map(e => e.id);
  if (new Set(ids).size < ids.length) wrong.push("ids are not unique");
  for (const e of document.querySelectorAll("img")) if (!e.alt) say("no alt", e);
  for (const e of document.querySelectorAll("svg")) if (!e.getAttribute("aria-label") && e.getAttribute("aria-hidden") !== "true" && !e.closest(".gantt")) say("a picture without a name", e);
  for (const e of document.querySelectorAll("th")) if (e.scope !== "col") say("no scope", e);
  for (const e of document.querySelectorAll("[aria-describedby]")) if (!document.getElementById(e.getAttribute("aria-describedby"))) say("described by nothing", e);
  if (document.querySelectorAll("main").length !== 1 || document.querySelectorAll("h1").length !== 1) wrong.push("not one main and one h1");
  const levels = [...document.querySelectorAll("h1, h2, h3")].map(e => +e.tagName[1]);
  levels.forEach((level, i) => { if (i && level > levels[i - 1] + 1) wrong.push("a level of headings is left out"); });
  for (let i = 0; i < COLOURS.length; ++i) if (contrast(textColour(i), css("--paper")) < 4.5) wrong.push(`the name of strategy ${i} is hard to read`);
  return wrong;
}"""


@unittest.skipIf(plot is None, "python3-matplotlib is not here")
class Figures(unittest.TestCase):
    def test_thirty_strategies_have_thirty_pairs_of_colour_and_marker(self):
        self.assertEqual(len({plot.style_of(i) for i in range(30)}), 30)
        values = (PARTS / "values.js").read_text()
        self.assertEqual(re.findall(r"#[0-9A-F]{6}", re.search(r"COLOURS = \[(.*)\]", values)[1], re.I), plot.COLOURS)
        shapes = values[values.index("SHAPES = ["):].split("\n];")[0]
        self.assertEqual(shapes.count("r => `"), len(plot.MARKERS))

    def test_dominated_points_are_those_that_another_beats(self):
        random.seed(1)
        for _ in range(200):
            fronts = {s: [(random.randint(1, 9), random.randint(1, 9)) for _ in range(random.randint(0, 6))] for s in range(4)}
            points = {p for f in fronts.values() for p in f}
            beaten = {(m, t) for m, t in points if any((n <= m and u <= t) and (n, u) != (m, t) for n, u in points)}
            self.assertEqual(plot.undominated(fronts), points - beaten)

    def test_units_are_decimal(self):
        self.assertEqual([plot.memory_unit(b) for b in (999, 10**3, 10**6, 10**9, 10**12)],
                         [("B", 1), ("kB", 10**3), ("MB", 10**6), ("GB", 10**9), ("TB", 10**12)])
        for part in PARTS.iterdir():
            self.assertNotRegex(part.read_text(), r"\b[KMGT]iB\b")

    def test_names_and_legends_cover_nothing(self):
        report = made_up_report(22, 12)
        figure = report["figures"][0]
        for series in figure["series"][::2]:
            for point in series["points"]:
                point["makespan_s"] *= 20
        canvas = plot.draw(figure, report["experiment"]["strategies"])
        canvas.canvas.draw()
        axes = canvas.axes[0]
        self.assertEqual(axes.get_yscale(), "log")
        self.assertEqual(axes.get_xscale(), "log")
        labels = [t.get_window_extent() for t in axes.texts]
        self.assertGreater(len(labels), 5)
        boxes = labels + [legend.get_window_extent() for legend in canvas.legends]
        for i, box in enumerate(boxes):
            for other in boxes[:i]:
                self.assertFalse(box.overlaps(other))
        dots = [axes.transData.transform(p) for line in axes.lines if line.get_marker() in plot.MARKERS for p in line.get_xydata()
                if line.get_transform() == axes.transData]
        for box in labels:
            self.assertFalse(any(box.contains(*dot) for dot in dots))


    def test_prices_are_drawn_from_the_report(self):
        report = made_up_report(2, 6)
        figure = report["figures"][0]
        self.assertTrue(plot.has_prices(figure))
        fronts = [plot.front(series["points"]) for series in figure["series"]]
        canvas = plot.draw_prices(figure, "model", "", plot.memory_unit, fronts, plot.style_of)
        upper, lower = canvas.axes
        lines = [[list(line.get_xdata()), list(line.get_ydata())] for line in upper.lines]
        for curve in figure["bound_curves"]:
            self.assertIn([[p["budget_bytes"] / 10**6 for p in curve["points"]], [p["lower_bound_s"] for p in curve["points"]]], lines)
        self.assertEqual([list(line.get_ydata()) for line in lower.lines],
                         [[1000 * p["price_s_per_gb"] for p in curve["points"]] for curve in figure["bound_curves"]])
        self.assertEqual((upper.get_ylabel(), lower.get_ylabel(), lower.get_xlabel()), ("iteration time (s)", "ms per GB", "memory (MB)"))
        figure["bound_curves"] = []
        self.assertFalse(plot.has_prices(figure))


    def test_names_can_be_read_on_white(self):
        for colour in plot.COLOURS:
            self.assertGreaterEqual(1.05 / (plot.luminance(plot.text_colour(colour)) + 0.05), 4.5)
        self.assertEqual(plot.text_colour("#0072B2"), "#0072b2")  # it can be read as it is

    def test_logarithmic_axes_have_ticks_at_1_2_and_5(self):
        self.assertEqual(plot.axis_ticks(0.9, 22, True, 7), [1, 2, 5, 10, 20])
        self.assertEqual(plot.axis_ticks(0.9, 2.2e7, True, 6), [10**k for k in range(8)])
        self.assertEqual(plot.axis_ticks(2.1, 4.9, True, 6), [2.5, 3, 3.5, 4, 4.5])  # of 1, 2 and 5 none is inside
        self.assertEqual(plot.axis_ticks(0.98, 1.31, False, 6), [1, 1.1, 1.2, 1.3])
        self.assertEqual([plot.number(v) for v in (0.00002, 2.5, 20, 5000000)], ["0.00002", "2.5", "20", "5000000"])

    def test_cases_in_one_figure_are_each_over_their_own_bound(self):
        report = made_up_report(2, 6)
        other = copy.deepcopy(report["figures"][0])
        other.update(machine="other", lower_bound_s=2.0)
        joint = plot.together([report["figures"][0], other])
        self.assertEqual([s["strategy"] for s in joint["series"]],
                         [f"{m}: strategy{s}" for m in ("machine", "other") for s in range(2)])
        alone, of_other = (joint["series"][k]["points"][0]["makespan_s"] for k in (0, 2))
        self.assertEqual(of_other, alone / 2)
        self.assertEqual((joint["lower_bound_s"], joint["store_all_bytes"], joint["machine"], joint["model"]), (1.0, 6 * 10**6, "2 platforms", "model"))
        other["lower_bound_s"] = None  # then seconds
        self.assertIsNone(plot.together([report["figures"][0], other])["lower_bound_s"])


@unittest.skipIf(CHROMIUM is None, "chromium is not here")
class Page(unittest.TestCase):
    def test_ten_thousand_points_open_within_three_seconds(self):
        empty = browse("<html></html>")[1]
        dom, cpu = browse(page_of(made_up_report(25, 400)))
        self.assertIn("10000 of 10000 points", dom)
        self.assertLess(dom.count("<tr"), 200)  # of the table only what is in sight
        self.assertLess(cpu - empty, 3)

    def test_a_click_on_a_point_opens_its_timeline_and_memory(self):
        timeline = {"lanes": [{"name": "compute", "spans": [[0, 1, "forward"], [1, 2, "backward"]]}],
                    "memory_kinds": ["activation"], "memory": [[0, 500000], [1, 1000000]]}
        # Again until it is answered: plots are drawn with some later frame of the browser's.
        click = """const clickOnPoint = left => {
            const plot = document.querySelector(".plot")?.plot, d = plot?.points?.find(d => d.p.point === 3);
            if (d) {
              const r = plot.over.getBoundingClientRect();
              const at = {bubbles: true, clientX: r.left + (d.left - plot.bbox.left) / devicePixelRatio,
                          clientY: r.top + (d.top - plot.bbox.top) / devicePixelRatio};
              for (const what of ["mousemove", "mousedown", "mouseup", "click"]) plot.over.dispatchEvent(new MouseEvent(what, at));
            }
            if (left > 0 && !document.querySelector(".detail")) setTimeout(() => clickOnPoint(left - 1), 50);
          }; clickOnPoint(40);"""
        dom, _ = browse(page_of(made_up_report(2, 6), f"3\t{json.dumps(timeline)}\n", click))
        detail = dom[dom.index('class="detail"'):]
        self.assertIn("--strategy strategy0 --memory '4000000 B'", detail)
        self.assertIn('aria-label="timeline of strategy0', detail)
        self.assertIn("In memory at the peak", detail)
        self.assertIn("recomputing 100.0 ms, a new field 3.000 kB", detail)

    def test_the_time_is_in_view_and_nothing_runs_off_a_phone(self):
        report = made_up_report(3, 6)
        report["figures"][0].update(model="llama:layers=32,width=4096,heads=32,kv_heads=8,inner=14336,sequence=8192,view=graph", machine="h100_sxm_8")
        for series, name in zip(report["figures"][0]["series"], ("rotor", "megatron(tensor=2,sequence=yes)|1f1b(stages=4)|rotor|offload_greedy", "pofo")):
            series["strategy"] = name
        report["experiment"]["strategies"] = [series["strategy"] for series in report["figures"][0]["series"]]
        look = """setTimeout(() => {
            const time = [...document.querySelectorAll("th")].find(th => th.textContent.trim() === "time"), box = document.getElementById("rows");
            const seen = [...document.body.querySelectorAll("*")].filter(e => !e.parentElement.closest(".wide, .gantt, .u-over"));
            document.body.dataset.look = JSON.stringify([Math.max(...seen.map(e => e.getBoundingClientRect().right)),
              time.getBoundingClientRect().right - box.getBoundingClientRect().left, box.clientWidth]);
          }, 500);"""
        for width in (1400, 390):  # windows of less than 500 pixels are not made
            page = page_of(report, "", look).replace("</head>", f"<style>:root {{ width: {width}px }}</style></head>")
            right, time, table = json.loads(re.search(r'data-look="(.*?)"', browse(page)[0])[1])
            self.assertLessEqual(right, width)
            if width == 1400:
                self.assertLessEqual(time, table)

    @unittest.skipIf(plot is None, "python3-matplotlib is not here")
    def test_the_page_and_the_picture_have_the_same_ticks(self):
        report = reports_by_axes()
        script = """setTimeout(() => { document.body.dataset.ticks = JSON.stringify([...document.querySelectorAll(".plot")].map(({plot}) =>
            [...plot.axes.map(axis => axis._values), plot.scales.x.distr, plot.scales.y.distr])); }, 500);"""
        shown = said(browse(page_of(report, script=script))[0], "ticks")
        drawn, kinds = [], set()
        for figure in report["figures"]:
            canvas = plot.draw(figure, report["experiment"]["strategies"])
            canvas.canvas.draw()
            axes = canvas.axes[0]
            drawn.append([[label.get_text() for label in axis.get_ticklabels()] for axis in (axes.xaxis, axes.yaxis)] +
                         [3 if scale == "log" else 1 for scale in (axes.get_xscale(), axes.get_yscale())])
            kinds.add(tuple(drawn[-1][2:]))
            plot.plt.close(canvas)
        self.assertEqual(shown, drawn)
        self.assertGreater(len(kinds), 2)

    def test_of_many_cases_those_are_drawn_that_are_asked_for(self):
        report = made_up_report(2, 3)
        usual = report["figures"][0]
        report["figures"] = []
        for n in range(500):
            figure = copy.deepcopy(usual)
            figure.update(model=f"model{n}", machine="left" if n % 2 else "right")
            for series in figure["series"]:
                for point in series["points"]:
                    point["makespan_s"] *= 1 + n
            report["figures"].append(figure)
        script = """const say = () => [document.getElementById("shown").textContent, document.querySelectorAll("canvas").length,
              document.querySelectorAll("#cases tbody tr").length < 99, [...document.querySelectorAll("#figures h2")].map(h => h.textContent)];
            const at = [say()], search = document.getElementById("case-search");
            search.value = "right fastest < 9 s";
            search.dispatchEvent(new Event("input"));
            document.getElementById("show").click();
            at.push(say());
            document.getElementById("shown-in").value = "one";
            document.getElementById("shown-in").dispatchEvent(new Event("change"));
            at.push(say(), document.querySelector(".plot").plot.points.filter(d => d.dominated).length, [...document.querySelectorAll(".keys button")].map(b => b.textContent));
            document.body.dataset.at = JSON.stringify(at);"""
        dom, _ = browse(page_of(report, script=script))
        first, some, one, dominated, names = said(dom, "at")
        self.assertEqual(first, ["Cases: 1 of 500 shown", 1, True, ["model0 on right"]])
        self.assertEqual(some, ["Cases: 3 of 500 shown", 3, True, [f"model{n} on right" for n in (0, 2, 4)]])  # (1 + n) * (1 + 2/3) s
        self.assertEqual(one, ["Cases: 3 of 500 shown", 1, True, ["3 models on right"]])
        self.assertEqual(dominated, 3 * 2)  # strategy1's: a case's points are compared with its own
        self.assertEqual(names, [f"model{n}: strategy{s}" for n in (0, 2, 4) for s in range(2)])

    def test_rows_are_filtered_by_numbers_and_columns_are_chosen(self):
        report = made_up_report(3, 6)
        points = [(s, p) for s in range(3) for p in report["figures"][0]["series"][s]["points"]]
        asked = {
            "time < 1.5 s": lambda s, p: p["makespan_s"] < 1.5,
            "TIME<1500ms, peak >= 3 MB": lambda s, p: p["makespan_s"] < 1.5 and p["peak_bytes"] >= 3e6,
            "strategy1 time > 1400 ms": lambda s, p: s == 1 and p["makespan_s"] > 1.4,
            "above bound <= 60 % strategy2": lambda s, p: p["feasible"] and s == 2 and p["above_bound"] <= .6,
            "micro-batches = 1 budget > 5e6 B": lambda s, p: p["memory_budget_bytes"] > 5e6}
        wrong = {"time < 20 parsecs": "expected s, ms", "peak < 20": "expected B, kB, MB", "tame < 20 ms": "not understood: tame < 20 ms",
                 "micro-batches < 2 GB": "has no unit"}
        script = f"""const search = document.getElementById("search"), status = document.querySelector("#points [role=status]");
            document.body.dataset.counts = JSON.stringify({json.dumps([*asked, *wrong])}.map(text => {{
              search.value = text;
              search.dispatchEvent(new Event("input"));
              return [status.textContent, search.getAttribute("aria-invalid")];
            }}));
            const names = () => [...document.querySelectorAll("#rows th")].map(th => th.textContent), before = names();
            for (const name of ["a new field", "recomputing"]) document.querySelector(`[data-column="${{name}}"]`).click();
            document.body.dataset.columns = JSON.stringify([before, names()]);"""
        dom, _ = browse(page_of(report, script=script))
        counts = said(dom, "counts")
        self.assertEqual(counts[:len(asked)], [[f"{sum(bool(f(*p)) for p in points)} of 18 points", "false"] for f in asked.values()])
        for (text, invalid), expected in zip(counts[len(asked):], wrong.values()):
            self.assertIn(expected, text)
            self.assertEqual(invalid, "true")
        before, after = said(dom, "columns")
        self.assertEqual(set(before) ^ set(after), {"a new field", "recomputing"})

    def test_all_can_be_read_and_has_a_name_light_and_dark(self):
        report = made_up_report(3, 6)
        report["figures"][0]["capacity_bytes"] = 4 * 10**6
        report["figures"].append({**copy.deepcopy(report["figures"][0]), "machine": "other"})
        report["load"] = {**made_up_load(), "picture": '<svg xmlns="http://www.w3.org/2000/svg" width="90" height="40"></svg>'}
        timeline = {"lanes": [{"name": "compute", "spans": [[0, 1, "forward"], [1, 2, "backward"]]}],
                    "memory_kinds": ["activation"], "memory": [[0, 500000], [1, 1000000]]}
        script = LOOKED_AT + """
            for (const details of document.querySelectorAll("details")) details.open = true;
            document.querySelector(".keys button").click();
            document.getElementById("search").value = "x < 2";
            document.getElementById("search").dispatchEvent(new Event("input"));
            openDetail(report.figures[0], report.figures[0].series[1], report.figures[0].series[1].points[0]);
            const wrong = [];
            for (const theme of ["light", "dark"]) { setTheme(theme); wrong.push([theme, ...lookedAt()]); }
            document.body.dataset.wrong = JSON.stringify(wrong);"""
        dom, _ = browse(page_of(report, f"6\t{json.dumps(timeline)}\n", script))
        self.assertEqual(said(dom, "wrong"), [["light"], ["dark"]])
        self.assertIn("device memory, 4.000 MB", dom)

    def test_the_load_line_comes_first(self):
        report = made_up_report(2, 6)
        plain = browse(page_of(report))[0]
        self.assertNotIn('class="load"', plain)
        svg = '<svg xmlns="http://www.w3.org/2000/svg" width="90" height="40"><text>100 % "a"</text></svg>'
        report["load"] = {**made_up_load(), "picture": svg}
        loaded = 'const i = document.querySelector(".load img"); i.decode().then(() => { document.body.dataset.size = i.naturalWidth; });'
        dom, _ = browse(page_of(report, script=loaded))
        self.assertIn('data-size="90"', dom)  # the browser has drawn it
        figures = dom[dom.index('<div id="first">'):]
        self.assertLess(figures.index("Load line: gpt &lt;2&gt; on h200"), figures.index("model on machine"))
        rows = re.findall(r"<tr>(.*?)</tr>", figures[:figures.index("model on machine")])
        cells = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in rows[1:]]
        self.assertEqual(rows[0].count("<th"), 5)
        self.assertEqual(cells, [["store_all", "49", "442.0 ms", "148.0 GB", "50 needs 152.0 GB"], ["rotor", "-", "-", "-", "no value fits"]])
        self.assertIn("gradients and states there fits 601.", figures)
        del report["load"]["picture"]  # where matplotlib is missing
        self.assertNotIn("<img", browse(page_of(report))[0])

    def test_the_page_draws_prices(self):
        dom, _ = browse(page_of(made_up_report(2, 6)))
        picture = dom[dom.index('class="prices"'):].split("</svg>")[0]
        self.assertIn("2.000 MB: at least 1.400 s, a GB is worth 200.0 s", picture)
        self.assertEqual(picture.count("<circle"), 2)
        self.assertEqual(picture.count("<path"), 4 + 2 * 5)  # bounds, prices, and the measured points
        without = made_up_report(2, 6)
        without["figures"][0]["bound_curves"] = []
        self.assertNotIn('class="prices"', browse(page_of(without))[0])

    def test_buttons_and_search_filter_the_table(self):
        one = 'document.querySelector(\'[data-strategy="strategy1"]\').click();'
        self.assertIn("12 of 18 points", browse(page_of(made_up_report(3, 6), script=one))[0])
        search = one + 'const s = document.getElementById("search"); s.value = "STRATEGY2 machine"; s.dispatchEvent(new Event("input"));'
        dom, _ = browse(page_of(made_up_report(3, 6), script=search))
        self.assertIn("6 of 18 points", dom)
        self.assertNotIn("<td>strategy0</td>", dom)

    def test_rows_are_copied_as_text_and_the_page_goes_dark(self):
        script = 'document.body.dataset.copied = pointTable.asText(); document.getElementById("theme").click();'
        dom, _ = browse(page_of(made_up_report(1, 3), script=script))
        self.assertIn('data-theme="dark"', dom)
        copied = re.search(r'data-copied="([^"]*)"', dom)[1].splitlines()
        self.assertEqual(copied[0].split("\t"),  # recomputing is the same in all rows, and notes are no columns
                         ["model", "platform", "strategy", "budget", "outcome", "time", "above bound", "peak", "a new field"])
        self.assertEqual(len(copied), 4)
        self.assertEqual(copied[1].split("\t")[:4], ["model", "machine", "strategy0", "1000000"])


if __name__ == "__main__":
    unittest.main()
