"use strict";
// The groups of a dataflow, a tree: slices, in each the calls of a stage's forwards or of one name, in those the calls.

(function () {
  const MOST = 120,
    MOST_OPENED = 300;

  pw.groupsOf = function (graph) {
    const tree = treeOf(graph),
      open = new Set(),
      closed = new Set(),
      limits = new Map();
    const kidsOf = (node) => node.kids.map((id) => tree.get(id));
    const groups = kidsOf(tree.get("all")).reduce((n, top) => n + top.kids.length, 0);
    const opensItself = (node) => node.top && groups <= MOST && !closed.has(node.id);
    const isOpen = (node) => node.id === "all" || open.has(node.id) || opensItself(node);
    const rests = new Map();

    // What stands for the members of a group that are too many to be drawn.
    function restOf(node, limit) {
      const rest = kidsOf(node).slice(limit),
        id = `more ${node.id}`;
      const { slice, island } = node;
      const made = { id, label: `${rest.length} more`, parent: node.id, kids: rest.map((n) => n.id), slice, island };
      made.boxes = rest.flatMap((n) => n.boxes);
      rests.set(id, made);
      return made;
    }

    function visible() {
      const shown = [];
      rests.clear();
      const add = (node) => {
        if (node.kids.length === 1 && !node.box) return add(tree.get(node.kids[0]));
        if (node.box || !isOpen(node)) return shown.push(node);
        const limit = limits.get(node.id) || MOST_OPENED;
        for (const kid of kidsOf(node).slice(0, limit)) add(kid);
        return node.kids.length > limit ? shown.push(restOf(node, limit)) : 0;
      };
      add(tree.get("all"));
      return shown;
    }

    const get = (id) => tree.get(id) || rests.get(id);

    function isInside(id, group) {
      for (let node = get(id); node; node = node.parent ? get(node.parent) : null) if (node.id === group) return true;
      return false;
    }

    function toggle(id) {
      const node = get(id);
      if (rests.has(id)) limits.set(node.parent, (limits.get(node.parent) || MOST_OPENED) + MOST_OPENED);
      else if (!node.box && !isOpen(node)) {
        open.add(id);
        closed.delete(id);
      } else close(node);
    }

    // Closes the innermost group around a box that is open, and has more than it alone.
    function close(node) {
      let group = node;
      const can = (n) => isOpen(n) && n.kids.length > 1;
      while (group.id !== "all" && !can(group)) group = tree.get(group.parent);
      open.delete(group.id);
      closed.add(group.id);
    }

    return { get, isInside, toggle, visible };
  };

  function treeOf(graph) {
    const nodes = new Map();
    const node = (id, parent, label, slice, island) => {
      let found = nodes.get(id);
      if (!found) {
        found = { id, parent, label, slice, island, kids: [], boxes: [], top: parent === "all" };
        nodes.set(id, found);
        if (parent) nodes.get(parent).kids.push(id);
      }
      return found;
    };
    node("all", null, "all", "", "");
    for (const box of graph.boxes) {
      const { slice, island } = box,
        place = slice || (box.kind === "branch" ? "on data" : "not placed");
      const top = node(JSON.stringify(["slice", place]), "all", place, slice, island),
        label = groupLabel(box);
      const group = node(JSON.stringify(["group", place, label]), top.id, label, slice, island);
      const name = box.parts.length ? pw.shortAction(box.parts, true) : box.name;
      const leaf = node(JSON.stringify(["box", box.number]), group.id, name, slice, island);
      leaf.box = box;
      for (const n of [top, group, leaf]) n.boxes.push(box);
    }
    return nodes;
  }

  function groupLabel(box) {
    if (!box.parts.length) return box.name;
    const distinct = (what) => [...new Set(box.parts.map((p) => p[what]))].join("+");
    const kinds = distinct("kind");
    return `stage ${distinct("stage")} ${kinds.length > 1 ? kinds : pw.KINDS[kinds].word}`;
  }
})();
