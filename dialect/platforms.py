"""The differences between platforms, one row each; no other file states anything about a platform.

A new platform is a row in `PLATFORMS`. A row that was never tried says so; `pwc doctor` prints the row of this host.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pathways.dialect.known_custom_calls import ON_CPU, ON_GPU, ON_TPU

_NEVER = str((1 << 31) - 1)
"""Seconds: the longest time limit that XLA accepts."""


@dataclass(frozen=True)
class MadeAtWill:
    """Limits of devices that a process makes at will: how many at the least and at the most, and the threads of each.

    Only half of those that are made are handed out: `spare` times as many are made as are used.
    """

    fewest: int
    most: int
    threads: int
    """Threads of XLA for each device."""
    spare: int
    kind: str
    """The kind that the devices state."""


@dataclass(frozen=True)
class Platform:
    """The facts about one platform. None or empty: not known, or not there."""

    name: str
    """The name, as `jax.default_backend()` returns it."""
    lowered_as: tuple[str, ...]
    """The names under which JAX lowers for it: of several, one a vendor."""
    tried: str = ""
    """The versions of jax with which this project ran there; empty: never."""
    made_at_will: MadeAtWill | None = None
    in_flight: int = 16
    """The most executions in flight on a device. Beyond 32, collectives hang on CPU (jaxlib 0.10, measured)."""
    in_flight_across: int = 2
    """As that, where other processes take part: more only make each of them slower (CPU, measured)."""
    apart: int = 0
    """Gangs of up to so many devices are started one device after the other, where none needs another; 0: never."""
    on_host: bool = False
    """Whether devices compute with this process's CPU time, and stuck launches can be given up: hangs are proved."""
    callback: str | None = None
    """The custom call that calls Python back, without the arguments of XLA's own."""
    compile_options: Mapping[str, str] = field(default_factory=dict[str, str])
    """Options of XLA that differ from its defaults."""
    custom_calls: frozenset[str] = frozenset()
    """The custom calls that a plan may name."""
    broken_collective: str = ""
    """What errors of a collective say whose partner, in another process, is gone: such text is in no other error."""
    ray_resource: str = ""
    """What Ray calls one of its devices: a node has so many, and a host asks for one for each device."""


PLATFORMS: dict[str, Platform] = {
    row.name: row
    for row in (
        Platform(
            "cpu",
            ("cpu",),
            tried="jax 0.10, 0.12",
            # A larger pool of threads makes every launch slower. XLA has 4 threads a device, and Linux 65,530 maps a
            # process, 2 a thread: beyond that XLA ends the process. The pool of a client has one thread a device, and
            # a collective holds one a device until all have come: with none to spare, whatever else needs a thread
            # deadlocks it (jaxlib 0.10, seen).
            made_at_will=MadeAtWill(fewest=4, most=6000, threads=4, spare=2, kind="cpu"),
            apart=16,
            on_host=True,
            callback="xla_ffi_python_cpu_callback",
            # Our watchdog reports what hangs; XLA's would abort the process first.
            compile_options={"xla_cpu_collective_call_terminate_timeout_seconds": _NEVER},
            custom_calls=ON_CPU,
            broken_collective="external/gloo/gloo/transport",
            ray_resource="CPU",
        ),
        Platform(
            "gpu",
            ("cuda", "rocm"),
            tried="jax 0.11, one H100",
            callback="xla_ffi_python_gpu_callback",
            custom_calls=ON_GPU,
            ray_resource="GPU",
        ),
        Platform("tpu", ("tpu",), custom_calls=ON_TPU, ray_resource="TPU"),
    )
}
"""Platforms by name. GPU: as seen on one device, and else, as TPU, from JAX's documentation and sources."""

EVERYWHERE = "cpu"
"""The platform that every host has: for IR that says none."""


def platform_named(name: str) -> Platform:
    """Returns the row of a platform; an unknown one has the devices of its host, and no custom calls."""
    return PLATFORMS.get(name) or Platform(name, (name,))


def is_broken_collective(text: str) -> bool:
    """Whether an error is that of a collective whose partner, in another process, is gone."""
    return any(row.broken_collective and row.broken_collective in text for row in PLATFORMS.values())
