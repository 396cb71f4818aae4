// Buttons of idle jobs: a lease with one click; cancelling asks first.
import { api, refreshSoon, say } from "./page.js";

const LEASE_S = 7200;
const byId = (id) => document.getElementById(id);

/** Ask whether a job is to be cancelled. */
function confirmed(job) {
  const dialog = byId("confirm");
  byId("confirm-title").textContent = `Cancel ${job}?`;
  dialog.returnValue = "";
  dialog.showModal();
  byId("confirm-yes").focus();
  return new Promise((done) => dialog.addEventListener("close", () => done(dialog.returnValue === "yes"), { once: true }));
}

async function request(job, action, body, done) {
  byId("problem").textContent = "";
  try {
    await api("POST", `/v1/jobs/${encodeURIComponent(job)}/${action}`, body);
    say(done);
    refreshSoon();
  } catch (error) {
    byId("problem").textContent = error.message;
  }
}

document.addEventListener("click", async (event) => {
  const { keep, cancel } = event.target.closest?.("[data-keep], [data-cancel]")?.dataset ?? {};
  if (keep) await request(keep, "extend", { for_s: LEASE_S }, `${keep} is not reclaimed for 2 hours`);
  if (cancel && await confirmed(cancel)) await request(cancel, "cancel", undefined, `Cancel ${cancel}: requested`);
});
