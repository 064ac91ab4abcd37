// timeline.js - the page of a timeline: tracks on a canvas with zoom and tips, critical path, memory.
//
// A track has its events in order of time. Drawing looks up the first event in view and, after an event that
// is narrower than a pixel, the first one that ends behind that pixel: the work is that of the pixels.
const find = (id) => document.getElementById(id);
const RANKS = 8, LINE = 18, HEAD = 20, AXIS = 26, GIB = 2 ** 30;
const CATS = ["compute", "communication", "copy", "waits for the host", "waits for other ranks"];
const FILLS = { F: "#4b86c2", B: "#3a9a76", I: "#57b394", W: "#8a6fc0", other: "#a35a4a" };
const CAT_FILLS = [null, "#e0873a", "#b9a13a", "#b5b5b5", "#ecd3c4"];

function decode(text, kind) {
  const raw = atob(text), bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return new kind(bytes.buffer);
}

for (const c of data.classes) {
  for (const track of c.tracks) {
    track.times = decode(track.times, Float64Array);
    track.words = decode(track.words, Uint32Array);
    track.n = track.times.length / 2;
  }
  c.memory = decode(c.memory, Float64Array);
}

// ---- what is where ----

const view = { from: 0, to: data.ns };
let top_, lines_ = []; // the first rank shown; [{y, rank, track}]

const passFills = data.names.map((name) => FILLS[/^\d+([FBIW])\d+$/.exec(name)?.[1]] || FILLS.other);

function fillOf(track, i) {
  const cat = track.words[2 * i] & 7;
  return cat ? CAT_FILLS[cat] : passFills[track.words[2 * i + 1]];
}

// The first event that ends after that time.
function firstAfter(track, time, low = 0) {
  let high = track.n;
  while (low < high) {
    const at = (low + high) >> 1;
    if (track.times[2 * at + 1] > time) high = at;
    else low = at + 1;
  }
  return low;
}

function timeText(ns) {
  const size = Math.abs(ns);
  return size >= 1e9 ? `${(ns / 1e9).toPrecision(4)} s` : size >= 1e6 ? `${(ns / 1e6).toPrecision(4)} ms`
    : size >= 1e3 ? `${(ns / 1e3).toPrecision(4)} µs` : `${ns} ns`;
}

// ---- drawing ----

function drawTrack(pen, line, wide, dark) {
  const { track, y } = line, scale = wide / (view.to - view.from), pixel = (view.to - view.from) / wide;
  let run = null; // narrow events of one colour without a gap between them: one rectangle
  const flush = () => {
    if (run) pen.fillStyle = run.fill, pen.fillRect(run.x, y, Math.max(run.right - run.x, 0.8), LINE - 4);
    run = null;
  };
  for (let i = firstAfter(track, view.from); i < track.n && track.times[2 * i] < view.to;) {
    const begin = track.times[2 * i], end = track.times[2 * i + 1];
    const x = Math.max((begin - view.from) * scale, 0), right = Math.min((end - view.from) * scale, wide), fill = fillOf(track, i);
    if (right - x < 3) {
      if (run && run.fill === fill && x <= run.right + 0.5) run.right = right;
      else flush(), run = { fill, x, right };
      i = right - x < 1 ? Math.max(i + 1, firstAfter(track, view.from + (Math.floor(x) + 1) * pixel, i)) : i + 1;
      continue;
    }
    flush();
    pen.fillStyle = fill;
    pen.fillRect(x, y, right - x - 0.6, LINE - 4);
    if (track.words[2 * i] & 8) {
      pen.strokeStyle = dark;
      pen.lineWidth = 1.4;
      pen.strokeRect(x + 0.7, y + 0.7, right - x - 1.6, LINE - 5.4);
    }
    if (right - x > 34) {
      const name = data.names[track.words[2 * i] >>> 4], room = Math.floor((right - x - 6) / 6.2);
      pen.fillStyle = (track.words[2 * i] & 7) === 4 ? "#333" : "#fff";
      pen.fillText((track.words[2 * i] & 7) === 4 ? "wait".slice(0, room) : name.slice(0, room), x + 3, y + 11);
    }
    i++;
  }
  flush();
}

function drawAxis(pen, wide, y, ink) {
  const unit = view.to - view.from >= 2e9 ? [1e9, "s"] : view.to - view.from >= 2e6 ? [1e6, "ms"] : [1e3, "µs"];
  pen.fillStyle = ink;
  pen.textAlign = "center";
  for (const v of ticks(view.from / unit[0], view.to / unit[0], Math.max(Math.min(10, wide / 90), 2))) {
    const x = ((v * unit[0] - view.from) / (view.to - view.from)) * wide;
    pen.fillRect(x, y, 1, 5);
    if (x > 24 && x < wide - 24) pen.fillText(`${Number(v.toPrecision(9))} ${unit[1]}`, x, y + 17);
  }
  pen.textAlign = "left";
}

