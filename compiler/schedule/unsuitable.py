"""Refusing a schedule that a pipeline does not suit."""

from typing import NoReturn

from pathways.compiler.errors import UnsuitableSchedule
from pathways.compiler.schedule.table import Pipeline
from pathways.dialect.diagnostics import PathwaysError


def refuse(schedule: str, have: str, need: str, advice: str) -> NoReturn:
    """Raises PWC0404."""
    raise PathwaysError(UnsuitableSchedule(schedule=schedule, have_=have, rule=need, advice=advice))


def one_stage_a_slice(schedule: str, pipeline: Pipeline, advice: str) -> None:
    """Raises PWC0404 where a slice has several stages."""
    if pipeline.rows != tuple(range(pipeline.stages)):
        shown = ", ".join(f"{s}: {len(pipeline.stages_of(i))} stages" for i, s in enumerate(pipeline.slices))
        refuse(schedule, shown, "one stage a slice", advice)
