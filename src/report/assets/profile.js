// profile.js - the page of a sparsity profile: heat maps, densities over training, masks on frames.
"use strict";
const find = (id) => document.getElementById(id);
const steps = [...new Set(data.maps.map((m) => m.step))];
const mean = (list) => list.reduce((a, b) => a + b, 0) / list.length;
const twoDigits = (v) => String(Number(v.toFixed(2)));
const noiseName = ([low, high]) => (low === high ? `noise ${twoDigits(low)}` : `noise ${twoDigits(low)} to ${twoDigits(high)}`);

// From dark blue (0) over green to pale yellow (1).
const stops = [[28, 36, 92], [33, 104, 142], [53, 163, 128], [160, 206, 90], [253, 239, 160]];
function shade(t) {
  const at = Math.min(Math.max(t, 0), 1) * (stops.length - 1), i = Math.min(Math.floor(at), stops.length - 2);
  const mix = stops[i].map((a, k) => Math.round(a + (stops[i + 1][k] - a) * (at - i)));
  return `rgb(${mix.join(" ")})`;
}

// ---- heat maps: a row for each checkpoint, a column for each noise level ------------------------

function drawHeat(parent, map, values, scale, word) {
  const holder = element("div", { class: "map" }, parent);
  const cell = Math.max(7, Math.min(52, 220 / data.heads)), tall = Math.max(8, Math.min(30, 420 / data.layers));
  const left = 42, width = left + cell * data.heads + 2, height = 18 + tall * data.layers;
  const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": `${word}, step ${map.step}, ${noiseName(map.noise)}` }, holder);
  values.forEach((v, i) => {
    const layer = Math.floor(i / data.heads), head = i % data.heads;
    const rect = shape("rect", { x: left + cell * head, y: 16 + tall * layer, width: cell - 0.8, height: tall - 0.8, fill: shade(scale(v)) }, svg);
    shape("title", {}, rect, `layer ${layer}, head ${head}: ${word} ${v.toFixed(3)}`);
    if (cell >= 26 && tall >= 14)
      shape("text", { x: left + cell * (head + 0.5), y: 16 + tall * (layer + 0.5) + 4, "text-anchor": "middle", style: `font-size:11px;fill:${scale(v) > 0.55 ? "#1d2330" : "#ffffff"}` }, svg,
        word === "density" ? (100 * v).toFixed(0) : v.toFixed(2).replace(/^0/, ""));
  });
  const every = (n, size) => Math.ceil(17 / size) || 1;
  for (let l = 0; l < data.layers; l += every(data.layers, tall)) shape("text", { class: "quiet", x: left - 5, y: 16 + tall * (l + 0.5) + 4, "text-anchor": "end", style: "font-size:11px" }, svg, l);
  for (let h = 0; h < data.heads; h += every(data.heads, cell)) shape("text", { class: "quiet", x: left + cell * (h + 0.5), y: 11, "text-anchor": "middle", style: "font-size:11px" }, svg, h);
  shape("text", { class: "quiet", x: left - 8, y: 11, "text-anchor": "end", style: "font-size:11px" }, svg, "head");
  shape("text", { class: "quiet", x: 9, y: 16 + (tall * data.layers) / 2, "text-anchor": "middle", transform: `rotate(-90 9 ${16 + (tall * data.layers) / 2})`, style: "font-size:11px" }, svg, "layer");
  element("div", {}, holder, noiseName(map.noise));
  element("div", {}, holder, `mean ${word === "density" ? `${(100 * mean(values)).toFixed(1)} %` : mean(values).toFixed(3)}`);
}

function drawScale(figure, word, low, high) {
  const row = element("div", { class: "scale" });
  figure.querySelector(".heats").before(row);
  element("span", {}, row, word === "density" ? `${(100 * low).toFixed(0)} % of the keys` : low.toFixed(2));
  element("i", { style: `background:linear-gradient(90deg, ${stops.map((_, i) => shade(i / (stops.length - 1))).join(",")})` }, row);
  element("span", {}, row, word === "density" ? `${(100 * high).toFixed(0)} %` : high.toFixed(2));
}

function drawHeats(id, member, scale, low, high) {
  const figure = find(id);
  if (!figure) return;
  const holder = figure.querySelector(".heats");
  drawScale(figure, id, low, high);
  for (const step of steps) {
    if (steps.length > 1) element("div", { class: "row" }, holder, `training step ${step}`);
    const row = element("div", { class: "maps" }, holder);
    for (const map of data.maps.filter((m) => m.step === step && m[member])) drawHeat(row, map, map[member], scale, id);
  }
}

// ---- over training, or over noise ----------------------------------------------------------------

function drawTraining() {
  const levels = data.maps.filter((m) => m.step === steps[0]).map((m) => m.noise);
  const means = (step) => data.maps.filter((m) => m.step === step).map((m) => mean(m.density));
  if (steps.length > 1) {
    const series = levels.map((noise, i) => ({ name: noiseName(noise), colour: colour(i), points: steps.map((s) => [s, means(s)[i] ?? null]) }));
    lines(find("training"), { label: "density over training", x: "training step", y: "mean density", series, low: 0 });
    return;
  }
  const maps = data.maps.filter((m) => m.step === steps[0]);
  const series = Array.from({ length: data.layers * data.heads }, (_, i) => ({ name: `layer ${Math.floor(i / data.heads)}, head ${i % data.heads}`,
    colour: "var(--before)", opacity: 0.75, width: 1.1, points: maps.map((m) => [(m.noise[0] + m.noise[1]) / 2, m.density[i]]) }));
  series.push({ name: "mean", colour: "var(--after)", width: 3, points: maps.map((m) => [(m.noise[0] + m.noise[1]) / 2, mean(m.density)]) });
  lines(find("training"), { label: "density by noise level", x: "noise level (0: the clip, 1: noise)", y: "density", series, low: 0, high: 1.02, left: 0, right: 1,
    fraction: true, names: [{ name: "each head", colour: "var(--before)" }, { name: "mean", colour: "var(--after)" }] });
  find("training").querySelector("figcaption").textContent = "The same numbers over noise levels: a line for each head.";
}