function drawTracks() {
  const figure = find("tracks"), wide = room(figure), style = getComputedStyle(document.body);
  const first = top_ ? Number(top_()) : 0, shown = data.ranks.slice(first, first + RANKS);
  lines_ = [];
  let y = 4;
  for (const [rank, at] of shown) {
    y += HEAD;
    for (const track of data.classes[at].tracks) {
      lines_.push({ y, rank, track });
      y += LINE;
    }
  }
  const height = y + AXIS, ratio = Math.min(window.devicePixelRatio || 1, 2);
  let sheet = figure.querySelector("canvas");
  if (!sheet) {
    sheet = element("canvas", { role: "img", "aria-label": "streams of ranks over time", tabindex: 0 });
    figure.prepend(sheet);
    listen(sheet);
  }
  if (sheet.width !== Math.round(wide * ratio) || sheet.height !== Math.round(height * ratio)) {
    sheet.width = Math.round(wide * ratio);
    sheet.height = Math.round(height * ratio);
    sheet.style.cssText = `display:block;width:${wide}px;height:${height}px;touch-action:pan-y;cursor:grab`;
  }
  const pen = sheet.getContext("2d"), ink = style.color;
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, wide, height);
  pen.font = "11px system-ui, sans-serif";
  for (const line of lines_) drawTrack(pen, line, wide, ink);
  pen.font = "600 12px system-ui, sans-serif";
  pen.fillStyle = ink;
  let last = -1;
  for (const line of lines_) {
    if (line.rank !== last) {
      let text = `rank ${line.rank}: ${data.classes[data.ranks.find((r) => r[0] === line.rank)[1]].tracks.map((t) => t.name).join(", ")}`;
      while (pen.measureText(text).width > wide - 4) text = text.replace(/,[^,]*$|.$/, "");
      pen.fillText(text, 2, line.y - 6);
    }
    last = line.rank;
  }
  pen.font = "11px system-ui, sans-serif";
  drawAxis(pen, wide, y, ink);
  legend(figure, [["forward", FILLS.F], ["backward", FILLS.B], ["input gradients", FILLS.I], ["weight gradients", FILLS.W], ["optimiser", FILLS.other],
    ...[1, 3, 4].map((k) => [CATS[k], CAT_FILLS[k]])].map(([name, fill]) => ({ name, colour: fill })));
}

let waiting = 0;
function drawSoon() {
  if (!waiting) waiting = requestAnimationFrame(() => { waiting = 0; drawTracks(); });
}

// ---- zoom, move, tips ----

function zoom(at, factor) {
  const span = Math.min(Math.max((view.to - view.from) * factor, 50), data.ns);
  const from = at - (at - view.from) * (span / (view.to - view.from));
  view.from = Math.min(Math.max(from, 0), data.ns - span);
  view.to = view.from + span;
  drawSoon();
}

function move(ns) {
  const span = view.to - view.from;
  view.from = Math.min(Math.max(view.from + ns, 0), data.ns - span);
  view.to = view.from + span;
  drawSoon();
}

function showTip(tip, event, sheet) {
  const box = sheet.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
  const time = view.from + (x / box.width) * (view.to - view.from);
  const line = lines_.find((l) => y >= l.y && y < l.y + LINE);
  const i = line ? firstAfter(line.track, time) : 0;
  tip.hidden = !line || i >= line.track.n || line.track.times[2 * i] > time + (view.to - view.from) / box.width;
  if (tip.hidden) return;
  const { track } = line, word = track.words[2 * i], pass = data.names[track.words[2 * i + 1]];
  tip.textContent = [(word & 7) === 4 ? `waits for other ranks: ${data.names[word >>> 4]}` : data.names[word >>> 4],
    `${timeText(track.times[2 * i + 1] - track.times[2 * i])} from ${timeText(track.times[2 * i])}`,
    `rank ${line.rank}, ${track.name}${pass ? `, pass ${pass}` : ""}`, CATS[word & 7] + (word & 8 ? ", on the critical path" : "")].join("\n");
  const wide = document.documentElement.clientWidth;
  tip.style.left = `${Math.max(4, Math.min(event.clientX + 12, wide - tip.offsetWidth - 8))}px`;
  tip.style.top = `${event.clientY + 16}px`;
}

