/**
 * The live board: the values of a queue as they are now, and how far to trust them.
 *
 * Data goes into the page as text, never as markup. Only the rows in sight are in the page, so that a queue of a hundred
 * thousand keys scrolls like one of ten.
 *
 * @module
 */
// @ts-check

import { follow, keyBytes, listQueues, ServerRefusal } from "./lvq.js";

/** @typedef {import("./lvq.js").Change} Change */
/** @typedef {import("./lvq.js").Entry} Entry */
/** @typedef {import("./lvq.js").LiveQueue} LiveQueue */
/** @typedef {import("./lvq.js").State} State */

const PACE = 0.25; // seconds between two batches of changes: what the eye can follow
const LIT = 1200; // ms for which a change is highlighted
const LINGERS = 3000; // ms for which a key that is gone stays in its place
const AGAIN = 3000; // ms until it asks again for the list of queues
const TALLEST = 15_000_000; // px; browsers show nothing beyond some height
const SPARE = 8; // rows above and below those in sight
const AT_ONCE = 400; // characters of a value in a row
const TOKEN = `lvq-token ${location.pathname}`;

/** @param {string} id @returns {any} */
const element = (id) => document.getElementById(id);
const [grid, space, details] = [element("grid"), element("space"), element("details")];

// --------------------------------------------------------------- words

/** @type {Record<State, {mood: string, sign: string, title: string, what: (queue: LiveQueue) => string}>} */
const STATES = {
  connecting: { mood: "wait", sign: "…", title: "Connecting", what: () => "" },
  "caught-up": { mood: "good", sign: "●", title: "Caught up", what: () => "Everything written is here." },
  "catching-up": { mood: "warn", sign: "▲", title: "Catching up", what: old("Newer values are still being read.") },
  stale: { mood: "warn", sign: "▲", title: "Stale", what: old("The queue is being read again.") },
  blocked: { mood: "warn", sign: "▲", title: "Blocked", what: old("An open transaction hides newer values.") },
  disconnected: { mood: "bad", sign: "✕", title: "Disconnected", what: old("The server cannot reach Kafka.") },
  failed: { mood: "bad", sign: "✕", title: "Failed", what: old("The server no longer reads this queue.") },
  "cut-off": { mood: "bad", sign: "✕", title: "Cut off", what: old("This page cannot reach its server.") },
  refused: { mood: "bad", sign: "✕", title: "Refused", what: old("") },
  closed: { mood: "bad", sign: "✕", title: "Closed", what: old("") },
};

/** @param {string} sentence */
function old(sentence) {
  /** @param {LiveQueue} queue */
  return ({ complete, reason, age, entries }) => {
    if (!complete) return reason ? "" : sentence;
    return `${sentence} ${entries.size ? "These values are" : "That it is empty is"} as of ${duration(age ?? 0)} ago.`;
  };
}

