// The scale and the bars of the Gantt in the browser's zone, and its form sent as soon as something is chosen.

import "./page.js";

const clock = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });

function writeScale(root = document) {
  const at = (seconds) => clock.format(1000 * seconds);
  for (const text of root.querySelectorAll("text[data-at]")) text.textContent = at(text.dataset.at);
  for (const title of root.querySelectorAll("title[data-since]")) {
    const { since, until } = title.dataset, [words] = title.textContent.split("\n");
    title.textContent = `${words}\n${at(since)} to ${until ? at(until) : "unknown"}`;
  }
}

const form = document.getElementById("gantt-form");
for (const each of form.querySelectorAll("select")) each.addEventListener("change", () => form.requestSubmit());
document.addEventListener("gantree:replaced", (event) => writeScale(event.target));
writeScale();
