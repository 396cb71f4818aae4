// Fields write the job file until it is edited; the daemon checks it and forecasts its start while it is typed (nothing is
// taken), and gets it on Submit.
import { api, base, say, writeTimes } from "./page.js";

const AFTER_MS = 350;
const form = document.getElementById("submit"), text = document.getElementById("text");
const verdict = document.getElementById("verdict"), problems = document.getElementById("problems");
const fields = document.getElementById("fields"), edited = document.getElementById("edited"), forecast = document.getElementById("forecast");
let timer = null, asked = 0;

// ----- the file, from the fields

const value = (name) => document.getElementById(`f-${name}`).value.trim();
const PLAIN = /^[A-Za-z_/][\w./@%+=-]*$/, WORDS = /^(?:true|false|null|yes|no|on|off|y|n)$/i;
/** A text as YAML: JSON's quotes are YAML's. */
const quoted = (word) => (PLAIN.test(word) && !WORDS.test(word) ? word : JSON.stringify(word));

/** The words of a command, with quotes and backslashes as in a shell. */
function words(line) {
  const found = [];
  let word = null, quote = "";
  for (let i = 0; i < line.length; i += 1) {
    const sign = line[i], next = line[i + 1];
    const escapes = sign === "\\" && next !== undefined && (quote === "" || (quote === '"' && '"\\$`'.includes(next)));
    if (escapes) { word = (word ?? "") + next; i += 1; }
    else if (quote ? sign === quote : sign === '"' || sign === "'") { quote = quote ? "" : sign; word ??= ""; }
    else if (!quote && /\s/.test(sign)) { if (word !== null) found.push(word); word = null; }
    else word = (word ?? "") + sign;
  }
  return word === null ? found : [...found, word];
}

function variables() {
  return document.getElementById("f-env").value.split("\n").map((line) => line.trim()).filter(Boolean).map((line) => {
    const cut = line.indexOf("=");
    return cut < 0 ? [line, ""] : [line.slice(0, cut).trim(), line.slice(cut + 1)];
  });
}

function fileOfFields() {
  const lines = [`name: ${quoted(value("name"))}`, `queue: ${quoted(value("queue"))}`];
  if (value("priority")) lines.push(`priority: ${quoted(value("priority"))}`);
  lines.push("gang:", "  - role: worker", `    members: ${value("members") || 1}`);
  if (value("processes") !== "1" && value("processes")) lines.push(`    processes: ${value("processes")}`);
  lines.push(`    each: {gpus: ${value("gpus") || 0}}`);
  if (value("gpu")) lines.push(`    gpu: [${quoted(value("gpu"))}]`);
  lines.push(`    run: [${words(value("run")).map(quoted).join(", ")}]`);
  if (value("workdir")) lines.push(`    workdir: ${quoted(value("workdir"))}`);
  const env = variables();
  if (env.length) lines.push("    env:", ...env.map(([name, text_]) => `      ${quoted(name)}: ${JSON.stringify(text_)}`));
  if (value("time_limit")) lines.push(`time_limit: ${quoted(value("time_limit"))}`);
  return `${lines.join("\n")}\n`;
}

function checkSoon() {
  clearTimeout(timer);
  timer = setTimeout(check, AFTER_MS);
}

function write() {
  text.value = fileOfFields();
  edited.hidden = true;
  checkSoon();
}

// ----- problems, beside the field where there is one

const FIELD_OF = [[/^name$/, "name"], [/^queue$/, "queue"], [/^priority$/, "priority"], [/^time_limit$/, "time_limit"],
  [/members$/, "members"], [/processes$/, "processes"], [/each/, "gpus"], [/gpu(\[\d+\])?$/, "gpu"], [/run/, "run"], [/workdir/, "workdir"], [/env/, "env"]];
const fieldOf = ({ field }) => FIELD_OF.find(([shape]) => shape.test(field))?.[1];

