"use strict";
// Draws the schedule: its cells on a canvas as far as they are in sight, its transfers, its axis, its legend.

(function () {
  const MOST_ARROWS = 400,
    MOST_ROWS_OF_ARROWS = 400;
  const s = pw.schedule;
  let patterns = {};

  // Draws again in another theme or size.
  s.redraw = function () {
    patterns = {};
    legend();
    fit();
    s.paint();
  };

  function fit() {
    const { view } = s,
      scale = devicePixelRatio || 1;
    const width = Math.max(100, view.scroll.clientWidth - s.NAMES - s.SUMS);
    const height = Math.max(60, view.scroll.clientHeight);
    Object.assign(view.canvas, { width: Math.round(width * scale), height: Math.round(height * scale) });
    Object.assign(view.canvas.style, { width: `${width}px`, height: `${height}px` });
    Object.assign(view, { width, shown: height, scale });
    view.zooming
      .extent([
        [0, 0],
        [width, height],
      ])
      .translateExtent([
        [0, 0],
        [width, height],
      ]);
  }

  // Where times of a kind of rows are on the canvas.
  s.across = (kind) => s.zoom.rescaleX(d3.scaleLinear([0, s.view.lengths[kind]], [0, s.view.width]));

  s.seen = function (kind) {
    const [low, high] = s.across(kind).domain();
    return { low, high, rate: s.view.width / (high - low) };
  };

  s.firstAfter = (cells, low) => Math.max(0, d3.bisector((c) => c.end).left(cells, low));

  s.paint = function () {
    const { view, rows, state } = s;
    if (!view) return;
    const ctx = view.canvas.getContext("2d"),
      from = view.scroll.scrollTop;
    const spans = { planned: s.seen("planned"), actual: s.seen("actual") };
    ctx.setTransform(view.scale, 0, 0, view.scale, 0, 0);
    ctx.clearRect(0, 0, view.width, view.shown);
    const stages = new Set(pw.tasks.flatMap((t) => t.parts.map((p) => p.stage)));
    const many = pw.data.schedule && pw.data.schedule.stages > pw.data.schedule.slices;
    for (const r of rows) paintRow(ctx, r, r.top - from, spans[r.kind], stages.size > 1 && many);
    const can = state.transfers && state.planned && pw.data.times && rows.length <= MOST_ROWS_OF_ARROWS;
    if (can) arrows(ctx, spans.planned.low, spans.planned.rate, from);
    mark(ctx, spans, from);
    paintAxis();
  };

  function paintAxis() {
    const { view, rows } = s,
      said = (t) => pw.time(t, view.unit);
    const ticks = Math.max(2, view.width / 110),
      kind = rows.length ? rows[0].kind : "planned";
    const axis = d3.axisTop(s.across(kind)).ticks(ticks).tickFormat(said);
    const place = `translate(${s.NAMES},${s.AXIS - 2})`;
    d3.select(view.axis).selectAll("g").data([0]).join("g").attr("transform", place).call(axis);
  }

  // Cells of less than a pixel are drawn as one.
  function paintRow(ctx, r, top, { low, high, rate }, stage) {
    if (top > s.view.shown || top + s.tall < 0) return;
    ctx.fillStyle = pw.css("--gap");
    ctx.fillRect(0, top, s.view.width, s.tall);
    const { cells } = r,
      at = (time) => (time - low) * rate;
    for (let i = s.firstAfter(cells, low); i < cells.length && cells[i].begin < high; i += 1) {
      const first = cells[i],
        left = at(first.begin);
      let right = at(first.end);
      while (right - left < 1 && i + 1 < cells.length && at(cells[i + 1].end) - left < 1) {
        i += 1;
        right = at(cells[i].end);
      }
      box(ctx, first, left, top, Math.max(right - left, 1), stage);
    }
  }

  // A backward is striped, the part for weights is dotted and lower: colors are not all that tells them apart.
  function box(ctx, cell, left, top, width, stage) {
    const kind = pw.kindOf(cell.parts),
      high = s.tall * ({ W: 0.68, "": 0.5 }[kind] || 1);
    const y = top + s.tall - high;
    ctx.fillStyle = pw.css(pw.KINDS[kind].color);
    ctx.fillRect(left, y, width, high);
    if (width > 3 && kind !== "F" && kind !== "") {
      ctx.fillStyle = pattern(ctx, kind);
      ctx.fillRect(left, y, width, high);
    }
    if (width > 4) {
      ctx.strokeStyle = pw.css("--back");
      ctx.lineWidth = 1;
      ctx.strokeRect(left + 0.5, y + 0.5, width - 1, high - 1);
    }
    if (width >= 18 && (kind !== "" || high >= 10))
      label(ctx, cell, left + width / 2, y + high / 2 + 0.5, width - 4, stage);
  }

  function label(ctx, cell, x, y, width, stage) {
    const words = cell.parts.length
      ? [pw.shortAction(cell.parts, stage), pw.shortAction(cell.parts.slice(0, 1), stage)]
      : [cell.name];
    ctx.font = "11px system-ui, sans-serif";
    const fits = words.find((w) => ctx.measureText(w).width < width);
    if (!fits) return;
    ctx.fillStyle = pw.css("--cell-text");
    ctx.textBaseline = "middle";
    ctx.fillText(fits, x - ctx.measureText(fits).width / 2, y);
  }

  const LINES = {
    I: [[0, 4, 8, 4]],
    B: [
      [-2, 10, 10, -2],
      [-2, 2, 2, -2],
      [6, 10, 10, 6],
    ],
  };

  function pattern(ctx, kind) {
    if (patterns[kind]) return patterns[kind];
    const tile = document.createElement("canvas");
    tile.width = tile.height = 8;
    const t = tile.getContext("2d");
    t.strokeStyle = t.fillStyle = "rgba(255,255,255,.38)";
    t.lineWidth = 2;
    t.beginPath();
    if (kind === "W") {
      t.arc(4, 4, 1.6, 0, 7);
      t.fill();
    } else {
      for (const [a, b, c, d] of LINES[kind]) {
        t.moveTo(a, b);
        t.lineTo(c, d);
      }
      t.stroke();
    }
    return (patterns[kind] = ctx.createPattern(tile, "repeat"));
  }

  function legend() {
    const there = new Set(s.rows.flatMap((r) => r.cells.map((c) => pw.kindOf(c.parts))));
    const shown = ["F", "B", "I", "W", ""].filter((k) => there.has(k));
    document.getElementById("kinds").replaceChildren(...shown.map(legendOf));
  }

  function legendOf(kind) {
    const swatch = pw.el("canvas", { width: 22, height: 13, "aria-hidden": "true" });
    const ctx = swatch.getContext("2d"),
      parts = kind ? [{ stage: 0, kind, microbatch: 0 }] : [];
    ctx.scale(1, 13 / s.tall);
    box(ctx, { parts, name: "" }, 0, 0, 17, false);
    return pw.el("span", {}, swatch, kind ? `${kind} ${pw.KINDS[kind].word}` : pw.KINDS[""].word);
  }

  // Transfers, from the end of what made a value to where it arrives: between the planned rows.
  function arrows(ctx, low, rate, from) {
    const lines = arrowsInSight(low, rate, from),
      told = document.getElementById("transfers-note");
    const many = lines.length > MOST_ARROWS;
    if (told)
      told.textContent = many ? `${lines.length.toLocaleString("en")} transfers are in view: zoom in to see them` : "";
    if (many) return;
    ctx.strokeStyle = pw.css("--mark");
    ctx.globalAlpha = 0.7;
    ctx.lineWidth = 1;
    ctx.beginPath();
    for (const [left, a, right, b] of lines) {
      ctx.moveTo(left, a);
      ctx.lineTo(right, b);
      ctx.lineTo(right - 4, b - Math.sign(b - a) * 4);
    }
    ctx.stroke();
    ctx.globalAlpha = 1;
  }

  function arrowsInSight(low, rate, from) {
    const times = pw.data.times[s.state.basis],
      place = new Map(),
      lines = [];
    for (const r of s.rows.filter((x) => x.kind === "planned")) {
      for (const n of pw.data.lanes[r.lane].tasks) if (!place.has(n)) place.set(n, r.top + s.tall / 2 - from);
    }
    for (const task of pw.tasks) {
      if (task.kind !== "transfer" || task.source < 0) continue;
      const a = place.get(task.source),
        b = place.get(pw.users().get(task.number));
      if (a === undefined || b === undefined) continue;
      const left = (times.ends[task.source] - low) * rate,
        right = (times.ends[task.number] - low) * rate;
      if (right < 0 || left > s.view.width || Math.max(a, b) < 0 || Math.min(a, b) > s.view.shown) continue;
      lines.push([left, a, right, b]);
    }
    return lines;
  }

  function mark(ctx, spans, from) {
    const { chosen } = s.state;
    const r = chosen && s.rows.find((x) => x.kind === chosen.kind && x.cells.includes(chosen.cell));
    if (!r) return;
    const { begin, end } = chosen.cell,
      { low, rate } = spans[r.kind];
    ctx.strokeStyle = pw.css("--text");
    ctx.lineWidth = 2;
    ctx.strokeRect((begin - low) * rate, r.top - from, Math.max(3, (end - begin) * rate), s.tall);
  }

  // For tests: where a cell is, and the gap before it.
  pw.cellAt = function (number, i) {
    const r = s.rows[number],
      x = s.across(r.kind),
      c = r.cells[i],
      area = s.view.canvas.getBoundingClientRect();
    const middle = (span) => area.left + x((span.begin + span.end) / 2);
    const y = area.top + r.top - s.view.scroll.scrollTop + s.tall - 5;
    return { x: middle(c), y, gap: c.gap ? middle(c.gap) : null };
  };
})();
