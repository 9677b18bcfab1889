"""The choice of `pw.search` that pipelines without slices take: the slices it means, and who has one."""

import contextlib
import os
from collections.abc import Generator
from contextvars import ContextVar
from typing import Any, cast

from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from pathways.compiler.frontends.jax.devices import make_virtual_device_set
from pathways.compiler.frontends.jax.pipeline.microbatches import bad_pipeline
from pathways.dialect.choice import AXES, SplitChoice, load_choice

chosen: ContextVar[SplitChoice | None] = ContextVar("pathways_chosen", default=None)
"""What pipelines that name no slices take, for programs that are traced in this context."""
taken: ContextVar[list[str]] = ContextVar("pathways_taken")
"""The names of the losses that have taken it."""
calls: ContextVar[list[Any] | None] = ContextVar("pathways_pipeline_calls", default=None)
"""Where calls of pipelined losses are noted, as (pipeline, arguments, keywords), for those who look for a loss."""


@contextlib.contextmanager
def choosing(choice: SplitChoice | None) -> Generator[list[str]]:
    """Lets pipelines that name no slices take a choice for the length of a block; gives the losses that have."""
    token = chosen.set(choice)
    losses: list[str] = []
    asked = taken.set(losses)
    try:
        yield losses
    finally:
        chosen.reset(token)
        taken.reset(asked)


@contextlib.contextmanager
def noting_calls() -> Generator[list[Any]]:
    """Notes the calls of pipelined losses for the length of a block."""
    noted: list[Any] = []
    token = calls.set(noted)
    try:
        yield noted
    finally:
        calls.reset(token)


def choice_given(choice: Any) -> SplitChoice:
    """A choice as it is, the best that `pw.search` found, or that of a file. Raises PWC0115, PWC0112."""
    found = getattr(choice, "best", choice)
    if isinstance(found, SplitChoice):
        return found
    if not isinstance(found, str | os.PathLike):
        rule, advice = "what pw.search found, one of its choices, or the path of a file", "choice=found.best"
        raise bad_pipeline("choice= is no choice", f"a {type(choice).__name__}", rule, advice)
    return load_choice(cast("str", found))


def meshes_of_choice(choice: SplitChoice) -> list[Mesh]:
    """The mesh of each stage, on slices of its own: each on the island that the choice names."""
    devices = make_virtual_device_set()
    meshes: list[Mesh] = []
    for number in range(choice.stages):
        island = choice.islands[number] if choice.islands else None
        one = devices.add_slice(devices=choice.data * choice.model, island=island)
        meshes.append(one.mesh(AXES, (choice.data, choice.model)))
    return meshes * choice.chunks


def param_specs_of(choice: SplitChoice) -> dict[str, P] | None:
    """The partition specs of a choice, by patterns of paths."""
    return {pattern: P(*(axis or None for axis in axes)) for pattern, axes in choice.param_specs.items()} or None
