"""Passes the split that `pw.search` found to `pw.pipeline` calls that name no slices. `pwc compile --choice` and
`pw.search` set the split for a block of code, and `pipeline.py` reads it.
"""

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
"""The choice for pipelines without slices, in programs that are traced in this context."""
taken: ContextVar[list[str]] = ContextVar("pathways_taken")
"""The names of the losses that used the choice."""
calls: ContextVar[list[Any] | None] = ContextVar("pathways_pipeline_calls", default=None)
"""Records calls of pipelined losses as (pipeline, arguments, keywords), so that `pw.search` can find the loss."""


@contextlib.contextmanager
def choosing(choice: SplitChoice | None) -> Generator[list[str]]:
    """Sets the choice for pipelines without slices in a `with` block. Yields the names of the losses that used it."""
    token = chosen.set(choice)
    losses: list[str] = []
    taken_token = taken.set(losses)
    try:
        yield losses
    finally:
        chosen.reset(token)
        taken.reset(taken_token)


@contextlib.contextmanager
def noting_calls() -> Generator[list[Any]]:
    """Records the calls of pipelined losses in a `with` block."""
    noted: list[Any] = []
    token = calls.set(noted)
    try:
        yield noted
    finally:
        calls.reset(token)


def choice_given(choice: Any) -> SplitChoice:
    """Returns the choice itself, the best of a `pw.search` result, or that of a file. Raises PWC0115, PWC0112."""
    found = getattr(choice, "best", choice)
    if isinstance(found, SplitChoice):
        return found
    if not isinstance(found, str | os.PathLike):
        rule, advice = "a result of pw.search, one of its choices, or the path of a file", "choice=found.best"
        raise bad_pipeline("choice= is not a choice", f"a {type(choice).__name__}", rule, advice)
    return load_choice(cast("str", found))


def meshes_of_choice(choice: SplitChoice) -> list[Mesh]:
    """Creates a slice for each stage, on the island that the choice names, and returns the meshes of all stages."""
    devices = make_virtual_device_set()
    meshes: list[Mesh] = []
    for number in range(choice.stages):
        island = choice.islands[number] if choice.islands else None
        one = devices.add_slice(devices=choice.data * choice.model, island=island)
        meshes.append(one.mesh(AXES, (choice.data, choice.model)))
    return meshes * choice.chunks


def param_specs_of(choice: SplitChoice) -> dict[str, P] | None:
    """Returns the partition specs of a choice, by patterns of paths."""
    return {pattern: P(*(axis or None for axis in axes)) for pattern, axes in choice.param_specs.items()} or None
