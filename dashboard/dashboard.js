// dashboard.js - the live page of the admin port. Figures come as server-sent events (/status?follow=1, /events?follow=1),
// history from the flight record. Whatever a service, a client or a log line says is text here, never markup.
"use strict";

const STALE_MS = 5000, EVENTS_SHOWN = 400, HISTORY_MS = 15000;
const SPANS = [["15 min", 900], ["1 h", 3600], ["6 h", 21600], ["24 h", 86400]];
const LEVELS = ["debug", "info", "warn", "error"];

const state = { status: null, at: 0, events: [], span: 900, history: null, boot: "" };

// --- words

const known = v => v !== undefined && v !== null;
function duration(s) {
  if (s < 60) return (s < 10 ? s.toFixed(1) : Math.round(s)) + " s";
  if (s < 3600) return Math.floor(s / 60) + " min " + Math.round(s % 60) + " s";
  if (s < 86400) return Math.floor(s / 3600) + " h " + Math.floor(s / 60 % 60) + " min";
  return Math.floor(s / 86400) + " d " + Math.floor(s / 3600 % 24) + " h";
}
const seconds = s => s < 1 ? (s * 1000).toFixed(s < 0.01 ? 1 : 0) + " ms" : duration(s);
const percent = r => (100 * r).toFixed(r < 0.1 ? 1 : 0) + " %";
const time = ts => typeof ts === "string" && ts.length >= 19 ? ts.slice(11, 23).replace("Z", "") : "-";
const sum = (list, of) => list.reduce((a, x) => a + (of(x) || 0), 0);
const counts = o => Object.entries(o || {}).sort((a, b) => b[1] - a[1]);

function put(id, ...nodes) { const e = $(id); e.replaceChildren(...nodes); return e; }
function pill(text, kind) { return el("span", text, "pill " + kind); }
function card(name, value, note, kind, small) {
  const c = el("div", undefined, "card"), b = el("b", value, (kind || "") + (small ? " small" : ""));
  c.append(el("span", name), b, el("span", note || ""));
  return c;
}
// A row may have words of its own below it, over the whole width.
function row(cells, numbers) { const tr = el("tr"); cells.forEach((x, i) => { const td = x instanceof Node ? el("td") : el("td", x); if (x instanceof Node) td.append(x); td.className = numbers.has(i) ? "n" : i < cells.length - 1 ? "k" : "f"; tr.append(td); }); return tr; }
function sheet(heads, rows, numbers = []) {
  const t = el("table"), h = el("tr"), n = new Set(numbers), box = el("div", undefined, "tables");
  heads.forEach((x, i) => { const th = el("th", x, n.has(i) ? "n" : ""); th.scope = "col"; h.append(th); });
  t.append(h);
  for (const r of rows) {
    const below = r.below; t.append(row(r, n));
    if (!below) continue;
    const tr = el("tr"), td = el("td", undefined, "below"); td.colSpan = heads.length; td.append(below); tr.append(td); t.append(tr);
  }
  box.append(t);
  return box;
}

// --- the load line: what of a card is used, by whom, and where the marks are

function memories(status, gpu) {
  const found = [];
  for (const s of status.services) for (const w of s.workers || []) for (const m of w.memory || [])
    if (m.scope === "gpu" + gpu.gpu || m.scope === gpu.uuid) found.push({ service: s, worker: w, memory: m });
  return found;
}