/** @param {number} seconds */
function duration(seconds) {
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 172_800) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86_400)} d`;
}

const ODD = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]/gu;

/**
 * Return text in which characters that would not show, or would move others, are escaped.
 *
 * @param {string} text
 * @param {boolean} [lines]  whether line ends and tabs stay
 */
function visible(text, lines = false) {
  return text.replace(ODD, (character) => {
    const code = character.codePointAt(0) ?? 0;
    if (code === 10) return lines ? "\n" : " ⏎ ";
    if (code === 9) return lines ? "\t" : " ";
    if (code >= 0xdc80 && code <= 0xdcff) return `\\x${(code - 0xdc00).toString(16)}`; // a byte
    if (code < 0x80) return `\\x${code.toString(16).padStart(2, "0")}`;
    return code > 0xffff ? `\\u{${code.toString(16)}}` : `\\u${code.toString(16).padStart(4, "0")}`;
  });
}

/** @param {Uint8Array} bytes @param {number} [most] */
function hex(bytes, most = bytes.length) {
  const shown = Array.from(bytes.subarray(0, most), (byte) => byte.toString(16).padStart(2, "0")).join(" ");
  return bytes.length > most ? `${shown} …` : shown;
}

/** @param {number} number */
const counted = (number) => number.toLocaleString("en");

/**
 * Return a value as text.
 *
 * @param {any} value
 * @param {number} [indent]
 * @returns {string}
 */
function textOf(value, indent) {
  if (typeof value === "string") return value;
  if (value instanceof Uint8Array) return hex(value, indent ? undefined : 64);
  return JSON.stringify(value, whole, indent);
}

/** @param {string} _ @param {any} value */
function whole(_, value) {
  if (typeof value !== "bigint") return value;
  const raw = /** @type {any} */ (JSON).rawJSON;
  return raw ? raw(`${value}`) : `${value}`;
}

// --------------------------------------------------------------- what is shown

/** @type {LiveQueue | null} */
let queue = null;
let changes = 0;

/** @type {Map<string, number>} The time at which a key was changed. */
const lit = new Map();
/** @type {Map<string, {entry: Entry, reason: string, until: number}>} Keys that have just gone. */
const gone = new Map();

/** @type {string[]} The keys that are listed, in order. */
let listed = [];
let outdated = true; // whether that list may be another by now
let nextListing = 0; // the time from which it may be made again
/** @type {string | null} */
let chosen = null;

/** @type {WeakMap<Entry, string>} */
const haystacks = new WeakMap();

/** @param {string} key @param {Entry} entry */
function haystack(key, entry) {
  let text = haystacks.get(entry);
  if (text === undefined) {
    text = `${key}\n${textOf(entry.value)}`.toLowerCase();
    haystacks.set(entry, text);
  }
  return text;
}

/** @param {string} key */
const entryOf = (key) => queue?.entries.get(key) ?? gone.get(key)?.entry;

function list() {
  const started = performance.now();
  const wanted = element("filter").value.toLowerCase();
  const keys = new Set([...(queue?.entries.keys() ?? []), ...gone.keys()]);
  listed = [...keys].filter((key) => !wanted || haystack(key, /** @type {Entry} */ (entryOf(key))).includes(wanted));
  if (element("order").value === "key") {
    listed.sort();
  } else {
    const times = new Map(listed.map((key) => [key, entryOf(key)?.timestamp ?? 0]));
    listed.sort((one, other) => (times.get(other) ?? 0) - (times.get(one) ?? 0) || (one < other ? -1 : 1));
  }
  outdated = false;
  const ended = performance.now();
  nextListing = ended + 8 * (ended - started); // at most an eighth of the time goes into sorting
}

/** @param {Change[]} batch @param {LiveQueue} source */
function take(batch, source) {
  if (source !== queue) return;
  const now = performance.now();
  const filtered = element("filter").value !== "" || element("order").value !== "key";
  for (const { key, entry, previous, reason } of batch) {
    if (reason === "loaded" && previous === undefined) {
      outdated = true; // that is no news
      continue;
    }
    changes += 1;
    lit.set(key, now);
    gone.delete(key);
    if (entry === undefined && previous !== undefined) {
      gone.set(key, { entry: previous, reason, until: now + LINGERS });
    }
    if (filtered || entry === undefined || previous === undefined) outdated = true;
  }
  setTimeout(wake, LIT);
  wake();
}

// --------------------------------------------------------------- drawing

let awake = false;

function wake() {
  if (awake) return;
  awake = true;
  requestAnimationFrame(() => {
    awake = false;
    draw();
  });
}

function draw() {
  const now = performance.now();
  for (const [key, at] of lit) if (now - at >= LIT) lit.delete(key);
  for (const [key, { until }] of gone) {
    if (until > now) continue;
    gone.delete(key);
    outdated = true;
  }
  if (outdated && now >= nextListing) list();
  else if (outdated) setTimeout(wake, nextListing - now);
  drawState();
  drawRows();
  drawDetails();
}

/** @param {HTMLElement} node @param {string} text */
function write(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function drawTitle() {
  if (queue === null) return;
  const { mood, sign, title } = STATES[queue.state] ?? STATES.failed;
  document.title = mood === "good" ? `${queue.name} · lvq` : `${sign} ${title} · ${queue.name}`;
}

function drawState() {
  if (queue === null) return;
  const { state, reason, lag, age, complete, arriving, entries } = queue;
  const { mood, sign, title, what } = STATES[state] ?? STATES.failed;
  document.body.dataset.mood = mood;
  document.body.dataset.state = state;
  drawTitle();
  write(element("sign"), sign);
  write(element("state"), complete || state === "refused" || state === "connecting" ? title : `Not complete: ${title.toLowerCase()}`);
  write(element("what"), what(queue));
  write(element("why"), reason);
  element("retry").hidden = state !== "cut-off" && state !== "refused";
  write(element("keys"), complete ? counted(entries.size) : "–");
  write(element("changes"), counted(changes));
  write(element("lag"), lag === null || mood === "bad" ? "?" : counted(lag)); // nobody knows by now
  write(element("age"), age === null ? "?" : duration(age));
  const filter = element("filter").value;
  const arrived = arriving === null ? "" : `${counted(arriving)} values have arrived`;
  write(element("shown"), arrived || (filter ? `${counted(listed.length)} of ${counted(entries.size)}` : ""));
  element("none").hidden = listed.length > 0;
  write(element("none"), emptiness(queue, filter));
}

/** @param {LiveQueue} queue @param {string} filter */
function emptiness({ complete, entries, arriving }, filter) {
  if (!complete) return arriving === null ? "There is nothing to show yet." : "The values are being loaded.";
  if (entries.size > 0) return `No key or value contains “${visible(filter)}”.`;
  return "No key has a value.";
}

/** @type {Map<string, HTMLElement>} The rows that are in the page. */
const rows = new Map();
let rowHeight = 34;
let rowsMade = 0;

function measure() {
  rowHeight = parseFloat(getComputedStyle(grid).getPropertyValue("--row")) || 34;
  element("head").style.borderRight = `${grid.offsetWidth - grid.clientWidth}px solid transparent`; // as its scroll bar
  wake();
}

function drawRows() {
  const most = Math.floor(TALLEST / rowHeight);
  const number = Math.min(listed.length, most);
  space.style.height = `${number * rowHeight}px`;
  grid.setAttribute("aria-rowcount", String(listed.length));
  const first = Math.max(0, Math.floor(grid.scrollTop / rowHeight) - SPARE);
  const last = Math.min(number, Math.ceil((grid.scrollTop + grid.clientHeight) / rowHeight) + SPARE);
  const wanted = new Set(listed.slice(first, last));
  for (const [key, row] of rows) {
    if (wanted.has(key)) continue;
    row.remove();
    rows.delete(key);
  }
  let at = first;
  for (const key of wanted) {
    const row = rows.get(key) ?? newRow(key);
    if (space.children[at - first] !== row) space.insertBefore(row, space.children[at - first] ?? null);
    drawRow(row, key, at);
    at += 1;
  }
  const active = chosen === null ? undefined : rows.get(chosen);
  if (active) grid.setAttribute("aria-activedescendant", active.id);
  else grid.removeAttribute("aria-activedescendant");
}

/** @param {string} key */
function newRow(key) {
  const row = document.createElement("div");
  row.id = `row-${(rowsMade += 1)}`;
  row.setAttribute("role", "row");
  for (const name of ["key", "value", "age"]) {
    const cell = document.createElement("span");
    cell.className = name;
    cell.setAttribute("role", "gridcell");
    row.append(cell);
  }
  write(/** @type {HTMLElement} */ (row.firstChild), key === "" ? "(empty key)" : visible(key.slice(0, AT_ONCE)));
  if (key === "") /** @type {HTMLElement} */ (row.firstChild).classList.add("odd");
  row.addEventListener("click", () => {
    choose(key);
    open();
  });
  rows.set(key, row);
  return row;
}

/** @param {HTMLElement} row @param {string} key @param {number} at */
function drawRow(row, key, at) {
  const entry = entryOf(key);
  const ghost = queue?.entries.has(key) ? undefined : gone.get(key);
  row.className = ["row", lit.has(key) && "changed", !queue?.entries.has(key) && "gone", key === chosen && "chosen"]
    .filter(Boolean)
    .join(" ");
  row.style.transform = `translateY(${at * rowHeight}px)`;
  row.setAttribute("aria-rowindex", String(at + 1));
  row.setAttribute("aria-selected", String(key === chosen));
  const [, value, age] = /** @type {HTMLElement[]} */ ([...row.children]);
  if (entry === undefined || queue === null) return;
  value.classList.toggle("odd", !entry.decoded || entry.value instanceof Uint8Array);
  write(value, visible(textOf(entry.value).slice(0, AT_ONCE)));
  write(age, ghost ? ghost.reason : duration(queue.ageOf(entry)));
}

// --------------------------------------------------------------- details

/** @type {Entry | undefined} What the dialog shows. */
let detailed;

function open() {
  if (chosen === null || entryOf(chosen) === undefined || details.open) return;
  detailed = undefined;
  details.showModal();
  drawDetails();
}

function drawDetails() {
  if (!details.open || chosen === null || queue === null) return;
  const entry = queue.entries.get(chosen);
  const { mood, title } = STATES[queue.state] ?? STATES.failed;
  const current = entry ? "The current value" : "This key has no value any more; its last value";
  const format = (entry ?? detailed)?.decoded === false ? `, which is not ${queue.format}` : "";
  write(element("details-state"), `${current}${format}${mood === "good" ? "." : ` (${title.toLowerCase()}).`}`);
  if (entry === undefined || entry === detailed) return;
  detailed = entry;
  write(element("details-key"), chosen === "" ? "(empty key)" : visible(chosen));
  write(element("details-value"), visible(textOf(entry.value, 2), true));
  const written = new Date(entry.timestamp * 1000);
  /** @type {[string, string][]} */
  const facts = [
    ["written", `${written.toLocaleString()} (${written.toISOString()})`],
    ["position", entry.position],
  ];
  if (/[\udc80-\udcff]/u.test(chosen)) facts.push(["key in bytes", hex(keyBytes(chosen))]);
  for (const [name, data] of entry.headers) facts.push([visible(name), data === null ? "null" : visible(textOf(data))]);
  element("details-facts").replaceChildren(
    ...facts.flatMap(([name, text]) => {
      const [term, fact] = [document.createElement("dt"), document.createElement("dd")];
      write(term, name);
      write(fact, text);
      return [term, fact];
    }),
  );
}

// --------------------------------------------------------------- keyboard

/** @param {string | null} key */
function choose(key) {
  chosen = key;
  wake();
}

/** @param {number} at */
function chooseAt(at) {
  if (listed.length === 0) return;
  const index = Math.max(0, Math.min(listed.length - 1, at));
  const top = index * rowHeight;
  if (top < grid.scrollTop) grid.scrollTop = top;
  else if (top + rowHeight > grid.scrollTop + grid.clientHeight) grid.scrollTop = top + rowHeight - grid.clientHeight;
  choose(listed[index]);
}

grid.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
  if (event.altKey || event.ctrlKey || event.metaKey) return;
  const at = chosen === null ? -1 : listed.indexOf(chosen);
  const page = Math.max(1, Math.floor(grid.clientHeight / rowHeight) - 1);
  /** @type {Record<string, () => void>} */
  const keys = {
    ArrowDown: () => chooseAt(at + 1),
    ArrowUp: () => chooseAt(at < 0 ? 0 : at - 1),
    PageDown: () => chooseAt(at + page),
    PageUp: () => chooseAt(at - page),
    Home: () => chooseAt(0),
    End: () => chooseAt(listed.length - 1),
    Enter: open,
    " ": open,
    Escape: () => choose(null),
  };
  if (!(event.key in keys)) return;
  event.preventDefault();
  keys[event.key]();
});

element("filter").addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
  if (event.key === "Escape" && element("filter").value !== "") {
    element("filter").value = "";
    refilter();
  } else if (event.key === "Escape" || event.key === "ArrowDown" || event.key === "Enter") {
    grid.focus();
    if (event.key !== "Escape") chooseAt(0);
  } else {
    return;
  }
  event.preventDefault();
});

document.addEventListener("keydown", (event) => {
  const within = /** @type {HTMLElement} */ (event.target).closest("input, select, textarea, dialog");
  if (event.key !== "/" || within || event.altKey || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  element("filter").focus();
});

function refilter() {
  outdated = true;
  nextListing = 0;
  grid.scrollTop = 0;
  wake();
}

// --------------------------------------------------------------- queues and tokens

/** @param {string} name */
function show(name) {
  leave();
  changes = 0;
  lit.clear();
  gone.clear();
  chosen = null;
  if (details.open) details.close();
  element("values").hidden = false;
  element("ask").hidden = true;
  const token = sessionStorage.getItem(TOKEN) ?? undefined;
  queue = follow(name, { token, every: PACE, onChange: take, onState: notice });
  refilter();
}

/** @param {LiveQueue} source */
function notice(source) {
  if (source !== queue) return;
  if (source.refusal?.status === 401) ask(source.refusal.message);
  if (!source.complete || source.arriving !== null) outdated = true;
  drawTitle(); // a tab that nobody looks at draws nothing else
  wake();
}

/** @param {string} why */
function ask(why) {
  const known = sessionStorage.getItem(TOKEN) !== null;
  forget();
  document.body.dataset.mood = "wait";
  document.body.dataset.state = "asks";
  write(element("sign"), "…");
  write(element("state"), "A token is needed");
  for (const id of ["what", "why"]) write(element(id), "");
  write(element("ask-why"), known ? why : "");
  element("ask").hidden = false;
  element("token").focus();
}

function leave() {
  const left = queue;
  queue = null; // first, as it has a last word
  left?.close();
}

function forget() {
  sessionStorage.removeItem(TOKEN);
  leave();
  listed = [];
  rows.clear();
  space.replaceChildren();
  if (details.open) details.close();
  for (const id of ["details-key", "details-value", "details-facts"]) element(id).replaceChildren();
  element("forget").hidden = true;
  element("values").hidden = true;
  for (const id of ["keys", "lag", "age"]) write(element(id), "–");
  element("queue").replaceChildren(new Option("lvq"));
  element("queue").disabled = true;
  document.title = "lvq";
}

async function begin() {
  const token = sessionStorage.getItem(TOKEN) ?? undefined;
  let names;
  try {
    names = (await listQueues({ token })).map(({ name }) => name);
  } catch (error) {
    if (error instanceof ServerRefusal && error.status === 401) return ask(error.message);
    setTimeout(() => queue ?? begin(), AGAIN);
    return trouble("Cut off", "This page cannot reach its server.", error instanceof Error ? error.message : "");
  }
  element("forget").hidden = token === undefined;
  element("queue").replaceChildren(...names.map((name) => new Option(visible(name), name)));
  element("queue").disabled = names.length < 2;
  if (names.length === 0) return trouble("Refused", "This token may not read any queue here.", "");
  select(names);
}

/** @param {string[]} names */
function select(names) {
  const name = names.find((each) => encodeURIComponent(each) === location.hash.slice(1)) ?? names[0];
  element("queue").value = name;
  if (queue?.name !== name) show(name);
}

/** @param {string} title @param {string} what @param {string} why */
function trouble(title, what, why) {
  document.body.dataset.mood = "bad";
  document.body.dataset.state = "cut-off";
  for (const [id, text] of Object.entries({ sign: "✕", state: title, what, why })) write(element(id), text);
  element("retry").hidden = false;
}

element("ask").addEventListener("submit", (/** @type {Event} */ event) => {
  event.preventDefault();
  sessionStorage.setItem(TOKEN, element("token").value.trim());
  element("token").value = "";
  element("ask").hidden = true;
  void begin();
});

element("forget").addEventListener("click", () => {
  forget();
  void begin();
});

element("retry").addEventListener("click", () => {
  element("retry").hidden = true;
  if (queue === null) void begin();
  else queue.retry();
});

element("queue").addEventListener("change", () => {
  location.hash = encodeURIComponent(element("queue").value);
});

addEventListener("hashchange", () => {
  if (queue !== null) select([...element("queue").options].map(({ value }) => value));
});
addEventListener("online", () => queue?.retry());
addEventListener("resize", measure);
element("filter").addEventListener("input", refilter);
element("order").addEventListener("change", refilter);
element("close").addEventListener("click", () => details.close());
details.addEventListener("click", (/** @type {Event} */ event) => {
  if (event.target === details) details.close(); // its backdrop
});
grid.addEventListener("scroll", wake, { passive: true });
setInterval(wake, 1000); // ages

measure();
void begin();
