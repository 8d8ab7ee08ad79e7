// What is known of one point: its numbers, the command that makes it, its timeline and its memory.
function facts(figure, p) {
  if (!p.feasible && p.outcome !== "infeasible") return [inWords(p.outcome), ...(p.reason ? [p.reason] : [])];
  if (!p.feasible) return ["infeasible" + (p.smallest_feasible_bytes ? `: fits from ${bytes(p.smallest_feasible_bytes)}` : "")];
  const rows = [`time ${seconds(p.makespan_s)}` + (typeof p.above_bound === "number" ? ` (${percent(p.above_bound)} above the lower bound)` : ""),
    `peak ${bytes(p.peak_bytes)} (${p.peak_bytes} B)`];
  for (const {name, label, unit} of report.fields) {
    if (["makespan_s", "peak_bytes", "outcome", "gap"].includes(name) || !p[name]) continue;
    rows.push(`${label} ${(FORMATS[unit] ?? String)(p[name])}`);
  }
  if (p.gap !== undefined) rows.push(`at most ${(100 * p.gap).toPrecision(3)} % from the method's optimum`);
  return rows;
}

// Of the timelines, a line `point TAB json` each, only those that are asked for are parsed.
let timelineLines = null;
function timelineOf(point) {
  if (!timelineLines) {
    timelineLines = new Map();
    for (const line of document.getElementById("timelines").textContent.split("\n")) {
      const tab = line.indexOf("\t");
      if (tab > 0) timelineLines.set(+line.slice(0, tab), line.slice(tab + 1));
    }
  }
  return timelineLines.has(point) ? JSON.parse(timelineLines.get(point)) : null;
}

function commandOf(figure, strategy, p) {
  const quoted = text => (/^[\w.,:=\/-]+$/.test(text) ? text : `'${String(text).replaceAll("'", "'\\''")}'`);
  const words = ["plimsoll simulate", "--trace", quoted(figure.trace), "--platform", quoted(figure.platform), "--strategy", quoted(strategy)];
  if (p.memory_budget_bytes !== null) words.push("--memory", `'${p.memory_budget_bytes} B'`);
  if (figure.micro_batches > 1) words.push("--micro-batches", figure.micro_batches);
  if (figure.optimizer !== "none") words.push("--optimizer", figure.optimizer);
  for (const key of ["states", "gradients", "engine", "allocator"]) {
    const usual = {states: "by_dtype", gradients: "new", engine: "simgrid", allocator: "exact"}[key], asked = (report.folders?.find(folder => folder.name === figure.folder)?.experiment ?? report.experiment)[key];
    if (typeof asked === "string" && asked !== usual) words.push(`--${key}`, quoted(asked));
  }
  return [...words, "--timeline timeline.json --memory-profile memory.csv"].join(" ");
}

function fillsUsed(timelines) {
  const used = new Set(timelines.flatMap(t => [...t.lanes.flatMap(l => l.spans.map(s => s[2])), ...t.memory_kinds.filter((_, k) => t.memory.some(row => row[k + 1] > 0))]));
  const marks = element("div", {class: "marks"});
  for (const [what, fill] of Object.entries(FILLS)) if (used.has(what)) marks.append(mark({d: "M4 1H26V13H4Z", fill}, what.replaceAll("_", " ")));
  return marks;
}

// What is in memory at the peak, by kind.
function memoryBar(kinds) {
  const box = element("div"), all = kinds.reduce((sum, [, b]) => sum + b, 0);
  const svg = element("svg", {viewBox: "0 0 1000 26", width: "100%", height: 26, preserveAspectRatio: "none", role: "img", "aria-label": "memory at the peak"});
  const marks = element("div", {class: "marks"});
  let x = 0;
  for (const [kind, b] of kinds) {
    const width = 1000 * b / all, part = element("rect", {x, y: 0, width, height: 26, fill: FILLS[kind] ?? "#5b6672"});
    part.append(element("title", {}, `${kind.replaceAll("_", " ")} ${bytes(b)}`));
    svg.append(part);
    marks.append(mark({d: "M4 1H26V13H4Z", fill: FILLS[kind] ?? "#5b6672"}, `${kind.replaceAll("_", " ")} ${bytes(b)}`));
    x += width;
  }
  box.append(element("div", {class: "quiet"}, "In memory at the peak:"), svg, marks);
  return box;
}

function copyButton(name, text) {
  const button = element("button", {type: "button"}, name);
  button.addEventListener("click", async () => {
    await copyText(text());
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = name; }, 1200);
  });
  return button;
}
async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {  // not of a file that was opened from a disk
    const area = document.body.appendChild(element("textarea"));
    area.value = text;
    area.select();
    document.execCommand("copy");
    area.remove();
  }
}

// `shownIn`: the figure that has it, of one case or of several in one.
function openDetail(shownIn, {strategy, of: figure}, p) {
  const section = shownIn.section, box = section.querySelector(".detail") ?? section.querySelector(".plot").appendChild(element("div"));
  box.className = "detail";
  section.querySelector(".keys").before(box);
  const head = element("header"), close = element("button", {type: "button"}, "close");
  close.addEventListener("click", () => box.remove());
  head.append(element("b", {}, strategy), element("span", {class: "quiet"}, `${figure.folder ? figure.folder + ": " : ""}${figure.model} on ${figure.machine}`), close);
  const command = commandOf(figure, strategy, p), timeline = p.feasible ? timelineOf(p.point) : null;
  box.replaceChildren(head, element("div", {}, facts(figure, p).join(", ")), element("code", {}, command), copyButton("Copy this command", () => command));
  if (timeline?.svg) box.append(ganttPicture(timeline));
  else if (timeline) {
    const whole = {...p, ...timeline, strategy}, usual = timeline.lanes.map(l => l.name);
    box.append(timelinePicture(whole, usual, p.makespan_s, 1.04 * p.peak_bytes), fillsUsed([whole]));
  }
  if (timeline?.mesh_svg) box.append(meshPicture(timeline));
  const parts = (p.time_parts ?? []).filter(part => part.time_s > 0);
  if (parts.length) {
    const words = parts.map(part => `${part.part}${part.axis ? `, ${part.axis}` : ""} ${seconds(part.time_s)} (${(100 * part.time_s / p.makespan_s).toFixed(1)} %)`);
    box.append(element("div", {class: "quiet"}, `Its time: ${words.join("; ")}`));
  }
  const kinds = Object.entries(p.kinds ?? {}).filter(([, b]) => b > 0);
  if (kinds.length) box.append(memoryBar(kinds));
  if (p.feasible && !timeline) box.append(element("div", {class: "quiet"}, "This sweep kept no timeline of it (timelines: true in its file keeps them); the command makes one for ui.perfetto.dev."));
  box.scrollIntoView({block: "nearest"});
}