function loadLine(status, gpu) {
  const box = el("div"), total = gpu.total_bytes, parts = [], marks = [];
  const held = memories(status, gpu);
  if (gpu.foreign_bytes > 0) parts.push(["stuck", "not ours", gpu.foreign_bytes]);
  held.forEach((h, i) => {
    const who = h.service.name + " " + h.worker.worker + "." + h.worker.generation, idle = h.memory.reserved_bytes - h.memory.allocated_bytes;
    parts.push(["s" + (i % 6 + 1), who + " in use", h.memory.allocated_bytes]);
    if (idle > 0) parts.push(["reserved", who + " reserved, not in use", idle]);
  });
  const rest = (gpu.used_bytes || 0) - sum(parts, p => p[2]);
  if (rest > 0 && known(gpu.used_bytes)) parts.push(["pending", "CUDA contexts and libraries", rest]);
  const budgets = status.services.flatMap(s => (s.budget || []).filter(b => b.gpu === gpu.gpu || b.gpu === gpu.uuid).map(b => ({ s, b })));
  const b = budgets.length ? budgets[0].b : null;
  if (b && b.margin_bytes > 0) marks.push(["margin", "margin begins", total - b.margin_bytes]);
  if (b && b.alarm_bytes > 0) marks.push(["alarm", "alarm", b.alarm_bytes]);
  const head = el("h2", "GPU " + gpu.gpu + "  " + (gpu.name || "")), bar = el("div", undefined, "load");
  if (gpu.in_service === false) head.append(" ", pill("out of service", "bad"));
  if (gpu.sample_age_ms > STALE_MS) head.append(" ", pill("last seen " + duration(gpu.sample_age_ms / 1000) + " ago", "warn"));
  box.append(head);
  if (!known(total) || total <= 0) { box.append(el("p", "The driver does not say how much memory it has.")); return box; }
  const free = Math.max(0, total - sum(parts, p => p[2]));
  for (const [color, name, bytes] of parts) { const i = el("i"); i.style.width = 100 * bytes / total + "%"; i.style.background = "var(--" + color + ")"; i.title = name + ": " + size(bytes); bar.append(i); }
  for (const [kind, name, at] of marks) { const u = el("u", undefined, kind); u.style.left = 100 * at / total + "%"; u.title = name + " at " + size(at); bar.append(u); }
  bar.setAttribute("role", "img");
  bar.setAttribute("aria-label", parts.map(p => p[1] + " " + size(p[2])).concat("free " + size(free)).join(", "));
  box.append(bar);
  key(box, parts.map(([c, name, bytes]) => [c, name + " " + size(bytes)]).concat([["free", "free " + size(free) + " of " + size(total)]]));
  const words = marks.map(([, name, at]) => name + " at " + size(at));
  for (const { s, b } of budgets) {
    const fixed = known(b.fixed_bytes) ? size(b.fixed_bytes) + " fixed, " : "", orphans = b.orphan_bytes > 0 ? ", " + size(b.orphan_bytes) + " of requests of a gateway that is gone" : "";
    words.push(s.name + ": " + fixed + size(b.charged_bytes) + " of a budget of " + size(b.budget_bytes) + " charged" + orphans);
  }
  if (known(gpu.utilization_ratio)) words.push("busy " + percent(gpu.utilization_ratio));
  if (words.length) box.append(el("p", words.join("; ")));
  return box;
}

// --- a service

const bad = v => v && v.bad; // which words are bad is the ledger's to say
function verdictText(v) {
  if (!v || !v.word) return v && v.holder ? "held by " + v.holder : "";
  let t = v.word;
  if (v.shape) t += ", " + v.shape;
  if (v.bytes_per_request > 0) t += ": " + size(v.bytes_per_request) + " a request (" + size(v.low) + " to " + size(v.high) + "), " + v.confidence;
  else if (v.growth_bytes > 0) t += ": " + size(v.growth_bytes) + " more than at the start";
  if (v.top_tag) t += ", " + percent(v.share) + " by " + v.top_tag;
  return t;
}

