"use strict";
// The data of the page, as viz/render/page_data.py wrote it: tables of rows over strings.

const pw = { views: [], data: null };

pw.load = async function () {
  const packed = atob(document.getElementById("data").textContent);
  const bytes = Uint8Array.from(packed, (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const data = JSON.parse(await new Response(stream).text());
  pw.data = data;
  pw.text = (n) => data.strings[n];
  pw.tasks = data.tasks ? pw.rows(data.tasks).map(pw.readTask) : [];
  if (data.values) data.values = pw.rows(data.values);
  for (const lane of data.lanes || []) lane.tasks = pw.column(lane.tasks);
  for (const memory of data.memory || []) memory.changes = pw.rows(memory.changes);
  for (const times of Object.values(data.times || {})) {
    for (const what of ["starts", "ends"]) times[what] = pw.column(times[what]).map((n) => n * times.tick);
    times.causes = pw.column(times.causes).map((distance, number) => (distance ? number - distance : -1));
  }
  for (const row of data.runs.flatMap((run) => run.rows)) {
    for (const what of ["cells", "planned"]) row[what] = row[what].map(pw.readCell);
  }
};

// What viz/render/columns.py packed: a column of whole numbers is a list of differences.
pw.column = function (packed) {
  let sum = 0;
  return packed.plain || packed.steps.map((step) => (sum += step));
};

pw.rows = function (packed) {
  const found = packed.columns.map(pw.column);
  const rows = new Array(packed.rows);
  for (let i = 0; i < packed.rows; i += 1) rows[i] = found.map((column) => column[i]);
  return rows;
};

// The dataflow of a phase is read when it is first looked at.
pw.graph = function (number) {
  const graph = pw.data.graphs[number];
  if (!graph.read) {
    graph.boxes = pw.rows(graph.boxes).map(pw.readBox);
    graph.arrows = pw.rows(graph.arrows).map(pw.readArrow);
    graph.read = true;
  }
  return graph;
};

pw.readTask = function (row, number) {
  const s = pw.text;
  return {
    number,
    kind: s(row[0]),
    name: s(row[1]),
    step: row[2],
    stream: row[3],
    parts: pw.readParts(s(row[4])),
    bytes: row[5],
    line: s(row[6]),
    mesh: row[7],
    temporaries: row[8],
    waits: row[9].map((distance) => number - distance),
    reason: s(row[10]),
    chosen: s(row[11]),
    merged: s(row[12]),
    source: row[13],
    from: row[14],
    devices: row[15],
    value: row[16],
  };
};

pw.readBox = function (row, number) {
  const s = pw.text;
  return {
    number,
    kind: s(row[0]),
    name: s(row[1]),
    slice: s(row[2]),
    island: s(row[3]),
    parts: pw.readParts(s(row[4])),
    bytes: row[5],
    line: s(row[6]),
    task: row[7],
  };
};

pw.readArrow = function (row) {
  const s = pw.text;
  return {
    source: row[0],
    target: row[1],
    value: s(row[2]),
    bytes: row[3],
    route: s(row[4]),
    reason: s(row[5]),
    count: row[6],
    moves: row[7],
  };
};

pw.readCell = function (row) {
  const s = pw.text;
  return { step: row[0], name: s(row[1]), parts: pw.readParts(s(row[2])), line: s(row[3]), begin: row[4], end: row[5] };
};

pw._parts = new Map();
pw.readParts = function (text) {
  let found = pw._parts.get(text);
  if (!found) {
    const matches = text.split(" ").map((part) => /^(\d+)([FBIW])(\d+)$/.exec(part));
    found = matches.filter(Boolean).map((m) => ({ stage: +m[1], kind: m[2], microbatch: +m[3] }));
    pw._parts.set(text, found);
  }
  return found;
};
