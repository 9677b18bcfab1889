"""Represents pytree structures as plain data, without pickle. The structures of a program's arguments and results are
stored in IR and plans, and the API rebuilds results with them.

A plan names classes, and reading one must never import them. A class that the process has not already imported becomes
a dict, if its children have names, or a tuple.
"""

import json
import sys
from collections import OrderedDict, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from operator import is_not
from typing import Any, cast

from pathways.dialect.jax_api import tree_util
from pathways.dialect.printable import printable


@dataclass(frozen=True)
class Tree:
    """A node of a pytree. `kind`: leaf, none, dict, list, tuple, namedtuple or object. `keys` name the children."""

    kind: str
    children: tuple["Tree", ...] = ()
    keys: tuple[str | int, ...] = ()
    cls: str = ""


LEAF = Tree("leaf")
DEEPEST_TREE = 160
"""The most levels of a tree in a plan, because functions on trees recurse."""
_UNNAMED = frozenset({"leaf", "none", "list", "tuple", "object"})
"""Kinds that may have children without keys."""
_KINDS = _UNNAMED | {"dict", "namedtuple"}


def describe_tree(treedef: Any, levels: int = DEEPEST_TREE) -> Tree:
    """Converts a `PyTreeDef`. Raises ValueError if it has more than `levels` levels."""
    if tree_util.treedef_is_leaf(treedef) and treedef.num_leaves == 1:
        return LEAF
    if levels == 0:
        raise ValueError(f"a tree of more than {DEEPEST_TREE} levels")
    data = treedef.node_data()
    children = tuple(describe_tree(c, levels - 1) for c in treedef.children())
    if data is None or data[0] is type(None):
        return Tree("none")
    cls: Any = data[0]
    aux: Any = data[1]
    if cls in (dict, OrderedDict, defaultdict):
        names = aux[1] if cls is defaultdict else aux
        return Tree("dict", children, tuple(k if isinstance(k, str | int) else repr(k) for k in names))
    if cls in (list, tuple):
        return Tree(cls.__name__, children)
    keys = _object_keys(treedef)
    if tuple in cls.__mro__ and hasattr(cls, "_fields") and keys == tuple(f".{name}" for name in cls._fields):
        return Tree("namedtuple", children, tuple(cls._fields), _class_name(cls))
    return Tree("object", children, keys, _class_name(cls))  # also a namedtuple with a flattening of its own


def _class_name(cls: type) -> str:
    return f"{cls.__module__}:{cls.__qualname__}"


def _object_keys(treedef: Any) -> tuple[str, ...]:
    """Returns the names that a class gives its children; empty if it gives none."""
    children = treedef.children()
    try:
        dummy: Any = tree_util.tree_unflatten(treedef, [object()] * treedef.num_leaves)
        paths = tree_util.tree_flatten_with_path(dummy, is_leaf=partial(is_not, dummy))[0]
    except Exception:  # the class accepts only arrays as leaves, or its own code fails
        return ()
    names = tuple(tree_util.keystr(path) for path, _ in paths)
    return names if len(set(names)) == len(children) else ()


def build_tree(tree: Tree, leaves: Sequence[Any]) -> Any:
    """Builds the pytree from its structure and its leaves."""
    rest = list(leaves)
    built = _build(tree, rest)
    if rest:
        raise ValueError(f"{len(rest)} leaves too many for the tree")
    return built


def _build(tree: Tree, leaves: list[Any]) -> Any:
    if tree.kind == "leaf":
        return leaves.pop(0)
    if tree.kind == "none":
        return None
    children = [_build(c, leaves) for c in tree.children]
    match tree.kind:
        case "dict":
            return dict(zip(tree.keys, children, strict=True))
        case "list":
            return children
        case "namedtuple":
            cls = _known_namedtuple(tree)
            if cls is None:
                return dict(zip(tree.keys, children, strict=True))
            return cast("Any", tuple).__new__(cls, children)  # runs no code of the class itself
        case "object" if len(tree.keys) == len(children):
            return dict(zip(tree.keys, children, strict=True))
        case _:
            return tuple(children)