// ---- masks on frames -----------------------------------------------------------------------------

const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));

// One frame: its pixels, each token faded to mask.fade where `light` (0..1) is small, tinted by `tint`.
function drawFrame(parent, mask, f, light, tint) {
  const [, rows, columns] = mask.grid, high = mask.height || rows * 4, wide = mask.width || columns * 4;
  const zoom = Math.max(1, Math.round(96 / wide)), picture = element("canvas", { width: wide * zoom, height: high * zoom }, parent);
  const context = picture.getContext("2d"), image = context.createImageData(wide * zoom, high * zoom);
  for (let y = 0; y < high * zoom; y++)
    for (let x = 0; x < wide * zoom; x++) {
      const py = Math.floor(y / zoom), px = Math.floor(x / zoom);
      const token = (f * rows + Math.floor((py * rows) / high)) * columns + Math.floor((px * columns) / wide);
      const at = 3 * ((f * high + py) * wide + px), l = light(token);
      const own = mask.pixels ? [mask.rgb[at], mask.rgb[at + 1], mask.rgb[at + 2]] : [150, 150, 150];
      const t = tint ? tint(token) : 0, glow = [255, 170, 30];
      image.data.set(own.map((v, k) => (v * l + (0.12 * v + 0.88 * mask.fade) * (1 - l)) * (1 - t) + glow[k] * t).concat(255), 4 * (y * wide * zoom + x));
    }
  context.putImageData(image, 0, 0);
  context.strokeStyle = "#4fb3ff";
  context.lineWidth = 2;
  const th = (high * zoom) / rows, tw = (wide * zoom) / columns;
  const inside = (r, c) => r >= 0 && c >= 0 && r < rows && c < columns && mask.queries[(f * rows + r) * columns + c];
  for (let r = 0; r < rows; r++)
    for (let c = 0; c < columns; c++) {
      if (!inside(r, c)) continue;
      for (const [dr, dc, x0, y0, x1, y1] of [[-1, 0, c, r, c + 1, r], [1, 0, c, r + 1, c + 1, r + 1], [0, -1, c, r, c, r + 1], [0, 1, c + 1, r, c + 1, r + 1]]) {
        if (inside(r + dr, c + dc)) continue;
        context.beginPath();
        context.moveTo(x0 * tw, y0 * th);
        context.lineTo(x1 * tw, y1 * th);
        context.stroke();
      }
    }
}

function drawMask(parent, mask) {
  const holder = element("div", { class: "mask" }, parent), tokens = mask.grid[0] * mask.grid[1] * mask.grid[2];
  mask.rgb = mask.pixels ? bytes(mask.pixels) : null;
  mask.queries = bytes(mask.query);
  mask.fade = mask.rgb && mean([...mask.rgb]) > 110 ? 40 : 190; // what is left out stands out from the clip
  const mass = bytes(mask.mass), oracle = bytes(mask.oracle), predicted = mask.predicted ? bytes(mask.predicted) : null;
  element("h3", {}, holder, `Layer ${mask.layer}, head ${mask.head}: ${mask.why}`);
  element("p", { class: "quiet" }, holder, `This group needs ${mask.keys} of ${tokens} keys (${((100 * mask.keys) / tokens).toFixed(1)} %) for ${(100 * mask.oracle_mass).toFixed(0)} % of its attention` +
    `${predicted ? `; as many keys of the predictor hold ${(100 * mask.found).toFixed(1)} % of that` : ""}. Noise level ${mask.noise}, training step ${mask.step}.`);
  const rows = [["the clip", () => 1, null], ["attention", () => 0.55, (t) => (0.85 * mass[t]) / 255], ["oracle", (t) => (oracle[t] ? 1 : 0), null]];
  if (predicted) rows.push(["predictor", (t) => (predicted[t] ? 1 : 0), null]);
  const grid = element("div", { class: "frames", style: `--frames:${mask.frames.length}` }, holder);
  element("span", { class: "kind" }, grid, "");
  mask.frames.forEach((f) => element("span", { class: "quiet" }, grid, f));
  for (const [name, light, tint] of rows) {
    element("span", { class: "kind" }, grid, name);
    mask.frames.forEach((_, f) => drawFrame(grid, mask, f, light, tint));
  }
}

function drawCubes() {
  if (!find("cubes")) return;
  table(find("cubes"), ["cube (frames x rows x columns)", "queries", "overlap", "density"], data.cubes.map((c) =>
    [c.cube.join(" x "), c.cube.reduce((a, b) => a * b), { text: c.overlap.toFixed(3), kind: c.overlap >= 0.9 ? "chosen" : "" }, `${(100 * c.density).toFixed(1)} %`]));
}

const worst = Math.min(0.8, ...data.maps.flatMap((m) => m.recall || []));
drawHeats("density", "density", (v) => v, 0, 1);
drawHeats("recall", "recall", (v) => (v - worst) / (1 - worst || 1), worst, 1);
if (find("masks")) for (const mask of data.masks) drawMask(find("masks").querySelector(".masks"), mask);
drawCubes();
start(drawTraining);
