// The scale and the bars of the Gantt in the browser's zone, where it opens, and its form sent as soon as something is chosen.

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

// Where the picture is wider than the window it opens at now, and the names of its rows stay in sight.
const NOW_AT = 0.7;

function openAtNow() {
  const scroll = document.getElementById("gantt-scroll"), now = document.getElementById("gantt-now");
  if (!scroll || !now || scroll.scrollWidth <= scroll.clientWidth) return;
  scroll.scrollLeft += now.getBoundingClientRect().left - scroll.getBoundingClientRect().left - NOW_AT * scroll.clientWidth;
}

function keepNames() {
  const scroll = document.getElementById("gantt-scroll"), picture = scroll?.querySelector("svg");
  if (!picture) return;
  const x = scroll.scrollLeft * picture.viewBox.baseVal.width / picture.getBoundingClientRect().width;
  document.getElementById("gantt-names").setAttribute("transform", `translate(${x.toFixed(1)} 0)`);
}

document.addEventListener("scroll", (event) => { if (event.target.id === "gantt-scroll") keepNames(); }, { capture: true, passive: true });
addEventListener("resize", keepNames);

const form = document.getElementById("gantt-form");
for (const each of form.querySelectorAll("select")) each.addEventListener("change", () => form.requestSubmit());
document.addEventListener("gantree:replaced", (event) => { writeScale(event.target); keepNames(); });
writeScale();
openAtNow();
keepNames();
