// The heat map of the cluster on a canvas: what heat_map/layout.py and heat_map/messages.py tell, drawn, searched, walked with keys.

import { SILENT_MS, base, lookWhoLeads, say } from "./page.js";
import { HUES, colours, lookOf, pattern, readableOn, useSteps } from "./heat_look.js";

const LEAST_CELL_PX = 2.2, LEAST_TEXT_PX = 8, LEAST_CODE_PX = 15, TEXTURED_PX = 5, LOOKS = HUES.length * 4;
const FREE = -1, TAKEN = 0, PAUSE_MS = 4000;
const SIGNS = { cordoned: "\u2013", draining: "\u2193", drained: "\u25CB", lost: "\u00D7", broken: "!" };
const $ = (id) => document.getElementById(id);
const canvas = $("map"), told = $("told"), seek = $("seek"), legend = $("legend"), pen = canvas.getContext("2d");
const rest = told.textContent;

let site = null, scene = null, ink = null, zoom = 1, left = 0, top_ = 0, at = null, hits = null, asked = false;
const queues = new Map(), use = new Map();  // use: what counters say, by node

// What the daemon tells.
function prepare(map) {
  const gpus = runs(map.node_gpus), machines = runs(map.node_machine);
  map.first = new Int32Array(gpus.length + 1);
  gpus.forEach((count, node) => { map.first[node + 1] = map.first[node] + count; });
  map.gpus = gpus;
  map.machine = machines.map((number) => map.machines[number]);
  map.domains = map.domains.map(([tier, name, x, y, width, height, first, count, health, load]) =>
    ({ tier, name, x, y, width, height, first, count, health, load }));
  map.last = map.domains.filter((each) => each.tier === map.tiers.length - 2);
  return map;
}

function runs(pairs) {
  const numbers = [];
  for (let i = 0; i < pairs.length; i += 2) for (let n = pairs[i + 1]; n > 0; n--) numbers.push(pairs[i]);
  return numbers;
}

function begin(whole) {
  use.clear();
  scene = { ...whole, cells: Int32Array.from(runs(whole.cells)), parts: new Map(), holders: new Map(), states: whole.states };
  whole.parts.forEach(([gpu, ...parts]) => scene.parts.set(gpu, parts));
  whole.holders.forEach(hold);
  seen();
}

function hold([number, kind, job, queue, user, phase, gpus, since]) {
  scene.holders.set(number, { number, kind: scene.kinds[kind], job, queue, user, phase, gpus, since });
  if (queue && !queues.has(queue)) queues.set(queue, queues.size);
}

function change(delta) {
  delta.gone.forEach((number) => scene.holders.delete(number));
  delta.holders.forEach(hold);
  for (const [node, [state, cells]] of Object.entries(delta.nodes)) {
    const first = site.first[node];
    if (state) scene.states[node] = state; else delete scene.states[node];
    cells.forEach((cell, i) => {
      const parts = Array.isArray(cell);
      scene.cells[first + i] = parts ? FREE : cell;
      if (parts) scene.parts.set(first + i, cell); else scene.parts.delete(first + i);
    });
  }
  for (const [row, numbers] of Object.entries(delta.domains)) {
    const cells = $(`domain-${row}`)?.querySelectorAll("td:not(.none, .busy)") ?? [];
    cells.forEach((cell, column) => { cell.textContent = numbers[column].toLocaleString("en"); });
  }
  scene.at = delta.at;
  seen();
}

/** What counters say: of each GPU percent busy, GiB used and there, watts, degrees. */
function count(told_) {
  for (const [node, rows] of Object.entries(told_)) if (rows) use.set(+node, rows); else use.delete(+node);
  seen();
}

const useOf = (gpu, node = nodeOf(gpu)) => use.get(node)?.[gpu - site.first[node]];