const PHASES = [["imported", "s1", "imports"], ["loaded", "s2", "model"], ["socket", "s6", "socket"], ["warm", "s4", "warm-up"], ["ready", "s3", "ready"]];
function startBar(t) {
  const bar = el("div", undefined, "start"), whole = t && t.ready;
  if (!whole) return el("span", "under way");
  let last = 0; const said = [];
  for (const [name, color, words] of PHASES) {
    if (!known(t[name]) || t[name] < last) continue;
    const i = el("i"); i.style.width = 100 * (t[name] - last) / whole + "%"; i.style.background = "var(--" + color + ")";
    i.title = words + ": " + seconds(t[name] - last); bar.append(i);
    if (t[name] - last > whole / 100) said.push(words + " " + seconds(t[name] - last));
    last = t[name];
  }
  bar.setAttribute("role", "img"); bar.setAttribute("aria-label", said.join(", "));
  const box = el("div"); box.append(bar, el("span", seconds(whole) + " to ready: " + said.join(", "), "key"));
  return box;
}

function soonest(s) {
  let best = null;
  for (const w of s.workers || []) if (w.verdict && known(w.verdict.forecast_s) && (best === null || w.verdict.forecast_s < best.verdict.forecast_s)) best = w;
  return best;
}

function limitWords(b) {
  if (!b) return ["none", "nothing is limited, or nothing is known of it"];
  const show = v => b.unit === "bytes" ? size(v) : String(Math.round(v));
  return [b.limit.replace("_", " ") + " " + percent(b.used_ratio), show(b.used) + " of " + show(b.of) + (b.place ? " on " + b.place : "") + (b.key ? ", " + b.key : "")];
}

function cards(s) {
  const box = el("div", undefined, "cards"), worst = (s.workers || []).find(w => bad(w.verdict)), soon = soonest(s), r = s.recent || {};
  const refused = counts(s.refused_5m), would = counts(s.would), q = s.queue || {}, [limit, limitNote] = limitWords(s.binds);
  const spoken = (s.workers || []).find(w => w.verdict && w.verdict.word && w.verdict.word !== "stable" && w.verdict.word !== "warming");
  box.append(card("warm", s.ready ? (s.warmth === "warm" ? "yes" : "unwarmed") : "not ready", s.ready ? (known(s.proof_age_s) ? "proved " + duration(s.proof_age_s) + " ago" : "") : s.why, s.ready && s.warmth === "warm" ? "ok" : s.ready ? "warn" : "bad"));
  const judged = worst || spoken;
  box.append(judged ? card("memory", judged.verdict.word + (worst ? "" : " (no alarm)"), "worker " + judged.worker + "." + judged.generation + (judged.verdict.holder ? ", held by " + judged.verdict.holder : ""), worst ? "bad" : "warn")
    : card("memory", (s.workers || []).some(w => w.verdict) ? "not growing" : "not judged", "", (s.workers || []).some(w => w.verdict) ? "ok" : ""));
  box.append(card("next out of memory", soon ? "in " + duration(soon.verdict.forecast_s) : "none in sight", soon ? "worker " + soon.worker + "." + soon.generation + (known(soon.verdict.forecast_low_s) ? ", " + duration(soon.verdict.forecast_low_s) + " to " + duration(soon.verdict.forecast_high_s || soon.verdict.forecast_s) : "") : "", soon ? "bad" : "ok"));
  box.append(card("limit that binds", limit, limitNote, s.binds && s.binds.used_ratio >= 0.9 ? "bad" : s.binds && s.binds.used_ratio >= 0.7 ? "warn" : ""));
  box.append(card("refused, 5 min", refused.length ? String(sum(refused, x => x[1])) : "0", refused.map(x => x[0] + " " + x[1]).join(", "), refused.length ? "warn" : "ok"));
  box.append(card("queue", String(q.requests || 0), "of " + q.max_requests + (known(q.oldest_ms) ? ", the oldest waits " + seconds(q.oldest_ms / 1000) : "") + "; " + (q.running || 0) + " run"));
  box.append(card("answers", known(r.per_s) ? r.per_s.toFixed(r.per_s < 10 ? 1 : 0) + " a second" : "-", known(r.p50_s) ? "median " + seconds(r.p50_s) + ", 99 % within " + seconds(r.p99_s) : "none in 5 min"));
  const tokens = s.tokens_5m || {};
  if (Object.keys(tokens).length) box.append(card("tokens, 5 min", units.count(tokens.output || 0) + " out", units.count(tokens.input || 0) + " in"));
  box.append(card("enforce would have", would.length ? sum(would, x => x[1]) === 1 ? "acted once" : "acted " + sum(would, x => x[1]) + " times" : s.mode === "enforce" ? "it does" : "done nothing more", would.map(x => x[0].replace(":", " for ") + " " + x[1]).join(", "), would.length ? "warn" : ""));
  return box;
}

