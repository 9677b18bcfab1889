"""Tests where a compiled program shows what its loss is over microbatches: IR, plan, `pwc why`, summary and page."""

import re

import pytest
from support.losses import CASES
from support.losses.table import any_jax, examples, parameters

import pathways as pw
from pathways.api.stages import Lowered
from pathways.cli.why import render
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.ir.losses import LossNote, read_losses
from pathways.dialect.ir.wellformed import check_wellformed
from pathways.dialect.mlir import parse_text
from pathways.viz.pictures import picture_of_plan
from pathways.viz.render.page_data import page_data

HANDLING = "random numbers are drawn once for the whole batch, and split"
CAUSE = "one random key draws numbers for the whole batch"


@pytest.fixture(scope="module")
def lowered() -> Lowered:
    p, b = parameters(), examples()
    devices = pw.make_virtual_device_set()
    loss = pw.pipeline(CASES["dropout"].loss, [devices.add_slice(devices=1)], microbatches=2)
    return pw.program(lambda p, b: any_jax.value_and_grad(loss)(p, b)).lower(p, b)


def test_a_loss_is_noted_in_the_ir_and_the_plan(lowered: Lowered) -> None:
    note = LossNote("dropout", "exact over 2 microbatches", f"{HANDLING}; {CAUSE}")
    assert read_losses(parse_text(lowered.as_text("schedule"), "dump")) == (note,)
    compiled = lowered.compile()
    (decision,) = [d for d in compiled.plan.decisions if d.kind == "loss"]
    assert (decision.name, decision.chosen, decision.reason) == ("dropout", note.verdict, note.handling)
    assert render([decision]) == f"loss dropout: exact over 2 microbatches\n  because:   {HANDLING}; {CAUSE}"
    assert f"dropout over 2 microbatches: exact; {HANDLING}\n" in str(compiled.summary())
    picture = picture_of_plan(compiled.plan)
    assert page_data(picture)["losses"] == ["dropout: exact over 2 microbatches"]


def test_programs_without_such_a_loss_note_nothing() -> None:
    lowered = pw.program(lambda x: x + 1).lower(parameters()["b"])
    assert "pw.losses" not in lowered.as_text() and read_losses(parse_text(lowered.as_text(), "dump")) == ()


@pytest.mark.parametrize("broken", ['"dropout"', '[["dropout", "exact"]]', '[["dropout", "exact", 3]]'])
def test_damaged_notes_are_refused(lowered: Lowered, broken: str) -> None:
    text = re.sub(r"pw\.losses = \[\[.*?\]\]", f"pw.losses = {broken}", lowered.as_text())
    with pytest.raises(PathwaysError, match="PWC0701") as caught:
        check_wellformed(parse_text(text, "dump"))
    assert "has an invalid pw.losses" in str(caught.value)
