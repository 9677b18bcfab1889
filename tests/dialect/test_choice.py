"""A written choice.toml is read back unchanged. An invalid one is refused with an error that names the wrong key."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pathways as pw
from pathways.dialect.choice import SplitChoice, choice_of, load_choice, write_choice

COUNTS = st.integers(1, 1000)
NAMES = st.text(min_size=1, max_size=8).filter(lambda s: s.isprintable())
GOOD = 'stages = 2\nmicrobatches = 4\nschedule = "1f1b"\nislands = ["a", "b"]\ncuts = [3, 3]\n'


@given(stages=st.integers(1, 4), chunks=st.integers(1, 3), counts=st.tuples(COUNTS, COUNTS, COUNTS), data=st.data())
def test_a_written_choice_is_read_back(
    stages: int, chunks: int, counts: tuple[int, int, int], data: st.DataObject
) -> None:
    islands = data.draw(st.one_of(st.just([]), st.lists(NAMES, min_size=stages, max_size=stages)))
    cuts = data.draw(st.one_of(st.just([]), st.lists(COUNTS, min_size=stages * chunks, max_size=stages * chunks)))
    specs = {r"^\['w'\]\[\d+\]$": ("", "model"), "é\U0001f600": ("data",)} if data.draw(st.booleans()) else {}
    choice = SplitChoice(stages, chunks, *counts, data.draw(NAMES), "auto", tuple(islands), tuple(cuts), specs)
    assert choice_of(write_choice(choice, ["a step", ""]), "it") == choice


def test_missing_keys_have_defaults() -> None:
    assert choice_of("stages = 2\nmicrobatches = 4", "it") == SplitChoice(2, microbatches=4)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ("stages = 2\n", "microbatches= is missing"),
        (GOOD + "stage = 3\n", "unknown key 'stage'"),
        (GOOD.replace("= 4", "= 0"), "microbatches=0 is not a whole number from 1"),
        (GOOD.replace("= 4", "= true"), "microbatches=True"),
        (GOOD.replace("= 4", "= 4.0"), "microbatches=4.0"),
        (GOOD.replace('"1f1b"', "1"), "schedule=1 is not a name"),
        (GOOD.replace('["a", "b"]', '["a"]'), "islands has 1 entries for 2 stages"),
        (GOOD.replace('["a", "b"]', '"a"'), "islands='a' is not a list"),
        (GOOD.replace("[3, 3]", "[3]"), "cuts has 1 entries for 2 stages"),
        (GOOD + "param_specs = 3\n", "param_specs is not a table"),
        (GOOD + '[param_specs]\n"(" = ["model"]\n', "'(' is not a regular expression"),
        (GOOD + '[param_specs]\n"w" = ["modle"]\n', "name axis 'modle'"),
        ("stages = [", "Invalid value"),
    ],
)
def test_an_invalid_choice_file_is_refused(changed: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "choice.toml"
    path.write_text(changed)
    with pytest.raises(pw.PathwaysError) as caught:
        load_choice(path)
    assert caught.value.code == "PWC0115" and message in str(caught.value) and str(path) in str(caught.value)


def test_a_missing_choice_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(pw.PathwaysError, match="PWC0115"):
        load_choice(tmp_path / "none.toml")


def test_a_choice_counts_devices_and_names_its_split() -> None:
    choice = SplitChoice(3, 1, 4, 5, 8)
    assert choice.devices == 60 and choice.split == "3 x 4 x 5"
    assert SplitChoice(3, 2, 4, 5, 8).split == "3*2 x 4 x 5" and SplitChoice(3, 2, 4, 5, 8).devices == 60


def test_the_largest_count_and_the_first_unknown_key() -> None:
    assert choice_of("stages = 1000000\nmicrobatches = 4", "it").stages == 1_000_000
    for text, message in (
        ("stages = 1000001\nmicrobatches = 4", "stages=1000001 is not a whole number from 1"),
        ("zz = 1\naa = 2\nmm = 3", "unknown key 'aa'"),
        (GOOD + 'remat = ""', "remat='' is not a name"),
    ):
        with pytest.raises(pw.PathwaysError, match="PWC0115") as caught:
            choice_of(text, "it")
        assert message in str(caught.value)
