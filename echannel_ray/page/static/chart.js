// A chart of some lines over the last minutes, with axes, and the same in words.

import { h, s, write, mark } from "./dom.js";

const HEIGHT = 170;
const EDGE = { left: 62, right: 10, top: 12, bottom: 24 };
const SPAN_SECONDS = 300;

/** Round numbers from 0 to at least `most`. */
export function ticks(most) {
  if (!(most > 0)) return [0, 1];
  const rough = most / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].find((each) => each * power >= rough) * power;
  const count = Math.ceil(most / step - 1e-9);
  return Array.from({ length: count + 1 }, (_, i) => i * step);
}

/** Runs of points without a hole: who looks away leaves one. */
export function unbroken(points, longest) {
  const runs = [];
  let before = null;
  for (const [at, value] of points) {
    if (value === null || value === undefined) before = null;
    else {
      if (before === null || at - before > longest) runs.push([]);
      runs.at(-1).push([at, value]);
      before = at;
    }
  }
  return runs;
}

export class Chart {
  /** `lines` are pairs of a name and the place of its value in a point; `format` makes texts of values. */
  constructor(title, lines, format) {
    Object.assign(this, { title, lines, format });
    this.drawing = s("svg", { class: "chart", role: "img", height: HEIGHT });
    this.empty = h("p", { class: "muted" }, "No data yet.");
    const key = lines.map(([name], i) => h("span", { class: `key line-${i}` }, s("svg", { width: 26, height: 8, "aria-hidden": "true" }, s("path", { d: "M 0 4 H 26" })), ` ${name} `, h("b", {}, "–")));
    this.values = key.map((each) => each.querySelector("b"));
    this.element = h("figure", { "aria-label": title }, h("figcaption", {}, h("h3", {}, title), h("span", { class: "keys" }, key)), this.empty, this.drawing);
  }

  /** `points` begin with a time in seconds, the oldest first; `every` is how far they should be apart. */
  update(points, every) {
    const width = Math.floor(this.element.clientWidth);
    const last = points.at(-1);
    const isKnown = points.some((point) => this.lines.some(([, place]) => point[place] !== null));
    this.empty.hidden = isKnown;
    mark(this.drawing, "visibility", isKnown ? "visible" : "hidden");
    if (!isKnown || !width) return;
    const now = last[0];
    const span = Math.min(SPAN_SECONDS, Math.max(60, now - points[0][0]));
    const recent = points.filter(([at]) => at >= now - span);
    const series = this.lines.map(([, place]) => recent.map((point) => [point[0], point[place]]));
    const known = series.flat().map(([, value]) => value ?? 0);
    const marks = ticks(Math.max(...known));
    const [x, y] = scales(width, span, now, marks.at(-1));
    mark(this.drawing, "viewBox", `0 0 ${width} ${HEIGHT}`);
    mark(this.drawing, "width", width);
    this.drawing.replaceChildren(
      ...marks.flatMap((value) => [
        s("path", { class: "grid", d: `M ${EDGE.left} ${y(value)} H ${width - EDGE.right}` }),
        s("text", { x: EDGE.left - 6, y: y(value) + 4, "text-anchor": "end" }, this.format(value)),
      ]),
      ...[span, span / 2, 0].map((ago, i) =>
        s("text", { x: x(now - ago), y: HEIGHT - 6, "text-anchor": ["start", "middle", "end"][i] }, ago ? `${Math.round(ago)} s ago` : "now"),
      ),
      ...series.flatMap((line, i) => unbroken(line, Math.max(5, 3 * every)).map((run) => drawn(run, i, x, y))),
    );
    this.#tell(series);
  }

  #tell(series) {
    const words = series.map((line, i) => {
      const values = line.map(([, value]) => value).filter((value) => value !== null && value !== undefined);
      const [name] = this.lines[i];
      const now = line.at(-1)[1];
      write(this.values[i], this.format(now));
      if (!values.length) return `${name} is unknown`;
      return `${name} now ${this.format(now)}, from ${this.format(Math.min(...values))} to ${this.format(Math.max(...values))}`;
    });
    mark(this.drawing, "aria-label", `${this.title}: ${words.join("; ")}`);
  }
}

function scales(width, span, now, most) {
  return [
    (at) => EDGE.left + (1 - (now - at) / span) * (width - EDGE.left - EDGE.right),
    (value) => HEIGHT - EDGE.bottom - (value / most) * (HEIGHT - EDGE.bottom - EDGE.top),
  ];
}

function drawn(run, number, x, y) {
  if (run.length === 1) return s("circle", { class: `dot line-${number}`, cx: x(run[0][0]), cy: y(run[0][1]), r: 2.5 });
  return s("path", { class: `line line-${number}`, d: run.map(([at, value], i) => `${i ? "L" : "M"} ${x(at).toFixed(1)} ${y(value).toFixed(1)}`).join(" ") });
}