/** How busy each domain is, beside its other numbers; the table has them tier by tier. */
function writeBusy() {
  const byTier = site.tiers.flatMap((_, tier) => site.domains.filter((each) => each.tier === tier));
  byTier.forEach(({ first, count: nodes }, row) => {
    const cell = $(`domain-${row}`)?.querySelector(".busy");
    if (!cell) return;
    let sum = 0, gpus = 0;
    for (let node = first; node < first + nodes; node++) for (const each of use.get(node) || []) if (each && each[0] !== null) { sum += each[0]; gpus++; }
    cell.textContent = gpus ? `${Math.round(sum / gpus)} %` : "\u2013";
  });
}

function seen() {
  writeBusy();
  search();
  writeLegend();
  if (at !== null) told.textContent = words(at);
  canvas.dataset.at = scene.at;
  draw();
}

let stream = null, alarm = null;
function heard() {
  clearTimeout(alarm);
  alarm = setTimeout(follow, SILENT_MS);
}

function follow() {
  stream?.close();
  clearTimeout(alarm);
  if (document.hidden) return;
  stream = new EventSource(`${base}/cluster/stream`);
  heard();
  for (const each of ["whole", "delta", "use", "beat"]) stream.addEventListener(each, heard);
  let begun = Promise.resolve();  // what comes while a map is being fetched waits for it
  stream.addEventListener("whole", (event) => {
    const whole = JSON.parse(event.data);
    begun = load(whole.map_id).then(() => begin(whole));
  });
  stream.addEventListener("delta", (event) => begun.then(() => change(JSON.parse(event.data))));
  stream.addEventListener("use", (event) => begun.then(() => count(JSON.parse(event.data))));
  stream.addEventListener("error", lookWhoLeads);
  stream.onerror = () => { if (stream.readyState === 2) setTimeout(follow, PAUSE_MS); };
}

const maps = new Map();
function fetched(id) {
  if (!maps.has(id)) maps.set(id, fetch(`${base}/cluster/map/${id}`).then((answer) => (answer.ok ? answer.json() : null)));
  return maps.get(id);
}

async function load(id) {
  if (site?.map_id === id) return;
  const map = await fetched(id);
  if (!map) { location.reload(); return; }
  site = prepare(map);
  fill($("level"), [["gpu", "each GPU"], ...site.tiers.slice(1).map((tier, i) => [i + 1, `each ${tier}`])]);
  resize();
  fit();
}

function fill(select, options) {
  const was = select.value;
  select.replaceChildren(...options.map(([value, text]) => new Option(text, value)));
  if (options.some(([value]) => String(value) === was)) select.value = was;
}

// How a GPU looks, by what is asked for.
const mode = () => document.querySelector("input[name=colour]:checked").value;
const state = (node) => scene.node_states[scene.states[node] || 0];
const known = (number) => scene.holders.get(number);
const sequence = (number) => Math.floor((number - 1) / scene.kinds.slice(0, 3).length);

function look(number, node, gpu) {
  const how = mode();
  if (how === "health") return healthLook(node);
  if (how === "use") return useLook(node, number !== FREE, gpu);
  if (number === FREE) return { fill: ink.free, key: state(node) === "ready" ? "free" : "free, but unusable", hollow: true };
  if (number === TAKEN) return { fill: ink.taken, key: "taken" };
  const who = known(number);
  if (!who || who.kind === "site") return { fill: ink.taken, key: "site", dots: true };
  const index = how === "queue" ? queues.get(who.queue) ?? 0 : who.look ??= lookOf(who.job);
  const held = who.kind !== "job";
  return { hue: index % LOOKS, reserved: held, key: `${how === "queue" ? who.queue : who.job}${held ? " reserved" : ""}` };
}

function healthLook(node) {
  const condition = site.conditions[node], name = state(node);
  const worn = condition && (condition[0] < 1 || condition[2].some((note) => /health|out of use/.test(note)));
  const key = name === "ready" && worn ? "worn" : name;
  return { fill: ink[`state-${key}`], key };
}

