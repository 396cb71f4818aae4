// The page of one job: its buttons with a question first, and what-if. Its output is in job_log.js.
import { api, refreshSoon, say, writeTimes } from "./page.js";

const job = document.body.dataset.job;
const path = `/v1/jobs/${encodeURIComponent(job)}`;
const byId = (id) => document.getElementById(id);

const ACTIONS = {
  cancel: ["Cancel", "The job is stopped and does not restart."],
  hold: ["Hold", "The job does not start until it is released."],
  release: ["Release", "The job may start again."],
  resume: ["Resume", "The job returns to the queue and may start again."],
  suspend: ["Suspend", "The job saves a checkpoint if it can, stops, and does not start until it is resumed."],
  priority: ["Change the priority of", "A priority class of the policy, or a number. It takes effect at once.", "priority"],
  scale: ["Scale", "The new number of members. A running gang saves a checkpoint and restarts.", "members"],
};

/** Ask; gives the value (or true where none is wanted), or null. */
function confirmed(action) {
  const [word, text, field] = ACTIONS[action];
  const dialog = byId("confirm"), value = byId("confirm-value");
  byId("confirm-title").textContent = `${word} ${job}?`;
  byId("confirm-text").textContent = text;
  byId("confirm-field").hidden = !field;
  value.value = "";
  value.required = Boolean(field);
  value.inputMode = field === "members" ? "numeric" : "text";
  dialog.returnValue = "";
  dialog.showModal();
  (field ? value : byId("confirm-yes")).focus();
  return new Promise((done) => dialog.addEventListener("close", () => {
    done(dialog.returnValue !== "yes" ? null : field ? value.value.trim() : true);
  }, { once: true }));
}

const numberOrWord = (text) => (/^-?\d+$/.test(text) ? Number(text) : text);

async function act(action) {
  const value = await confirmed(action);
  if (value === null) return;
  const field = ACTIONS[action][2];
  byId("problem").textContent = "";
  try {
    await api("POST", `${path}/${action}`, field ? { [field]: numberOrWord(value) } : undefined);
    say(`${ACTIONS[action][0]} ${job}: requested`);
    refreshSoon();
  } catch (error) {
    byId("problem").textContent = error.message;
  }
}

/** A lease for an idle job, with one click: it takes nothing from anybody who does not ask for it. */
async function extend(seconds) {
  byId("problem").textContent = "";
  try {
    await api("POST", `${path}/extend`, { for_s: seconds });
    say(`${job} is not reclaimed for ${seconds / 3600} h`);
    refreshSoon();
  } catch (error) {
    byId("problem").textContent = error.message;
  }
}

document.addEventListener("click", (event) => {
  const button = event.target.closest?.("[data-action], [data-extend]");
  if (button?.dataset.extend) extend(Number(button.dataset.extend));
  else if (button) act(button.dataset.action);
});

// The phase, for those who do not see it change.
let phase = byId("head").dataset.phase;
document.addEventListener("gantree:replaced", (event) => {
  if (event.target.id !== "head" || event.target.dataset.phase === phase) return;
  phase = event.target.dataset.phase;
  say(`${job} is ${phase}`);
  if (["starting", "running"].includes(phase) && !byId("output")) location.reload();
});

// Reports of progress are no events: a running job is looked at again from time to time.
const PROGRESS_EVERY_MS = 10_000;
setInterval(() => { if (["running", "saving"].includes(phase)) refreshSoon(); }, PROGRESS_EVERY_MS);

// What if.
const HOW = { preempt: "preempts", reclaim: "takes back what is borrowed by", order: "goes before", shrink: "shrinks", move: "moves" };

function changesOf(form) {
  const given = {};
  for (const [name, text] of new FormData(form)) {
    if (name === "together" || text === "") continue;
    given[name] = name === "topology.required" && text === "none" ? null : ["members", "priority"].includes(name) ? numberOrWord(text) : text;
  }
  if (form.elements.together.checked) return Object.keys(given).length ? [given] : [];
  return Object.entries(given).map(([name, value]) => ({ [name]: value }));
}

function element(name, text, attributes = {}) {
  const made = document.createElement(name);
  if (text !== undefined) made.append(text);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

function changeWords(change) {
  const WORDS = { "topology.required": "in one", members: "members:", gpu: "on", priority: "priority" };
  const told = Object.entries(change).map(([name, value]) => (value === null ? "anywhere" : `${WORDS[name] || name} ${value}`));
  return told.join(", ") || "as it is";
}

function startCell(each) {
  const cell = element("td");
  if (each.now) {
    cell.append(`at once, on ${each.place.nodes.length} node${each.place.nodes.length === 1 ? "" : "s"} of ${each.place.domain.tier} ${each.place.domain.name}`.trim());
  } else if (each.start) {
    cell.append(each.start.promised ? "promised " : each.start.reserved ? "probably " : "perhaps ");
    cell.append(element("time", "", { datetime: new Date(1000 * each.start.starts_at).toISOString() }));
    cell.append(` ${each.sentence}`);
  } else {
    cell.append(`unknown. ${each.sentence}`);
  }
  for (const one of each.stopped) cell.append(element("br"), `${HOW[one.how] || one.how} ${one.job}`);
  return cell;
}

const beside = (ratio) => (ratio ? `, ${ratio.toFixed(2)} times the best placement` : "");

function stepText(each) {
  if (each.step_s !== null) return `${each.step_s.toPrecision(3)} s${beside(each.step_ratio)}`;
  return each.comm_ratio !== null ? `communication${beside(each.comm_ratio)}` : "\u2013";
}

function costText(each) {
  const hours = each.gpu_hours === null ? [] : [`${each.gpu_hours.toPrecision(3)} GPU-hours`];
  return [...hours, ...(each.cost_USD === null ? [] : [`${each.cost_USD.toFixed(2)} USD`])].join(", ") || "\u2013";
}

function showAlternatives(found) {
  const table = element("table");
  table.append(element("caption", "What the scheduler would decide now; nothing changes"));
  const head = element("tr");
  for (const name of ["If", "It would start", "Step", "Run"]) head.append(element("th", name, { scope: "col" }));
  const body = element("tbody");
  for (const each of found) {
    const line = element("tr");
    line.append(element("th", changeWords(each.change), { scope: "row" }), startCell(each), element("td", stepText(each)), element("td", costText(each)));
    body.append(line);
  }
  const thead = element("thead");
  thead.append(head);
  table.append(thead, body);
  writeTimes(table);
  byId("alternatives").replaceChildren(table);
}

byId("what-if")?.addEventListener("submit", async (event) => {
  event.preventDefault();
  try {
    const told = await api("POST", `${path}/what-if`, { changes: changesOf(event.target) });
    showAlternatives(told.alternatives);
  } catch (error) {
    byId("alternatives").replaceChildren(element("p", error.message, { class: "bad" }));
  }
});
