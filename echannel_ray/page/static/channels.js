// The table of channels: sorted by what was asked for, in place, so that focus and selection stay where they are.

import { h, write, mark, addressOf } from "./dom.js";
import { brief, count, rate, seconds, level, ORDER } from "./format.js";

const MAX_SHOWN = 200;
const COLUMNS = [
  { name: "Channel", key: (row) => row.channel, rising: true },
  { name: "State", key: (row) => ORDER.indexOf(row.level), text: (row) => level(row.level), rising: true },
  { name: "In", key: (row) => row.published_rate ?? -1, text: (row) => rate(row.published_rate), number: true },
  { name: "Out", key: (row) => row.delivered_rate ?? -1, text: (row) => rate(row.delivered_rate), number: true },
  { name: "Lag", key: (row) => row.lag, text: (row) => count(row.lag), number: true, title: "events published and not handled yet" },
  { name: "Drops", key: (row) => row.dropped, text: (row) => count(row.dropped), number: true, title: "events dropped, since it was created" },
  { name: "p99", key: (row) => row.p99 ?? -1, text: (row) => seconds(row.p99), number: true, title: "latency, from publish to the handler" },
  { name: "Packing", key: (row) => row.packing ?? -1, text: (row) => brief(row.packing), number: true, minor: true, title: "events in a pack" },
  { name: "Producers", key: (row) => row.producers, text: (row) => count(row.producers), number: true, minor: true },
  { name: "Consumers", key: (row) => row.consumers, text: (row) => count(row.consumers), number: true, minor: true },
  { name: "Type", key: (row) => row.event_type ?? "", text: (row) => row.event_type ?? "untyped", rising: true, minor: true },
];

function compared(column, isRising) {
  return (one, other) => {
    const [a, b] = [column.key(one), column.key(other)];
    const order = a < b ? -1 : a > b ? 1 : 0;
    return (isRising ? order : -order) || (one.channel < other.channel ? -1 : 1);
  };
}

const classOf = (column) => [column.number && "number", column.minor && "minor"].filter(Boolean).join(" ");

export class ChannelTable {
  constructor() {
    this.lines = new Map();
    this.data = [];
    this.sorted = COLUMNS[1]; // the worst first
    this.isRising = true;
    this.body = h("tbody");
    this.note = h("p", { class: "muted" });
    this.filter = h("input", { type: "search", id: "filter", autocomplete: "off", spellcheck: "false", oninput: () => this.#show(true) });
    this.heads = COLUMNS.map((column) => {
      const button = h("button", { type: "button", title: column.title, onclick: () => this.#sortBy(column) }, column.name);
      return h("th", { scope: "col", class: classOf(column) }, button);
    });
    this.table = h(
      "table",
      { class: "channels" },
      h("caption", { class: "visually-hidden" }, "Channels; the buttons in the first row sort them"),
      h("thead", {}, h("tr", {}, this.heads)),
      this.body,
    );
    this.element = h(
      "div",
      {},
      h("p", { class: "tools" }, h("label", { for: "filter" }, "Find a channel"), " ", this.filter),
      h("div", { class: "scrolls", role: "region", "aria-label": "Channels, scrollable", tabindex: "0" }, this.table),
      this.note,
    );
    this.#markSorted();
  }

  update(rows) {
    this.data = rows;
    // Nothing moves away below a pointer or from under the focus; figures change all the same.
    this.#show(!this.table.matches(":hover, :focus-within"));
  }

  #sortBy(column) {
    this.isRising = this.sorted === column ? !this.isRising : Boolean(column.rising);
    this.sorted = column;
    this.#markSorted();
    this.#show(true);
  }

  #markSorted() {
    COLUMNS.forEach((column, i) => {
      if (column === this.sorted) mark(this.heads[i], "aria-sort", this.isRising ? "ascending" : "descending");
      else this.heads[i].removeAttribute("aria-sort");
    });
  }

  #show(mayMove) {
    const wanted = this.filter.value.toLowerCase();
    const found = this.data.filter((row) => row.channel.toLowerCase().includes(wanted));
    found.sort(compared(this.sorted, this.isRising));
    let shown = found.slice(0, MAX_SHOWN);
    if (!mayMove) {
      const present = new Map(found.map((row) => [row.channel, row]));
      const kept = [...this.lines.keys()].filter((name) => present.has(name)).map((name) => present.get(name));
      const isKept = new Set(kept);
      shown = [...kept, ...shown.filter((row) => !isKept.has(row))].slice(0, MAX_SHOWN);
    }
    const names = new Set(shown.map((row) => row.channel));
    for (const [name, line] of this.lines) if (!names.has(name)) line.remove();
    const before = this.lines;
    this.lines = new Map();
    shown.forEach((row, i) => {
      const line = before.get(row.channel) ?? this.#line(row.channel);
      this.lines.set(row.channel, line);
      this.#fill(line, row);
      if (this.body.children[i] !== line) this.body.insertBefore(line, this.body.children[i] ?? null);
    });
    const all = `${count(found.length)} of ${count(this.data.length)} channels`;
    const some = found.length > MAX_SHOWN ? `The first ${MAX_SHOWN} of ${count(found.length)} channels` : "";
    write(this.note, !this.data.length ? "No channels yet." : some || (wanted ? all : ""));
  }

  #line(channel) {
    const [, ...others] = COLUMNS;
    return h(
      "tr",
      {},
      h("th", { scope: "row" }, h("a", { href: addressOf(channel) }, channel)),
      others.map((column) => h("td", { class: classOf(column) })),
    );
  }

  #fill(line, row) {
    COLUMNS.forEach((column, i) => {
      if (column.text) write(line.children[i], column.text(row));
    });
    mark(line.children[1], "class", `level ${row.level}`);
    mark(line.children[5], "class", row.dropped ? "number level dropping" : "number");
  }
}
