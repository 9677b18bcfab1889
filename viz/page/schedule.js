"use strict";
// The schedule: a row an island, planned over actual. This script makes its rows and its controls;
// schedule_drawing.js draws them, schedule_choosing.js answers pointers and keys.

(function () {
  const GAP = 5;
  const s = {
    NAMES: 190,
    SUMS: 176,
    AXIS: 26,
    rows: [],
    tall: 22,
    view: null,
    zoom: d3.zoomIdentity,
    state: { basis: "", run: -1, open: new Set(), planned: true, actual: true, transfers: true, chosen: null },
  };
  const { state } = s;
  pw.schedule = s;

  const LABELS = { measured: "as long as measured", equal: "equal stages", estimated: "estimated by the cost model" };

  const available = () => (pw.data.lanes || pw.data.runs.length ? true : "not compiled: there is no schedule");
  pw.addView("schedule", "Schedule", available, draw);

  function draw(panel) {
    const bases = Object.keys(pw.data.times || {});
    state.basis = bases[0] || "";
    state.run = pw.data.runs.length - 1;
    const canvas = pw.el("canvas", {
      id: "chart",
      tabindex: 0,
      role: "application",
      style: `margin-left:${s.NAMES}px`,
      "aria-label": "schedule: arrow keys go from cell to cell, plus and minus zoom",
    });
    const names = pw.el("div", { class: "names", style: `--names:${s.NAMES}px` });
    const sums = pw.el("div", { class: "sums", style: `--sums:${s.SUMS}px` });
    const space = pw.el("div", { class: "space" }, canvas, names, sums);
    const scroll = pw.el("div", { class: "rows" }, space);
    const axis = pw.svg("svg", { class: "axis", height: s.AXIS, width: "100%", "aria-hidden": "true" });
    panel.append(controls(bases), pw.el("p", { class: "note", id: "schedule-note" }, note()), axis, scroll);
    const zooming = d3
      .zoom()
      .scaleExtent([1, 4000])
      .filter(zooms)
      .on("zoom", (e) => {
        s.zoom = e.transform;
        s.paint();
      });
    s.view = { canvas, names, sums, space, scroll, axis, zooming };
    scroll.addEventListener("scroll", s.paint);
    d3.select(canvas).call(zooming).on("dblclick.zoom", null);
    s.listen(canvas);
    rebuild();
    return s.redraw;
  }

  // The wheel alone scrolls the rows.
  const zooms = (e) => e.type !== "wheel" || e.ctrlKey || e.shiftKey || !e.deltaY || e.altKey;

  function controls(bases) {
    const runs = pw.data.runs,
      made = [];
    const check = (name) => {
      const change = (e) => {
        state[name] = e.target.checked;
        rebuild();
      };
      return pw.el("label", {}, pw.el("input", { type: "checkbox", checked: state[name], onchange: change }), name);
    };
    const select = (id, word, options, change) => {
      const onchange = (e) => {
        change(e.target.value);
        reset();
      };
      return pw.el("label", {}, word, pw.el("select", { id, onchange }, ...options));
    };
    if (bases.length > 1) {
      const options = bases.map((b) => pw.el("option", { value: b }, LABELS[b]));
      made.push(select("basis", "times", options, (value) => (state.basis = value)));
    }
    if (runs.length) {
      const name = (r) => `${r.program || "run"} ${r.number}`;
      const options = runs.map((r, i) => pw.el("option", { value: i, selected: i === state.run }, name(r)));
      made.push(
        check("planned"),
        check("actual"),
        select("run", "run", options, (value) => (state.run = +value)),
      );
    }
    if (bases.length) made.push(check("transfers"), pw.el("span", { class: "quiet", id: "transfers-note" }));
    if (openable().length)
      made.push(pw.el("button", { id: "open-devices", "aria-pressed": "false", onclick: openAll }, "devices"));
    made.push(pw.el("button", { onclick: reset }, "whole time"), pw.el("div", { class: "legend", id: "kinds" }));
    return pw.el("div", { class: "controls" }, ...made);
  }

  function note() {
    const found = pw.data.schedule;
    if (!found || !found.microbatches) {
      if (found && found.note) return found.note;
      return "Drag to move, shift and wheel to zoom; click a cell for its line, point at a gap for its cause.";
    }
    const equal = `bubble ${pw.percent(found.bubble)} (at least ${pw.percent(found.bound)}) for equal stages`;
    return `${found.name}: ${equal}${found.note ? `; ${found.note}` : ""}`;
  }

  // Rows: what was planned and what was measured of each lane, or of each of its devices where it is opened.
  function rebuild() {
    s.rows = [];
    const run = pw.data.runs[state.run];
    for (const [number, lane] of (pw.data.lanes || lanesOf(run)).entries()) {
      const devices = state.open.has(number) ? lane.devices : [lane.devices[0]];
      for (const device of devices) addRows(run, number, lane, device);
    }
    for (const r of s.rows) if (r.of) r.sum = sum(r);
    s.tall = s.rows.length <= 10 ? 34 : 22;
    let top = 4;
    for (const r of s.rows) {
      if (r.begins) top += GAP;
      r.top = top;
      top += s.tall + 2;
    }
    s.view.height = top + 8;
    const times = (pw.data.times || {})[state.basis];
    // Else what was planned and what was measured are of other lengths.
    const shared = !times || state.basis === "measured";
    const both = ["planned", "actual"];
    s.view.lengths = {
      planned: Math.max(1e-9, length(shared ? both : ["planned"])),
      actual: Math.max(1e-9, length(shared ? both : ["actual"])),
    };
    s.view.unit = s.rows.length ? s.rows[0].unit : "ns";
    s.view.space.style.height = `${s.view.height}px`;
    nameRows();
    s.redraw();
  }

  function addRows(run, number, lane, device) {
    const { rows } = s,
      first = rows.length,
      times = (pw.data.times || {})[state.basis];
    const isOpen = state.open.has(number);
    const many = !isOpen && lane.devices.length > 1 ? ` ×${lane.devices.length}` : "";
    const name = isOpen ? `${lane.island} device ${device}` : `${lane.name}${many}`;
    const seen = run && run.rows.find((r) => r.island === lane.island && r.device === device);
    const add = (kind, cells, unit) => {
      const begins = rows.length === first;
      rows.push({ name: begins ? name : "", where: name, kind, lane: number, cells, unit, begins });
    };
    if (state.planned && times) add("planned", plannedCells(lane, times), times.unit);
    else if (state.planned && seen && seen.planned.length) add("planned", shifted(seen.planned), "ns");
    if (state.actual && seen) add("actual", shifted(seen.cells, seen.gaps), "ns");
    if (rows.length > first) rows[rows.length - 1].of = { lane, device };
  }

  function nameRows() {
    const { view, tall } = s,
      focused = document.activeElement && document.activeElement.dataset.row;
    view.names.replaceChildren(
      ...s.rows.map((r, i) => {
        const style = `top:${r.top}px;height:${tall}px;line-height:${tall}px`;
        const can = openable().includes(r.lane);
        const button = () =>
          pw.el(
            "button",
            {
              title: `${r.name}: open or close its devices`,
              "data-row": `${r.lane} ${i}`,
              "aria-expanded": String(state.open.has(r.lane)),
              onclick: () => toggle(r.lane),
            },
            r.name,
          );
        const word = r.name ? (can ? button() : pw.el("span", {}, r.name)) : pw.el("span", { class: "quiet" }, r.kind);
        return pw.el("div", { style, title: r.where }, word);
      }),
    );
    const told = s.rows.filter((r) => r.sum);
    const line = (r) => pw.el("div", { style: `top:${r.top}px;line-height:${tall}px`, title: r.sum }, r.sum);
    view.sums.replaceChildren(...told.map(line));
    // The rows of another lane may have moved: the focus stays at the first row of the lane that was opened.
    if (focused) {
      const again = view.names.querySelector(`button[data-row^="${focused.split(" ")[0]} "]`);
      if (again) again.focus();
    }
  }

  function lanesOf(run) {
    const lane = (r) => ({ name: `${r.island} device ${r.device}`, island: r.island, devices: [r.device], tasks: [] });
    return run.rows.map(lane);
  }

  function plannedCells(lane, times) {
    const cells = [];
    let before = 0;
    for (const number of lane.tasks) {
      const task = pw.tasks[number],
        begin = times.starts[number],
        end = times.ends[number];
      if (end <= begin) continue;
      const cell = { begin, end, task, parts: task.parts, name: task.name, line: task.line, step: task.step };
      if (begin > before) cell.gap = { begin: before, end: begin, cause: times.causes[number] };
      cells.push(cell);
      before = end;
    }
    return cells;
  }

  // What was recorded, from the begin of its run on; a gap says what the trace says of it.
  function shifted(cells, gaps = []) {
    const run = pw.data.runs[state.run];
    const start = Math.min(...run.rows.flatMap((r) => r.cells.slice(0, 1).map((c) => c.begin)));
    const first = cells.length ? cells[0].begin - start : 0;
    let before = 0,
      at = 0;
    return cells.map((c) => {
      const task = taskOf(c),
        parts = c.parts.length || !task ? c.parts : task.parts;
      const cell = { ...c, begin: c.begin - start, end: c.end - start, task, parts };
      while (at < gaps.length && gaps[at][1] - start <= before) at += 1;
      if (cell.begin > before) {
        const told = at < gaps.length && gaps[at][0] - start < cell.begin ? pw.text(gaps[at][2]) : "";
        const untold = cell.begin === first ? "its run had not reached this device" : "too short for a recorded cause";
        cell.gap = { begin: before, end: cell.begin, reason: told || untold };
      }
      before = cell.end;
      return cell;
    });
  }

  let byStep = null;
  function taskOf(cell) {
    if (!byStep) {
      const calls = pw.tasks.filter((t) => t.kind === "call");
      byStep = new Map(calls.map((t) => [`${t.step} ${t.name}`, t]));
    }
    return byStep.get(`${cell.step} ${cell.name}`) || null;
  }

  // When the last row of these kinds ends: all rows must be there.
  function length(kinds) {
    const end = (r) => (r.cells.length ? r.cells[r.cells.length - 1].end : 0);
    return s.rows.reduce((most, r) => (kinds.includes(r.kind) ? Math.max(most, end(r)) : most), 0);
  }

  function sum(r) {
    const { lane, device } = r.of;
    const busy = r.cells.reduce((all, c) => all + c.end - c.begin, 0),
      whole = length([r.kind]);
    const memory = (pw.data.memory || []).find((m) => m.island === lane.island && m.devices.includes(device));
    const idle = whole ? `idle ${pw.percent(1 - busy / whole)}` : "";
    return [idle, memory ? pw.bytes(memory.peak) : ""].filter(Boolean).join(" · ");
  }

  function openable() {
    const lanes = pw.data.lanes || [];
    return lanes.map((_, i) => i).filter((i) => lanes[i].devices.length > 1);
  }

  function toggle(lane) {
    if (!state.open.delete(lane)) state.open.add(lane);
    rebuild();
  }

  function openAll() {
    if (state.open.size) state.open.clear();
    else for (const lane of openable()) state.open.add(lane);
    document.getElementById("open-devices").setAttribute("aria-pressed", String(state.open.size > 0));
    rebuild();
  }

  function reset() {
    s.zoom = d3.zoomIdentity;
    d3.select(s.view.canvas).property("__zoom", s.zoom);
    rebuild();
  }

  // Of what moves the first task that reads it.
  pw.users = function () {
    if (!pw._users) {
      pw._users = new Map();
      for (const t of pw.tasks) for (const w of t.waits) if (!pw._users.has(w)) pw._users.set(w, t.number);
    }
    return pw._users;
  };

  pw.scheduleRows = () => s.rows; // for tests: what is drawn, in order
})();
