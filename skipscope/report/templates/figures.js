// Figures: drawn when they come near the window, panels below each other where it is narrow.

const drawn = new Map(); // element: its figure
let onPaper = false;
const PAPER = 680; // pixels that a page of A4 or letter has between its margins
const NARROW = 620; // pixels of a figure, below which panels do not fit side by side
const [FIRST_SCREEN, FLATTER] = [400, 0.72]; // of the picture on the first screen: pixels at least, and share of its height
const library = () => {
  // Megabytes of text that become code when the first figure is drawn: the page opens without waiting for them.
  if (window.Plotly) return;
  const source = document.getElementById("plotly");
  document.head.append(make("script", {}, source.textContent));
  source.remove();
};

const axisNamed = (layout, id) => layout[id.replace(/^([xy])/, "$1axis")];
const panelsOf = (layout) => Object.keys(layout).filter((key) => /^xaxis\d*$/.test(key) && layout[key].domain).map((key) => {
  const x = layout[key];
  const y = axisNamed(layout, x.anchor || "y") || {};
  return { x, y, domain: y.domain || [0, 1], id: key.replace("axis", "") };
});
const titleAbove = (layout, panel) => (layout.annotations || []).find((one) => one.xref === "paper" && one.text
  && Math.abs(one.x - (panel.x.domain[0] + panel.x.domain[1]) / 2) < 0.02 && Math.abs(one.y - panel.domain[1]) < 0.02);
