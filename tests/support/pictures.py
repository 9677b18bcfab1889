"""Creates pictures of plans, records runs of a plan, and opens pages in a headless browser."""

import shutil
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import pathways as pw
from pathways.api.stages import Compiled
from pathways.compiler.pass_manager import Options
from pathways.dialect.topology import parse_topology
from pathways.viz.actual import read_trace
from pathways.viz.picture import Picture
from pathways.viz.pictures import picture_of_plan
from support.pipelines import block, pipe

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@dataclass(frozen=True)
class Ran:
    """A compiled program, and the trace of its runs."""

    compiled: Compiled
    trace: Path

    def picture(self) -> Picture:
        return picture_of_plan(self.compiled.plan, runs=read_trace(self.trace))


def pipeline_picture(slices: int, microbatches: int, schedule: str = "1f1b") -> Picture:
    """Returns the picture of a pipeline without recorded runs."""
    lowered = pipe(slices=slices, microbatches=microbatches).lowered()
    machines = parse_topology(f"islands={slices},devices=1")
    return picture_of_plan(lowered.compiled(machines, Options(schedule=schedule)).plan())


def ran(folder: Path, *, devices: int = 2, schedule: str = "1f1b") -> Ran:
    """Runs a pipeline of two transformer blocks three times; records the last two runs."""
    made = pipe(slices=2, microbatches=4, devices=devices, stage=block)
    compiled = made.lowered().compile(schedule=schedule)
    compiled(*made.arguments)
    with pw.trace(folder / "trace.json") as trace:
        for _ in range(2):
            compiled(*made.arguments)
    return Ran(compiled, trace.path)


def browser_path() -> str:
    """Returns the path of Chromium; skips the test if none is installed."""
    for name in BROWSERS:
        if (found := shutil.which(name)) is not None:
            return found
    pytest.skip(f"no browser: none of {', '.join(BROWSERS)} is on the PATH")


@dataclass
class Page:
    """A page in a headless browser, with the errors, warnings and failed requests that it caused."""

    view: Any
    problems: list[str]

    def open(self, path: Path) -> None:
        """Opens a file, and waits until the page has read its data."""
        self.view.goto(path.as_uri())
        self.view.wait_for_function("document.documentElement.dataset.ready === 'yes'")

    def details(self) -> str:
        return self.view.inner_text("#details")

    def tip(self) -> str:
        return self.view.inner_text("#tip") if self.view.is_visible("#tip") else ""


@contextmanager
def opened_browser(scheme: str = "light") -> Generator[Page]:
    """Starts an offline browser with a window of 1,280 x 800."""
    from playwright.sync_api import sync_playwright

    path = browser_path()
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=path, args=["--no-sandbox"])
        context = browser.new_context(viewport={"width": 1280, "height": 800}, color_scheme=scheme, offline=True)  # pyright: ignore[reportArgumentType]
        view = context.new_page()
        problems: list[str] = []
        view.on("pageerror", lambda error: problems.append(str(error)))
        view.on("console", lambda m: problems.append(f"{m.type}: {m.text}") if m.type in ("error", "warning") else None)
        view.on("requestfailed", lambda r: problems.append(f"asked for {r.url}"))
        yield Page(view, problems)
        context.close()
        browser.close()
