// plan.js - the page of a plan: imbalance over layers and steps, loads of ranks, shares of heads, masks.
"use strict";
const find = (id) => document.getElementById(id);
const hasBefore = data.before.some(([mean]) => mean !== null);

// A line of means over steps, with a band from the least to the most of each layer.
function overSteps(name, fill, table) {
  const points = table.map(([mean], i) => [data.layers[i], mean]);
  const band = table.map(([, least, most], i) => [data.layers[i], least, most]);
  return { name, colour: fill, points, band: data.steps > 1 ? band : [] };
}

const most = (table) => Math.max(...table.map((row) => row[2]).filter((v) => v !== null));

function drawImbalance() {
  const series = [overSteps("planned", "var(--after)", data.after)];
  if (hasBefore) series.unshift(overSteps("contiguous heads and blocks", "var(--before)", data.before));
  const high = Math.max(most(data.after), hasBefore ? most(data.before) : 1);
  lines(find("imbalance"), { label: "imbalance by layer", x: "layer", y: "imbalance: slowest rank / mean", series, low: 1, high: Math.max(high * 1.02, 1.01) });
}

function drawTimes() {
  if (!find("times")) return;
  lines(find("times"), { label: "predicted time by layer", x: "layer", y: "ms", series: [overSteps("predicted", "var(--after)", data.ms)], low: 0, high: most(data.ms) * 1.05 });
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

function drawStrategies(shown) {
  const table = find("strategies").querySelector("table"), kinds = new Map();
  shown.strategy.forEach((place, i) => {
    if (!kinds.has(place)) kinds.set(place, []);
    kinds.get(place).push(i);
  });
  table.replaceChildren();
  const head = element("tr", {}, table);
  for (const name of ["strategy", "layers", "ms a layer"]) element("th", {}, head, name);
  for (const [place, list] of kinds) {
    const row = element("tr", {}, table), times = list.map((i) => shown.ms[i]).filter((v) => v !== null);
    element("td", {}, row, data.strategies[place]);
    element("td", {}, row, ranges(list.map((i) => data.layers[i])));
    element("td", {}, row, times.length ? short(times.reduce((sum, v) => sum + v, 0) / times.length) : "–");
  }
}

// Numbers of 7 bits a byte, as plan_detail.c writes them.
function* numbers(text) {
  let value = 0, scale = 1;
  for (const letter of atob(text)) {
    const byte = letter.charCodeAt(0);
    value += (byte & 127) * scale;
    scale *= 128;
    if (byte < 128) { yield value; value = 0; scale = 1; }
  }
}

// Shares as [rank, head, first block, end, load]; loads are fractions of the mean rank's.
function sharesOf(d) {
  const list = numbers(d.shares), next = () => list.next().value, shares = [];
  const difference = () => { const v = next(); return v % 2 ? -(v + 1) / 2 : v / 2; };
  for (let head = 0; head < data.heads; head++)
    for (let n = next(), rank = 0, end = 0; n > 0; n--) {
      rank += difference();
      const begin = end + difference();
      end = begin + next();
      shares.push([rank, head, begin, end, next() / 4096]);
    }
  return shares;
}

const ofMean = (load) => `${load.toFixed(3)} of a rank's mean`;

function drawLoads(d, shares) {
  const after = Array.from({ length: data.ranks }, (_, r) => ({ label: r, parts: [] }));
  for (const [rank, head, begin, end, load] of shares)
    after[rank].parts.push({ value: load, colour: colour(rank), text: head, title: `rank ${rank}: head ${head}, query blocks ${begin}..${end - 1}, ${ofMean(load)}` });
  bars(find("after"), { label: "load of each rank under the plan", x: "rank", y: "load / mean (dashed); a segment is a head", bars: after, mean: 1 });
  find("before").hidden = !d.before;
  if (d.before)
    bars(find("before"), { label: "load of each rank, contiguous", x: "rank", y: "load / mean (dashed)", mean: 1,
      bars: [...numbers(d.before)].map((v, r) => ({ label: r, parts: [{ value: v / 4096, colour: colour(r), title: `rank ${r}: ${ofMean(v / 4096)}` }] })) });
  else canvas(find("before"), 1, "no contiguous assignment: heads do not divide");
}

function drawHeads(shares) {
  const heads = Array.from({ length: data.heads }, (_, h) => ({ label: h, parts: [] }));
  for (const [rank, head, begin, end, load] of shares)
    heads[head].parts.push({ value: load, colour: colour(rank), text: rank, title: `head ${head}: query blocks ${begin}..${end - 1} on rank ${rank}` });
  bars(find("heads"), { label: "heads cut into shares", x: "head", y: "load / mean load of a rank (dashed)", bars: heads, mean: 1 });
}

// A mask of `side` x `side` cells, a byte each, with the shares of its head drawn over it.
function drawMap(parent, shares, map) {
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
  for (const [rank, head, begin, end, load] of shares) {
    if (head !== map.head) continue;
    const y = (100 * begin) / data.q_blocks, height = (100 * (end - begin)) / data.q_blocks;
    const rect = shape("rect", { x: -3, y, width: 3, height, fill: colour(rank) }, svg);
    shape("title", {}, rect, `rank ${rank}: query blocks ${begin}..${end - 1}, ${ofMean(load)}`);
    if (begin > 0) shape("path", { d: `M-3 ${y}H100`, stroke: "var(--warn)", "stroke-width": 0.8 }, svg);
  }
  for (const cut of map.key_cuts || []) shape("path", { d: `M${(100 * cut) / data.k_blocks} 0V100`, stroke: "var(--warn)", "stroke-width": 0.5, "stroke-dasharray": "2 1.5" }, svg);
  shape("rect", { class: "frame", x: 0, y: 0, width: 100, height: 100 }, svg);
  element("div", {}, holder, `head ${map.head}: density ${(map.density * 100).toFixed(1)} %`);
}

function drawMasks(d, shares) {
  const figure = find("masks");
  if (!figure) return;
  const holder = figure.querySelector(".maps");
  holder.replaceChildren();
  for (const map of d.maps || []) drawMap(holder, shares, map);
  if (!(d.maps || []).length) element("div", { class: "map" }, holder, "no mask of this layer is in the page");
}

const layersOf = (step) => data.details.filter((d) => d.step === step);

function drawDetail() {
  const shown = data.shown[chosenStep()], d = layersOf(shown.step)[chosenLayer()], i = data.layers.indexOf(d.layer);
  const shares = sharesOf(d), name = data.strategies[shown.strategy[i]];
  find("strategy").textContent = shown.ms[i] === null ? name : `${name}, ${short(shown.ms[i])} ms`;
  drawStrategies(shown);
  drawLoads(d, shares);
  drawHeads(shares);
  drawMasks(d, shares);
}

const chosenStep = data.shown.length > 1 ? slider(find("controls"), "Step", data.shown.map((s) => s.step), drawDetail) : () => 0;
const chosenLayer = slider(find("controls"), "Layer", layersOf(data.shown[0].step).map((d) => d.layer), drawDetail);
start(() => {
  drawImbalance();
  drawTimes();
  drawDetail();
});
