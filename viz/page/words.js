"use strict";
// How numbers and things are said in words.

pw.KINDS = {
  F: { word: "forward", color: "--forward" },
  B: { word: "backward", color: "--backward" },
  I: { word: "backward of the input", color: "--input" },
  W: { word: "backward of the weights", color: "--weight" },
  "": { word: "outside the pipeline", color: "--other" },
};
pw.ROUTES = {
  "": "stays there",
  local: "another sharding on its devices",
  ici: "inside the island",
  dcn: "between islands",
  moves: "moves",
};
pw.PALETTE = [
  "#5b9be0",
  "#e59a4a",
  "#5db878",
  "#b88ad8",
  "#d9776f",
  "#4fb6b2",
  "#c9a63c",
  "#8f9bdb",
  "#a0785a",
  "#7cae3f",
  "#d184b0",
  "#7f8a96",
];

pw.bytes = function (n) {
  if (n === null || n === undefined) return "not stated";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0,
    value = n;
  while (Math.abs(value) >= 1024 && at < units.length - 1) {
    value /= 1024;
    at += 1;
  }
  return `${at ? value.toFixed(value < 10 ? 2 : 1) : value} ${units[at]}`;
};

pw.TIMES = [
  ["s", 1e9],
  ["ms", 1e6],
  ["us", 1e3],
  ["ns", 1],
];

// Three digits, and all of those before the point.
pw.time = function (value, unit) {
  if (unit !== "ns") return `${+value.toFixed(2)} unit${value === 1 ? "" : "s"}`;
  if (!value) return "0";
  const [word, factor] = pw.TIMES.find(([, f]) => Math.abs(value) >= 0.9995 * f) || ["ns", 1];
  const number = value / factor;
  return `${Math.abs(number) >= 100 ? Math.round(number).toLocaleString("en") : number.toPrecision(3)} ${word}`;
};

pw.percent = (x) => `${(100 * x).toFixed(1)} %`;
pw.count = (n, word) => `${n.toLocaleString("en")} ${word}${n === 1 ? "" : "s"}`;

pw.kindOf = function (parts) {
  if (!parts.length) return "";
  return parts[parts.length - 1].kind; // of calls that were merged the last: a backward with what it needs first
};

pw.shortAction = function (parts, withStage) {
  const short = parts.slice(0, 3).map((p) => `${withStage ? p.stage : ""}${p.kind}${p.microbatch}`);
  return short.join("+") + (parts.length > 3 ? "+" : "");
};

pw.axes = (mesh) => mesh.axes.map(([name, size]) => `${name}=${size}`).join(", ") || "one device";

pw.saidParts = function (parts) {
  return parts.map((p) => `stage ${p.stage} ${pw.KINDS[p.kind].word}, microbatch ${p.microbatch}`).join("; ");
};

pw.said = function (task) {
  if (task.kind === "transfer") return `transfer of ${task.name}`;
  if (task.kind === "reshard") return `reshard of ${task.name}`;
  return task.parts.length ? `${pw.saidParts(task.parts)} (${task.name})` : task.name;
};

// The color of an island; of a slice where no island is known: of the slices of a program that is not compiled.
pw._colors = null;
pw.islandColor = function (name) {
  if (!pw._colors) {
    const { islands, graphs } = pw.data;
    const places = () => pw.graph(graphs.length - 1).boxes.map((b) => b.island || b.slice);
    const names = islands ? islands.map((i) => i.name) : [...new Set(places())].filter(Boolean);
    pw._colors = new Map(names.map((n, i) => [n, pw.PALETTE[i % pw.PALETTE.length]]));
  }
  return pw._colors.get(name) || pw.css("--other");
};

pw.css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
