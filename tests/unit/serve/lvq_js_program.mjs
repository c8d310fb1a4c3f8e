// Does what lines of JSON on stdin say with lvq.js, and answers each with a line.
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const { EventParser, follow, keyBytes, keyFrom, listQueues } = await import(pathToFileURL(process.argv[2]).href);

const bytesOf = (text) => Uint8Array.from(Buffer.from(text, "base64"));
const textOf = (bytes) => Buffer.from(bytes).toString("base64");

const shown = (value) =>
  value instanceof Uint8Array ? { bytes: textOf(value) } : typeof value === "bigint" ? { bigint: `${value}` } : value;

const clock = Date.now;
let queue;
let changes = [];
let states = [];

const rowOf = ({ key, value, decoded, position, headers }) => ({
  key: textOf(keyBytes(key)),
  value: shown(value),
  decoded,
  position,
  headers: headers.map(([name, data]) => [name, shown(data)]),
});

const commands = {
  parse({ chunks, last }) {
    const parser = new EventParser(last);
    return chunks.flatMap((chunk) => parser.feed(bytesOf(chunk)));
  },
  heard({ chunks }) {
    const parser = new EventParser();
    return chunks.map((chunk) => (parser.feed(bytesOf(chunk)), parser.heard));
  },
  key({ bytes }) {
    const key = keyFrom(bytesOf(bytes));
    return { key, bytes: textOf(keyBytes(key)) };
  },
  follow({ name, options }) {
    [changes, states] = [[], []];
    queue?.close();
    queue = follow(name, {
      ...options,
      onChange: (batch) => {
        changes.push(...batch.map((change) => ({ ...change, entry: change.entry && shown(change.entry.value), previous: change.previous && shown(change.previous.value) })));
        if (options.faulty) throw new Error("a fault of the program");
      },
      onState: ({ state, reason }) => {
        if (states.at(-1)?.[0] !== state) states.push([state, reason]);
      },
    });
    return null;
  },
  look() {
    const { state, reason, complete, arriving, lag, age, format } = queue;
    const [refusal, entries] = [queue.refusal?.status ?? null, [...queue.entries.values()].map(rowOf)];
    return { state, reason, complete, arriving, lag, age, format, refusal, entries };
  },
  ages: () => [...queue.entries.values()].map((entry) => queue.ageOf(entry)),
  changes: () => changes.splice(0),
  states: () => states,
  retry: () => queue.retry() ?? null,
  close: () => queue.close() ?? null,
  loaded: () => queue.loaded.then(({ entries }) => entries.size, (error) => ({ error: error.message, status: error.status })),
  list: ({ options }) => listQueues(options).catch((error) => ({ error: error.message, status: error.status })),
  set({ ahead }) {
    Date.now = () => clock() + ahead * 1000;
    return null;
  },
  async pauses({ retryAfter, number }) {
    const [real, silence, found] = [globalThis.setTimeout, 1234, []];
    const headers = retryAfter === null ? {} : { "retry-after": retryAfter };
    const options = { base: "http://127.0.0.1/", silence, fetch: async () => new Response("{}", { status: 503, headers }) };
    await new Promise((resolve) => {
      globalThis.setTimeout = (callback, delay) => {
        if (delay === silence * 1000) return;
        found.push(delay / 1000);
        if (found.length < number) setImmediate(callback); // time passes at once
        else resolve();
      };
      queue?.close();
      queue = follow("prices", options);
    });
    globalThis.setTimeout = real;
    queue.close();
    return found;
  },
  silence({ options }) {
    const [real, found] = [globalThis.setTimeout, []];
    globalThis.setTimeout = (_, delay) => void found.push(delay / 1000);
    const waiting = follow("prices", { base: "http://127.0.0.1/", fetch: () => Promise.reject(new Error()), ...options });
    globalThis.setTimeout = real;
    waiting.close();
    return found;
  },
  refuses: ({ base }) => {
    try {
      follow("prices", { base });
      return null;
    } catch (error) {
      return error.message;
    }
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const { do: name, ...rest } = JSON.parse(line);
  process.stdout.write(`${JSON.stringify(await commands[name](rest))}\n`);
}
queue?.close();
