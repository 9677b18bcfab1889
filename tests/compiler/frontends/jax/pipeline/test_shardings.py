"""Tests how the inputs of a stage are split over its mesh, and which slices and specs are refused."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

import pathways as pw
from pathways.compiler.frontends.jax.pipeline.graph import DATA, PARAMETER, Operation, Value
from pathways.compiler.frontends.jax.pipeline.shardings import Specs, axes_of, shared_abstract_mesh, stage_meshes
from pathways.dialect.diagnostics import PathwaysError

NAMES = ["['a']", "['b']", "['c']"]
AVALS = [jax.ShapeDtypeStruct((8, 8), jnp.float32)] * 3


def slices(*devices: int) -> list[Any]:
    made = pw.make_virtual_device_set()
    return [made.add_slice(devices=n) for n in devices]


def mesh_of(shape: tuple[int, int] = (2, 2)) -> Any:
    return slices(shape[0] * shape[1])[0].mesh(("data", "model"), shape)


def specs(given: Any, trees: Any = ()) -> Specs:
    return Specs(given, NAMES, AVALS, trees)


def parameter(argument: int) -> Value:
    return Value(AVALS[0], PARAMETER, argument)


def data(*shape: int, depends: int = DATA) -> Value:
    return Value(jax.ShapeDtypeStruct(shape, jnp.float32), depends)


@pytest.mark.parametrize(
    ("shape", "rows", "split"),
    [
        ((8, 3), 8, True),
        ((2, 3), 1, True),
        ((16,), 8, True),
        ((12,), 8, False),
        ((8,), 0, False),
        ((), 8, False),
        ((4,), 8, False),
    ],
)
def test_values_with_the_rows_of_the_batch_are_split(shape: tuple[int, ...], rows: int, split: bool) -> None:
    expected = P("data") if split else P()
    assert specs(None).of(data(*shape), mesh_of(), rows).spec == expected
    assert specs(None).of(data(*shape, depends=PARAMETER | DATA), mesh_of(), rows).spec == expected
    assert specs(None).of(data(*shape, depends=PARAMETER), mesh_of(), rows).spec == P()


def test_parameters_without_specs_are_whole() -> None:
    """Also if a parameter has as many rows as the batch."""
    assert specs(None).of(parameter(0), mesh_of(), 8).spec == P()


def test_rows_that_the_devices_do_not_divide_are_not_split() -> None:
    assert specs(None).of(data(6, 3), mesh_of((2, 1)), 6).spec == P("data")
    assert specs(None).of(data(6, 3), mesh_of((4, 1)), 6).spec == P()
    only_model = slices(2)[0].mesh("model")
    found = specs(None).of(data(6, 3), only_model, 6)
    assert (found.spec, found.mesh) == (P(), only_model)


def test_specs_of_parameters_are_found_by_function() -> None:
    asked: list[Any] = []

    def function(path: str, leaf: Any) -> Any:
        asked.append((path, leaf))
        return P("model") if path == "['b']" else None

    found = specs(function)
    assert [found.of(parameter(i), mesh_of(), 8).spec for i in range(3)] == [P(), P("model"), P()]
    assert asked == list(zip(NAMES, AVALS, strict=True))


def test_specs_of_parameters_are_found_by_the_first_pattern_that_is_in_a_path() -> None:
    found = specs({"'[bc]'": P("model"), "c": P("data"), "^x": P("data")})
    assert [found.of(parameter(i), mesh_of(), 8).spec for i in range(3)] == [P(), P("model"), P("model")]


def test_a_tree_of_specs_belongs_to_the_argument_with_its_structure() -> None:
    """The first argument is one array, the second a dict of two; None is no spec."""
    one, two = jax.tree.structure(0), jax.tree.structure({"b": 0, "c": 0})
    found = specs({"b": None, "c": P("model")}, [(0, one), (1, two)])
    assert [found.of(parameter(i), mesh_of(), 8).spec for i in range(3)] == [P(), P(), P("model")]
    first = specs(P("data"), [(0, one), (1, two)])
    assert [first.of(parameter(i), mesh_of(), 8).spec for i in range(3)] == [P("data"), P(), P()]


@pytest.mark.parametrize("given", [[P(), P()], {"a": 3}, {3: P()}, {"b": P(), "c": [P()]}])
def test_specs_that_fit_no_argument_are_refused(given: Any) -> None:
    count = len(jax.tree.leaves(given, is_leaf=lambda leaf: isinstance(leaf, P)))
    with pytest.raises(PathwaysError, match=r"PWC0112(.*\n)*.*a tree of \d leaves") as caught:
        specs(given, [(0, jax.tree.structure(0))])
    assert count in (1, 2) and "param_specs matches no argument" in str(caught.value)


def sliced(source: Value, *others: Value) -> Value:
    made = Value(source.aval, source.depends)
    made.maker = Operation("slice", [source, *others], [made], list)
    return made


def test_a_slice_of_a_stacked_parameter_is_split_as_the_parameter_is() -> None:
    found = specs(lambda path, leaf: P(None, "model"))
    assert found.of(sliced(parameter(1)), mesh_of(), 8).spec == P(None, "model")
    assert found.of(sliced(sliced(parameter(1))), mesh_of(), 8).spec == P(None, "model")
    assert found.of(sliced(data(8, 8, depends=PARAMETER)), mesh_of(), 8).spec == P()
    assert found.of(sliced(parameter(1), parameter(0)), mesh_of(), 8).spec == P(), "made of two values"
    batch = Value(AVALS[0], DATA, argument=0)
    assert found.of(batch, mesh_of(), 8).spec == P("data"), "an argument that is no parameter"


def test_a_slice_without_a_mesh_splits_the_batch_over_its_devices() -> None:
    one, other = slices(2, 3)
    assert [m.shape for m in stage_meshes([one, other])] == [{"data": 2}, {"data": 3}]
    assert [m.shape for m in stage_meshes(one)] == [{"data": 2}]
    mesh = mesh_of()
    assert stage_meshes(mesh) == [mesh] and stage_meshes([mesh, one])[0] is mesh


@pytest.mark.parametrize(("given", "have"), [([], "nothing"), ([1, "a"], "int, str")])
def test_other_objects_are_no_slices(given: Any, have: str) -> None:
    with pytest.raises(PathwaysError, match="PWC0112") as caught:
        stage_meshes(given)
    assert have in str(caught.value)
    with pytest.raises(PathwaysError, match="PWC0112"):
        stage_meshes([*slices(1), *given, 3])


def test_stages_share_an_abstract_mesh_only_if_all_have_the_same_shape() -> None:
    two, four, same = (s.mesh("data") for s in slices(2, 4, 2))
    assert shared_abstract_mesh([two, same]) == two.abstract_mesh
    assert shared_abstract_mesh([two, same, four]) is None
    assert shared_abstract_mesh([two]) is not None


def test_a_loss_may_name_the_mesh_axes_that_all_stages_share() -> None:
    two, four, same = (s.mesh("data") for s in slices(2, 4, 2))
    current: Any = jax.sharding.get_abstract_mesh
    for meshes, axes in (([two, same], ("data",)), ([two, four], ()), ([], ())):
        with axes_of(meshes):
            assert current().axis_names == axes
