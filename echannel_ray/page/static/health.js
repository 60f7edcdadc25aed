// Nodes and parts of the namespace: who answers, who is suspected, how often each was restarted.

import { h, write, mark } from "./dom.js";
import { count, counted, node as nodeName } from "./format.js";

/** What is wrong, in sentences. */
export function troubles(nodes, parts) {
  const found = [];
  for (const part of parts) if (part.error) found.push(`✕ ${part.kind} ${part.name} does not answer: ${part.error}`);
  for (const each of nodes) {
    if (!each.alive) found.push(`✕ node ${nodeName(each.node)} is dead`);
    else if (each.suspected) found.push(`? node ${nodeName(each.node)} is suspected: it has been silent for more than a second`);
  }
  const silent = parts.reduce((total, part) => total + part.suspected, 0);
  if (silent) found.push(`? ${counted(silent, "process", "es")} suspected: silent for more than a second`);
  return found;
}

function stateOf(part, nodes) {
  if (part.error) return ["✕ does not answer", "blocked"];
  const home = nodes.find((each) => each.node === part.node);
  if (home && !home.alive) return ["✕ node is dead", "blocked"];
  if (part.kind === "concentrator" && home?.suspected) return ["? suspected", "behind"];
  if (part.suspected) return [`? ${counted(part.suspected, "process", "es")} suspected`, "behind"];
  return ["● answers", "flowing"];
}

const COLUMNS = ["Part", "State", "Restarts", "Node", "Process", "What it has"];

export class Health {
  constructor() {
    this.rows = new Map();
    this.nodes = h("ul", { class: "nodes", "aria-label": "Nodes" });
    this.body = h("tbody");
    const heads = COLUMNS.map((name) => h("th", { scope: "col", class: name === "Restarts" || name === "Process" ? "number" : "" }, name));
    this.element = h(
      "div",
      {},
      this.nodes,
      h(
        "div",
        { class: "scrolls", role: "region", "aria-label": "Parts, scrollable", tabindex: "0" },
        h("table", { class: "parts" }, h("caption", {}, "Parts of the namespace"), h("thead", {}, h("tr", {}, heads)), this.body),
      ),
    );
  }

  update(nodes, parts) {
    const texts = nodes.map((each) => {
      const state = !each.alive ? "✕ dead" : each.suspected ? "? suspected" : each.joined ? "● joined" : "○ without a concentrator";
      return `node ${nodeName(each.node)}: ${state}, ${counted(each.processes, "process", "es")}`;
    });
    if (this.nodes.dataset.shown !== texts.join()) {
      this.nodes.dataset.shown = texts.join();
      this.nodes.replaceChildren(...texts.map((text) => h("li", {}, text)));
    }
    const present = new Set(parts.map((part) => part.name));
    for (const [name, row] of this.rows) {
      if (present.has(name)) continue;
      row.remove();
      this.rows.delete(name);
    }
    for (const part of parts) this.#show(part, nodes);
  }

  #show(part, nodes) {
    let row = this.rows.get(part.name);
    if (!row) {
      row = h("tr", { "data-part": part.name }, h("th", { scope: "row" }), ...COLUMNS.slice(1).map(() => h("td")));
      this.rows.set(part.name, row);
      this.body.append(row);
    }
    const [state, kind] = stateOf(part, nodes);
    const [name, how, restarts, where, pid, facts] = row.children;
    write(name, part.kind === "concentrator" ? "concentrator" : part.name.replace(/^.*:/, ""));
    write(how, state);
    mark(how, "class", `level ${kind}`);
    write(where, nodeName(part.node));
    write(restarts, part.error ? "–" : count(part.restarts));
    mark(restarts, "class", "number restarts");
    write(pid, part.pid ? String(part.pid) : "–");
    mark(pid, "class", "number");
    write(facts, part.error ?? part.facts);
  }
}
