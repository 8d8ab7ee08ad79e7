// What is written above a table: words that a row has, and conditions on its numbers, `time < 20 ms, peak <= 8 GB`.
const SIZES = {B: {b: 1, kb: 1e3, mb: 1e6, gb: 1e9, tb: 1e12}, s: {s: 1, ms: 1e-3, us: 1e-6, "\u00b5s": 1e-6, ns: 1e-9}, percent: {"%": .01}};
const COMPARISONS = {"<": (a, b) => a < b, "<=": (a, b) => a <= b, "\u2264": (a, b) => a <= b, ">": (a, b) => a > b, ">=": (a, b) => a >= b,
  "\u2265": (a, b) => a >= b, "=": (a, b) => a === b};

// {words, conditions: rows to booleans, wrong: what cannot be read}.
function readFilter(text, columns) {
  const numbers = columns.filter(column => column.unit && column.unit !== "text");
  const escaped = name => name.replace(/[.*+?^${}()|[\]\\/]/g, "\\$&");
  const names = numbers.map(column => escaped(column.name)).sort((a, b) => b.length - a.length).join("|");
  const units = Object.values(SIZES).flatMap(Object.keys).sort((a, b) => b.length - a.length).join("|");
  const one = new RegExp(`(?<![\\w./=-])(${names})\\s*(<=|>=|\u2264|\u2265|<|>|=)\\s*([-+]?\\d*\\.?\\d+(?:e[-+]?\\d+)?)(?:\\s*(${units})(?!\\w))?(?=$|[\\s,])`, "gi");
  const conditions = [], wrong = [];
  const rest = !numbers.length ? text : text.replace(one, (all, name, comparison, number, unit) => {
    const column = numbers.find(each => each.name.toLowerCase() === name.toLowerCase()), sizes = SIZES[column.unit];
    const size = sizes ? sizes[(unit ?? "").toLowerCase()] : unit ? undefined : 1;
    if (size === undefined) wrong.push(sizes ? `${all.trim()}: expected ${Object.keys(sizes).map(proper).join(", ")}` : `${all.trim()}: ${column.name} has no unit`);
    else conditions.push(row => { const v = column.value(row); return typeof v === "number" && COMPARISONS[comparison](v, +number * size); });
    return " ";
  });
  if (/[<>\u2264\u2265]/.test(rest)) wrong.push(`not understood: ${rest.trim()}`);
  return {words: rest.toLowerCase().split(/\s+/).map(word => word.replace(/,+$/, "")).filter(Boolean), conditions, wrong: wrong.join("; ")};
}
const proper = unit => ({b: "B", kb: "kB", mb: "MB", gb: "GB", tb: "TB"}[unit] ?? unit);
