"use strict";
// Draws the page from the data in it. Text of the run goes into the page as text only.
const data = JSON.parse(document.getElementById("data").textContent);
const base = data.base;
const { summary, run, outline, history } = data;

function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  return fill(element, attributes, children);
}
function draw(tag, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  return fill(element, attributes, children);
}
function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value);
  }
  for (const child of children.flat()) if (child !== null && child !== undefined) element.append(child);
  return element;
}

// Three significant digits, as in the printed report.
function figure(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size >= 1000 || Number.isInteger(value)) return Math.round(value).toLocaleString("en-US");
  return value.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : 2);
}
function time(ns) {
  if (ns === null || ns === undefined) return "–";
  const [value, unit] = Math.abs(ns) < 999.5 ? [ns, "ns"] : Math.abs(ns) < 999.5e3 ? [ns / 1e3, "µs"] : Math.abs(ns) < 999.5e6 ? [ns / 1e6, "ms"] : [ns / 1e9, "s"];
  return `${unit === "ns" ? Math.round(value) : figure(value)}\u00a0${unit}`;
}
function percent(share, digits = 1) {
  return share === null || share === undefined ? "–" : `${(share * 100).toFixed(digits)}\u00a0%`;
}
function change(now, before) {
  if (!now || !before) return "";
  const by = (now / before - 1) * 100;
  return `${by >= 0 ? "+" : "−"}${Math.abs(by).toFixed(Math.abs(by) < 10 ? 1 : 0)}\u00a0%`;
}
// The size of a picture, which can be drawn smaller.
const extent = (width, height) => ({ width, height, viewBox: `0 0 ${width} ${height}` });
const nodeOf = (end) => end.slice(0, end.lastIndexOf("/")) || end;
const sum = (values) => values.reduce((a, b) => a + b, 0);
const histogramOf = (of) => Object.fromEntries(of.summary.histograms.map((one) => [one.tag, one]));
const histograms = histogramOf(data);
const baseHistograms = base ? histogramOf(base) : {};
const pathName = (path) => `${path.from}->${path.to}`;
const lostAt = (edge) => sum(Object.values(edge.lost)) - edge.discarded;

// A box beside the pointer that explains what it is on. Screen readers get the same text as the element's label.
const tip = make("div", { class: "tip", hidden: "" });
document.body.append(tip);
function explains(element, text) {
  element.setAttribute("aria-label", text);
  const show = (event) => {
    tip.textContent = text;
    tip.hidden = false;
    const x = event.clientX ?? 0, y = event.clientY ?? 0;
    tip.style.left = `${Math.min(x + 14, innerWidth - tip.offsetWidth - 8)}px`;
    tip.style.top = `${Math.min(y + 14, innerHeight - tip.offsetHeight - 8)}px`;
  };
  element.addEventListener("pointermove", show);
  element.addEventListener("pointerleave", () => (tip.hidden = true));
  return element;
}

const page = document.getElementById("page");
page.replaceChildren();
const links = make("nav", { "aria-label": "Sections" });
function section(id, title, ...content) {
  links.append(make("a", { href: `#${id}` }, title));
  const part = make("section", { id }, make("h2", {}, title), ...content);
  page.append(part);
  return part;
}

// A table whose columns sort it; `columns` are [title, value, shown, is text].
function table(id, columns, rows, options = {}) {
  const body = make("tbody");
  const row = (item) => {
    const line = make("tr", options.row ? options.row(item) : {});
    for (const [, value, shown, isText] of columns) line.append(make("td", { class: isText ? "left" : null }, shown ? shown(item) : figure(value(item))));
    return line;
  };
  const lines = new Map(rows.map((item) => [item, row(item)]));
  body.append(...lines.values());
  const head = make("tr");
  columns.forEach(([title, value, , isText], at) => {
    let isUp = false;
    const sort = () => {
      isUp = !isUp;
      const key = (item) => value(item) ?? (isText ? "" : -Infinity);
      const order = [...rows].sort((a, b) => (isText ? String(key(a)).localeCompare(String(key(b))) : key(b) - key(a)) * (isUp ? 1 : -1));
      body.replaceChildren(...order.map((item) => lines.get(item)));
      head.querySelectorAll("th").forEach((th) => th.removeAttribute("aria-sort"));
      head.children[at].setAttribute("aria-sort", isText === isUp ? "ascending" : "descending");
    };
    head.append(make("th", { scope: "col", class: isText ? "left" : null }, make("button", { type: "button", onclick: sort }, title)));
  });
  return make("div", { class: "scroll" }, make("table", { id }, make("thead", {}, head), body));
}

