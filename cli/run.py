"""Implements `pwc run`, which runs a plan file, or compiles a Python source and runs it at once. It prints or saves the
results, and can compare them with a slow reference run.
"""

import contextlib
import math
import statistics
import time
from functools import partial
from pathlib import Path
from typing import Any, cast

import click
import ml_dtypes
import numpy as np

from pathways.api import npz
from pathways.api.array import Array
from pathways.api.cluster import cluster as start_cluster
from pathways.api.cluster import connect
from pathways.api.dispatching import DISPATCH, PARALLEL
from pathways.api.process import process
from pathways.api.reference import Difference, check_reference, compare, run_reference
from pathways.api.stages import Compiled, load
from pathways.api.tracing import trace as record
from pathways.cli.errors import BadSource, Mismatch
from pathways.cli.groups import ROWS, counted, grouped
from pathways.cli.inputs import SEED, collect, example_inputs, random_inputs
from pathways.cli.json_output import json_option, print_json
from pathways.cli.source import load_program, lower_program
from pathways.cli.source_spec import METAVAR, Source, read_spec
from pathways.compiler.placement import POLICIES
from pathways.compiler.schedule import PROGRAM, SCHEDULES
from pathways.dialect.activities import Activity
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.errors import CannotWrite
from pathways.dialect.files import whole_file
from pathways.dialect.plan.leaves import leaf_ports
from pathways.dialect.plan.nouns import Plan
from pathways.dialect.topology import PRESETS, parse_bytes

_EXAMPLE = """
\b
Examples:
  pwc run plan.bin --inputs in.npz --outputs out.npz
  pwc run plan.bin --input 'x=@x.npy' --input 'scale=0.5' --repeat 10
  pwc run samples/train_lm.py --reference
  pwc run package.model:step --topology islands=2,devices=4 --placement min-cut --schedule 1f1b
  pwc run plan.bin --cluster islands=2,devices=4    # a process for each island
  pwc run plan.bin --repeat 5 --trace trace.json    # open it in https://ui.perfetto.dev
"""


@click.command("run", epilog=_EXAMPLE)
@click.argument("source", metavar=f"PLAN | {METAVAR}")
@click.option("--input", "assignments", multiple=True, metavar="NAME=@x.npy", help="One input: a file, or a value.")
@click.option("--inputs", type=click.Path(dir_okay=False, path_type=Path), help="All inputs by name, an .npz file.")
@click.option(
    "--outputs", type=click.Path(dir_okay=False, path_type=Path), help="Write all results by name, an .npz file."
)
@click.option("--repeat", type=click.IntRange(min=1), default=1, show_default=True, help="Number of runs.")
@click.option("--reference", is_flag=True, help="Also run step by step through JAX's public API, and compare.")
@click.option(
    "--trace", type=click.Path(dir_okay=False, path_type=Path), help="Write a trace of the runs, for Perfetto."
)
@click.option("--fetch-limit", metavar="SIZE", help="The largest result to copy to the host; default: 16GiB.")
@click.option("--topology", help=f"For sources: a spec, a TOML file, or one of {', '.join(PRESETS)}.")
@click.option("--placement", help=f"For sources: {', '.join(sorted(POLICIES))}, or FILE.py:NAME; default: spread.")
@click.option("--schedule", help=f"For sources: {', '.join((PROGRAM, *SCHEDULES))}, or a table as FILE.csv.")
@click.option(
    "--dispatch", type=click.Choice(DISPATCH), default=PARALLEL, show_default=True, help="How to enqueue computations."
)
@click.option("--cluster", metavar="SPEC", help="Run each island in its own process: islands=2,devices=4.")
@click.option("--address", metavar="NAME", help="Run on a cluster that `pwc cluster start` has started.")
@click.option("--all", "everything", is_flag=True, help="Print every result, however many there are.")
@json_option
def run(
    source: str,
    assignments: tuple[str, ...],
    inputs: Path | None,
    outputs: Path | None,
    repeat: int,
    reference: bool,
    trace: Path | None,
    fetch_limit: str | None,
    topology: str | None,
    placement: str | None,
    schedule: str | None,
    dispatch: str,
    cluster: str | None,
    address: str | None,
    everything: bool,
    as_json: bool,
) -> None:
    """Run a plan, or compile and run a source.

    A source runs on its example_args if these are arrays. Without inputs, a plan runs on seeded random data. If there
    are many results, each subtree of them is one row.
    """
    if outputs is not None and outputs.suffix != ".npz":
        problem = f"the ending {outputs.suffix!r}"
        rule, advice = "a file that ends in .npz", "--outputs out.npz"
        raise PathwaysError(CannotWrite(path=str(outputs), problem=problem, rule=rule, advice=advice))
    limit = None if fetch_limit is None else parse_bytes("--fetch-limit", fetch_limit)
    if cluster is not None:
        click.get_current_context().with_resource(start_cluster(cluster))
    elif address is not None:
        click.get_current_context().with_resource(connect(address, name=Path(source).stem))
    options = {"--topology": topology, "--placement": placement, "--schedule": schedule}
    with Activity(f"preparing {source}"):
        compiled, example = _prepare(source, dispatch, {o: v for o, v in options.items() if v is not None})
    if reference:
        check_reference(compiled.plan)
    controller = process().controller  # not earlier: a source may change settings
    _set(controller.watchdog, "ends_process", True)
    if limit is not None:
        _set(controller, "fetch_limit", limit)
    arguments = _arguments(compiled, example, inputs, assignments)
    with contextlib.nullcontext() if trace is None else record(trace):
        results, timings = _repeat(compiled, arguments, repeat)
    differences = _differences(compiled, arguments, results) if reference else None
    if outputs is not None:
        _write(outputs, compiled.plan, results)
    if as_json:
        _print_row(compiled.plan, results, timings, differences)
    else:
        _print(compiled.plan, results, timings, differences, everything)
    if differences is not None and (worst := [d for d in differences if not d.close]):
        have = "\n".join(str(d) for d in worst)
        raise PathwaysError(Mismatch(have_=have, tolerance=worst[0].tolerance))


