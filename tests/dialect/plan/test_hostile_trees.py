"""Trees of a plan must be structures of JAX, of limited depth. Reading them runs no code of the user."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from support.plan_mutations import archive, members_of
from support.processes import pwc_here

import pathways as pw
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.plan.codec import plan_message
from pathways.dialect.plan.nouns import Plan
from pathways.dialect.plan.plan_file import read_plan, write_plan
from pathways.dialect.trees import DEEPEST_TREE, LEAF, Tree, build_tree, describe_tree, read_tree, write_tree

TREES: dict[str, Any] = {
    "of no kind": {"kind": "zzz", "children": []},
    "a key twice": {"kind": "dict", "children": ["leaf", "leaf"], "keys": ["a", "a"]},
    "a key too few": {"kind": "dict", "children": ["leaf", "leaf"], "keys": ["a"]},
    "keys that are lists": {"kind": "dict", "children": ["leaf"], "keys": [["a"]]},
    "a leaf with children": {"kind": "leaf", "children": ["leaf"]},
    "nothing with children": {"kind": "none", "children": ["leaf"]},
    "a list with keys": {"kind": "list", "children": ["leaf"], "keys": ["a"]},
    "not a tree": 7,
    "no children": {"kind": "list"},
    "a class that is none": {"kind": "namedtuple", "children": ["leaf"], "keys": ["a"], "class": 7},
}


@pytest.mark.parametrize("case", list(TREES))
def test_an_invalid_tree_is_refused(pipe: Plan, case: str) -> None:
    text = json.dumps(TREES[case])
    with pytest.raises(ValueError):
        read_tree(text)
    members = members_of(write_plan(pipe))
    message = plan_message(members["plan.pb"])
    message.out_tree = text
    members["plan.pb"] = message.SerializeToString()
    with pytest.raises(PathwaysError, match="PWC0602"):
        read_plan(archive(members))


def test_the_depth_of_trees_is_limited(tmp_path: Path) -> None:
    def deep(levels: int) -> Any:
        tree: Any = 0.0
        for _ in range(levels):
            tree = (tree,)
        return tree

    assert read_tree(write_tree(describe_tree(jax.tree.structure(deep(DEEPEST_TREE))))).children
    for levels in (DEEPEST_TREE + 1, 400):
        text = '{"kind":"tuple","children":[' * levels + '"leaf"' + "]}" * levels
        with pytest.raises(ValueError, match="levels"):
            read_tree(text)
        with pytest.raises(ValueError, match="levels"):
            describe_tree(jax.tree.structure(deep(levels)))
    with pytest.raises(ValueError, match="levels"):
        read_tree("[" * 100_000)
    with pytest.raises(PathwaysError, match="PWC0104"):
        pw.program(lambda x: deep(DEEPEST_TREE + 1)).lower(np.float32(1))
    deepest = pw.program(lambda x: (x, deep(DEEPEST_TREE - 1))).lower(np.float32(1)).compile()
    deepest.save(tmp_path / "deep.bin")
    loaded = pw.load(tmp_path / "deep.bin")
    assert len(jax.tree.leaves(loaded(np.float32(1)))) == 2
    for command in (("inspect", "--json"), ("inspect",), ("check",), ("run",)):
        code, _, err = pwc_here(command[0], str(tmp_path / "deep.bin"), *command[1:])
        assert code == 0, err


class Pair(NamedTuple):
    a: Any
    b: Any


class Watched(Pair):
    """A named tuple that counts calls of its constructor."""

    made = 0

    def __new__(cls, a: Any, b: Any) -> "Watched":
        cls.made += 1
        return super().__new__(cls, a, b)


def test_a_tree_runs_no_code_of_the_classes_it_names(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Tree("namedtuple", (LEAF, LEAF), ("a", "b"), f"{__name__}:Watched")
    built = build_tree(watched, [1, 2])
    assert type(built) is Watched and built == (1, 2) and Watched.made == 0
    lazy = type(sys)("lazily")
    loaded: list[str] = []
    lazy.__getattr__ = loaded.append  # pyright: ignore[reportAttributeAccessIssue]
    monkeypatch.setitem(sys.modules, "lazily", lazy)
    assert build_tree(replace(watched, cls="lazily:Thing"), [1, 2]) == {"a": 1, "b": 2} and not loaded
    for cls in ("os:system", "subprocess:Popen", "", ":", "sys:path.append", "builtins:tuple"):
        assert build_tree(replace(watched, cls=cls), [1, 2]) == {"a": 1, "b": 2}
