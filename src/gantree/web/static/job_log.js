// The output on a job's page: the last lines of each rank, then what comes; searched, with times, and as a file.
import { base } from "./page.js";
import { ansiText, overwritten } from "./ansi.js";

const MOST_LINES = 5000, MOST_OF_LINE = 10_000, LEAST_TAIL = 20, AGAIN_MS = 2000, SHOW_EVERY_MS = 100, OVERLAP_S = 10;
const HAVE_ENDED = ["succeeded", "failed", "cancelled", "timed-out"];
const job = document.body.dataset.job;
const path = `${base}/v1/jobs/${encodeURIComponent(job)}/logs`;
const form = document.getElementById("logs"), output = document.getElementById("output");
const note = document.getElementById("log-note"), download = document.getElementById("download");
const utf8 = new TextEncoder();
let reading = null, shown = null, coming = [], waiting = null;

/** What is shown: which bytes of each log have come, its line without an end, and the last time. */
function nothingShown(query) {
  return { query, logs: new Map(), lastAt: null, lines: 0, onPage: 0, hasDropped: false };
}

function wanted() {
  const { ranks, grep, attempt } = form.elements, query = new URLSearchParams();
  const names = ranks.value.replace(/\s/g, "");
  if (/^\d+$/.test(names) && !grep.value) query.set("rank", names);
  else if (names) query.set("ranks", names);
  if (grep.value) query.set("grep", grep.value);
  if (attempt?.value) query.set("attempt", attempt.value);
  return query;
}

function rankCount(names) {
  if (!names) return Number(form.dataset.processes);
  return names.split(",").reduce((sum, each) => { const [a, b = a] = each.split("-").map(Number); return sum + Math.max(1, b - a + 1 || 1); }, 0);
}

/** Where to begin: at the last lines, at the beginning of a search, or a moment before what came last. */
function beginning(query) {
  const asked = new URLSearchParams(query);
  asked.set("format", "json");
  asked.set("follow", form.elements.follow.checked ? "1" : "0");
  if (shown.lastAt !== null) asked.set("since", Math.max(0, shown.lastAt - OVERLAP_S));
  else if (!query.has("grep")) asked.set("tail", Math.max(LEAST_TAIL, Math.floor(MOST_LINES / rankCount(query.get("ranks") || query.get("rank")))));
  return asked;
}

async function showOutput({ anew }) {
  reading?.abort();
  const mine = reading = new AbortController(), query = wanted(), follows = form.elements.follow.checked;
  if (anew || shown === null) { shown = nothingShown(query); coming = []; output.replaceChildren(); }
  offerDownload(query);
  let goesOn = true;
  while (goesOn && !mine.signal.aborted) {
    try {
      say(query.has("grep") ? "Searching\u2026" : "");
      await readOutput(`${path}?${beginning(query)}`, mine.signal);
      say(summary(query));
      goesOn = follows && !HAVE_ENDED.includes(document.getElementById("head").dataset.phase);
    } catch (error) {
      if (mine.signal.aborted) return;
      goesOn = follows && !(error.status < 500);
      say(goesOn ? "The daemon does not answer; waiting for it." : error.message, true);
    }
    if (goesOn) await new Promise((done) => setTimeout(done, AGAIN_MS));
  }
}

function summary(query) {
  if (query.has("grep")) return shown.lines ? `${shown.lines.toLocaleString("en")} lines match.` : "No line matches.";
  return shown.hasDropped ? "Only the last lines are shown; the download has all." : "";
}

function say(text, isBad = false) {
  if (note.textContent !== text) note.textContent = text;
  note.classList.toggle("bad", isBad);
}

function offerDownload(query) {
  const asked = new URLSearchParams(query), names = asked.get("rank") || asked.get("ranks");
  if (form.elements.timestamps.checked) asked.set("timestamps", "1");
  download.href = `${path}?${asked}`;
  download.download = `${job}${names ? `-rank-${names}` : ""}.log`;
}

async function readOutput(address, signal) {
  const stream = await fetch(address, { signal });
  if (!stream.ok) {
    const told = await stream.json();
    throw Object.assign(new Error(told.problems?.length ? told.problems.map((each) => `${each.field}: found ${each.found}; allowed: ${each.allowed}`).join(" ") : told.detail), { status: stream.status });
  }
  const reader = stream.body.getReader(), decoder = new TextDecoder();
  let rest = "";
  for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
    const rows = (rest + decoder.decode(piece.value, { stream: true })).split("\n");
    rest = rows.pop();
    for (const row of rows) take(JSON.parse(row));
    waiting ??= setTimeout(() => { waiting = null; showComing(); }, SHOW_EVERY_MS);
  }
  showComing();
}

