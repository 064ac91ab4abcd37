// charts.js - the drawings every report shares: SVG made from the data in the page, nothing loaded.
"use strict";
window.addEventListener("error", (event) => { document.body.dataset.error = event.message; });
window.addEventListener("unhandledrejection", (event) => { document.body.dataset.error = String(event.reason); });

const data = JSON.parse(document.getElementById("data").textContent);

function element(tag, attributes, parent, text) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes || {})) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  if (parent) parent.append(node);
  return node;
}

function shape(tag, attributes, parent, text) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(attributes || {})) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  if (parent) parent.append(node);
  return node;
}

// The width inside a figure in CSS pixels. Drawings have exactly that width, so that text keeps its size
// at every width of the window; draw again when it changes (start).
function room(figure) {
  const style = getComputedStyle(figure);
  return Math.max(Math.floor(figure.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight)), 200);
}

// An empty drawing in place of what the figure showed before; its caption stays.
function canvas(figure, height, label) {
  const old = figure.querySelector("svg"), width = room(figure);
  const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label });
  svg.wide = width;
  if (old) old.replaceWith(svg);
  else figure.prepend(svg);
  return svg;
}

// Draws now, and again whenever the window has another width. The number of figures is for tests.
function start(draw) {
  let width = document.documentElement.clientWidth;
  draw();
  window.addEventListener("resize", () => {
    if (document.documentElement.clientWidth === width) return;
    width = document.documentElement.clientWidth;
    draw();
  });
  const empty = [...document.querySelectorAll("figure")].filter((f) => !f.querySelector("svg, canvas, img, table, .map"));
  document.body.dataset.figures = document.querySelectorAll("figure").length - empty.length;
  if (empty.length) throw new Error(`figure ${empty[0].id} is empty`);
}

// Text that is cut where it would be wider than that; its tip has all of it.
function fit(node, wide) {
  const all = node.textContent;
  for (let n = all.length - 1; n > 0 && node.getComputedTextLength() > wide; n--) node.textContent = `${all.slice(0, n)}…`;
  if (node.textContent !== all) shape("title", {}, node, all);
}

// A colour for each of many things: a few chosen ones, then hues far apart by the golden angle.
const chosenColours = ["#3f7fbf", "#e0873a", "#3a9a76", "#c2568c", "#8a6fc0", "#b9a13a", "#5bb5cf", "#a35a4a"];
function colour(index) {
  if (index < chosenColours.length) return chosenColours[index];
  return `hsl(${(index * 137.508 + 210) % 360} ${index % 2 ? 55 : 68}% ${[52, 62, 44][index % 3]}%)`;
}

function short(value) {
  if (!Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size >= 1e15) return value.toExponential(2);
  for (const [unit, letter] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e4, "k"]])
    if (size >= unit) return (value / (letter === "k" ? 1e3 : unit)).toPrecision(3) + letter;
  if (size >= 100 || value === Math.round(value)) return value.toFixed(0);
  return String(Number(value.toPrecision(size < 0.01 ? 2 : 3)));
}

// Round numbers that cut [low, high] into about `count` steps, at least two of them.
function ticks(low, high, count) {
  for (let wanted = Math.max(count, 2); ; wanted++) {
    const rough = (high - low) / wanted || 1;
    const power = 10 ** Math.floor(Math.log10(rough) + 1e-9);
    const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough * (1 - 1e-9));
    const list = [];
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) list.push(i * step);
    if (list.length > 2 || wanted > count + 8) return list;
  }
}

// Ticks of a logarithmic axis, or of a linear one where it has too few.
function logTicks(low, high) {
  const list = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++)
    for (const m of [1, 2, 5]) if (m * 10 ** power >= low * 0.999 && m * 10 ** power <= high * 1.001) list.push(m * 10 ** power);
  if (list.length > 9) return list.filter((v) => Math.abs(Math.log10(v) - Math.round(Math.log10(v))) < 1e-6);
  return list.length > 2 ? list : ticks(low, high, 4);
}

