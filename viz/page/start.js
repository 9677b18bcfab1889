"use strict";
// Reads the data, and opens the first view that has something to show.

(async function () {
  try {
    await pw.load();
    pw.makeTabs();
    pw.makeTheme();
    pw.facts();
    const first = pw.views.find((v) => v.id === "schedule" && !v.tab.disabled) || pw.views.find((v) => !v.tab.disabled);
    pw.openView(first.id);
    document.documentElement.dataset.ready = "yes";
  } catch (error) {
    document.getElementById("views").textContent = `This page cannot be shown: ${error}`;
    throw error;
  }
})();
