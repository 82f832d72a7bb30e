// The map of the trunk: every unit as a block with its skip, coloured by a measure that the reader picks.

const COLOURS = { // from the low end to the high one; a gain of 1 is in the middle
  gain: {
    light: [[5, 80, 150], [110, 172, 216], [244, 244, 242], [240, 165, 90], [166, 60, 0]],
    dark: [[120, 190, 255], [66, 112, 158], [58, 64, 72], [168, 98, 48], [255, 160, 90]],
  },
  share: { light: [[240, 245, 243], [118, 188, 168], [0, 88, 68]], dark: [[48, 56, 58], [44, 128, 108], [120, 230, 195]] },
};
const colour = (scale, value) => {
  const stops = (COLOURS[scale.kind] || COLOURS.share)[isDark() ? "dark" : "light"];
  const level = (number) => (scale.logarithmic ? Math.log(Math.max(number, 1e-300)) : number);
  const [low, high] = [scale.low, scale.high].map(level);
  const share = high > low ? (level(value) - low) / (high - low) : 0.5;
  const place = Math.min(Math.max(share, 0), 1) * (stops.length - 1);
  const left = Math.min(Math.floor(place), stops.length - 2);
  return stops[left].map((part, k) => Math.round(part + (place - left) * (stops[left + 1][k] - part)));
};
const bright = (rgb) => 0.299 * rgb[0] + 0.587 * rgb[1] + 0.114 * rgb[2] > 130;
const scaleBar = (scale) => {
  const stops = (COLOURS[scale.kind] || COLOURS.share)[isDark() ? "dark" : "light"];
  const bar = make("i", { style: `background: linear-gradient(to right, ${stops.map((rgb) => `rgb(${rgb})`).join(",")})` });
  const middle = scale.kind === "gain" ? "middle: 1, keeps size" : "";
  return [scale.ends[0], bar, scale.ends[1], make("small", {}, middle)];
};
const pick = (text, options, change) => {
  const select = make("select", {}, ...options.map((option, k) => make("option", { value: k }, option)));
  select.addEventListener("change", () => change(Number(select.value)));
  return make("label", {}, `${text} `, select);
};

// ---- how a skip is drawn, in a box of 64 x 24: the stream from left to right, the branch below it

const SKIPS = { // path of the skip between both ends of the branch, and a mark on it
  identity: ["M8 9H49"],
  projection: ["M8 9H49", "M24 4h10v10h-10z"],
  gated: ["M8 9H49", "M29 2l7 7-7 7-7-7z"],
  streams: ["M8 7H49M8 11H49"],
  other: ["M8 9h4m3 0h4m3 0h4m3 0h4m3 0h4m3 0h4"],
  none: [""],
};
const skipDrawn = (kind) => (!kind || kind in SKIPS ? kind || "none" : kind === "none" ? "none" : "other");
const svg = (tag, attributes) => {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
};
const wires = (kind, known = true) => {
  const picture = svg("svg", { class: "wires", viewBox: "0 0 64 24", "aria-hidden": "true" });
  if (!known) return picture;
  const [skip, mark] = SKIPS[kind];
  const joined = kind === "none" ? "M0 9H8V24M54 24V9H64" : "M0 9H8V24M54 24V14M59 9H64";
  picture.append(svg("path", { d: joined + skip }));
  if (mark) picture.append(svg("path", { d: mark, class: "mark" }));
  if (kind !== "none") picture.append(svg("circle", { cx: 54, cy: 9, r: 5 }), svg("path", { d: "M51 9H57M54 6V12" }));
  return picture;
};
const SKIP_WORDS = {
  identity: "identity skip", projection: "projected skip", gated: "gated skip", streams: "several streams",
  none: "no skip",
};
const BRANCH_WORDS = { linear: "MLP" };

// ---- one map, with the units of one network at a time

