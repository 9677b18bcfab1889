"""Formats parts of Shardy's textual syntax: quoted names, mesh axes, shardings, and types of values on meshes. The
other modules of this folder use it to write MPMD text.
"""

import re

from pathways.dialect.dtypes import ArrayType
from pathways.dialect.sharding import Axes, Dims


def quoted(name: str) -> str:
    """Quotes a name as MLIR prints strings. All but plain ASCII is written as hexadecimal bytes."""
    raw = name.encode().decode("latin-1")
    return '"' + re.sub(r"[^ !#-\[\]-~]", lambda m: f"\\{ord(m[0]):02X}", raw) + '"'


def symbol(name: str) -> str:
    """Writes a reference to a symbol, quoted if the name is not an identifier."""
    return f"@{name}" if re.fullmatch(r"[A-Za-z_][\w$.]*", name, re.ASCII) else f"@{quoted(name)}"


def axes_text(axes: Axes) -> str:
    """Writes the axes of a mesh: `<["data"=2, "model"=4]>`."""
    return f"<[{', '.join(f'{quoted(name)}={size}' for name, size in axes)}]>"


def dims_text(dims: Dims) -> str:
    """Writes the axes of each dimension, closed: `[{"data"}, {}]`."""
    return f"[{', '.join('{' + ', '.join(map(quoted, axes)) + '}' for axes in dims)}]"


def sharding_text(mesh: str, dims: Dims) -> str:
    """Writes a sharding with the symbol of its mesh."""
    return f"<{symbol(mesh)}, {dims_text(dims)}>"


def value_text(type_: ArrayType, home: str, mesh: str, dims: Dims) -> str:
    """Writes the type of a value on the mesh `home`, whose axes the symbol `mesh` declares."""
    return f"!mpmd.mesh_tensor<{quoted(home)}, {type_.mlir}, sharding={sharding_text(mesh, dims)}>"


def list_text(items: list[str]) -> str:
    """Writes result types: a single one alone, several in parentheses."""
    return items[0] if len(items) == 1 else f"({', '.join(items)})"
