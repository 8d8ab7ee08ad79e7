// The bound on time against memory with its bends, and under it what a GB more is worth.
const CURVES = {recompute: {words: "ops run again", dash: ""}, offload: {words: "values are also copied", dash: "7 4"}};

function pricesPicture(figure) {
  const curves = figure.bound_curves, W = fitting(760), left = 72, right = 12, top = 8, upper = 210, gap = 26, lower = 110, foot = 34;
  const H = top + upper + gap + lower + foot, points = curves.flatMap(c => c.points);
  const measured = figure.series.flatMap((series, i) => hidden.has(series.name) ? [] : series.points
    .filter(p => p.feasible && p.peak_bytes <= Math.max(...points.map(q => q.budget_bytes))).map(p => ({...p, i})));
  const fastest = Math.min(...points.map(p => p.lower_bound_s));
  const slowest = Math.max(...points.map(p => p.lower_bound_s), ...measured.map(p => p.makespan_s).filter(s => s <= 2 * fastest));
  const memory = points.map(p => p.budget_bytes).concat(measured.map(p => p.peak_bytes));
  const low = Math.min(...memory), high = Math.max(...memory), dear = Math.max(...points.map(p => p.price_s_per_gb), 0);
  const X = b => left + (b - low) / (high - low || 1) * (W - left - right);
  const Y = s => top + upper - (s - fastest) / (slowest - fastest || 1) * (upper - 12);
  const floor = top + upper + gap + lower, P = p => floor - p / (dear || 1) * (lower - 8);
  const svg = element("svg", {viewBox: `0 0 ${W} ${H}`, width: "100%", role: "img", class: "prices",
    "aria-label": `lower bound on time against memory and what a GB is worth, ${figure.model} on ${figure.machine}`});
  const line = (x1, y1, x2, y2, more) => svg.append(element("line", {x1, y1, x2, y2, ...more}));
  const text = (x, y, words, more = {}) => svg.append(element("text", {x, y, "text-anchor": "end", ...more}, words));
  const [unit, size] = memoryUnit(high), milli = slowest < .5 ? 1e-3 : 1;
  for (const [v, name] of ticks(fastest / milli, slowest / milli, 5)) {
    line(left, Y(v * milli), W - right, Y(v * milli), {class: "grid"});
    text(left - 6, Y(v * milli) + 4, `${name} ${milli === 1 ? "s" : "ms"}`);
  }
  for (const [v, name] of ticks(0, 1e3 * dear || 1, 3)) {
    line(left, P(v / 1e3), W - right, P(v / 1e3), {class: "grid"});
    text(left - 6, P(v / 1e3) + 4, name);
  }
  text(left + 4, top + upper + gap - 8, "what a GB is worth (ms)", {"text-anchor": "start"});
  for (const [v, name] of ticks(low / size, high / size, 8)) text(X(v * size), floor + 15, name, {"text-anchor": "middle"});
  text((left + W - right) / 2, floor + 30, `memory (${unit})`, {"text-anchor": "middle"});
  line(left, floor, W - right, floor, {class: "axis"});
  line(left, top + upper, W - right, top + upper, {class: "axis"});
  for (const p of measured) {
    if (p.makespan_s <= slowest) svg.append(element("path", {d: shape(p.i, 3.4), fill: colour(p.i), transform: `translate(${X(p.peak_bytes)} ${Y(p.makespan_s)})`}));
  }
  for (const {plans, points: at} of curves) {
    const style = {fill: "none", stroke: "currentColor", "stroke-width": 1.7, "stroke-dasharray": CURVES[plans].dash};
    svg.append(element("path", {d: "M" + at.map(p => `${X(p.budget_bytes).toFixed(2)} ${Y(p.lower_bound_s).toFixed(2)}`).join("L"), ...style}));
    svg.append(element("path", {d: steps(at, X, P), ...style}));
    for (const p of at.filter(q => q.bends)) {
      const dot = element("circle", {cx: X(p.budget_bytes), cy: Y(p.lower_bound_s), r: 2.4, fill: "var(--paper)", stroke: "currentColor"});
      dot.append(element("title", {}, `${bytes(p.budget_bytes)}: at least ${seconds(p.lower_bound_s)}, a GB is worth ${seconds(p.price_s_per_gb)}`));
      svg.append(dot);
    }
  }
  return svg;
}

// A price holds from its budget to the next one.
function steps(at, X, P) {
  return at.map((p, i) => (i ? `H${X(p.budget_bytes).toFixed(2)}V${P(p.price_s_per_gb).toFixed(2)}` : `M${X(p.budget_bytes).toFixed(2)} ${P(p.price_s_per_gb).toFixed(2)}`)).join("");
}

function prices(figure) {
  if (!(figure.bound_curves ?? []).some(curve => curve.points.length > 1)) return [];
  const place = element("div", {style: "max-width: 760px"}), marks = element("div", {class: "marks"});
  for (const {plans} of figure.bound_curves) {
    marks.append(mark({d: "M0 7H30", stroke: "currentColor", fill: "none", "stroke-width": 1.7, "stroke-dasharray": CURVES[plans].dash}, `bound where ${CURVES[plans].words}`));
  }
  marks.append(mark({d: "M12 7a3 3 0 1 0 6 0a3 3 0 1 0 -6 0", stroke: "currentColor", fill: "none"}, "a bend: below it other ops are the best to run again"));
  redraws.push(() => place.replaceChildren(pricesPicture(figure)));
  return [element("h3", {}, "What no schedule can beat, and what a GB is worth"), place, marks];
}
