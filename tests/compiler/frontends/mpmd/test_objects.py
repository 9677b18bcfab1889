"""Tests `pw.from_mpmd` on objects of Shardy's package, and `pw.mpmd_backend`, with stand-ins for Shardy's classes."""

import sys
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.shardy_programs import module_of, recorded

import pathways as pw
from pathways.dialect.jax_api import ShapedArray

STAGES = "shardy.integrations.python.jax.mpmd.stages"


class FunctionInfo:
    """Stands in for Shardy's metadata of a traced function: its arguments, used or not, and its results."""

    def __init__(self, arguments: tuple[Any, ...], results: Any, kept: list[int], callbacks: tuple[Any, ...]) -> None:
        taken, self.input_tree = jax.tree.flatten(arguments)
        made, self.output_tree = jax.tree.flatten(results)
        self.global_flat_input_abstract_values = [ShapedArray(x.shape, x.dtype) for x in taken]
        self.global_flat_output_abstract_values = [ShapedArray(x.shape, x.dtype) for x in made]
        self.kept_inputs_indices = set(kept)
        self.const_args: list[Any] = []
        self.host_callbacks = callbacks
        self.name = "step"


class MpmdLowered(FunctionInfo):
    """Stands in for Shardy's class of this name, whose `compile` fails without a backend."""

    text: str

    def compiler_ir(self, dialect: str) -> Any:
        assert dialect == "mpmd"
        return module_of(self.text)

    def compile(self) -> Any:
        raise RuntimeError("requires Pathways backend")


class MpmdTraced:
    """Stands in for Shardy's traced programs, with the two functions that stop after phase IMPORT."""

    def __init__(self, text: str, info: FunctionInfo) -> None:
        self.text, self.info = text, info

    def _prepare_partitioning_args(self) -> Any:
        return module_of(self.text), SimpleNamespace(func_name="step"), SimpleNamespace(jax_fn_info=self.info)


def _apply_partitioning(module: Any, arguments: Any, phases: Any) -> Any:  # pyright: ignore[reportUnusedFunction]
    assert arguments.func_name == "step" and "IMPORT" in str(phases)
    return SimpleNamespace(mpmd_module=module)


def lowered(name: str, arguments: tuple[Any, ...], results: Any, *callbacks: Callable[..., Any]) -> MpmdLowered:
    program = recorded()[name]
    found = MpmdLowered(arguments, results, program.kept, callbacks)
    found.text = program.modules["partition"]
    return found


X, W = np.linspace(-1, 1, 32, dtype=np.float32).reshape(4, 8), np.eye(8, dtype=np.float32)


def test_arguments_keep_their_structure_and_names() -> None:
    compiled = pw.from_mpmd(lowered("t_plain", ({"x": X}, [W]), {"y": X})).compile()
    assert [p.name for p in compiled.plan.inputs] == ["arg0['x']", "arg1[0]"]
    assert [p.name for p in compiled.plan.results] == ["out['y']"]
    program = recorded()["t_plain"]
    found = compiled({"x": program.arguments[0]}, [program.arguments[1]])
    np.testing.assert_allclose(np.asarray(found["y"]), program.results[0], rtol=1e-5)


def test_an_unused_argument_is_still_accepted() -> None:
    program = recorded()["s2_unused_nodonate"]
    assert len(program.kept) == len(program.arguments) - 1
    info = lowered("s2_unused_nodonate", tuple(program.arguments), tuple(program.results))
    compiled = pw.from_mpmd(info).compile()
    (unused,) = set(range(len(program.arguments))) - set(program.kept)
    assert [i for i, p in enumerate(compiled.plan.inputs) if p.slot < 0] == [unused]
    for one, other in zip(compiled(*program.arguments), program.results, strict=True):
        np.testing.assert_allclose(np.asarray(one), other, rtol=1e-5, atol=1e-5)


def test_typed_keys_stay_keys() -> None:
    program, key = recorded()["t_key_arg"], jax.random.wrap_key_data(jnp.asarray(recorded()["t_key_arg"].arguments[1]))
    compiled = pw.from_mpmd(lowered("t_key_arg", (X, key), X)).compile()
    assert compiled.plan.inputs[1].dtype == "key<fry>"
    found = compiled(program.arguments[0], key)
    np.testing.assert_allclose(np.asarray(found), program.results[0], rtol=1e-5)


def test_host_callbacks_are_found_by_index() -> None:
    called: list[str] = []

    def tanh(name: str) -> Callable[..., Any]:
        def function(x: Any) -> Any:
            called.append(name)
            return (np.tanh(x),)

        return function

    program = recorded()["t_pure_callback"]
    compiled = pw.from_mpmd(lowered("t_pure_callback", (X, W), X, tanh("first"), tanh("second"))).compile()
    found = compiled(*program.arguments)
    want = np.tanh(np.tanh(program.arguments[0])) @ program.arguments[1]
    np.testing.assert_allclose(np.asarray(found), want, rtol=1e-5)
    assert set(called) == {"first", "second"}


def test_arrays_that_a_program_closes_over_are_refused() -> None:
    info = lowered("t_plain", (X, W), X)
    info.const_args = [X]
    with pytest.raises(pw.PathwaysError, match=r"PWC0122.*closes over"):
        pw.from_mpmd(info)


def test_a_traced_program_is_scheduled_by_this_compiler() -> None:
    program = recorded()["s2_gpipe"]
    info = FunctionInfo(tuple(program.arguments), tuple(program.results), program.kept, ())
    compiled = pw.from_mpmd(MpmdTraced(program.modules["import"], info)).compile(schedule="1f1b")
    assert (compiled.plan.schedule.name, compiled.plan.schedule.stages) == ("1f1b", 2)


def test_an_incompatible_version_of_shardy_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(sys.modules[__name__], "_apply_partitioning")
    with pytest.raises(pw.PathwaysError, match=r"PWC0123(.|\n)*MpmdTraced, whose module has no _apply_partitioning"):
        pw.from_mpmd(MpmdTraced("", FunctionInfo((), (), [], ())))


@pytest.fixture
def shardy(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    stages = ModuleType(STAGES)
    stages.MpmdLowered = MpmdLowered  # pyright: ignore[reportAttributeAccessIssue]
    monkeypatch.setitem(sys.modules, STAGES, stages)
    yield


@pytest.mark.usefixtures("shardy")
def test_mpmd_jit_compiles_only_inside_the_backend_block() -> None:
    program, info = recorded()["t_plain"], lowered("t_plain", (X, W), X)
    with pw.mpmd_backend("islands=2,devices=2"):
        compiled = info.compile()
        assert [s.island for s in compiled.plan.streams] == ["island0", "island1"]
        np.testing.assert_allclose(np.asarray(compiled(*program.arguments)), program.results[0], rtol=1e-5)
    with pytest.raises(RuntimeError, match="requires Pathways backend"):
        info.compile()


def test_the_mpmd_backend_is_refused_without_shardy() -> None:
    with pytest.raises(pw.PathwaysError, match=r"PWC0123(.|\n)*imported before"), pw.mpmd_backend():
        pass


def test_an_object_that_is_no_shardy_program_is_refused() -> None:
    with pytest.raises(pw.PathwaysError, match="PWC0120"):
        pw.from_mpmd(3)
