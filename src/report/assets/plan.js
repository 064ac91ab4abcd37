// plan.js - the page of a plan: imbalance over layers and steps, loads of ranks, shares of heads, masks.
"use strict";
const find = (id) => document.getElementById(id);
const hasBefore = data.before.some((row) => row.some((v) => v !== null));

function drawImbalance() {
  const points = (row) => row.map((v, i) => [data.layers[i], v]);
  const series = [];
  data.steps.forEach((step, i) => {
    const faint = data.steps.length > 1 ? 0.35 + (0.65 * (i + 1)) / data.steps.length : 1;
    if (hasBefore) series.push({ name: `contiguous, step ${step}`, colour: "var(--before)", opacity: faint, points: points(data.before[i]) });
    series.push({ name: `planned, step ${step}`, colour: "var(--after)", opacity: faint, points: points(data.after[i]) });
  });
  const names = [{ name: "planned", colour: "var(--after)" }];
  if (hasBefore) names.unshift({ name: "contiguous heads and blocks", colour: "var(--before)" });
  lines(find("imbalance"), { label: "imbalance by layer", x: "layer", y: "imbalance: slowest rank / mean", series, names, low: 1 });
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
  find("strategy").textContent = d.strategy;
  drawLoads(d);
  drawHeads(d);
  drawMasks(d);
}

const names = data.details.map((d) => (data.steps.length > 1 ? `step ${d.step}, layer ${d.layer}` : `layer ${d.layer}`));
const chosen = slider(find("controls"), "Shown below: ", names, drawDetail);
start(() => {
  drawImbalance();
  drawDetail();
});