function replacementText(s) {
  const r = s.replacement || {}, gap = r.expected_gap_s > 0 ? "nobody serves for " + duration(r.expected_gap_s) : known(r.expected_gap_s) ? "without a gap" : "the gap is not known yet";
  if (r.planned && r.under_way) return "Worker " + r.worker + " is being replaced (" + r.reason + ", " + r.mode + "), " + gap + ".";
  if (r.planned) return "Worker " + r.worker + " should be replaced (" + r.reason + ", " + r.mode + ", " + gap + "); held back by " + r.held_by + ".";
  return "A replacement would be: " + r.mode + ", " + gap + ". " + (r.in_hour || 0) + " of at most " + r.max_per_hour + " in the last hour.";
}

function workerRows(s, below) {
  return (s.workers || []).map(w => {
    const m = (w.memory || []).find(x => x.scope !== "host"), h = (w.memory || []).find(x => x.scope === "host"), v = w.verdict;
    const word = el("div"), words = v && v.word !== "stable" && v.word !== "warming" ? verdictText(v) : "";
    if (words) word.append(el("span", words, bad(v) ? "bad" : ""));
    if (v && v.holder && v.word) word.append(el("div", "held by " + v.holder, bad(v) ? "bad" : ""));
    if (v && known(v.forecast_s)) word.append(el("div", "the limit comes in " + duration(v.forecast_s), "bad"));
    if (w.zombies > 0) word.append(el("div", w.zombies + " handlers run on after their time", "warn"));
    const cells = [(below ? s.name + " " : "") + w.worker + "." + w.generation, pill(w.state + (w.state === "ready" && !below ? (w.warm ? ", warm" : ", unwarmed") : ""), w.state === "ready" ? (w.warm || below ? "ok" : "warn") : ["failed", "backoff", "stuck", "gone"].includes(w.state) ? "bad" : "warn"),
      duration(w.age_s), String(w.requests), String(w.in_flight), m ? size(m.allocated_bytes) : "-", m ? size(m.reserved_bytes) : "-", m ? size(m.peak_bytes) + (m.limit_bytes ? " of " + size(m.limit_bytes) : "") : "-", h ? size(h.rss_bytes) : "-", startBar(w.timeline)];
    if (word.childNodes.length) cells.below = word;
    return cells;
  });
}

