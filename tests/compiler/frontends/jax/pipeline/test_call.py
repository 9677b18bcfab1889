"""Tests how the arguments of a call of a pipelined loss are read."""

from collections.abc import Sequence

import jax
import numpy as np
import pytest

from pathways.compiler.frontends.jax.pipeline.call import read_call
from pathways.dialect.diagnostics import PathwaysError

PARAMS = {"w": np.ones((2, 2)), "act": len, "b": np.ones(2)}
X, Y = np.ones((8, 2)), np.ones(8)
STRUCTURE = jax.tree.structure(PARAMS)


@pytest.mark.parametrize("argnums", [(1, 2), (-2, -1)])
def test_arrays_are_of_the_batch_or_belong_to_the_tree_of_their_argument(argnums: Sequence[int]) -> None:
    found = read_call("loss", argnums, (PARAMS, X, Y), {"scale": {"by": {"rate": np.ones(())}}})
    assert found.names == ["['b']", "['w']", "", "", "['by']['rate']"]
    assert found.arrays == [1, 2, 3, 4, 5], "a function is no array"
    assert found.batch == [2, 3] and found.rows_of([found.leaves[i] for i in found.arrays]) == [8, 8]
    assert found.trees == [(0, STRUCTURE)]


def test_the_batch_may_be_before_other_arguments() -> None:
    found = read_call("loss", (0,), (X, PARAMS, "mean", PARAMS), {})
    assert found.batch == [0]
    assert found.trees == [(1, STRUCTURE), (3, STRUCTURE)]


@pytest.mark.parametrize("argnum", [2, -3])
def test_a_call_without_its_batch_is_refused(argnum: int) -> None:
    with pytest.raises(PathwaysError, match=rf"PWC0112(.*\n)*.*positional argument {argnum}, which is in"):
        read_call("loss", (argnum,), (PARAMS, X), {})