function useLook(node, held_, gpu) {
  const load_ = site.conditions[node]?.[1] || 0, busy = useOf(gpu, node)?.[0] ?? null;
  const counts_ = busy !== null && (held_ || (busy > 0 && !scene.parts.has(gpu)));  // somebody may compute on what is free
  if (counts_) { const step = Math.min(3, Math.floor(busy / 25)); return { fill: ink.steps[step], key: `busy ${25 * step} to ${25 * step + 25} %`, number: busy }; }
  if (!held_) return { fill: ink.free, key: "free", hollow: true };
  if (load_ > 0) { const step = Math.min(3, Math.floor(load_ * 4)); return { fill: ink.steps[step], key: `load ${25 * step} to ${25 * step + 25} %` }; }
  return { fill: ink.held, key: "held" };
}

const paint = (seen_, side) => seen_.hue === undefined
  ? (seen_.dots && side >= TEXTURED_PX ? pattern(pen, 0, "site", ink) : seen_.fill)
  : seen_.reserved && side >= TEXTURED_PX ? pattern(pen, seen_.hue, "reserved", ink)
  : side < TEXTURED_PX ? HUES[seen_.hue % HUES.length] : pattern(pen, seen_.hue, "job", ink);

// Drawing, in pixels of the screen.
function draw() {
  if (asked) return;
  asked = true;
  requestAnimationFrame(() => { asked = false; if (site && scene) paintAll(); });
}

function paintAll() {
  const ratio = devicePixelRatio || 1, wide = canvas.width / ratio, high = canvas.height / ratio;
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.fillStyle = ink.page;
  pen.fillRect(0, 0, wide, high);
  const level = $("level").value, tier = level === "gpu" || +level === site.tiers.length - 1 ? null : +level;
  for (const each of site.domains) if (tier === null || each.tier <= tier) paintDomain(each, wide, high, tier);
  if (tier === null) for (let node = 0; node < site.gpus.length; node++) paintNode(node, wide, high, level === "gpu");
  if (at !== null) paintMark();
  canvas.dataset.drawn = String(1 + +(canvas.dataset.drawn || 0));
  if (!performance.getEntriesByName("map-drawn").length) performance.mark("map-drawn");
}

const X = (x) => x * zoom + left, Y = (y) => y * zoom + top_;
const outside = (x, y, w, h, wide, high) => x > wide || y > high || x + w < 0 || y + h < 0;

function paintDomain(each, wide, high, tier) {
  if (each.tier === 0) { if (tier === 0) paintStack(each.x, each.y, each.width, each.height, each.first, each.first + each.count); return; }
  const x = X(each.x), y = Y(each.y), w = each.width * zoom, h = each.height * zoom;
  if (outside(x, y, w, h, wide, high)) return;
  pen.fillStyle = each.tier % 2 ? ink.deep : ink.box;
  pen.strokeStyle = each.health === 0 ? ink.bad : each.health < 1 ? ink.warn : ink.line;
  pen.setLineDash(each.health === 0 ? [5, 3] : []);
  pen.lineWidth = each.health < 1 ? 2 : 1;
  pen.fillRect(x, y, w, h);
  pen.strokeRect(x, y, w, h);
  pen.setLineDash([]);
  const size = Math.max(9, Math.min(16, site.scale.domain_font * zoom));
  const head = site.scale.head * zoom;
  if (tier === each.tier) paintStack(each.x, each.y + site.scale.head, each.width, each.height - site.scale.head, each.first, each.first + each.count);
  if (head < LEAST_TEXT_PX) return;
  pen.font = `600 ${Math.min(size, head * 0.8)}px system-ui, sans-serif`;
  pen.fillStyle = ink.text;
  const own = `${site.tiers[each.tier]} ${each.name.split("/").pop()}`;
  const more = each.health < 1 ? `${own} \u25B2 health ${Math.round(100 * each.health)} %` : own;
  pen.fillText(clip(more, w - 8), x + 4, y + head * 0.76);
}

function clip(text, room) {
  if (pen.measureText(text).width <= room) return text;
  let end = text.length;
  while (end > 1 && pen.measureText(`${text.slice(0, end)}\u2026`).width > room) end--;
  return room < 12 ? "" : `${text.slice(0, end)}\u2026`;
}

