"""Tests the page in an offline browser: every view draws, and pointer and keyboard show details."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from support.pictures import Page, Ran, opened_browser, pipeline_picture
from support.processes import ROOT

import pathways as pw
from pathways.dialect.phases import Phase
from pathways.viz.graphs import Graph
from pathways.viz.picture import Picture
from pathways.viz.render.html import SCRIPTS

VIEWS = ("dataflow", "schedule", "memory", "shardings", "devices")


@pytest.fixture(scope="module")
def browser() -> Iterator[Page]:
    with opened_browser() as page:
        yield page


@pytest.fixture
def page(browser: Page, two_stages: Ran, tmp_path: Path) -> Iterator[Page]:
    """The freshly opened page of a pipeline and its recorded run."""
    browser.problems.clear()
    path = tmp_path / "run.html"
    two_stages.compiled.visualize(path, trace=two_stages.trace)
    browser.open(path)
    yield browser
    assert browser.problems == []


def is_painted(page: Page, selector: str) -> bool:
    """Returns whether a canvas shows more than three colors."""
    code = """s => {
        const c = document.querySelector(s), d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
        const seen = new Set();
        for (let i = 0; i < d.length; i += 4) seen.add(d[i] << 16 | d[i+1] << 8 | d[i+2]);
        return seen.size > 3;
    }"""
    return page.view.evaluate(code, selector)


def test_every_view_draws(page: Page) -> None:
    for name in VIEWS:
        page.view.click(f"#tab-{name}")
        assert page.view.is_visible(f"#view-{name}")
        assert page.view.get_attribute(f"#tab-{name}", "aria-selected") == "true"
    assert is_painted(page, "#chart")
    assert page.view.evaluate("pw.graphState().boxes") >= 4
    assert page.view.locator("#view-memory path.owner").count() >= 2
    assert page.view.locator("#view-shardings tbody tr").count() > 10
    assert page.view.locator("#view-devices .device").count() == 4


def test_a_click_on_a_cell_shows_its_line(page: Page) -> None:
    at = page.view.evaluate("""(() => {
        const rows = pw.scheduleRows(), row = rows.findIndex(r => r.kind === 'planned');
        const long = i => rows[row].cells[i].end - rows[row].cells[i].begin;
        const cell = rows[row].cells.reduce((best, _, i) => (long(i) > long(best) ? i : best), 0);
        return {...pw.cellAt(row, cell), line: rows[row].cells[cell].line};
    })()""")
    page.view.mouse.click(at["x"], at["y"])
    assert "pipelines.py:" in at["line"] and at["line"].split()[0] in page.details()
    assert "stage" in page.view.inner_text("#spoken")


def test_pointing_at_a_gap_shows_its_cause(page: Page) -> None:
    page.view.select_option("#basis", "equal")
    gaps = page.view.evaluate("""pw.scheduleRows().flatMap((r, i) => r.cells.map((c, j) => (
        c.gap && r.kind === 'planned' && c.gap.begin > 0 ? {...pw.cellAt(i, j), wide: c.gap.end - c.gap.begin} : null
    ))).filter(Boolean).sort((a, b) => b.wide - a.wide)""")
    page.view.mouse.move(gaps[0]["gap"], gaps[0]["y"])
    assert page.tip().startswith("idle ") and "waits for" in page.tip()


def test_planned_and_actual_rows_have_the_same_cells_in_order(page: Page) -> None:
    rows = page.view.evaluate("pw.scheduleRows().map(r => [r.kind, r.cells.map(c => `${c.step} ${c.name}`)])")
    assert [kind for kind, _ in rows] == ["planned", "actual"] * 2
    for (_, planned), (_, actual) in zip(rows[::2], rows[1::2], strict=True):
        assert planned == actual and len(planned) >= 8


def test_a_row_opens_into_rows_of_its_devices(page: Page) -> None:
    before = page.view.evaluate("pw.scheduleRows().length")
    page.view.locator("#view-schedule .names button").first.click()
    assert page.view.evaluate("pw.scheduleRows().length") == before + 2
    assert "device 1" in page.view.inner_text("#view-schedule .names")


def test_arrow_keys_move_between_cells_and_tabs(page: Page) -> None:
    page.view.focus("#chart")
    said: list[str] = []
    for key in ("ArrowRight", "ArrowRight", "ArrowDown", "End", "Home"):
        page.view.keyboard.press(key)
        said.append(page.view.inner_text("#spoken"))
    assert len(set(said)) >= 4 and all("line" in text for text in said)
    page.view.focus("#tab-schedule")
    page.view.keyboard.press("ArrowRight")
    assert page.view.is_visible("#view-memory")
    page.view.focus("#view-memory .drawing")
    page.view.keyboard.press("ArrowRight")
    assert "at the start" in page.view.inner_text("#spoken") or "step" in page.view.inner_text("#spoken")


def test_the_dataflow_opens_groups_and_switches_phases(page: Page) -> None:
    page.view.click("#tab-dataflow")
    closed = page.view.evaluate("pw.graphState()")
    assert closed["phase"] == "plan"
    page.view.locator("#view-dataflow .list button", has_text="stage 0 forward").first.dblclick()
    assert page.view.evaluate("pw.graphState().boxes") > closed["boxes"]
    page.view.locator("#view-dataflow .list button", has_text="0F2").first.click()
    assert "pipelines.py" in page.details()
    page.view.fill("#phase", "0")
    assert page.view.evaluate("pw.graphState().phase") == "trace"
    page.view.fill("#view-dataflow input[type=search]", "nothing is called so")


def test_a_selected_value_shows_its_sharding(page: Page) -> None:
    page.view.click("#tab-shardings")
    page.view.fill("#view-shardings input[type=search]", "float32")
    page.view.locator("#view-shardings tbody tr").first.click()
    assert "mesh" in page.details() and page.view.locator("#details svg rect").count() >= 1


def test_the_theme_follows_the_user_or_the_system(page: Page, two_stages: Ran, tmp_path: Path) -> None:
    back = "getComputedStyle(document.body).backgroundColor"
    light = page.view.evaluate(back)
    page.view.select_option("#theme", "dark")
    assert page.view.evaluate(back) != light and is_painted(page, "#chart")
    page.view.select_option("#theme", "auto")
    page.view.emulate_media(color_scheme="dark")
    assert page.view.evaluate(back) != light
    page.view.emulate_media(color_scheme="light")


def test_views_without_data_are_disabled(browser: Page, two_stages: Ran, tmp_path: Path) -> None:
    """A program that is not compiled has only a dataflow; a trace without a program has only a schedule."""
    browser.problems.clear()
    recipe = two_stages.compiled._recipe  # pyright: ignore[reportPrivateUsage]
    recipe.lowered.visualize(tmp_path / "lowered.html")
    browser.open(tmp_path / "lowered.html")
    assert browser.view.is_disabled("#tab-schedule") and browser.view.is_visible("#view-dataflow")
    Picture("trace", None, (), two_stages.picture().runs).save(tmp_path / "trace.html")
    browser.open(tmp_path / "trace.html")
    assert browser.view.is_disabled("#tab-dataflow") and browser.view.is_visible("#view-schedule")
    assert browser.view.evaluate("pw.scheduleRows().length") == 8
    assert browser.problems == []


@pytest.mark.long("a page of 64 stages: 2 s", keep=("8",))
@pytest.mark.parametrize("stages", [8, 64])
def test_the_page_of_many_stages_draws_every_view(browser: Page, stages: int, tmp_path: Path) -> None:
    browser.problems.clear()
    path = pipeline_picture(stages, 2).save(tmp_path / "many.html")
    assert path.stat().st_size < 5_000_000
    browser.open(path)
    assert browser.view.evaluate("pw.scheduleRows().length") == stages
    for name in VIEWS:
        browser.view.click(f"#tab-{name}")
    assert 1 < browser.view.evaluate("pw.graphState().boxes") <= 300
    assert browser.problems == []


def test_a_title_is_escaped_as_text(browser: Page, tmp_path: Path) -> None:
    browser.problems.clear()
    title = "</script><img src=x onerror=alert(1)>{{data}}"
    picture = pipeline_picture(2, 2)
    picture.title = title
    browser.open(picture.save(tmp_path / "title.html"))
    assert browser.view.inner_text("h1") == title
    assert browser.problems == []


def test_idle_time_counts_until_the_last_stage_completes(browser: Page, tmp_path: Path) -> None:
    """Counts the idle time of each row over the whole schedule, not only up to the end of the row's own work."""
    browser.problems.clear()
    step = 2.0
    two = pw.program(lambda x: jax.pmap(lambda v: v * step, devices=_chips(1))(
        jax.pmap(lambda v: v + step, devices=_chips(1))(x)
    ))  # fmt: skip
    browser.open(two.lower(np.ones((1, 2), np.float32)).compile().visualize().save(tmp_path / "forward.html"))
    assert browser.view.evaluate("pw.scheduleRows().length") == 2
    told = browser.view.locator("#view-schedule .sums > div").all_inner_texts()
    assert [text.split(" · ")[0] for text in told] == ["idle 50.0 %"] * 2
    assert browser.problems == []


