// run.js - the page of a training run: loss, loss by noise level, sparse attention, time by part, gradient.
"use strict";
const find = (id) => document.getElementById(id);
const column = (i) => data.points.map((p) => [p[0], p[i]]);

// The mean over a window around each point: what the eye would follow.
function smooth(points, window) {
  return points.map(([x], i) => {
    const near = points.slice(Math.max(0, i - window), i + window + 1).map((p) => p[1]).filter((v) => v !== null);
    return [x, near.length ? near.reduce((a, b) => a + b) / near.length : null];
  });
}

// One colour for one thing, on the whole page.
const ink = { training: "var(--after)", validation: "var(--good)", sparse: "#8a6fc0", dense: "var(--warn)", recall: "#c2568c", predictor: "#b9a13a", gradient: "var(--quiet)",
  quartiles: ["#a8d8c0", "#62b592", "#2b8a63", "#0f5a3d"],
  parts: { attention: "#2f9fb0", "linear layers": "#a35a4a", other: "#a9b0bc", optimiser: "#d9a441", "waiting for data": "#d98080", "selecting keys": "#5f7f3f", "learning to": "#b98ad0", measuring: "#54607a" } };
const turned = { switch: "became sparse", again: "became sparse again", back: "became dense again" };
const notches = data.events.filter((e) => turned[e[1]]).map((e) => ({ x: e[0], colour: e[1] === "back" ? ink.dense : ink.sparse, title: `step ${e[0]}: ${placeOf(e)} ${turned[e[1]]}` }));

function placeOf([, , layer, head]) {
  return layer === null ? "the model" : head === null ? `layer ${layer}` : `layer ${layer}, head ${head}`;
}

function drawLoss() {
  const points = column(1), window = Math.max(1, Math.round(points.length / 60));
  const series = [{ name: "training", colour: ink.training, opacity: 0.3, width: 1, points },
                  { name: "training, smoothed", colour: ink.training, points: smooth(points, window) }];
  if (data.validation.length)
    series.push({ name: "validation", colour: ink.validation, width: 2.4, points: data.validation.map((v) => [v[0], v[1]]) });
  lines(find("loss"), { label: "loss", x: "step", y: "loss", series, log: true, notches, names: series.filter((s) => s.name !== "training") });
}

function drawBuckets() {
  if (!find("buckets")) return;
  const names = ["least noise", "second quartile", "third quartile", "most noise"];
  const series = names.map((name, i) => ({ name, colour: ink.quartiles[i], points: data.validation.map((v) => [v[0], v[2 + i] ?? null]) }));
  lines(find("buckets"), { label: "validation loss by noise level", x: "step", y: "loss", series, log: true });
}

function drawSparsity() {
  if (!find("density")) return;
  const most = Math.max(...data.points.map((p) => p[14] || 0), 1);
  const series = [{ name: "density", colour: ink.sparse, points: column(11) }];
  if (data.points.some((p) => p[14]))
    series.push({ name: "sparse layers / most at once", colour: "var(--before)", width: 1.4, points: column(14).map(([x, v]) => [x, v === null ? null : v / most]) });
  lines(find("density"), { label: "density", x: "step", y: "share", series, low: 0, high: 1.04, height: 240, notches });
  if (!find("recall")) return;
  lines(find("recall"), { label: "recall", x: "step", y: "recall, loss", low: 0, height: 240, notches,
    series: [{ name: "recall", colour: ink.recall, points: column(12) }, { name: "predictors' loss", colour: ink.predictor, points: column(13) }].filter((s) => s.points.some((p) => p[1])) });
}

