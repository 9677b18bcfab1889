"use strict";
// Devices: the islands, their hosts and devices, and which slices are bound where.

(function () {
  const COLUMNS = ["slice", "bound to", "meshes", "why", "the next best"];

  const available = () => ((pw.data.islands || []).length ? true : "no plan: no devices are bound");
  pw.addView("devices", "Devices", available, draw);

  function draw(panel) {
    const d = pw.data,
      colors = new Map(d.slices.map((s, i) => [s.name, pw.PALETTE[i % pw.PALETTE.length]]));
    const head = pw.el("tr", {}, ...COLUMNS.map((h) => pw.el("th", { scope: "col" }, h)));
    const table = pw.el("table", {}, pw.el("thead", {}, head), pw.el("tbody", {}, d.slices.map(rowOf)));
    const note = pw.el("p", { class: "note" }, `${d.dcn_gbps} GB/s between islands. ${d.placement || ""}`);
    const cards = pw.el(
      "div",
      { class: "cards" },
      d.islands.map((island) => card(island, colors)),
    );
    panel.append(pw.el("div", { class: "scroll" }, note, cards, table));
    return null;
  }

  function rowOf(slice) {
    const meshes = pw.data.meshes.filter((m) => m.slice === slice.name).map(pw.axes);
    const place = `${slice.island}: ${slice.devices.join(", ")}`;
    const cells = [slice.name, place, [...new Set(meshes)].join("; "), slice.reason, slice.runner_up];
    return pw.el("tr", {}, ...cells.map((x) => pw.el("td", {}, x || "")));
  }

  function card(island, colors) {
    const here = pw.data.slices.filter((s) => s.island === island.name);
    const host = (h) => {
      const numbers = d3.range(h * island.devices, (h + 1) * island.devices);
      const name = pw.el("b", {}, island.hosts > 1 ? `host ${h}` : "host");
      return pw.el("div", { class: "host" }, name, ...numbers.map((n) => device(island, n, here, colors)));
    };
    const swatch = pw.el("i", { class: "swatch", style: `background:${pw.islandColor(island.name)}` });
    const title = pw.el("h2", {}, swatch, island.name);
    const facts = pw.el("div", { class: "quiet" }, factsOf(island).join(", "));
    return pw.el("section", { class: "card" }, title, facts, d3.range(island.hosts).map(host));
  }

  function factsOf(island) {
    const hosts = island.hosts > 1 ? `${pw.count(island.hosts, "host")} of ` : "";
    return [
      `${hosts}${pw.count(island.devices, "device")}`,
      island.kind === "any" ? "" : island.kind,
      island.memory ? `${pw.bytes(island.memory)} a device` : "memory not stated",
      island.flops ? `${island.flops.toExponential(1)} flop/s` : "",
      `${island.ici_gbps} GB/s inside`,
    ].filter(Boolean);
  }

  function device(island, number, slices, colors) {
    const bound = slices.filter((s) => s.devices.includes(number)).map((s) => s.name);
    const memory = (pw.data.memory || []).find((m) => m.island === island.name && m.devices.includes(number));
    const said = bound.length ? bound.join(", ") : "free";
    const rows = [
      ["slices", said],
      ["peak", memory ? pw.bytes(memory.peak) : "nothing is planned on it"],
      ["limit", island.memory ? pw.bytes(island.memory) : "not stated"],
    ];
    const attributes = {
      class: bound.length ? "device" : "device free",
      style: bound.length ? `background:${colors.get(bound[0])}` : "",
      title: `device ${number}: ${said}`,
      onclick: () => {
        pw.show(`${island.name} device ${number}`, rows);
        pw.say(`${island.name} device ${number}, ${rows.map((row) => row.join(" ")).join(", ")}`);
      },
    };
    return pw.el("button", attributes, pw.el("div", {}, number), pw.el("div", {}, said));
  }
})();
