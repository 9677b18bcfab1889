"use strict";
// The dataflow: calls in groups (a stage's forwards, a slice) until opened; an arrow is what moves between them.
// dataflow_groups.js says what is in which group, dataflow_drawing.js how it looks.

(function () {
  const MOST_VALUES = 6;
  const state = { graph: 0, found: "" };
  let cy = null,
    view = null,
    groups = null;

  const available = () => (pw.data.graphs.length ? true : "a trace has no dataflow: draw it with its plan");
  pw.addView("dataflow", "Dataflow", available, draw);

  function draw(panel) {
    const list = pw.el("ul", { class: "list", "aria-label": "calls, in groups" });
    const drawing = pw.el("div", { class: "drawing", id: "graph", "aria-hidden": "true" });
    const said = pw.el("output", { for: "phase" }),
      count = pw.el("span", { class: "quiet", id: "graph-count" });
    state.graph = pw.data.graphs.length - 1;
    const slider = phases();
    const note =
      "A box is a call or a group of them, of the color of its island; choose one to see it, press it twice to open it.";
    panel.append(
      pw.el("div", { class: "controls" }, pw.el("label", {}, "phase", slider), said, ...buttons(), search(), count),
      pw.el("p", { class: "note" }, note),
      pw.el("div", { class: "split" }, list, drawing),
    );
    view = { said, list, drawing, slider, count };
    cy = cytoscape({ container: drawing, minZoom: 0.05, maxZoom: 3, boxSelectionEnabled: false });
    cy.on("tap", "node", (e) => choose(e.target.id()));
    cy.on("dbltap", "node", (e) => toggle(e.target.id()));
    cy.on("tap", "edge", (e) => chooseArrow(e.target.data()));
    cy.on("mouseover", "edge", (e) => pw.tip(e.target.data("said"), e.originalEvent));
    cy.on("mouseover", "node", (e) => pw.tip(e.target.data("tip"), e.originalEvent));
    cy.on("mouseout", () => pw.tip(""));
    show(state.graph);
    return () => {
      cy.resize();
      refresh();
    };
  }

  function phases() {
    const max = pw.data.graphs.length - 1,
      value = state.graph;
    const oninput = (e) => show(+e.target.value);
    return pw.el("input", { type: "range", id: "phase", min: 0, max, value, step: 1, "aria-label": "phase", oninput });
  }

  function buttons() {
    return [
      pw.el("button", { onclick: () => show(state.graph) }, "close all"),
      pw.el("button", { onclick: () => cy.fit(undefined, 30) }, "fit"),
    ];
  }

  function search() {
    const oninput = (e) => {
      state.found = e.target.value.toLowerCase();
      mark();
    };
    const placeholder = "find a call, slice or line";
    return pw.el("input", { type: "search", placeholder, "aria-label": placeholder, oninput });
  }

  function show(number) {
    state.graph = number;
    groups = pw.groupsOf(pw.graph(number));
    refresh();
  }

  function refresh() {
    const graph = pw.graph(state.graph),
      shown = groups.visible(),
      arrows = arrowsOf(graph, shown);
    view.said.textContent = `${graph.phase} (${state.graph + 1} of ${pw.data.graphs.length})`;
    view.slider.setAttribute("aria-valuetext", graph.phase);
    view.count.textContent = `${pw.count(graph.boxes.length, "call")}, drawn as ${boxes(shown.length)}`;
    pw.drawGraph(cy, view.drawing, graph, shown, arrows);
    outline(shown);
    mark();
  }

  const boxes = (n) => `${n.toLocaleString("en")} ${n === 1 ? "box" : "boxes"}`;

  // The values that go from one box to another; what several of them share was moved once.
  function arrowsOf(graph, shown) {
    const of = new Map(),
      arrows = new Map();
    for (const node of shown) for (const box of node.boxes) of.set(box.number, node.id);
    for (const a of graph.arrows) {
      const source = of.get(a.source),
        target = of.get(a.target);
      if (source === undefined || target === undefined || source === target) continue;
      const id = JSON.stringify([source, target, a.route === "dcn"]);
      const sum = arrows.get(id) || {
        id,
        source,
        target,
        bytes: 0,
        count: 0,
        moves: new Set(),
        routes: new Set(),
        reasons: new Set(),
        values: new Set(),
      };
      sum.bytes += a.bytes;
      sum.count += a.count;
      sum.routes.add(a.route);
      sum.reasons.add(a.reason);
      for (const move of a.moves) sum.moves.add(move);
      if (sum.values.size < MOST_VALUES) sum.values.add(a.value);
      arrows.set(id, sum);
    }
    for (const a of arrows.values()) {
      a.moved = [...a.moves].reduce((n, move) => n + graph.moves[move], 0);
      a.said = saidArrow(a);
    }
    return [...arrows.values()];
  }

  function saidArrow(a) {
    const how = [...a.routes].map((r) => pw.ROUTES[r] || r).join(", ");
    return `${pw.count(a.count, "value")}, ${pw.bytes(a.bytes)}: ${how}${a.moved ? `, ${pw.bytes(a.moved)} change device` : ""}`;
  }

  // The same boxes as a list of buttons: for the keyboard, and for those who hear the page.
  function outline(shown) {
    const focused = view.list.contains(document.activeElement) ? document.activeElement.dataset.id : null;
    view.list.replaceChildren(...shown.map((n) => pw.el("li", {}, outlined(n))));
    if (focused !== null) focusNear(focused, shown);
  }

  function outlined(n) {
    const onkeydown = (e) => {
      if (e.key !== "ArrowRight" && e.key !== "ArrowLeft") return;
      e.preventDefault();
      toggle(n.id);
    };
    const swatch = pw.el("i", { class: "swatch", style: `background:${pw.islandColor(n.island || n.slice)}` });
    return pw.el(
      "button",
      {
        "data-id": n.id,
        onclick: () => choose(n.id),
        ondblclick: () => toggle(n.id),
        onkeydown,
        title: n.kids.length ? "press twice, or an arrow key, to open" : n.boxes[0].line,
        "aria-expanded": n.kids.length ? "false" : null,
      },
      swatch,
      pw.labelOfBox(n).replace("\n", ", "),
    );
  }

  // The focus stays where it was; of a box that was opened at what was in it, of one that was closed at its group.
  function focusNear(id, shown) {
    const inside = (n) => n.id === id || groups.isInside(n.id, id) || groups.isInside(id, n.id);
    const near = shown.find((n) => n.id === id) || shown.find(inside) || shown[0];
    const button = near && [...view.list.querySelectorAll("button")].find((b) => b.dataset.id === near.id);
    if (button) button.focus();
  }

  function mark() {
    const text = (b) => `${b.name} ${b.slice} ${b.island} ${b.line} ${pw.shortAction(b.parts, true)}`.toLowerCase();
    cy.nodes().forEach((n) => {
      const node = groups.get(n.id());
      const hit = state.found && node && node.boxes.some((b) => text(b).includes(state.found));
      n.toggleClass("found", Boolean(hit));
    });
  }

  function toggle(id) {
    const node = groups.get(id);
    if (!node) return;
    groups.toggle(id);
    refresh();
    pw.say(`${node.label}: ${boxes(cy.nodes().length)}`);
  }

  function choose(id) {
    const node = groups.get(id);
    cy.$(":selected").unselect();
    cy.getElementById(id).select();
    view.list.querySelectorAll("button").forEach((b) => b.setAttribute("aria-current", String(b.dataset.id === id)));
    if (!node) return;
    const lines = [...new Set(node.boxes.map((b) => b.line))];
    pw.show(node.label, [...rowsOf(node, lines), ...neighbors(id, "takes"), ...neighbors(id, "gives")]);
    pw.say(`${pw.labelOfBox(node)}, ${lines[0]}`);
  }

  function rowsOf(node, lines) {
    const task = node.box && node.box.task >= 0 ? pw.tasks[node.box.task] : null;
    const rows = [
      ["calls", node.boxes.length > 1 ? node.boxes.length : ""],
      ["computation", [...new Set(node.boxes.map((b) => b.name))].slice(0, 8).join(", ")],
      ["slice", node.slice],
      ["island", node.island],
      ["lines", lines.slice(0, 6).join("\n")],
      ["makes", pw.bytes(node.boxes.reduce((n, b) => n + b.bytes, 0))],
    ];
    return task ? [...rows, ["step", task.step], ["merged of", task.merged]] : rows;
  }

  function neighbors(id, word) {
    const takes = word === "takes",
      node = cy.getElementById(id);
    return (takes ? node.incomers("edge") : node.outgoers("edge")).map((edge) => {
      const other = cy.getElementById(edge.data(takes ? "source" : "target")).data("label") || "";
      const values = [...edge.data("values")].slice(0, 3).join(", ");
      return [word, `${takes ? "from" : "to"} ${other.replace("\n", ", ")}: ${edge.data("said")}; ${values}`];
    });
  }

  function chooseArrow(a) {
    const reasons = [...a.reasons].filter(Boolean).slice(0, 6);
    pw.show("transferred values", [
      ["what", a.said],
      ["values", [...a.values].join("\n")],
      ["why", reasons.join("\n")],
    ]);
  }

  // For tests.
  pw.graphState = () => ({
    boxes: cy.nodes().length,
    arrows: cy.edges().length,
    phase: pw.data.graphs[state.graph].phase,
    moved: cy.edges().map((e) => e.data("moved")),
  });
  pw.toggleBox = toggle;
})();
