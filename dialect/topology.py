"""Describes the machines that a plan is compiled for: islands (devices with fast links), the hosts of each island, and
the network between islands. All layers use it.

A spec is `islands=2,hosts=2,devices=4,kind=cpu,memory=16GiB`, with `devices` per host. A TOML file has the same keys,
and its islands may differ. `PRESETS` have names, such as `paper-c`.

    dcn_gbps = 12.5            # bytes/s between islands, in GB/s

    [[island]]
    name = "pod0"              # default island<N>
    kind = "cpu"               # the device kind that the device reports; default "any"
    hosts = 1
    devices = 4                # per host
    memory = "16GiB"           # per device; if left out, not checked
    flops = 1e12               # per device; if left out, unknown
    ici_gbps = 100.0           # between devices of the island

Further figures, such as `efficiency` and `dcn_us`, are for predictions of times: `pw.search`, `pwc simulate`.
"""

import difflib
import json
import math
import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, cast

from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.errors import BadSetting, BadTopology

ISLAND_FIGURES = ("efficiency", "memory_gbps", "call_us", "host_us", "ici_us")
"""Fields of an island that only predictions of times use."""
RATES = ("ici_gbps", "flops", *ISLAND_FIGURES)
"""Fields of an island that are numbers, but for the counts and the memory."""
CLUSTER_FIGURES = ("dcn_gbps", "dcn_us", "controller_us", "host_cores")
"""Fields at the top of a TOML file: those that no island has."""


@dataclass(frozen=True, slots=True)
class Island:
    """Physical devices with a fast interconnect. `memory` is in bytes a device, `flops` in flop/s a device.

    The other figures are for predictions of times; None is unknown. `efficiency` is the fraction of its flop/s that a
    device reaches, `memory_gbps` the rate of its memory. `call_us` is its overhead of a computation, and `host_us` the
    time in which a host enqueues one instruction. `ici_us` is the latency between two devices.
    """

    name: str
    devices: int
    hosts: int = 1
    kind: str = "any"
    memory: int | None = None
    flops: float | None = None
    ici_gbps: float = 100.0
    efficiency: float | None = None
    memory_gbps: float | None = None
    call_us: float | None = None
    host_us: float | None = None
    ici_us: float | None = None

    @property
    def size(self) -> int:
        return self.hosts * self.devices


@dataclass(frozen=True, slots=True)
class Topology:
    """The islands of a cluster, and the rate of the network between them in GB/s.

    The other figures are for predictions of times; None is unknown. `dcn_us` is the latency between islands,
    `controller_us` the time in which the controller starts a run on one host. `host_cores` is the number of cores that
    all devices share, if they are CPU devices of one machine: 1.5, say, if two busy cores slow each other down.
    """

    islands: tuple[Island, ...]
    dcn_gbps: float = 12.5
    dcn_us: float | None = None
    controller_us: float | None = None
    host_cores: float | None = None

    @property
    def size(self) -> int:
        return sum(i.size for i in self.islands)

    def island(self, name: str) -> Island:
        return next(i for i in self.islands if i.name == name)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(i.name for i in self.islands)

    def __str__(self) -> str:
        return ", ".join(f"{i.name} ({i.size} x {i.kind})" for i in self.islands)


def parse_topology(spec: str) -> Topology:
    """Parses a spec such as `islands=2,devices=4`, the path of a TOML file, or the name of a preset. Raises PWC0704."""
    if spec in PRESETS:
        return PRESETS[spec]
    if spec.endswith(".toml") or spec.startswith("@"):
        return load_topology(Path(spec.removeprefix("@")))
    pairs: dict[str, Any] = {}
    for part in filter(None, (p.strip() for p in spec.split(","))):
        key, equals, value = part.partition("=")
        if not equals:
            near = f"; a preset is one of {', '.join(PRESETS)}" if part == spec else ""
            raise _bad(spec, f'"{part}" is not key=value{near}')
        if key.strip() in pairs:
            raise _bad(spec, f"{key.strip()}= is given twice")
        pairs[key.strip()] = value.strip()
    count = _integer(spec, "islands", pairs.pop("islands", 1))
    if "name" in pairs and count > 1:
        raise _bad(spec, "two islands have the same name")
    return Topology(tuple(_island(spec, dict(pairs), i) for i in range(count)))


