// What every page does: live parts, colour scheme, shortcuts, times in the browser's zone, log-out. Pages import from here.

export const base = document.body.dataset.base;
const standsBy = document.body.dataset.standby !== undefined;
const EVERY_MS = 1000;
/** What took long is not asked for so often: a page keeps the daemon busy for about a twenty-fifth of the time. */
const PAUSE_OF_TOOK = 25;
const LONGEST_PAUSE_MS = 15000;
const STANDBY_EVERY_MS = 5000;
/** A daemon that says nothing for so long is not there: it would have said that there is nothing new. */
export const SILENT_MS = 45000;

/** Say something to a screen reader, once. */
export function say(text) {
  const said = document.getElementById("said");
  said.textContent = "";
  requestAnimationFrame(() => { said.textContent = text; });
}

/** A request of the API; gives the answer's JSON. Throws an Error with the daemon's sentence and, if any, problems. */
export async function api(method, path, body, headers = {}) {
  const asJson = body === undefined ? {} : { "Content-Type": "application/json" };
  const answer = await fetch(base + path, {
    method, headers: { ...asJson, ...headers }, body: body === undefined ? undefined : JSON.stringify(body),
  });
  const text = await answer.text();
  const told = text ? JSON.parse(text) : {};
  if (!answer.ok) {
    throw Object.assign(new Error(told.detail || `the daemon answered with status ${answer.status}`), {
      status: answer.status, problems: told.problems || [],
    });
  }
  return told;
}

