/**
 * Follows a queue that `lvq serve` or `lvq_kafka.serve.app` serves, in browsers and in Node.
 *
 *     import { follow } from "./lvq.js";
 *
 *     const prices = follow("prices", {
 *       onChange: (changes) => changes.forEach(({ key, entry }) => console.log(key, entry?.value)),
 *       onState: () => console.log(prices.state, prices.age),
 *     });
 *     await prices.loaded;
 *     console.log(prices.entries.get("IBM")?.value);
 *
 * `entries` has every key of the queue with its current value, converges to the queue however often the connection is
 * cut off, and `state` says how far to trust it. Times are in seconds.
 *
 * A key is a string. Bytes that are not UTF-8 are in it as lone surrogates, U+DC80 to U+DCFF, as in Python
 * (`surrogateescape`), so that each key has one string; `keyBytes` returns its bytes. A value is a string if its bytes are
 * UTF-8, else a Uint8Array; in a queue of JSON it is what the JSON says, with integers beyond 2^53 as BigInt where the
 * engine shows their digits.
 *
 * @module
 */
// @ts-check

const HEARTBEAT = 4; // seconds between two reports of the state, if a program does not say

/**
 * How far `entries` can be trusted. The first three are of the connection, the others of the server's reader.
 *
 * - `connecting`: the server has not answered yet.
 * - `cut-off`: the server cannot be reached, or is silent. Values are old; it is tried again.
 * - `refused`: the server will not answer, as without a valid token. Values are old; it is tried again by `retry` only.
 * - `catching-up`: not everything has been read yet.
 * - `stale`: everything is read again; values are those from before.
 * - `caught-up`: everything that was in the log `age` seconds ago is here, but for `lag` messages.
 * - `blocked`: an open transaction hides newer values.
 * - `disconnected`: the server cannot reach Kafka. Values are old.
 * - `failed`: the server's reader has stopped.
 * - `closed`: `close` was called.
 *
 * @typedef {"connecting" | "cut-off" | "refused" | "catching-up" | "stale" | "caught-up" | "blocked" | "disconnected"
 *   | "failed" | "closed"} State
 */

/**
 * The current value of a key.
 *
 * @typedef {object} Entry
 * @property {string} key
 * @property {any} value
 * @property {boolean} decoded  false if the value is not of the queue's format, and therefore text or bytes
 * @property {string} position  its place in the log: topic/partition/offset
 * @property {number} timestamp  seconds since the epoch
 * @property {ReadonlyArray<readonly [string, string | Uint8Array | null]>} headers  of several with one name, the last
 *   counts
 */

/**
 * What happened to a key. `entry` is undefined if it no longer has a value, and `previous` if it had none.
 *
 * `reason` is `written`; `deleted`, `expired` or `left` (the newest value is not selected); or, where a client did not
 * see what happened, `loaded` and `gone`.
 *
 * @typedef {object} Change
 * @property {string} key
 * @property {Entry | undefined} entry
 * @property {Entry | undefined} previous
 * @property {string} reason
 */

/**
 * @typedef {object} ServerOptions
 * @property {string | URL} [base]  the address of the application; that of this module by default
 * @property {string} [token]  a bearer token. It is sent as a header, and never in an address
 * @property {typeof globalThis.fetch} [fetch]  called in place of the global one
 */

/**
 * @typedef {object} SelectionOptions
 * @property {string[]} [keys]  only these keys
 * @property {string} [prefix]  only keys that begin with it
 * @property {string} [selector]  only values that this JMS selector selects
 * @property {number} [every]  seconds between two batches of changes
 * @property {boolean} [changed]  no change for a value that was only written again
 * @property {number} [heartbeat]  seconds between two reports of the state, at least 1
 * @property {number} [silence]  seconds without a part of an event after which a connection counts as cut off; 10 by
 *   default, or two and a half heartbeats if those are longer
 * @property {number} [pause]  seconds until the first attempt to connect again, about; each further one doubles them
 * @property {number} [longestPause]  seconds between two attempts at most, whatever the server asks for
 * @property {(changes: Change[], queue: LiveQueue) => void} [onChange]  called with the changes that came together
 * @property {(queue: LiveQueue) => void} [onState]  called when anything but `entries` may have changed
 */

