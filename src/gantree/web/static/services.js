// The pages of services: load changes without a decision, so they are read again every few seconds; two buttons.
import { api, refreshSoon, say } from "./page.js";

const EVERY_MS = 3000;
const byId = (id) => document.getElementById(id);
const form = byId("scale");

setInterval(refreshSoon, EVERY_MS);

async function request(method, path, body, done) {
  byId("problem").textContent = "";
  try {
    await api(method, path, body);
    say(done);
    refreshSoon();
  } catch (error) {
    byId("problem").textContent = error.message;
  }
}

function confirmed() {
  const dialog = byId("confirm");
  dialog.returnValue = "";
  dialog.showModal();
  byId("confirm-yes").focus();
  return new Promise((done) => dialog.addEventListener("close", () => done(dialog.returnValue === "yes"), { once: true }));
}

if (form) {
  const service = form.dataset.service;
  const path = encodeURIComponent(service);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const replicas = Number(new FormData(form).get("replicas"));
    await request("POST", `/v1/services/${path}/scale`, { replicas }, `${service} is to have ${replicas} replicas`);
  });
  byId("do-end")?.addEventListener("click", async () => {
    if (await confirmed()) await request("POST", `/v1/services/${path}/cancel`, undefined, `${service} ends`);
  });
}
