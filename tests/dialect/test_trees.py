"""Structures of JAX become data and come back. Structures are compared by their children and the names of these."""

from collections import OrderedDict, defaultdict
from typing import Any, NamedTuple

import jax
import pytest
from jax.tree_util import register_pytree_node_class, register_pytree_with_keys_class

from pathways.dialect.trees import (
    LEAF,
    Tree,
    build_tree,
    compatible,
    count_leaves,
    describe_tree,
    read_tree,
    tree_problem,
    write_tree,
)  # fmt: skip


class Pair(NamedTuple):
    a: Any
    b: Any


@register_pytree_node_class
class Unnamed:
    """A class whose children have no names of their own."""

    def __init__(self, *children: Any) -> None:
        self.children = children

    def tree_flatten(self) -> tuple[Any, None]:
        return self.children, None

    @classmethod
    def tree_unflatten(cls, aux: None, children: Any) -> "Unnamed":
        return cls(*children)


@register_pytree_with_keys_class
class Named(Unnamed):
    """A class that names its children."""

    def tree_flatten_with_keys(self) -> tuple[Any, None]:
        return [(jax.tree_util.GetAttrKey(f"w{n}"), c) for n, c in enumerate(self.children)], None


@register_pytree_node_class
class Picky(Unnamed):
    """A class that takes numbers only."""

    def __init__(self, *children: Any) -> None:
        super().__init__(*(c + 0 for c in children))


def described(value: Any) -> Tree:
    return describe_tree(jax.tree.structure(value))


@pytest.mark.parametrize(
    ("value", "tree", "built"),
    [
        (1, LEAF, 0),
        (None, Tree("none"), None),
        ((1, [1]), Tree("tuple", (LEAF, Tree("list", (LEAF,)))), (0, [1])),
        ((), Tree("tuple"), ()),
        ({"b": 1, "a": 1}, Tree("dict", (LEAF, LEAF), ("a", "b")), {"a": 0, "b": 1}),
        ({1: 1, 0: 1}, Tree("dict", (LEAF, LEAF), (0, 1)), {0: 0, 1: 1}),
        ({(1, 2): 1}, Tree("dict", (LEAF,), ("(1, 2)",)), {"(1, 2)": 0}),
        (OrderedDict(b=1, a=1), Tree("dict", (LEAF, LEAF), ("b", "a")), {"b": 0, "a": 1}),
        (defaultdict(int, b=1, a=1), Tree("dict", (LEAF, LEAF), ("a", "b")), {"a": 0, "b": 1}),
        (Pair(1, None), Tree("namedtuple", (LEAF, Tree("none")), ("a", "b"), f"{__name__}:Pair"), Pair(0, None)),
        (Named(1, 1), Tree("object", (LEAF, LEAF), (".w0", ".w1"), f"{__name__}:Named"), {".w0": 0, ".w1": 1}),
        (Picky(1, 1), Tree("object", (LEAF, LEAF), (), f"{__name__}:Picky"), (0, 1)),
    ],
)
def test_a_structure_is_described_written_and_built(value: Any, tree: Tree, built: Any) -> None:
    assert described(value) == tree and read_tree(write_tree(tree)) == tree and tree_problem(tree) is None
    assert build_tree(tree, range(count_leaves(tree))) == built
    assert count_leaves(tree) == len(jax.tree.leaves(value))


def test_leaves_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="2 leaves too many"):
        build_tree(described((1, 1)), range(4))
    with pytest.raises(IndexError):
        build_tree(described((1, 1)), range(1))


def test_a_class_whose_fields_have_changed_becomes_a_dict() -> None:
    for keys, cls in ((("a", "c"), "Pair"), (("a", "b"), "Named"), (("a", "b"), "no_such")):
        tree = Tree("namedtuple", (LEAF, LEAF), keys, f"{__name__}:{cls}")
        assert build_tree(tree, [0, 1]) == dict(zip(keys, (0, 1), strict=True))


@pytest.mark.parametrize(
    ("have", "want", "fits"),
    [
        ((1, 1), [1, 1], True),
        ((1, 1), (1, 1, 1), False),
        ((1, 1), {"a": 1, "b": 1}, True),
        ({"a": 1, "b": 1}, Pair(1, 1), True),
        ({"a": 1, "c": 1}, Pair(1, 1), False),
        (Named(1, 1), {"w0": 1, "w1": 1}, True),
        (Named(1, 1), {"w1": 1, "w2": 1}, False),
        (1, (), False),
        ((), 1, False),
        (None, 1, False),
        (None, (), False),
        (1, 1, True),
        (None, None, True),
        ({}, (), True),
        ((1, (1, 1)), (1, 1), False),
        ((1, (1, 1)), (1, [1, 1]), True),
        (((1, 1), 1), ((1,), 1), False),
    ],
)
def test_structures_fit_whose_children_fit(have: Any, want: Any, fits: bool) -> None:
    assert compatible(described(have), described(want)) is fits


@pytest.mark.parametrize(
    ("tree", "problem"),
    [
        (Tree("set"), "a tree with a set"),
        (Tree("leaf", (LEAF,)), "a leaf with children"),
        (Tree("leaf", (), ("a",)), "a leaf with children"),
        (Tree("none", (LEAF,)), "a none with children"),
        (Tree("tuple", (LEAF,), ("a",)), "a tuple with keys"),
        (Tree("dict", (LEAF, LEAF), ("a",)), "a dict with 2 children and 1 keys"),
        (Tree("dict", (LEAF,)), "a dict with 1 children and 0 keys"),
        (Tree("namedtuple", (LEAF,)), "a namedtuple with 1 children and 0 keys"),
        (Tree("object", (LEAF,), ("a", "b")), "a object with 1 children and 2 keys"),
        (Tree("dict", (LEAF, LEAF), ("a", "a")), "a dict that has a key twice"),
        (Tree("tuple", (LEAF, Tree("list", (Tree("set"),)))), "a tree with a set"),
        (Tree("tuple", (Tree("none", (LEAF,)), Tree("set"))), "a none with children"),
        (Tree("tuple", (LEAF, Tree("none"))), None),
    ],
)
def test_the_first_node_that_is_no_structure_is_described(tree: Tree, problem: str | None) -> None:
    assert tree_problem(tree) == problem


@pytest.mark.parametrize("text", ["", "{}", "[]", "3", "null", '{"kind":"dict","children":["leaf"],"keys":[1.5]}'])
def test_text_that_is_no_tree_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        read_tree(text)