// ---- What it was
{
  const started = summary.started ? new Date(summary.started * 1000).toISOString().replace("T", " ").slice(0, 19) + " UTC" : "";
  const sources = outline.nodes.filter((node) => node.role === "source").map((node) => node.name);
  const done = sum(summary.nodes.filter((node) => sources.includes(node.name)).map((node) => node.done));
  const lost = summary.metrics.lost ?? 0, failed = summary.failed_calls;
  const tile = (name, value, isBad) => make("div", { class: "tile" }, make("span", { class: "soft" }, name), make("b", { class: isBad ? "bad" : null }, value));
  document.title = `limen: ${summary.graph}`;
  page.append(
    make("h1", {}, `${summary.graph}: ${summary.outcome}`),
    make("p", { class: "soft" }, `Run ${run.run}, ${started}, limen ${run.limen}`),
    base ? make("p", { id: "compared" }, `Compared with run ${base.run.run}, ${base.summary.started ? new Date(base.summary.started * 1000).toISOString().slice(0, 19).replace("T", " ") : ""} (dashed)`) : "",
    links,
    make("div", { class: "tiles", id: "tiles" },
      tile("Run time", `${figure(summary.wall_s)} s`), tile("Messages begun", figure(done)),
      tile("Rate", `${figure(done / Math.max(summary.wall_s, 1e-9))}/s`),
      tile("Lost", figure(lost), lost > 0), tile("Discarded", figure(summary.metrics.discarded ?? 0)),
      tile("Failed calls", figure(failed), failed > 0), tile("Exit code", String(summary.exit_code), summary.exit_code > 0)),
  );
}