function drawEvents() {
  if (!find("events")) return;
  const why = (text) => text.replace(/[{}"]/g, "").replaceAll(",", ", ").replaceAll(":", " ").replaceAll("_", " ");
  const holder = element("div", { class: "events" });
  table(holder, ["step", "where", "what", "why"],
    data.events.map((e) => [e[0], placeOf(e), turned[e[1]] || e[1], why(e[4])].map((text) => ({ text, kind: "left" }))));
  find("events").prepend(holder);
}

function drawTimes() {
  const all = [["attention", 5], ["linear layers", 6], ["other", 7], ["optimiser", 8], ["waiting for data", 9], ["selecting keys", 15], ["learning to", 16], ["measuring", 17]];
  const parts = all.filter(([, i]) => i < 10 || data.points.some((p) => p[i]));
  const groups = Math.min(48, data.points.length), bucket = data.points.length / groups;
  const list = Array.from({ length: groups }, (_, g) => {
    const rows = data.points.slice(Math.round(g * bucket), Math.round((g + 1) * bucket));
    const mean = (i) => rows.reduce((sum, row) => sum + (row[i] || 0), 0) / rows.length;
    return { label: rows[rows.length - 1][0],
      parts: parts.map(([name, i]) => ({ value: mean(i), colour: ink.parts[name], title: `${name}: ${short(mean(i))} ms` })) };
  });
  bars(find("times"), { label: "time of a step by part", x: "step", y: "ms", bars: list });
  legend(find("times"), parts.map(([name]) => ({ name, colour: ink.parts[name] })));
}

// ---- samples: the rows of a sheet as clips that play, with a slider over sheets -------------------

// Where a sheet's frames are: its gaps are columns, or rows, of one grey.
function cuts(context, length, across) {
  const line = (i) => (across ? context.getImageData(i, 0, 1, context.canvas.height) : context.getImageData(0, i, context.canvas.width, 1)).data;
  const grey = line(0)[0], gap = Array.from({ length }, (_, i) => line(i).every((v, k) => k % 4 === 3 || v === grey));
  const list = [];
  gap.forEach((is, i) => {
    if (!is && (i === 0 || gap[i - 1])) list.push([i, i]);
    if (!is) list[list.length - 1][1] = i + 1;
  });
  const usual = Math.max(...list.map(([a, b]) => b - a));
  return list.filter(([a, b]) => b - a === usual);
}

function drawSamples() {
  const figure = find("samples"), sheets = figure ? [...figure.querySelectorAll("img")] : [];
  if (!sheets.length) return;
  const first = sheets[sheets.length - 1], paper = element("canvas", { width: first.naturalWidth, height: first.naturalHeight });
  const context = paper.getContext("2d", { willReadFrequently: true });
  context.drawImage(first, 0, 0);
  const columns = cuts(context, paper.width, true), rows = cuts(context, paper.height, false);
  const holder = element("div", { class: "samples" }), wide = columns[0][1] - columns[0][0], tall = rows[0][1] - rows[0][0];
  const controls = element("div", { class: "controls" });
  figure.prepend(controls, holder);
  figure.classList.add("playing");
  const clips = rows.map(([top], i) => {
    const row = element("div", { class: "clip" }, holder);
    element("p", {}, row, data.prompts[i] || `clip ${i}`);
    return { top, film: element("canvas", { width: wide, height: tall }, row), strip: element("canvas", { width: (wide + 3) * columns.length - 3, height: tall, class: "strip" }, row) };
  });
  let frame = 0;
  const sheet = () => sheets[chosen()];
  const play = () => clips.forEach((c) => c.film.getContext("2d").drawImage(sheet(), columns[frame][0], c.top, wide, tall, 0, 0, wide, tall));
  const strips = () => { clips.forEach((c) => columns.forEach(([left], k) => c.strip.getContext("2d").drawImage(sheet(), left, c.top, wide, tall, k * (wide + 3), 0, wide, tall))); play(); };
  const chosen = slider(controls, "After step", sheets.map((img) => img.dataset.step), strips, sheets.length - 1);
  const button = element("button", { type: "button" }, controls, "Pause");
  let moving = !window.matchMedia("(prefers-reduced-motion: reduce)").matches;
  const animate = (on) => { moving = on; button.textContent = on ? "Pause" : "Play"; };
  button.addEventListener("click", () => animate(!moving));
  animate(moving);
  strips();
  setInterval(() => { if (moving) frame = (frame + 1) % columns.length, play(); }, 125);
}

Promise.all([...document.querySelectorAll("#samples img")].map((img) => img.decode())).then(drawSamples);
drawEvents();
start(() => {
  drawLoss();
  drawBuckets();
  drawSparsity();
  drawTimes();
  lines(find("rates"), { label: "gradient", x: "step", y: "length of the gradient", log: true, height: 220, names: [],
    series: [{ name: "gradient", colour: ink.gradient, width: 1.2, points: column(3) }] });
});
