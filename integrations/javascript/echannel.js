// A client of a gateway's port for events: docs/gateway-protocol.md says what goes over it.
//
//     const client = await Client.connect(process.env.ENDPOINT); // what `str(session.gateway())` is
//     await client.publish("trades", [{ price: 76.5, symbol: "RAY" }]);
//     for await (const message of await client.subscribe("trades", { where: "price > 70" })) console.log(message.event);

import tls from "node:tls";
import { Encoder, decode } from "@msgpack/msgpack";

export const VERSION = 1;
const CERTIFICATE_NAME = "localhost"; // each gateway's has it; no other certificate is believed
const WINDOW_BYTES = 1 << 20;
const MAX_FRAME_BYTES = 128 << 20;
const FRAME_BYTES = 128 << 10; // of events that are published together
const MAX_EVENTS = 10_000;
const MAX_UNDER_WAY = 16;
const LENGTH_BYTES = 4;

/** An error that the gateway told, or that the connection met: `name` is that of a class in echannel_ray.errors. */
export class GatewayError extends Error {
  constructor(name, message, attributes = {}) {
    super(message);
    this.name = name;
    this.attributes = attributes;
  }
}

/** The parts of an endpoint: `{host, port, namespace, token, certificate}`. */
export function parseEndpoint(text) {
  const wrong = (reason) => new GatewayError("ValueError", `this is no gateway's endpoint: ${reason}`);
  const trimmed = text.trim();
  if (!trimmed.startsWith("echannel+tls://")) throw wrong("it has to begin with echannel+tls://");
  const url = new URL(trimmed);
  const port = Number(url.searchParams.get("events"));
  if (!Number.isInteger(port) || port < 1 || port > 65535) throw wrong("there is no port for events in it");
  if (!/^[A-Za-z0-9_-]{43}$/.test(url.username)) throw wrong("the token before the @ is missing, or not whole");
  const certificate = Buffer.from(url.searchParams.get("key") ?? "", "base64url");
  if (certificate.length < 4 || certificate.length !== 4 + certificate.readUInt16BE(2)) throw wrong("its key was cut");
  const host = url.hostname.replace(/^\[|\]$/g, "");
  return { host, port, namespace: decodeURIComponent(url.pathname.slice(1)), token: url.username, certificate };
}

const encoder = new Encoder({ ignoreUndefined: true });

/** A message as it travels. */
export function encodeFrame(message) {
  const body = encoder.encode(message);
  const frame = Buffer.allocUnsafe(LENGTH_BYTES + body.length);
  frame.writeUInt32BE(body.length, 0);
  frame.set(body, LENGTH_BYTES);
  return frame;
}

/** Cuts what comes into messages. */
export class FrameReader {
  #chunks = [];
  #have = 0;

