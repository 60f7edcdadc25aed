// One channel: figures, charts, who is connected, what is derived from it, a tap.

import { h, write, mark } from "./dom.js";
import { brief, bytes, count, counted, level, LEVELS, node as nodeName, percent, rate, seconds } from "./format.js";
import { Chart } from "./chart.js";
import { Tap } from "./tap.js";
import { DerivationTree } from "./tree.js";

const FIELDS = ["published_rate", "delivered_rate", "dropped_rate", "p50", "p99", "packing"]; // as the server's history has them
const MAX_POINTS = 300;
const FIGURES = {
  Published: (row) => count(row.published),
  Delivered: (row) => count(row.delivered),
  Lag: (row) => `${count(row.lag)} events`,
  Dropped: (row) => count(row.dropped) + Object.entries(row.drops).map(([why, number]) => `; ${count(number)} ${why.replaceAll("_", " ")}`).join(""),
  Failed: (row) => count(row.failed),
  "Data in": (row) => rate_of_bytes(row.bytes_rate),
  "Producers blocked": (row) => `${count(row.blocked)} of ${count(row.producers)}, ${percent(row.blocked_share)} of the time`,
  "Saved by modulators": (row) => bytes(row.saved_bytes),
};

const rate_of_bytes = (value) => (value === null ? "–" : `${bytes(value)}/s`);

export class ChannelView {
  constructor(feed, channel) {
    Object.assign(this, { feed, channel, title: channel });
    this.points = [];
    this.charts = [
      new Chart("Events", [["published", 1], ["delivered", 2], ["dropped", 3]], rate),
      new Chart("Latency", [["p50", 4], ["p99", 5]], seconds),
      new Chart("Packing degree", [["events in a pack", 6]], brief),
    ];
    this.tap = new Tap(channel);
    this.tree = new DerivationTree(channel);
    this.heading = h("h1", { tabindex: "-1" }, channel);
    this.state = h("p", { class: "level" });
    this.values = new Map();
    const figures = h("dl", { class: "figures" });
    for (const name of Object.keys(FIGURES)) {
      const value = h("dd", { "data-figure": name }, "–");
      this.values.set(name, value);
      figures.append(h("div", {}, h("dt", {}, name), value));
    }
    this.ends = h("tbody");
    this.element = h(
      "div",
      {},
      h("p", {}, h("a", { href: "#/channels" }, "← All channels")),
      this.heading,
      this.state,
      h("section", { "aria-label": "Figures" }, figures),
      section("The last minutes", h("div", { class: "charts" }, this.charts.map((chart) => chart.element))),
      section("Derived channels", this.tree.element),
      section("Live tap", this.tap.element),
      section("Producers and consumers", h("div", { class: "scrolls", role: "region", tabindex: "0", "aria-label": "Producers and consumers, scrollable" }, endsTable(this.ends))),
    );
    this.observer = new ResizeObserver(() => this.#draw());
    this.observer.observe(this.element);
    this.#recall();
  }

  focus() {
    this.heading.focus();
  }

  close() {
    this.tap.stop();
    this.observer.disconnect();
  }

  /** What was before this page was opened. */
  async #recall() {
    try {
      const answer = await fetch(`/api/history?channel=${encodeURIComponent(this.channel)}`);
      if (!answer.ok) return;
      const { points } = await answer.json();
      const first = this.points[0]?.[0] ?? Infinity;
      this.points = [...points.filter(([at]) => at < first), ...this.points];
      this.#draw();
    } catch {
      // the line at the top says that the connection is lost
    }
  }

  update() {
    const row = this.feed.rows.get(this.channel);
    if (!row) {
      mark(this.state, "class", "muted");
      const missing = "There is no such channel (any more). What is below is the last that was known.";
      return write(this.state, this.feed.at ? missing : "No data yet.");
    }
    mark(this.state, "class", `level ${row.level}`);
    write(this.state, `${level(row.level)}: ${LEVELS[row.level].why}. Events are ${row.event_type ?? "of any type"}.`);
    for (const [name, text] of Object.entries(FIGURES)) write(this.values.get(name), text(row));
    if (this.points.at(-1)?.[0] !== this.feed.at) this.points.push([this.feed.at, ...FIELDS.map((field) => row[field])]);
    this.points = this.points.slice(-MAX_POINTS);
    this.#draw();
    this.tree.update(row);
    this.#list(row);
  }

  #draw() {
    for (const chart of this.charts) chart.update(this.points, this.feed.every);
  }

  #list(row) {
    const all = [[row.channel, row.edges], ...row.branches.map((each) => [each.channel, each.edges])];
    const lines = all.flatMap(([name, edges]) =>
      edges.map((edge) => {
        const isProducer = edge.kind === "produces";
        const waits = isProducer ? (edge.blocked ? `■ ${count(edge.blocked)} blocked` : "") : edge.queue ? `${counted(edge.queue, "event")} queued` : "";
        return [nodeName(edge.node), name, counted(edge.ends, isProducer ? "producer" : "consumer"), rate(edge.rate), waits];
      }),
    );
    if (!lines.length) lines.push(["–", row.channel, "nobody is connected", "–", ""]);
    while (this.ends.children.length > lines.length) this.ends.lastChild.remove();
    lines.forEach((texts, i) => {
      const line = this.ends.children[i] ?? this.ends.appendChild(h("tr", {}, h("th", { scope: "row" }), h("td"), h("td"), h("td", { class: "number" }), h("td")));
      texts.forEach((text, column) => write(line.children[column], text));
    });
  }
}

let sections = 0;

function section(name, content) {
  const id = `section-${(sections += 1)}`;
  return h("section", { "aria-labelledby": id }, h("h2", { id }, name), content);
}

function endsTable(body) {
  const heads = ["Node", "Channel", "Who", "Rate", "What waits"].map((name) => h("th", { scope: "col", class: name === "Rate" ? "number" : "" }, name));
  return h("table", {}, h("caption", { class: "visually-hidden" }, "Producers and consumers by node"), h("thead", {}, h("tr", {}, heads)), body);
}
