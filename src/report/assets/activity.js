// activity.js - the page of traces: parts of the span, activity over time, tables of kernels and collectives.
"use strict";
const find = (id) => document.getElementById(id);
const partColours = ["#3f7fbf", "#e0873a", "#8b93a3", "#d8dce4"];
const commColour = partColours[1], computeColour = partColours[0], copyColour = partColours[2];
const ms = (v) => (v >= 1000 ? v.toFixed(0) : v >= 100 ? v.toFixed(1) : v.toFixed(3));

function byteText(v) {
  if (v < 0) return "not known";
  for (const [unit, name] of [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]])
    if (v >= unit) return `${(v / unit).toPrecision(3)} ${name}`;
  return `${v} B`;
}

function drawParts() {
  legend(find("parts"), data.parts.map((name, i) => ({ name, colour: partColours[i] })));
  bars(find("parts"), { label: "parts of the span by rank", y: "ms", x: "", bars: data.files.map((file) => ({
    label: file.name.replace("rank ", data.files.length > 8 ? "" : "rank "),
    parts: file.parts.map((value, i) => ({ value, colour: partColours[i], title: `${file.name}: ${data.parts[i]} ${ms(value)} ms` })) })) });
}

// Fractions of equal parts of a span as one filled path between y and y - high.
function area(values, x, wide, y, high) {
  let path = `M${x} ${y}`;
  values.forEach((v, i) => {
    const at = y - (v / 100) * high;
    path += `L${(x + (i * wide) / values.length).toFixed(1)} ${at.toFixed(1)}L${(x + ((i + 1) * wide) / values.length).toFixed(1)} ${at.toFixed(1)}`;
  });
  return `${path}L${x + wide} ${y}Z`;
}

function drawBusy() {
  const figure = find("busy"), row = 58, svg = canvas(figure, 24 + row * data.files.length, "activity over time");
  const left = 4, wide = svg.wide - 8;
  data.files.forEach((file, i) => {
    const top = row * i + 20, base = top + 32;
    shape("text", { class: "name", x: left, y: top - 4 }, svg, `${file.name}: ${ms(file.span)} ms`);
    shape("rect", { x: left, y: top, width: wide, height: 32, fill: "var(--line)", opacity: 0.5 }, svg);
    shape("path", { d: area(file.busy.compute, left, wide, base, 16), fill: computeColour }, svg);
    shape("path", { d: area(file.busy.copy, left, wide, base, 16), fill: copyColour }, svg);
    shape("path", { d: area(file.busy.comm, left, wide, base - 16, 16), fill: commColour }, svg);
  });
}

function drawTables() {
  const used = data.classes.map((name, k) => k).filter((k) => data.files.some((f) => f.classes[k][0]));
  table(find("classes"), ["", ...used.map((k) => data.classes[k])], data.files.map((f) => [f.name,
    ...used.map((k) => ({ text: ms(f.classes[k][1]), below: `${f.classes[k][0]}` }))]));
  table(find("calls"), ["operation", "ranks", "bytes in", "calls", "ms in all", "shortest", "median", "longest", "GB/s"],
    data.calls.map(([op, ranks, bytes, calls, total, low, middle, high]) => [op || "not known", ranks ? String(ranks) : "not known", byteText(bytes),
      String(calls), ms(total), ms(low), ms(middle), ms(high), bytes > 0 && low > 0 ? (bytes / low / 1e6).toPrecision(3) : "–"]));
  const file = data.files[0];
  table(find("kernels"), ["kernel", "class", "kernels", "ms"], file.kernels.map(([name, kind, count, time]) =>
    [name.length > 120 ? `${name.slice(0, 119)}…` : name, kind, String(count), ms(time)]));
  if (!find("waits")) return;
  const ops = data.ops.map((name, k) => k).filter((k) => data.files.some((f) => f.waits[k] >= 0));
  table(find("waits"), ["", ...ops.map((k) => data.ops[k]), "in all"], data.files.map((f) => [f.name,
    ...ops.map((k) => (f.waits[k] < 0 ? "–" : ms(f.waits[k]))), ms(f.waits.reduce((sum, v) => sum + Math.max(v, 0), 0))]));
}

drawTables();
start(() => { drawParts(); drawBusy(); });
