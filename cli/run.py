"""`pwc run`"""

import contextlib
import json
import math
import statistics
import time
from functools import partial
from pathlib import Path
from typing import Any, cast

import click
import numpy as np

from pathways.api.array import Array
from pathways.api.process import process
from pathways.api.reference import Difference, compare, run_reference
from pathways.api.stages import DISPATCH, PARALLEL, Compiled, load
from pathways.api.tracing import trace as record
from pathways.cli.errors import Mismatch
from pathways.cli.inputs import SEED, collect, example_inputs, random_inputs
from pathways.cli.source import load_program, lower_program, split_spec
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.errors import CannotWrite
from pathways.dialect.files import whole_file
from pathways.dialect.topology import parse_bytes

EXAMPLE = """
\b
Examples:
  pwc run plan.bin --inputs in.npz --outputs out.npz
  pwc run plan.bin --input 'x=@x.npy' --input 'scale=0.5' --repeat 10
  pwc run samples/train_lm.py --reference
  pwc run plan.bin --repeat 5 --trace trace.json    # open it in https://ui.perfetto.dev
"""


@click.command("run", epilog=EXAMPLE)
@click.argument("source", metavar="PLAN | SRC.py[:PROGRAM]")
@click.option("--input", "assignments", multiple=True, metavar="NAME=@x.npy", help="One input: a file, or a value.")
@click.option("--inputs", type=click.Path(dir_okay=False, path_type=Path), help="All inputs, an .npz by name.")
@click.option("--outputs", type=click.Path(dir_okay=False, path_type=Path), help="Write all results, an .npz by name.")
@click.option("--repeat", type=click.IntRange(min=1), default=1, show_default=True, help="Run it so often.")
@click.option("--reference", is_flag=True, help="Also run step by step through JAX's public API, and compare.")
@click.option("--trace", type=click.Path(dir_okay=False, path_type=Path), help="Write what ran when, for Perfetto.")
@click.option("--fetch-limit", metavar="SIZE", help="The largest result to copy to the host; default: 16GiB.")
@click.option("--dispatch", type=click.Choice(DISPATCH), default=PARALLEL, show_default=True, help="How to enqueue.")
@click.option("--json", "as_json", is_flag=True, help="Print results and timings as JSON.")
def run(
    source: str,
    assignments: tuple[str, ...],
    inputs: Path | None,
    outputs: Path | None,
    repeat: int,
    reference: bool,
    trace: Path | None,
    fetch_limit: str | None,
    dispatch: str,
    as_json: bool,
) -> None:
    """Run a plan, or compile and run a source.

    A source runs on its example_args where these are arrays. Without inputs a plan runs on seeded random data.
    """
    if outputs is not None and outputs.suffix != ".npz":
        problem = f"the ending {outputs.suffix!r}"
        raise PathwaysError(CannotWrite(path=str(outputs), problem=problem, rule="a file that ends in .npz"))
    if fetch_limit is not None:
        controller = process().controller
        click.get_current_context().call_on_close(partial(setattr, controller, "fetch_limit", controller.fetch_limit))
        controller.fetch_limit = parse_bytes("--fetch-limit", fetch_limit)
    compiled, example = _prepare(source, dispatch)
    arguments = _arguments(compiled, example, inputs, assignments)
    with contextlib.nullcontext() if trace is None else record(trace):
        results, timings = _repeat(compiled, arguments, repeat)
    differences = _differences(compiled, arguments, results) if reference else None
    if outputs is not None:
        with whole_file(outputs) as file:
            np.savez(
                file,
                allow_pickle=False,
                **{p.name: _host(r) for p, r in zip(compiled.plan.results, results, strict=True)},
            )
    _report(compiled, results, timings, differences, as_json)
    if differences is not None and (worst := [d for d in differences if not d.close]):
        have = "\n".join(str(d) for d in worst)
        raise PathwaysError(Mismatch(have_=have, tolerance=worst[0].tolerance))


