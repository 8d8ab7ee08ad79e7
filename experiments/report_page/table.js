// The table of all points: sorted, searched, copied; only the rows in sight are in the page.
const FORMATS = {B: bytes, s: seconds, ratio: v => (v === null || v === undefined ? "" : v.toPrecision(3))};
const overBound = r => (r.p.feasible && r.figure.lower_bound_s > 0 ? r.p.makespan_s / r.figure.lower_bound_s : null);
// Name, value, how it is written, what it means. Sentences are in a point's details.
const COLUMNS = [
  ["model", r => r.figure.model], ["platform", r => r.figure.machine], ["micro-batches", r => r.figure.micro_batches],
  ["optimizer", r => r.figure.optimizer], ["strategy", r => r.strategy],
  ...report.fields.filter(field => field.unit !== "text" || field.name === "outcome").flatMap(field => {
    const value = r => r.p[field.name] ?? null;
    if (field.name === "outcome") return [[field.label, r => inWords(r.p.outcome)]];
    const column = [field.label, value, FORMATS[field.unit], field.meaning];
    return field.name === "makespan_s" ? [column, ["time / bound", overBound, v => (v === null ? "" : v.toFixed(4))]] : [column];
  }),
];
const USUAL = ["model", "platform", "strategy", "budget", "peak", "time", "time / bound"];  // columns that are there also where all rows say the same
const ROW = 27;  // pixels, as in page.css
const rows = report.figures.flatMap(figure => figure.series.flatMap(s => s.points.map(p => ({figure, strategy: s.strategy, p}))));
for (const row of rows) row.text = [row.strategy, row.figure.model, row.figure.machine, row.figure.optimizer, row.p.feasible ? "" : inWords(row.p.outcome)].join(" ").toLowerCase();
let columns = [], wanted = rows;

function filterRows() {
  const words = document.getElementById("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  wanted = rows.filter(row => !hidden.has(row.strategy) && words.every(word => row.text.includes(word)));
  document.getElementById("count").textContent = `${wanted.length} of ${rows.length} points`;
  document.getElementById("rows").scrollTop = 0;
  fillRows();
}

function fillRows() {
  const box = document.getElementById("rows"), body = box.querySelector("tbody");
  const first = Math.max(0, Math.floor(box.scrollTop / ROW) - 10), last = Math.min(wanted.length, first + Math.ceil(box.clientHeight / ROW) + 20);
  const space = count => {
    const tr = element("tr", {class: "space"});
    tr.append(element("td", {colspan: columns.length, style: `height:${count * ROW}px`}));
    return tr;
  };
  body.replaceChildren(space(first), ...wanted.slice(first, last).map(rowElement), space(wanted.length - last));
}

function rowElement(row) {
  const tr = element("tr", row.p.feasible ? {} : {class: "infeasible"});
  for (const [, value, format] of columns) {
    const v = value(row);
    const isNumber = typeof v === "number" || format, text = format ? format(v) : String(v ?? "");
    tr.append(element("td", isNumber ? {class: "number"} : {class: "word", title: text}, text));
  }
  tr.addEventListener("click", () => openDetail(row.figure, row.strategy, row.p));
  return tr;
}

function sortRows(value, down) {
  const sign = down ? -1 : 1;
  rows.sort((a, b) => {
    const [va, vb] = [value(a), value(b)];
    if (va === null || vb === null) return (va === null) - (vb === null) || a.p.point - b.p.point;  // what is missing comes last
    return sign * (typeof va === "number" ? va - vb : String(va).localeCompare(String(vb))) || a.p.point - b.p.point;
  });
}

// Tab-separated, with plain numbers: as spreadsheets take it.
function rowsAsText() {
  const plain = value => String(value ?? "").replace(/[\t\n]/g, " ");
  return [columns.map(([name]) => name).join("\t"), ...wanted.map(row => columns.map(([, value]) => plain(value(row))).join("\t"))].join("\n") + "\n";
}

function table() {
  columns = COLUMNS.filter(([name, value]) => USUAL.includes(name) || new Set(rows.map(value)).size > 1);
  const head = document.querySelector("#rows thead tr");
  columns.forEach(([name, value, format, meaning]) => {
    const th = element("th", {"aria-sort": "none", scope: "col", ...(format ? {class: "number"} : {})});
    const button = element("button", {type: "button", ...(meaning ? {title: meaning.replaceAll("`", "")} : {})}, name);
    button.addEventListener("click", () => {
      const down = th.getAttribute("aria-sort") === "ascending";
      for (const other of head.children) other.setAttribute("aria-sort", "none");
      th.setAttribute("aria-sort", down ? "descending" : "ascending");
      sortRows(value, down);
      filterRows();
    });
    th.append(button);
    head.append(th);
  });
  document.getElementById("rows").addEventListener("scroll", () => requestAnimationFrame(fillRows));
  document.getElementById("search").addEventListener("input", filterRows);
  document.getElementById("copy").replaceWith(copyButton("Copy these rows", rowsAsText));
  filterRows();
}
