"use strict";
(() => {
  const make = (tag, attributes = {}, ...children) => {
    const element = document.createElement(tag);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(...children);
    return element;
  };

  // ---- the theme: the page's own colours, and a Plotly template that goes with them

  const root = document.documentElement;
  const INK = { light: "#000000", dark: "#f2f2f2" }; // curves that are black on paper
  const template = (dark) => {
    const axis = {
      gridcolor: dark ? "#333a43" : "#e6e9ed", linecolor: dark ? "#59616b" : "#b6bcc4",
      zerolinecolor: dark ? "#454d57" : "#d9dde2", ticks: "", automargin: true,
    };
    return { layout: {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: dark ? "#e6e8eb" : "#1d2127" },
      xaxis: axis, yaxis: axis, hoverlabel: { align: "left" },
      colorway: ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", INK[dark ? "dark" : "light"]],
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
        copy[key] = key === "color" && part === INK.light && isDark() ? INK.dark : inTheme(part);
      }
      return copy;
    }
    return value;
  };

  // ---- figures: drawn when they come near the window

  const drawn = new Map(); // element: its figure
  const NARROW = 700; // pixels, below which the titles of panels are small
  const CONFIG = { displaylogo: false, responsive: true };
  const library = () => {
    // Megabytes of text that become code when the first figure is drawn: the page opens without waiting for them.
    if (window.Plotly) return;
    const source = document.getElementById("plotly");
    document.head.append(make("script", {}, source.textContent));
    source.remove();
  };
  const draw = (element, figure) => {
    library();
    drawn.set(element, figure);
    // What the reader zoomed into and hid stays so when the theme changes.
    const layout = { ...inTheme(figure.layout), template: template(isDark()), uirevision: "keep" };
    if (element.clientWidth < NARROW) {
      layout.annotations = (layout.annotations || []).map((one) => ({ ...one, font: { ...one.font, size: 10 } }));
    }
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
  const contentOf = (element) => JSON.parse(element.nextElementSibling.textContent);
  const drawOnce = (element) => { if (!drawn.has(element)) draw(element, contentOf(element)); };
  const plots = [...document.querySelectorAll(".plot")];
  const watcher = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (entry.isIntersecting) { watcher.unobserve(entry.target); drawOnce(entry.target); }
    }
  }, { rootMargin: "400px" });
  plots.forEach((element) => watcher.observe(element));

  const button = document.getElementById("theme");
  const setTheme = (name) => {
    root.dataset.theme = name;
    button.textContent = name === "dark" ? "Light" : "Dark";
    for (const [element, figure] of drawn) if (element.isConnected) draw(element, figure);
    repaint.forEach((paint) => paint());
  };
  const repaint = [];
  button.addEventListener("click", () => {
    setTheme(isDark() ? "light" : "dark");
    try { localStorage.setItem("skipscope-theme", root.dataset.theme); } catch { /* a page from disk may not */ }
  });

  let before = null;
  window.addEventListener("beforeprint", () => {
    before = [root.dataset.theme, [...document.querySelectorAll("details:not([open])")]];
    before[1].forEach((element) => { element.open = true; });
    setTheme("light");
    plots.forEach(drawOnce);
  });
  window.addEventListener("afterprint", () => {
    before[1].forEach((element) => { element.open = false; });
    setTheme(before[0]);
  });

  // ---- the data behind a figure

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

  // ---- the map of the trunk

  const CIVIDIS = [[0, 34, 78], [53, 69, 109], [102, 105, 112], [148, 142, 119], [195, 182, 105], [254, 232, 56]];
  const colour = (share) => {
    const place = Math.min(Math.max(share, 0), 1) * (CIVIDIS.length - 1);
    const low = Math.min(Math.floor(place), CIVIDIS.length - 2);
    return CIVIDIS[low].map((part, k) => Math.round(part + (place - low) * (CIVIDIS[low + 1][k] - part)));
  };
  const bright = (rgb) => 0.299 * rgb[0] + 0.587 * rgb[1] + 0.114 * rgb[2] > 130;
  const short = (value) => {
    if (value === 0) return "0";
    const size = Math.abs(value);
    return size >= 1e4 || size < 1e-3 ? value.toExponential(0).replace("e+", "e") : value.toPrecision(3);
  };
  const pick = (label, options, change) => {
    const select = make("select", {}, ...options.map((text, k) => make("option", { value: k }, text)));
    select.addEventListener("change", () => change(Number(select.value)));
    return make("label", {}, `${label} `, select);
  };

  const trunk = (place, maps) => {
    const picks = make("div", { class: "picks" });
    const stages = make("div", { class: "stages", role: "group", "aria-label": "Units of the network" });
    const panel = make("div", { class: "unit", "aria-live": "polite", hidden: "" });
    place.append(picks, stages, panel);
    let map = maps[0];
    let measure = 0;
    let chosen = null;

    const valueText = (one, k) => {
      if (one.values[k] === null) return one.words[k] || "no number";
      return `${Number(one.values[k].toPrecision(6))}${one.unsure[k] ? " (did not converge)" : ""}`;
    };
    const paint = () => {
      const one = map.measures[measure];
      const there = one.values.filter((value) => value !== null && (!one.logarithmic || value > 0));
      const scaled = (value) => (one.logarithmic ? Math.log10(value) : value);
      const [low, high] = [Math.min(...there), Math.max(...there)].map(scaled);
      stages.querySelectorAll(".cell").forEach((element, k) => {
        const value = one.values[k];
        const none = value === null || (one.logarithmic && value <= 0);
        const rgb = none ? null : colour(high > low ? (scaled(value) - low) / (high - low) : 0.5);
        element.classList.toggle("none", none);
        element.classList.toggle("unsure", one.unsure[k]);
        element.style.background = none ? "" : `rgb(${rgb})`;
        element.style.color = none ? "" : bright(rgb) ? "#000" : "#fff";
        const words = one.words[k];
        const text = value !== null ? short(value) : words.includes("infinite") ? "∞" : words ? "!" : "–";
        element.lastChild.textContent = text + (one.unsure[k] ? "*" : "");
        const full = `${map.units[k].name}: ${one.title} ${valueText(one, k)}`;
        element.title = full;
        element.setAttribute("aria-label", full);
      });
      const ends = there.length ? [low, high].map((end) => short(one.logarithmic ? 10 ** end : end)) : ["", ""];
      const stops = CIVIDIS.map((rgb) => `rgb(${rgb})`).join(",");
      const bar = make("i", { style: `background: linear-gradient(to right, ${stops})` });
      scale.replaceChildren(ends[0], bar, ends[1] + (one.logarithmic && there.length ? " (logarithmic)" : ""));
    };
    const scale = make("span", { class: "scale" });

    const show = (k) => {
      chosen = k;
      stages.querySelectorAll(".cell").forEach((element, at) => element.setAttribute("aria-pressed", at === k));
      panel.hidden = k === null;
      if (k === null) return;
      const unit = map.units[k];
      const rows = map.measures.filter((one) => one.values[k] !== null || one.words[k]).map((one) => make("tr", {},
        make("td", { class: "word" }, one.title), make("td", {}, valueText(one, k))));
      const numbers = make("div", {}, make("table", {}, make("tbody", {}, ...rows)));
      const figures = make("div", {});
      panel.querySelectorAll(".small").forEach((element) => drawn.delete(element));
      panel.replaceChildren(
        make("h3", {}, `${unit.name}${unit.skip ? `, skip: ${unit.skip}` : ""}`),
        make("div", { class: "columns" }, numbers, figures));
      for (const one of map.curves[unit.name] || []) figures.append(...small(one), make("p", { class: "note" }, one.about));
      if (!figures.childElementCount) figures.append("No curves of this unit were measured.");
    };
    const small = (one) => {
      const element = make("div", { class: "small" });
      const state = { x: one.logarithmic.includes("x"), y: one.logarithmic.includes("y") };
      const figure = () => ({
        data: one.curves.map((curve) => ({
          type: "scatter", mode: curve.points ? "markers" : "lines", name: literal(curve.name), x: curve.x, y: curve.y,
          hovertemplate: `${literal(curve.name)}<br>%{x}: %{y:.6g}<extra></extra>`,
        })),
        layout: {
          height: 300, margin: { l: 60, r: 10, t: 50, b: 45 }, title: { text: literal(one.title), font: { size: 13 }, x: 0, xanchor: "left", xref: "container" },
          xaxis: { title: { text: literal(one.x) }, type: state.x ? "log" : "linear" },
          yaxis: { title: { text: literal(one.y) }, type: state.y ? "log" : "linear", exponentformat: "power" },
          legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 1, xanchor: "right" },
        },
      });
      const switches = ["y", "x"].map((letter) => {
        const element_ = make("button", { type: "button" });
        const label = () => { element_.textContent = `${letter}: ${state[letter] ? "logarithmic" : "linear"}`; };
        element_.addEventListener("click", () => { state[letter] = !state[letter]; label(); draw(element, figure()); });
        label();
        return element_;
      });
      const data = make("button", { type: "button", class: "csv" }, "Data (CSV)");
      data.addEventListener("click", () => offer(`${one.title}-${map.units[chosen].name}`, csvOf(figure())));
      requestAnimationFrame(() => draw(element, figure()));
      return [element, make("div", { class: "picks" }, ...switches, data)];
    };

    const common = (stage) => {
      // What the names of a stage's units have in common: layer3, stage1, blocks; empty where that is nothing.
      const names = map.units.filter((unit) => unit.stage === stage).map((unit) => unit.name.split("."));
      const length = Math.min(...names.map((parts) => parts.length - 1));
      let shared = 0;
      while (shared < length && names.every((parts) => parts[shared] === names[0][shared])) shared += 1;
      return names[0].slice(0, shared).join(".");
    };
    const stageName = (stage) => common(stage) || (stage === null ? "no stage" : `stage ${stage}`);
    const build = () => {
      const groups = new Map();
      map.units.forEach((unit, k) => {
        if (!groups.has(unit.stage)) groups.set(unit.stage, make("div", { class: "cells" }));
        const prefix = common(unit.stage);
        const name = prefix ? unit.name.slice(prefix.length + 1) : unit.name;
        const changed = unit.skip && unit.skip !== "identity" && unit.skip !== "none";
        const element = make("button",
          { type: "button", class: changed ? "cell changed" : "cell", "aria-pressed": "false", tabindex: k ? -1 : 0 },
          make("b", {}, name), make("span", {}));
        element.addEventListener("click", () => { focus(k); show(chosen === k ? null : k); });
        groups.get(unit.stage).append(element);
      });
      stages.replaceChildren(...[...groups].map(([stage, cells]) => make("div", { class: "stage" },
        make("span", {}, stageName(stage)), cells)));
      picks.replaceChildren();
      if (maps.length > 1) {
        const select = pick("Network", maps.map((one) => one.network || "the model"), (k) => {
          map = maps[k];
          measure = Math.max(0, map.measures.findIndex((one) => one.title === title));
          build();
          picks.querySelector("select").focus();
        });
        select.querySelector("select").value = maps.indexOf(map);
        picks.append(select);
      }
      let title = map.measures[measure].title;
      const coloured = pick("Colour", map.measures.map((one) => one.title), (k) => {
        measure = k;
        title = map.measures[k].title;
        paint();
      });
      coloured.querySelector("select").value = measure;
      picks.append(coloured, scale);
      paint();
      show(null);
    };
    const focus = (k) => {
      const cells = [...stages.querySelectorAll(".cell")];
      cells.forEach((element, at) => { element.tabIndex = at === k ? 0 : -1; });
      cells[k].focus();
    };
    stages.addEventListener("keydown", (event) => {
      const cells = [...stages.querySelectorAll(".cell")];
      const at = cells.indexOf(document.activeElement);
      const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: cells.length - 1 }[event.key];
      if (at < 0 || to === undefined || to < 0 || to >= cells.length) return;
      event.preventDefault();
      focus(to);
      if (chosen !== null) show(to);
    });
    build();
    repaint.push(paint);
  };
  for (const place of document.querySelectorAll(".trunk")) {
    trunk(place, JSON.parse(document.getElementById(`map-${place.dataset.map}`).textContent));
  }
  button.textContent = isDark() ? "Light" : "Dark";
})();
