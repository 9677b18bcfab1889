"""Few traces stand for all numbers of rows, where that is right; parameters are split as Megatron does."""

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

NUMBERS = [1, 2, 4, 8, 16]


def profiles(function: Any, params: Any = None) -> Profiles:
    return Profiles(SearchedLoss("f", function, (params or init(), batch())), NUMBERS, 4)


def test_three_traces_do_for_all_rows() -> None:
    found = profiles(loss)
    between = found.at(8)
    assert found.linear and found.traces == 3
    measured = Profiles(SearchedLoss("f", loss, (init(), batch())), [8], 4).at(8)
    assert between.is_like(measured) and between.is_close(measured)


def test_a_loss_that_compares_rows_is_traced_for_each() -> None:
    found = profiles(contrastive)
    flops = [float(found.at(n).spine.flops[-1]) for n in NUMBERS]
    assert not found.linear and found.traces == len(NUMBERS)
    assert flops[-1] > 2 * flops[-2]


def test_a_model_axis_halves_what_is_split() -> None:
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


def test_what_is_alike_but_whole_gets_a_pattern_of_its_own() -> None:
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


def test_specs_of_the_user_are_taken_as_they_are() -> None:
    subject = SearchedLoss("f", loss, (init(), batch()))
    found = Profiles(subject, NUMBERS, 4, subject.ask({r"'up'": P("model", None)}))
    assert set(found.split(2).dims.values()) == {0} and len(found.split(2).dims) == LAYERS


def test_a_checkpoint_is_work_that_is_done_again() -> None:
    def checkpointed(params: Any, rows: Any) -> Any:
        for p in params:
            rows = jax.checkpoint(lambda x, p=p: x + jnp.tanh(x @ p["up"]) @ p["down"])(rows)
        return rows.mean()

    plain, again = profiles(loss).at(16), profiles(checkpointed).at(16)
    assert plain.again[-1] == 0 and again.again[-1] > 0.9 * again.spine.flops[-1]
