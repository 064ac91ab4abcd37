// plan.js - the page of a plan: imbalance over layers and steps, loads of ranks, shares of heads, masks.
"use strict";
const find = (id) => document.getElementById(id);
const hasBefore = data.before.some((row) => row.some((v) => v !== null));

// A line of means over steps, with a band from the least to the most of each layer.
function overSteps(name, fill, table) {
  const points = [], band = [];
  data.layers.forEach((layer, i) => {
    const values = table.map((row) => row[i]).filter((v) => v !== null);
    points.push([layer, values.length ? values.reduce((sum, v) => sum + v, 0) / values.length : null]);
    band.push([layer, values.length ? Math.min(...values) : null, values.length ? Math.max(...values) : null]);
  });
  return { name, colour: fill, points, band: data.steps.length > 1 ? band : [] };
}

function drawImbalance() {
  const series = [overSteps("planned", "var(--after)", data.after)];
  if (hasBefore) series.unshift(overSteps("contiguous heads and blocks", "var(--before)", data.before));
  const most = Math.max(...data.after.flat(), ...data.before.flat().filter((v) => v !== null));
  lines(find("imbalance"), { label: "imbalance by layer", x: "layer", y: "imbalance: slowest rank / mean", series, low: 1, high: Math.max(most * 1.02, 1.01) });
}

function drawTimes() {
  if (!find("times")) return;
  lines(find("times"), { label: "predicted time by layer", x: "layer", y: "ms", series: [overSteps("predicted", "var(--after)", data.ms)], low: 0, high: Math.max(...data.ms.flat()) * 1.05 });
}

// Runs of numbers: 0-3, 7, 9-39.
function ranges(list) {
  const runs = [];
  for (const v of list) {
    const last = runs[runs.length - 1];
    if (last && v === last[1] + 1) last[1] = v;
    else runs.push([v, v]);
  }
  return runs.map(([a, b]) => (a === b ? a : `${a}-${b}`)).join(", ");
}

function drawStrategies(step) {
  const table = find("strategies").querySelector("table"), kinds = new Map();
  for (const d of data.details.filter((one) => one.step === step)) {
    if (!kinds.has(d.strategy)) kinds.set(d.strategy, []);
    kinds.get(d.strategy).push(d);
  }
  table.replaceChildren();
  const head = element("tr", {}, table);
  for (const name of ["strategy", "layers", "ms a layer"]) element("th", {}, head, name);
  for (const [strategy, list] of kinds) {
    const row = element("tr", {}, table), times = list.map((d) => d.ms).filter((v) => v !== null);
    element("td", {}, row, strategy);
    element("td", {}, row, ranges(list.map((d) => d.layer)));
    element("td", {}, row, times.length ? short(times.reduce((sum, v) => sum + v, 0) / times.length) : "–");
  }
}


function drawLoads(d) {
  const total = d.shares.reduce((sum, s) => sum + s[4], 0), mean = total / data.ranks || 1;
  const after = Array.from({ length: data.ranks }, (_, r) => ({ label: r, parts: [] }));
  for (const [rank, head, begin, end, load] of d.shares)
    after[rank].parts.push({ value: load / mean, colour: colour(rank), text: head, title: `rank ${rank}: head ${head}, query blocks ${begin}..${end - 1}, ${short(load)} of work` });
  bars(find("after"), { label: "load of each rank under the plan", x: "rank", y: "load / mean (dashed); a segment is a head", bars: after, mean: 1 });
  find("before").hidden = !d.before;
  if (d.before)
    bars(find("before"), { label: "load of each rank, contiguous", x: "rank", y: "load / mean (dashed)", mean: 1,
      bars: d.before.map((v, r) => ({ label: r, parts: [{ value: v / mean, colour: colour(r), title: `rank ${r}: ${short(v)} of work` }] })) });
  else canvas(find("before"), 1, "no contiguous assignment: heads do not divide");
}

function drawHeads(d) {
  const total = d.shares.reduce((sum, s) => sum + s[4], 0), mean = total / data.ranks || 1;
  const heads = Array.from({ length: data.heads }, (_, h) => ({ label: h, parts: [] }));
  for (const [rank, head, begin, end, load] of d.shares)
    heads[head].parts.push({ value: load / mean, colour: colour(rank), text: rank, title: `head ${head}: query blocks ${begin}..${end - 1} on rank ${rank}` });
  bars(find("heads"), { label: "heads cut into shares", x: "head", y: "load / mean load of a rank (dashed)", bars: heads, mean: 1 });
}

// A mask of `side` x `side` cells, a byte each, with the shares of its head drawn over it.
function drawMap(parent, d, map) {
  const holder = element("div", { class: "map" }, parent);
  const svg = shape("svg", { viewBox: `-3 0 106 100`, role: "img", "aria-label": `mask of head ${map.head}` }, holder);
  const cells = Uint8Array.from(atob(map.cells), (c) => c.charCodeAt(0));
  const picture = document.createElement("canvas");
  picture.width = map.columns; picture.height = map.rows;
  const context = picture.getContext("2d"), image = context.createImageData(map.columns, map.rows);
  cells.forEach((v, i) => {
    const t = v / 255;
    image.data.set([250 - 225 * t, 250 - 170 * t, 247 - 90 * t, 255], 4 * i);
  });
  context.putImageData(image, 0, 0);
  shape("image", { x: 0, y: 0, width: 100, height: 100, preserveAspectRatio: "none", href: picture.toDataURL(), style: "image-rendering:pixelated" }, svg);
  for (const [rank, head, begin, end, load] of d.shares) {
    if (head !== map.head) continue;
    const y = (100 * begin) / data.q_blocks, height = (100 * (end - begin)) / data.q_blocks;
    const rect = shape("rect", { x: -3, y, width: 3, height, fill: colour(rank) }, svg);
    shape("title", {}, rect, `rank ${rank}: query blocks ${begin}..${end - 1}, ${short(load)} of work`);
    if (begin > 0) shape("path", { d: `M-3 ${y}H100`, stroke: "var(--warn)", "stroke-width": 0.8 }, svg);
  }
  for (const cut of map.key_cuts || []) shape("path", { d: `M${(100 * cut) / data.k_blocks} 0V100`, stroke: "var(--warn)", "stroke-width": 0.5, "stroke-dasharray": "2 1.5" }, svg);
  shape("rect", { class: "frame", x: 0, y: 0, width: 100, height: 100 }, svg);
  element("div", {}, holder, `head ${map.head}: density ${(map.density * 100).toFixed(1)} %`);
}

function drawMasks(d) {
  const figure = find("masks");
  if (!figure) return;
  const holder = figure.querySelector(".maps");
  holder.replaceChildren();
  for (const map of d.maps || []) drawMap(holder, d, map);
  if (!(d.maps || []).length) element("div", { class: "map" }, holder, "no mask of this layer is in the page");
}

function drawDetail() {
  const d = data.details[chosen()];
  find("strategy").textContent = d.ms === null ? d.strategy : `${d.strategy}, ${short(d.ms)} ms`;
  drawStrategies(d.step);
  drawLoads(d);
  drawHeads(d);
  drawMasks(d);
}

const names = data.details.map((d) => (data.steps.length > 1 ? `step ${d.step}, layer ${d.layer}` : `layer ${d.layer}`));
const chosen = slider(find("controls"), "Shown below: ", names, drawDetail);
start(() => {
  drawImbalance();
  drawTimes();
  drawDetail();
});
