// run.js - the page of a training run: loss, loss by noise level, time by part, gradient.
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

function drawLoss() {
  const points = column(1), window = Math.max(1, Math.round(points.length / 60));
  const series = [{ name: "training", colour: "var(--before)", opacity: 0.6, width: 1, points },
                  { name: "training, smoothed", colour: "var(--after)", points: smooth(points, window) }];
  if (data.validation.length)
    series.push({ name: "validation", colour: "var(--good)", width: 2.4, points: data.validation.map((v) => [v[0], v[1]]) });
  lines(find("loss"), { label: "loss", x: "step", y: "loss", series, log: true });
}

function drawBuckets() {
  if (!find("buckets")) return;
  const names = ["least noise", "second quarter", "third quarter", "most noise"];
  const series = names.map((name, i) => ({ name, colour: colour(i), points: data.validation.map((v) => [v[0], v[2 + i] ?? null]) }));
  lines(find("buckets"), { label: "validation loss by noise level", x: "step", y: "loss", series, log: true });
}

function drawTimes() {
  const parts = [["attention", 5], ["linear layers", 6], ["other", 7], ["optimiser", 8], ["waiting for data", 9]];
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
drawTimes();
lines(find("rates"), { label: "gradient", x: "step", y: "length of the gradient", log: true, height: 220,
  series: [{ name: "gradient", colour: "var(--after)", width: 1.2, points: column(3) }] });
done();