const stacked = (figure) => {
  // The same figure with its panels below each other; heat maps have places of their own and stay.
  const layout = structuredClone(figure.layout);
  const panels = panelsOf(layout);
  if (panels.length < 2 || figure.data.some((trace) => trace.type === "heatmap")) return layout;
  if (panels.every((panel) => panel.x.domain[1] - panel.x.domain[0] > 0.9)) return layout;
  const margin = { t: 80, b: 70, ...layout.margin };
  const inner = (layout.height || 400) - margin.t - margin.b;
  const sizes = panels.map((panel) => Math.max(170, (panel.domain[1] - panel.domain[0]) * inner * 0.75));
  const gap = panels.some((panel) => panel.x.ticktext) ? 125 : 90; // names below a panel are slanted
  const total = sizes.reduce((sum, size) => sum + size, 0) + gap * (panels.length - 1);
  let top = total;
  panels.forEach((panel, k) => {
    const title = titleAbove(layout, panel);
    const domain = [Math.max(0, top - sizes[k]) / total, top / total];
    if (title) Object.assign(title, { x: 0.5, y: domain[1] });
    panel.next = domain;
    top -= sizes[k] + gap;
  });
  // Panels of one row shared an axis, whose title the first of them had.
  const titled = panels.map((panel) => panel.y.title || (panels.find((other) => other.domain[1] === panel.domain[1]
    && other.y.title) || panel).y.title);
  panels.forEach((panel, k) => {
    panel.x.domain = [0, 1];
    panel.y.domain = panel.next;
    delete panel.x.matches; // hidden labels of a shared axis are needed now
    delete panel.x.showticklabels;
    delete panel.y.showticklabels;
    panel.y.title = titled[k];
  });
  layout.height = total + margin.t + margin.b;
  return layout;
};
const onlyPanels = (figure, quantities) => {
  // Of a figure with a panel per quantity those of some, side by side; the figure itself where it has none of them.
  const layout = structuredClone(figure.layout);
  const panels = panelsOf(layout);
  const panelOfQuantity = (quantity) => {
    const trace = figure.data.find((own) => own.meta && own.meta.quantity === quantity);
    return trace && panels.find((panel) => panel.id === (trace.xaxis || "x"));
  };
  const kept = quantities.map(panelOfQuantity).filter(Boolean);
  if (!kept.length) return figure;
  const titles = kept.map((panel) => titleAbove(layout, panel));
  const below = panels.find((panel) => panel.x.title && panel.x.title.text) || kept[0]; // names of the axis stand there
  for (const panel of panels.filter((own) => !kept.includes(own))) {
    delete layout[panel.id.replace("x", "xaxis")];
    delete layout[(panel.x.anchor || "y").replace("y", "yaxis")];
  }
  const gap = 0.14;
  const width = (1 - gap * (kept.length - 1)) / kept.length;
  kept.forEach((panel, k) => {
    const left = k * (width + gap);
    Object.assign(panel.x, { domain: [left, left + width], showticklabels: true, title: below.x.title });
    delete panel.x.matches;
    panel.y.domain = [0, 1];
    if (titles[k]) Object.assign(titles[k], { x: left + width / 2, y: 1 });
  });
  const ids = kept.map((panel) => panel.id);
  layout.annotations = titles.filter(Boolean);
  layout.shapes = (layout.shapes || []).filter((one) => ids.includes(String(one.xref).split(" ")[0]));
  layout.height = FIRST_SCREEN;
  const named = new Set();
  const withLegend = figure.data.some((trace) => trace.showlegend);
  const data = figure.data.filter((trace) => ids.includes(trace.xaxis || "x")).map((trace) => {
    const first = !named.has(trace.name);
    named.add(trace.name);
    return { ...trace, showlegend: withLegend && first };
  });
  return { ...figure, data, layout };
};
const LETTER = 7; // pixels
const fitted = (layout, width) => {
  // Titles of panels on as many lines as it takes for them not to run into each other.
  const margin = { l: 60, r: 20, ...layout.margin };
  for (const panel of panelsOf(layout)) {
    const title = titleAbove(layout, panel);
    const letters = ((panel.x.domain[1] - panel.x.domain[0]) * (width - margin.l - margin.r)) / LETTER;
    if (!title || title.text.includes("<") || title.text.length <= letters) continue;
    const lines = [""];
    for (const word of title.text.split(" ")) {
      const line = lines[lines.length - 1];
      if (line && line.length + word.length >= letters) lines.push(word);
      else lines[lines.length - 1] = line ? `${line} ${word}` : word;
    }
    Object.assign(title, { text: lines.join("<br>"), font: { ...title.font, size: 12 } });
  }
  return layout;
};
const draw = (element, figure) => {
  library();
  drawn.set(element, figure);
  const narrow = element.clientWidth < NARROW;
  // What the reader zoomed into and hid stays so when the theme changes.
  const width = onPaper ? Math.min(PAPER, element.clientWidth) : element.clientWidth;
  const placed = fitted(narrow ? stacked(figure) : structuredClone(figure.layout), width);
  const layout = { ...inTheme(placed), template: template(isDark()), uirevision: "keep" };
  if (element.dataset.of && !narrow) layout.height = Math.max(FIRST_SCREEN, FLATTER * (layout.height || 400));
  if (narrow) {
    layout.annotations = (layout.annotations || []).map((one) => ({ ...one, font: { ...one.font, size: 12 } }));
    layout.margin = { ...layout.margin, l: 45, r: 10 };
    for (const key of Object.keys(layout).filter((own) => /^[xy]axis\d*$/.test(own) && layout[own].title)) {
      layout[key] = { ...layout[key], title: { ...layout[key].title, font: { size: 11 } } };
    }
  }
  layout.autosize = !onPaper;
  if (onPaper) layout.width = width;
  element.style.minHeight = `${layout.height || 400}px`;
  const data = inTheme(figure.data);
  (element.data || []).forEach((old, k) => { if (data[k] && old.visible) data[k].visible = old.visible; });
  return Plotly.react(element, data, layout, CONFIG).then(() => reachable(element));
};
const reachable = (element) => {
  // Entries of a legend answer to the keyboard too.
  const groups = [...new Set(element.data.filter((trace) => trace.showlegend !== false && trace.name)
    .map((trace) => trace.legendgroup || trace.name))];
  element.querySelectorAll(".legendtoggle").forEach((entry, k) => {
    if (entry.hasAttribute("tabindex") || !groups[k]) return;
    entry.setAttribute("tabindex", "0");
    entry.setAttribute("role", "button");
    entry.setAttribute("aria-label", `show or hide ${groups[k]}`);
    entry.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      const members = element.data.flatMap((trace, at) => ((trace.legendgroup || trace.name) === groups[k] ? [at] : []));
      const hidden = element.data[members[0]].visible === "legendonly";
      Plotly.restyle(element, { visible: hidden ? true : "legendonly" }, members).then(() => reachable(element));
    });
  });
};
// The picture of the first screen is one of the figures below, whose content it shares.
const ownerOf = (element) => (element.dataset.of ? document.getElementById(element.dataset.of) : element);
const contentOf = (element) => JSON.parse(ownerOf(element).nextElementSibling.textContent);
const shownIn = (element) => (element.dataset.panels
  ? onlyPanels(contentOf(element), element.dataset.panels.split(" ")) : contentOf(element));
const drawOnce = (element) => { if (!drawn.has(element)) draw(element, shownIn(element)); };
const plots = [...document.querySelectorAll(".plot")];
const watcher = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    if (entry.isIntersecting) { watcher.unobserve(entry.target); drawOnce(entry.target); }
  }
}, { rootMargin: "400px" });
plots.forEach((element) => watcher.observe(element));

let narrowBefore = innerWidth < NARROW;
addEventListener("resize", () => {
  if (narrowBefore === innerWidth < NARROW) return;
  narrowBefore = !narrowBefore;
  for (const [element, figure] of drawn) if (element.isConnected) draw(element, figure);
});