def _known_namedtuple(tree: Tree) -> Any:
    """Finds the class of a named tuple if this process has already imported it and its fields are still the same.

    The lookup avoids `getattr`, which runs code of modules that load lazily.
    """
    module, _, qualname = tree.cls.partition(":")
    found: Any = sys.modules.get(module)
    for part in qualname.split("."):
        found = getattr(found, "__dict__", {}).get(part)
    is_tuple = isinstance(found, type) and issubclass(found, tuple)
    return cast("Any", found) if is_tuple and getattr(cast("Any", found), "_fields", None) == tree.keys else None


def count_leaves(tree: Tree) -> int:
    return 1 if tree.kind == "leaf" else sum(count_leaves(c) for c in tree.children)


def compatible(have: Tree, want: Tree) -> bool:
    """Returns whether a pytree of structure `have` is accepted where `want` is expected.

    A class may be given as a dict or tuple. If both structures name their children, names and order must be the same.
    """
    if len(have.children) != len(want.children):
        return False
    leaf_like = {"leaf", "none"}
    if (have.kind in leaf_like or want.kind in leaf_like) and have.kind != want.kind:
        return False
    if have.keys and want.keys and [_bare(k) for k in have.keys] != [_bare(k) for k in want.keys]:
        return False
    return all(compatible(h, w) for h, w in zip(have.children, want.children, strict=True))


def _bare(key: str | int) -> str:
    """Strips the punctuation of key paths from a key: `.w`, `['w']` and `w` become equal."""
    return str(key).strip(".[]'\"")


def write_tree(tree: Tree) -> str:
    """Serializes a tree as text for the IR."""
    return json.dumps(_to_json(tree), separators=(",", ":"))


def read_tree(text: str) -> Tree:
    """Parses a tree. Raises ValueError for text that `write_tree` does not write, and for too many levels."""
    try:
        tree = _from_json(json.loads(text), DEEPEST_TREE)
    except RecursionError:
        raise ValueError(f"a tree of more than {DEEPEST_TREE} levels") from None
    except (KeyError, TypeError, AttributeError):
        raise ValueError("a value that does not describe a tree") from None
    if (problem := tree_problem(tree)) is not None:
        raise ValueError(problem)
    return tree


def tree_problem(tree: Tree) -> str | None:
    """Describes the first invalid node of a tree; returns None if JAX can have this structure."""
    keys, count = tree.keys, len(tree.children)
    if tree.kind not in _KINDS:
        return f"a tree with a {printable(tree.kind)}"
    if tree.kind in ("leaf", "none") and (count or keys):
        return f"a {tree.kind} with children"
    if tree.kind in ("list", "tuple") and keys:
        return f"a {tree.kind} with keys"
    if len(keys) != count and (keys or tree.kind not in _UNNAMED):
        return f"a {tree.kind} with {count} children and {len(keys)} keys"
    if len(set(keys)) != len(keys):
        return f"a {tree.kind} that has a key twice"
    return next((problem for c in tree.children if (problem := tree_problem(c)) is not None), None)


def _to_json(tree: Tree) -> Any:
    if tree == LEAF:
        return "leaf"
    row: dict[str, Any] = {"kind": tree.kind, "children": [_to_json(c) for c in tree.children]}
    return row | ({"keys": tree.keys} if tree.keys else {}) | ({"class": tree.cls} if tree.cls else {})


def _from_json(row: Any, levels: int) -> Tree:
    if row == "leaf":
        return LEAF
    if levels == 0:
        raise ValueError(f"a tree of more than {DEEPEST_TREE} levels")
    kind, keys, cls = row["kind"], tuple(row.get("keys", ())), row.get("class", "")
    if not (isinstance(kind, str) and isinstance(cls, str) and all(isinstance(k, str | int) for k in keys)):
        raise ValueError("a tree whose keys are not strings or numbers")
    return Tree(kind, tuple(_from_json(c, levels - 1) for c in row["children"]), keys, cls)
