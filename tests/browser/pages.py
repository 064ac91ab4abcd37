#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""pages.py - opens HTML pages in headless Chromium, in windows of 1280 and 400 pixels, and checks them.

    pages.py [--chromium PATH] [--shot FOLDER] PAGE...

A page fails if its script noted an error, if a figure is empty or if it has none, or if it asks for
anything outside itself. At both widths, measured in the browser: every text is at least 9 px high as
rendered, nothing is wider than the window, its figure or its drawing, no two texts of a drawing
overlap, and axes have at least three ticks (bars: one each if there are fewer). --shot also keeps a
picture of each page and width. Exits with 77 without Chromium.
"""
import argparse
import html
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

SKIPPED = 77
WIDTHS = (1280, 400)

# The page stands in a frame of that width: a window of a browser cannot be that narrow everywhere.
FRAME = """<!DOCTYPE html><meta charset="utf-8"><style>body{margin:0}iframe{border:0;display:block}</style>
<iframe id="frame" width="%d" height="9000" srcdoc="%s"></iframe><script>
const frame = document.getElementById("frame");
function measure() {
  const page = frame.contentDocument, view = frame.contentWindow, found = [];
  const say = (text) => found.push(text);
  const name = (node) => `${node.closest("figure")?.id || "page"} "${node.textContent.trim().slice(0, 40)}"`;
  const wide = page.documentElement.scrollWidth;
  if (wide > %d) say(`is ${wide} pixels wide`);
  const shown = (node) => { const r = node.getBoundingClientRect(); return r.width > 0 && r.height > 0; };
  let smallest = 99;
  const walker = page.createTreeWalker(page.body, NodeFilter.SHOW_TEXT);
  for (let text; (text = walker.nextNode());) {
    const node = text.parentElement;
    if (!text.data.trim() || !shown(node) || node.closest("script, style, title")) continue;
    const matrix = node.getScreenCTM ? node.getScreenCTM() : null;
    const size = parseFloat(view.getComputedStyle(node).fontSize) * (matrix ? Math.hypot(matrix.a, matrix.b) : 1);
    smallest = Math.min(smallest, size);
    if (size < 9) say(`${name(node)} has ${size.toFixed(1)} px`);
    const range = page.createRange();
    range.selectNodeContents(text);
    const box = range.getBoundingClientRect(), outer = (node.closest("svg") || node.closest("figure, table, .tile") || page.body).getBoundingClientRect();
    if (box.left < outer.left - 1 || box.right > outer.right + 1) say(`${name(node)} runs out of its card`);
  }
  for (const node of page.querySelectorAll("figure *")) {
    const box = node.getBoundingClientRect(), card = node.closest("figure").getBoundingClientRect();
    if (box.width && !node.closest("svg svg") && (box.left < card.left - 1 || box.right > card.right + 1)) say(`${name(node)} (${node.tagName}) runs out of its card`);
    if (node.scrollWidth > node.clientWidth + 1 && view.getComputedStyle(node).overflowX !== "visible") say(`${name(node)} (${node.tagName}) is clipped`);
  }
  for (const svg of page.querySelectorAll("figure svg")) {
    const texts = [...svg.querySelectorAll("text")].filter(shown), boxes = texts.map((t) => t.getBoundingClientRect());
    boxes.forEach((a, i) => boxes.slice(0, i).forEach((b, k) => {
      if (Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 3)
        say(`${name(texts[i])} lies over ${name(texts[k])}`);
    }));
    const count = (kind) => svg.querySelectorAll(kind).length;
    const least = Math.min(3, Number(svg.dataset.bars || 3));
    if (count(".tick-x") && count(".tick-x") < least) say(`${svg.getAttribute("aria-label")}: ${count(".tick-x")} ticks on the x axis`);
    if (count(".axis") && count(".tick-y") && count(".tick-y") < 3) say(`${svg.getAttribute("aria-label")}: ${count(".tick-y")} ticks on the y axis`);
  }
  const body = page.body.dataset;
  document.body.dataset.result = JSON.stringify({ error: body.error || null, figures: body.figures || null, height: Math.ceil(page.body.getBoundingClientRect().height), smallest, found });
}
frame.addEventListener("load", () => setTimeout(measure, 1500));
</script>"""


def chromium(path, profile, *arguments):
    # As root the browser has no sandbox; /dev/shm is small in containers.
    command = [path, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
               f"--user-data-dir={profile}", "--virtual-time-budget=6000", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=240)


def complaints(text, width, result):
    if width == WIDTHS[0]:
        for address in re.findall(r"""(?:src|href)=["'](?!data:|#)([^"']*)""", text):
            yield f"asks for {address}"
    if result["error"]:
        yield f"script error: {result['error']}"
    wanted = len(re.findall("<figure", text))
    if wanted == 0:
        yield "has no figure"
    elif result["figures"] is None or int(result["figures"]) != wanted:
        yield f"{result['figures'] or 'none'} of {wanted} figures are drawn"
    yield from list(dict.fromkeys(result["found"]))[:8]


def check(options, profile, folder, page, width):
    text = page.read_text()
    frame = folder / f"{page.stem}-{width}.html"
    frame.write_text(FRAME % (width, html.escape(text), width))
    dom = chromium(options.chromium, profile, "--dump-dom", frame.as_uri()).stdout
    found = re.search(r'<body[^>]*data-result="([^"]*)"', dom)
    if not found:
        return ["was not measured"]
    result = json.loads(html.unescape(found.group(1)))
    print(f"{page.name} at {width}: smallest text {result['smallest']:.1f} px")
    if options.shot:
        os.makedirs(options.shot, exist_ok=True)
        chromium(options.chromium, profile, f"--screenshot={options.shot / page.stem}-{width}.png",
                 f"--window-size={max(width, 500)},{min(result['height'], 8000)}", frame.as_uri())
    return list(complaints(text, width, result))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--chromium", default=shutil.which("chromium") or shutil.which("chromium-browser"))
    parser.add_argument("--shot", type=pathlib.Path)
    parser.add_argument("pages", nargs="+", type=pathlib.Path)
    options = parser.parse_args()
    if not options.chromium:
        print("skipped: no chromium", file=sys.stderr)
        return SKIPPED
    bad = 0
    with tempfile.TemporaryDirectory(prefix="tessera-browser-") as folder:
        for page in options.pages:
            for width in WIDTHS:
                found = check(options, pathlib.Path(folder) / "profile", pathlib.Path(folder), page, width)
                bad += bool(found)
                print(f"{page.name} at {width}: {'; '.join(found) or 'fine'}", flush=True)
        titles = [re.search("<title>(.*?)</title>", page.read_text()).group(1) for page in options.pages]
    for title in {t for t in titles if titles.count(t) > 1}:
        print(f"two pages have the title {title}")
        bad += 1
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
