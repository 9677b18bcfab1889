"""Reads and writes the module attribute `pw.losses`. It states, for each loss of a program, how the losses of
microbatches are combined. `pw.pipeline` writes it, and the plan's decisions include it.
"""

from collections.abc import Sequence
from dataclasses import astuple, dataclass

from pathways.dialect.mlir import Attribute, Module, ir

NAME = "pw.losses"


@dataclass(frozen=True)
class LossNote:
    """One loss over microbatches: its name, the verdict, and how it is handled, as text."""

    loss: str
    verdict: str
    handling: str


_FIELDS = len(LossNote.__dataclass_fields__)


def write_losses(module: Module, losses: Sequence[LossNote]) -> None:
    """Writes losses to a module; without losses, the module is unchanged."""
    if losses:
        with module.context:
            rows = [ir.ArrayAttr.get([ir.StringAttr.get(text) for text in astuple(loss)]) for loss in losses]
            module.operation.attributes[NAME] = ir.ArrayAttr.get(rows)


def read_losses(module: Module) -> tuple[LossNote, ...]:
    """Reads the losses of a well-formed module."""
    attributes = module.operation.attributes
    if NAME not in attributes:
        return ()
    return tuple(LossNote(*(ir.StringAttr(text).value for text in row)) for row in ir.ArrayAttr(attributes[NAME]))


def are_losses(attribute: Attribute) -> bool:
    """Returns whether an attribute is a list of losses."""
    return isinstance(attribute, ir.ArrayAttr) and all(
        isinstance(row, ir.ArrayAttr) and len(row) == _FIELDS and all(isinstance(a, ir.StringAttr) for a in row)
        for row in attribute
    )