// Times: the server writes UTC, the browser its own zone, and how far away that is.
const far = new Intl.RelativeTimeFormat("en", { numeric: "auto", style: "narrow" });
const UNITS = [["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]];

function distance(seconds) {
  const [unit, size] = UNITS.find(([, size]) => Math.abs(seconds) >= size) || UNITS[3];
  return far.format(Math.round(seconds / size), unit);
}

export function writeTimes(root = document) {
  for (const time of root.querySelectorAll("time[datetime]")) {
    const at = new Date(time.dateTime);
    const text = distance((at - Date.now()) / 1000);
    if (time.textContent !== text) time.textContent = text;
    if (!time.title) time.title = at.toLocaleString();
  }
}

// Live parts.
const liveParts = () => [...document.querySelectorAll("[data-live]")];
let leaving = false, due = 0, waiting = null, running = false, following = null;

/** Fetch the live parts anew, soon: at most once a second, less often where it takes long, and not while the page is hidden. */
export function refreshSoon() {
  if (waiting !== null || leaving || document.hidden || !liveParts().length) return;
  waiting = setTimeout(async () => {
    waiting = null;
    if (running) return refreshSoon();
    running = true;
    const began = Date.now();
    try { await refresh(); } catch { showState("waiting for the daemon"); }
    running = false;
    due = Date.now() + Math.max(EVERY_MS, Math.min(LONGEST_PAUSE_MS, PAUSE_OF_TOOK * (Date.now() - began)));
  }, Math.max(0, due - Date.now()));
}

async function refresh() {
  const own = location.pathname.slice(base.length) + location.search;
  const addresses = new Set(liveParts().map((part) => part.dataset.live || own));
  for (const address of addresses) {
    const answer = await fetch(base + address, { headers: { Accept: "text/html" }, signal: AbortSignal.timeout(SILENT_MS) });
    if (leaving) return;
    if (answer.redirected && new URL(answer.url).pathname === `${base}/login`) {
      location.assign(`${base}/login?next=${encodeURIComponent(own)}`);
      return;
    }
    if (!answer.ok) continue;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    if ((fresh.body.dataset.standby !== undefined) !== standsBy) { location.reload(); return; }
    for (const part of liveParts()) {
      if ((part.dataset.live || own) === address) replace(part, fresh.getElementById(part.id));
    }
  }
}

function replace(part, fresh) {
  if (!fresh) return;
  writeTimes(part);
  writeTimes(fresh);
  const open = [...part.querySelectorAll("details[id]")].map((each) => [each.id, each.open]);
  const scrolled = [part, ...part.querySelectorAll("[id]")].filter((each) => each.id && (each.scrollTop || each.scrollLeft))
    .map((each) => [each.id, each.scrollTop, each.scrollLeft]);
  const focused = part.contains(document.activeElement) ? document.activeElement : null;
  const focus = focused && (focused.id ? `#${CSS.escape(focused.id)}`
    : focused.getAttribute("href") ? `a[href="${CSS.escape(focused.getAttribute("href"))}"]` : null);
  const here = document.adoptNode(fresh);
  for (const [id, isOpen] of open) here.querySelector(`#${CSS.escape(id)}`)?.toggleAttribute("open", isOpen);
  if (here.isEqualNode(part)) return;
  part.replaceWith(here);
  for (const [id, top, left] of scrolled) document.getElementById(id)?.scrollTo(left, top);
  if (focus) here.querySelector(focus)?.focus({ preventScroll: true });
  here.dispatchEvent(new CustomEvent("gantree:replaced", { bubbles: true }));
}

function showState(text) {
  const state = document.getElementById("live-state");
  if (state && state.textContent !== text) state.textContent = text;
}

// Only that something came matters here; what it was is asked of the page.
async function follow() {
  following?.abort();
  const mine = following = new AbortController();
  let pause = 500;
  const job = document.body.dataset.job;
  const address = `${base}/v1/events${job ? `?job=${encodeURIComponent(job)}` : ""}`;
  while (!mine.signal.aborted) {
    const silent = new AbortController();
    let alarm = setTimeout(() => silent.abort(), SILENT_MS);
    try {
      const stream = await fetch(address, { signal: AbortSignal.any([mine.signal, silent.signal]) });
      if (!stream.ok) throw new Error(String(stream.status));
      showState("live");
      refreshSoon();
      const reader = stream.body.getReader();
      const decoder = new TextDecoder();
      for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
        pause = 500;
        clearTimeout(alarm);
        alarm = setTimeout(() => silent.abort(), SILENT_MS);
        if (/^(id|event|data):/m.test(decoder.decode(piece.value, { stream: true }))) refreshSoon();
      }
    } catch {
      if (mine.signal.aborted) return;
    } finally {
      clearTimeout(alarm);
    }
    showState("waiting for the daemon");
    await new Promise((done) => setTimeout(done, pause));
    if (mine.signal.aborted) return;
    pause = Math.min(2 * pause, LONGEST_PAUSE_MS);
    refreshSoon();
  }
}

/** Whether the daemon leads is another page: load it where that has changed. Who leads instead is a live part. */
export async function lookWhoLeads() {
  if (document.hidden || leaving) return;
  const leads = await fetch(`${base}/readyz`).then((answer) => answer.ok, () => !standsBy);
  if (leads === standsBy) location.reload();
  else if (standsBy) refreshSoon();
}

function followWhileSeen() {
  if (!liveParts().length) return;
  if (document.hidden) {
    following?.abort();
    showState("paused");
  } else {
    follow();
  }
}

// Colour scheme.
const THEMES = ["auto", "light", "dark"];
const THEME_SIGNS = { auto: "\u25D0", light: "\u2600", dark: "\u263E" };
const THEME_WORDS = { auto: "system", light: "light", dark: "dark" };

function showTheme(theme) {
  const button = document.getElementById("theme");
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  button.textContent = THEME_SIGNS[theme];
  button.setAttribute("aria-label", `Colours: ${THEME_WORDS[theme]}`);
  button.title = `Colours: ${THEME_WORDS[theme]}`;
}

function changeTheme() {
  const now = document.documentElement.dataset.theme || "auto";
  const next = THEMES[(THEMES.indexOf(now) + 1) % THEMES.length];
  localStorage.setItem("gantree-theme", next);
  showTheme(next);
  say(`Colours: ${THEME_WORDS[next]}`);
}

// Shortcuts: not while something is typed, nor with a modifier.
function onKey(event) {
  const typing = event.target.closest?.("input, textarea, select, [contenteditable]");
  if (typing || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (event.key === "/") document.getElementById("search")?.focus();
  else if (event.key === "?") document.getElementById("help").showModal();
  else if (/^[0-9]$/.test(event.key)) document.querySelectorAll("nav[aria-label=Pages] a")[(Number(event.key) + 9) % 10]?.click();
  else return;
  event.preventDefault();
}

async function logOut() {
  leaving = true;
  following?.abort();
  try { await api("DELETE", "/v1/session"); } catch (error) { if (error.status !== 401) { say(error.message); leaving = false; return; } }
  location.assign(`${base}/login`);
}

showTheme(document.documentElement.dataset.theme || "auto");
document.getElementById("theme").addEventListener("click", changeTheme);
document.getElementById("help-button").addEventListener("click", () => document.getElementById("help").showModal());
document.getElementById("log-out")?.addEventListener("click", logOut);
document.addEventListener("keydown", onKey);
document.addEventListener("visibilitychange", followWhileSeen);
addEventListener("pagehide", () => following?.abort());
writeTimes();
setInterval(() => { if (!document.hidden) writeTimes(); }, 1000);
followWhileSeen();
if (standsBy) setInterval(lookWhoLeads, STANDBY_EVERY_MS);
