// Tables: sorted, filtered, copied, with columns to choose; only the rows in sight are in the page.
const percent = share => (share === null || share === undefined ? "" : `${share < 0 ? "-" : "+"}${Math.abs(100 * share).toFixed(1)} %`);
const FORMATS = {B: bytes, s: seconds, ratio: v => (v === null || v === undefined ? "" : v.toPrecision(3)), percent, count: v => (v === null || v === undefined ? "" : String(v))};
const ROW = 27;  // pixels, as in page.css

// `columns`: name, value of a row, unit, meaning, and for some a cell. `usual`: columns that are there also where all rows
// say the same; `rare`: only if chosen. `isWanted`: of a row, whatever is written; `open`: what a click on a row does.
function dataTable(place, {columns, usual, rare = [], rows, isWanted, open, named, missing}) {
  const box = place.querySelector(".wide"), head = box.querySelector("thead tr"), body = box.querySelector("tbody");
  const search = place.querySelector("input[type=search]"), count = place.querySelector("[role=status]"), copy = place.querySelector(".copy");
  const known = columns.filter(column => column.cell || rows.some(row => ![null, undefined, ""].includes(column.value(row))));
  const chosen = new Set(known.filter(column => column.cell || usual.includes(column.name) ||
    !rare.includes(column.name) && new Set(rows.map(column.value)).size > 1));
  const inOrder = [...rows];
  let shownColumns = [], wanted = inOrder, sorted = null;
  for (const row of rows) row.text = named(row).toLowerCase();

  function filter() {
    const {words, conditions, wrong} = readFilter(search.value, known);
    wanted = inOrder.filter(row => isWanted(row) && words.every(word => row.text.includes(word)) && conditions.every(holds => holds(row)));
    count.textContent = wrong || `${wanted.length} of ${rows.length} ${missing}`;
    search.setAttribute("aria-invalid", String(Boolean(wrong)));
    box.scrollTop = 0;
    fill();
  }

  function fill() {
    const first = Math.max(0, Math.floor(box.scrollTop / ROW) - 10), last = Math.min(wanted.length, first + Math.ceil(box.clientHeight / ROW) + 20);
    const space = size => {
      const tr = element("tr", {class: "space", "aria-hidden": "true"});
      tr.append(element("td", {colspan: shownColumns.length, style: `height:${size * ROW}px`}));
      return size ? [tr] : [];
    };
    body.replaceChildren(...space(first), ...wanted.slice(first, last).map(rowElement), ...space(wanted.length - last));
  }

  function rowElement(row) {
    const tr = element("tr", {...(row.dim ? {class: "infeasible"} : {}), ...(open ? {tabindex: 0} : {})});
    for (const column of shownColumns) {
      const v = column.value(row), format = FORMATS[column.unit], text = format ? format(v) : String(v ?? "");
      const td = element("td", column.cell ? {} : typeof v === "number" || format ? {class: "number"} : {class: "word", title: text}, column.cell ? "" : text);
      if (column.cell) td.append(column.cell(row));
      tr.append(td);
    }
    if (open) {
      tr.addEventListener("click", () => open(row));
      tr.addEventListener("keydown", event => { if (event.key === "Enter") open(row); });
    }
    return tr;
  }

  function sort(value, down) {
    const sign = down ? -1 : 1;
    inOrder.sort((a, b) => {
      const [va, vb] = [value(a), value(b)];
      if (va === null || vb === null) return (va === null) - (vb === null) || a.number - b.number;  // what is missing comes last
      return sign * (typeof va === "number" ? va - vb : String(va).localeCompare(String(vb))) || a.number - b.number;
    });
  }

  function heads() {
    shownColumns = known.filter(column => chosen.has(column));
    head.replaceChildren(...shownColumns.map(column => {
      const isSorted = sorted?.column === column;
      const th = element("th", {scope: "col", "aria-sort": isSorted ? (sorted.down ? "descending" : "ascending") : "none", ...(FORMATS[column.unit] ? {class: "number"} : {})});
      const button = element("button", {type: "button", ...(column.meaning ? {title: column.meaning.replaceAll("`", "")} : {})}, column.name);
      button.addEventListener("click", () => {
        sorted = {column, down: isSorted && !sorted.down};
        sort(column.value, sorted.down);
        const at = [...head.children].indexOf(th);
        heads();
        head.children[at].firstChild.focus();
        filter();
      });
      th.append(button);
      return th;
    }));
    fill();
  }

  const choice = place.querySelector(".columns fieldset");
  for (const column of choice ? known : []) {
    const label = element("label"), input = element("input", {type: "checkbox", "data-column": column.name});
    input.checked = chosen.has(column);
    input.addEventListener("change", () => {
      chosen[input.checked ? "add" : "delete"](column);
      heads();
    });
    label.append(input, ` ${column.name}`);
    choice.append(label);
  }

  // Tab-separated, with plain numbers: as spreadsheets take it.
  const plain = value => String(value ?? "").replace(/[\t\n]/g, " ");
  const asText = () => [shownColumns.map(column => column.name).join("\t"), ...wanted.map(row => shownColumns.map(column => plain(column.value(row))).join("\t"))].join("\n") + "\n";
  box.addEventListener("scroll", () => requestAnimationFrame(fill));
  search.addEventListener("input", filter);
  if (copy) copy.replaceWith(copyButton(copy.textContent, asText));
  heads();
  filter();
  return {filter, fill, asText, wanted: () => wanted};
}

// The table of all points. Sentences are in a point's details.
const pointRows = report.figures.flatMap(figure => figure.series.flatMap(series => series.points.map(p => ({figure, series, p, number: p.point, dim: !p.feasible}))));
const CASE_COLUMNS = [
  {name: "folder", value: figure => figure.folder ?? "", unit: "text"}, {name: "model", value: figure => figure.model, unit: "text"},
  {name: "platform", value: figure => figure.machine, unit: "text"}, {name: "micro-batches", value: figure => figure.micro_batches, unit: "count"},
  {name: "optimizer", value: figure => figure.optimizer, unit: "text"}];
const caseNamed = figure => [figure.folder ?? "", figure.model, figure.machine, figure.optimizer].join(" ");
const pointTable = dataTable(document.getElementById("points"), {
  columns: [...CASE_COLUMNS.map(column => ({...column, value: row => column.value(row.figure)})), {name: "strategy", value: row => row.series.strategy, unit: "text"},
    ...report.fields.filter(field => field.unit !== "text" || field.name === "outcome").flatMap(field => {
      if (field.name === "outcome") return [{name: field.label, value: row => inWords(row.p.outcome), unit: "text"}];
      const column = {name: field.label, value: row => row.p[field.name] ?? null, unit: field.unit, meaning: field.meaning};
      const above = {name: "above bound", value: row => row.p.above_bound ?? null, unit: "percent", meaning: "its time over the time lower bound of its figure, less 1"};
      return field.name === "makespan_s" ? [column, above] : [column];
    })],
  usual: ["model", "platform", "strategy", "budget", "peak", "time", "above bound"],
  rows: pointRows, missing: "points",
  named: row => [row.series.strategy, caseNamed(row.figure), row.p.feasible ? "" : inWords(row.p.outcome)].join(" "),
  isWanted: row => !hidden.has(row.series.strategy),
  open: row => openDetail(showing(row.figure), row.series, row.p),
});
