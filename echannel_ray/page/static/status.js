// How fresh the figures are: always said, announced only when it changes.

import { write, mark } from "./dom.js";

const LATE = 3; // rounds
const clock = (at) => new Date(at * 1000).toLocaleTimeString("en-GB");

/** What the line at the top says: its kind, and the words. */
export function described(feed) {
  const from = feed.at ? ` The figures are from ${clock(feed.at)}.` : "";
  if (feed.state === "lost") return ["lost", `Connection lost, trying again.${from}`];
  if (feed.state === "problem") return ["problem", `The namespace does not answer: ${feed.problem}. Trying again.${from}`];
  if (feed.state === "connecting") return ["waiting", "Connecting"];
  if (!feed.at) return ["waiting", "No data yet: the first round is being read"];
  if (feed.age() > Math.max(5, LATE * feed.every)) return ["problem", `No news for a while.${from}`];
  return ["live", "Live"];
}

/** Keeps the line at the top. */
export function watchState(feed) {
  const state = document.getElementById("state");
  const age = document.getElementById("age");
  const show = () => {
    const [kind, words] = described(feed);
    mark(state, "data-kind", kind);
    write(state, words);
    const every = feed.every < 1.5 ? "every second" : `every ${Math.round(feed.every)} s`;
    write(age, kind === "live" ? `updated ${Math.round(feed.age())} s ago, ${every}` : "");
    write(document.getElementById("namespace"), feed.namespace ? `namespace ${feed.namespace}` : "");
  };
  feed.addEventListener("state", show);
  feed.addEventListener("news", show);
  setInterval(show, 1000);
}
