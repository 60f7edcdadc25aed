// What the server tells, as it tells it: one stream for the whole page. Whoever shows something listens to "news".

const RETRY_MS = 3000;

export class Feed extends EventTarget {
  rows = new Map();
  nodes = [];
  parts = [];
  namespace = "";
  at = 0; // of the last round, by the server's clock
  every = 1; // seconds until the next
  state = "connecting"; // connecting, waiting, live, problem, lost
  problem = "";
  #heard = 0; // when, by our clock
  #source = null;

  /** Connect; the browser does so again by itself when the server was away. */
  open() {
    const source = (this.#source = new EventSource("/api/feed"));
    let isNew = true;
    source.onopen = () => {
      isNew = true; // the server begins with everything
      this.#become(this.at ? this.state : "waiting");
    };
    source.onmessage = (message) => {
      const news = JSON.parse(message.data);
      this.#heard = performance.now();
      if (news.problem !== null) return this.#become("problem", news.problem);
      if (isNew) this.rows.clear();
      isNew = false;
      for (const name of news.gone) this.rows.delete(name);
      for (const row of news.changed) this.rows.set(row.channel, row);
      Object.assign(this, { nodes: news.nodes, parts: news.parts, namespace: news.namespace, at: news.at });
      this.every = news.every_seconds;
      this.#become("live");
      this.dispatchEvent(new Event("news"));
    };
    source.onerror = () => {
      this.#become("lost");
      if (source.readyState === EventSource.CLOSED) this.#refused(source);
    };
  }

  /** Seconds since there was something; what comes late is as good as nothing. */
  age() {
    return this.#heard ? (performance.now() - this.#heard) / 1000 : null;
  }

  async #refused(source) {
    source.close();
    try {
      const answer = await fetch("/api/history");
      if (answer.status === 401) return location.reload(); // which brings the form
    } catch {
      // not there yet
    }
    setTimeout(() => this.open(), RETRY_MS);
  }

  #become(state, problem = "") {
    this.state = state;
    this.problem = problem;
    this.dispatchEvent(new Event("state"));
  }
}