/** Nodes of which single GPUs would be too small: what is in them, as a stack whose parts have the right sizes. */
function paintStack(x, y, w, h, first, last) {
  const counts = new Map();
  for (let node = first; node < last; node++) for (let gpu = site.first[node]; gpu < site.first[node + 1]; gpu++) {
    const found = look(strongest(gpu), node, gpu), was = counts.get(found.key);
    if (was) was.count++; else counts.set(found.key, { found, count: 1 });
  }
  const total = site.first[last] - site.first[first];
  let from = X(x) + 1;
  for (const { found, count } of counts.values()) {
    const width = (w * zoom - 2) * count / total;
    pen.fillStyle = paint(found, h * zoom);
    pen.fillRect(from, Y(y) + 1, width, h * zoom - 2);
    from += width;
  }
  pen.strokeStyle = ink.line;
  pen.strokeRect(X(x) + 1, Y(y) + 1, w * zoom - 2, h * zoom - 2);
}

const strongest = (gpu) => scene.parts.get(gpu)?.find(([number]) => number !== FREE)?.[0] ?? scene.cells[gpu];

function paintNode(node, wide, high, each) {
  const shape = site.shapes[site.gpus[node]], x = site.node_at[2 * node], y = site.node_at[2 * node + 1];
  const [w, h] = shape.size;
  if (outside(X(x), Y(y), w * zoom, h * zoom, wide, high)) return;
  const dim = hits && !hits.has(node), name = state(node), side = site.scale.cell * zoom;
  pen.globalAlpha = dim ? 0.15 : 1;
  if (!each || side < LEAST_CELL_PX) paintStack(x, y, w, h, node, node + 1);
  else {
    pen.fillStyle = ink.page;
    pen.fillRect(X(x), Y(y), w * zoom, h * zoom);
    pen.strokeStyle = ink.line;
    pen.lineWidth = 0.7;
    pen.strokeRect(X(x), Y(y), w * zoom, h * zoom);
    for (let i = 0; i < site.gpus[node]; i++) paintGpu(site.first[node] + i, node, X(x + shape.cells[2 * i]), Y(y + shape.cells[2 * i + 1]), side);
  }
  if (name !== "ready") paintState(name, X(x), Y(y), w * zoom, h * zoom);
  const size = site.scale.node_font * zoom;
  if (each && size >= LEAST_TEXT_PX) {
    pen.font = `${Math.min(13, size)}px system-ui, sans-serif`;
    pen.fillStyle = ink.text;
    const notes = site.conditions[node]?.[2].length || site.conditions[node]?.[0] < 1 ? " \u25B2" : "";
    pen.fillText(clip(site.node_names[node] + notes, (w - 2 * site.scale.padding) * zoom), X(x + site.scale.padding), Y(y) + size * 1.2);
  }
  pen.globalAlpha = 1;
}

function paintGpu(gpu, node, x, y, side) {
  const parts = scene.parts.get(gpu), health = mode() === "health";
  pen.fillStyle = ink.free;
  if (!parts || health) {
    const found = look(scene.cells[gpu], node, gpu);
    pen.fillStyle = paint(found, side);
    pen.fillRect(x, y, side, side);
    if (found.hollow || found.reserved) outline(x, y, side, side);
    if (side >= LEAST_CODE_PX && found.hue !== undefined && mode() === "job") code(scene.cells[gpu], x, y, side, found);
    if (side >= LEAST_CODE_PX && found.number !== undefined) figure(String(found.number), x, y, side, found.fill);
    return;
  }
  pen.fillRect(x, y, side, side);
  outline(x, y, side, side);
  for (const [number, start, size] of parts) {
    const found = look(number, node, gpu), to = y + side - side * (start + size) / scene.whole;
    pen.fillStyle = paint(found, side);
    pen.fillRect(x, to, side, Math.max(1, side * size / scene.whole - (side > 8 ? 1 : 0)));
    if (found.hollow && side > 4) outline(x, to, side, side * size / scene.whole);
  }
}