const scales = document.getElementById("scales") ? read("scales") : {};
const trunks = [];
const trunk = (place, maps) => {
  const picks = make("div", { class: "picks" });
  const stages = make("div", { class: "stages", role: "group", "aria-label": "Units of the network" });
  const legend = make("div", { class: "kinds" });
  const panel = make("div", { class: "unit", "aria-live": "polite", hidden: "" });
  const scale = make("span", { class: "scale" });
  place.append(picks, stages, legend, panel);
  let map = maps[0];
  let measure = map.measures[0].title;
  let chosen = null; // the name of the open unit

  const blocks = []; // one element per unit
  const indexOf = (name) => map.units.findIndex((unit) => unit.name === name);
  const measureOf = (one, title) => one.measures.find((own) => own.title === title);
  const valueText = (one, k) => {
    if (one.values[k] === null) return one.words[k] || "no number";
    return `${one.texts[k]}${one.unsure[k] ? " (did not converge)" : ""}`;
  };

  const paint = () => {
    const one = measureOf(map, measure) || map.measures[0];
    blocks.forEach((element, k) => {
      const value = one.values[k];
      const none = value === null || (scales[one.title].kind === "size" && one.logarithmic && value <= 0);
      const block = element.lastChild;
      const rgb = none ? null : colour(scales[one.title], value);
      element.classList.toggle("none", none);
      element.classList.toggle("unsure", one.unsure[k]);
      block.style.background = none ? "" : `rgb(${rgb})`;
      block.style.color = none ? "" : bright(rgb) ? "#000" : "#fff";
      block.lastChild.textContent = one.texts[k] + (one.unsure[k] ? "*" : "");
      const full = `${map.units[k].name}: ${one.title} ${valueText(one, k)}`;
      element.title = full;
      element.setAttribute("aria-label", full);
    });
    scale.replaceChildren(...scaleBar(scales[one.title]));
  };

  const show = (name) => {
    const k = name === null ? -1 : indexOf(name);
    chosen = k < 0 ? null : name;
    blocks.forEach((element, at) => element.setAttribute("aria-pressed", at === k));
    panel.hidden = k < 0;
    panel.querySelectorAll(".small").forEach((element) => drawn.delete(element));
    if (k < 0) return;
    const unit = map.units[k];
    const figures = make("div", {});
    const words = [unit.name, unit.branch && `branch: ${BRANCH_WORDS[unit.branch] || unit.branch}`, unit.skip && `skip: ${unit.skip}`,
      unit.side_outputs && `also gives: ${unit.side_outputs}`];
    panel.replaceChildren(make("h3", {}, words.filter(Boolean).join(", ")),
      make("div", { class: "columns" }, make("div", { class: "scroll" }, numbersOf(unit.name)), figures));
    for (const one of map.curves[unit.name] || []) figures.append(...small(one), make("p", { class: "note" }, one.about));
    if (!figures.childElementCount) figures.append("No curves of this unit were measured.");
  };
  const numbersOf = (name) => {
    // One column per network that has a unit of this name, the one that is shown first.
    const others = maps.filter((one) => one !== map && one.units.some((unit) => unit.name === name)).slice(0, 3);
    const shown = [map, ...others];
    const titles = [...new Set(shown.flatMap((one) => one.measures.map((own) => own.title)))];
    const text = (one, title) => {
      const own = measureOf(one, title);
      const k = one.units.findIndex((unit) => unit.name === name);
      return own && (own.values[k] !== null || own.words[k]) ? valueText(own, k) : "-";
    };
    const rows = titles.map((title) => [title, ...shown.map((one) => text(one, title))])
      .filter((row) => row.slice(1).some((value) => value !== "-"));
    const body = rows.map((row) => make("tr", {}, make("td", { class: "word" }, row[0]), ...row.slice(1).map((value) => make("td", {}, value))));
    const head = make("tr", {}, make("th", {}), ...shown.map((one) => make("th", {}, one.network || "the model")));
    return make("table", {}, make("thead", {}, ...(others.length ? [head] : [])), make("tbody", {}, ...body));
  };
  const small = (one) => {
    const element = make("div", { class: "small" });
    const state = { x: one.logarithmic.includes("x"), y: one.logarithmic.includes("y") };
    const figure = () => ({
      data: one.curves.map((curve) => ({
        type: "scatter", mode: curve.points ? "markers" : "lines", name: literal(curve.name), x: curve.x, y: curve.y,
        hovertemplate: `${literal(curve.name)}<br>%{x}: %{y:.3~g}<extra></extra>`,
      })),
      layout: {
        height: 300, margin: { l: 60, r: 10, t: 70, b: 45 },
        title: { text: literal(one.title), font: { size: 13 }, x: 0, xanchor: "left", xref: "container", y: 0.98, yanchor: "top" },
        xaxis: { title: { text: literal(one.x) }, type: state.x ? "log" : "linear" },
        yaxis: { title: { text: literal(one.y) }, type: state.y ? "log" : "linear", exponentformat: "power" },
        legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0, xanchor: "left" }, showlegend: one.curves.length > 1,
      },
    });
    const switches = ["y", "x"].map((letter) => {
      const element_ = make("button", { type: "button" });
      const caption = () => { element_.textContent = `${letter}: ${state[letter] ? "logarithmic" : "linear"}`; };
      element_.addEventListener("click", () => { state[letter] = !state[letter]; caption(); draw(element, figure()); });
      caption();
      return element_;
    });
    const data = make("button", { type: "button", class: "csv" }, "Data (CSV)");
    data.addEventListener("click", () => offer(`${one.title}-${chosen}`, csvOf(figure())));
    requestAnimationFrame(() => { if (element.isConnected) draw(element, figure()); });
    return [element, make("div", { class: "picks" }, ...switches, data)];
  };

  // ---- stages, columns and blocks

  const common = (units) => {
    // What the names of a stage's units have in common: layer3, stage1, blocks; empty where that is nothing.
    const names = units.map((unit) => unit.name.split("."));
    const length = Math.min(...names.map((parts) => parts.length - 1));
    let shared = 0;
    while (shared < length && names.every((parts) => parts[shared] === names[0][shared])) shared += 1;
    return names[0].slice(0, shared).join(".");
  };
  const block = (unit, k, prefix) => {
    const name = prefix ? unit.name.slice(prefix.length + 1) : unit.name;
    const element = make("button", { type: "button", class: "cell", "data-skip": skipDrawn(unit.skip), "aria-pressed": "false", tabindex: -1 },
      wires(skipDrawn(unit.skip), unit.skip !== ""), make("span", { class: "block" }, make("b", {}, name), make("span", {})));
    blocks[k] = element;
    element.addEventListener("click", () => { focus(k); show(chosen === unit.name ? null : unit.name); });
    return element;
  };
  const columns = (units, rows, make_) => {
    // Attention and MLP of one block stand in one column, each in the row of its kind.
    const found = [];
    let last = Infinity;
    for (const unit of units) {
      const row = Math.max(0, rows.indexOf(unit.branch));
      if (row <= last) found.push(make("div", { class: "column" }));
      last = row;
      const element = make_(unit);
      element.style.gridRow = row + 1;
      found[found.length - 1].append(element);
    }
    return found;
  };
  const build = () => {
    blocks.length = 0;
    const groups = new Map();
    map.units.forEach((unit) => groups.set(unit.stage, [...(groups.get(unit.stage) || []), unit]));
    const kinds = [...new Set(map.units.map((unit) => unit.branch).filter(Boolean))];
    const rows = kinds.length > 1 ? kinds : [""];
    const parts = [...groups].map(([stage, units], place_) => {
      const prefix = common(units);
      const within = units.length > 1 ? units[units.length - 1].shape : "";
      const name = prefix || (stage === null || stage < 0 ? "no stage" : `stage ${stage}`);
      const cells_ = columns(units, rows, (unit) => block(unit, map.units.indexOf(unit), prefix));
      const into = place_ ? [make("span", { class: "transition", title: "to the next stage" })] : [];
      return make("div", { class: "stage" }, make("span", { class: "stage-name" }, name, " ", make("small", {}, within)),
        make("div", { class: "cells" }, ...into, ...cells_));
    });
    stages.replaceChildren(...parts);
    const skips = [...new Set(map.units.map((unit) => unit.skip).filter(Boolean))];
    const drawings = [...new Set(skips.map(skipDrawn))];
    const others = skips.filter((kind) => skipDrawn(kind) === "other").join(", ");
    const notes = drawings.map((kind) => make("span", {}, wires(kind), SKIP_WORDS[kind] || `skip: ${others}`));
    if (rows.length > 1) notes.push(make("span", {}, `from top to bottom: ${rows.map((kind) => BRANCH_WORDS[kind] || kind).join(", ")}`));
    legend.replaceChildren(...notes);
    blocks[0].tabIndex = 0;
    choices();
    paint();
    show(chosen);
  };
  const choices = () => {
    picks.replaceChildren();
    if (maps.length > 1) {
      const networks = pick("Network", maps.map((one) => one.network || "the model"), (k) => {
        map = maps[k];
        build();
        picks.querySelector("select").focus();
      });
      networks.querySelector("select").value = maps.indexOf(map);
      picks.append(networks);
    } else if (map.network) {
      picks.append(make("span", { class: "only-network" }, `Network: ${map.network}`));
    }
    const titles = map.measures.map((one) => one.title);
    const coloured = pick("Colour", titles, (k) => { measure = titles[k]; paint(); });
    coloured.querySelector("select").value = Math.max(0, titles.indexOf(measure));
    picks.append(coloured, scale);
  };
  const focus = (k) => {
    blocks.forEach((element, at) => { element.tabIndex = at === k ? 0 : -1; });
    blocks[k].focus();
  };
  stages.addEventListener("keydown", (event) => {
    const at = blocks.indexOf(document.activeElement);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: blocks.length - 1 }[event.key];
    if (at < 0 || to === undefined || to < 0 || to >= blocks.length) return;
    event.preventDefault();
    focus(to);
    if (chosen !== null) show(map.units[to].name);
  });
  build();
  repaint.push(paint);
  trunks[Number(place.dataset.run)] = {
    open: (network, name) => {
      map = maps.find((one) => one.network === network) || map;
      chosen = name;
      build();
      document.getElementById("map").scrollIntoView();
      focus(indexOf(name));
    },
  };
};
for (const place of document.querySelectorAll(".trunk")) trunk(place, read(`map-${place.dataset.map}`));

// ---- a finding opens its unit

for (const element of document.querySelectorAll("[data-unit]")) {
  const { run, network, unit } = element.dataset;
  element.addEventListener("click", (event) => {
    if (!event.target.closest("a")) trunks[Number(run)].open(network, unit);
  });
}