function markFields(found) {
  for (const mark of fields.querySelectorAll("small[id^=e-]")) {
    const name = mark.id.slice(2), own = found.filter((each) => fieldOf(each) === name);
    mark.textContent = own.map((each) => `found ${each.found}; allowed: ${each.allowed}`).join(" ");
    document.getElementById(`f-${name}`).setAttribute("aria-invalid", String(own.length > 0));
  }
}

// ----- the check and the forecast

function tell(sentence, kind, lines = []) {
  verdict.textContent = sentence;
  verdict.className = kind;
  text.setAttribute("aria-invalid", String(kind === "bad"));
  problems.replaceChildren(...lines.map((line) => {
    const item = document.createElement("li");
    item.textContent = line;
    return item;
  }));
}

function problemLine({ line, field, found, allowed, hint }) {
  const where = line ? `line ${line}: ` : "";
  return `${where}${field}: found ${found}; allowed: ${allowed}${hint ? `. ${hint}` : ""}`;
}

function tellError(error) {
  if (error.problems?.length) {
    const count = error.problems.length;
    markFields(edited.hidden ? error.problems : []);
    tell(`${count} problem${count === 1 ? "" : "s"}`, "bad", error.problems.map(problemLine));
  } else {
    tell(error.message, "bad");
  }
}

const body = () => ({ text: text.value, source: "job.yaml" });

async function tellForecast(number) {
  const told = await api("POST", "/v1/jobs/forecast", body()).catch((error) => ({ error }));
  if (number !== asked) return;
  forecast.replaceChildren();
  if (told.error) { forecast.textContent = told.error.message; return; }
  const { now, start, place, sentence, stopped } = told.forecast;
  if (now) {
    const nodes = place.nodes.slice(0, 4).join(", ") + (place.nodes.length > 4 ? ` and ${place.nodes.length - 4} more` : "");
    forecast.append(`Would start now on ${nodes}.`);
  } else {
    forecast.append(sentence);
    if (start) {
      const at = document.createElement("time");
      at.dateTime = new Date(1000 * start.starts_at).toISOString();
      forecast.append(start.promised ? " Would be promised to start " : " Would probably start ", at, ".");
      writeTimes(forecast);
    }
  }
  if (stopped.length) forecast.append(` Would stop or shrink ${stopped.map((each) => each.job).join(", ")}.`);
}

async function check() {
  const number = ++asked;
  forecast.replaceChildren();
  try {
    const told = await api("POST", "/v1/jobs/check", body());
    if (number !== asked) return;
    markFields([]);
    const jobs = told.jobs.map((each) => each.job).join(", ");
    tell(told.warnings.length ? `Valid, as ${jobs}, with warnings:` : `Valid: it would be submitted as ${jobs}.`,
      told.warnings.length ? "warn" : "good", told.warnings);
    tellForecast(number);
  } catch (error) {
    if (number === asked) tellError(error);
  }
}

text.addEventListener("input", () => { edited.hidden = false; checkSoon(); });
fields.addEventListener("input", () => { if (edited.hidden) write(); });
document.getElementById("rewrite").addEventListener("click", write);

form.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
});

// The same key until the text changes: a second click, or a try after a broken line, hands in nothing twice.
let key = null, keyOf = null;

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  clearTimeout(timer);
  asked++;
  if (keyOf !== text.value) [key, keyOf] = [newKey(), text.value];
  document.getElementById("send").disabled = true;
  try {
    const told = await api("POST", "/v1/jobs", body(), { "Idempotency-Key": key });
    say(`Submitted ${told.jobs.map((each) => each.job).join(", ")}`);
    location.assign(told.jobs.length === 1 ? `${base}/jobs/${encodeURIComponent(told.jobs[0].job)}` : `${base}/queue`);
  } catch (error) {
    tellError(error);
    text.focus();
  }
  document.getElementById("send").disabled = false;
});

// crypto.randomUUID is there on https and localhost only.
function newKey() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

write();