const bytesOf = (row) => (row.text === undefined ? Uint8Array.from(atob(row.base64), (each) => each.charCodeAt(0)) : utf8.encode(row.text));

/** One row of the stream, without what has come before. */
function take(row) {
  const key = `${row.attempt}/${row.rank}`;
  const log = shown.logs.get(key) || { end: -1, open: null, style: undefined, decoder: new TextDecoder() };
  shown.logs.set(key, log);
  if (row.end <= log.end) return;
  const old = row.notice ? 0 : Math.max(0, log.end - row.start);
  log.end = row.end;
  shown.lastAt = Math.max(shown.lastAt ?? 0, row.at);
  const text = old || row.text === undefined ? log.decoder.decode(bytesOf(row).subarray(old), { stream: true }) : row.text;
  const lines = text.split("\n"), unfinished = lines.pop();
  for (const line of lines) coming.push([row, log, line, true]);
  if (unfinished) coming.push([row, log, unfinished, false]);
  if (coming.length > 2 * MOST_LINES) dropUnseen();
}

/** Of what would be gone at once no elements are made. */
function dropUnseen() {
  for (const [, log, , ends] of coming.splice(0, coming.length - MOST_LINES)) {
    log.open = null;
    if (ends) shown.lines += 1;
  }
  shown.hasDropped = true;
}

/** Make elements of what has come, a few times a second. */
function showComing() {
  const now = coming;
  coming = [];
  keepEnd(() => { for (const each of now) put(...each); });
  if (shown.query.has("grep")) say(summary(shown.query));
}

/** Add to the line of a log that has no end yet, or begin one. */
function put(row, log, text, ends) {
  const open = log.open || { text: "", left: 0, style: log.style, element: begun(row) };
  open.text += text;
  if (!ends && open.text.includes("\r")) open.text = open.text.slice(open.text.lastIndexOf("\r", open.text.length - 2) + 1);
  const line = overwritten(open.text);
  if (open.text.length > MOST_OF_LINE) { open.left += open.text.length - MOST_OF_LINE; open.text = open.text.slice(0, MOST_OF_LINE); }
  const [made, style] = ansiText(line.slice(0, MOST_OF_LINE), open.style);
  open.element.lastChild.replaceChildren(made, ...(open.left ? [left(open.left)] : []));
  log.open = ends ? null : open;
  if (ends) log.style = style;
}

function left(count) {
  const made = document.createElement("em");
  made.textContent = ` \u2026 and ${count.toLocaleString("en")} more characters`;
  return made;
}

function begun(row) {
  const line = document.createElement("div"), at = document.createElement("span"), who = document.createElement("span");
  const when = new Date(1000 * row.at), two = (value, width = 2) => String(value).padStart(width, "0");
  at.className = "at";
  at.title = when.toLocaleString();
  at.textContent = `${two(when.getHours())}:${two(when.getMinutes())}:${two(when.getSeconds())}.${two(when.getMilliseconds(), 3)} `;
  who.className = "who";
  who.textContent = `[${row.rank}] `;
  line.className = row.notice ? "line notice" : "line";
  line.append(at, who, document.createElement("span"));
  output.append(line);
  shown.lines += 1;
  shown.onPage += 1;
  if (shown.onPage > MOST_LINES) { output.firstElementChild.remove(); shown.onPage -= 1; shown.hasDropped = true; }
  return line;
}

/** Change the output, and stay at its end if that was in view. */
function keepEnd(change) {
  const atEnd = output.scrollTop + output.clientHeight >= output.scrollHeight - 8;
  change();
  if (atEnd) output.scrollTop = output.scrollHeight;
}

function showTimes() {
  keepEnd(() => output.classList.toggle("timed", form.elements.timestamps.checked));
  offerDownload(wanted());
}

if (form) {
  form.addEventListener("submit", (event) => { event.preventDefault(); showOutput({ anew: true }); });
  form.elements.timestamps.addEventListener("change", showTimes);
  form.elements.follow.addEventListener("change", () => showOutput({ anew: false }));
  document.addEventListener("visibilitychange", () => { if (document.hidden) reading?.abort(); else showOutput({ anew: false }); });
  addEventListener("pagehide", () => reading?.abort());
  showTimes();
  showOutput({ anew: true });
}
