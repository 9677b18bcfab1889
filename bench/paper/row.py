# pyright: basic
"""Writes the result of one experiment: figures as JSON in `results/`, and a plot for docs/evaluation.md."""

import json
import os
import platform
from dataclasses import asdict, dataclass, field
from pathlib import Path

import jax

RESULTS = Path(__file__).parent / "results"
PLOTS = Path(__file__).parents[2] / "docs/pictures/evaluation"


@dataclass
class Figure:
    """A figure: what it is, its value as text, and what stands beside it."""

    what: str
    value: str
    beside: str = ""


@dataclass
class Row:
    """A row of the evaluation. `paper` is the claim. `measured` was measured here, `predicted` was simulated.

    `assumes` and `short` list what a prediction assumes, and where and why we fall short.
    """

    name: str
    title: str
    paper: str
    measured: list[Figure] = field(default_factory=list)
    predicted: list[Figure] = field(default_factory=list)
    assumes: list[str] = field(default_factory=list)
    short: list[str] = field(default_factory=list)

    def write(self, plot=None):
        """Writes the row; `plot` has labels of both axes, and points by the name of a line."""
        machine = f"{os.cpu_count()} cores, Python {platform.python_version()}, jax {jax.__version__}"
        RESULTS.mkdir(exist_ok=True)
        found = {**asdict(self), "machine": machine, "plot": plot}
        (RESULTS / f"{self.name}.json").write_text(json.dumps(found, indent=1) + "\n")
        for kind in ("measured", "predicted"):
            for figure in getattr(self, kind):
                print(f"{kind:10} {figure.what}: {figure.value}" + (f"  ({figure.beside})" if figure.beside else ""))
        if plot is not None:
            draw(self.name, self.title, *plot)


def draw(name, title, x, y, lines, log=True):
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams |= {"svg.hashsalt": "pathways", "svg.fonttype": "none"}
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 3.5), layout="constrained")
    for label, points in lines.items():
        axes.plot(*zip(*points, strict=True), marker="o", label=label)
    if log:
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
    axes.set(xlabel=x, ylabel=y, title=title)
    axes.legend(fontsize="small")
    axes.grid(alpha=0.3)
    PLOTS.mkdir(parents=True, exist_ok=True)
    figure.savefig(PLOTS / f"{name}.svg", metadata={"Date": None})
    plt.close(figure)
