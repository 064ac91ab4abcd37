// mix.js - the page of a mixture plan: imbalance by step, sizes of clips, what each rank of a step has.
"use strict";
const find = (id) => document.getElementById(id);
const sizeName = ([least, most]) => (least === most ? `${short(most)} tokens` : `${short(least)} to ${short(most)} tokens`);

function drawImbalance() {
  if (!find("imbalance")) return;
  const series = [{ name: "before", colour: "var(--before)", points: data.before }, { name: "planned", colour: "var(--after)", points: data.after }];
  const high = Math.max(...data.before.map((p) => p[1]), ...data.after.map((p) => p[1]));
  lines(find("imbalance"), { label: "imbalance by step", x: "step", y: "imbalance: slowest rank / mean", series, low: 1, high: Math.max(high * 1.02, 1.01) });
}

function drawSizes() {
  const table = find("sizes").querySelector("table");
  table.replaceChildren();
  const line = (tag, cells) => { const row = element("tr", {}, table); cells.forEach((cell) => element(tag, {}, row, String(cell))); };
  line("th", ["tokens", "clips", "cut"]);
  for (const [least, most, clips, cut] of data.sizes) line("td", [least === most ? most : `${least}-${most}`, clips, cut]);
}

function drawTimes(ranks) {
  const mean = ranks.reduce((sum, r) => sum + r[0] + r[1], 0) / ranks.length || 1, unit = data.timed ? 1e6 : 1e12, name = data.timed ? "ms" : "TFLOP";
  const kinds = [{ name: "own work", colour: "var(--after)" }, { name: "exchanges of cut clips", colour: "var(--warn)" }];
  const list = ranks.map((r, i) => ({ label: i * data.each_rank, parts: kinds.map((kind, k) => ({
    value: r[k] / unit, colour: kind.colour, title: `rank ${i * data.each_rank}: ${short(r[k] / unit)} ${name}, ${kind.name}` })) }));
  bars(find("times"), { label: "time of each rank", x: "rank", y: `${name}; mean dashed`, bars: list, mean: mean / unit });
  if (data.timed) legend(find("times"), kinds);
}

function drawTokens(ranks) {
  const list = ranks.map((r, i) => ({ label: i * data.each_rank, parts: [] })), there = new Set();
  ranks.forEach((r, i) => {
    for (let k = 0; k < r[3].length; k += 4) {
      const [size, whole, tokens, cut] = r[3].slice(k, k + 4), name = sizeName(data.sizes[size]);
      const said = [whole ? `${whole} of ${name}` : "", cut ? `${short(cut)} tokens of cut ones of ${name}` : ""];
      there.add(size);
      list[i].parts.push({ value: tokens + cut, colour: colour(size), title: `rank ${i * data.each_rank}: ${said.filter((s) => s).join(", ")}` });
    }
  });
  bars(find("tokens"), { label: "tokens of each rank by size of clips", x: "rank", y: "tokens", bars: list });
  const names = [...there].sort((a, b) => a - b);
  legend(find("tokens"), names.map((size) => ({ name: sizeName(data.sizes[size]), colour: colour(size) })));
}

function drawMemory(ranks) {
  const list = ranks.map((r, i) => ({ label: i * data.each_rank, parts: [{ value: r[2] / 2 ** 30, colour: "var(--after)", title: `rank ${i * data.each_rank}: ${short(r[2] / 2 ** 30)} GiB` }] }));
  bars(find("memory"), { label: "memory of each rank", x: "rank", y: "GiB", bars: list });
}

function drawStep() {
  const { ranks } = data.steps[chosen()];
  drawTimes(ranks);
  drawTokens(ranks);
  drawMemory(ranks);
}

const chosen = data.steps.length > 1 ? slider(find("controls"), "Step", data.steps.map((s) => s.step), drawStep) : () => 0;
start(() => {
  drawImbalance();
  drawSizes();
  drawStep();
});