// Axes with ticks around a plot; returns the functions that map values to places.
function axes(svg, box, x, y) {
  const px = (v) => box.left + ((v - x.low) / (x.high - x.low || 1)) * (box.right - box.left);
  const log = (v) => Math.log10(Math.max(v, y.low));
  const part = y.log ? (v) => (log(v) - log(y.low)) / (log(y.high) - log(y.low) || 1)
                     : (v) => (v - y.low) / (y.high - y.low || 1);
  const py = (v) => box.bottom - part(v) * (box.bottom - box.top);
  for (const v of y.log ? logTicks(y.low, y.high) : ticks(y.low, y.high, 5)) {
    shape("path", { class: "axis", d: `M${box.left} ${py(v)}H${box.right}` }, svg);
    shape("text", { class: "quiet tick-y", x: box.left - 6, y: py(v) + 4, "text-anchor": "end" }, svg, short(v));
  }
  const marks = x.marks || ticks(x.low, x.high, Math.min(10, (box.right - box.left) / 70)).filter((v) => x.fraction || Number.isInteger(v));
  for (const v of marks) shape("text", { class: "quiet tick-x", x: px(v), y: box.bottom + 16, "text-anchor": "middle" }, svg, short(v));
  shape("text", { class: "quiet", x: (box.left + box.right) / 2, y: box.bottom + 34, "text-anchor": "middle" }, svg, x.label);
  fit(shape("text", { class: "quiet", x: 2, y: 14 }, svg, y.label), svg.wide - 4);
  return { px, py };
}

// Names with their colours above a drawing.
function legend(figure, names) {
  const old = figure.querySelector(":scope > .legend"), holder = element("div", { class: "legend" });
  for (const { name, colour: fill } of names) element("i", { style: `background:${fill}` }, element("span", {}, holder, name), "");
  if (old) old.replaceWith(holder);
  else figure.prepend(holder);
}

// Lines over x. series: [{name, colour, points: [[x, y], ...]}]; points with y null are gaps. names: what
// the legend says instead, where many series share a colour. A series' band: [[x, low, high], ...] behind
// its line. notches: [{x, colour, title}] on the x axis. strip: [low, high], shaded across.
function lines(figure, options) {
  const all = options.series.flatMap((s) => s.points).filter((p) => p[1] !== null);
  const svg = canvas(figure, options.height || 300, options.label), height = options.height || 300;
  const box = { left: 50, right: svg.wide - 20, top: 26, bottom: height - 44 };
  if (!all.length) {
    shape("text", { class: "quiet", x: svg.wide / 2, y: height / 2, "text-anchor": "middle" }, svg, "nothing was recorded");
    return;
  }
  const xs = all.map((p) => p[0]), ys = all.map((p) => p[1]);
  const min = (a) => a.reduce((m, v) => Math.min(m, v)), max = (a) => a.reduce((m, v) => Math.max(m, v));
  const x = { low: options.left ?? min(xs), high: options.right ?? max(xs), label: options.x, fraction: options.fraction };
  if (!x.fraction && x.high - x.low < 2) x.low = Math.round((x.low + x.high) / 2) - 1, x.high = x.low + 2;
  const y = { low: options.low ?? min(ys), high: options.high ?? max(ys) * (options.log ? 1.1 : 1.04), label: options.y, log: options.log };
  if (y.log) y.low = Math.max(options.low ?? min(ys.filter((v) => v > 0)) * 0.9, 1e-12);
  const { px, py } = axes(svg, box, x, y);
  if (options.strip)
    shape("rect", { x: box.left, y: py(options.strip[1]), width: box.right - box.left, height: py(options.strip[0]) - py(options.strip[1]), fill: "var(--quiet)", opacity: 0.16 }, svg);
  for (const s of options.series) {
    const band = (s.band || []).filter((p) => p[1] !== null);
    if (band.length > 1) {
      const edge = [...band.map(([a, low]) => [a, low]), ...band.reverse().map(([a, , high]) => [a, high])];
      const inside = (v) => Math.min(Math.max(v, y.low), y.high); // few seeds have bands without end
      shape("polygon", { points: edge.map(([a, b]) => `${px(a).toFixed(1)},${py(inside(b)).toFixed(1)}`).join(" "), fill: s.colour, opacity: 0.16 }, svg);
    }
  }
  for (const n of options.notches || [])
    shape("title", {}, shape("path", { d: `M${px(n.x)} ${box.bottom}v-9`, stroke: n.colour, "stroke-width": 1.6 }, svg), n.title);
  for (const s of options.series) {
    let path = "", pen = "M";
    for (const [a, b] of s.points) {
      if (b === null) { pen = "M"; continue; }
      path += `${pen}${px(a).toFixed(1)} ${py(b).toFixed(1)}`;
      pen = "L";
    }
    shape("path", { d: path, fill: "none", stroke: s.colour, "stroke-width": s.width || 1.8, opacity: s.opacity || 1 }, svg);
    if (s.points.length <= 60)
      for (const [a, b] of s.points)
        if (b !== null) shape("title", {}, shape("circle", { cx: px(a), cy: py(b), r: 2.6, fill: s.colour }, svg), `${s.name}: ${short(a)}, ${short(b)}`);
  }
  const names = options.names || options.series;
  if (names.length) legend(figure, names);
}

