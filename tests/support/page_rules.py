"""Rules that every page keeps for all its readers, as a script: `page.evaluate(AUDIT)` lists what breaks one.

Names of links, buttons and fields; one heading first and no level left out; landmarks; tables with caption and scope;
text with a contrast of at least 4.5 (3 where it is large), computed over what lies below it; ids that are there once.
"""

AUDIT = r"""
() => {
  const found = [];
  const seen = (each) => each.checkVisibility({ visibilityProperty: true, opacityProperty: true });
  const all = (selector) => [...document.querySelectorAll(selector)];
  const say = (rule, each) => found.push(`${rule}: ${each.outerHTML.replace(/\s+/g, " ").slice(0, 120)}`);
  const idsIn = (each, name) => (each.getAttribute(name) || "").split(/\s+/).filter(Boolean);
  const named = (each) => Boolean((each.getAttribute("aria-label") || "").trim()
    || idsIn(each, "aria-labelledby").some((id) => document.getElementById(id)?.textContent.trim())
    || each.textContent.trim() || [...each.querySelectorAll("img[alt]")].some((image) => image.alt.trim())
    || each.querySelector("svg title, svg[aria-label]"));
  if (!document.documentElement.lang) found.push("the page has no language");
  if (!document.title.trim()) found.push("the page has no title");
  if (all("main").length !== 1) found.push("not one main");
  if (all("h1").filter(seen).length !== 1) found.push("not one h1");
  let level = 0;
  for (const each of all("main h1, main h2, main h3, main h4").filter(seen)) {
    const now = Number(each.localName[1]);
    if (now > level + 1) say("a level of headings is left out", each);
    level = now;
  }
  for (const each of all("a[href], button, summary").filter(seen)) if (!named(each)) say("no name", each);
  for (const each of all("input:not([type=hidden]), select, textarea").filter(seen)) {
    const labelled = [...each.labels].some((label) => label.textContent.trim()) || each.getAttribute("aria-label")
      || each.getAttribute("aria-labelledby");
    if (!labelled) say("no label", each);
  }
  for (const each of all("img")) if (!each.hasAttribute("alt")) say("no alt", each);
  for (const each of all("svg").filter(seen)) {
    const named = each.matches("[aria-label], [aria-labelledby]") || each.querySelector("title");
    if (!named && !each.closest("[aria-hidden=true]")) say("a picture without a name", each);
  }
  for (const each of all("table").filter(seen)) {
    if (!each.caption?.textContent.trim()) say("no caption", each);
    for (const head of each.querySelectorAll("th")) if (!head.scope) say("no scope", head);
  }
  for (const each of all("nav").filter(seen)) if (!named(each)) say("a landmark without a name", each);
  const ids = all("[id]").map((each) => each.id);
  for (const id of new Set(ids.filter((each, place) => ids.indexOf(each) !== place))) found.push(`id twice: ${id}`);
  for (const each of all("[aria-labelledby], [aria-describedby]")) {
    for (const id of [...idsIn(each, "aria-labelledby"), ...idsIn(each, "aria-describedby")]) {
      if (!document.getElementById(id)) say(`no #${id}`, each);
    }
  }
  // Contrast, as WCAG 2 computes it.
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = ([r, g, b, a], below) => [r, g, b].map((part, place) => part * a + below[place] * (1 - a));
  const ground = (each) => {
    const layers = [];
    for (let at = each; at; at = at.parentElement) layers.push(rgba(getComputedStyle(at).backgroundColor));
    return layers.reverse().reduce((below, layer) => over(layer, below), [255, 255, 255]);
  };
  const light = (colour) => colour.map((part) => part / 255)
    .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4))
    .reduce((sum, part, place) => sum + part * [0.2126, 0.7152, 0.0722][place], 0);
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let text = walker.nextNode(); text; text = walker.nextNode()) {
    const each = text.parentElement;
    if (!text.data.trim() || !seen(each) || each.closest("svg, .unseen, .skip, :disabled")) continue;
    const style = getComputedStyle(each), below = ground(each);
    const [a, b] = [light(over(rgba(style.color), below)), light(below)];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    if (ratio < (large ? 3 : 4.5)) say(`contrast ${ratio.toFixed(2)}`, each);
  }
  return found;
}
"""
