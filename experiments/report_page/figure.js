// One figure a case, drawn by uPlot: its axes, zooming and canvas, our points.
const ACROSS = {peak_bytes: "peak memory", memory_budget_bytes: "memory budget"};
const plots = [];

// From the least to the largest value with some room; logarithmic where they span more than a decade.
function span(values, room) {
  const low = Math.min(...values), high = Math.max(...values);
  if (!values.length) return {low: 0, high: 1, log: false};
  if (low > 0 && high > 10 * low) return {low: low / (high / low) ** room, high: high * (high / low) ** room, log: true};
  const more = room * (high - low) || room * high || 1;
  return {low: low - more, high: high + more, log: false};
}
const extremes = values => values.reduce((r, v) => [Math.min(r[0], v), Math.max(r[1], v)], [Infinity, -Infinity]);

// What takes far longer than all that are worth their memory would leave no room for these; unless it is more than a quarter.
function slowestShown(points, ys) {
  const fastest = Math.min(...ys), slowest = Math.max(...ys);
  if (view.all || !ys.length || fastest > 0 && slowest > 10 * fastest) return slowest;
  const worth = Math.max(-Infinity, ...points.filter(d => !d.dominated).map(d => d.y - fastest));
  const limit = fastest + 2.2 * (worth === -Infinity ? slowest : worth);
  return points.filter(d => d.y > limit).length > points.length / 4 ? slowest : Math.min(slowest, limit);
}

// Ranges and ticks are those of plot.py.
function draw(figure, place) {
  const points = shown(figure);
  const marks = [figure.lower_bound_bytes, figure.smallest_feasible_bytes, figure.store_all_bytes].filter(v => v > 0);
  const relative = isRelative(figure), bound = relative ? 1 : figure.lower_bound_s > 0 ? figure.lower_bound_s : null;
  const xs = [...marks], ys = bound === null ? [] : [bound];
  if (points.length) {
    xs.push(...extremes(points.flatMap(d => (reserved(d) ? [d.x, reserved(d)] : [d.x]))));
    ys.push(...extremes(points.map(d => d.y)));
  }
  const slowest = slowestShown(points, ys), above = points.filter(d => d.y > slowest).length;
  const across = span(xs, .05), up = span(ys.map(y => Math.min(y, slowest)), .08);
  const [unit, size] = memoryUnit(xs.length ? Math.max(...xs) : 1);
  place.querySelector(".above").replaceChildren(...slower(above));
  const axis = more => ({stroke: () => css("--ink"), grid: {stroke: () => css("--grid"), width: 1}, ticks: {stroke: () => css("--grid")},
    font: '12.5px system-ui, "DejaVu Sans", sans-serif', labelFont: '13px system-ui, "DejaVu Sans", sans-serif', ...more});
  const ticked = (isLog, wanted) => ({splits: (u, at, low, high) => axisTicks(low, high, isLog, wanted), filter: (u, list) => list,
    values: (u, list) => list.map(v => String(+v.toPrecision(6)))});
  const options = {
    width: place.clientWidth || 1000, height: 430, legend: {show: false}, padding: [30, 16, 0, 0],
    cursor: {points: {show: false}, drag: {x: true, y: true, uni: 20}},
    scales: {x: {time: false, distr: across.log ? 3 : 1, range: (u, low, high) => [low, high]},
      y: {distr: up.log ? 3 : 1, range: () => [up.low, up.high]}},
    axes: [axis({label: `${ACROSS[view.x]} (${unit})`, ...ticked(across.log, 7)}),
      axis({label: relative ? "iteration time / lower bound" : "iteration time (s)", size: 66, ...ticked(up.log, 6)})],
    series: [{}, {paths: () => null, points: {show: false}}],
    hooks: {drawClear: [u => shade(u, figure, size)], draw: [u => { lines(u, figure, size, bound); dots(u, points, size); }]},
  };
  place.querySelector(".uplot")?.remove();
  const plot = new uPlot(options, [[across.low / size, across.high / size], [up.low, up.high]], place);
  plot.points = points;
  plot.unit = size;
  place.plot = plot;
  plot.over.addEventListener("mousemove", event => point(place, figure, nearest(plot, event.offsetX, event.offsetY)));
  plot.over.addEventListener("mouseleave", () => point(place, figure, null));
  let pressed = null;
  plot.over.addEventListener("mousedown", event => { pressed = [event.clientX, event.clientY]; });
  plot.over.addEventListener("click", event => {
    if (pressed && Math.hypot(event.clientX - pressed[0], event.clientY - pressed[1]) > 4) return;  // it was a zoom
    const hit = nearest(plot, event.offsetX, event.offsetY);
    if (hit) openDetail(figure, hit.series, hit.p);
  });
}

// What an allocator takes for a point, where one was asked.
const reserved = d => (view.x === "peak_bytes" && d.p.peak_reserved_bytes ? d.p.peak_reserved_bytes : 0);

function slower(count) {
  if (!count && !view.all) return [];
  const button = element("button", {type: "button"}, view.all ? "Hide what is far slower" : "Show all");
  button.addEventListener("click", () => { view.all = !view.all; redrawAll(); });
  return [view.all ? "" : `${count} slower ${count === 1 ? "point is" : "points are"} above this range. `, button];
}

const left = (u, bytes, size) => u.valToPos(bytes / size, "x", true);
const height = (u, y) => u.valToPos(y, "y", true);

// Memory for which no strategy here has a schedule.
function shade(u, figure, size) {
  if (!(figure.smallest_feasible_bytes > 0)) return;
  const {ctx, bbox} = u, end = Math.min(left(u, figure.smallest_feasible_bytes, size), bbox.left + bbox.width);
  ctx.fillStyle = css("--shade");
  if (end > bbox.left) ctx.fillRect(bbox.left, bbox.top, end - bbox.left, bbox.height);
}