def _prepare(source: str, dispatch: str) -> tuple[Compiled, list[Any] | None]:
    path, name = split_spec(source)
    if path.suffix != ".py":
        return load(path, dispatch=dispatch), None
    program = load_program(path, name)
    lowered = lower_program(program, path, process().platform)
    return lowered.compile(dispatch=dispatch), example_inputs(program.example_args)


def _arguments(
    compiled: Compiled, example: list[Any] | None, inputs: Path | None, assignments: tuple[str, ...]
) -> list[Any]:
    values = collect(compiled.plan, inputs, assignments)
    if values:
        return [values[p.name] for p in compiled.plan.inputs]
    if example is not None:
        return example
    if compiled.plan.inputs:
        click.echo(f"note: no inputs given; running on random data (seed {SEED})", err=True)
    return random_inputs(compiled.plan)


def _repeat(compiled: Compiled, arguments: list[Any], repeat: int) -> tuple[list[Array], list[dict[str, float]]]:
    results: list[Array] = []
    timings: list[dict[str, float]] = []
    for _ in range(repeat):
        start = time.perf_counter()
        results = compiled.run_flat(arguments)
        dispatched = time.perf_counter()
        for result in results:
            result.block_until_ready()
        done = time.perf_counter()
        timings.append({"dispatch_ms": 1e3 * (dispatched - start), "total_ms": 1e3 * (done - start)})
    return results, timings


def _differences(compiled: Compiled, arguments: list[Any], results: list[Array]) -> list[Difference]:
    expected = run_reference(compiled.plan, arguments)
    names = [p.name for p in compiled.plan.results]
    return [compare(n, _host(r), e) for n, r, e in zip(names, results, expected, strict=True)]


def _host(array: Array) -> "np.ndarray[Any, Any]":
    return array.stored()


def _report(
    compiled: Compiled,
    results: list[Array],
    timings: list[dict[str, float]],
    differences: list[Difference] | None,
    as_json: bool,
) -> None:
    ports = compiled.plan.results
    hosts = [_host(r) for r in results]
    if as_json:
        row: dict[str, Any] = {
            "version": 1,
            "program": compiled.plan.name,
            "results": {p.name: _as_json(h, p.dtype) for p, h in zip(ports, hosts, strict=True)},
            "runs": timings,
        }
        if differences is not None:
            row["reference"] = [{"name": d.name, "difference": d.relative, "close": d.close} for d in differences]
        click.echo(json.dumps(row))
        return
    for port, host in zip(ports, hosts, strict=True):
        click.echo(f"{port.name}: {port.dtype}{list(host.shape)} {_shown(host)}")
    total = statistics.median(t["total_ms"] for t in timings)
    dispatch = statistics.median(t["dispatch_ms"] for t in timings)
    click.echo(f"time: {total:.2f} ms a run (median of {len(timings)}), {dispatch:.2f} ms of it to dispatch")
    if differences is not None:
        worst = max((d.relative for d in differences), default=0.0)
        verdict = "equal" if all(d.close for d in differences) else "DIFFERENT"
        click.echo(f"reference: {verdict}, largest relative difference {worst:.2g} over {len(differences)} results")


def _shown(host: "np.ndarray[Any, Any]") -> str:
    text = np.array2string(host, threshold=8, edgeitems=2, precision=6, separator=", ")
    return " ".join(text.split())


def _as_json(host: "np.ndarray[Any, Any]", dtype: str) -> dict[str, Any]:
    row: dict[str, Any] = {"dtype": dtype, "shape": list(host.shape)}
    if host.size <= 64:
        wide: Any = np.complex128 if host.dtype.kind == "c" else np.float64
        exact = host.dtype.kind in "biu"
        row["values"] = _plain((host if exact else host.astype(wide)).tolist())
    return row


def _plain(value: Any) -> Any:
    """What JSON can say: complex numbers as pairs, what is not finite as text."""
    if isinstance(value, list):
        return [_plain(v) for v in cast("list[Any]", value)]
    if isinstance(value, complex):
        return [_plain(value.real), _plain(value.imag)]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