def load_topology(path: Path) -> Topology:
    """Reads a topology file. Raises PWC0704."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise _bad(str(path), str(error)) from None
    return topology_of(text, str(path))


def topology_of(text: str, source: str) -> Topology:
    """Parses the text of a topology file. Raises PWC0704, which names `source`."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _bad(source, str(error)) from None
    tables = table.pop("island", None)
    figures = {name: table.pop(name) for name in CLUSTER_FIGURES if name in table}
    if table:
        raise _bad(source, _unknown_key(sorted(table)[0], ("island", *CLUSTER_FIGURES)))
    if isinstance(tables, dict):
        raise _bad(source, "[island] is one table; write [[island]], a list of tables, even for a single island")
    if not isinstance(tables, list) or not tables:
        raise _bad(source, "there is no [[island]] table")
    if any(not isinstance(t, dict) for t in cast("list[Any]", tables)):
        raise _bad(source, "island is a list of values; islands are tables, each below a line [[island]]")
    islands = tuple(_island(source, cast("dict[str, Any]", t), i) for i, t in enumerate(cast("list[Any]", tables)))
    if len({i.name for i in islands}) < len(islands):
        raise _bad(source, "two islands have the same name")
    return Topology(islands, **{name: _number(source, name, value) for name, value in figures.items()})


def write_topology(topology: Topology) -> str:
    """Formats a topology as the text of a TOML file."""
    stated = [(name, getattr(topology, name)) for name in CLUSTER_FIGURES]
    lines = [f"{name} = {value}" for name, value in stated if value is not None]
    for island in topology.islands:
        lines += ["", "[[island]]"]
        for field in fields(island):
            value = getattr(island, field.name)
            if value is not None:
                lines.append(f"{field.name} = {_toml(value)}")
    return "\n".join(lines) + "\n"


def _toml(value: str | float) -> str:
    """Formats a string as TOML: the same as JSON with all characters kept, except that DEL must be escaped."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _island(source: str, table: dict[str, Any], index: int) -> Island:
    known = [f.name for f in fields(Island)]
    for key in table:
        if key not in known:
            raise _bad(source, _unknown_key(key, known))
    if "devices" not in table:
        raise _bad(source, "devices= (the number of devices of a host) is missing")
    stated = table.get("memory")
    memory = None if stated is None else _bytes(stated)
    if stated is not None and memory is None:
        raise _bad(source, f"{stated!r} is not a number of bytes such as 16GiB")
    return Island(
        name=str(table.get("name", f"island{index}")),
        devices=_integer(source, "devices", table["devices"]),
        hosts=_integer(source, "hosts", table.get("hosts", 1)),
        kind=str(table.get("kind", "any")),
        memory=memory,
        **{name: _number(source, name, table[name]) for name in RATES if name in table},
    )


_ELSEWHERE = {
    "islands": "write one table [[island]] for each island",
    "island": "write the number of islands as islands=2; [[island]] is a table of a TOML file",
    **dict.fromkeys(CLUSTER_FIGURES, "it belongs at the top of a TOML file"),
} | {f.name: "it belongs in an [[island]] table" for f in fields(Island)}


def _unknown_key(key: str, known: Iterable[str]) -> str:
    """Suggests the right spelling of an unknown key, or the table that it belongs to."""
    near = difflib.get_close_matches(key.lower(), known, n=1)
    advice = f"did you mean {near[0]}?" if near else f"keys are {', '.join(sorted(known))}"
    return f"unknown key {key!r}: {_ELSEWHERE.get(key, advice)}"


_UNITS = {"": 1, "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "KB": 10**3, "MB": 10**6, "GB": 10**9}


def readable(count: float) -> str:
    """Formats a number of bytes with a binary unit."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def parse_bytes(source: str, value: str) -> int:
    """Parses `16GiB`, `80 GB` or a plain number as bytes. Raises PWC0707, which names `source`."""
    size = _bytes(value)
    if size is None:
        raise PathwaysError(BadSetting(source=source, value=value, rule="a number of bytes", example=f"{source}=16GiB"))
    return size


def _bytes(value: Any) -> int | None:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", str(value))
    return int(float(match[1]) * _UNITS[match[2]]) if match is not None and match[2] in _UNITS else None


