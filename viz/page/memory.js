"use strict";
// Memory: live bytes of a device after each step, stacked by owner, with the peak and the limit.

(function () {
  const LEFT = 76,
    RIGHT = 170,
    TOP = 26,
    BOTTOM = 34,
    LINE = 15,
    MOST_NAME = 16;
  const STEPS = { ArrowRight: 1, ArrowLeft: -1, Home: -Infinity, End: Infinity };
  const state = { group: 0, step: null };
  let view = null,
    points = [];

  const available = () => ((pw.data.memory || []).length ? true : "not compiled: there are no buffers");
  pw.addView("memory", "Memory", available, draw);

  function nameOf(m) {
    const { devices } = m,
      last = devices[devices.length - 1];
    const isRange = devices.length > 3 && last - devices[0] === devices.length - 1;
    const said = isRange ? `${devices[0]} to ${last}` : devices.join(", ");
    return `${m.island} device${devices.length > 1 ? "s" : ""} ${said}`;
  }

  function draw(panel) {
    const groups = pw.data.memory;
    state.group = groups.reduce((best, m, i) => (m.peak > groups[best].peak ? i : best), 0);
    const list = pw.el("ul", { class: "list", "aria-label": "devices" }, ...listed(groups));
    const drawing = pw.el("div", {
      class: "drawing",
      tabindex: 0,
      role: "application",
      onkeydown: keys,
      "aria-label": "live bytes over the steps: arrow keys go from step to step",
    });
    const how = `temporaries of executables are ${pw.data.temporaries}`;
    const note = `Bytes on one device after each step of the plan, by owner; ${how}.`;
    panel.append(pw.el("p", { class: "note" }, note), pw.el("div", { class: "split" }, list, drawing));
    view = { list, drawing };
    paint();
    return paint;
  }

  function listed(groups) {
    const most = Math.max(1, ...groups.map((m) => m.limit || m.peak));
    return groups.map((m, i) => {
      const onclick = () => {
        Object.assign(state, { group: i, step: null });
        paint();
      };
      const said = `peak ${pw.bytes(m.peak)}${m.limit ? ` of ${pw.bytes(m.limit)}` : ""}`;
      const bar = pw.el("div", { class: "bar" }, pw.el("i", { style: `width:${(100 * m.peak) / most}%` }));
      const words = [nameOf(m), pw.el("br"), pw.el("span", { class: "quiet" }, said), bar];
      return pw.el("li", {}, pw.el("button", { "data-group": i, onclick }, ...words));
    });
  }

  function keys(event) {
    const by = STEPS[event.key];
    if (!by) return;
    event.preventDefault();
    choose(Math.max(0, Math.min(points.length - 1, (state.step ?? -1) + by)));
  }

  // One point a step: what is alive when most is. Temporaries come and go within one step.
  function pointsOf(m) {
    const live = new Array(m.owners.length).fill(0),
      found = [];
    let total = 0,
      at = null;
    for (const [step, owner, moved] of m.changes) {
      live[owner] += moved;
      total += moved;
      if (!at || at.step !== step) {
        at = { step, total, live: live.slice() };
        found.push(at);
      } else if (total > at.total) Object.assign(at, { total, live: live.slice() });
    }
    return found;
  }

  function paint() {
    const m = pw.data.memory[state.group];
    view.list.querySelectorAll("button").forEach((b) => {
      b.setAttribute("aria-current", String(+b.dataset.group === state.group));
    });
    points = pointsOf(m);
    const width = Math.max(320, view.drawing.clientWidth - 10),
      high = Math.max(240, view.drawing.clientHeight - 8);
    const top = Math.max(m.peak, m.limit && m.limit < 3 * m.peak ? m.limit : 0) * 1.08 || 1;
    const last = points[points.length - 1].step + 1;
    const x = d3.scaleLinear([-1, last], [LEFT, width - RIGHT]);
    const y = d3.scaleLinear([0, top], [high - BOTTOM, TOP]);
    const svg = d3.create("svg").attr("width", width).attr("height", high).attr("aria-hidden", "true");
    const box = { svg, m, x, y, width, high, top, last };
    const layers = areas(box);
    axes(box);
    const peak = `peak ${pw.bytes(m.peak)}, ${m.peak_step < 0 ? "at the start" : `at step ${m.peak_step}`}`;
    level(box, m.peak, peak, pw.css("--text"));
    if (m.limit && m.limit <= top) level(box, m.limit, `limit ${pw.bytes(m.limit)}`, pw.css("--mark"));
    names(box, layers);
    listen(box);
    view.x = x;
    view.drawing.replaceChildren(svg.node());
    if (state.step !== null) markStep(state.step);
  }

  function areas({ svg, m, x, y, last }) {
    const stack = d3
      .stack()
      .keys(d3.range(m.owners.length))
      .value((p, k) => p.live[k]);
    const layers = stack([...points, { ...points[points.length - 1], step: last }]);
    const area = d3
      .area()
      .x((p) => x(p.data.step))
      .y0((p) => y(p[0]))
      .y1((p) => y(p[1]))
      .curve(d3.curveStepAfter);
    svg
      .selectAll("path.owner")
      .data(layers)
      .join("path")
      .attr("class", "owner")
      .attr("d", area)
      .attr("fill", (_, i) => pw.PALETTE[i % pw.PALETTE.length])
      .attr("stroke", pw.css("--back"))
      .attr("stroke-width", 0.5);
    return layers;
  }

  function axes({ svg, x, y, width, high, top, last }) {
    const steps = d3.ticks(0, last, Math.min(12, last)).filter(Number.isInteger);
    const below = d3
      .axisBottom(x)
      .tickValues(steps)
      .tickFormat((n) => n.toLocaleString("en"));
    svg
      .append("g")
      .attr("class", "axis")
      .attr("transform", `translate(0,${high - BOTTOM})`)
      .call(below);
    const left = d3.axisLeft(y).tickValues(round(top)).tickFormat(pw.bytes);
    svg.append("g").attr("class", "axis").attr("transform", `translate(${LEFT},0)`).call(left);
    svg
      .append("text")
      .attr("x", width - RIGHT)
      .attr("y", high - 6)
      .attr("text-anchor", "end")
      .attr("font-size", 12)
      .attr("fill", pw.css("--quiet"))
      .text("step of the plan");
  }

  function level({ svg, y, width }, value, text, color) {
    const line = svg
      .append("line")
      .attr("x1", LEFT)
      .attr("x2", width - RIGHT)
      .attr("y1", y(value))
      .attr("y2", y(value));
    line.attr("stroke", color).attr("stroke-dasharray", "5 4").attr("stroke-width", 1.5);
    const said = svg
      .append("text")
      .attr("x", LEFT + 6)
      .attr("y", y(value) - 5);
    said.attr("fill", color).attr("font-size", 12).text(text);
  }

  // Round numbers of KiB, MiB or GiB.
  function round(top) {
    const unit = 1024 ** Math.max(0, Math.floor(Math.log2(top / 2) / 10));
    return d3.ticks(0, top / unit, 6).map((n) => n * unit);
  }

  function listen({ svg, x, width, high }) {
    const at = (e) => index(x.invert(d3.pointer(e)[0]));
    const step = svg
      .append("line")
      .attr("id", "at-step")
      .attr("y1", TOP)
      .attr("y2", high - BOTTOM);
    step.attr("stroke", pw.css("--text")).attr("visibility", "hidden");
    svg
      .append("rect")
      .attr("x", LEFT)
      .attr("y", 20)
      .attr("width", Math.max(1, width - LEFT - RIGHT))
      .attr("height", Math.max(1, high - 54))
      .attr("fill", "transparent")
      .on("mousemove", (e) => pw.tip(said(at(e)), e))
      .on("mouseleave", () => pw.tip(""))
      .on("click", (e) => choose(at(e)));
  }

  function index(step) {
    const after = d3.bisector((p) => p.step).right(points, step);
    return Math.max(0, Math.min(points.length - 1, after - 1));
  }

  // The owners by name at the right, where each is at the peak: not by color alone.
  function names({ svg, m, y, width }, layers) {
    const at = Math.max(
      0,
      points.findIndex((p) => p.step === m.peak_step),
    );
    const middle = (i) => (y(layers[i][at][0]) + y(layers[i][at][1])) / 2;
    const rows = m.owners.map((owner, i) => ({ owner, i, at: middle(i), bytes: points[at].live[i] }));
    rows.sort((a, b) => b.at - a.at);
    let bottom = Infinity,
      above = -Infinity;
    for (const r of rows) bottom = r.at = Math.min(r.at, bottom - LINE);
    for (const r of rows.slice().reverse()) above = r.at = Math.max(r.at, above + LINE, 34);
    const g = svg.append("g");
    for (const r of rows) {
      const box = g
        .append("rect")
        .attr("x", width - RIGHT + 8)
        .attr("y", r.at - 9)
        .attr("width", 10)
        .attr("height", 10);
      box.attr("fill", pw.PALETTE[r.i % pw.PALETTE.length]);
      const text = g
        .append("text")
        .attr("x", width - RIGHT + 23)
        .attr("y", r.at)
        .attr("font-size", 11.5);
      const short = r.owner.length > MOST_NAME ? `${r.owner.slice(0, MOST_NAME - 1)}…` : r.owner;
      text.attr("fill", pw.css("--text")).text(`${short} ${pw.bytes(r.bytes)}`);
      text.append("title").text(r.owner);
    }
  }

  function rowsOf(i) {
    const owners = pw.data.memory[state.group].owners.map((owner, k) => [owner, points[i].live[k]]);
    return owners.filter(([, n]) => n).sort((a, b) => b[1] - a[1]);
  }

  const at = (i) => (points[i].step < 0 ? "at the start" : `step ${points[i].step}`);

  function said(i) {
    const owners = rowsOf(i).map(([owner, n]) => `${owner} ${pw.bytes(n)}`);
    return `${at(i)}: ${pw.bytes(points[i].total)}\n${owners.join("\n")}`;
  }

  function choose(i) {
    const m = pw.data.memory[state.group],
      task = pw.tasks.find((t) => t.step === points[i].step);
    state.step = i;
    pw.show(`${nameOf(m)}, ${at(i)}`, [
      ["alive", pw.bytes(points[i].total)],
      ["doing", task ? pw.said(task) : ""],
      ["line", task ? task.line : ""],
      ...rowsOf(i).map(([owner, n]) => [owner, pw.bytes(n)]),
    ]);
    pw.say(said(i).replaceAll("\n", ", "));
    markStep(i);
  }

  function markStep(i) {
    const x = view.x(points[i].step);
    d3.select("#at-step").attr("x1", x).attr("x2", x).attr("visibility", "visible");
  }

  // For tests: the most that is drawn of each group of devices.
  pw.memoryPeaks = () => pw.data.memory.map((m) => Math.max(...pointsOf(m).map((p) => p.total)));
})();