function service(s) {
  const box = el("article"), h = el("h2", s.name + " ");
  h.id = "s-" + s.name;
  h.append(pill(s.ready ? "ready" : "not ready: " + (s.why || ""), s.ready ? "ok" : "bad"));
  box.append(h, el("p", [s.target, s.engine, "mode " + s.mode + " (" + s.mode_origin + ")"].filter(Boolean).join("  ·  ")));
  const acts = el("div", undefined, "acts");
  const act = (label, verb, body, command, text) => { const b = el("button", label); b.type = "button"; b.dataset.key = s.name + " " + label; b.onclick = () => ask(label + " " + s.name, verb, body, command, text); acts.append(b); };
  if (s.kind !== "remote") act("restart", "/restart", { service: s.name }, "plimsoll restart " + s.name, replacementText(s));
  act("drain", "/drain", { service: s.name }, "plimsoll drain " + s.name, "Takes nothing new and finishes what runs. \"take requests\" undoes it.");
  act("take requests", "/drain", { service: s.name, undo: true }, "plimsoll drain --undo " + s.name, "After a drain: takes requests again.");
  if (s.kind === "python") act("explain", "/explain", { service: s.name }, "plimsoll explain " + s.name, "Looks who holds the memory: the line of code. It pauses a worker for a moment.");
  if (s.kind === "python") act("snapshot", "/snapshot", { service: s.name }, "plimsoll explain " + s.name + " --snapshot FILE", "Saves PyTorch's memory snapshot in the state folder.");
  for (const mode of ["observe", "guard", "enforce"]) if (mode !== s.mode) act(mode, "/enforce", { service: s.name, mode }, "plimsoll enforce " + s.name + " " + mode, "Sets how much may be done until a reload changes it.");
  box.append(acts, cards(s));
  const rows = workerRows(s, false).concat(...(s.dependencies || []).map(d => workerRows(d, true)));
  if (rows.length) box.append(sheet(["worker", "state", "age", "requests", "in flight", "in use", "reserved", "peak, 1 min", "host", "its start"], rows, [3, 4, 5, 6, 7, 8]));
  else box.append(el("p", s.kind === "remote" ? "Somebody else runs it: no restart, no replacement, no memory." : "No worker yet."));
  if (s.kind !== "remote") box.append(el("p", replacementText(s)));
  const users = (s.budget || []).map(b => "budget of " + (b.gpu === "host" ? "the host" : "GPU " + b.gpu) + ": " + size(b.charged_bytes) + " of " + size(b.budget_bytes) + " charged, " + size(b.free_bytes) + " free");
  const keys = counts(s.keys_5m);
  if (keys.length) users.push("requests by key in 5 min: " + keys.slice(0, 8).map(x => x[0] + " " + x[1]).join(", "));
  for (const u of users) box.append(el("p", u));
  for (const d of [s].concat(s.dependencies || [])) if (d.last_death) box.append(el("p", "Last death " + d.last_death.id + (d === s ? "" : " of " + d.name) + ", " + d.last_death.ts + ": " + d.last_death.sentence, "bad"));
  return box;
}

// --- the page

function draw() {
  const d = state.status;
  document.title = (d.ready ? "" : "! ") + d.instance + " - plimsoll";
  put("title", "plimsoll: " + d.instance + " ", pill(d.draining ? "draining" : d.ready ? "ready" : "not ready", d.draining ? "warn" : d.ready ? "ok" : "bad"));
  if (d.dry_run) $("title").append(" ", pill("dry run: values are not computed", "warn"));
  put("about", "version " + d.version + ", up " + duration(d.uptime_s) + ", listens on " + (d.listen || []).join(", ") + (d.config && d.config.rejected ? ", the last reload was refused" : ""));
  const held = document.activeElement && document.activeElement.dataset ? document.activeElement.dataset.key : undefined; // the keyboard keeps its place
  const gpus = (d.gpus || []).map(g => loadLine(d, g));
  put("gpus", ...gpus);
  const list = (d.services || []).map(service);
  if (d.last_life) list.unshift(el("p", d.last_life.sentence, "warn"));
  if (!(d.services || []).length) list.push(el("p", "No service is configured."));
  put("services", ...list);
  if (held) for (const b of document.querySelectorAll("[data-key]")) if (b.dataset.key === held) b.focus();
  $("page").hidden = false;
}

function say(kind, text) { const e = $("line"); if (e.textContent !== text) e.textContent = text; e.className = kind; $("page").classList.toggle("old", kind !== "live"); }
function watchAge() {
  const age = Date.now() - state.at;
  if (state.broken) say("broken", "this page is broken: " + state.broken);
  else if (state.lost && !state.status) say("lost", "no connection: trying again");
  else if (state.lost) say("lost", "connection lost, trying again; figures are of " + new Date(state.at).toISOString().slice(11, 19) + " UTC");
  else if (!state.status) say("waiting", "waiting for the first figures");
  else if (age > STALE_MS) say("stale", "stale: nothing came for " + duration(age / 1000));
  else say("live", "live");
}

