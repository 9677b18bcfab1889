"use strict";
// Shardings: every value, how it lies on its mesh, why, and what a reshard moved.

(function () {
  const PAGE = 200;
  const COLUMNS = ["value", "type", "sharding", "mesh", "bytes a device", "why"];
  const state = { found: "", most: PAGE, only: "" };
  let view = null;

  const available = () => ((pw.data.values || []).length ? true : "not compiled: there are no buffers");
  pw.addView("shardings", "Shardings", available, draw);

  function read(number) {
    const [stream, name, kind, role, owner, maker, user, birth, death] = pw.data.values[number],
      s = pw.text;
    const [type, shape, mesh, dims, bytes, sharding] = pw.data.kinds[stream][kind];
    return {
      name: s(name),
      role: s(role),
      owner: s(owner),
      birth,
      death,
      maker: pw.tasks[maker],
      user: pw.tasks[user],
      type: s(type),
      shape,
      mesh: pw.data.meshes[mesh],
      dims,
      bytes,
      sharding: s(sharding),
    };
  }

  const isMove = (task) => Boolean(task) && (task.kind === "transfer" || task.kind === "reshard");

  function why(v) {
    const made = v.maker,
      given = v.role === "constant" ? "constant" : "argument";
    if (isMove(made)) return `${made.kind === "transfer" ? "moved here" : "resharded"}: ${made.reason || made.chosen}`;
    if (made) return `as ${pw.said(made)} makes it`;
    if (v.user) return `${given}, as ${pw.said(v.user)} reads it`;
    return v.role === "constant" ? given : "argument, as the caller passes it";
  }

  function draw(panel) {
    const roles = [...new Set(pw.data.values.map((r) => pw.text(r[3])))];
    const count = pw.el("span", { class: "quiet", "aria-live": "polite" }),
      body = pw.el("tbody");
    const change = (changes) => {
      Object.assign(state, { most: PAGE }, changes);
      fill();
    };
    const more = pw.el("button", { class: "link", onclick: () => change({ most: state.most + 5 * PAGE }) });
    const placeholder = "find a value, type or axis";
    const oninput = (e) => change({ found: e.target.value.toLowerCase() });
    const search = pw.el("input", { type: "search", placeholder, "aria-label": placeholder, oninput });
    const options = [pw.el("option", { value: "" }, "all"), ...roles.map((r) => pw.el("option", {}, r))];
    const select = pw.el("select", { onchange: (e) => change({ only: e.target.value }) }, ...options);
    const head = pw.el("tr", {}, ...COLUMNS.map((h) => pw.el("th", { scope: "col" }, h)));
    const table = pw.el("table", {}, pw.el("thead", {}, head), body);
    panel.append(
      pw.el("div", { class: "controls" }, search, pw.el("label", {}, "show", select), count),
      pw.el("div", { class: "scroll" }, table, more),
    );
    view = { body, count, more };
    fill();
    return null;
  }

  function isFound([stream, name, kind, role, owner]) {
    if (state.only && pw.text(role) !== state.only) return false;
    if (!state.found) return true;
    const [type, , at, , , sharding] = pw.data.kinds[stream][kind],
      mesh = pw.data.meshes[at];
    const words = [...[name, type, sharding, owner].map(pw.text), mesh.slice, mesh.island];
    return words.join(" ").toLowerCase().includes(state.found);
  }

  function fill() {
    const found = d3.range(pw.data.values.length).filter((number) => isFound(pw.data.values[number]));
    const shown = found.slice(0, state.most),
      rest = found.length - shown.length;
    view.count.textContent = pw.count(found.length, "value");
    view.more.textContent = rest ? `show more of the other ${rest.toLocaleString("en")}` : "";
    view.more.hidden = !rest;
    view.body.replaceChildren(...shown.map((number) => rowOf(read(number))));
  }

  function rowOf(v) {
    const onkeydown = (e) => {
      if (e.key !== "Enter" && e.key !== " ") return;
      e.preventDefault();
      choose(v, row);
    };
    const cells = [v.name, v.type, v.sharding, placeOf(v), pw.bytes(v.bytes), why(v)];
    const cell = (text, i) => pw.el("td", { class: i === 4 ? "number" : null }, text);
    const row = pw.el("tr", { tabindex: 0, onclick: () => choose(v, row), onkeydown }, ...cells.map(cell));
    return row;
  }

  const placeOf = (v) => `${v.mesh.slice} on ${v.mesh.island}: ${pw.axes(v.mesh)}`;

  function choose(v, row) {
    view.body.querySelectorAll("tr").forEach((r) => r.setAttribute("aria-current", String(r === row)));
    const made = v.maker,
      moved = isMove(made),
      before = moved ? read(made.value) : null;
    const life = `${v.birth < 0 ? "the start" : `step ${v.birth}`} to ${v.death < 0 ? "the end" : `step ${v.death}`}`;
    const place = (word, x) => `${word} ${x.mesh.slice} on ${x.mesh.island} ${x.sharding}`;
    const said = (word, x) => pw.el("p", { class: "quiet" }, place(word, x));
    const pictures = before ? [said("from", before), picture(before), said("to", v), picture(v)] : [picture(v)];
    const rows = [
      ["type", v.type],
      ["sharding", v.sharding],
      ["mesh", placeOf(v)],
      ["why", why(v)],
      ["moved", moved ? `${pw.bytes(made.bytes)} change device` : ""],
      ["line", made ? made.line : ""],
      ["memory of", v.owner],
      ["lives", life],
      ["first read by", v.user ? pw.said(v.user) : "nothing"],
    ];
    pw.show(v.name, rows, pictures);
    pw.say(`${v.name}, ${v.type}, ${v.sharding}`);
  }

  // The last two dimensions that are split, or that there are; -1: none.
  function drawnDimensions(v, parts) {
    const split = d3.range(parts.length).filter((i) => parts[i] > 1);
    const last = d3.range(v.shape.length).slice(-2);
    const drawn = split.length < 2 ? d3.sort(new Set([...split, ...last])) : split;
    return drawn.length > 1 ? drawn.slice(-2) : [-1, drawn[0] ?? -1];
  }

  // Which devices hold which part, row by row.
  function holdersOf(v, sizes, [down, right], columns, count) {
    const names = v.mesh.axes.map(([n]) => n),
      holders = Array.from({ length: count }, () => []);
    v.mesh.devices.forEach((device, position) => {
      const at = {};
      let left = position;
      for (const name of names.slice().reverse()) {
        at[name] = left % sizes.get(name);
        left = Math.floor(left / sizes.get(name));
      }
      const part = (dim) => (dim < 0 ? 0 : v.dims[dim].reduce((n, axis) => n * sizes.get(axis) + at[axis], 0));
      holders[part(down) * columns + part(right)].push(device);
    });
    return holders;
  }

  // A square a part, with the devices that hold it.
  function picture(v) {
    const sizes = new Map(v.mesh.axes),
      parts = v.dims.map((d) => d.reduce((n, axis) => n * sizes.get(axis), 1));
    const drawn = drawnDimensions(v, parts),
      [rows, columns] = drawn.map((dim) => (dim < 0 ? 1 : parts[dim]));
    const holders = holdersOf(v, sizes, drawn, columns, rows * columns);
    const wide = Math.min(270, Math.max(60, 44 * columns)),
      cell = wide / columns;
    const high = Math.max(20, Math.min(cell, 180 / rows));
    const said = holders
      .map((devices, i) => `part ${i} on ${devices.join(" ")}`)
      .slice(0, 16)
      .join("; ");
    const label = `parts and the devices that hold them: ${said}`;
    const svg = pw.svg("svg", { width: wide + 2, height: rows * high + 18, role: "img", "aria-label": label });
    holders.forEach((devices, i) => {
      svg.append(...square(devices, (i % columns) * cell + 1, Math.floor(i / columns) * high + 1, cell, high));
    });
    const [down, right] = drawn;
    const words = [down >= 0 ? `dimension ${down} down` : "", right >= 0 ? `dimension ${right} across` : ""];
    const below = { x: 1, y: rows * high + 14, "font-size": 11, fill: pw.css("--quiet") };
    svg.append(pw.svg("text", below, words.filter(Boolean).join(", ") || "one value"));
    return svg;
  }

  function square(devices, x, y, width, height) {
    const fill = pw.PALETTE[(devices[0] ?? 0) % pw.PALETTE.length];
    const box = pw.svg("rect", { x, y, width, height, fill, stroke: pw.css("--back") });
    const text = devices.length > 4 ? `${devices[0]}..${devices[devices.length - 1]}` : devices.join(" ");
    const place = {
      x: x + width / 2,
      y: y + height / 2 + 4,
      "text-anchor": "middle",
      "font-size": 11,
      fill: "#101418",
    };
    return width > 7 * text.length ? [box, pw.svg("text", place, text)] : [box];
  }
})();
