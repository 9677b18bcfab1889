"use strict";
// Draws the dataflow: a pipeline in columns, all else in layers.

(function () {
  const READABLE = 0.6,
    MOST_ZOOM = 1.4,
    BETWEEN = 26;
  const KINDS = ["F", "B", "I", "W", ""];

  // A box says what it is, and below where it is.
  pw.labelOfBox = function (n) {
    const many = n.boxes.length > 1 ? ` ×${n.boxes.length}` : "";
    return `${n.label}${many}\n${[n.slice, n.island].filter(Boolean).join(" on ")}`.trim();
  };

  pw.drawGraph = function (cy, drawing, graph, shown, arrows) {
    cy.elements().remove();
    cy.style(styles());
    cy.add([...shown.map(nodeOf), ...arrows.map(edgeOf)]);
    if (graph.boxes.some((box) => box.parts.length)) inColumns(cy, drawing, shown);
    else cy.layout(inLayers(shown.length)).run();
    cy.fit(undefined, 24);
    if (cy.zoom() > MOST_ZOOM) {
      cy.zoom(MOST_ZOOM);
      cy.center();
    }
  };

  function nodeOf(n) {
    const label = pw.labelOfBox(n),
      color = pw.islandColor(n.island || n.slice);
    const many = n.boxes.length > 1 ? "yes" : "no",
      tip = `${label}\n${n.boxes[0].line}`;
    return { data: { id: n.id, label, color, many, tip, ...sizeOf(label) } };
  }

  function edgeOf(a) {
    const far = a.routes.has("dcn") ? "dcn" : [...a.routes].some(Boolean) ? "near" : "stays";
    const width = 1 + Math.min(4, Math.log10(1 + a.bytes) / 2);
    return { data: { ...a, label: a.moved ? pw.bytes(a.moved) : "", far, width } };
  }

  const inLayers = (boxes) => ({
    name: "dagre",
    rankDir: "LR",
    nodeSep: 14,
    rankSep: 42,
    edgeSep: 6,
    animate: false,
    ranker: boxes > 150 ? "longest-path" : "network-simplex",
  });

  // A pipeline: a column a slice, in the order of its stages, forwards over backwards over all else. Many columns go
  // on in the next row, as text does, so that they can be read.
  function inColumns(cy, drawing, shown) {
    const sizes = new Map(shown.map((n) => [n.id, sizeOf(pw.labelOfBox(n))]));
    const columns = [...d3.group(shown, (n) => n.slice).values()].sort((a, b) => d3.ascending(stage(a), stage(b)));
    const tall = (nodes) => nodes.reduce((sum, n) => sum + sizes.get(n.id).high + BETWEEN, 0);
    const wide = d3.max([...sizes.values()], (size) => size.wide) + 46,
      high = d3.max(columns, tall) + 30;
    const { clientWidth, clientHeight } = drawing,
      rows = (k) => Math.ceil(columns.length / k);
    const zoom = (k) => Math.min(clientWidth / (k * wide), clientHeight / (rows(k) * high), 1.2);
    const most = Math.max(...d3.range(1, columns.length + 1).map(zoom));
    const across = d3.range(columns.length, 0, -1).find((k) => zoom(k) >= Math.min(most, READABLE));
    columns.forEach((nodes, at) => {
      let y = Math.floor(at / across) * high;
      for (const n of d3.sort(nodes, kindRank, microbatch, (a) => a.boxes[0].number)) {
        const size = sizes.get(n.id);
        cy.getElementById(n.id).position({ x: (at % across) * wide, y: y + size.high / 2 });
        y += size.high + BETWEEN;
      }
    });
  }

  const stage = (nodes) => d3.min(nodes, (n) => d3.min(n.boxes, (b) => d3.min(b.parts, (p) => p.stage))) ?? Infinity;
  const kindRank = (n) => KINDS.indexOf(pw.kindOf(n.boxes[0].parts));
  const microbatch = (n) => (n.boxes.length === 1 && n.boxes[0].parts.length ? n.boxes[0].parts[0].microbatch : 0);

  const pen = document.createElement("canvas").getContext("2d");
  function sizeOf(label) {
    pen.font = "11px system-ui, sans-serif";
    const widths = label.split("\n").map((line) => pen.measureText(line).width);
    const lines = widths.reduce((n, width) => n + Math.max(1, Math.ceil(width / 190)), 0);
    return { wide: Math.min(204, 16 + Math.max(...widths)), high: 10 + 14 * lines };
  }

  function styles() {
    const font = { "font-family": "system-ui, sans-serif" };
    const text = { ...font, "font-size": 11, "text-wrap": "wrap", "text-max-width": "190px", "text-valign": "center" };
    const size = { width: "data(wide)", height: "data(high)", shape: "round-rectangle", label: "data(label)" };
    const line = { "line-color": pw.css("--other"), "target-arrow-color": pw.css("--other"), width: "data(width)" };
    const arrow = {
      "curve-style": "bezier",
      "target-arrow-shape": "triangle",
      "arrow-scale": 0.8,
      label: "data(label)",
    };
    const told = { "text-background-color": pw.css("--back"), "text-background-opacity": 0.8, "font-size": 9 };
    const border = (color, width) => ({ "border-color": pw.css(color), "border-width": width });
    const far = { "line-color": pw.css("--mark"), "target-arrow-color": pw.css("--mark") };
    const box = { ...text, ...size, ...border("--quiet", 1), color: "#101418", "background-color": "data(color)" };
    return [
      { selector: "node", style: box },
      { selector: 'node[many="yes"]', style: { "border-width": 4, "border-style": "double" } },
      { selector: "node.found", style: border("--mark", 4) },
      { selector: "node:selected", style: border("--text", 3) },
      { selector: "edge", style: { ...line, ...arrow, ...told, color: pw.css("--text") } },
      { selector: 'edge[far="dcn"]', style: far },
      { selector: 'edge[far="near"]', style: { "line-style": "dashed" } },
    ];
  }
})();