// A page that cannot draw says so; it never shows figures that are wrong without a word.
function guarded(f) { return (...a) => { try { f(...a); state.broken = ""; } catch (e) { state.broken = String(e); } watchAge(); }; }

function listen() {
  const stream = new EventSource("/status?follow=1"), events = new EventSource("/events?follow=1&level=debug");
  stream.addEventListener("status", guarded(e => {
    state.status = JSON.parse(e.data); state.at = Date.now(); state.lost = false;
    if (state.boot !== state.status.boot) { if (state.boot) state.events = []; state.boot = state.status.boot; }
    draw();
  }));
  stream.onerror = () => { state.lost = true; watchAge(); };
  stream.onopen = () => { state.lost = false; watchAge(); };
  events.onmessage = guarded(e => { state.events.push(JSON.parse(e.data)); if (state.events.length > 2000) state.events.splice(0, 1000); soon(); });
  setInterval(watchAge, 1000);
}

let planned = false; // events come in crowds: drawn once for all of them
function soon() { if (!planned) { planned = true; requestAnimationFrame(() => { planned = false; guarded(drawEvents)(); }); } }
function drawEvents() {
  const needle = $("needle").value.toLowerCase(), least = LEVELS.indexOf($("level").value), rows = [];
  for (let i = state.events.length - 1; i >= 0 && rows.length < EVENTS_SHOWN; i--) {
    const e = state.events[i];
    if (LEVELS.indexOf(e.level) < least || (needle && !JSON.stringify(e).toLowerCase().includes(needle))) continue;
    const { ts, level, event, service: name, worker, generation, instance, sentence, ...rest } = e;
    const tr = el("tr"), what = sentence || Object.entries(rest).map(([k, v]) => k + "=" + (typeof v === "number" && !Number.isInteger(v) ? Number(v.toPrecision(6)) : typeof v === "object" ? JSON.stringify(v) : v)).join("  ");
    tr.append(el("td", time(ts), "k"), el("td", level, "k " + (level === "error" ? "bad" : level === "warn" ? "warn" : "")), el("td", event, "k"), el("td", known(name) ? name + (known(generation) ? " " + worker + "." + generation : "") : "", "k"), el("td", what, "f"));
    rows.push(tr);
  }
  $("events").tBodies[0].replaceChildren(...rows);
  $("shown").textContent = rows.length + " of " + state.events.length + (rows.length === EVENTS_SHOWN ? ", the newest" : "");
}

// --- history

const who = m => (m.service ? m.service + " " + m.worker + "." + m.generation : "") || m.scope;
function drawHistory() {
  const h = state.history, box = $("plots");
  redraws.length = 0; box.replaceChildren();
  const range = { from: h.from_ms, to: h.to_ms }, marks = (h.deaths || []).map(d => ({ time: d.ts_ms, name: (d.id || "") + " " + (d.cause || "") }));
  const part = (title, p) => { box.append(el("h3", title)); plot(box, { ...range, marks, gap: Math.max(30000, 3 * h.step_ms), ...p }); };
  for (const scope of [...new Set((h.memory || []).map(m => m.scope))]) {
    const list = h.memory.filter(m => m.scope === scope), limit = Math.max(0, ...list.map(m => m.limit_bytes || 0));
    const series = list.flatMap(m => [{ name: who(m) + " " + m.what, points: m.points }].concat(m.reserved ? [{ name: who(m) + " reserved", points: m.reserved }] : []));
    if (series.some(s => s.points.length)) part("Memory, " + scope, { unit: "bytes", series, lines: limit ? [{ name: "limit", value: limit }] : [] });
  }
  const steps = new Map();
  for (const r of h.requests || []) { const p = steps.get(r.ts_ms) || { n: 0, bad: 0, mean: 0, longest: 0 }; p.n += r.requests; p.bad += r.failed; p.mean += (r.mean_ms || 0) * r.requests; p.longest = Math.max(p.longest, r.longest_ms || 0); steps.set(r.ts_ms, p); }
  if (steps.size) {
    const at = f => [...steps].map(([t, p]) => [t, f(p)]);
    part("Requests, each " + duration(h.step_ms / 1000), { unit: "count", height: 140, series: [{ name: "answered", kind: "bars", step: h.step_ms, points: at(p => p.n) }, { name: "not ok", kind: "bars", step: h.step_ms, points: at(p => p.bad).filter(a => a[1] > 0) }] });
    part("Latency", { unit: "ms", height: 140, series: [{ name: "mean", points: at(p => p.mean / Math.max(1, p.n)) }, { name: "longest", points: at(p => p.longest) }] });
  }
  if (!box.childNodes.length) box.append(el("p", "Nothing was recorded in this time."));
}

