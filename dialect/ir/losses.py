"""What the losses of a program are over microbatches, as the attribute `pw.losses` of its module."""

from collections.abc import Sequence
from dataclasses import astuple, dataclass

from pathways.dialect.mlir import Attribute, Module, ir

NAME = "pw.losses"


@dataclass(frozen=True)
class LossNote:
    """One loss over microbatches: its name, its verdict, and what is done about it, as text."""

    loss: str
    verdict: str
    handling: str


_FIELDS = len(LossNote.__dataclass_fields__)


def write_losses(module: Module, losses: Sequence[LossNote]) -> None:
    """Notes losses in a module; without losses, the module stays as it is."""
    if losses:
        with module.context:
            rows = [ir.ArrayAttr.get([ir.StringAttr.get(text) for text in astuple(loss)]) for loss in losses]
            module.operation.attributes[NAME] = ir.ArrayAttr.get(rows)


def read_losses(module: Module) -> tuple[LossNote, ...]:
    """Reads the losses of a module that is well formed."""
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