/** @typedef {ServerOptions & SelectionOptions} FollowOptions */

/** @typedef {{name: string, data: string, lastEventId: string}} ServerEvent */

/**
 * Follow a queue, from now on until `close`.
 *
 * @param {string} name
 * @param {FollowOptions} [options]
 * @returns {LiveQueue}
 */
export function follow(name, options = {}) {
  return new LiveQueue(name, options);
}

/**
 * Return the queues that a client may read, with their states, as `v1/queues` lists them.
 *
 * @param {ServerOptions} [options]
 * @returns {Promise<Array<{name: string, format: string, state: State, complete: boolean, keys?: number}>>}
 * @throws {ServerRefusal} the server does not answer the question.
 */
export async function listQueues(options = {}) {
  const address = new URL("v1/queues", rootOf(options.base));
  const answer = await (options.fetch ?? fetch)(address, { headers: authorization(options.token), cache: "no-store" });
  if (!answer.ok) throw await ServerRefusal.of(answer);
  return (await answer.json()).queues;
}

/**
 * Return the address of the application, ending in a slash.
 *
 * @param {string | URL} [base]
 */
function rootOf(base = new URL(".", import.meta.url)) {
  const root = new URL(base, import.meta.url);
  if (!/^https?:$/.test(root.protocol)) throw new TypeError(`base must be the address of a server, not ${root.href}.`);
  if (!root.pathname.endsWith("/")) root.pathname += "/";
  return root;
}

/** An answer of a server other than the one that was asked for. */
export class ServerRefusal extends Error {
  /**
   * @param {string} message  what is wrong, and what to do
   * @param {number} status  of HTTP
   * @param {{error?: string, state?: State | null, retryAfter?: number}} [more]
   */
  constructor(message, status, { error = "", state = null, retryAfter = undefined } = {}) {
    super(message);
    this.name = "ServerRefusal";
    this.status = status;
    /** The name of the error in the server's library, or empty. */
    this.error = error;
    /** The state of the server's reader if that is not complete yet, or null. */
    this.state = state;
    /** Seconds after which the server may be asked again, if it said so. */
    this.retryAfter = retryAfter;
  }

  /** Whether asking again is pointless. */
  get final() {
    return this.status < 500 && this.status !== 408 && this.status !== 429;
  }

  /** @param {Response} answer */
  static async of(answer) {
    /** @type {{detail?: string, error?: string}} */
    const problem = await answer.json().catch(() => ({}));
    const state = /** @type {State | null} */ (answer.headers.get("lvq-state"));
    const retryAfter = answer.headers.get("retry-after") ?? "";
    return new ServerRefusal(problem.detail ?? `The server answers with status ${answer.status}.`, answer.status, {
      error: problem.error,
      state,
      retryAfter: /^[0-9]+$/.test(retryAfter) ? Number(retryAfter) : undefined,
    });
  }
}

/** A queue that is followed. Create it with `follow`. */
export class LiveQueue {
  #name;
  #options;
  #root;
  /** @type {Map<string, Entry>} */
  #entries = new Map();
  /** @type {Map<string, Entry> | null} The values of a dump that is on its way, and will replace the others. */
  #arriving = null;
  #topicId = "";
  #lastEventId = "";
  #format = "bytes";

  /** @type {State} */
  #connection = "connecting"; // "caught-up" stands for one that is open
  #parting = ""; // why it is not
  /** @type {State} */
  #reported = "catching-up"; // by the server
  #trouble = ""; // the reason that it gives
  #renewal = ""; // why all values are loaded again
  /** @type {number | null} */
  #lag = null;
  /** @type {(() => number) | null} Returns the seconds since the end of the log was last known. */
  #age = null;
  /** Returns the time by the cluster's clock. */
  #time = () => Date.now() / 1000;
  #complete = false;
  #settled = false; // whether this connection has brought everything up to a cut

  #closed = false;
  /** @type {ServerRefusal | null} The answer by which the server refuses it now, or null. */
  refusal = null;
  /** @type {AbortController | null} */
  #request = null;
  #wake = () => {};