function outline(x, y, w, h) {
  pen.strokeStyle = ink["free-line"];
  pen.lineWidth = 0.7;
  pen.strokeRect(x + 0.35, y + 0.35, Math.max(0.5, w - 0.7), Math.max(0.5, h - 0.7));
}

/** Letters that tell holders apart whose colours are alike: a, b, ... z, aa. */
function codeOf(number) {
  let letters = "";
  for (let rest_ = sequence(number) + 1; rest_; rest_ = Math.floor((rest_ - 1) / 26)) letters = String.fromCharCode(97 + (rest_ - 1) % 26) + letters;
  return letters;
}

function code(number, x, y, side, found) {
  const text = codeOf(number), size = Math.min(side * 0.6, 1.4 * side / text.length);
  pen.font = `600 ${size}px system-ui, sans-serif`;
  const width = pen.measureText(text).width;
  pen.fillStyle = HUES[found.hue % HUES.length];
  pen.fillRect(x + (side - width) / 2 - 1, y + side * 0.2, width + 2, side * 0.6);
  pen.fillStyle = found.hue % HUES.length === 4 ? "#fff" : "#000";
  pen.fillText(text, x + (side - width) / 2, y + side / 2 + size * 0.35);
}

function figure(text, x, y, side, on) {
  const size = Math.min(side * 0.55, 1.3 * side / text.length);
  pen.font = `600 ${size}px system-ui, sans-serif`;
  pen.fillStyle = readableOn(on);
  pen.fillText(text, x + (side - pen.measureText(text).width) / 2, y + side / 2 + size * 0.35);
}

function paintState(name, x, y, w, h) {
  pen.fillStyle = pattern(pen, 0, name === "cordoned" ? "stripes" : "hatch", ink);
  pen.globalAlpha *= 0.6;
  pen.fillRect(x, y, w, h);
  pen.globalAlpha /= 0.6;
  pen.strokeStyle = ink.bad;
  pen.lineWidth = 1.2;
  pen.setLineDash([3, 2]);
  pen.strokeRect(x, y, w, h);
  pen.setLineDash([]);
  const size = Math.min(16, h * 0.5, w * 0.5);
  if (size < 5) return;
  pen.font = `700 ${size}px system-ui, sans-serif`;
  pen.fillStyle = ink.page;
  pen.fillRect(x + w - size, y, size, size);
  pen.fillStyle = ink.bad;
  pen.fillText(SIGNS[name], x + w - size * 0.8, y + size * 0.85);
}

function paintMark() {
  const { x, y, side } = cornerOf(at);
  pen.strokeStyle = ink.mark;
  pen.lineWidth = 3;
  pen.strokeRect(X(x) - 2, Y(y) - 2, Math.max(6, side * zoom) + 4, Math.max(6, side * zoom) + 4);
}

// Places.
function nodeOf(gpu) {
  let low = 0, high = site.gpus.length - 1;
  while (low < high) { const middle = (low + high + 1) >> 1; if (site.first[middle] <= gpu) low = middle; else high = middle - 1; }
  return low;
}

function cornerOf(gpu) {
  const node = nodeOf(gpu), i = gpu - site.first[node], cells = site.shapes[site.gpus[node]].cells;
  return { node, x: site.node_at[2 * node] + cells[2 * i], y: site.node_at[2 * node + 1] + cells[2 * i + 1], side: site.scale.cell };
}

function gpuAt(event) {
  const box = canvas.getBoundingClientRect(), x = (event.clientX - box.left - left) / zoom, y = (event.clientY - box.top - top_) / zoom;
  const domain = site.last.find((each) => x >= each.x && x <= each.x + each.width && y >= each.y && y <= each.y + each.height);
  for (let node = domain?.first ?? 0; domain && node < domain.first + domain.count; node++) {
    const inX = x - site.node_at[2 * node], inY = y - site.node_at[2 * node + 1], { size, cells } = site.shapes[site.gpus[node]];
    if (inX < 0 || inY < 0 || inX > size[0] || inY > size[1] || !site.gpus[node]) continue;
    let best = 0, least = Infinity;
    for (let i = 0; i < site.gpus[node]; i++) {
      const far = Math.abs(inX - cells[2 * i] - site.scale.cell / 2) + Math.abs(inY - cells[2 * i + 1] - site.scale.cell / 2);
      if (far < least) [best, least] = [i, far];
    }
    return site.first[node] + best;
  }
  return null;
}