def _set(what: object, name: str, value: Any) -> None:
    """Sets an attribute until this command completes."""
    click.get_current_context().call_on_close(partial(setattr, what, name, getattr(what, name)))
    setattr(what, name, value)


def _prepare(spec: str, dispatch: str, options: dict[str, str]) -> tuple[Compiled, list[Any] | None]:
    source = read_spec(spec)
    if not source.is_python:
        if options:
            raise _settled(source, options)
        return load(source.path, dispatch=dispatch), None
    program = load_program(source)
    lowered = lower_program(program, source, process().platform)
    compiled = lowered.compile(
        options.get("--topology"),
        placement=options.get("--placement", "spread"),
        schedule=options.get("--schedule", PROGRAM),
        dispatch=dispatch,
    )
    return compiled, example_inputs(program.example_args)


def _settled(source: Source, options: dict[str, str]) -> PathwaysError:
    have = f"{', '.join(options)} for a plan, in which this is already decided"
    flags = " ".join(f"{option} ..." for option in options)
    advice = f"pwc compile model.py {flags} -o plan.bin, or pwc run model.py {flags}"
    return PathwaysError(BadSource(path=str(source), have_=have, rule="a Python source", advice=advice))


def _write(path: Path, plan: Plan, results: list[Array]) -> None:
    """Writes all results, and prints how to read those whose types numpy does not support."""
    members: dict[str, Any] = npz.with_types(leaf_ports(plan.results), [_host(r) for r in results])
    with whole_file(path) as file:
        np.savez(file, allow_pickle=False, **members)
    raw = {name: dtype for name, dtype in npz.untold(leaf_ports(plan.results)).items() if hasattr(ml_dtypes, dtype)}
    if raw:
        name, dtype = next(iter(raw.items()))
        many = f"{name} is" if len(raw) == 1 else f"{len(raw)} results are"
        view = f'np.load("{path}")["{name}"].view(ml_dtypes.{dtype})'
        click.echo(f"note: {many} of a type that numpy does not support; read it with {view}", err=True)


def _arguments(
    compiled: Compiled, example: list[Any] | None, inputs: Path | None, assignments: tuple[str, ...]
) -> list[Any]:
    values = collect(compiled.plan, inputs, assignments)
    if values:
        return [values[p.name] for p in leaf_ports(compiled.plan.inputs)]
    if example is not None:
        return example
    if compiled.plan.inputs:
        click.echo(f"note: no inputs given; running on random data (seed {SEED})", err=True)
    return random_inputs(compiled.plan)


def _repeat(compiled: Compiled, arguments: list[Any], repeat: int) -> tuple[list[Array], list[dict[str, float]]]:
    results: list[Array] = []
    timings: list[dict[str, float]] = []
    with Activity(f"running {compiled.plan.name}", repeat if repeat > 1 else 0, "runs") as running:
        for running.done in range(repeat):
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
    names = [p.name for p in leaf_ports(compiled.plan.results)]
    return [compare(n, _host(r), e) for n, r, e in zip(names, results, expected, strict=True)]


def _host(array: Array) -> "np.ndarray[Any, Any]":
    return array.stored()


def _print_row(
    plan: Plan, results: list[Array], timings: list[dict[str, float]], differences: list[Difference] | None
) -> None:
    row: dict[str, Any] = {
        "program": plan.name,
        "results": {
            p.name: _as_json(_host(r), p.dtype) for p, r in zip(leaf_ports(plan.results), results, strict=True)
        },
        "runs": timings,
    }
    if differences is not None:
        row["reference"] = [{"name": d.name, "difference": d.relative, "close": d.close} for d in differences]
    print_json(row)


def _print(
    plan: Plan,
    results: list[Array],
    timings: list[dict[str, float]],
    differences: list[Difference] | None,
    everything: bool,
) -> None:
    groups, left = grouped(leaf_ports(plan.results), len(results) if everything else ROWS)
    for group in groups:
        if group.single is None:
            click.echo(f"{group.name}: {counted(group.ports)}")
            continue
        host = _host(results[group.members[0]])
        click.echo(f"{group.name}: {group.single.dtype}{list(host.shape)} {_shown(host)}")
    if left:
        click.echo(f"... and {len(left)} more ({counted(left)}): --all")
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
    """Converts a value for JSON: complex numbers to pairs, infinities and NaN to text."""
    if isinstance(value, list):
        return [_plain(v) for v in cast("list[Any]", value)]
    if isinstance(value, complex):
        return [_plain(value.real), _plain(value.imag)]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