function lines(u, figure, size, bound) {
  const {ctx, bbox} = u, scale = devicePixelRatio;
  const stroke = (x0, y0, x1, y1, style, width, dash) => {
    ctx.beginPath();
    Object.assign(ctx, {strokeStyle: style, lineWidth: width * scale});
    ctx.setLineDash(dash.map(d => d * scale));
    ctx.moveTo(x0, y0);
    ctx.lineTo(x1, y1);
    ctx.stroke();
    ctx.setLineDash([]);
  };
  const inside = x => x >= bbox.left && x <= bbox.left + bbox.width;
  const upright = (bytes, style, width, dash) => {
    const x = bytes > 0 ? left(u, bytes, size) : -1;
    if (inside(x)) stroke(x, bbox.top, x, bbox.top + bbox.height, style, width, dash);
  };
  ctx.save();
  upright(figure.lower_bound_bytes, css("--grey"), 1.6, [1.5, 4]);
  upright(figure.capacity_bytes, css("--limit"), 1.4, []);
  upright(figure.store_all_bytes, css("--ink"), 1.3, [6, 4]);
  if (bound !== null) {
    const y = height(u, bound);
    if (y >= bbox.top && y <= bbox.top + bbox.height) stroke(bbox.left, y, bbox.left + bbox.width, y, css("--grey"), 1.3, [9, 3, 2, 3]);
  }
  const x = figure.store_all_bytes > 0 ? left(u, figure.store_all_bytes, size) : -1;
  if (inside(x)) {  // Plimsoll's mark
    const y = bbox.top - 14 * scale;
    stroke(x - 15 * scale, y, x + 15 * scale, y, css("--ink"), 2, []);
    ctx.beginPath();
    ctx.arc(x, y, 8 * scale, 0, 2 * Math.PI);
    Object.assign(ctx, {strokeStyle: css("--ink"), lineWidth: 2 * scale});
    ctx.stroke();
  }
  ctx.restore();
}

const PALE = .22;

function dots(u, points, size) {
  const {ctx, bbox} = u, scale = devicePixelRatio;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  const series = grouped(points, d => d.i);
  for (const d of points) Object.assign(d, {left: left(u, d.x, size), top: height(u, d.y)});
  for (const [i, list] of series) {  // a staircase: what fits some memory fits any larger one
    ctx.beginPath();
    list.forEach((d, k) => {
      if (k) ctx.lineTo(d.left, list[k - 1].top);
      ctx[k ? "lineTo" : "moveTo"](d.left, d.top);
    });
    Object.assign(ctx, {strokeStyle: colour(i), lineWidth: 1.6 * scale, globalAlpha: list.every(d => d.dominated) ? PALE : .75});
    ctx.stroke();
  }
  for (const d of points) {  // from live to reserved bytes
    if (!reserved(d)) continue;
    const x = left(u, reserved(d), size), tick = 4 * scale;
    ctx.beginPath();
    ctx.moveTo(d.left, d.top);
    ctx.lineTo(x, d.top);
    ctx.moveTo(x, d.top - tick);
    ctx.lineTo(x, d.top + tick);
    Object.assign(ctx, {strokeStyle: colour(d.i), lineWidth: scale, globalAlpha: .6});
    ctx.stroke();
  }
  const small = points.length > 2000 ? 3 : 5;
  // Pale ones below the others; what takes the same memory whatever the budget is one large point below a curve's.
  const lone = new Set([...series].filter(([, list]) => new Set(list.map(d => d.x)).size === 1).map(([i]) => i));
  const order = d => (d.dominated ? 0 : 2) + (lone.has(d.i) ? 0 : 1);
  const paths = new Map();
  for (const d of [...points].sort((a, b) => order(a) - order(b))) {
    const r = (lone.has(d.i) ? 1.6 : 1) * small * scale, key = `${marker(d.i)} ${r}`;
    if (!paths.has(key)) paths.set(key, new Path2D(shape(d.i, r)));
    Object.assign(ctx, {globalAlpha: d.dominated ? PALE : 1, fillStyle: colour(d.i), strokeStyle: css("--paper"), lineWidth: scale});
    ctx.setTransform(1, 0, 0, 1, d.left, d.top);
    ctx.fill(paths.get(key));
    if (small > 3) ctx.stroke(paths.get(key));
  }
  ctx.setTransform(1, 0, 0, 1, 0, 0);
  ctx.globalAlpha = 1;
  label(u, series);
  ctx.restore();
}
function nearest(u, x, y) {
  const scale = devicePixelRatio, px = x * scale + u.bbox.left, py = y * scale + u.bbox.top;
  let best = null, least = 14 * scale;
  for (const d of u.points) {
    const distance = Math.hypot(d.left - px, d.top - py) + (d.dominated ? .5 : 0);
    if (distance < least) [best, least] = [d, distance];
  }
  return best;
}

// What is under the mouse, or chosen by the keyboard.
function point(place, figure, d) {
  const box = place.querySelector(".tip");
  place.querySelector(".u-over").style.cursor = d ? "pointer" : "";
  box.style.display = d ? "block" : "none";
  if (!d) return;
  box.replaceChildren(element("b", {}, d.series.name), ...facts(d.series.of, d.p).map(row => element("div", {}, row)));
  const x = d.left / devicePixelRatio, y = d.top / devicePixelRatio;
  box.style.left = Math.max(0, Math.min(x + 14, place.clientWidth - box.offsetWidth)) + "px";
  box.style.top = Math.max(0, y - box.offsetHeight - 12) + "px";
}