def _integer(source: str, key: str, value: Any) -> int:
    try:
        number = int(value)
    except (TypeError, ValueError):
        number = 0
    if not 1 <= number <= 1_000_000 or isinstance(value, float):
        raise _bad(source, f"{key}={value!r} is not a whole number from 1")
    return number


def _number(source: str, key: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = -1.0
    if not is_figure(key, number):
        raise _bad(source, f"{key}={value!r} is not a positive number")
    if key == "efficiency" and number > 1:
        raise _bad(source, f"efficiency={value!r} is not a fraction: write 0.5 for 50 %")
    return number


def is_figure(name: str, value: object, least: float = math.ulp(0.0)) -> bool:
    """Returns whether a field may have this value: a finite number from `least`, or from 0 for times."""
    least = 0.0 if name.endswith("_us") else least
    return isinstance(value, int | float) and least <= value < math.inf


def _bad(source: str, problem: str) -> PathwaysError:
    return PathwaysError(BadTopology(source=source, problem=problem))


_HOST_GBPS = 12.5
"""A network link of 100 Gbit/s, in GB/s: the assumption for each host of the paper's machines."""


def _tpu_v3(name: str, hosts: int, devices: int) -> Island:
    return Island(
        name, devices=devices, hosts=hosts, memory=16 * 10**9, flops=61.5e12, ici_gbps=70.0, memory_gbps=450.0
    )


def _gpu_host(name: str, memory: float, memory_gbps: float) -> Island:
    return Island(name, devices=8, memory=int(memory * 1e9), flops=989e12, ici_gbps=450.0, memory_gbps=memory_gbps)


def _tpu(hosts: int, devices: int, memory: int, flops: float, ici_gbps: float, memory_gbps: float) -> Island:
    return Island("island0", devices, hosts, "any", memory * 10**9, flops, ici_gbps, memory_gbps=memory_gbps)


def _two(hosts: int) -> Topology:
    """Two islands of TPU v3, whose hosts have a network link each."""
    islands = tuple(_tpu_v3(f"island{i}", hosts=hosts, devices=8) for i in range(2))
    return Topology(islands, dcn_gbps=hosts * _HOST_GBPS)


_H100, _H200 = (80.0, 3350.0), (141.0, 4800.0)
PRESETS: dict[str, Topology] = {
    "paper-a": Topology((_tpu_v3("island0", hosts=512, devices=4),), dcn_gbps=_HOST_GBPS),
    "paper-b": Topology((_tpu_v3("island0", hosts=64, devices=8),), dcn_gbps=_HOST_GBPS),
    "paper-c": Topology(tuple(_tpu_v3(f"island{i}", hosts=4, devices=8) for i in range(4)), dcn_gbps=4 * _HOST_GBPS),
    "paper-2x512": _two(hosts=64),
    "paper-2x1024": _two(hosts=128),
    "gpu-host": Topology((_gpu_host("island0", *_H100),), dcn_gbps=_HOST_GBPS),
    "gpu-hosts-2": Topology(tuple(_gpu_host(f"island{i}", *_H100) for i in range(2)), dcn_gbps=4 * _HOST_GBPS),
    "h200-hosts-2": Topology(tuple(_gpu_host(f"island{i}", *_H200) for i in range(2)), dcn_gbps=4 * _HOST_GBPS),
    "tpu-v5e-pod": Topology((_tpu(32, 8, 16, 197e12, 200.0, 819.0),), dcn_gbps=800.0),
    "tpu-v5p-512": Topology((_tpu(128, 4, 95, 459e12, 600.0, 2765.0),), dcn_gbps=3200.0),
    "tpu-v6e-pod": Topology((_tpu(32, 8, 32, 918e12, 448.0, 1640.0),), dcn_gbps=3200.0),
}
"""Topologies by the name that `--topology` accepts.

The paper states islands, hosts and devices (section 5, table of machines). Memory, flop/s (bfloat16) and rates are the
vendors' figures: for a core of a TPU v3, for an SXM module of an H100 or H200, and for a chip of the other TPUs. The
paper states no network rates, so these are assumptions: one link of 100 Gbit/s a host. GPU hosts have four. The
rates of v5e and v6e are those of a pod's network, and that of v5p assumes 200 Gbit/s a host.
"""
