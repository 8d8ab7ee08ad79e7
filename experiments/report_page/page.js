// A section of the page: a figure with all that belongs to it.
function mark(path, text) {
  const span = element("span");
  const svg = element("svg", {width: 30, height: 14, "aria-hidden": "true"});
  svg.append(element("path", path));
  span.append(svg, text);
  return span;
}

const redraws = [];
function redrawAll() {
  for (const redraw of redraws) redraw();
}

function strategyButtons(figure) {
  const keys = element("div", {class: "keys", role: "group", "aria-label": "strategies shown"});
  figure.series.forEach((series, i) => {
    const button = element("button", {type: "button", "data-strategy": series.name});
    const svg = element("svg", {width: 14, height: 14, viewBox: "-8 -8 16 16", "aria-hidden": "true"});
    svg.append(element("path", {d: shape(i, 6), "data-colour": i}));
    button.append(svg, series.name + (series.note ? ` (${series.note})` : ""));
    button.addEventListener("click", () => {
      if (!hidden.delete(series.name)) hidden.add(series.name);
      redrawAll();
      pointTable.filter();
    });
    keys.append(button);
  });
  return keys;
}

function refusals(figure) {
  return figure.series.filter(series => series.reason).map(series => element("p", {class: "quiet"}, `${series.name}: ${series.note}: ${series.reason}`));
}

function legend(figure) {
  const marks = element("div", {class: "marks"});
  const line = (path, text) => marks.append(mark({stroke: "currentColor", fill: "none", ...path}, text));
  if (figure.smallest_feasible_bytes > 0) line({d: "M0 0H30V14H0Z", fill: "var(--line)", stroke: "none"}, `no strategy here fits (below ${bytes(figure.smallest_feasible_bytes)})`);
  if (figure.lower_bound_bytes > 0) line({d: "M15 0V14", "stroke-width": 2, "stroke-dasharray": "2 3"}, `memory lower bound, ${bytes(figure.lower_bound_bytes)}`);
  if (figure.store_all_bytes > 0) line({d: "M15 0V2M15 12V14M1 7H29M10 7a5 5 0 1 0 10 0a5 5 0 1 0 -10 0", "stroke-width": 1.6}, `load line, the peak of store_all, ${bytes(figure.store_all_bytes)}`);
  if (figure.lower_bound_s > 0) line({d: "M0 7H30", "stroke-width": 1.6, "stroke-dasharray": "9 3 2 3"}, `time lower bound, ${seconds(figure.lower_bound_s)}`);
  if (figure.capacity_bytes > 0) line({d: "M15 0V14", "stroke-width": 1.6, style: "stroke: var(--limit)"}, `device memory, ${bytes(figure.capacity_bytes)}`);
  if (figure.series.some(s => s.points.some(p => p.peak_reserved_bytes))) line({d: "M2 7H28M28 2V12", "stroke-width": 1.2}, "from live to reserved bytes");
  return marks;
}

// Arrow keys go from point to point by memory, Enter opens one.
function keyboard(figure, place) {
  place.tabIndex = 0;
  place.setAttribute("role", "application");
  place.setAttribute("aria-label", `iteration time against memory of ${figure.model} on ${figure.machine}; arrow keys choose a point`);
  let at = -1;
  place.addEventListener("keydown", event => {
    const order = [...place.plot.points].sort((a, b) => a.x - b.x || a.y - b.y), step = {ArrowRight: 1, ArrowLeft: -1}[event.key];
    if (step && order.length) at = (at + step + order.length) % order.length;
    if (step) point(place, figure, order[at] ?? null);
    if (event.key === "Enter" && order[at]) openDetail(figure, order[at].series, order[at].p);
    if (step || event.key === "Enter") event.preventDefault();
  });
  place.addEventListener("blur", () => point(place, figure, null));
}

function section(figure) {
  const made = element("section"), place = element("div", {class: "plot"}), keys = strategyButtons(figure);
  const title = `${figure.folder ? figure.folder + ": " : ""}${figure.model} on ${figure.machine}`;
  const extras = [figure.micro_batches > 1 ? `${figure.micro_batches} micro-batches` : "", figure.optimizer && figure.optimizer !== "none" ? figure.optimizer : "",
    figure.times_rescaled === null ? "" : figure.times_rescaled ? "times re-scaled from the trace's device by flops and bytes" : "times as the trace states them"];
  figure.section = made;
  place.append(element("div", {class: "tip", role: "status"}), element("p", {class: "quiet above"}));
  made.append(element("h2", {}, title), element("p", {class: "quiet"}, extras.filter(Boolean).join(", ")),
    place, keys, ...refusals(figure), legend(figure), ...prices(figure), ...timelines(figure), ...gantts(figure), ...meshes(figure));
  keyboard(figure, place);
  redraws.push(() => {
    draw(figure, place);
    for (const button of keys.children) button.setAttribute("aria-pressed", String(!hidden.has(button.dataset.strategy)));
    for (const path of keys.querySelectorAll("path")) path.setAttribute("fill", colour(+path.dataset.colour));
  });
  return made;
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  redrawAll();
}
