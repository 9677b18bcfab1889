"use strict";
// The frame of the page: tabs, theme, the panel of details, the tip at the pointer, and what is spoken.

pw.el = function (tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(key, value);
  }
  made.append(...children.flat().filter((c) => c !== null && c !== undefined && c !== ""));
  return made;
};

pw.svg = function (tag, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
};

pw.say = function (text) {
  document.getElementById("spoken").textContent = text;
};

pw.show = function (title, rows, more = []) {
  const told = rows.filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const list = told.flatMap(([name, value]) => [pw.el("dt", {}, name), pw.el("dd", {}, value)]);
  document.getElementById("chosen").replaceChildren(pw.el("h3", {}, title), pw.el("dl", {}, ...list), ...more);
};

pw.tip = function (text, event) {
  const tip = document.getElementById("tip");
  tip.hidden = !text;
  if (!text) return;
  tip.textContent = text;
  const { width, height } = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - width - 8))}px`;
  tip.style.top = `${Math.max(4, Math.min(event.clientY + 16, innerHeight - height - 8))}px`;
};

pw.addView = function (id, name, available, draw) {
  pw.views.push({ id, name, available, draw, drawn: false });
};

pw.openView = function (id) {
  for (const view of pw.views) {
    const open = view.id === id;
    view.tab.setAttribute("aria-selected", String(open));
    view.tab.tabIndex = open ? 0 : -1;
    view.panel.hidden = !open;
    if (!open) continue;
    if (view.drawn) pw.redraw(view);
    else {
      view.drawn = true;
      view.redraw = view.draw(view.panel) || null;
    }
  }
  pw.opened = id;
  pw.tip("");
};

pw.redraw = function (view) {
  if (view.drawn && view.redraw) view.redraw();
};

// Tabs as ARIA has them: one is in the order of the tab key, arrows go around, Home and End to the ends.
pw.makeTabs = function () {
  const bar = document.getElementById("tabs"),
    main = document.getElementById("views");
  main.replaceChildren();
  for (const view of pw.views) {
    const there = view.available(),
      why = there === true ? "" : there;
    view.tab = pw.el(
      "button",
      {
        role: "tab",
        id: `tab-${view.id}`,
        "aria-controls": `view-${view.id}`,
        "aria-selected": "false",
        tabindex: -1,
        disabled: why !== "",
        title: why,
        "aria-description": why,
        onclick: () => pw.openView(view.id),
      },
      view.name,
    );
    view.panel = pw.el("section", {
      role: "tabpanel",
      id: `view-${view.id}`,
      class: "view",
      "aria-labelledby": `tab-${view.id}`,
      hidden: true,
    });
    bar.append(view.tab);
    main.append(view.panel);
  }
  bar.addEventListener("keydown", pw.tabKeys);
};

pw.tabKeys = function (event) {
  const open = pw.views.filter((v) => !v.tab.disabled),
    here = open.findIndex((v) => v.id === pw.opened);
  const to = { ArrowRight: here + 1, ArrowLeft: here - 1, Home: 0, End: open.length - 1 }[event.key];
  if (to === undefined) return;
  event.preventDefault();
  const next = open[(to + open.length) % open.length];
  pw.openView(next.id);
  next.tab.focus();
};

pw.makeTheme = function () {
  const chosen = document.getElementById("theme");
  const redraw = () => pw.views.filter((view) => view.id === pw.opened).forEach(pw.redraw);
  chosen.addEventListener("change", () => {
    document.documentElement.dataset.theme = chosen.value;
    redraw();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  addEventListener("resize", redraw);
};

pw.facts = function () {
  const d = pw.data,
    facts = [],
    s = d.schedule,
    calls = pw.tasks.filter((t) => t.kind === "call").length;
  if (d.platform) facts.push(`for ${d.platform}`);
  if (d.islands) facts.push(pw.count(d.streams.length, "island"), pw.count(calls, "call"));
  if (s && s.microbatches) facts.push(`${s.name}: ${s.stages} stages, ${s.microbatches} microbatches`);
  facts.push(...(d.losses || []));
  if (d.runs.length) facts.push(pw.count(d.runs.length, "recorded run"));
  const said = [...facts, ...d.notes].join(" · ");
  Object.assign(document.getElementById("facts"), { textContent: said, title: said });
};
