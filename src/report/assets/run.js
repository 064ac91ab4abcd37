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

const turned = { switch: "became sparse", again: "became sparse again", back: "became dense again" };
const notches = data.events.filter((e) => turned[e[1]]).map((e) => ({ x: e[0], colour: e[1] === "back" ? "var(--warn)" : "var(--after)", title: `step ${e[0]}: ${placeOf(e)} ${turned[e[1]]}` }));

function placeOf([, , layer, head]) {
  return layer === null ? "the model" : head === null ? `layer ${layer}` : `layer ${layer}, head ${head}`;
}

function drawLoss() {
  const points = column(1), window = Math.max(1, Math.round(points.length / 60));
  const series = [{ name: "training", colour: "var(--before)", opacity: 0.6, width: 1, points },
                  { name: "training, smoothed", colour: "var(--after)", points: smooth(points, window) }];
  if (data.validation.length)
    series.push({ name: "validation", colour: "var(--good)", width: 2.4, points: data.validation.map((v) => [v[0], v[1]]) });
  lines(find("loss"), { label: "loss", x: "step", y: "loss", series, log: true, notches });
}

function drawBuckets() {
  if (!find("buckets")) return;
  const names = ["least noise", "second quartile", "third quartile", "most noise"];
  const series = names.map((name, i) => ({ name, colour: colour(i), points: data.validation.map((v) => [v[0], v[2 + i] ?? null]) }));
  lines(find("buckets"), { label: "validation loss by noise level", x: "step", y: "loss", series, log: true });
}

function drawSparsity() {
  if (!find("density")) return;
  const most = Math.max(...data.points.map((p) => p[14] || 0), 1);
  const series = [{ name: "density", colour: "var(--after)", points: column(11) }];
  if (data.points.some((p) => p[14]))
    series.push({ name: "sparse layers / most at once", colour: "var(--before)", width: 1.4, points: column(14).map(([x, v]) => [x, v === null ? null : v / most]) });
  lines(find("density"), { label: "density", x: "step", y: "share", series, low: 0, high: 1.04, height: 240, notches });
  if (!find("recall")) return;
  lines(find("recall"), { label: "recall", x: "step", y: "recall, loss", low: 0, height: 240, notches,
    series: [{ name: "recall", colour: "var(--good)", points: column(12) }, { name: "predictors' loss", colour: "var(--warn)", points: column(13) }].filter((s) => s.points.some((p) => p[1])) });
}

function drawEvents() {
  if (!find("events")) return;
  const holder = element("div", { class: "scroll events" });
  find("events").prepend(holder);
  const table = element("table", {}, holder), head = element("tr", {}, table);
  ["step", "where", "what", "why"].forEach((text) => element("th", {}, head, text));
  for (const event of data.events) {
    const row = element("tr", {}, table);
    const why = event[4].replace(/[{}"]/g, "").replaceAll(",", ", ").replaceAll(":", " ").replaceAll("_", " ");
    [event[0], placeOf(event), turned[event[1]] || event[1], why].forEach((text, i) => element("td", i ? { class: "left" } : {}, row, text));
  }
}

function drawTimes() {
  const all = [["attention", 5], ["linear layers", 6], ["other", 7], ["optimiser", 8], ["waiting for data", 9], ["selecting keys", 15], ["learning to", 16], ["measuring", 17]];
  const parts = all.filter(([, i]) => i < 10 || data.points.some((p) => p[i]));
  const groups = Math.min(48, data.points.length), bucket = data.points.length / groups;
  const list = Array.from({ length: groups }, (_, g) => {
    const rows = data.points.slice(Math.round(g * bucket), Math.round((g + 1) * bucket));
    const mean = (i) => rows.reduce((sum, row) => sum + (row[i] || 0), 0) / rows.length;
    return { label: rows[rows.length - 1][0],
      parts: parts.map(([name, i], k) => ({ value: mean(i), colour: colour(k), title: `${name}: ${short(mean(i))} ms` })) };
  });
  bars(find("times"), { label: "time of a step by part", x: "step", y: "ms", bars: list });
  legend(find("times").querySelector("svg"), parts.map(([name], k) => ({ name, colour: colour(k) })), 1086, 18);
}

drawLoss();
drawBuckets();
drawSparsity();
drawEvents();
drawTimes();
lines(find("rates"), { label: "gradient", x: "step", y: "length of the gradient", log: true, height: 220,
  series: [{ name: "gradient", colour: "var(--after)", width: 1.2, points: column(3) }] });
done();
