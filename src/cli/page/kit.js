// kit.js - what every page of ours is drawn with: reports and snapshots, which hold all they show, and the dashboard.
const $ = id => document.getElementById(id);
const css = name => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
function size(n) {
  if (n < 1024) return n + " B";
  let u = ["KiB", "MiB", "GiB", "TiB"], i = -1;
  do { n /= 1024; i++; } while (n >= 1024 && i < 3);
  return n.toFixed(i > 1 ? 2 : 1) + " " + u[i];
}
function el(tag, text, cls) { const e = document.createElement(tag); if (text !== undefined) e.textContent = text; if (cls) e.className = cls; return e; }
function tip(e, text) {
  const t = $("tip");
  if (!text) { t.style.display = "none"; return; }
  t.textContent = text; t.style.display = "block";
  t.style.left = Math.min(e.clientX + 14, innerWidth - t.offsetWidth - 8) + "px";
  t.style.top = (e.clientY + 18 + t.offsetHeight > innerHeight ? e.clientY - t.offsetHeight - 10 : e.clientY + 18) + "px";
}
// A canvas that redraws itself at its own width; `at` tells what is below the pointer.
function canvas(parent, height, draw, at, click) {
  const c = document.createElement("canvas"); parent.append(c);
  const redraw = () => {
    const w = c.clientWidth, h = typeof height === "function" ? height(w) : height, r = devicePixelRatio || 1;
    c.style.height = h + "px"; c.width = w * r; c.height = h * r;
    const g = c.getContext("2d"); g.scale(r, r); g.font = "11px system-ui,sans-serif"; draw(g, w, h);
  };
  const point = e => { const b = c.getBoundingClientRect(); return [e.clientX - b.left, e.clientY - b.top, b.width, b.height]; };
  c.onmousemove = e => { const t = at(...point(e)); c.style.cursor = t && click ? "pointer" : "default"; tip(e, t); };
  c.onmouseleave = e => tip(e, "");
  if (click) c.onclick = e => { click(...point(e)); redraw(); };
  redraw(); redraws.push(redraw);
}
let redraws = [];
addEventListener("resize", () => redraws.forEach(f => f()));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => redraws.forEach(f => f()));

function table(box, heads, rows) {
  const t = el("table"), h = el("tr");
  heads.forEach((x, i) => h.append(el("th", x, i < heads.length - 1 ? "n" : ""))); t.append(h);
  for (const r of rows) { const tr = el("tr"); r.forEach((x, i) => tr.append(el("td", x, i < r.length - 1 ? "n" : "f"))); t.append(tr); }
  box.append(t);
}
function key(box, parts) { const k = el("p", "", "key"); parts.forEach(([c, t]) => { const i = el("i"); i.style.background = "var(--" + c + ")"; k.append(i, t); }); box.append(k); }


