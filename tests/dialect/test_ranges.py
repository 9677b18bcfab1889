"""Devices are written as ranges and read back. Texts that are no ranges, or name too many devices, are refused."""

import pytest

from pathways.dialect.ranges import LARGEST_RANGE, RangeReader, read_ranges, write_ranges

EXAMPLES: list[tuple[tuple[int, ...], str]] = [
    ((), ""),
    ((0,), "0"),
    ((5, 6), "5:7"),
    ((3, 1, 0), "3,1,0"),
    ((4, 5, 6, 7, 0, 1, 2, 3), "4:8,0:4"),
    ((0, 2, 3, 9), "0,2:4,9"),
    ((1, 1), "1,1"),
]


@pytest.mark.parametrize(("devices", "text"), EXAMPLES)
def test_runs_of_ascending_devices_are_ranges(devices: tuple[int, ...], text: str) -> None:
    assert write_ranges(devices) == text and read_ranges(text) == devices


@pytest.mark.parametrize("text", [",", "a", "1:", ":3", "-1", "1:2:3", "1 ", "0,", "12345678"])
def test_text_that_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a range of devices"):
        read_ranges(text)


def test_one_text_names_at_most_the_largest_range() -> None:
    assert len(read_ranges(f"0:{LARGEST_RANGE}")) == len(read_ranges(f"7,1:{LARGEST_RANGE}")) == LARGEST_RANGE
    for text in (f"0:{LARGEST_RANGE + 1}", f"7,0:{LARGEST_RANGE}", f"0:{LARGEST_RANGE},7"):
        with pytest.raises(ValueError, match=f"more than {LARGEST_RANGE} devices"):
            read_ranges(text)


def test_equal_devices_of_a_plan_are_one_tuple() -> None:
    reader = RangeReader()
    assert reader.read("0,1") == (0, 1) and reader.read("0:2") is reader.read("0,1")


def test_all_texts_of_a_plan_name_a_limited_number_of_devices() -> None:
    reader = RangeReader()
    assert len(reader.read("0:524288")) == len(reader.read("0:524288")) == 1 << 19
    with pytest.raises(ValueError, match="1048576 devices in all"):
        reader.read("7")