function listen(sheet) {
  const tip = element("div", { style: "position:fixed;z-index:5;pointer-events:none;white-space:pre-line;max-width:20rem;padding:.3rem .6rem;border-radius:4px;background:#222;color:#fff;font-size:12px" }, document.body);
  tip.hidden = true;
  const held = new Map();
  const timeAt = (clientX) => { const box = sheet.getBoundingClientRect(); return view.from + ((clientX - box.left) / box.width) * (view.to - view.from); };
  sheet.addEventListener("wheel", (event) => {
    event.preventDefault();
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) move((event.deltaX / sheet.clientWidth) * (view.to - view.from));
    else zoom(timeAt(event.clientX), 1.0015 ** event.deltaY);
  }, { passive: false });
  sheet.addEventListener("pointerdown", (event) => { held.set(event.pointerId, event.clientX); sheet.setPointerCapture?.(event.pointerId); });
  for (const end of ["pointerup", "pointercancel"]) sheet.addEventListener(end, (event) => held.delete(event.pointerId));
  sheet.addEventListener("pointermove", (event) => {
    if (!held.has(event.pointerId)) return showTip(tip, event, sheet);
    const before = [...held.values()];
    const was = held.get(event.pointerId);
    held.set(event.pointerId, event.clientX);
    const now = [...held.values()];
    if (now.length === 1) move(((was - event.clientX) / sheet.clientWidth) * (view.to - view.from));
    else zoom(timeAt((now[0] + now[1]) / 2), Math.max(Math.abs(before[0] - before[1]), 1) / Math.max(Math.abs(now[0] - now[1]), 1));
    tip.hidden = true;
  });
  sheet.addEventListener("pointerleave", () => { tip.hidden = true; });
  sheet.addEventListener("dblclick", () => zoom(0, Infinity));
  sheet.addEventListener("keydown", (event) => {
    const span = view.to - view.from, middle = view.from + span / 2;
    const keys = { ArrowLeft: () => move(-span / 8), ArrowRight: () => move(span / 8), "+": () => zoom(middle, 0.7), "-": () => zoom(middle, 1 / 0.7), 0: () => zoom(0, Infinity) };
    if (keys[event.key]) { event.preventDefault(); keys[event.key](); }
  });
}

// ---- breakdowns and memory ----

function drawParts(figure, parts) {
  const height = 26 * parts.length + 8, svg = canvas(figure, height, "milliseconds of each part");
  const sum = parts.reduce((s, p) => s + p[1], 0), most = Math.max(...parts.map((p) => p[1]), 1e-9);
  const left = 124, right = svg.wide - 118;
  parts.forEach(([name, ms], i) => {
    const y = 6 + 26 * i;
    fit(shape("text", { x: 2, y: y + 14 }, svg, name.replace("_", " ")), left - 8);
    shape("rect", { x: left, y, width: Math.max((Math.max(ms, 0) / most) * (right - left), 0.5), height: 18, fill: colour(i) }, svg);
    shape("text", { class: "quiet", x: svg.wide - 2, y: y + 14, "text-anchor": "end" }, svg, `${ms.toFixed(1)} (${((100 * ms) / sum).toFixed(1)} %)`);
  });
}

function drawMemory() {
  const [rank, at] = data.ranks[chosen ? chosen() : 0], list = data.classes[at].memory, figure = find("memory");
  const parts = ["state", "activations", "working"], steps = Math.max(Math.floor(room(figure)), 100);
  const highest = []; // of each step the values with the largest sum; between events the last ones hold
  for (let i = 0; i < list.length; i += 4) {
    const k = Math.min(Math.floor((list[i] / data.ns) * steps), steps - 1), sum = list[i + 1] + list[i + 2] + list[i + 3];
    if (!highest[k] || sum > highest[k].sum) highest[k] = { sum, values: [list[i + 1], list[i + 2], list[i + 3]] };
  }
  let held = list.length ? [list[1], 0, 0] : [0, 0, 0];
  const points = parts.map(() => []);
  for (let k = 0; k < steps; k++) {
    if (highest[k]) held = highest[k].values;
    let sum = 0;
    held.forEach((v, p) => { sum += v / GIB; points[p].push([(k / steps) * data.ns / 1e6, sum]); });
  }
  const series = parts.map((name, p) => ({ name: p ? `+ ${name}` : name, colour: colour(p), points: points[p], band: points[p].map(([x, v], k) => [x, p ? points[p - 1][k][1] : 0, v]) }));
  const most = points[2].reduce((m, p) => Math.max(m, p[1]), 0);
  lines(figure, { label: `memory of rank ${rank}`, x: `ms, rank ${rank}${data.capacity ? `; the GPU has ${(data.capacity / GIB).toFixed(0)} GiB` : ""}`, y: "GiB", low: 0, high: Math.max(most * 1.06, 1e-3), left: 0, right: data.ns / 1e6, fraction: true, series });
}

// ---- the page ----

// A page opened as page.html#12.5-14 shows these milliseconds first.
const part = /^#([\d.]+)-([\d.]+)$/.exec(location.hash);
if (part && Number(part[2]) > Number(part[1])) {
  view.from = Math.min(Number(part[1]) * 1e6, data.ns);
  view.to = Math.min(Number(part[2]) * 1e6, data.ns);
}
let chosen = null;
const names = data.ranks.map(([rank]) => `rank ${rank}`);
if (data.ranks.length > RANKS)
  top_ = slider(find("controls"), "Shown from: ", names, drawSoon);
if (find("memory") && data.ranks.length > 1) chosen = slider(find("controls"), "Memory of: ", names, () => drawMemory());
start(() => {
  drawTracks();
  drawParts(find("critical"), data.critical);
  if (find("parts")) drawParts(find("parts"), data.parts);
  if (find("memory")) drawMemory();
});