// In words.
function words(gpu) {
  const node = nodeOf(gpu), name = state(node), parts = scene.parts.get(gpu);
  const who = parts ? (parts.length ? parts.map(([number, , size]) => `${holderWords(number)} (${Math.round(100 * size / scene.whole)} %)`).join("; ")
    : "free, in MIG mode") : holderWords(scene.cells[gpu]);
  const notes = [...(name === "ready" ? [] : [name]), ...(site.conditions[node]?.[2] || [])];
  const domain = site.last.find((each) => node >= each.first && node < each.first + each.count);
  return [`Node ${site.node_names[node]}, GPU ${gpu - site.first[node]} (${site.machine[node]})`, domain?.name, ...notes, who, useWords(useOf(gpu, node))].filter(Boolean).join(" \u00B7 ");
}

function useWords(told_) {
  if (!told_) return "";
  const [busy, used, there, watts, degrees] = told_, has = (value) => value !== null;
  const memory = has(used) && (has(there) ? `${used} of ${there} GiB` : `${used} GiB`);
  return [has(busy) && `${busy} % busy`, memory, has(watts) && `${watts} W`, has(degrees) && `${degrees} \u00B0C`].filter(Boolean).join(", ");
}

function holderWords(number) {
  if (number === FREE) return "free";
  if (number === TAKEN) return "taken";
  const who = known(number);
  if (!who) return "taken";
  if (who.kind === "site") return `allocated by the site: ${who.job}`;
  const of = [who.queue && `queue ${who.queue}`, who.user && `user ${who.user}`, `${who.gpus} GPU${who.gpus === 1 ? "" : "s"}`].filter(Boolean).join(", ");
  return who.kind === "job" ? `job ${who.job}, ${who.phase} (${of})` : `held for waiting job ${who.job} (${of})`;
}

function search() {
  const wanted = seek.value.trim().toLowerCase();
  if (!wanted) { hits = null; $("matches").textContent = ""; return; }
  const numbers = new Set([...scene.holders.values()].filter((each) =>
    [each.job, each.queue, each.user, each.phase].some((word) => word.toLowerCase().includes(wanted))).map((each) => each.number));
  hits = new Set();
  for (let node = 0; node < site.gpus.length; node++) {
    let hit = site.node_names[node].toLowerCase().includes(wanted) || state(node).includes(wanted);
    for (let gpu = site.first[node]; !hit && gpu < site.first[node + 1]; gpu++) {
      hit = numbers.has(scene.cells[gpu]) || (scene.parts.get(gpu) || []).some(([number]) => numbers.has(number))
        || look(strongest(gpu), node, gpu).key.toLowerCase() === wanted
        || (wanted === "free" && scene.cells[gpu] === FREE && !scene.parts.has(gpu) && state(node) === "ready");
    }
    if (hit) hits.add(node);
  }
  $("matches").textContent = `${hits.size.toLocaleString("en")} ${hits.size === 1 ? "node" : "nodes"}`;
}

// The legend is a list of buttons that search.
const MOST = 40;
function writeLegend() {
  const counts = new Map();
  for (let node = 0; node < site.gpus.length; node++) for (let gpu = site.first[node]; gpu < site.first[node + 1]; gpu++) {
    const found = look(strongest(gpu), node, gpu), was = counts.get(found.key);
    if (was) was.count++; else counts.set(found.key, { found, count: 1, number: strongest(gpu) });
  }
  const rows = [...counts.values()].sort((a, b) => (b.found.number === undefined ? 0 : b.found.number + 1) - (a.found.number === undefined ? 0 : a.found.number + 1) || b.count - a.count);
  const shown = rows.slice(0, MOST).map(({ found, count, number }) => legendRow(found, count, number));
  if (rows.length > MOST) shown.push(Object.assign(document.createElement("li"), { textContent: `${rows.length - MOST} more; search for them`, className: "faint" }));
  const focused = legend.contains(document.activeElement) ? document.activeElement.dataset.key : null;
  legend.replaceChildren(...shown);
  if (focused) [...legend.querySelectorAll("button")].find((each) => each.dataset.key === focused)?.focus();
}

