"""Topologies on a command line, amounts of bytes, and the machines that have names."""

import pytest

from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.topology import PRESETS, Island, Topology, parse_bytes, parse_topology, readable, topology_of

PAIR = Topology((Island("a", 4, hosts=2, kind="cpu"), Island("b", 3)))


def test_a_topology_counts_the_devices_of_all_hosts() -> None:
    assert (PAIR.islands[0].size, PAIR.size, PAIR.names) == (8, 11, ("a", "b"))
    assert PAIR.island("b").devices == 3 and str(PAIR) == "a (8 x cpu), b (3 x any)"


@pytest.mark.parametrize(
    ("spec", "islands"),
    [
        ("devices=4", [Island("island0", 4)]),
        (" islands = 2 , devices = 1 ,", [Island("island0", 1), Island("island1", 1)]),
        ("islands=1,devices=4,name=pod", [Island("pod", 4)]),
        ("devices=1000000,hosts=3", [Island("island0", 1_000_000, 3)]),
        (
            "devices=2,kind=gpu,memory=80GB,flops=1e12,ici_gbps=0.5",
            [Island("island0", 2, 1, "gpu", 80 * 10**9, 1e12, 0.5)],
        ),
    ],
)
def test_an_option_describes_equal_islands(spec: str, islands: list[Island]) -> None:
    assert parse_topology(spec) == Topology(tuple(islands), 12.5)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("islands=2,devices=4,name=pod", "two islands have the same name"),
        ("devices", '"devices" is not key=value'),
        ("paper-d", "a preset is one of paper-a, paper-b"),
        ("devices=4, devices=5", "devices= is given twice"),
        ("devices=0", "devices='0' is not a whole number from 1"),
        ("devices=many", "devices='many' is not a whole number from 1"),
        ("devices=1000001", "devices='1000001' is not a whole number from 1"),
        ("devices=4,hosts=-1", "hosts='-1' is not a whole number from 1"),
        ("devices=4,islands=2.0", "islands='2.0' is not a whole number from 1"),
        ("devices=4,flops=many", "flops='many' is not a positive number"),
        ("devices=4,ici_gbps=0", "ici_gbps='0' is not a positive number"),
        ("devices=4,ici_gbps=inf", "ici_gbps='inf' is not a positive number"),
        ("devices=4,flops=nan", "flops='nan' is not a positive number"),
        ("devices=4,memory=16XB", "'16XB' is not a number of bytes"),
    ],
)
def test_an_invalid_option_is_refused_with_its_value(spec: str, message: str) -> None:
    with pytest.raises(PathwaysError, match="PWC0704") as caught:
        parse_topology(spec)
    assert message in str(caught.value)


def test_a_file_needs_whole_numbers_and_tables() -> None:
    for text, message in (
        ("[[island]]\ndevices = 4.0\n", "devices=4.0 is not a whole number from 1"),
        ("island = [3, {devices = 4}]\n", "islands are tables"),
        ("[[island]]\nhosts = []\ndevices = 4\n", "hosts=[] is not a whole number from 1"),
        ("[[island]]\nflops = []\ndevices = 4\n", "flops=[] is not a positive number"),
    ):
        with pytest.raises(PathwaysError) as caught:
            topology_of(text, "it")
        assert message in str(caught.value)
    assert topology_of("[[island]]\ndevices = 4\n", "it") == Topology((Island("island0", 4),), 12.5)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1536, "1.5 KiB"), (2**20, "1.0 MiB"), (2**30, "1.0 GiB"),
        (2**40, "1.0 TiB"), (2**50, "1024.0 TiB"), (3 * 2**19, "1.5 MiB"),
    ],
)  # fmt: skip
def test_bytes_are_shown_in_powers_of_1024(count: int, text: str) -> None:
    assert readable(count) == text


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("7", 7), ("7B", 7), ("16GiB", 2**34), ("80 GB", 80 * 10**9), ("1.5KiB", 1536), ("2MiB", 2**21),
        ("1TiB", 2**40), ("3KB", 3000), ("4MB", 4 * 10**6),
    ],
)  # fmt: skip
def test_bytes_are_read_in_powers_of_1024_and_1000(text: str, count: int) -> None:
    assert parse_bytes("--memory", text) == count


@pytest.mark.parametrize("text", ["", "GiB", "-1", "1e3", "1 kib", "1.GiB", "1GiB2"])
def test_an_amount_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(PathwaysError, match="PWC0707") as caught:
        parse_bytes("--memory", text)
    assert "--memory=16GiB" in str(caught.value)


def test_named_machines_are_those_of_the_paper_and_of_the_vendors() -> None:
    shapes = {name: [(i.hosts, i.devices) for i in t.islands] for name, t in PRESETS.items()}
    assert shapes == {
        "paper-a": [(512, 4)], "paper-b": [(64, 8)], "paper-c": [(4, 8)] * 4,
        "paper-2x512": [(64, 8)] * 2, "paper-2x1024": [(128, 8)] * 2,
        "gpu-host": [(1, 8)], "gpu-hosts-2": [(1, 8)] * 2, "h200-hosts-2": [(1, 8)] * 2,
        "tpu-v5e-pod": [(32, 8)], "tpu-v5p-512": [(128, 4)], "tpu-v6e-pod": [(32, 8)],
    }  # fmt: skip
    assert {name: t.dcn_gbps for name, t in PRESETS.items()} == {
        "paper-a": 12.5, "paper-b": 12.5, "paper-c": 50.0, "paper-2x512": 800.0, "paper-2x1024": 1600.0,
        "gpu-host": 12.5, "gpu-hosts-2": 50.0, "h200-hosts-2": 50.0,
        "tpu-v5e-pod": 800.0, "tpu-v5p-512": 3200.0, "tpu-v6e-pod": 3200.0,
    }  # fmt: skip
    figures = {
        "paper": (16, 61.5, 70.0, 450.0), "gpu": (80, 989.0, 450.0, 3350.0), "h200": (141, 989.0, 450.0, 4800.0),
        "tpu-v5e": (16, 197.0, 200.0, 819.0), "tpu-v5p": (95, 459.0, 600.0, 2765.0),
        "tpu-v6e": (32, 918.0, 448.0, 1640.0),
    }  # fmt: skip
    for name, topology in PRESETS.items():
        (expected,) = [row for kind, row in figures.items() if name.startswith(kind)]
        for island in topology.islands:
            assert island.memory is not None and island.flops is not None
            found = island.memory / 1e9, island.flops / 1e12, island.ici_gbps, island.memory_gbps
            assert found == pytest.approx(expected)
        assert topology.names == tuple(f"island{n}" for n in range(len(topology.islands)))
        assert parse_topology(name) is topology