def _chips(count: int) -> Any:
    return pw.make_virtual_device_set().add_slice(tpu_devices=count).tpus


def test_the_memory_charts_reach_the_peaks_in_the_data(page: Page) -> None:
    page.view.click("#tab-memory")
    assert page.view.evaluate("pw.memoryPeaks()") == page.view.evaluate("pw.data.memory.map(m => m.peak)")


def test_focus_stays_in_place_when_rows_and_boxes_open(page: Page) -> None:
    focused = "document.activeElement.innerText"
    page.view.locator("#view-schedule .names button").first.focus()
    page.view.keyboard.press("Enter")
    assert "device 0" in page.view.evaluate(focused)
    assert page.view.evaluate("document.activeElement.getAttribute('aria-expanded')") == "true"
    page.view.click("#tab-dataflow")
    button = page.view.locator("#view-dataflow .list button", has_text="stage 0 forward").first
    assert button.get_attribute("aria-expanded") == "false"
    button.focus()
    page.view.keyboard.press("ArrowRight")
    assert page.view.evaluate(focused).startswith("0F")
    page.view.keyboard.press("ArrowLeft")
    assert "stage 0 forward" in page.view.evaluate(focused)


def test_arrow_home_and_end_keys_move_between_tabs(page: Page) -> None:
    page.view.focus("#tab-schedule")
    opened: list[str] = []
    for key in ("End", "ArrowRight", "ArrowLeft", "Home"):
        page.view.keyboard.press(key)
        opened.append(page.view.evaluate("document.activeElement.id"))
    assert opened == ["tab-devices", "tab-dataflow", "tab-devices", "tab-dataflow"]