  /** @type {Promise<LiveQueue>} Resolves when `entries` is complete for the first time; rejects if it will not be. */
  loaded;
  /** @type {(queue: LiveQueue) => void} */
  #succeed = () => {};
  /** @type {(reason: Error) => void} */
  #fail = () => {};

  /**
   * @param {string} name
   * @param {FollowOptions} options
   */
  constructor(name, options) {
    this.#name = name;
    this.#options = options;
    this.#root = rootOf(options.base);
    this.loaded = new Promise((resolve, reject) => ([this.#succeed, this.#fail] = [resolve, reject]));
    this.loaded.catch(() => {}); // a program that does not wait for it learns of the failure by the state
    void this.#run();
  }

  /** The name of the queue. */
  get name() {
    return this.#name;
  }

  /**
   * The current values by key.
   *
   * @type {ReadonlyMap<string, Entry>}
   */
  get entries() {
    return this.#entries;
  }

  /** @type {State} How far `entries` can be trusted. */
  get state() {
    if (this.#connection !== "caught-up") return this.#connection;
    if (this.#settled || this.#reported !== "caught-up") return this.#reported;
    return this.#complete ? "stale" : "catching-up";
  }

  /** Why the state is not `caught-up`, in words for people; else empty. */
  get reason() {
    if (this.#connection !== "caught-up") return this.#parting;
    if (this.#reported !== "caught-up") return this.#trouble;
    return this.#settled ? "" : this.#renewal;
  }

  /** Whether `entries` has been complete, and since then is at most old. */
  get complete() {
    return this.#complete;
  }

  /** The number of values that have arrived of a dump that is on its way; null if there is none. */
  get arriving() {
    return this.#arriving === null ? null : this.#arriving.size;
  }

  /** The number of messages in the log that were not read yet, as last known; null if it is not known. */
  get lag() {
    return this.#connection === "caught-up" ? this.#lag : null;
  }

  /** Seconds since the end of the log was last known: `entries` is at most this old, and `lag` messages. Or null. */
  get age() {
    return this.#age === null ? null : this.#age();
  }

  /** The format of the values that come: bytes, text or json. */
  get format() {
    return this.#format;
  }

  /**
   * Return how old the value of an entry is in seconds, by the cluster's clock.
   *
   * @param {Entry} entry
   */
  ageOf(entry) {
    return Math.max(0, this.#time() - entry.timestamp);
  }

  /** Try to connect now, if it waits to connect again or was refused. */
  retry() {
    this.#wake();
  }

  /** Stop. `entries` stays as it is. */
  close() {
    if (this.#closed) return;
    this.#closed = true;
    this.#request?.abort();
    this.#wake();
    this.#part("closed", "");
    this.#fail(new Error(`${this.#name} was closed before it was complete.`));
  }

  // ------------------------------------------------------------- connecting

  async #run() {
    const { pause = 0.5, longestPause = 8 } = this.#options;
    for (let attempts = 0; !this.#closed; attempts += 1) {
      let asked = 0; // seconds for which the server wants no attempt
      this.refusal = null;
      try {
        await this.#connect();
        this.#part("cut-off", "The server has ended the connection.");
      } catch (error) {
        if (error instanceof ServerRefusal && error.final) {
          this.refusal = error;
          this.#part("refused", error.message);
          this.#fail(error);
        } else if (error instanceof ServerRefusal) {
          this.#part(error.state ?? (error.error === "ReaderFailed" ? "failed" : "cut-off"), error.message);
          asked = error.retryAfter ?? 0;
        } else {
          const why = error instanceof Error ? error.message : String(error);
          this.#part("cut-off", error instanceof TypeError ? `The connection failed: ${why}.` : why);
        }
      }
      if (this.#settled) attempts = 0;
      this.#settled = false;
      if (this.#closed) return;
      const wait = Math.min(longestPause, Math.max(asked, pause * 2 ** attempts)) * (0.5 + Math.random() / 2);
      await this.#sleep(this.refusal === null ? wait : Infinity);
    }
  }

  /** Read one stream to its end. */
  async #connect() {
    const request = (this.#request = new AbortController());
    const { heartbeat = HEARTBEAT, silence = Math.max(10, 2.5 * heartbeat) } = this.#options;
    const silent = () => request.abort(new Error(`Nothing was heard of the server for ${silence} s.`));
    let timer = setTimeout(silent, silence * 1000);
    try {
      const stream = await this.#ask(request.signal);
      this.#arriving = null;
      const parser = new EventParser(this.#lastEventId);
      const reader = stream.getReader();
      for (;;) {
        const { done, value } = await reader.read();
        if (done || this.#closed) return;
        const events = parser.feed(value);
        if (parser.heard) {
          clearTimeout(timer);
          timer = setTimeout(silent, silence * 1000);
        }
        this.#apply(events);
      }
    } finally {
      clearTimeout(timer);
      request.abort();
    }
  }

  /**
   * Ask for the events after the last one, or for all values if these are of another format by now.
   *
   * @param {AbortSignal} signal
   * @returns {Promise<ReadableStream<Uint8Array>>}
   */
  async #ask(signal) {
    /** @type {Record<string, string>} */
    const headers = { accept: "text/event-stream", ...authorization(this.#options.token) };
    if (this.#lastEventId) headers["last-event-id"] = this.#lastEventId;
    const settings = /** @type {RequestInit} */ ({ headers, cache: "no-store", signal });
    const answer = await (this.#options.fetch ?? fetch)(this.#address(), settings);
    if (!answer.ok) throw await ServerRefusal.of(answer);
    if (!answer.headers.get("content-type")?.startsWith("text/event-stream") || answer.body === null) {
      // Also an answer that was cut off in its headers, which browsers take for a whole one.
      throw new Error(`No stream of events comes from ${answer.url}.`);
    }
    const format = answer.headers.get("lvq-format") ?? "bytes";
    if (format === this.#format) return answer.body;
    this.#format = format;
    this.#topicId = ""; // at the same positions, other values are read by now
    if (!this.#lastEventId) return answer.body;
    this.#lastEventId = "";
    await answer.body.cancel();
    return this.#ask(signal);
  }

  #address() {
    const { keys = [], prefix, selector, every, changed, heartbeat = HEARTBEAT } = this.#options;
    const query = [`heartbeat=${heartbeat}`, ...keys.map((key) => `keys=${percentEncoded(key)}`)];
    if (prefix) query.push(`prefix=${percentEncoded(prefix)}`);
    if (selector) query.push(`selector=${encodeURIComponent(selector)}`);
    if (every) query.push(`every=${every}`);
    if (changed) query.push("changed=1");
    return new URL(`v1/queues/${encodeURIComponent(this.#name)}/events?${query.join("&")}`, this.#root);
  }

  /**
   * @param {State} state
   * @param {string} reason
   */
  #part(state, reason) {
    if (this.#closed && state !== "closed") return;
    this.#connection = state;
    this.#parting = reason;
    this.#arriving = null;
    this.#renewal = "";
    this.#tell();
  }

  /** @param {number} seconds  Infinity to sleep until `retry` or `close` */
  async #sleep(seconds) {
    await /** @type {Promise<void>} */ (
      new Promise((resolve) => {
        const timer = seconds === Infinity ? undefined : setTimeout(resolve, seconds * 1000);
        this.#wake = () => {
          clearTimeout(timer);
          resolve();
        };
      })
    );
    this.#wake = () => {};
  }

  // ------------------------------------------------------------- events

  /** @param {ServerEvent[]} events */
  #apply(events) {
    /** @type {Map<string, Change>} */
    const changes = new Map();
    let told = false;
    try {
      for (const event of events) {
        told = this.#take(event, changes) || told;
        this.#lastEventId = event.lastEventId;
      }
    } catch (error) {
      this.#lastEventId = ""; // an event that cannot be read leaves a gap: start over
      throw error;
    } finally {
      if (changes.size > 0) this.#call(() => this.#options.onChange?.([...changes.values()], this));
      if (told) this.#tell();
    }
  }

  /**
   * Apply an event; return whether more than `entries` has changed.
   *
   * @param {ServerEvent} event
   * @param {Map<string, Change>} changes
   */
  #take({ name, data }, changes) {
    const row = parseJson(data);
    switch (name) {
      case "value": {
        const entry = entryOf(row, this.#format);
        if (this.#arriving !== null) this.#arriving.set(entry.key, entry);
        else this.#set(entry.key, entry, "written", changes);
        return this.#arriving !== null;
      }
      case "deleted": {
        const key = keyOf(row.key);
        if (this.#arriving !== null) this.#arriving.delete(key);
        else this.#set(key, undefined, row.reason, changes);
        return false;
      }
      case "reset":
        this.#arriving = new Map();
        this.#renewal = row.reason;
        return true;
      case "end-of-dump":
        if (this.#arriving !== null) this.#replace(this.#arriving, row.topic_id, changes);
        this.#arriving = null;
        this.#complete = this.#settled = true;
        this.#time = countingFrom(row.as_of);
        this.#succeed(this);
        return true;
      case "state":
        this.#connection = "caught-up";
        this.#reported = row.state;
        this.#lag = row.lag;
        this.#age = countingFrom(row.age);
        this.#trouble = row.reason ?? "";
        return true;
      default:
        return false; // of a newer server
    }
  }

  /**
   * Take the values of a dump in place of all that there were.
   *
   * @param {Map<string, Entry>} fresh
   * @param {string} topicId  in another topic, other values are at the same positions
   * @param {Map<string, Change>} changes
   */
  #replace(fresh, topicId, changes) {
    const same = topicId === this.#topicId;
    this.#topicId = topicId;
    for (const key of [...this.#entries.keys()]) {
      if (!fresh.has(key)) this.#set(key, undefined, "gone", changes);
    }
    for (const [key, entry] of fresh) {
      if (!same || this.#entries.get(key)?.position !== entry.position) this.#set(key, entry, "loaded", changes);
    }
  }

  /**
   * @param {string} key
   * @param {Entry | undefined} entry
   * @param {string} reason
   * @param {Map<string, Change>} changes
   */
  #set(key, entry, reason, changes) {
    const earlier = changes.get(key);
    const previous = earlier === undefined ? this.#entries.get(key) : earlier.previous;
    if (entry !== undefined) this.#entries.set(key, entry);
    else if (!this.#entries.delete(key)) return;
    changes.set(key, { key, entry, previous, reason });
  }

  #tell() {
    this.#call(() => this.#options.onState?.(this));
  }

  /**
   * Call a function of the program. If it fails, the queue is followed all the same.
   *
   * @param {() => void} callback
   */
  #call(callback) {
    try {
      callback();
    } catch (error) {
      (globalThis.reportError ?? console.error)(error);
    }
  }
}

/** A parser of server-sent events, as the HTML standard defines them: takes bytes as they come. */
export class EventParser {
  #decoder = new TextDecoder();
  #left = "";
  #afterReturn = false;
  #name = "";
  /** @type {string[]} */
  #data = [];
  #nextId;
  /** Whether the bytes that came last had a part of an event, not only comments: these say nothing of the queue. */
  heard = false;

  /** @param {string} [lastEventId]  of the connection before */
  constructor(lastEventId = "") {
    this.#nextId = lastEventId;
  }

  /**
   * Take bytes, and return the events that they complete.
   *
   * @param {Uint8Array} bytes
   * @returns {ServerEvent[]}
   */
  feed(bytes) {
    let text = this.#decoder.decode(bytes, { stream: true });
    if (text === "") return [];
    if (this.#afterReturn && text.startsWith("\n")) text = text.slice(1); // of a line end that was cut in two
    this.#afterReturn = text.endsWith("\r");
    const lines = (this.#left + text).split(/\r\n|\n|\r/);
    this.#left = lines.pop() ?? "";
    /** @type {ServerEvent[]} */
    const events = [];
    for (const line of lines) this.#take(line, events);
    this.heard = events.length > 0 || [...lines, this.#left].some((line) => line !== "" && !line.startsWith(":"));
    return events;
  }

  /**
   * @param {string} line
   * @param {ServerEvent[]} events
   */
  #take(line, events) {
    if (line === "") {
      if (this.#data.length > 0) {
        events.push({ name: this.#name || "message", data: this.#data.join("\n"), lastEventId: this.#nextId });
      }
      this.#name = "";
      this.#data = [];
      return;
    }
    const colon = line.indexOf(":");
    if (colon === 0) return; // a comment
    const field = colon < 0 ? line : line.slice(0, colon);
    let value = colon < 0 ? "" : line.slice(colon + 1);
    if (value.startsWith(" ")) value = value.slice(1);
    if (field === "event") this.#name = value;
    else if (field === "data") this.#data.push(value);
    else if (field === "id" && !value.includes("\0")) this.#nextId = value;
  }
}

/**
 * Count seconds from now on: return a function that returns how many there are by now.
 *
 * A clock may be set back, and a steady one stands still in some browsers while the machine sleeps: the one counts that has
 * counted more.
 *
 * @param {number} start
 */
function countingFrom(start) {
  const [clock, steady] = [Date.now(), performance.now()];
  return () => start + Math.max(Date.now() - clock, performance.now() - steady) / 1000;
}

// --------------------------------------------------------------- keys and values

/**
 * Return the bytes of a key.
 *
 * @param {string} key
 * @returns {Uint8Array}
 */
export function keyBytes(key) {
  const encoder = new TextEncoder();
  const parts = key.split(/([\udc80-\udcff])/u); // with u, only those that are no half of a pair
  const coded = parts.map((part, at) => (at % 2 ? Uint8Array.of(part.charCodeAt(0) - 0xdc00) : encoder.encode(part)));
  const bytes = new Uint8Array(coded.reduce((size, part) => size + part.length, 0));
  let at = 0;
  for (const part of coded) {
    bytes.set(part, at);
    at += part.length;
  }
  return bytes;
}

/**
 * Return the key that has these bytes.
 *
 * @param {Uint8Array} bytes
 * @returns {string}
 */
export function keyFrom(bytes) {
  const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  /** @param {number} from @param {number} to */
  const decoded = (from, to) => {
    try {
      return decoder.decode(bytes.subarray(from, to));
    } catch {
      return null;
    }
  };
  const whole = decoded(0, bytes.length);
  if (whole !== null) return whole;
  let key = "";
  for (let at = 0; at < bytes.length; ) {
    let size = 1;
    let character = decoded(at, at + 1);
    while (character === null && size < Math.min(4, bytes.length - at)) character = decoded(at, at + (size += 1));
    if (character === null) [character, size] = [String.fromCharCode(0xdc00 + bytes[at]), 1];
    key += character;
    at += size;
  }
  return key;
}

/** @param {string | {base64: string}} shown */
function keyOf(shown) {
  return typeof shown === "string" ? shown : keyFrom(fromBase64(shown.base64));
}

/**
 * @param {any} row
 * @param {string} format
 * @returns {Entry}
 */
function entryOf(row, format) {
  const decoded = !("undecodable" in row);
  const value = decoded && format === "json" ? row.value : dataOf(decoded ? row.value : row.undecodable);
  /** @type {[string, any][]} */
  const headers = row.all_headers ?? Object.entries(row.headers);
  return {
    key: keyOf(row.key),
    value,
    decoded,
    position: row.position,
    timestamp: row.timestamp,
    headers: headers.map(([name, shown]) => [name, shown === null ? null : dataOf(shown)]),
  };
}

/** @param {string | {base64: string}} shown */
function dataOf(shown) {
  return typeof shown === "string" ? shown : fromBase64(shown.base64);
}

/** @param {string} text */
function fromBase64(text) {
  return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
}

/** @param {string} key */
function percentEncoded(key) {
  return Array.from(keyBytes(key), (byte) => `%${byte.toString(16).padStart(2, "0")}`).join("");
}

/** @param {string | undefined} token @returns {Record<string, string>} */
function authorization(token) {
  return token ? { authorization: `Bearer ${token}` } : {};
}

/**
 * Parse JSON; integers that a number cannot hold become BigInt.
 *
 * @param {string} text
 */
function parseJson(text) {
  return /[0-9]{16}/.test(text) ? JSON.parse(text, exactly) : JSON.parse(text);
}

/**
 * @param {string} _
 * @param {any} value
 * @param {{source?: string}} [context]  missing in older engines, where the number stays rounded
 */
function exactly(_, value, context) {
  const digits = typeof value === "number" && !Number.isSafeInteger(value) ? context?.source : undefined;
  return digits !== undefined && /^-?[0-9]+$/.test(digits) ? BigInt(digits) : value;
}
