// The load line, before all figures: the picture of `plimsoll load`, and its marks as a table.
const GROWS = {batch: "batch", sequence: "sequence", layers: "number of layers", width: "width"};

// Why the value behind the largest does not fit.
function nextLoad(line) {
  const next = line.next;
  if (next === null) return "no value fits";
  if (next.value === null) return "the range ends";
  if (next.proof === "no_schedule") return `${next.value}: no schedule of its kind needs less than ${bytes(next.bound_bytes)}`;
  if (next.needs_bytes !== null) return `${next.value} needs ${next.needs_is_proven ? "" : "at most "}${bytes(next.needs_bytes)}`;
  return next.reason === null ? `${next.value} was not tried` : `${next.value}: ${next.reason}`;
}

function loadMarks(load) {
  const made = element("table"), head = element("tr"), body = element("tbody");
  for (const name of ["strategy", "largest", "iteration time", "peak memory", "next"]) head.append(element("th", {scope: "col"}, name));
  for (const line of load.lines) {
    const row = element("tr"), largest = line.largest;
    row.append(element("td", {}, line.strategy));
    for (const value of largest ? [largest.value, seconds(largest.makespan_s), bytes(largest.peak_bytes)] : ["-", "-", "-"]) {
      row.append(element("td", {class: "number"}, value));
    }
    row.append(element("td", {}, nextLoad(line)));
    body.append(row);
  }
  made.append(element("thead"), body);
  made.firstChild.append(head);
  return made;
}

function loadLine(load) {
  const made = element("section", {class: "load"}), over = load.bound.points.find(p => p.least_bytes > load.memory_budget_bytes);
  made.append(element("h2", {}, `Load line: ${load.trace} on ${load.platform}`), element("p", {class: "quiet"},
    `The largest ${GROWS[load.vary]} that fits ${bytes(load.memory_budget_bytes)}, by strategy` +
    (over ? `. No schedule on one device that keeps parameters, gradients and states there fits ${over.value}.` : ".")));
  if (load.picture) {
    made.append(element("img", {src: "data:image/svg+xml," + encodeURIComponent(load.picture),
      alt: `time and peak memory against the ${GROWS[load.vary]}, a curve a strategy up to its load mark`}));
  }
  made.append(loadMarks(load));
  return made;
}
