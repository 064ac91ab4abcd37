// compare.js - the page of a comparison: changes with their intervals, curves with bands, tables.
"use strict";
const find = (id) => document.getElementById(id);
const arms = data.arms.map((arm, i) => ({ ...arm, colour: colour(i) }));
const base = arms[data.baseline];
const axis = { step: { column: 0, name: "step" }, wall: { column: 1, name: "seconds of steps" }, gflop: { column: 2, name: "GFLOP of attention" } };
const verdicts = { inside: "inside the margin", better: "better", worse: "worse", open: "open", none: "" };
const quartiles = ["least noise", "second quartile", "third quartile", "most noise"];

const hundredths = (v) => `${v > 0 ? "+" : v < 0 ? "−" : ""}${Math.abs(100 * v).toFixed(2)}`;
const pair = ([n, mean, low, high]) => (n === 0 ? "–" : `${hundredths(mean)} %${low === null ? "" : ` (${hundredths(low)} … ${hundredths(high)})`}`);
const plain = ([n, mean, low, high], digits = 4) =>
  n === 0 ? "–" : low === null ? mean.toPrecision(digits) : `${mean.toPrecision(digits)} ± ${((high - low) / 2).toPrecision(2)}`;

// ---- changes against the baseline: a dot, its interval, the margin ---------------------------------

const places = [["step", `at step ${data.step}`, data.step > 0],
  ["wall", `at equal time, ${data.wall === null ? "" : short(data.wall)} s of steps`, data.wall !== null],
  ["gflop", `at equal work of attention, ${data.gflop === null ? "" : short(data.gflop)} GFLOP`, data.gflop !== null]];

// One place: a row for each arm, from `top` down; returns its lower end. In a narrow window the name and the
// numbers of an arm are lines above its bar.
function drawPlace(svg, top, key, title) {
  const rows = arms.filter((a) => a !== base), narrow = svg.wide < 820, line = narrow ? 62 : 24;
  const box = { left: narrow ? 24 : 300, right: svg.wide - (narrow ? 24 : 300), top: top + 22, bottom: top + 26 + line * rows.length };
  const numbers = rows.flatMap((arm) => arm.at[key].change[0].slice(1)).filter((v) => v !== null).map((v) => Math.abs(100 * v));
  const means = rows.flatMap((arm) => (arm.at[key].change[0][0] ? [Math.abs(100 * arm.at[key].change[0][1])] : []));
  // Two seeds have intervals without end: the scale follows the dots, and bars are cut at its ends.
  const far = Math.max(200 * data.margin, Math.min(Math.max(...numbers, 0) * 1.1, 4 * Math.max(...means, 0)));
  const px = (v) => box.left + ((Math.min(Math.max(v, -far), far) + far) / (2 * far)) * (box.right - box.left);
  fit(shape("text", { class: "quiet", x: 4, y: top + 14 }, svg, `${title}, against ${base.label}`), svg.wide - 8);
  shape("rect", { x: px(-100 * data.margin), y: box.top, width: px(100 * data.margin) - px(-100 * data.margin), height: box.bottom - box.top, fill: "var(--quiet)", opacity: 0.16 }, svg);
  for (const v of ticks(-far, far, Math.min(7, (box.right - box.left) / 90))) {
    shape("path", { class: "axis", d: `M${px(v)} ${box.top}V${box.bottom}` }, svg);
    shape("text", { class: "quiet tick-x", x: px(v), y: box.bottom + 15, "text-anchor": "middle" }, svg, `${v > 0 ? "+" : ""}${Number(v.toPrecision(3))} %`);
  }
  shape("path", { d: `M${px(0)} ${box.top}V${box.bottom}`, stroke: "var(--quiet)" }, svg);
  rows.forEach((arm, i) => {
    const first = box.top + 2 + line * i, y = narrow ? first + 48 : first + line / 2, at = arm.at[key], [n, mean, low, high] = at.change[0];
    const words = n ? `${pair(at.change[0])}  ${verdicts[at.verdict]}` : "no pair of runs has it";
    fit(shape("text", { class: "name", x: narrow ? 4 : 18, y: narrow ? first + 14 : y + 4 }, svg, arm.label), narrow ? svg.wide - 8 : box.left - 24);
    fit(shape("text", { x: narrow ? 4 : box.right + 14, y: narrow ? first + 31 : y + 4 }, svg, words), narrow ? svg.wide - 8 : svg.wide - box.right - 16);
    if (!n) return;
    if (low !== null) shape("path", { d: `M${px(100 * low)} ${y}H${px(100 * high)}`, stroke: arm.colour, "stroke-width": 3.4, opacity: 0.75 }, svg);
    shape("circle", { cx: px(100 * mean), cy: y, r: 5.2, fill: arm.colour, stroke: "var(--panel)" }, svg);
  });
  return box.bottom + 30;
}

