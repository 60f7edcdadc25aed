// What is derived from a channel, and from that, and what each modulator keeps from travelling.

import { h, write, mark } from "./dom.js";
import { bytes, count, counted, percent, rate } from "./format.js";

export class DerivationTree {
  constructor(channel) {
    this.channel = channel;
    this.signature = null;
    this.element = h("div", { class: "tree" });
  }

  update(row) {
    const signature = JSON.stringify(row.branches.map((each) => [each.channel, each.parent]));
    if (signature !== this.signature) this.#build(row);
    this.signature = signature;
    const most = Math.max(1, ...row.branches.map((each) => each.saved_bytes));
    for (const each of row.branches) this.#show(each, most);
  }

  #build(row) {
    this.lines = new Map();
    if (!row.branches.length) return this.element.replaceChildren(h("p", { class: "muted" }, "Nothing is derived from it."));
    const root = h("li", {}, h("span", { class: "name" }, this.channel));
    const items = new Map([[this.channel, root]]);
    for (const each of row.branches) {
      const parts = {
        figures: h("span"),
        saved: h("span", { class: "saved" }),
        meter: h("meter", { min: 0, max: 1, value: 0, "aria-label": `bytes saved by ${each.modulator}, beside its siblings` }),
      };
      const name = h("span", { class: "name" }, each.modulator || "(unnamed)");
      const item = h("li", {}, name, h("span", { class: "muted" }, ` ${each.channel} `), parts.figures, parts.meter, parts.saved);
      this.lines.set(each.channel, parts);
      items.set(each.channel, item);
      const parent = items.get(each.parent) ?? root;
      let list = parent.querySelector(":scope > ul");
      if (!list) parent.append((list = h("ul")));
      list.append(item);
    }
    this.element.replaceChildren(h("ul", {}, root));
  }

  #show(each, most) {
    const { figures, saved, meter } = this.lines.get(each.channel);
    const passed = each.events_in ? `, ${percent(each.events_out / each.events_in)} passed` : "";
    const errors = each.errors ? `, ✕ ${counted(each.errors, "error")}` : "";
    write(figures, `${rate(each.in_rate)} in, ${rate(each.out_rate)} out${passed}, ${counted(each.consumers, "consumer")}${errors}`);
    write(saved, `${bytes(each.saved_bytes)} saved`);
    mark(saved, "title", `${count(each.saved_bytes)} bytes`);
    mark(meter, "value", each.saved_bytes / most);
  }
}
