// Where things are on the map. Numbers in, numbers out: nothing here draws.

import { node as nodeName } from "./format.js";

export const BOX = { height: 44, gap: 14, top: 24 };
const INDENT = 16;

/** Boxes and links of some channels on a map of this width, and its height. */
export function arranged(rows, width) {
  const side = Math.max(84, Math.min(170, width * 0.23));
  const middle = Math.max(96, Math.min(320, width - 2 * side - (width < 600 ? 44 : 160)));
  const x = { produces: 0, channel: (width - middle) / 2, consumes: width - side };
  const boxes = [];
  const links = [];
  const ends = { produces: new Map(), consumes: new Map() };
  const step = BOX.height + BOX.gap;

  const place = (channel, parent, depth, facts) => {
    const indent = Math.min(depth, 3) * INDENT;
    const y = BOX.top + boxes.length * step;
    boxes.push({ kind: "channel", key: `channel ${channel}`, channel, x: x.channel + indent, y, width: middle - indent, ...facts });
    if (parent) links.push({ key: `derived ${channel}`, kind: "derives", from: `channel ${parent}`, to: `channel ${channel}`, rate: facts.rate, level: "", text: `derived by ${facts.modulator}` });
    for (const edge of facts.edges) {
      const there = ends[edge.kind].get(edge.node) ?? { ends: 0, rate: 0 };
      ends[edge.kind].set(edge.node, { ends: there.ends + edge.ends, rate: there.rate + (edge.rate ?? 0) });
      const [from, to] = [`${edge.kind} ${edge.node}`, `channel ${channel}`];
      const isProducer = edge.kind === "produces";
      links.push({
        key: `${from} ${to}`,
        kind: edge.kind,
        from: isProducer ? from : to,
        to: isProducer ? to : from,
        rate: edge.rate,
        level: edge.blocked ? "blocked" : edge.queue > Math.max(100, edge.rate ?? 0) ? "behind" : "flowing",
        text: isProducer ? `${edge.ends} producers, ${edge.blocked} wait` : `${edge.ends} consumers, ${edge.queue} events queued`,
      });
    }
  };
  for (const row of rows) {
    place(row.channel, null, 0, { name: row.channel, level: row.level, rate: row.published_rate, edges: row.edges });
    const depths = new Map([[row.channel, 0]]);
    for (const each of row.branches) {
      depths.set(each.channel, (depths.get(each.parent) ?? 0) + 1);
      const level = each.out_rate ? "flowing" : "idle";
      const name = each.modulator || each.channel;
      place(each.channel, each.parent, depths.get(each.channel), { name, modulator: each.modulator, level, rate: each.out_rate, edges: each.edges });
      boxes.at(-1).channel = row.channel; // whose page has its tree
    }
  }
  const tall = Math.max(boxes.length, ends.produces.size, ends.consumes.size) * step - BOX.gap;
  for (const kind of ["produces", "consumes"]) {
    const count = ends[kind].size;
    [...ends[kind]].sort().forEach(([node, facts], i) => {
      const y = BOX.top + ((i + 0.5) / count) * tall - BOX.height / 2;
      const what = kind === "produces" ? "producer" : "consumer";
      boxes.push({ kind: "node", key: `${kind} ${node}`, node, name: nodeName(node), what, x: x[kind], y, width: side, ...facts });
    });
  }
  const at = new Map(boxes.map((box) => [box.key, box]));
  for (const link of links) Object.assign(link, { start: at.get(link.from), end: at.get(link.to) });
  const headings = [
    { x: 0, text: "producing nodes", anchor: "start" },
    { x: width / 2, text: "channels", anchor: "middle" },
    { x: width, text: "consuming nodes", anchor: "end" },
  ];
  return { boxes, links: links.filter((link) => link.start && link.end), headings, height: BOX.top + tall + 4 };
}

/** The path of a link. */
export function curve({ kind, start, end }) {
  if (kind === "derives") {
    const x = start.x + INDENT / 2;
    return `M ${x} ${start.y + BOX.height} V ${end.y + BOX.height / 2} H ${end.x}`;
  }
  const [x1, y1] = [start.x + start.width, start.y + BOX.height / 2];
  const [x2, y2] = [end.x, end.y + BOX.height / 2];
  const bend = (x2 - x1) / 2;
  return `M ${x1} ${y1} C ${x1 + bend} ${y1}, ${x2 - bend} ${y2}, ${x2} ${y2}`;
}
