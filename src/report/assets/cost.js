// cost.js - the page of a predicted step: bars of its parts, and bars of what each input changes.

// The interval of a sum as a bar from low to high; a line at the sum, and one at what it may be.
function intervalRow(svg, y, left, right, sum, range, unit, mark) {
  const px = (v) => left + (v / (Math.max(range[1], mark || 0) * 1.02)) * (right - left);
  fit(shape("text", { x: left - 8, y: y + 15, "text-anchor": "end" }, svg, "80 % interval"), left - 10);
  shape("path", { class: "axis", d: `M${left} ${y + 11}H${right}` }, svg);
  const bar = shape("rect", { x: px(range[0]), y: y + 5, width: Math.max(px(range[1]) - px(range[0]), 1), height: 12, fill: "var(--after)", opacity: 0.45, rx: 2 }, svg);
  shape("title", {}, bar, `${short(range[0])} to ${short(range[1])} ${unit}`);
  shape("path", { d: `M${px(sum)} ${y + 3}V${y + 19}`, stroke: "var(--after)", "stroke-width": 2 }, svg);
  if (mark) shape("title", {}, shape("path", { d: `M${px(mark)} ${y + 1}V${y + 21}`, stroke: "var(--quiet)", "stroke-width": 2, "stroke-dasharray": "3 2" }, svg), `${short(mark)} ${unit}`);
  shape("text", { class: "quiet", x: svg.wide - 2, y: y + 15, "text-anchor": "end" }, svg, `${short(range[0])} – ${short(range[1])}`);
}

// One row for each part: name, bar, value; range: of the sum; mark: what the sum may be.
function partRows(id, label, parts, unit, range, mark) {
  const figure = document.getElementById(id);
  if (!figure) return;
  const row = 26, sum = parts.reduce((s, p) => s + p[1], 0), svg = canvas(figure, row * (parts.length + (range ? 2 : 1)) + 8, label);
  const left = Math.min(150, svg.wide * 0.36), right = svg.wide - 106, high = Math.max(...parts.map((p) => Math.abs(p[1])), 1e-12);
  parts.forEach(([name, value], i) => {
    const y = row * i + 4, wide = Math.max((Math.abs(value) / high) * (right - left), 1);
    fit(shape("text", { x: left - 8, y: y + 15, "text-anchor": "end" }, svg, name.replaceAll("_", " ")), left - 10);
    const rect = shape("rect", { x: left, y: y + 2, width: wide, height: row - 8, fill: colour(i), rx: 2 }, svg);
    shape("title", {}, rect, `${name}: ${value} ${unit}`);
    const share = sum > 0 ? ` · ${((100 * value) / sum).toFixed(1)} %` : "";
    shape("text", { class: "quiet", x: svg.wide - 2, y: y + 15, "text-anchor": "end" }, svg, `${short(value)}${share}`);
  });
  const y = row * parts.length + 19;
  shape("text", { class: "name", x: left - 8, y, "text-anchor": "end" }, svg, "sum");
  const text = mark ? `${short(sum)} of ${short(mark)} ${unit}` : `${short(sum)} ${unit}`;
  shape("text", { class: "name", x: left, y }, svg, text);
  if (range) intervalRow(svg, row * (parts.length + 1) + 4, left, right, sum, range, unit, mark);
}

// Bars to both sides of 0: an input 10 % less, 10 % more.
function inputRows() {
  const figure = document.getElementById("inputs");
  if (!figure) return;
  const row = 30, list = data.inputs, svg = canvas(figure, row * list.length + 30, `change of the ${data.clip ? "clip" : "step"} with each input`);
  const left = Math.min(230, svg.wide * 0.42), right = svg.wide - 12;
  const most = Math.max(...list.map((p) => Math.max(Math.abs(p[1]), Math.abs(p[2]))), 0.1);
  const px = (v) => (left + right) / 2 + (v / most) * ((right - left) / 2 - 4);
  legend(figure, [{ name: "10 % less", colour: "var(--before)" }, { name: "10 % more", colour: "var(--after)" }]);
  for (const v of [-most, 0, most]) {
    shape("path", { class: "axis", d: `M${px(v)} 4V${row * list.length + 4}` }, svg);
    shape("text", { class: "quiet tick-x", x: px(v), y: row * list.length + 20, "text-anchor": v < 0 ? "start" : v > 0 ? "end" : "middle" }, svg, `${v > 0 ? "+" : ""}${short(v)} %`);
  }
  list.forEach(([name, less, more], i) => {
    const y = row * i + 6;
    fit(shape("text", { x: left - 8, y: y + 15, "text-anchor": "end" }, svg, name), left - 10);
    [[less, "var(--before)", 0], [more, "var(--after)", 11]].forEach(([value, fill, down]) => {
      const rect = shape("rect", { x: Math.min(px(0), px(value)), y: y + down, width: Math.max(Math.abs(px(value) - px(0)), 0.5), height: 10, fill }, svg);
      shape("title", {}, rect, `${name}: ${value > 0 ? "+" : ""}${value.toFixed(2)} %`);
    });
  });
}

start(() => {
  partRows("time", `time of a ${data.clip ? "clip" : "step"} by part`, data.time, data.clip ? "s" : "ms", data.timeHigh > 0 && [data.timeLow, data.timeHigh]);
  partRows("memory", "memory of a GPU by part", data.memory, "GiB", data.memoryHigh > 0 && [data.memoryLow, data.memoryHigh], data.capacity);
  partRows("money", "cost by part", data.money, "");
  inputRows();
});
