// The report's data, and how values, colours and markers are written.
const report = JSON.parse(document.getElementById("data").textContent);
for (const figure of report.figures) for (const series of figure.series) Object.assign(series, {name: series.strategy, of: figure});
const view = {x: "peak_bytes", y: "relative"};
const hidden = new Set();  // strategies, in all figures and in the table; of figures in one, series of that

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
const rgb = hex => (hex.length === 4 ? [...hex.slice(1)].map(c => c + c) : hex.slice(1).match(/../g)).map(c => parseInt(c, 16));
function contrast(a, b) {
  const [x, y] = [a, b].map(hex => rgb(hex).map(c => (c /= 255, c <= .04045 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4)).reduce((sum, c, k) => sum + c * [.2126, .7152, .0722][k], 0));
  return (Math.max(x, y) + .05) / (Math.min(x, y) + .05);
}
// A strategy's colour for its name: as near to the ink as it must be to be read.
function textColour(i) {
  const from = rgb(colour(i)), ink = rgb(css("--ink"));
  for (let share = 0; ; share += .05) {
    const mixed = "#" + from.map((c, k) => Math.round(c + Math.min(share, 1) * (ink[k] - c)).toString(16).padStart(2, "0")).join("");
    if (share >= 1 || contrast(mixed, css("--paper")) >= 4.6) return mixed;
  }
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

// The width of a picture, so that its text is readable on a phone, too.
const fitting = most => Math.max(280, Math.min(most, document.body.clientWidth - 40));

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
  const step = [1, 2, 2.5, 5, 10].map(f => f * power).find(s => s >= rough * (1 - 1e-9));
  const digits = Math.max(0, Math.min(9, -Math.floor(Math.log10(step) + 1e-9) + (step / power === 2.5 ? 1 : 0)));
  const list = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; ++i) list.push([i * step, (i * step).toFixed(digits)]);
  return list;
}

// Where an axis has ticks: of a logarithmic one at 1, 2 and 5 of each decade, or at its powers of ten where these are too
// many. plot.py has the same.
function axisTicks(low, high, isLog, wanted) {
  if (isLog) {
    const list = [];
    for (let k = Math.floor(Math.log10(low)); k <= Math.log10(high); ++k) for (const f of [1, 2, 5]) list.push([f, +`${f}e${k}`]);
    const inside = list.filter(([, v]) => v >= low && v <= high), tens = inside.filter(([f]) => f === 1);
    if (inside.length >= 2) return (inside.length > 2 * wanted ? tens : inside).map(([, v]) => v);
  }
  return ticks(low, high, wanted).map(([v]) => +v.toPrecision(12));
}

const isRelative = figure => view.y === "relative" && figure.series.every(s => s.of.lower_bound_s > 0);
const relativeTo = (figure, series) => (isRelative(figure) ? series.of.lower_bound_s : 1);

// The feasible points of the strategies that are shown, where they stand, each strategy's from left to right.
function shown(figure) {
  const list = [];
  figure.series.forEach((series, i) => {
    if (hidden.has(series.name)) return;
    const points = series.points.filter(p => p.feasible && p[view.x] !== null)
      .map(p => ({p, i, series, x: p[view.x], y: p.makespan_s / relativeTo(figure, series)}));
    list.push(...points.sort((a, b) => a.x - b.x || a.y - b.y));
  });
  for (const alike of grouped(list, d => sameCase(d.series.of)).values()) markDominated(alike);
  return list;
}
const sameCase = of => [of.model, of.machine, of.micro_batches, of.optimizer].join("\n");  // whatever folder it is in
function grouped(list, keyOf) {
  const groups = new Map();
  for (const each of list) {
    const key = keyOf(each);
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(each);
  }
  return groups;
}

// Dominated: another point of the case is as fast within less memory, or faster within as much.
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
