"""Implements `pwc search`, which finds how to split the training step of a loss over machines. It prints the best
splits and can write the best one to a file for `pwc compile --choice`.
"""

from pathlib import Path

import click

from pathways.api.search import search
from pathways.cli.source import load_loss
from pathways.cli.source_spec import read_spec
from pathways.compiler.schedule import SCHEDULES
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.errors import CannotWrite
from pathways.dialect.topology import PRESETS

_EXAMPLE = """
\b
Examples:
  pwc search model.py:loss --topology paper-b --batch 64
  pwc search model.py:loss --topology machines.toml --batch 256 -o choice.toml
  pwc search model.py:step --topology gpu-host          (a program that calls pw.pipeline(loss))
  pwc compile model.py:step --topology gpu-host --choice choice.toml -o plan.bin
"""


@click.command("search", epilog=_EXAMPLE)
@click.argument("source", metavar="SRC.py:LOSS | SRC.py:PROGRAM | PKG.MODULE:LOSS")
@click.option("--topology", required=True,
              help=f"islands=2,devices=4[,flops=1e12][,memory=16GiB], a TOML file, or one of {', '.join(PRESETS)}.",
              )  # fmt: skip
@click.option("--batch", type=click.IntRange(min=1), help="Rows of the batch of a step; default: those of the example.")
@click.option("--example", help="Name of the example arguments; default: example_args, or example.")
@click.option("--batch-argnums", default="1", show_default=True, help="Which arguments are the batch: 1, or 1,2.")
@click.option("--has-aux", is_flag=True, help="The loss returns (loss, aux).")
@click.option("--param-specs", help="Name of the specs that split parameters over axis model; default: as in Megatron.")
@click.option("--optimizer-state-bytes", type=click.FloatRange(min=0), default=8.0, show_default=True,
              help="Bytes of optimizer state for each parameter; Adam: 8.")  # fmt: skip
@click.option("--efficiency", type=click.FloatRange(min=0, max=1, min_open=True),
              help="The fraction of its flop/s that a device reaches; default: the topology's, or 0.5.")  # fmt: skip
@click.option("--call-seconds", type=click.FloatRange(min=0),
              help="Overhead of each computation, in seconds; default: the topology's, or 2e-5.")  # fmt: skip
@click.option("--memory-gbps", type=click.FloatRange(min=0, min_open=True),
              help="Memory rate of a device in GB/s; default: the topology's, or 800.")  # fmt: skip
@click.option("--max-microbatches", type=click.IntRange(min=1), help="Default: 16 per stage.")
@click.option("--schedule", "schedules", multiple=True, type=click.Choice(list(SCHEDULES)), help="Default: all.")
@click.option("--top", type=click.IntRange(min=1), default=8, show_default=True, help="Rows of the table.")
@click.option("--compiled", type=click.IntRange(min=0), default=3, show_default=True,
              help="How many of the best splits are compiled, for the figures of their plans.")  # fmt: skip
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="File for the best split.")
def search_(
    source: str,
    topology: str,
    batch: int | None,
    example: str | None,
    batch_argnums: str,
    has_aux: bool,
    param_specs: str | None,
    optimizer_state_bytes: float,
    efficiency: float | None,
    call_seconds: float | None,
    memory_gbps: float | None,
    max_microbatches: int | None,
    schedules: tuple[str, ...],
    top: int,
    compiled: int,
    output: Path | None,
) -> None:
    """Find how to split a loss over machines: stages x data x model, microbatches, schedule.

    The loss is a plain function. Its example arguments (arrays or jax.ShapeDtypeStructs) are what --example names in
    the same file, or else `example_args` or `example` there: a tuple, or a function that returns it. Only their shapes
    count. A pw.program has example_args of its own. No devices are needed.
    """
    if output is not None and not output.parent.is_dir():
        raise PathwaysError(CannotWrite(path=str(output), problem=f"no folder {output.parent}"))
    loss, arguments, specs = load_loss(read_spec(source), example, param_specs)
    found = search(
        loss,
        *arguments,
        topology=topology,
        batch=batch,
        batch_argnums=_numbers(batch_argnums),
        has_aux=has_aux,
        param_specs=specs,
        optimizer_state_bytes=optimizer_state_bytes,
        efficiency=efficiency,
        call_seconds=call_seconds,
        memory_gbps=memory_gbps,
        max_microbatches=max_microbatches or 0,
        schedules=schedules or None,
        top=top,
        compiled=compiled,
    )
    click.echo(str(found))
    if output is not None:
        found.save(output)
        click.echo(f"wrote    {output}   next: pwc compile {source.rpartition(':')[0]}:STEP --choice {output}")


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(n) for n in text.split(","))
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a list of numbers like 1,2", param_hint="--batch-argnums") from None
