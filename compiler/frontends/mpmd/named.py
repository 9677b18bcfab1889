"""Describes the arguments and results of an MPMD program that was given as text only. Names come from locations and
attributes in the text. `read.py` calls it.
"""

from collections.abc import Sequence
from typing import Any

from pathways.compiler.frontends.mpmd.source import Described
from pathways.compiler.frontends.mpmd.types import read_mesh_tensor
from pathways.dialect.ir.arguments import Argument
from pathways.dialect.ir.functions import described
from pathways.dialect.jax_api import tree_util
from pathways.dialect.mlir import ir, name_of

RESULT_INFO = "jax.result_info"


def described_by(main: Any) -> Described:
    """Describes flat arguments and results. Uses their names if these are distinct."""
    block = main.regions[0].blocks[0]
    *_, end = block.operations
    types = [read_mesh_tensor(value.type).type for value in block.arguments]
    inputs = _names([name_of(value) for value in block.arguments], "arg")
    infos = described(main, "res_attrs", len(list(end.operands)))
    results = _names([_text(info, RESULT_INFO) for info in infos], "out")
    return Described(
        inputs=list(zip(map(Argument, inputs), types, strict=True)),
        kept=range(len(inputs)),
        results=list(map(Argument, results)),
        in_tree=tree_util.tree_structure((0,) * len(inputs)),
        out_tree=tree_util.tree_structure((0,) * len(results)),
    )


def _names(names: Sequence[str], otherwise: str) -> list[str]:
    """Returns the names if all exist and are distinct; otherwise numbered names."""
    if all(names) and len(set(names)) == len(names):
        return list(names)
    return [f"{otherwise}{i}" for i in range(len(names))]


def _text(attributes: Any, key: str) -> str:
    if key not in attributes:
        return ""
    found = attributes[key]
    return found.value if isinstance(found, ir.StringAttr) else ""
