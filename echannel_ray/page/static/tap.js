// A tap: some events of the channel as they come, chosen where they are published.

import { h, write } from "./dom.js";
import { count } from "./format.js";

const MAX_LINES = 100;
const clock = (at) => new Date(at * 1000).toISOString().slice(11, 23);

export class Tap {
  #source = null;

  constructor(channel) {
    this.channel = channel;
    this.seen = 0;
    this.missed = 0;
    this.rate = h("select", { id: "tap-rate" }, ["1", "5", "20"].map((each) => h("option", { value: each, selected: each === "5" }, each)));
    this.button = h("button", { type: "button", onclick: () => (this.#source ? this.stop("Stopped.") : this.#start()) }, "Start the tap");
    this.status = h("p", { role: "status" }, "Stopped.");
    this.figures = h("p", { class: "muted" });
    this.list = h("ol", { class: "tap", tabindex: "0", "aria-label": "Events, the newest first" });
    this.element = h(
      "div",
      {},
      h("p", { class: "tools" }, h("label", { for: "tap-rate" }, "Events a second, from each producer"), " ", this.rate, " ", this.button),
      h("p", { class: "muted" }, "A sample: its producers choose at most so many events, and send no others here. It is a consumer meanwhile, with a modulator."),
      this.status,
      this.figures,
      this.list,
    );
  }

  /** End it; nothing is published to us any more. */
  stop(why = "") {
    this.#source?.close();
    this.#source = null;
    write(this.button, "Start the tap");
    this.rate.disabled = false;
    if (why) write(this.status, why);
  }

  #start() {
    const rate = this.rate.value;
    const source = (this.#source = new EventSource(`/api/tap?channel=${encodeURIComponent(this.channel)}&rate=${rate}`));
    write(this.button, "Stop the tap");
    write(this.status, "Opening: its producers are being told.");
    this.rate.disabled = true;
    this.seen = this.missed = 0;
    this.list.replaceChildren();
    source.onmessage = (message) => {
      const news = JSON.parse(message.data);
      if (news.ended !== undefined) return this.stop(`Ended: ${news.ended}`);
      if (!news.producer) return write(this.status, `Listening: at most ${rate} a second from each producer.`);
      this.#show(news);
    };
    source.onerror = () => this.stop("Ended: the connection was lost.");
  }

  #show(news) {
    this.seen += 1;
    this.missed += news.missed;
    const head = h("span", { class: "muted" }, `${clock(news.published_at)} ${news.producer} #${count(news.sequence)} `);
    this.list.prepend(h("li", {}, head, h("code", {}, news.text)));
    while (this.list.children.length > MAX_LINES) this.list.lastChild.remove();
    write(this.figures, `${count(this.seen)} shown${this.missed ? `, ${count(this.missed)} of the sample left out: too many at once` : ""}. Times are UTC.`);
  }
}
