// Gives the token to the daemon, which answers with a cookie that no script can read.
import { api, base } from "./page.js";

const form = document.getElementById("login");
form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const problem = document.getElementById("login-problem");
  const field = document.getElementById("token");
  problem.textContent = "";
  try {
    await api("POST", "/v1/session", { token: field.value.trim() });
    location.assign(base + form.dataset.next);
  } catch (error) {
    problem.textContent = error.message;
    field.setAttribute("aria-invalid", "true");
    field.focus();
  }
});