function drawChanges() {
  const figure = find("changes"), shown = places.filter((p) => p[2]), alone = arms.length < 2 || !shown.length;
  const line = room(figure) < 820 ? 62 : 24;
  const svg = canvas(figure, alone ? 80 : shown.length * (56 + line * (arms.length - 1)), "change of the validation loss");
  if (alone)
    shape("text", { class: "quiet", x: svg.wide / 2, y: 40, "text-anchor": "middle" }, svg, arms.length < 2 ? "one arm: nothing to compare with" : "no place that every run has reached");
  else shown.reduce((top, [key, title]) => drawPlace(svg, top, key, title), 0);
}

function drawChangeCurves() {
  const series = arms.filter((a) => a !== base).map((arm) => ({ name: arm.label, colour: arm.colour,
    points: arm.changes.map((p) => [p[0], 100 * p[1]]), band: arm.changes.map((p) => [p[0], p[2] === null ? null : 100 * p[2], 100 * p[3]]) }));
  const values = series.flatMap((s) => s.points.map((p) => p[1]));
  const far = Math.max(200 * data.margin, ...values.map((v) => Math.abs(v) * 1.15));
  lines(find("change_step"), { label: "change against the baseline", x: "step", y: "% of the baseline", series, low: Math.min(-200 * data.margin, ...values.map((v) => v * 1.15)),
    high: Math.min(far, Math.max(200 * data.margin, ...values.map((v) => v * 1.15))), strip: [-100 * data.margin, 100 * data.margin] });
}

// ---- curves -------------------------------------------------------------------------------------

function drawCurves(id, rows, key, options) {
  const figure = find(id);
  if (!figure) return;
  const { column, name } = axis[key];
  const series = arms.map((arm) => {
    const points = arm[rows].filter((p) => p[column] !== null);
    return { name: arm.label, colour: arm.colour, points: points.map((p) => [p[column], p[options.value ?? 3]]),
      band: options.value === undefined ? points.map((p) => [p[column], p[4], p[5]]) : undefined };
  });
  lines(figure, { label: options.y, x: name, ...options, series, log: options.log ?? true });
}

function drawBucketCurves() {
  const holder = find("bucket_curves").querySelector(".four");
  while (holder.children.length < quartiles.length) element("div", { class: "map" }, holder); // all, before one is measured
  quartiles.forEach((name, b) => {
    const figure = holder.children[b];
    const series = arms.map((arm) => ({ name: arm.label, colour: arm.colour, points: arm.validation.map((p) => [p[0], p[6 + b]]) }));
    lines(figure, { label: name, x: "step", y: name, series, log: true, names: [], height: 240 });
  });
}

// ---- tables --------------------------------------------------------------------------------------

function swatch(figure) {
  figure.querySelectorAll("tr").forEach((row, i) => {
    if (i) row.firstChild.firstChild.prepend(element("i", { style: `display:inline-block;width:.7em;height:.7em;border-radius:2px;margin-right:.5em;background:${arms[i - 1].colour}` }));
  });
}

function drawBuckets() {
  const cell = (at, i) => ({ text: plain(at.loss[i]), below: at.change[i][0] ? pair(at.change[i]) : "" });
  const key = data.step > 0 ? "step" : "wall";
  table(find("buckets"), [places.find((p) => p[0] === key)[1], "all", ...quartiles], arms.map((arm) => [arm.label, ...[0, 1, 2, 3, 4].map((i) => cell(arm.at[key], i))]));
  swatch(find("buckets"));
}

function drawNumbers() {
  const columns = [["train_loss", "training loss, last tenth"], ["step_ms", "ms a step"], ["attention_ms", "ms of attention"],
    ["wall_s", "seconds of steps"], ["gflop", "GFLOP of attention"], ["density", "density, last tenth"], ["recall", "recall"]]
    .filter(([key]) => arms.some((arm) => arm.numbers[key][0]));
  const switched = arms.some((arm) => arm.switches);
  table(find("numbers"), ["arm", "runs", "steps", ...columns.map((c) => c[1]), ...(switched ? ["became sparse", "dense again"] : [])],
    arms.map((arm) => [arm.label, arm.runs, arm.steps, ...columns.map(([key]) => plain(arm.numbers[key])),
      ...(switched ? [arm.switches ? `${arm.switches}, steps ${arm.first_switch}–${arm.last_switch}` : "–", arm.returns] : [])]));
  swatch(find("numbers"));
}

const notches = arms.flatMap((arm) => arm.switch_steps.filter((t) => t[1]).map(([step]) => ({ x: step, colour: arm.colour, title: `${arm.label}: a layer or head became sparse at step ${step}` })));
drawBuckets();
drawNumbers();
start(() => {
  drawChanges();
  drawChangeCurves();
  for (const key of Object.keys(axis)) {
    drawCurves(`val_${key}`, "validation", key, { y: "validation loss", notches: key === "step" ? notches : [], fraction: key !== "step" });
    drawCurves(`train_${key}`, "training", key, { y: "training loss", notches: key === "step" ? notches : [], fraction: key !== "step" });
  }
  drawCurves("density", "training", "step", { y: "density", value: 6, log: false, low: 0, high: 1.02, notches });
  drawCurves("recall", "training", "step", { y: "recall", value: 7, log: false, high: 1.0, notches });
  drawBucketCurves();
});
