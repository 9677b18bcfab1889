"""Defines the attributes of the arguments and results of a program, and converts them to MLIR and back. Passes and
front ends use it.

Attributes of the program's arguments (`pw.program` func.func):

| attribute | meaning |
|---|---|
| `pw.name` | parameter name and key path, `params['w']`; of a constant, a readable form |
| `pw.dtype` | the element type that the user sees, where it is not the stored one: `key<fry>`, `float0` |
| `pw.weak` | the type is weak (a Python number) |
| `pw.mesh` | the mesh where the value lives |
| `pw.sharding` | its sharding there (the user's, or from phase `shard`; of a body's only from there) |
| `pw.donate` | the caller gives it up |
| `pw.piece` | it is one buffer of an array in several: `[name, axis, start, size of the axis]`, as JSON |
| `pw.value` | a constant of at most 1 KiB: its raw bytes in hexadecimal |
| `pw.constant` | a larger constant: the digest under which its bytes lie beside the module |

Results carry `pw.name`, `pw.dtype`, `pw.weak` and `pw.piece`. The same attributes are on bodies (`pw.body`), where
`pw.donate` says that a loop may overwrite what it carries.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pathways.dialect.memo import remembered
from pathways.dialect.mlir import Attribute, ir
from pathways.dialect.pieces import LeafPiece, read_piece, write_piece
from pathways.dialect.sdy import Placed, read_sharding, write_sharding

INLINE_LIMIT = 1024
"""The largest constant, in bytes, that is stored in the IR itself."""


def constant_name(raw: bytes) -> str:
    """Returns the name of a constant that is stored outside the module."""
    return hashlib.sha256(raw).hexdigest()[:16]


@dataclass(frozen=True)
class Argument:
    """The attributes of one argument or result of the program."""

    name: str
    dtype: str | None = None
    weak: bool = False
    mesh: str | None = None
    sharding: Placed | None = None
    donate: bool = False
    value: str | None = None
    constant: str | None = None
    piece: LeafPiece | None = None

    @property
    def is_constant(self) -> bool:
        return self.value is not None or self.constant is not None

    def shown(self, number: int) -> str:
        """Returns its name for a message, or its number if it has no name."""
        return self.name or f"argument {number}"

    def write(self) -> Attribute:
        """Converts it to a dictionary attribute. Call it inside an MLIR context."""
        written: dict[str, Any] = {"pw.name": ir.StringAttr.get(self.name)}
        piece = None if self.piece is None else write_piece(self.piece)
        for key, text in (("dtype", self.dtype), ("value", self.value), ("constant", self.constant), ("piece", piece)):
            if text is not None:
                written[f"pw.{key}"] = ir.StringAttr.get(text)
        for key, flag in (("weak", self.weak), ("donate", self.donate)):
            if flag:
                written[f"pw.{key}"] = ir.UnitAttr.get()
        if self.mesh is not None:
            written["pw.mesh"] = ir.FlatSymbolRefAttr.get(self.mesh)
        if self.sharding is not None:
            written["pw.sharding"] = write_sharding(self.sharding)
        return ir.DictAttr.get(written)


@remembered
def read_argument(attribute: Any) -> Argument:
    def get(key: str) -> Any:
        return attribute[f"pw.{key}"] if f"pw.{key}" in attribute else None  # noqa: SIM401

    def text(key: str) -> str | None:
        found = get(key)
        return None if found is None else found.value

    sharding = get("sharding")
    return Argument(
        name=text("name") or "",
        dtype=text("dtype"),
        weak=get("weak") is not None,
        mesh=text("mesh"),
        sharding=None if sharding is None else read_sharding(sharding),
        donate=get("donate") is not None,
        value=text("value"),
        constant=text("constant"),
        piece=None if (piece := text("piece")) is None else read_piece(piece),
    )


class FunctionSignature:
    """The arguments and results of a function, and the MLIR locations of its arguments and of its return.

    `written` are the attributes `arg_attrs` and `res_attrs` of the op that these were read from, if any.
    """

    def __init__(
        self,
        arguments: Sequence[Argument],
        results: Sequence[Argument],
        locations: Sequence[Any],
        end: Any,
        written: tuple[Attribute | None, Attribute | None] = (None, None),
    ) -> None:
        self.arguments, self.results = tuple(arguments), tuple(results)
        self.locations, self.end = tuple(locations), end
        self._written = written

    def replaced(self, arguments: Sequence[Argument], locations: Sequence[Any] | None = None) -> "FunctionSignature":
        """Returns the signature with other arguments."""
        written = None, self._written[1]
        return FunctionSignature(
            arguments, self.results, self.locations if locations is None else locations, self.end, written
        )

    def attributes(self) -> dict[str, Attribute]:
        """Returns the attributes of the function's op. Call it inside an MLIR context."""
        taken, made = self._written
        found = {"arg_attrs": _write_all(self.arguments) if taken is None else taken}
        if self.results:
            found["res_attrs"] = _write_all(self.results) if made is None else made
        return found


def _write_all(arguments: Sequence[Argument]) -> Attribute:
    return ir.ArrayAttr.get([a.write() for a in arguments])
