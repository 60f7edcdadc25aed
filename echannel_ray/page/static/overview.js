// The whole namespace: what there is in a line, the map, the table of channels, the health of the parts.

import { h, write, mark, addressOf } from "./dom.js";
import { count, counted, rate, LEVELS } from "./format.js";
import { ChannelMap } from "./map.js";
import { ChannelTable } from "./channels.js";
import { Health, troubles } from "./health.js";

const sum = (rows, field) => rows.reduce((total, row) => total + (row[field] ?? 0), 0);

export class Overview {
  title = "Overview";

  constructor(feed) {
    this.feed = feed;
    this.map = new ChannelMap();
    this.table = new ChannelTable();
    this.health = new Health();
    this.figures = h("dl", { class: "figures" });
    this.verdict = h("div", { class: "verdict" });
    this.values = new Map();
    for (const name of ["Nodes", "Channels", "Producers", "Consumers", "Published", "Delivered", "Events behind", "Events dropped"]) {
      const value = h("dd", {}, "–");
      this.values.set(name, value);
      this.figures.append(h("div", {}, h("dt", {}, name), value));
    }
    this.headings = {};
    this.element = h(
      "div",
      {},
      h("h1", { class: "visually-hidden" }, "Overview"),
      h("section", { "aria-label": "Summary" }, this.verdict, this.figures),
      this.#section("map", "Map", this.map.element),
      this.#section("channels", "Channels", this.table.element),
      this.#section("health", "Health", this.health.element),
    );
  }

  #section(key, heading, content) {
    this.headings[key] = h("h2", { id: `heading-${key}`, tabindex: "-1" }, heading);
    return h("section", { "aria-labelledby": `heading-${key}` }, this.headings[key], content);
  }

  focus(section) {
    const heading = this.headings[section ?? "map"];
    heading.focus();
    heading.scrollIntoView();
  }

  close() {
    this.map.close();
  }

  update() {
    const { feed } = this;
    if (!feed.at) return write(this.verdict, "No data yet.");
    const rows = [...feed.rows.values()];
    const figures = {
      Nodes: count(feed.nodes.filter((node) => node.alive).length),
      Channels: count(rows.length),
      Producers: count(sum(rows, "producers")),
      Consumers: count(sum(rows, "consumers")),
      Published: rate(sum(rows, "published_rate")),
      Delivered: rate(sum(rows, "delivered_rate")),
      "Events behind": count(sum(rows, "lag")),
      "Events dropped": count(sum(rows, "dropped")),
    };
    for (const [name, value] of Object.entries(figures)) write(this.values.get(name), value);
    this.#judge(rows);
    this.map.update(rows, feed.nodes);
    this.table.update(rows);
    this.health.update(feed.nodes, feed.parts);
  }

  /** What is wrong, first of all. */
  #judge(rows) {
    const found = troubles(this.feed.nodes, this.feed.parts).map((text) => h("li", {}, text));
    for (const level of ["blocked", "dropping", "failing", "behind"]) {
      const those = rows.filter((row) => row.level === level);
      if (!those.length) continue;
      const links = those.slice(0, 5).flatMap((row, i) => [i ? ", " : "", h("a", { href: addressOf(row.channel) }, row.channel)]);
      const more = those.length > 5 ? ` and ${count(those.length - 5)} more` : "";
      const what = `${LEVELS[level].sign} ${counted(those.length, "channel")} ${LEVELS[level].word} (${LEVELS[level].why}): `;
      found.push(h("li", { class: `level ${level}` }, what, ...links, more));
    }
    const now = found.map((item) => item.textContent).join("\n") || (rows.length ? "well" : "empty");
    if (now === this.verdict.dataset.shown) return;
    this.verdict.dataset.shown = now;
    mark(this.verdict, "data-well", !found.length);
    if (found.length) this.verdict.replaceChildren(h("ul", {}, ...found));
    else write(this.verdict, rows.length ? "✓ All is well: every part answers, no channel is held up." : "No channels yet: the namespace is empty.");
  }
}