// --- a plot over time: series of [ms, value], level lines (limits), marks in time.
const units = {
  bytes: size,
  ms: v => v < 1000 ? v.toFixed(v < 10 ? 1 : 0) + " ms" : (v / 1000).toFixed(1) + " s",
  count: v => v >= 10000 ? (v / 1000).toFixed(1) + " k" : String(Math.round(v * 100) / 100),
};
const clock = (t, span) => new Date(t).toISOString().slice(11, span < 10000 ? 21 : 19);
const steps = { bytes: [1, 2, 4, 5, 8, 10], ms: [1, 2, 5, 10], count: [1, 2, 5, 10] };
// A round value a little above the largest, so that the axis reads well.
function ceiling(v, unit) {
  if (v <= 0) return 1;
  const base = unit === "bytes" ? 1024 ** Math.floor(Math.log(v) / Math.log(1024)) : 1;
  const n = v / base, ten = 10 ** Math.floor(Math.log10(n));
  return base * ten * (steps[unit] || steps.count).find(s => s * ten >= n * 1.02 || s === 10);
}
function plot(box, p) {
  const show = units[p.unit] || units.count, L = 76, B = 22, R = 12, T = 16;
  const all = p.series.flatMap(s => s.points), times = all.concat((p.marks || []).map(m => [m.time])).map(a => a[0]);
  const from = p.from ?? Math.min(...times), to = Math.max(p.to ?? Math.max(...times), from + 1);
  const most = Math.max(0, ...all.map(a => a[1])), near = (p.lines || []).filter(l => l.value <= most * 4);
  const top = ceiling(Math.max(most, ...near.map(l => l.value)), p.unit);
  const x = (t, w) => L + (t - from) / (to - from) * (w - L - R), y = (v, h) => h - B - v / top * (h - B - T);
  const color = i => css("s" + (i % 6 + 1));
  if (p.series.length) {
    const k = el("p", "", "key");
    p.series.forEach((s, i) => { const c = el("i"); c.style.background = "var(--s" + (i % 6 + 1) + ")"; k.append(c, s.name); });
    (p.lines || []).forEach(l => { const c = el("i"); c.style.background = "var(--stuck)"; k.append(c, l.name + " " + show(l.value) + (near.includes(l) ? "" : " (above the plot)")); });
    box.append(k);
  }
  canvas(box, p.height || 210, (g, w, h) => {
    g.textAlign = "right";
    for (let i = 0; i <= 4; i++) {
      const v = top * i / 4; g.fillStyle = css("dim"); g.fillText(show(v), L - 6, y(v, h) + 4);
      g.globalAlpha = .22; g.fillRect(L, Math.round(y(v, h)), w - L - R, 1); g.globalAlpha = 1;
    }
    g.textAlign = "center"; g.fillStyle = css("dim");
    const n = Math.max(2, Math.min(7, Math.floor((w - L) / 110)));
    for (let i = 0; i <= n; i++) { const t = from + (to - from) * i / n; g.textAlign = i === 0 ? "left" : i === n ? "right" : "center"; g.fillText(clock(t, to - from), x(t, w), h - 6); }
    g.save(); g.beginPath(); g.rect(L, 0, w - L - R + 1, h - B + 1); g.clip();
    p.series.forEach((s, i) => {
      g.fillStyle = g.strokeStyle = color(i); g.lineWidth = 1.8;
      if (s.kind === "bars") {
        const width = Math.max(1, (s.step || 1000) / (to - from) * (w - L - R) - 1);
        s.points.forEach(a => { g.globalAlpha = .85; g.fillRect(x(a[0], w), y(a[1], h), width, h - B - y(a[1], h)); g.globalAlpha = 1; });
        return;
      }
      // A gap in the samples stays a gap: nothing is known of it.
      const gap = p.gap || Infinity; let last = -Infinity;
      g.beginPath(); s.points.forEach(a => { a[0] - last > gap ? g.moveTo(x(a[0], w), y(a[1], h)) : g.lineTo(x(a[0], w), y(a[1], h)); last = a[0]; }); g.stroke();
      if (s.points.length < 80) s.points.forEach(a => { g.beginPath(); g.arc(x(a[0], w), y(a[1], h), 2, 0, 7); g.fill(); });
    });
    near.forEach(l => { g.strokeStyle = css("stuck"); g.setLineDash([5, 4]); g.beginPath(); g.moveTo(L, y(l.value, h)); g.lineTo(w - R, y(l.value, h)); g.stroke(); g.setLineDash([]); });
    (p.marks || []).forEach(m => { const at = x(m.time, w); g.fillStyle = css("stuck"); g.fillRect(at - 1, T - 4, 2, h - B - T + 4); g.textAlign = at > w - 120 ? "right" : "left"; g.fillText(m.name, at + (at > w - 120 ? -5 : 5), T + 5); });
    g.restore();
  }, (px, py, w) => {
    if (px < L || px > w - R || !all.length) return "";
    const t = from + (px - L) / (w - L - R) * (to - from), lines = [];
    p.series.forEach(s => { let best = null; for (const a of s.points) if (!best || Math.abs(a[0] - t) < Math.abs(best[0] - t)) best = a; if (best) lines.push([best[0], s.name + " " + show(best[1])]); });
    return lines.length ? new Date(lines[0][0]).toISOString().replace("T", " ") + "\n" + lines.map(l => l[1]).join("\n") : "";
  });
}
