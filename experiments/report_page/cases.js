// Cases: which are shown, each in its own figure or all in one. Of many only those that are asked for are drawn.
const ALL_SHOWN = 12;  // cases: of more the first alone
const first = report.figures.length <= ALL_SHOWN ? report.figures : report.figures.filter((figure, i) => i === 0 || figure.together === 0).slice(0, ALL_SHOWN);
const asked = new Set(first);
let shownIn = (report.together ?? []).length ? "asked" : "own";  // "own": a figure each; "one"; "asked": as --together has put them
const figureOf = new Map();  // of a case that is shown, the figure that has it

// Of figures in one only what differs names a series; what all share stays, a bound or a capacity too.
function together(figures) {
  const names = {folder: f => f.folder, model: f => f.model, machine: f => f.machine, micro_batches: f => `${f.micro_batches} micro-batches`, optimizer: f => f.optimizer};
  const differ = Object.keys(names).filter(key => new Set(figures.map(f => f[key])).size > 1);
  const common = key => (new Set(figures.map(f => f[key])).size === 1 ? figures[0][key] : null);
  const joint = {of: figures};
  for (const [key, word] of [["model", "models"], ["machine", "platforms"], ["folder", "folders"]]) {
    joint[key] = differ.includes(key) ? `${new Set(figures.map(f => f[key])).size} ${word}` : figures[0][key];
  }
  for (const key of ["lower_bound_s", "lower_bound_bytes", "smallest_feasible_bytes", "store_all_bytes", "capacity_bytes", "micro_batches", "optimizer", "times_rescaled"]) joint[key] = common(key);
  joint.series = figures.flatMap(f => f.series.map(s => ({...s, name: `${differ.map(key => names[key](f)).join(", ")}: ${s.strategy}`})));
  return joint;
}

function showCases() {
  redraws.length = 0;
  figureOf.clear();
  const list = report.figures.filter(figure => asked.has(figure)), groups = grouped(list, figure => (shownIn === "one" ? "all" : shownIn === "asked" ? figure.together ?? figure : figure));
  const shown = [...groups.values()].map(group => (group.length > 1 ? together(group) : group[0]));
  for (const figure of shown) for (const one of figure.of ?? [figure]) figureOf.set(one, figure);
  document.getElementById("figures").replaceChildren(...shown.map(section));
  document.getElementById("shown").textContent = `Cases: ${list.length} of ${report.figures.length} shown`;
  redrawAll();
}

// The figure that shows a case, which may not be there yet.
function showing(figure) {
  if (!figureOf.has(figure)) {
    if (report.figures.length > ALL_SHOWN && shownIn === "own") asked.clear();
    asked.add(figure);
    showCases();
    caseTable.fill();
  }
  return figureOf.get(figure);
}

const caseRows = report.figures.map((figure, number) => {
  const fits = figure.series.flatMap(s => s.points).filter(p => p.feasible), least = key => fits.reduce((m, p) => (m === null || p[key] < m ? p[key] : m), null);
  return {figure, number, points: figure.series.reduce((sum, s) => sum + s.points.length, 0), fastest: least("makespan_s"), peak: least("peak_bytes")};
});

function caseChoice(row) {
  const input = element("input", {type: "checkbox", "aria-label": `show ${row.figure.folder ? row.figure.folder + ": " : ""}${row.figure.model} on ${row.figure.machine}`});
  input.checked = asked.has(row.figure);
  input.addEventListener("change", () => {
    asked[input.checked ? "add" : "delete"](row.figure);
    showCases();
  });
  return input;
}

const caseTable = dataTable(document.getElementById("cases"), {
  columns: [{name: "shown", value: row => Number(asked.has(row.figure)), cell: caseChoice},
    ...CASE_COLUMNS.map(column => ({...column, value: row => column.value(row.figure)})), {name: "points", value: row => row.points, unit: "count"},
    {name: "fastest", value: row => row.fastest, unit: "s"}, {name: "least peak", value: row => row.peak, unit: "B"}],
  usual: ["model", "platform", "points", "fastest", "least peak"],
  rows: caseRows, missing: "cases", named: row => caseNamed(row.figure), isWanted: () => true,
});

document.getElementById("cases").open = report.figures.length > ALL_SHOWN;
document.getElementById("cases").hidden = report.figures.length < 2;
document.getElementById("cases").addEventListener("toggle", caseTable.fill);
document.getElementById("show").textContent = `Show these (at most ${ALL_SHOWN})`;
document.getElementById("show").addEventListener("click", () => {
  asked.clear();
  for (const row of caseTable.wanted().slice(0, ALL_SHOWN)) asked.add(row.figure);
  showCases();
  caseTable.fill();
});
const choice = document.getElementById("shown-in");
if (shownIn === "asked") choice.prepend(element("option", {value: "asked"}, `${report.together[0].by.join(" and ")} together`));
choice.value = shownIn;
choice.addEventListener("change", () => {
  shownIn = choice.value;
  showCases();
});