// ---- The graph
const chosen = new Set();
function choose(name) {
  chosen.clear();
  chosen.add(name);
  document.querySelectorAll("[data-node]").forEach((element) => element.classList.toggle("chosen", chosen.has(element.dataset.node)));
}
{
  const WIDTH = 150, HEIGHT = 46, GAP_X = 70, GAP_Y = 22, LEFT = 12;
  const columns = Math.max(0, ...outline.nodes.map((node) => node.layer)) + 1;
  const count = outline.rows;
  const rows = Math.max(1, ...count);
  const at = (node) => ({
    x: LEFT + node.layer * (WIDTH + GAP_X),
    y: LEFT + (node.row + (rows - count[node.layer]) / 2) * (HEIGHT + GAP_Y),
  });
  // Heat: the node's share of the mean time of the slowest path through it.
  const heat = outline.nodes.map(() => 0);
  for (const route of data.routes) {
    const own = new Map();
    for (const [node, , mean] of route.terms) own.set(node, (own.get(node) ?? 0) + mean);
    const all = Math.max(1, sum([...own.values()]));
    for (const [node, mean] of own) heat[node] = Math.max(heat[node], mean / all);
  }
  const picture = draw("svg", { id: "graph-picture", role: "group", "aria-label": "The graph", ...extent(columns * (WIDTH + GAP_X) + LEFT, rows * (HEIGHT + GAP_Y) + 2 * LEFT + 10) });
  picture.append(draw("defs", {}, draw("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerUnits: "userSpaceOnUse", markerWidth: 9, markerHeight: 9, orient: "auto" }, draw("path", { d: "M0 0L8 4L0 8z", fill: "var(--soft)" }))));
  const most = Math.max(1, ...summary.edges.map((edge) => edge.sent));
  outline.edges.forEach((edge, n) => {
    const report = summary.edges[n];
    const from = at(outline.nodes[edge.from]), to = at(outline.nodes[edge.to]);
    const [x0, y0, x1, y1] = [from.x + WIDTH, from.y + HEIGHT / 2, to.x, to.y + HEIGHT / 2];
    const bend = edge.is_back ? rows * (HEIGHT + GAP_Y) : 0;
    // Through the places that are free for it, straight beside the nodes of a column and curved between columns.
    const stops = [[x0, y0], ...edge.bends.flatMap(([layer, row]) => { const { x, y } = at({ layer, row }); return [[x, y + HEIGHT / 2], [x + WIDTH, y + HEIGHT / 2]]; }), [x1, y1]];
    const curve = ([ax, ay], [bx, by]) => `C${(ax + bx) / 2} ${ay} ${(ax + bx) / 2} ${by} ${bx} ${by}`;
    const way = edge.is_back
      ? `M${x0} ${y0}C${x0 + 60} ${bend} ${x1 - 60} ${bend} ${x1} ${y1}`
      : `M${x0} ${y0}${stops.slice(1).map((stop, n) => (n % 2 ? `L${stop[0]} ${stop[1]}` : curve(stops[n], stop))).join("")}`;
    const lost = report ? lostAt(report) : 0;
    const isLossy = report && report.when_full !== "block";
    const line = draw("path", { d: way, class: `edge${isLossy ? " lossy" : ""}${lost > 0 ? " lost" : ""}`, "stroke-width": 1 + 3 * Math.sqrt((report?.sent ?? 0) / most), "marker-end": "url(#arrow)" });
    const watched = history.edges[n] ?? {};
    explains(line, report ? `${report.from} → ${report.to}\n${edge.spec}, ${report.when_full}, holds ${figure(report.capacity)}\n${figure(report.sent)} sent, ${figure(report.received)} received, ${figure(lost)} lost, ${figure(report.discarded)} discarded, ${figure(report.left)} left\npeak depth ${figure(watched.peak_depth)}` : edge.spec);
    picture.append(line);
    if (lost > 0) picture.append(draw("text", { x: (x0 + x1) / 2, y: (y0 + y1) / 2 - 5, "text-anchor": "middle", class: "lost-text" }, `−${figure(lost)}`));
  });
  outline.nodes.forEach((node, n) => {
    const { x, y } = at(node);
    const report = summary.nodes.find((one) => one.name === node.name) ?? {};
    const compute = histograms[`${node.name}.compute`], queue = histograms[`${node.name}.queue`];
    const strength = Math.round(Math.min(1, heat[n]) * 80);
    const box = draw("rect", { class: "box", width: WIDTH, height: HEIGHT, rx: 7, fill: `color-mix(in srgb, var(--blocked) ${strength}%, var(--panel))` });
    const short = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
    const isBad = (report.failed ?? 0) > 0 || sum(Object.values(report.lost ?? {})) > 0;
    const part = draw("g", { class: "node", transform: `translate(${x} ${y})`, tabindex: 0, "data-node": node.name, role: "button",
      onclick: () => choose(node.name), onfocus: () => choose(node.name) },
      box, draw("text", { x: 9, y: 18, "font-weight": 600 }, short(node.name, 19)),
      draw("text", { x: 9, y: 35, class: "soft" }, short(`${node.kind}${compute ? ` · ${time(compute.p50 ?? compute.max)}` : ""}`, 23)),
      isBad ? draw("text", { x: WIDTH - 8, y: 18, "text-anchor": "end", class: "lost-text" }, "!") : null);
    explains(part, `${node.name} (${node.kind}, ${summary.workers[report.worker]?.name ?? "no thread"})\n${figure(report.done)} calls done, ${figure(report.failed)} failed\ncompute p50 ${time(compute?.p50)}, p99 ${time(compute?.p99)}, max ${time(compute?.max)}\nqueue p50 ${time(queue?.p50)}, p99 ${time(queue?.p99)}\n${percent(heat[n])} of the mean time of a path`);
    picture.append(part);
  });
  section("graph", "Graph", make("p", { class: "soft" }, "Colour: the node's share of a path's mean time. Width of a line: messages. Dashed lines may lose messages; red ones did."), make("div", { class: "scroll" }, picture));
}

// ---- Paths
const COLOURS = { source: "var(--source)", queue: "var(--queue)", wait: "var(--wait)", batch_wait: "var(--wait)", blocked: "var(--blocked)", compute: "var(--compute)", emit: "var(--emit)" };
{
  const part = section("paths", "Paths");
  const find = (of, path) => of?.summary.paths.find((one) => pathName(one) === pathName(path));
  const cell = (name) => (path) => {
    const before = find(base, path)?.[name];
    return base ? `${time(path[name])}  ${change(path[name], before)}` : time(path[name]);
  };
  part.append(table("path-table", [
    ["Path", pathName, pathName, true],
    ["n", (p) => p.count],
    ...["p50", "p90", "p99", "p999", "max"].map((name) => [name === "p999" ? "p99.9" : name, (p) => p[name], cell(name)]),
    ["Deadline", (p) => p.deadline_ns, (p) => time(p.deadline_ns)],
    ["Missed", (p) => p.late, (p) => (p.judged ? make("span", { class: p.late ? "bad" : null }, `${figure(p.late)} of ${figure(p.judged)}`) : "")],
    ["Residual p99", (p) => p.residual_p99, (p) => time(p.residual_p99)],
  ], summary.paths));
  if (data.routes.length) {
    const legend = make("p", { class: "legend" }, Object.entries(COLOURS).map(([term, colour]) => make("span", {}, make("i", { style: `background:${colour}` }), term)), make("span", {}, make("i", { style: "background:var(--rest)" }), "not in these terms"));
    const bars = make("div", { id: "ledger" });
        const bar = (route, of, title, most) => {
      const WIDTH = 900, HEIGHT = 22;
      const picture = draw("svg", { ...extent(WIDTH + 2, HEIGHT + 22), role: "img", "aria-label": title });
      picture.append(draw("text", { x: 0, y: 13 }, title));
      let x = 0;
      const scale = WIDTH / most;
      const all = sum(route.terms.map((term) => term[2]));
      for (const [node, term, own] of route.terms) {
        const mean = own * Math.min(1, route.mean / Math.max(all, 1));
        const width = mean * scale;
        picture.append(explains(draw("rect", { x, y: 20, width: Math.max(width, 0), height: HEIGHT - 2, fill: COLOURS[term], stroke: "var(--back)", "stroke-width": width > 3 ? 0.6 : 0 }), `${of.outline.nodes[node]?.name} ${term}: ${time(mean)} (${percent(mean / Math.max(1, route.mean))})`));
        x += width;
      }
      const rest = route.mean * scale - x;
      if (rest > 0.5) picture.append(explains(draw("rect", { x, y: 20, width: rest, height: HEIGHT - 2, fill: "var(--rest)", opacity: 0.5 }), `not in these terms: ${time(rest / scale)}`));
      picture.append(explains(draw("line", { x1: route.mean * scale, x2: route.mean * scale, y1: 17, y2: 42, stroke: "var(--ink)", "stroke-width": 2 }), `mean from end to end: ${time(route.mean)}`));
      return make("div", { class: "scroll" }, picture);
    };
    data.routes.forEach((route) => {
      const before = base?.routes.find((one) => pathName(one) === pathName(route));
      const most = Math.max(1, route.mean, before?.mean ?? 0);
      bars.append(bar(route, data, `${pathName(route)}: mean ${time(route.mean)}`, most));
      if (before) bars.append(bar(before, base, `before: mean ${time(before.mean)}  (${change(route.mean, before.mean)})`, most));
    });
    part.append(make("p", {}, "Mean of each term along the slowest way, and the mean from end to end (line). The wait at a join is the time that the path's own messages waited for their partners: the part of their mean that no other term has. Nodes that several ways share count the messages of all of them; where the terms add up to more than the mean, they are shown in proportion."), legend, bars);
  }
}

// ---- Lines over an axis
function chart({ id, lines, width = 560, height = 260, xAxis, yLog, xLabel, marks = [], levels = [] }) {
  const LEFT = 62, BOTTOM = 34, TOP = 10, RIGHT = 12;
  const points = lines.flatMap((line) => line.points);
  const picture = draw("svg", { id, ...extent(width, height), role: "img", "aria-label": `${xLabel}: ${lines.map((line) => line.name).join(", ")}` });
  if (!points.length) {
    picture.append(draw("text", { x: LEFT, y: 40, class: "soft" }, "Nothing was recorded."));
    return picture;
  }
  const ys = [...points.map((point) => point[1]), ...levels.map((level) => level.y)].filter((y) => y > 0 || !yLog);
  let [low, high] = [Math.min(...ys), Math.max(...ys)];
  if (yLog) [low, high] = [10 ** Math.floor(Math.log10(Math.max(1, low))), 10 ** Math.ceil(Math.log10(Math.max(2, high)) + 1e-9)];
  else [low, high] = [0, high || 1];
  const map = yLog ? (y) => Math.log10(Math.max(y, low) / low) / Math.log10(high / low) : (y) => y / high;
  const y = (value) => TOP + (height - TOP - BOTTOM) * (1 - Math.min(1, map(value)));
  const [first, last] = xAxis.range;
  const x = (value) => LEFT + (width - LEFT - RIGHT) * Math.min(1, Math.max(0, (value - first) / Math.max(last - first, 1e-12)));
  const yTicks = yLog ? Array.from({ length: Math.round(Math.log10(high / low)) + 1 }, (_, n) => low * 10 ** n) : [0, high / 2, high];
  for (const tick of yTicks) picture.append(draw("line", { class: "axis", x1: LEFT, x2: width - RIGHT, y1: y(tick), y2: y(tick) }), draw("text", { x: LEFT - 6, y: y(tick) + 4, "text-anchor": "end", class: "soft" }, xAxis.yText ? xAxis.yText(tick) : time(tick)));
  for (const [tick, label] of xAxis.ticks) picture.append(draw("line", { class: "axis", x1: x(tick), x2: x(tick), y1: TOP, y2: height - BOTTOM }), draw("text", { x: x(tick), y: height - BOTTOM + 15, "text-anchor": "middle", class: "soft" }, label));
  picture.append(draw("text", { x: (width + LEFT) / 2, y: height - 4, "text-anchor": "middle", class: "soft" }, xLabel));
  for (const level of levels) picture.append(explains(draw("line", { class: "deadline", x1: LEFT, x2: width - RIGHT, y1: y(level.y), y2: y(level.y), "stroke-width": 2 }), level.text));
  for (const mark of marks) picture.append(explains(draw("line", { class: "event", x1: x(mark.x), x2: x(mark.x), y1: TOP, y2: height - BOTTOM, "stroke-width": 2 }), mark.text));
  for (const line of lines.filter((line) => line.points.length)) {
    const way = line.points.map(([px, py], n) => `${n ? "L" : "M"}${x(px).toFixed(1)} ${y(py).toFixed(1)}`).join("");
    picture.append(draw("path", { d: way, fill: "none", stroke: line.colour, "stroke-width": 2, "stroke-dasharray": line.isDashed ? "5 4" : null }));
    for (const [px, py, text] of line.points) picture.append(explains(draw("circle", { cx: x(px), cy: y(py), r: line.points.length > 60 ? 2 : 3, fill: line.colour }), text));
  }
  return picture;
}
const legend = (lines) => make("p", { class: "legend" }, lines.map((line) => make("span", {}, make("i", { style: `background:${line.colour};${line.isDashed ? "opacity:.55" : ""}` }), line.name)));

// ---- One path or node: its curve, and its latency over time
{
  const tags = Object.keys(data.curves).sort((a, b) => a.endsWith(".e2e") === b.endsWith(".e2e") ? a.localeCompare(b) : a.endsWith(".e2e") ? -1 : 1);
  if (tags.length) {
    const select = make("select", { id: "tag", "aria-label": "What the curves show" }, tags.map((tag) => make("option", { value: tag }, tag)));
    const curves = make("div"), times = make("div");
    const show = () => {
      const tag = select.value;
      const path = summary.paths.find((one) => `${pathName(one)}.e2e` === tag);
      const levels = path?.deadline_ns ? [{ y: path.deadline_ns, text: `deadline ${time(path.deadline_ns)}` }] : [];
      const curve = (of, name, colour, isDashed) => ({ name, colour, isDashed, points: (of?.curves[tag] ?? []).map(([oneIn, value]) => [Math.log10(oneIn), value, `${name}: ${oneIn <= 1 ? "least" : `1 in ${figure(oneIn)} is above`} ${time(value)}`]) });
      const lines = [curve(data, "this run", "var(--accent)", false), ...(base ? [curve(base, "before", "var(--base)", true)] : [])];
      const last = Math.max(1, ...lines.flatMap((line) => line.points.map((point) => point[0])));
      const names = ["p0", "p90", "p99", "p99.9", "p99.99", "p99.999", "p99.9999", "p99.99999"];
      curves.replaceChildren(make("p", {}, "Percentiles (the last point is the maximum)"), chart({ id: "curve", lines, yLog: true, levels, xLabel: "percentile", xAxis: { range: [0, last], ticks: names.map((name, n) => [n, name]).filter(([n]) => n <= last) } }), legend(lines));
      const series = history.latencies[tag] ?? [];
      const over = (at, name, colour) => ({ name, colour, points: series.filter((point) => point[at] !== null).map((point) => [point[0], point[at], `${name} ${time(point[at])} until ${figure(point[0])} s, of ${figure(point[4])}`]) });
      const drawn = [over(1, "p50", "var(--compute)"), over(2, "p99", "var(--queue)"), over(3, "max", "var(--blocked)")];
      const marks = history.events.flatMap((one) => [one.first, ...(one.last > one.first ? [one.last] : [])].map((at) => ({ x: at, text: `${figure(at)} s: ${one.message}${one.count > 1 ? ` (${figure(one.count)} times)` : ""}` })));
      const end = Math.max(summary.wall_s, 0.001);
      const ticks = Array.from({ length: 6 }, (_, n) => [(end * n) / 5, `${figure((end * n) / 5)} s`]);
      times.replaceChildren(make("p", {}, "Over time, with events (dotted)"), chart({ id: "over-time", lines: drawn, yLog: true, levels, marks, xLabel: "time", xAxis: { range: [0, end], ticks } }), legend(drawn));
    };
    select.addEventListener("change", show);
    section("latency", "Latency", make("p", {}, select), make("div", { class: "columns" }, make("div", { class: "scroll" }, curves), make("div", { class: "scroll" }, times)));
    show();
  }
}

// ---- Why the slowest messages were slow
{
  const rows = (summary.tails ?? []).flatMap((tail) => tail.causes.map((cause) => ({ ...cause, tail, path: pathName(tail) })));
  if (rows.length) {
    section("tails", "Slowest messages", make("p", { class: "soft" }, "Messages beyond the 99.9th percentile of their path, or the ten slowest if there are fewer than 10,000: the part of their way that took longest, and why. Excess: how much longer than the median they took, in all."), table("tail-table", [
      ["Path", (r) => r.path, (r) => r.path, true], ["Over", (r) => r.tail.limit_ns, (r) => time(r.tail.limit_ns)],
      ["Because", (r) => r.text, (r) => r.text, true], ["Messages", (r) => r.messages, (r) => `${figure(r.messages)} of ${figure(r.tail.judged)}`],
      ["Excess", (r) => r.excess_ns, (r) => time(r.excess_ns)], ["Longest", (r) => r.longest_ns, (r) => time(r.longest_ns)],
    ], rows));
  }
}

// ---- Events
if (history.events.length || summary.failures.length) {
  section("events", "Events", table("event-table", [
    ["First", (e) => e.first, (e) => `${figure(e.first)} s`], ["Last", (e) => e.last, (e) => `${figure(e.last)} s`], ["Times", (e) => e.count],
    ["Event", (e) => e.message, (e) => make("span", { class: e.is_recovery ? "good" : "bad" }, e.message), true],
  ], history.events), history.more_events ? make("p", {}, `and ${figure(history.more_events)} more of other kinds`) : null,
  summary.failures.map((failure) => make("p", { class: "bad" }, `${failure.node} failed in ${failure.call} ${failure.number}: ${failure.text}`)));
}

// ---- Nodes
const nodeRow = (node) => ({ tabindex: 0, "data-node": node.name, onclick: () => choose(node.name), onkeydown: (event) => event.key === "Enter" && choose(node.name) });
{
  const of = (node, term, name) => histograms[`${node.name}.${term}`]?.[name];
  const column = (term, name) => [`${term} ${name}`, (n) => of(n, term, name), (n) => {
    const before = baseHistograms[`${n.name}.${term}`]?.[name];
    return base ? `${time(of(n, term, name))}  ${change(of(n, term, name), before)}` : time(of(n, term, name));
  }];
  section("nodes", "Nodes", table("node-table", [
    ["Node", (n) => n.name, null, true], ["Kind", (n) => n.kind, null, true], ["Thread", (n) => summary.workers[n.worker]?.name, null, true],
    ["Calls", (n) => n.done], ["Failed", (n) => n.failed, (n) => make("span", { class: n.failed ? "bad" : null }, figure(n.failed))],
    ["Lost", (n) => sum(Object.values(n.lost)), (n) => Object.entries(n.lost).filter(([, count]) => count).map(([reason, count]) => `${reason} ${figure(count)}`).join(", ")],
    column("queue", "p50"), column("queue", "p99"), column("compute", "p50"), column("compute", "p99"), column("compute", "max"),
    ["Restarts", (n) => n.restarts],
  ].map((one) => [one[0], one[1], one[2] ?? (one[3] ? one[1] : null), one[3]]), summary.nodes, { row: nodeRow }));
}

// ---- Edges
{
  const rows = summary.edges.map((edge, n) => ({ ...edge, n, watched: history.edges[n] ?? {} }));
  // Little's law: messages in a queue = rate × wait. Compared for nodes with one input, where the queue's times are those of the edge.
  const inputs = new Map();
  rows.forEach((edge) => inputs.set(nodeOf(edge.to), (inputs.get(nodeOf(edge.to)) ?? 0) + 1));
  const little = (edge) => {
    const wait = histograms[`${nodeOf(edge.to)}.queue`]?.mean;
    return inputs.get(nodeOf(edge.to)) === 1 && wait !== undefined && wait !== null ? (edge.received / Math.max(summary.wall_s, 1e-9)) * (wait / 1e9) : null;
  };
  const spark = (edge) => {
    const points = edge.watched.depth ?? [];
    const most = Math.max(1, edge.capacity);
    const picture = draw("svg", { width: 120, height: 18, role: "img", "aria-label": `depth of ${edge.from} to ${edge.to}` });
    picture.append(draw("rect", { width: 120, height: 18, fill: "var(--panel)" }));
    const end = Math.max(summary.wall_s, 1e-3);
    points.forEach(([at, depth], n) => {
      const x = (Math.min(at, end) / end) * 118, next = n + 1 < points.length ? (points[n + 1][0] / end) * 118 : 118;
      const height = Math.min(18, (depth / most) * 18);
      if (height > 0) picture.append(draw("rect", { x, y: 18 - Math.max(height, 0.7), width: Math.max(next - x, 0.8), height: Math.max(height, 0.7), fill: depth >= edge.capacity ? "var(--blocked)" : "var(--compute)" }));
    });
    return picture;
  };
  section("edges", "Edges", make("p", { class: "soft" }, "The queue depth is sampled ten times a second. By Little's law its mean is the rate times the mean wait; the two differ where few messages wait, or where the load changes."), table("edge-table", [
    ["From", (e) => e.from, (e) => e.from, true], ["To", (e) => e.to, (e) => e.to, true], ["Sent", (e) => e.sent], ["Received", (e) => e.received],
    ["Lost", lostAt, (e) => make("span", { class: lostAt(e) ? "bad" : null }, lostAt(e) ? Object.entries(e.lost).filter(([, count]) => count).map(([reason, count]) => `${reason} ${figure(count)}`).join(", ") : "")],
    ["Discarded", (e) => e.discarded], ["Left", (e) => e.left], ["Depth", (e) => e.watched.peak_depth, spark],
    ["Peak", (e) => e.watched.peak_depth, (e) => `${figure(e.watched.peak_depth)} of ${figure(e.capacity)}`],
    ["Mean", (e) => e.watched.mean], ["Rate × wait", little],
  ], rows));
}

// ---- Threads
{
  const info = run.workers;
  const rows = summary.workers.map((worker, n) => ({ ...worker, watched: history.threads[n] ?? {}, governor: info[n]?.governor }));
  const bar = (worker) => {
    const picture = draw("svg", { width: 160, height: 16, role: "img", "aria-label": `${worker.name}: ${percent(worker.watched.busy)} of a CPU` });
    const busy = worker.watched.busy ?? 0, waiting = worker.watched.waiting ?? 0;
    picture.append(draw("rect", { width: 160, height: 16, fill: "var(--panel)" }), draw("rect", { width: 160 * Math.min(1, busy), height: 16, fill: "var(--compute)" }), draw("rect", { x: 160 * Math.min(1, busy), width: 160 * Math.min(1 - Math.min(1, busy), waiting), height: 16, fill: "var(--blocked)" }));
    return picture;
  };
  section("threads", "Threads", make("p", { class: "soft" }, "By the kernel: the time on a CPU (a thread that waits by spinning has all of it), and red, the time that it was ready and waited for a CPU."), table("thread-table", [
    ["Thread", (w) => w.name, (w) => w.name, true],
    ["CPU", (w) => w.cpu, (w) => (w.cpu === null ? `any${w.floats ? ` (${w.floats})` : ""}` : `${w.cpu}${w.refused ? ` refused: ${w.refused}` : ""}`), true],
    ["Waits", (w) => w.wait, (w) => w.wait, true], ["Policy", (w) => w.real_time, (w) => w.real_time ?? run.scheduling ?? "", true], ["Governor", (w) => w.governor, (w) => w.governor ?? "", true],
    ["On a CPU", (w) => w.watched.busy, (w) => percent(w.watched.busy)], ["Waited for one", (w) => w.watched.waiting, (w) => percent(w.watched.waiting)], ["", (w) => w.watched.busy, bar],
  ], rows));
}

// ---- Message accounting and gates
{
  const isBalanced = summary.bugs.length === 0;
  section("accounting", "Message accounting",
    make("p", { class: isBalanced ? "good" : "bad", id: "accounting-verdict" }, isBalanced ? "Every message is accounted for: at every edge sent = received + lost + discarded + left, at every node taken = done + failed + held." : "The message accounting does not balance: this is a bug in limen."),
    summary.bugs.map((bug) => make("p", { class: "bad" }, bug)),
    summary.gates.map((gate) => make("p", { class: gate.tripped ? "bad" : "good" }, gate.text)),
    summary.notes.map((note) => make("p", {}, note)));
}

// ---- The machine
{
  const fields = (info) => ({ Graph: info.file, "Hash of the file": info.graph_fnv1a64, Command: info.arguments.join(" "), Kernel: info.kernel, CPU: info.cpu, "CPUs online": info.cpus_online, Clock: info.clock_source, Scheduling: info.scheduling, limen: info.limen });
  const before = base ? fields(base.run) : {};
  const rows = Object.entries(fields(run)).map(([name, value]) => ({ name, value, before: before[name] }));
  section("host", "Host", table("host-table", [
    ["", (r) => r.name, (r) => r.name, true], [base ? "This run" : "", (r) => r.value, (r) => r.value ?? "", true],
    ...(base ? [["Before", (r) => r.before, (r) => make("span", { class: r.before !== r.value && r.name !== "Command" ? "bad" : null }, r.before ?? ""), true]] : []),
  ], rows));
}

// ---- The graph file
if (data.graph) {
  const text = make("pre", { id: "file" });
  const names = new Set(outline.nodes.map((node) => node.name));
  let current = null;
  data.graph.split("\n").forEach((line, n) => {
    const key = /^ {2}["']?([\w.-]+)["']?:/.exec(line);
    if (/^\S/.test(line)) current = null;
    if (key) current = names.has(key[1]) ? key[1] : null;
    text.append(make("span", current ? { "data-node": current } : {}, make("span", { class: "number" }, String(n + 1)), `${line}\n`));
  });
  section("file-section", "Graph file", text);
}
