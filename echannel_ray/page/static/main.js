// The page: which view is shown, and that it hears the news.

import { Feed } from "./feed.js";
import { watchState } from "./status.js";
import { Overview } from "./overview.js";
import { ChannelView } from "./channel.js";

const feed = new Feed();
const main = document.getElementById("main");
let view = null;

/** By the part of the address behind "#". */
function route() {
  const [, kind = "", name = ""] = /^#\/([^/]*)\/?(.*)$/.exec(location.hash) ?? [];
  if (kind === "channel") return show(`channel ${name}`, () => new ChannelView(feed, decoded(name)), null);
  show("overview", () => new Overview(feed), ["channels", "health"].includes(kind) ? kind : "map");
}

function decoded(name) {
  try {
    return decodeURIComponent(name);
  } catch {
    return name;
  }
}

function show(key, make, section) {
  const isFirst = view === null;
  if (view?.key !== key) {
    view?.close();
    view = make();
    view.key = key;
    main.replaceChildren(view.element);
    view.update();
    if (!isFirst) window.scrollTo(0, 0);
  }
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.section === section) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
  }
  document.title = `${view.title} · echannel`;
  // Who came by a link is told where it led.
  if (!isFirst || section === "channels" || section === "health") view.focus(section);
}

feed.addEventListener("news", () => view.update());
window.addEventListener("hashchange", route);
document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault(); // the part behind "#" says which view is shown
  main.focus();
});
watchState(feed);
route();
feed.open();
