"""Tests cost profiles: three traces suffice for a linear loss, and parameters are split as in Megatron."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P
from support.searched import LAYERS, WIDTH, batch, contrastive, init, loss

from pathways.compiler.search.patterns import spec_patterns
from pathways.compiler.search.profile import Profiles
from pathways.compiler.search.split_parameters import split_parameters
from pathways.compiler.search.subject import SearchedLoss

ROW_COUNTS = [1, 2, 4, 8, 16]


def profiles(function: Any, params: Any = None) -> Profiles:
    return Profiles(SearchedLoss("f", function, (params or init(), batch())), ROW_COUNTS, 4)


def test_three_traces_profile_all_row_counts_of_a_linear_loss() -> None:
    found = profiles(loss)
    between = found.at(8)
    assert found.linear and found.traces == 3
    measured = Profiles(SearchedLoss("f", loss, (init(), batch())), [8], 4).at(8)
    assert between.is_like(measured) and between.is_close(measured)


def test_a_loss_that_compares_rows_is_traced_for_each_row_count() -> None:
    found = profiles(contrastive)
    flops = [float(found.at(n).spine.flops[-1]) for n in ROW_COUNTS]
    assert not found.linear and found.traces == len(ROW_COUNTS)
    assert flops[-1] > 2 * flops[-2]


def test_a_model_axis_of_size_two_halves_split_parameters() -> None:
    found = profiles(loss)
    whole, half = found.at(16), found.at(16, 2)
    assert whole.reduced[-1] == 0 and half.reduced[-1] == LAYERS * 16 * WIDTH * 4
    assert half.spine.parameters[-1] == whole.spine.parameters[-1] / 2
    assert half.spine.kept[-1] < whole.spine.kept[-1]


def test_the_first_product_splits_columns_and_the_second_rows() -> None:
    subject = SearchedLoss("f", loss, (init(), batch()))
    dims = profiles(loss).split(4).dims
    specs = spec_patterns(subject.names, dims, [i for i in subject.parameters if i not in dims])
    assert specs == {r"^\[\d+\]\['down'\]$": ("model",), r"^\[\d+\]\['up'\]$": ("", "model")}


def test_spec_patterns_do_not_match_whole_parameters_of_similar_name() -> None:
    names = ["['a'][0]", "['a'][1]"]
    assert spec_patterns(names, {0: 1}, [1]) == {r"^\['a'\]\[0\]$": ("", "model")}


def test_a_scan_over_stacked_layers_is_split_inside() -> None:
    def stacked(params: Any, rows: Any) -> Any:
        def layer(x: Any, p: Any) -> Any:
            return x + jnp.tanh(x @ p["up"]) @ p["down"], None

        return jax.lax.scan(layer, rows, params)[0].mean()

    params = {"up": jax.ShapeDtypeStruct((6, 8, 32), np.float32), "down": jax.ShapeDtypeStruct((6, 32, 8), np.float32)}
    jaxpr: Any = jax.make_jaxpr(stacked)(params, jax.ShapeDtypeStruct((4, 8), np.float32))
    found = split_parameters(jaxpr, frozenset({2}), 2)
    assert found.dims == {0: 1, 1: 2}
    assert max(found.reduced.values()) == 6 * 4 * 8 * 4


def test_specs_of_the_user_are_kept() -> None:
    subject = SearchedLoss("f", loss, (init(), batch()))
    found = Profiles(subject, ROW_COUNTS, 4, subject.ask({r"'up'": P("model", None)}))
    assert set(found.split(2).dims.values()) == {0} and len(found.split(2).dims) == LAYERS


def test_checkpointed_work_counts_as_recomputed() -> None:
    def checkpointed(params: Any, rows: Any) -> Any:
        for p in params:
            rows = jax.checkpoint(lambda x, p=p: x + jnp.tanh(x @ p["up"]) @ p["down"])(rows)
        return rows.mean()

    plain, again = profiles(loss).at(16), profiles(checkpointed).at(16)
    assert plain.again[-1] == 0 and again.again[-1] > 0.9 * again.spine.flops[-1]
