// The map: nodes that produce, channels with what is derived from them, nodes that consume, and what flows between.

import { h, s, write, mark, addressOf } from "./dom.js";
import { counted, level, node as nodeName, rate, LEVELS, ORDER } from "./format.js";
import { arranged, BOX, curve } from "./layout.js";

const MAX_CHANNELS = 12;
const STAYS = 4; // so many times as busy must another channel be to take the place of one that is shown

const busy = (row) => (ORDER.length - ORDER.indexOf(row.level)) * 1e12 + (row.published_rate ?? 0) * 1000 + row.consumers;

export class ChannelMap {
  constructor() {
    this.shown = new Set();
    this.signature = "";
    this.drawing = s("svg", { class: "map", role: "group", "aria-label": "Map of nodes and channels" });
    this.note = h("p", { class: "muted" });
    this.texts = h("ul");
    this.element = h(
      "div",
      {},
      h("div", { class: "canvas" }, this.drawing),
      this.note,
      h("p", { class: "legend" }, ORDER.map((name) => h("span", { class: `level ${name}`, title: LEVELS[name].why }, level(name)))),
      h("details", { "aria-label": "The map as text" }, h("summary", {}, "The map as text"), this.texts),
    );
    this.rows = [];
    this.nodes = [];
    this.observer = new ResizeObserver(() => this.#draw());
    this.observer.observe(this.element);
  }

  close() {
    this.observer.disconnect();
  }

  update(rows, nodes) {
    const worth = (row) => busy(row) * (this.shown.has(row.channel) ? STAYS : 1);
    const chosen = rows.length > MAX_CHANNELS ? [...rows].sort((a, b) => worth(b) - worth(a)).slice(0, MAX_CHANNELS) : rows;
    this.shown = new Set(chosen.map((row) => row.channel));
    this.rows = [...chosen].sort((a, b) => (a.channel < b.channel ? -1 : 1));
    this.nodes = nodes;
    const hidden = rows.length - chosen.length;
    write(this.note, rows.length ? (hidden ? `The busiest ${MAX_CHANNELS}; ${counted(hidden, "channel")} more in the table below.` : "") : "No channels yet.");
    this.#draw();
    this.#tell();
  }

  #draw() {
    const width = Math.floor(this.element.clientWidth);
    if (!width || !this.rows.length) return this.drawing.replaceChildren();
    const plan = arranged(this.rows, width);
    const signature = JSON.stringify([width, plan.boxes.map((box) => [box.key, box.y]), plan.links.map((link) => link.key)]);
    if (signature !== this.signature) this.#redraw(plan, width);
    this.signature = signature;
    for (const box of plan.boxes) this.#showBox(box);
    for (const link of plan.links) this.#showLink(link);
  }

  #redraw(plan, width) {
    const focused = document.activeElement?.dataset?.key;
    mark(this.drawing, "viewBox", `0 0 ${width} ${plan.height}`);
    mark(this.drawing, "width", width);
    mark(this.drawing, "height", plan.height);
    this.parts = new Map();
    const lines = s("g", { "aria-hidden": "true" });
    for (const link of plan.links) {
      const line = s("path", { d: curve(link), class: "link" });
      const title = s("title");
      line.append(title);
      this.parts.set(link.key, { line, title });
      lines.append(line);
    }
    const heads = plan.headings.map(({ x, text, anchor }) => s("text", { x, y: 12, class: "heading", "text-anchor": anchor }, text));
    this.drawing.replaceChildren(lines, ...heads, ...plan.boxes.map((box) => this.#box(box)));
    if (focused) this.drawing.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
  }

  #box(box) {
    const title = s("title");
    const rect = s("rect", { width: box.width, height: BOX.height, rx: 6 });
    const name = s("text", { x: 10, y: 18, class: "name" });
    const figures = s("text", { x: 10, y: 35, class: "figures" });
    const inner = [title, rect, name, figures];
    const group = box.channel ? s("a", { href: addressOf(box.channel), "data-key": box.key }, inner) : s("g", {}, inner);
    mark(group, "transform", `translate(${box.x} ${box.y})`);
    this.parts.set(box.key, { group, title, name, figures });
    return group;
  }

  #showBox(box) {
    const { group, title, name, figures } = this.parts.get(box.key);
    write(name, fitted(box.name, box.width));
    if (box.kind === "node") {
      const home = this.nodes.find((each) => each.node === box.node);
      const state = home && !home.alive ? "✕ dead" : home?.suspected ? "? suspected" : "";
      mark(group, "class", `box node ${state ? "blocked" : ""}`);
      write(figures, fitting(box.width, state || `${counted(box.ends, box.what)}, ${rate(box.rate)}`, state || rate(box.rate)));
      write(title, `node ${nodeName(box.node)}: ${counted(box.ends, box.what)}, ${rate(box.rate)}${state && `, ${state}`}`);
      return;
    }
    mark(group, "class", `box channel level ${box.level}`);
    const brief = `${LEVELS[box.level].sign} ${rate(box.rate)}`;
    const isWell = box.level === "flowing" || box.level === "idle";
    write(figures, fitting(box.width, isWell ? brief : `${level(box.level)} ${rate(box.rate)}`, brief));
    const modulator = box.modulator ? `, derived by ${box.modulator}` : "";
    write(title, `${box.channel}${modulator}: ${LEVELS[box.level].word}, ${rate(box.rate)}`);
    mark(group, "aria-label", title.textContent);
  }

  #showLink(link) {
    const { line, title } = this.parts.get(link.key);
    mark(line, "class", `link ${link.kind} ${link.rate ? "moves" : "rests"} ${link.level}`);
    line.style.strokeWidth = `${1.5 + Math.log10(1 + (link.rate ?? 0)) * 0.7}px`;
    line.style.animationDuration = `${Math.max(0.3, 2 - Math.log10(1 + (link.rate ?? 0)) * 0.35).toFixed(1)}s`;
    write(title, `${link.text}: ${rate(link.rate)}`);
  }

  #tell() {
    const texts = this.rows.flatMap((row) => [told(row.channel, row.edges, row), ...row.branches.map((each) => told(`${each.channel}, derived from ${each.parent} by ${each.modulator}`, each.edges, null))]);
    if (this.texts.dataset.shown === texts.join("\n")) return;
    this.texts.dataset.shown = texts.join("\n");
    this.texts.replaceChildren(...texts.map((text) => h("li", {}, text)));
  }
}

function told(name, edges, row) {
  const list = (kind, what) =>
    edges
      .filter((edge) => edge.kind === kind)
      .map((edge) => `${counted(edge.ends, what)} on node ${nodeName(edge.node)} (${rate(edge.rate)})`)
      .join(", ") || `no ${what}s`;
  const state = row ? ` is ${LEVELS[row.level].word}` : "";
  return `${name}${state}: from ${list("produces", "producer")} to ${list("consumes", "consumer")}`;
}

const roomIn = (width) => Math.floor((width - 18) / 7.2); // characters

function fitting(width, text, shorter) {
  return text.length <= roomIn(width) ? text : fitted(shorter, width);
}

function fitted(text, width) {
  const room = roomIn(width);
  return text.length <= room ? text : `${text.slice(0, Math.max(1, room - 1))}…`;
}