function legendRow(found, count, number) {
  const row = document.createElement("li"), button = document.createElement("button"), swatch = document.createElement("canvas");
  const own = swatch.getContext("2d");
  swatch.width = swatch.height = 16;
  swatch.setAttribute("aria-hidden", "true");
  own.fillStyle = found.hue === undefined ? (found.dots ? pattern(own, 0, "site", ink) : found.fill) : pattern(own, found.hue, found.reserved ? "reserved" : "job", ink);
  own.fillRect(1, 1, 14, 14);
  own.strokeStyle = ink["free-line"];
  own.strokeRect(1, 1, 14, 14);
  button.type = "button";
  button.dataset.key = found.key;
  const letters = mode() === "job" && found.hue !== undefined ? `${codeOf(number)}: ` : "";
  const sign = mode() === "health" && SIGNS[found.key] ? `${SIGNS[found.key]} ` : "";
  const count_ = Object.assign(document.createElement("b"), { textContent: count.toLocaleString("en") });
  const name = Object.assign(document.createElement("span"), { textContent: letters + sign + found.key });
  button.append(swatch, name, count_);
  button.addEventListener("click", () => {
    const text = found.key.replace(/ reserved$/, "");
    seek.value = seek.value === text ? "" : text;
    search();
    draw();
  });
  row.append(button);
  return row;
}

// Moving about.
function resize() {
  const ratio = devicePixelRatio || 1, wide = canvas.parentElement.clientWidth;
  const high = site ? Math.max(180, Math.min(innerHeight * 0.75, site.height * wide / site.width)) : 320;
  canvas.style.height = `${high}px`;
  canvas.width = Math.round(wide * ratio);
  canvas.height = Math.round(high * ratio);
  draw();
}

function fit() {
  const ratio = devicePixelRatio || 1;
  zoom = Math.min(2, canvas.width / ratio / site.width, Math.max(canvas.height / ratio / site.height, 0.4));
  left = Math.max(0, (canvas.width / ratio - site.width * zoom) / 2);
  top_ = 0;
  draw();
}

function zoomTo(to, x = canvas.clientWidth / 2, y = canvas.clientHeight / 2) {
  const next = Math.max(0.05, Math.min(12, to));
  left = x - (x - left) * next / zoom;
  top_ = y - (y - top_) * next / zoom;
  zoom = next;
  draw();
}

function show(gpu) {
  at = gpu;
  const { x, y, side } = cornerOf(gpu), margin = 24;
  left += Math.max(0, margin - X(x)) + Math.min(0, canvas.clientWidth - margin - X(x + side));
  top_ += Math.max(0, margin - Y(y)) + Math.min(0, canvas.clientHeight - margin - Y(y + side));
  told.textContent = words(gpu);
  canvas.setAttribute("aria-label", words(gpu));
  say(words(gpu));
  draw();
}

function open(gpu, wantsNode) {
  const who = known(strongest(gpu));
  const job = who && who.kind !== "site" ? who.job : null;
  location.assign(job && !wantsNode ? `${base}/jobs/${encodeURIComponent(job)}` : `${base}/nodes/${encodeURIComponent(site.node_names[nodeOf(gpu)])}`);
}

function step(key) {
  const last = site.first[site.first.length - 1] - 1, gpu = at ?? -1, node = at === null ? -1 : nodeOf(at);
  const domain = site.last.findIndex((each) => node >= each.first && node < each.first + each.count);
  const firstOf = (index) => site.first[Math.max(0, Math.min(site.gpus.length - 1, index))];
  const firstIn = (index) => site.first[site.last[Math.max(0, Math.min(site.last.length - 1, index))].first];
  return { ArrowRight: Math.min(last, gpu + 1), ArrowLeft: Math.max(0, gpu - 1), ArrowDown: firstOf(node + 1), ArrowUp: firstOf(node - 1),
    PageDown: firstIn(domain + 1), PageUp: firstIn(domain - 1), Home: 0, End: last }[key];
}

