// Buttons of operators: cordon, drain, uncordon, each asked once more, with a reason.

import { api, refreshSoon, say } from "./page.js";

const $ = (id) => document.getElementById(id);
const dialog = $("node-dialog"), form = $("node-form");
const WORDS = {
  cordon: ["Cordon", "No new jobs start on the node; running jobs stay."],
  uncordon: ["Uncordon", "Jobs may start on the node again."],
  drain: ["Drain", "No new jobs start on the node. Running jobs save a checkpoint if they can and continue on other nodes, or wait."],
};
let act = null, node = null;

document.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-act]");
  if (!button) return;
  ({ act, node } = button.dataset);
  const [word, meaning] = WORDS[act];
  $("node-dialog-title").textContent = `${word} ${node}?`;
  $("node-dialog-words").textContent = meaning;
  $("node-do").textContent = word;
  $("node-problem").textContent = "";
  $("node-reason-label").hidden = act === "uncordon";
  $("node-deadline-label").hidden = act !== "drain";
  form.reset();
  dialog.showModal();
  (act === "uncordon" ? $("node-do") : $("node-reason")).focus();
});

$("node-cancel").addEventListener("click", () => dialog.close());
form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const minutes = $("node-deadline").value;
  const reason = { reason: $("node-reason").value };
  const body = { cordon: reason, uncordon: undefined, drain: { ...reason, deadline_s: minutes === "" ? null : 60 * minutes } }[act];
  $("node-do").disabled = true;
  try {
    await api("POST", `/v1/nodes/${encodeURIComponent(node)}/${act}`, body);
    dialog.close();
    say(`${WORDS[act][0]} ${node}: requested`);
    refreshSoon();
  } catch (error) {
    $("node-problem").textContent = error.message;
  }
  $("node-do").disabled = false;
});
