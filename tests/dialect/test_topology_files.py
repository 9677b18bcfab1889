"""Topology files are read as docs/topologies.md describes them. Invalid files are refused with a hint."""

import re
import tempfile
import tomllib
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.processes import ROOT, pwc_here

from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.topology import PRESETS, Island, Topology, load_topology, parse_topology, write_topology

PAGE = (ROOT / "docs" / "topologies.md").read_text()


def test_the_page_lists_every_field_with_its_default() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \|.*\| (.*?) \|$", PAGE, re.M))
    for field in (*fields(Island), *(f for f in fields(Topology) if f.name != "islands")):
        assert field.name in rows, field.name
        if isinstance(field.default, int | float | str):
            assert str(field.default) in rows[field.name]
    assert set(PRESETS) == set(re.findall(r"`((?:paper|gpu|h200|tpu)-[\w-]+)`", PAGE))


def test_the_example_of_the_page_is_valid(tmp_path: Path) -> None:
    (example,) = re.findall(r"```toml[^\n]*\n(.*?)```", PAGE, re.S)
    path = tmp_path / "machines.toml"
    path.write_text(example)
    pod, host = load_topology(path).islands
    assert pod == Island("pod0", 8, 2, "h100", 80 * 10**9, 989e12, 450.0, 0.6, 3350.0, 5.0, 20.0, 2.0)
    assert host == Island("host1", 4)
    assert parse_topology(str(path)).dcn_gbps == 25.0
    assert set(tomllib.loads(example)["island"][0]) == {f.name for f in fields(Island)}
    for spec in re.findall(r"--topology (\S+,\S+)", PAGE):
        parse_topology(spec)
    exit_code, _, stderr = pwc_here("check", str(ROOT / "samples" / "figure2.py"), "--topology", str(path))
    assert exit_code == 0, stderr


ISLANDS = st.builds(
    Island,
    devices=st.integers(1, 1000),
    name=st.text(min_size=1),
    hosts=st.integers(1, 1000),
    kind=st.sampled_from(["any", "cpu", 'a "quoted" kind']),
    memory=st.none() | st.integers(1, 2**45),
    flops=st.none() | st.floats(1.0, 1e18),
    ici_gbps=st.floats(0.001, 1e6),
    efficiency=st.none() | st.floats(0.001, 1.0),
    call_us=st.none() | st.floats(0.0, 1e6),
)
TOPOLOGIES = st.builds(
    Topology,
    st.lists(ISLANDS, min_size=1, max_size=4, unique_by=lambda i: i.name).map(tuple),
    st.floats(0.001, 1e6),
    controller_us=st.none() | st.floats(0.0, 1e6),
    host_cores=st.none() | st.floats(0.1, 1000.0),
)


@given(TOPOLOGIES)
def test_a_written_topology_is_read_back(topology: Topology) -> None:
    with tempfile.NamedTemporaryFile("w", suffix=".toml", encoding="utf-8", newline="") as file:
        file.write(write_topology(topology))
        file.flush()
        assert load_topology(Path(file.name)) == topology


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[islands]]\ndevices = 4\n", "write one table [[island]] for each island"),
        ("islands = 2\n", "[[island]]"),
        ("[[Island]]\ndevices = 4\n", "'Island': did you mean island?"),
        ("[[isalnd]]\ndevices = 4\n", "'isalnd': did you mean island?"),
        ("[island]\ndevices = 4\n", "even for a single island"),
        ("island = [3]\n", "islands are tables"),
        ("island = []\n", "no [[island]] table"),
        ("island = 3\n", "no [[island]] table"),
        ("", "no [[island]] table"),
        ("dcn_gpbs = 3\n[[island]]\ndevices = 4\n", "did you mean dcn_gbps?"),
        ("[[island]]\ndevices = 4\ndcn_gbps = 3\n", "at the top of a TOML file"),
        ("devices = 4\n[[island]]\ndevices = 4\n", "in an [[island]] table"),
        ("[[island]]\ndevice = 4\n", "did you mean devices?"),
        ("[[island]]\nmemmory = 4\ndevices = 4\n", "did you mean memory?"),
        ("[[island]]\ncolour = 4\ndevices = 4\n", "keys are call_us, devices, efficiency"),
        ("[[island]]\nhosts = 4\n", "devices= (the number"),
        ('[[island]]\ndevices = 4\nmemory = "many"\n', "such as 16GiB"),
        ("[[island]]\ndevices = 4\n[[island]]\ndevices = 4\nname = 'island0'\n", "the same name"),
        ("dcn_gbps = inf\n[[island]]\ndevices = 4\n", "not a positive number"),
        ("[[island]\n", ""),
    ],
)
def test_an_invalid_topology_file_is_refused_with_a_hint(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "t.toml"
    path.write_text(text)
    with pytest.raises(PathwaysError, match="PWC0704") as caught:
        parse_topology(str(path))
    assert message in str(caught.value) and "docs/topologies.md" in str(caught.value)


def test_an_invalid_topology_option_is_refused_with_a_hint() -> None:
    for spec, message in (
        ("device=4", "did you mean devices?"),
        ("devices=4,dcn_gbps=3", "at the top of a TOML file"),
        ("island=2,devices=4", "islands"),
    ):
        with pytest.raises(PathwaysError, match="PWC0704") as caught:
            parse_topology(spec)
        assert message in str(caught.value)