canvas.addEventListener("keydown", (event) => {
  if (!scene || event.ctrlKey || event.metaKey || event.altKey) return;
  const to = step(event.key), act = { "+": () => zoomTo(zoom * 1.4), "=": () => zoomTo(zoom * 1.4), "-": () => zoomTo(zoom / 1.4), 0: fit,
    Enter: () => at !== null && open(at, event.shiftKey), n: () => at !== null && open(at, true), Escape: () => { at = null; told.textContent = rest; draw(); } }[event.key];
  if (to === undefined && !act) return;
  event.preventDefault();
  if (act) act(); else show(to);
});
canvas.addEventListener("focus", () => { if (scene && at === null && canvas.matches(":focus-visible")) show(0); });

let held = null, moved = false, pressed = null;  // a click says where it was in whole pixels only
const fingers = new Map();
canvas.addEventListener("pointerdown", (event) => {
  fingers.set(event.pointerId, event);
  pressed = event;
  held = { x: event.clientX, y: event.clientY, left, top: top_, zoom, apart: apart() };
  moved = false;
});
addEventListener("pointermove", (event) => {
  if (!held || !fingers.has(event.pointerId)) return;
  fingers.set(event.pointerId, event);
  if (fingers.size === 2 && held.apart) { zoomTo(held.zoom * apart() / held.apart); moved = true; return; }
  moved ||= Math.hypot(event.clientX - held.x, event.clientY - held.y) > 5;
  if (moved) { left = held.left + event.clientX - held.x; top_ = held.top + event.clientY - held.y; draw(); }
});
for (const name of ["pointerup", "pointercancel"]) addEventListener(name, (event) => { fingers.delete(event.pointerId); if (!fingers.size) held = null; });
function apart() {
  const [a, b] = [...fingers.values()];
  return b ? Math.hypot(a.clientX - b.clientX, a.clientY - b.clientY) : 0;
}
canvas.addEventListener("pointermove", (event) => {
  if (!scene || moved) return;
  const gpu = gpuAt(event);
  canvas.classList.toggle("over", gpu !== null);
  told.textContent = gpu === null ? (at === null ? rest : words(at)) : words(gpu);
});
canvas.addEventListener("click", (event) => {
  if (!scene || moved) return;
  const gpu = gpuAt(pressed ?? event);
  if (gpu !== null) open(gpu, event.shiftKey);
});
canvas.addEventListener("wheel", (event) => {
  if (!event.ctrlKey && !event.metaKey) return;
  event.preventDefault();
  const box = canvas.getBoundingClientRect();
  zoomTo(zoom * Math.exp(-event.deltaY / 300), event.clientX - box.left, event.clientY - box.top);
}, { passive: false });
$("zoom-in").addEventListener("click", () => zoomTo(zoom * 1.4));
$("zoom-out").addEventListener("click", () => zoomTo(zoom / 1.4));
$("zoom-fit").addEventListener("click", fit);
$("level").addEventListener("change", draw);
seek.addEventListener("input", () => { if (scene) { search(); draw(); } });
for (const each of document.querySelectorAll("input[name=colour]")) each.addEventListener("change", () => { if (scene) { writeLegend(); draw(); } });
addEventListener("resize", resize);
const repaint = () => { ink = colours(useSteps); if (scene) { writeLegend(); draw(); } };
new MutationObserver(repaint).observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
document.addEventListener("visibilitychange", follow);
addEventListener("pagehide", () => { stream?.close(); clearTimeout(alarm); });
ink = colours(useSteps);
const find = new URLSearchParams(location.search).get("find");
if (find) seek.value = find;
fetched(canvas.dataset.map);
follow();
