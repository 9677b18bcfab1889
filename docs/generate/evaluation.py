"""Writes docs/evaluation.md from the results in bench/paper/results, which `make bench` measures and simulates."""

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[2] / "bench/paper/results"
ORDER = (
    "figure5", "figure6", "figure7", "figure8", "figure9", "table1", "table2", "figure12", "compact", "recovery",
    "predictions",
)  # fmt: skip
"""The rows of the page, in the order of the paper."""
_INTRODUCTION = """# The paper's evaluation, repeated

Each section repeats an experiment of the paper (Barham et al., *Pathways: Asynchronous Distributed Dataflow for ML*,
MLSys 2022). *Measured* figures are from one machine, which each section names. Only ratios within a
section mean something on another. *Predicted* figures are simulated for machines of the paper
([simulation](simulation.md)), from compiled plans. No constant is fitted to the paper's results. `make bench` measures
and simulates everything again, and writes this page.
"""
_RAY = "https://docs.ray.io/en/latest/ray-core/compiled-graph/ray-compiled-graph.html"
_ORBAX = "https://orbax.readthedocs.io/en/latest/guides/checkpoint/v1/async_checkpointing.html"
_OTHERS = (
    ("overhead of a call to an actor", f"Ray: about 1 ms; compiled graphs: under 50 us ([documentation]({_RAY}))",
     "*Dispatch of small computations*: calls and chains, without compiled graphs"),
    ("time lost with a slice", "Gemini 2.5: tens of seconds, before 10 minutes or more (report, s. 2.3; TPU v5p)",
     "*Loss, elasticity and data*: processes of one machine"),
    ("two islands to one, weak scaling", "PaLM: 1.95 times, two pods of 3,072 TPU v4 (arXiv 2204.02311)",
     "*Data parallelism over two islands*: predicted"),
    ("training that waits for a snapshot", f"Orbax: asynchronous saves block 40 to 97 % less ([guide]({_ORBAX}))",
     "*Loss, elasticity and data*: the whole time of a save"),
)  # fmt: skip
_FIELD = "\n".join([
    "## Beside today's field",
    "",
    "What others state of their systems, on their hardware (where it is stated). None of it was measured by us.",
    "The machines differ, so compare orders of magnitude.",
    "",
    "| what | stated by others | here |",
    "|---|---|---|",
    *(f"| {what} | {theirs} | {ours} |" for what, theirs, ours in _OTHERS),
    "",
])  # fmt: skip


def evaluation() -> str:
    """Returns the page. Sections without a result are left out."""
    parts = [_INTRODUCTION]
    for name in ORDER:
        path = RESULTS / f"{name}.json"
        if path.exists():
            parts.append(_section(json.loads(path.read_text())))
    return "\n".join([*parts, _FIELD])


def _section(row: dict[str, Any]) -> str:
    lines = [f"## {row['title']}", "", f"**The paper:** {row['paper']}.", ""]
    for kind, title in (("measured", f"measured on {row['machine']}"), ("predicted", "predicted")):
        if row[kind]:
            lines += [f"| {title} | | compared with |", "|---|---|---|"]
            lines += [f"| {each['what']} | {each['value']} | {each['beside']} |" for each in row[kind]]
            lines.append("")
    if row["plot"]:
        lines += [f"![{row['title']}](pictures/evaluation/{row['name']}.svg)", ""]
    for title, notes in (("Assumed", row["assumes"]), ("Where we fall short, and limits", row["short"])):
        if notes:
            lines += [f"{title}:", "", *(f"* {note}" for note in notes), ""]
    lines += [f"`python bench/paper/{row['name']}.py`", ""]
    return "\n".join(lines)
