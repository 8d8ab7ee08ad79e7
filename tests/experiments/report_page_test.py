#!/usr/bin/env python3
"""The report's figures and its page: styles, dominated points, units; and, where Chromium is, the page itself in use.

    PYTHONPATH=experiments tests/experiments/report_page_test.py        # what is not installed is said to be skipped
"""
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
SCRIPTS = ("values.js", "load.js", "figure.js", "prices.js", "labels.js", "timeline.js", "detail.js", "table.js", "page.js")
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
    series = [{"strategy": f"strategy{s}", "note": "", "points": [
        {"point": s * points + k, "memory_budget_bytes": 10**6 * (k + 1), "feasible": k + 1 < points, "peak_bytes": 10**6 * (k + 1),
         "makespan_s": 1 + 0.1 * s + (points - k) / points, "recompute_s": 0.1, "new_field_bytes": 1000 * k,
         "outcome": "feasible" if k + 1 < points else "infeasible", "kinds": {"activation": 10**6}} for k in range(points)]} for s in range(strategies)]
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

    def test_the_load_line_comes_first(self):
        report = made_up_report(2, 6)
        plain = browse(page_of(report))[0]
        self.assertNotIn('class="load"', plain)
        svg = '<svg xmlns="http://www.w3.org/2000/svg" width="90" height="40"><text>100 % "a"</text></svg>'
        report["load"] = {**made_up_load(), "picture": svg}
        loaded = 'const i = document.querySelector(".load img"); i.decode().then(() => { document.body.dataset.size = i.naturalWidth; });'
        dom, _ = browse(page_of(report, script=loaded))
        self.assertIn('data-size="90"', dom)  # the browser has drawn it
        figures = dom[dom.index('<main id="figures">'):]
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
        script = 'document.body.dataset.copied = rowsAsText(); document.getElementById("theme").click();'
        dom, _ = browse(page_of(made_up_report(1, 3), script=script))
        self.assertIn('data-theme="dark"', dom)
        copied = re.search(r'data-copied="([^"]*)"', dom)[1].splitlines()
        self.assertEqual(copied[0].split("\t"),  # recomputing is the same in all rows, and notes are no columns
                         ["model", "platform", "strategy", "budget", "outcome", "time", "time / bound", "peak", "a new field"])
        self.assertEqual(len(copied), 4)
        self.assertEqual(copied[1].split("\t")[:4], ["model", "machine", "strategy0", "1000000"])


if __name__ == "__main__":
    unittest.main()
