// The theme: the page's own colours, and a Plotly template that goes with them.

const make = (tag, attributes = {}, ...children) => {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
};
const read = (id) => JSON.parse(document.getElementById(id).textContent);

const root = document.documentElement;
const IN_THE_DARK = { "#000000": "#f2f2f2", "#0072B2": "#3391dd" }; // colours of curves that would not be seen there
const template = (dark) => {
  const axis = {
    gridcolor: dark ? "#333a43" : "#e6e9ed", linecolor: dark ? "#59616b" : "#b6bcc4",
    zerolinecolor: dark ? "#454d57" : "#d9dde2", ticks: "", automargin: true,
  };
  return { layout: {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: dark ? "#e6e8eb" : "#1d2127" },
    xaxis: axis, yaxis: axis, hoverlabel: { align: "left" },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: "#8b949e", activecolor: dark ? "#e6e8eb" : "#1d2127" },
    colorway: ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"]
      .map((colour) => (dark && IN_THE_DARK[colour]) || colour),
  } };
};
const isDark = () => root.dataset.theme === "dark";
const remembered = () => { try { return localStorage.getItem("skipscope-theme"); } catch { return null; } };
const preferred = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
root.dataset.theme = remembered() || preferred;

const inTheme = (value) => {
  if (Array.isArray(value)) return value.map(inTheme);
  if (value && typeof value === "object" && !ArrayBuffer.isView(value)) {
    const copy = {};
    for (const [key, part] of Object.entries(value)) {
      copy[key] = (key === "color" && isDark() && IN_THE_DARK[part]) || inTheme(part);
    }
    return copy;
  }
  return value;
};

const repaint = []; // what has colours of its own besides figures
const button = document.getElementById("theme");
const label = () => { button.textContent = isDark() ? "Light" : "Dark"; };
const setTheme = (name) => {
  root.dataset.theme = name;
  label();
  for (const [element, figure] of drawn) if (element.isConnected) draw(element, figure);
  repaint.forEach((paint) => paint());
};
button.addEventListener("click", () => {
  setTheme(isDark() ? "light" : "dark");
  try { localStorage.setItem("skipscope-theme", root.dataset.theme); } catch { /* a page from disk may not */ }
});
label();

let before = null;
window.addEventListener("beforeprint", () => {
  before = [root.dataset.theme, [...document.querySelectorAll("details:not([open])")]];
  before[1].forEach((element) => { element.open = true; });
  onPaper = true;
  setTheme("light");
  plots.forEach(drawOnce);
});
window.addEventListener("afterprint", () => {
  before[1].forEach((element) => { element.open = false; });
  onPaper = false;
  setTheme(before[0]);
});
