"""Tests that models of two libraries, cut into stages, train under all placements and schedules as in plain JAX."""

import importlib
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from support.models.staged import MICROBATCHES
from support.processes import run_python

from pathways.compiler.placement import POLICIES
from pathways.compiler.schedule import PROGRAM, SCHEDULES

MODELS = ("flax_nnx", "equinox_mlp")
STEPS = 3
PLACEMENTS = (*sorted(POLICIES), "layout")
SEEDS = range(2)


@pytest.fixture(scope="module", params=MODELS)
def models(request: pytest.FixtureRequest) -> Any:
    return importlib.import_module(f"support.models.{request.param}")


def trained(step: Any, arguments: tuple[Any, ...]) -> list[Any]:
    params, state, x, y = arguments
    losses: list[Any] = []
    for _ in range(STEPS):
        params, state, loss = step(params, state, x, y)
        losses.append(loss)
    return [np.asarray(v) for v in jax.tree.leaves((params, losses))]


@pytest.mark.long("a model of another library is compiled: 1 to 60 s each", keep=("equinox_mlp-m*",))
@pytest.mark.parametrize("placement", PLACEMENTS)
def test_three_steps_equal_plain_jax(models: Any, placement: str) -> None:
    count = len(models.built.arguments[0])
    model = models.build([f"island{i % 2}" for i in range(count)]) if placement == "pinned" else models.built
    lowered = model.program.lower(*model.arguments)
    if placement == "layout":
        placement = f"layout:stage*{count - 1} | stage"  # the last stage on the second island
    compiled = lowered.compile("islands=2,devices=8", placement=placement)
    assert compiled.plan.placement.startswith(placement)
    for have, need in zip(trained(compiled, model.arguments), trained(model.plain, model.arguments), strict=True):
        np.testing.assert_allclose(have, need, rtol=1e-5, atol=1e-5)


@pytest.mark.long("a model of another library is compiled: 1 to 60 s each", keep=("equinox_mlp-zero-bubble",))
@pytest.mark.parametrize("schedule", (PROGRAM, *SCHEDULES))
def test_three_steps_under_every_schedule_equal_plain_jax(models: Any, schedule: str) -> None:
    model = models.built
    lowered = model.program.lower(*model.arguments)
    for merge in (True, False):
        compiled = lowered.compile("islands=2,devices=8", schedule=schedule, merge=merge)
        assert compiled.plan.schedule.name == schedule and not compiled.plan.schedule.note
        assert compiled.plan.schedule.microbatches == MICROBATCHES
        for have, need in zip(trained(compiled, model.arguments), trained(model.plain, model.arguments), strict=True):
            np.testing.assert_allclose(have, need, rtol=1e-5, atol=1e-5)


@pytest.mark.long("a model of another library is compiled: 1 to 60 s each")
def test_plans_have_equal_bytes_under_two_hash_seeds(root: Path, tmp_path: Path) -> None:
    """Compiles all samples and models with `pwc compile`, in one process for each seed."""
    figure2 = tmp_path / "compile_figure2.py"  # the paper's program has no example arguments
    figure2.write_text(
        f"import sys; sys.path.insert(0, {str(root / 'samples')!r})\n"
        "import numpy as np, pathways as pw, figure2\n"
        "program = pw.program(figure2.f.function, example_args=(np.ones(2),))\n"
    )
    samples = [p for p in sorted((root / "samples").glob("*.py")) if p.stem not in ("figure2", "elastic")]
    sources = [figure2, *samples, *(root / "tests" / "support" / "models" / f"{m}.py" for m in MODELS)]
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from pathways.cli.main import main\n"
        "for i, source in enumerate(sys.argv[3:]):\n"
        "    main(['compile', source, '--topology', 'islands=2,devices=8', '--placement', 'optimal',\n"
        "          '-o', f'{sys.argv[2]}/{i}.bin'], standalone_mode=False) and sys.exit(1)\n"
    )
    plans: list[list[bytes]] = []
    for seed in SEEDS:
        folder = tmp_path / str(seed)
        folder.mkdir()
        arguments = [str(root / "tests"), str(folder), *map(str, sources)]
        done = run_python("-c", script, *arguments, PYTHONHASHSEED=str(seed), PYTHONWARNINGS="ignore")
        assert done.returncode == 0, done.stderr
        plans.append([(folder / f"{i}.bin").read_bytes() for i in range(len(sources))])
    for others in plans[1:]:
        assert [a == b for a, b in zip(plans[0], others, strict=True)] == [True] * len(sources)