  /** The messages that are whole now, each with its size in bytes. */
  *feed(chunk) {
    this.#chunks.push(chunk);
    this.#have += chunk.length;
    while (this.#have >= LENGTH_BYTES) {
      if (this.#chunks[0].length < LENGTH_BYTES) this.#chunks = [Buffer.concat(this.#chunks)];
      const length = this.#chunks[0].readUInt32BE(0);
      if (length < 1 || length > MAX_FRAME_BYTES) throw new GatewayError("VersionMismatch", `a frame of ${length} bytes`);
      const size = LENGTH_BYTES + length;
      if (this.#have < size) return; // joined when it is whole: a large frame comes in many chunks
      const data = this.#chunks.length > 1 ? Buffer.concat(this.#chunks) : this.#chunks[0];
      this.#chunks = size < data.length ? [data.subarray(size)] : [];
      this.#have -= size;
      yield [decode(data.subarray(LENGTH_BYTES, size)), size];
    }
  }
}

/** What `Client.subscribe` gives: an async iterator of messages, and of gaps. */
class Subscription {
  #queue = []; // what has come, and was not asked for
  #asked = []; // who waits for more
  #isMember;
  // Since the gateway was told:
  #handledBytes = 0;
  #handled = 0;
  #end = null; // {} or {error}

  constructor(client, id, isMember) {
    Object.assign(this, { client, id });
    this.#isMember = isMember;
  }

  [Symbol.asyncIterator]() {
    return this;
  }

  /** The next message: {event, producer, sequence, publishedAt, redelivered, position}, or {gap: {producer, first, last}}.
   *  An event that only Python has a form for is {opaque: {type, sizeBytes}}. */
  async next() {
    while (this.#queue.length === 0) {
      if (this.#end?.error) throw this.#end.error;
      if (this.#end) return { done: true, value: undefined };
      await new Promise((resolve) => this.#asked.push(resolve));
    }
    const { value, error, size } = this.#queue.shift();
    this.#handledBytes += size;
    this.#handled += value !== undefined && value.gap === undefined;
    // Others wait for what a member of a group has handled: the gateway knows before there is a pause.
    const isPause = this.#isMember && this.#queue.length === 0;
    if (this.#handledBytes >= WINDOW_BYTES / 2 || isPause) this._tell();
    if (error) throw error;
    return { done: false, value };
  }

  /** Have the gateway know what is taken and, in a group, handled. What it does not know at the end goes to others. */
  _tell() {
    if (this.#end) return;
    const handled = this.#isMember ? this.#handled : undefined;
    this.client._send({ op: "credit", subscription: this.id, bytes: this.#handledBytes, handled });
    [this.#handledBytes, this.#handled] = [0, 0];
  }

  _tellLast() {
    if (this.#isMember) this._tell();
  }

  /** End it; also what leaving a `for await` loop does. */
  async return() {
    if (!this.#end) {
      this._tellLast();
      this._ended();
      this.#queue = [];
      await this.client._unsubscribe(this.id);
    }
    return { done: true, value: undefined };
  }

  _took(message, size) {
    const { producer, first, last } = message;
    if (message.op === "gap") return this._put({ value: { gap: { producer, first, last } }, size });
    const opaque = new Map((message.opaque ?? []).map(([at, type, sizeBytes]) => [at, { type, sizeBytes }]));
    message.events.forEach((event, i) => {
      const value = {
        ...(opaque.has(i) ? { opaque: opaque.get(i) } : { event }),
        producer,
        sequence: message.sequence + i,
        publishedAt: message.published_at,
        redelivered: message.redelivered ?? false,
        position: message.position,
      };
      this._put({ value, size: i === message.events.length - 1 ? size : 0 });
    });
  }

  _ended(error) {
    this.#end ??= { error };
    this.#wake();
  }

  _put(item) {
    this.#queue.push(item);
    this.#wake();
  }

  #wake() {
    for (const resolve of this.#asked.splice(0)) resolve();
  }
}

/** A client of one gateway. A connection that is lost is told by `Disconnected` from all of it: then connect again. */
export class Client {
  #socket;
  #reader = new FrameReader();
  #nextId = 1;
  #waiting = new Map(); // requests, by their ids
  #subscriptions = new Map();
  #lost = null;
  #welcome;

  /** A client, when the gateway has let it in. */
  static connect(endpoint, { timeoutMs = 10_000 } = {}) {
    const { host, port, token, certificate } = parseEndpoint(endpoint);
    const client = new Client();
    return new Promise((resolve, reject) => {
      const base64 = certificate.toString("base64").match(/.{1,64}/g).join("\n");
      const ca = `-----BEGIN CERTIFICATE-----\n${base64}\n-----END CERTIFICATE-----\n`;
      const socket = tls.connect({ host, port, ca, servername: CERTIFICATE_NAME, minVersion: "TLSv1.2" });
      client.#socket = socket;
      const timer = setTimeout(() => socket.destroy(new Error("no welcome came in time")), timeoutMs);
      client.#welcome = (error, welcome) => {
        clearTimeout(timer);
        client.welcome = welcome;
        error ? reject(error) : resolve(client);
      };
      socket.setNoDelay(true);
      socket.once("secureConnect", () => client._send({ op: "hello", version: VERSION, token }));
      socket.on("data", (chunk) => client.#take(chunk));
      socket.on("error", (error) => client.#lose(`${host}:${port}: ${error.message}`));
      socket.on("close", () => client.#lose(`${host}:${port}: the connection has ended`));
    });
  }

  /** What is known of a channel; with `fields` ({} for an untyped one) it is made where there is none. */
  open(channel, fields) {
    return this.#ask({ op: "open", channel, fields });
  }

  /** Publish events (an array, or any iterable), and wait until they are acknowledged: how many. */
  async publish(channel, events) {
    let part = [];
    let bytes = 0;
    let count = 0;
    const underWay = [];
    const most = Math.min(FRAME_BYTES, this.welcome.max_event_bytes);
    const leave = async () => {
      const asked = this.#ask({ op: "publish", channel, events: part });
      asked.catch(() => {}); // it is told below, where it is waited for
      underWay.push(asked);
      [part, bytes] = [[], 0];
      if (underWay.length >= MAX_UNDER_WAY) count += await underWay.shift();
    };
    for (const event of events) {
      const size = encoder.encode(event).length;
      if (part.length > 0 && (bytes + size > most || part.length >= MAX_EVENTS)) await leave();
      part.push(event);
      bytes += size;
    }
    if (part.length > 0) await leave();
    for (const asked of underWay) count += await asked;
    await this.#ask({ op: "drain", channel });
    return count;
  }

  /** A derived channel by the text of an E-code program: the name to subscribe to. */
  async derive(channel, source, { params, output } = {}) {
    return (await this.#ask({ op: "derive", channel, source, params, output })).channel;
  }

  /** Consume a channel; with `where`, an E-code filter, what passes it at the producers. */
  async subscribe(channel, { where, params, group, start } = {}) {
    const source = where === undefined ? channel : await this.derive(channel, where, { params });
    const subscription = new Subscription(this, this.#nextId, group !== undefined);
    this.#subscriptions.set(subscription.id, subscription);
    try {
      await this.#ask({ op: "subscribe", channel: source, credit: WINDOW_BYTES, group, start });
    } catch (error) {
      this.#subscriptions.delete(subscription.id);
      throw error;
    }
    return subscription;
  }

  /** Resolved when the gateway has answered. */
  async ping() {
    await this.#ask({ op: "ping" });
  }

  /** End the connection: subscriptions end, and what was not acknowledged may have come or not. */
  close() {
    for (const each of this.#subscriptions.values()) each._tellLast();
    this.#lose("this client was closed: make another", "Closed");
    this.#socket.destroySoon(); // when that is written
  }

  _send(message) {
    if (this.#lost) throw this.#lost;
    this.#socket.write(encodeFrame(message));
  }

  async _unsubscribe(id) {
    if (!this.#subscriptions.delete(id) || this.#lost) return;
    await this.#ask({ op: "unsubscribe", subscription: id }).catch((error) => {
      if (error.name !== "LookupError") throw error; // else it has ended meanwhile
    });
  }

  #ask({ op, ...rest }) {
    const id = this.#nextId++;
    return new Promise((resolve, reject) => {
      this._send({ op, id, ...rest }); // which throws where the connection is lost, and so rejects
      this.#waiting.set(id, { resolve, reject });
    });
  }

  #take(chunk) {
    try {
      for (const [message, size] of this.#reader.feed(chunk)) this.#handle(message, size);
    } catch (error) {
      this.#lose(error.message);
      this.#socket.destroy();
    }
  }

  #handle(message, size) {
    const subscription = this.#subscriptions.get(message.subscription);
    const request = this.#waiting.get(message.id);
    this.#waiting.delete(message.id);
    const error = message.op === "error" && new GatewayError(message.error, message.message, message.attributes);
    if (message.op === "welcome") this.#welcome(null, message);
    else if (request) error ? request.reject(error) : request.resolve(message.result ?? null);
    else if (error && message.id === undefined && message.subscription === undefined) this.#fail(error);
    else if (error) subscription?._put({ error, size });
    else if (message.op === "ended" && this.#subscriptions.delete(message.subscription)) subscription._ended();
    else if (message.op === "events" || message.op === "gap") subscription?._took(message, size);
  }

  #lose(reason, name = "Disconnected") {
    this.#fail(new GatewayError(name, `the gateway can't be reached, or went away: ${reason}`));
  }

  #fail(error) {
    if (this.#lost) return;
    this.#lost = error;
    this.#welcome(error); // does nothing where it was let in before
    for (const { reject } of this.#waiting.values()) reject(error);
    this.#waiting.clear();
    for (const subscription of this.#subscriptions.values()) subscription._ended(error);
  }
}
