"use strict";
// Answers pointers and keys in the schedule: what a cell does, what a gap waits for, where to go next.

(function () {
  const s = pw.schedule;
  const STEPS = {
    ArrowRight: [1, 0],
    ArrowLeft: [-1, 0],
    ArrowDown: [0, 1],
    ArrowUp: [0, -1],
    Home: [-Infinity, 0],
    End: [Infinity, 0],
  };
  const ZOOMS = { "+": 1.6, "=": 1.6, "-": 1 / 1.6 };
  const MOST_LINKS = 12;

  s.listen = function (canvas) {
    canvas.addEventListener("mousemove", hover);
    canvas.addEventListener("mouseleave", () => pw.tip(""));
    canvas.addEventListener("keydown", keys);
    canvas.addEventListener("click", (event) => {
      const at = find(event);
      if (at && at.cell) choose(at.row, at.cell);
    });
  };

  function find(event) {
    const area = s.view.canvas.getBoundingClientRect(),
      y = event.clientY - area.top + s.view.scroll.scrollTop;
    const row = s.rows.find((x) => y >= x.top && y < x.top + s.tall);
    if (!row || !row.cells.length) return row ? { row } : null;
    const { low, rate } = s.seen(row.kind),
      t = low + (event.clientX - area.left) / rate,
      slack = 3 / rate;
    const cell = row.cells[s.firstAfter(row.cells, t)];
    if (cell && cell.begin <= t + (cell.end - cell.begin < slack ? slack : 0)) return { row, cell };
    if (cell && cell.gap && t >= cell.gap.begin) return { row, gap: cell.gap };
    return { row };
  }

  function hover(event) {
    const at = find(event);
    if (!at) return pw.tip("");
    const { row, cell, gap } = at;
    if (gap) return pw.tip(saidGap(gap, row), event);
    if (!cell) return pw.tip(`${row.where}: ${row.cells.length ? "done" : "nothing that takes time"}`, event);
    const takes = pw.time(cell.end - cell.begin, row.unit);
    return pw.tip(`${pw.said({ ...cell, kind: "call" })}\n${takes}, ${row.where}, ${row.kind}`, event);
  }

  const saidGap = (gap, row) => `idle ${pw.time(gap.end - gap.begin, row.unit)}: ${cause(gap)}`;

  function cause(gap) {
    if (gap.reason) return gap.reason;
    const task = pw.tasks[gap.cause];
    if (!task) return "starts late";
    const island = (stream) => pw.data.streams[stream].island;
    if (task.kind === "call" || task.kind === "branch") return `waits for ${pw.said(task)} on ${island(task.stream)}`;
    const maker = pw.tasks[task.source],
      by = maker ? `, made by ${pw.said(maker)}` : "";
    const from = task.kind === "transfer" ? ` from ${island(task.from)}` : "";
    return `waits for the ${task.kind} of ${task.name} (${pw.bytes(task.bytes)}${from})${by}`;
  }

  function choose(row, cell) {
    s.state.chosen = { cell, kind: row.kind };
    const title = cell.parts.length ? pw.saidParts(cell.parts) : cell.name;
    const from = pw.time(cell.begin, row.unit),
      takes = pw.time(cell.end - cell.begin, row.unit);
    const details = [
      ["computation", cell.name],
      ["line", cell.line],
      ["on", `${row.where}, ${row.kind}`],
      ["from", from],
      ["takes", takes],
      ["step", cell.step],
      ...(cell.task ? detailsOf(cell.task) : []),
    ];
    if (cell.gap) details.push(["before it", saidGap(cell.gap, row)]);
    pw.show(title, details);
    pw.say(`${title}, ${row.where}, ${row.kind}, from ${from} for ${takes}, line ${cell.line}`);
    s.paint();
  }

  function detailsOf(task) {
    const mesh = pw.data.meshes[task.mesh];
    return [
      ["mesh", mesh ? `${mesh.slice}: ${pw.axes(mesh)}` : ""],
      ["makes", task.kind === "call" ? `${pw.bytes(task.bytes)} a device` : ""],
      ["temporaries", task.temporaries ? pw.bytes(task.temporaries) : ""],
      ["merged of", task.merged],
      ["reads from", links(task.waits)],
    ];
  }

  function links(numbers) {
    if (!numbers.length) return "arguments only";
    const link = (n) => pw.el("button", { class: "link", onclick: () => go(n) }, pw.said(pw.tasks[n]));
    const shown = numbers.slice(0, MOST_LINKS).flatMap((n) => [link(n), pw.el("br")]);
    return pw.el("span", {}, ...shown, numbers.length > MOST_LINKS ? `and ${numbers.length - MOST_LINKS} more` : "");
  }

  function go(number) {
    const task = pw.tasks[number];
    if (task.kind === "transfer" || task.kind === "reshard") return pw.showTransfer(task);
    for (const row of s.rows) {
      const cell = row.cells.find((c) => c.task && c.task.number === number);
      if (cell) return choose(row, cell);
    }
    // What takes no time has no cell.
    return pw.show(pw.said(task), [["line", task.line], ["step", task.step], ...detailsOf(task)]);
  }

  pw.showTransfer = function (task) {
    const maker = pw.tasks[task.source];
    pw.show(pw.said(task), [
      ["bytes", pw.bytes(task.bytes)],
      ["how", task.chosen],
      ["why", task.reason],
      ["line", task.line],
      ["made by", maker ? links([maker.number]) : "an argument"],
    ]);
  };

  function keys(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const zoom = ZOOMS[event.key],
      steps = STEPS[event.key];
    if (zoom) d3.select(s.view.canvas).call(s.view.zooming.scaleBy, zoom);
    if (!zoom && !steps) return;
    event.preventDefault();
    if (steps) step(...steps);
  }

  // Goes to the next cell of a row, or of the next row that has any.
  function step(along, down) {
    const { rows } = s,
      { chosen } = s.state;
    const has = (r) => chosen && r.kind === chosen.kind && r.cells.includes(chosen.cell);
    const here = rows.findIndex(has);
    let at = here < 0 ? 0 : here + down;
    while (rows[at] && !rows[at].cells.length) at += down || 1;
    const next = rows[at];
    if (!next) return;
    const old = here < 0 ? null : chosen.cell;
    const found = old && !down ? next.cells.indexOf(old) + along : s.firstAfter(next.cells, old ? old.begin + 1e-9 : 0);
    scrollTo(next);
    choose(next, next.cells[Math.max(0, Math.min(next.cells.length - 1, found))]);
  }

  function scrollTo(row) {
    const { scroll, shown } = s.view,
      below = row.top - shown + 40,
      above = row.top - 20;
    scroll.scrollTop = Math.max(0, Math.min(above, Math.max(below, scroll.scrollTop)));
  }
})();
