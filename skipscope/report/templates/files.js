// The data behind figures and tables, as CSV files.

const TYPES = {
  f8: Float64Array, f4: Float32Array, i1: Int8Array, u1: Uint8Array, i2: Int16Array, u2: Uint16Array,
  i4: Int32Array, u4: Uint32Array,
};
const decoded = (value) => {
  if (!value || value.bdata === undefined) return value == null ? [] : value;
  const bytes = Uint8Array.from(atob(value.bdata), (letter) => letter.charCodeAt(0));
  const flat = [...new TYPES[value.dtype](bytes.buffer)];
  const shape = String(value.shape || flat.length).split(",").map(Number);
  if (shape.length < 2) return flat;
  return Array.from({ length: shape[0] }, (_, row) => flat.slice(row * shape[1], (row + 1) * shape[1]));
};
// Plotly takes text for HTML; names are to be shown as they are.
const literal = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/%\{/g, "%&#123;");
const plain = (text) => String(text).replace(/<br>/g, ", ").replace(/<\/?(sub|sup|extra)>/g, "")
  .replace(/&lt;/g, "<").replace(/&#123;/g, "{").replace(/&amp;/g, "&");
const NUMBER = /^[+-]?(\d[\d.e+-]*|inf|∞)%?( ± [\d.e+-]+)?$/;
const cell = (value) => {
  let text = value == null || Number.isNaN(value) ? "" : String(value);
  // A spreadsheet would take such a name for a formula, and a formula can ask for an address.
  if (/^[=+\-@\t\r]./.test(text) && !NUMBER.test(text)) text = `'${text}`;
  return /[",\r\n]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
};
const axisOf = (layout, trace, letter) => layout[(trace[`${letter}axis`] || letter).replace(letter, `${letter}axis`)] || {};
const panelOf = (layout, trace) => {
  if (trace.meta && trace.meta.panel) return trace.meta.panel;
  // Subplot titles are annotations; the one above this trace's axes is its panel.
  const [x, y] = ["x", "y"].map((letter) => axisOf(layout, trace, letter).domain || [0, 1]);
  const middle = (x[0] + x[1]) / 2;
  const near = (layout.annotations || []).filter((one) => one.xref === "paper" && one.text
    && Math.abs(one.x - middle) < 0.02 && one.y >= y[1] - 0.01);
  near.sort((a, b) => a.y - b.y);
  return near.length ? near[0].text : "";
};
const titleOf = (figure, letter) => {
  const titles = new Set(figure.data.map((trace) => {
    const title = axisOf(figure.layout, trace, letter).title;
    return title ? title.text : undefined;
  }).filter(Boolean));
  return titles.size === 1 ? [...titles][0] : letter;
};
const csvOf = (figure) => {
  const rows = [["panel", "series", titleOf(figure, "x"), titleOf(figure, "y"), "label"]];
  const grid = figure.data.some((trace) => trace.type === "heatmap");
  if (grid) rows[0].push("value");
  for (const trace of figure.data) {
    const meta = trace.meta || {};
    if (meta.drawn === "only") continue; // a diagonal, say
    const [x, y, z, text] = [trace.x, meta.y || trace.y, trace.z, trace.text].map(decoded);
    const start = [panelOf(figure.layout, trace), meta.series || trace.name || ""];
    if (trace.type === "heatmap") {
      z.forEach((row, i) => [...row].forEach((value, j) => {
        rows.push([...start, x.length ? x[j] : j, y.length ? y[i] : i, "", value]);
      }));
      continue;
    }
    const count = Math.max(x.length, y.length);
    for (let k = 0; k < count; k += 1) {
      rows.push([...start, x.length ? x[k] : k, y[k], Array.isArray(text) ? text[k] : ""]);
    }
  }
  const shown = (value) => cell(typeof value === "string" ? plain(value) : value);
  return rows.map((row) => row.map(shown).join(",")).join("\n") + "\n";
};
const offer = (name, text) => {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  link.download = `${name.replace(/[^\w.-]+/g, "-")}.csv`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
};
for (const element of document.querySelectorAll("button.csv")) {
  element.addEventListener("click", () => {
    if (element.dataset.table) {
      const rows = [...element.parentElement.querySelectorAll("tr")];
      const text = rows.map((row) => [...row.cells].map((one) => cell(one.textContent)).join(",")).join("\n");
      offer(element.dataset.table, `${text}\n`);
      return;
    }
    const plot = element.closest("figure").querySelector(".plot");
    offer(plot.dataset.name, csvOf(contentOf(plot)));
  });
}
