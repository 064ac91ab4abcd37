// measured.js - predicted against measured: a point for each configuration, groups by colour.

function scatter(figure, quantity) {
  const points = quantity.points, groups = [...new Set(points.map((p) => p[0]))];
  const height = 380, svg = canvas(figure, height, `predicted against measured ${quantity.name}`);
  const box = { left: 58, right: svg.wide - 20, top: 26, bottom: height - 44 };
  const values = points.flatMap((p) => [p[2], p[3], ...(p[5] > 0 ? [p[4], p[5]] : [])]).filter((v) => v > 0);
  const low = Math.min(...values) * 0.9, high = Math.max(...values) * 1.1, scale = { low: Math.log10(low), high: Math.log10(high) };
  const marks = logTicks(low, high).map(Math.log10);
  const few = marks.filter((_, i) => i % Math.ceil(marks.length / Math.max(3, Math.floor((box.right - box.left) / 60))) === 0);
  const { px, py } = axes(svg, box, { ...scale, label: `measured, ${quantity.unit}`, marks: [], fraction: true }, { low, high, log: true, label: `predicted, ${quantity.unit}` });
  for (const v of few) shape("text", { class: "quiet tick-x", x: px(v), y: box.bottom + 16, "text-anchor": "middle" }, svg, short(10 ** v));
  shape("path", { d: `M${px(scale.low)} ${py(low)}L${px(scale.high)} ${py(high)}`, stroke: "var(--quiet)", fill: "none", "stroke-dasharray": "5 4" }, svg);
  if (groups.length > 1 || groups[0]) legend(figure, groups.map((name, i) => ({ name: name || "no group", colour: colour(i) })));
  for (const [group, label, measured, predicted, from, to] of points) {
    const x = px(Math.log10(measured)), fill = colour(groups.indexOf(group));
    if (to > 0) shape("path", { d: `M${x} ${py(from)}V${py(to)}`, stroke: fill, "stroke-width": 1, opacity: 0.6 }, svg);
    const dot = shape("circle", { cx: x, cy: py(predicted), r: 3.5, fill, opacity: 0.75 }, svg);
    shape("title", {}, dot, `${label || group}: measured ${short(measured)}, predicted ${short(predicted)} ${quantity.unit} (${((100 * predicted) / measured - 100).toFixed(1)} %)`);
  }
}

start(() => {
  let first = 0;
  for (const quantity of data.quantities) {
    scatter(document.getElementById(`points-${first}`), quantity);
    first += quantity.points.length;
  }
});
