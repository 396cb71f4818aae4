// Holds the text against the daemon while it is typed (nothing is taken), and hands it in when asked to.
import { api, base, say } from "./page.js";

const AFTER_MS = 350;
const form = document.getElementById("submit"), text = document.getElementById("text");
const verdict = document.getElementById("verdict"), problems = document.getElementById("problems");
let timer = null, asked = 0;

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
    tell(`${count} problem${count === 1 ? "" : "s"}`, "bad", error.problems.map(problemLine));
  } else {
    tell(error.message, "bad");
  }
}

const body = () => ({ text: text.value, source: "job.yaml" });

async function check() {
  const number = ++asked;
  try {
    const told = await api("POST", "/v1/jobs/check", body());
    if (number !== asked) return;
    const jobs = told.jobs.map((each) => each.job).join(", ");
    tell(told.warnings.length ? `Valid, as ${jobs}, with warnings:` : `Valid: it would be submitted as ${jobs}.`,
      told.warnings.length ? "warn" : "good", told.warnings);
  } catch (error) {
    if (number === asked) tellError(error);
  }
}

text.addEventListener("input", () => {
  clearTimeout(timer);
  timer = setTimeout(check, AFTER_MS);
});

text.addEventListener("keydown", (event) => {
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

check();
