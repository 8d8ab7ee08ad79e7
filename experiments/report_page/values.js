// The report's data, and how values, colours and markers are written.
const report = JSON.parse(document.getElementById("data").textContent);
const view = {x: "peak_bytes", y: "relative"};
const hidden = new Set();  // strategies, in all figures and in the table

// Okabe and Ito's colours without yellow. A strategy's pair of colour and marker is its own up to 49: plot.py has the same.
const COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000"];
const SHAPES = [
  r => `M${-r} 0a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0Z`,
  r => `M${-r} ${-r}H${r}V${r}H${-r}Z`,
  r => `M0 ${-1.2 * r}L${1.15 * r} ${r}H${-1.15 * r}Z`,
  r => `M0 ${-1.3 * r}L${1.3 * r} 0L0 ${1.3 * r}L${-1.3 * r} 0Z`,
  r => `M0 ${1.2 * r}L${1.15 * r} ${-r}H${-1.15 * r}Z`,
  r => `M0 ${-1.2 * r}L${1.15 * r} ${-.3 * r}L${.7 * r} ${r}H${-.7 * r}L${-1.15 * r} ${-.3 * r}Z`,
  r => `M${-r} ${-r * .4}L${-r * .4} ${-r}L0 ${-r * .5}L${r * .4} ${-r}L${r} ${-r * .4}L${r * .5} 0L${r} ${r * .4}L${r * .4} ${r}L0 ${r * .5}L${-r * .4} ${r}L${-r} ${r * .4}L${-r * .5} 0Z`,
];
const isDark = () => document.documentElement.dataset.theme === "dark";
function colour(i) {
  const plain = COLOURS[i % COLOURS.length];
  return plain === "#000000" && isDark() ? "#ffffff" : plain;
}
const marker = i => (i + Math.floor(i / COLOURS.length)) % SHAPES.length;
const shape = (i, r) => SHAPES[marker(i)](r);
const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function element(name, attributes = {}, text = "") {
  const svg = ["svg", "path", "line", "rect", "text", "g", "circle", "title"].includes(name);
  const made = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== "") made.textContent = text;
  return made;
}

// Powers of 1000, as everywhere in Plimsoll.
function memoryUnit(largest) {
  for (const [name, size] of [["TB", 1e12], ["GB", 1e9], ["MB", 1e6], ["kB", 1e3]]) {
    if (largest >= size) return [name, size];
  }
  return ["B", 1];
}
function bytes(count) {
  if (count === null || count === undefined) return "";
  const [name, size] = memoryUnit(count);
  return size === 1 ? `${count} B` : `${(count / size).toPrecision(4)} ${name}`;
}
function seconds(s) {
  if (s === null || s === undefined) return "";
  for (const [name, size] of [["s", 1], ["ms", 1e-3], ["\u00b5s", 1e-6]]) {
    if (s >= size) return `${(s / size).toPrecision(4)} ${name}`;
  }
  return s === 0 ? "0 s" : `${(s * 1e9).toPrecision(4)} ns`;
}
const inWords = outcome => outcome.replaceAll("_", " ");
function ticks(low, high, wanted) {
  const rough = (high - low) / wanted, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map(f => f * power).find(s => s >= rough);
  const digits = Math.max(0, Math.min(9, -Math.floor(Math.log10(step) + 1e-9) + (step / power === 2.5 ? 1 : 0)));
  const list = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; ++i) list.push([i * step, (i * step).toFixed(digits)]);
  return list;
}

const relativeTo = figure => (view.y === "relative" && figure.lower_bound_s > 0 ? figure.lower_bound_s : 1);

// The feasible points of the strategies that are shown, where they stand, each strategy's from left to right.
function shown(figure) {
  const list = [];
  figure.series.forEach((series, i) => {
    if (hidden.has(series.strategy)) return;
    const points = series.points.filter(p => p.feasible && p[view.x] !== null)
      .map(p => ({p, i, strategy: series.strategy, x: p[view.x], y: p.makespan_s / relativeTo(figure)}));
    list.push(...points.sort((a, b) => a.x - b.x || a.y - b.y));
  });
  markDominated(list);
  return list;
}

// Dominated: another point is as fast within less memory, or faster within as much.
function markDominated(list) {
  let least = Infinity;
  const sorted = [...list].sort((a, b) => a.x - b.x || a.y - b.y);
  for (let k = 0; k < sorted.length;) {
    let end = k;
    while (end < sorted.length && sorted[end].x === sorted[k].x) ++end;
    const fastest = sorted[k].y;
    for (; k < end; ++k) sorted[k].dominated = sorted[k].y >= least || sorted[k].y > fastest;
    least = Math.min(least, fastest);
  }
}