async function loadHistory() {
  if (document.hidden) return;
  try {
    const span = state.span, answer = await fetch("/history?from=" + span + "s&step=" + Math.max(1, Math.round(span / 400)) + "s"), doc = await answer.json();
    if (!answer.ok) throw new Error(doc.error && doc.error.message || "status " + answer.status);
    if (span !== state.span) return; // asked anew meanwhile
    state.history = doc;
    const began = performance.now();
    guarded(drawHistory)();
    state.drawn_ms = performance.now() - began;
    $("plots-note").textContent = "";
  } catch (e) { $("plots-note").textContent = "History cannot be shown: " + e.message; }
}

function spans() {
  for (const [label, s] of SPANS) {
    const b = el("button", label); b.type = "button";
    b.onclick = () => { state.span = s; mark(); loadHistory(); };
    b.dataset.span = s; $("spans").append(b);
  }
  mark();
}
function mark() { for (const b of $("spans").children) { const on = Number(b.dataset.span) === state.span; b.className = on ? "on" : ""; b.setAttribute("aria-pressed", on); } }

// --- acting: always asked first, with the words for a shell; over TCP it needs the token

function ask(head, verb, body, command, text) {
  const d = $("ask");
  put("ask-head", head + "?"); put("ask-text", text); put("ask-command", command);
  $("ask-yes").hidden = false; $("ask-token").hidden = false;
  d.returnValue = "no";
  d.onclose = () => { if (d.returnValue === "yes") order(head, verb, body); };
  d.showModal();
}
function tell(head, text) {
  put("ask-head", head); put("ask-text", text); put("ask-command", "plimsoll events --follow");
  $("ask-yes").hidden = true; $("ask-token").hidden = true; $("ask").onclose = null;
  if (!$("ask").open) $("ask").showModal();
}
async function order(head, verb, body) {
  try {
    const headers = { "content-type": "application/json", "x-plimsoll-admin": "1" }, token = $("token").value;
    if (token) headers.authorization = "Bearer " + token;
    const answer = await fetch(verb, { method: "POST", headers, body: JSON.stringify(body) }), doc = await answer.json();
    if (!answer.ok) { tell(head + ": refused", doc.error.message + (doc.error.hint ? " (" + doc.error.hint + ")" : "")); return; }
    follow(head, doc.id);
  } catch (e) { tell(head + ": not sent", e.message); }
}
async function follow(head, id) {
  const answer = await fetch("/actions/" + encodeURIComponent(id)), doc = await answer.json();
  if (doc.state === "running") { say("live", head + " is under way"); setTimeout(() => follow(head, id).catch(e => tell(head, e.message)), 1000); return; }
  tell(head + ": " + (doc.state || "unknown"), doc.message || (doc.error && doc.error.message) || "");
}

$("needle").oninput = $("level").onchange = soon;
$("filter").onsubmit = e => e.preventDefault();
addEventListener("error", e => { state.broken = e.message; watchAge(); });
spans();
listen();
loadHistory();
setInterval(loadHistory, HISTORY_MS);
document.addEventListener("visibilitychange", () => { if (!document.hidden) loadHistory(); });
