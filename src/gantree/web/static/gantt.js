// The scale of the Gantt in the browser's zone, and its form sent as soon as something is chosen.

import "./page.js";

const clock = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });

function writeScale(root = document) {
  for (const text of root.querySelectorAll("text[data-at]")) text.textContent = clock.format(1000 * text.dataset.at);
}

const form = document.getElementById("gantt-form");
for (const each of form.querySelectorAll("select")) each.addEventListener("change", () => form.requestSubmit());
document.addEventListener("gantree:replaced", (event) => writeScale(event.target));
writeScale();