// Stacked bars. bars: [{label, parts: [{value, colour, title, text}]}]; mean: a line across. text is written
// on a part where there is room for it.
function bars(figure, options) {
  const height = options.height || 280, svg = canvas(figure, height, options.label);
  const box = { left: 50, right: svg.wide - 20, top: 26, bottom: height - 44 };
  const n = options.bars.length;
  const total = (bar) => bar.parts.reduce((sum, part) => sum + part.value, 0);
  const high = Math.max(...options.bars.map(total), options.mean || 0, 1e-9) * 1.05;
  const longest = Math.max(...options.bars.map((bar) => String(bar.label).length));
  const every = Math.ceil((n * (8 * longest + 10)) / (box.right - box.left));
  const { px, py } = axes(svg, box, { low: -0.5, high: n - 0.5, label: options.x, marks: [] }, { low: 0, high, label: options.y });
  svg.dataset.bars = n;
  const wide = Math.max((box.right - box.left) / n * 0.8, 0.7);
  options.bars.forEach((bar, i) => {
    let sum = 0;
    for (const part of bar.parts) {
      const top = py(sum + part.value), bottom = py(sum);
      sum += part.value;
      const rect = shape("rect", { x: px(i) - wide / 2, y: top, width: wide, height: Math.max(bottom - top, 0), fill: part.colour }, svg);
      if (wide > 4) rect.setAttribute("stroke", "var(--panel)"), rect.setAttribute("stroke-width", 0.7);
      shape("title", {}, rect, part.title);
      if (part.text !== undefined && bottom - top > 15 && wide > 8 * String(part.text).length + 6)
        shape("text", { class: "on", x: px(i), y: (top + bottom) / 2 + 4, "text-anchor": "middle" }, svg, part.text);
    }
    if (i % every === 0) shape("text", { class: "quiet tick-x", x: px(i), y: box.bottom + 16, "text-anchor": "middle" }, svg, bar.label);
  });
  if (options.mean)
    shape("path", { d: `M${box.left} ${py(options.mean)}H${box.right}`, stroke: "var(--warn)", "stroke-width": 1.4, "stroke-dasharray": "5 4" }, svg);
}

// A table with the name of the column at every cell, for narrow windows, where a row is a block. A cell is a
// text, or {text, below, kind}.
function table(figure, head, rows) {
  const body = element("table", { class: "stack" });
  figure.prepend(body);
  const top = element("tr", {}, body);
  head.forEach((text) => element("th", {}, top, text));
  for (const row of rows) {
    const line = element("tr", {}, body);
    row.forEach((cell, i) => {
      const node = element("td", { "data-name": head[i], ...(cell.kind ? { class: cell.kind } : {}) }, line);
      const holder = element("span", {}, node, cell.text ?? cell);
      if (cell.below) element("small", {}, holder, cell.below);
    });
  }
  return body;
}

// A slider that calls draw at each move; it begins at place `at` of `names`. Returns a function of its place.
function slider(parent, label, names, draw, at = 0) {
  const holder = element("label", {}, parent, label);
  const input = element("input", { type: "range", min: 0, max: names.length - 1, value: at, "aria-label": label }, holder);
  const shown = element("output", {}, holder, names[at]);
  input.addEventListener("input", () => { shown.textContent = names[input.value]; draw(); });
  if (names.length < 2) input.hidden = true;
  return () => Number(input.value);
}