def test_a_large_graph_opens_in_steps_of_300_boxes(browser: Page, tmp_path: Path) -> None:
    browser.problems.clear()
    box = pipeline_picture(2, 2).graphs[-1].boxes[0]
    boxes = [box._replace(name=f"g{i}", parts=(), slice="s", task=-1) for i in range(650)]
    browser.open(Picture("many", None, [Graph(Phase.TRACE, boxes)]).save(tmp_path / "many.html"))
    seen = [browser.view.evaluate("pw.graphState().boxes")]
    for _ in range(3):
        browser.view.locator("#view-dataflow .list button").last.dblclick()
        seen.append(browser.view.evaluate("pw.graphState().boxes"))
    assert seen == [1, 301, 601, 650] and browser.problems == []


@pytest.mark.parametrize("width", [700, 1280])
def test_no_view_is_wider_than_the_window(browser: Page, width: int, tmp_path: Path) -> None:
    browser.problems.clear()
    picture = pipeline_picture(2, 2)
    picture.title, picture.notes = "a_long_name_of_a_program_" * 6, ["a note that goes on and on " * 9]
    browser.view.set_viewport_size({"width": width, "height": 800})
    browser.open(picture.save(tmp_path / "long.html"))
    for name in VIEWS:
        browser.view.click(f"#tab-{name}")
        assert browser.view.evaluate("document.documentElement.scrollWidth <= innerWidth")
    browser.view.set_viewport_size({"width": 1280, "height": 800})
    assert browser.problems == []


def test_scripts_have_short_lines_and_short_files() -> None:
    scripts = sorted((ROOT / "viz" / "page").glob("*.js"))
    assert len(scripts) == len(SCRIPTS)
    for script in scripts:
        lines = script.read_text(encoding="utf-8").splitlines()
        assert len(lines) <= 400 and max(map(len, lines)) <= 140, script.name
