"""Lists what differs between platforms (CPU, GPU, TPU), one row for each. Compiler, hosts and `pwc` read the rows; no
other module may contain facts about a platform.

A new platform is a new row in `PLATFORMS`. A row has an empty `tried` if it was never run. `pwc doctor` prints the row
of this host.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pathways.dialect.known_custom_calls import ON_CPU, ON_GPU, ON_TPU

_MAX_TIMEOUT_S = str((1 << 31) - 1)
"""The longest time limit, in seconds, that XLA accepts."""


@dataclass(frozen=True)
class MadeAtWill:
    """Limits of virtual devices that a process can create: minimum and maximum count, and threads for each.

    `spare` times as many devices are created as are used. With `spare` 2, only half of them are used.
    """

    fewest: int
    max_count: int
    threads: int
    """XLA threads for each device."""
    spare: int
    kind: str
    """The device kind that these devices report."""


@dataclass(frozen=True)
class Platform:
    """The facts about one platform. None or empty: unknown, or absent."""

    name: str
    """The name, as `jax.default_backend()` returns it."""
    lowered_as: tuple[str, ...]
    """The platform names that JAX lowers for; if there are several, one for each vendor."""
    tried: str = ""
    """The versions of jax with which this project was run on it; empty: never."""
    made_at_will: MadeAtWill | None = None
    in_flight: int = 16
    """The most executions in flight on a device. Beyond 32, collectives hang on CPU (jaxlib 0.10, measured)."""
    in_flight_across: int = 2
    """The same limit for executions that span processes: more only make each of them slower (CPU, measured)."""
    apart: int = 0
    """The largest gang launched device by device, if its devices do not communicate; 0: gangs always launch whole."""
    on_host: bool = False
    """Whether devices use this process's CPU time and stuck launches can be abandoned. Then a hang can be proved."""
    callback: str | None = None
    """The custom call of host callbacks, the variant without XLA's own arguments."""
    compile_options: Mapping[str, str] = field(default_factory=dict[str, str])
    """XLA options that differ from XLA's defaults."""
    custom_calls: frozenset[str] = frozenset()
    """The custom calls that a plan may name."""
    broken_collective: str = ""
    """Text in the error of a collective whose peer process was lost; no other error contains it."""
    ray_resource: str = ""
    """Ray's resource name for one device. A host requests one unit for each device."""


PLATFORMS: dict[str, Platform] = {
    row.name: row
    for row in (
        Platform(
            "cpu",
            ("cpu",),
            tried="jax 0.10, 0.12",
            # A larger thread pool makes every launch slower. XLA has 4 threads a device; Linux allows 65,530 maps a
            # process, and a thread takes 2. Beyond that XLA aborts the process. A client's pool has one thread a
            # device. A collective holds one thread a device until all devices join it. Without a spare thread, any
            # other work that needs one deadlocks it (jaxlib 0.10, seen).
            made_at_will=MadeAtWill(fewest=4, max_count=6000, threads=4, spare=2, kind="cpu"),
            apart=16,
            on_host=True,
            callback="xla_ffi_python_cpu_callback",
            # Our watchdog reports hangs. XLA's watchdog would abort the process first.
            compile_options={"xla_cpu_collective_call_terminate_timeout_seconds": _MAX_TIMEOUT_S},
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
"""Platforms by name. GPU: observed on one device, the rest from JAX's documentation and source, like all of TPU."""

EVERYWHERE = "cpu"
"""The platform that every host has; used for IR that states no platform."""


def platform_named(name: str) -> Platform:
    """Returns the row of a platform; an unknown platform gets a row with default values and no custom calls."""
    return PLATFORMS.get(name) or Platform(name, (name,))


def is_broken_collective(text: str) -> bool:
    """Whether an error text is that of a collective whose peer process was lost."""
    return any(row.broken_collective and row.broken_collective in text for row in PLATFORMS.values())
