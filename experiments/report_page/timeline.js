// Timelines: what each stream did when, above what filled the memory.
// What a lane does or moves, and what fills the memory: the colours of plot_timelines.py.
const FILLS = {forward: "#0072B2", backward: "#56B4E9", recompute: "#E69F00", update: "#009E73", activation: "#CC79A7", gradient: "#E3B7CF",
  parameter: "#D55E00", parameter_gradient: "#F2A977", optimizer_state: "#8C6BB1", input: "#9ca3af", workspace: "#d5dbe1",
  packed: "#7B2D5B", pack: "#6B7A1F", unpack: "#B9C46A"};
const LANES = {compute: "compute", device_to_host: "D2H", host_to_device: "H2D", host: "host", host_to_disk: "to disk", disk_to_host: "from disk"};
const STACK = ["parameter", "optimizer_state", "parameter_gradient", "packed", "activation", "gradient", "input", "workspace"];

function timelinePicture(timeline, usual, common, fullest) {
  const W = fitting(520), left = 58, right = 8, lane = 13, high = 76, top = 4, foot = 20;
  const lanes = Object.keys(LANES).filter(name => usual.includes(name) || timeline.lanes.some(l => l.name === name));
  const longest = 1.02 * Math.max(common, timeline.makespan_s);
  const floor = top + lanes.length * lane + 6 + high, H = floor + foot;
  const X = s => (left + s / longest * (W - left - right)).toFixed(2), Y = b => (floor - b / fullest * high).toFixed(2);
  const svg = element("svg", {viewBox: `0 0 ${W} ${H}`, width: "100%", role: "img",
    "aria-label": `timeline of ${timeline.strategy}: ${seconds(timeline.makespan_s)}, peak ${bytes(timeline.peak_bytes)}`});
  lanes.forEach((name, row) => {
    const y = top + row * lane;
    svg.append(element("text", {x: left - 6, y: y + 9.5, "text-anchor": "end"}, LANES[name] ?? name));
    svg.append(element("line", {x1: left, y1: y + lane - 1.5, x2: W - right, y2: y + lane - 1.5, class: "grid"}));
    const outlines = {};  // one path a colour: thousands of spans stay light
    for (const [start, finish, what] of timeline.lanes.find(l => l.name === name)?.spans ?? []) {
      outlines[what] = (outlines[what] ?? "") + `M${X(start)} ${y}H${X(finish)}V${y + lane - 3}H${X(start)}Z`;
    }
    for (const [what, d] of Object.entries(outlines)) {
      const path = element("path", {d, fill: FILLS[what] ?? "#5b6672"});
      path.append(element("title", {}, what.replaceAll("_", " ")));
      svg.append(path);
    }
  });
  const rows = timeline.memory, end = timeline.makespan_s;
  const below = rows.map(() => 0);
  for (const kind of STACK) {
    const column = timeline.memory_kinds.indexOf(kind) + 1;
    if (!column || !rows.some(row => row[column] > 0)) continue;
    const base = [...below];
    rows.forEach((row, i) => { below[i] += row[column]; });
    const until = i => (i + 1 < rows.length ? rows[i + 1][0] : end);
    let d = `M${X(rows[0][0])} ${Y(below[0])}`;
    rows.forEach((_, i) => { d += `V${Y(below[i])}H${X(until(i))}`; });
    for (let i = rows.length - 1; i >= 0; --i) d += `V${Y(base[i])}H${X(rows[i][0])}`;
    const path = element("path", {d: d + "Z", fill: FILLS[kind]});
    path.append(element("title", {}, kind.replaceAll("_", " ")));
    svg.append(path);
  }
  svg.append(element("line", {x1: left, y1: floor, x2: W - right, y2: floor, class: "axis"}));
  svg.append(element("line", {x1: X(end), y1: top, x2: X(end), y2: floor, stroke: "currentColor"}));
  const budget = timeline.memory_budget_bytes;
  if (budget && budget <= fullest) svg.append(element("line", {x1: left, y1: Y(budget), x2: W - right, y2: Y(budget), stroke: "currentColor", "stroke-dasharray": "5 4"}));
  const [unit, size] = memoryUnit(fullest), milli = longest < .5 ? 1e-3 : 1;
  for (const [v, name] of ticks(0, fullest / size, 3)) svg.append(element("text", {x: left - 6, y: +Y(v * size) + 3.5, "text-anchor": "end"}, v ? `${name} ${unit}` : "0"));
  for (const [v, name] of ticks(0, longest / milli, 6)) svg.append(element("text", {x: X(v * milli), y: floor + 13, "text-anchor": "middle"}, v ? name : `0 ${milli === 1 ? "s" : "ms"}`));
  return svg;
}

function timelines(figure) {
  const list = (figure.timelines ?? []).map(t => (t.lanes ? t : {...t, ...timelineOf(t.point)})).filter(t => t.lanes);
  if (!list.length) return [];
  const times = list.map(t => t.makespan_s).sort((a, b) => a - b);
  const common = Math.max(...times.filter(t => t <= 4 * times[times.length >> 1]));  // what takes longer has an axis of its own
  const fullest = 1.04 * Math.max(...list.map(t => t.peak_bytes));
  const usual = Object.keys(LANES).filter(name => !name.includes("disk") && list.some(t => t.lanes.some(l => l.name === name)));
  const grid = element("div", {class: "timelines"});
  for (const timeline of list) {
    const picture = element("figure", {}), caption = element("figcaption");
    caption.append(element("b", {}, timeline.strategy), ` ${seconds(timeline.makespan_s)}, ${bytes(timeline.peak_bytes)}${timeline.makespan_s > common ? " (its own time axis)" : ""}`);
    picture.append(caption, timelinePicture(timeline, usual, common, fullest));
    grid.append(picture);
  }
  return [element("h3", {}, "Timelines, each within the least memory that it was given"), fillsUsed(list), grid];
}

// Several devices: report.cpp has drawn them.
function ganttPicture(timeline) {
  const place = element("div", {class: "gantt"});
  place.innerHTML = timeline.svg;
  return place;
}

// How ranks share out operators, where a strategy has ranks: report.cpp has drawn that, too.
function meshPicture(timeline) {
  const place = element("div", {class: "gantt"});
  place.innerHTML = timeline.mesh_svg;
  return place;
}

function meshes(figure) {
  const list = (figure.meshes ?? []).map(m => [m, timelineOf(m.point)]).filter(([, timeline]) => timeline);
  if (!list.length) return [];
  const places = list.map(([m, timeline]) => {
    const picture = element("figure", {}), caption = element("figcaption");
    caption.append(element("b", {}, m.strategy), ` ${seconds(m.makespan_s)}, ${bytes(m.peak_bytes)}`);
    picture.append(caption, meshPicture(timeline));
    return picture;
  });
  return [element("h3", {}, "Ranks: along each axis the dimension of every operator that they share out, and what they exchange"), ...places];
}

function gantts(figure) {
  const list = (figure.gantts ?? []).map(g => [g, timelineOf(g.point)]).filter(([, timeline]) => timeline);
  if (!list.length) return [];
  const places = list.map(([g, timeline]) => {
    const picture = element("figure", {}), caption = element("figcaption");
    caption.append(element("b", {}, g.strategy), ` ${seconds(g.makespan_s)}, ${bytes(g.peak_bytes)}, ${(100 * timeline.idle).toFixed(1)} % idle`);
    picture.append(caption, ganttPicture(timeline));
    return picture;
  });
  return [element("h3", {}, "Devices, each strategy within the least memory that it was given; numbers are micro-batches"), ...places];
}
