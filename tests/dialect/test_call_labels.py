"""Actions of a pipeline and parts of merged calls are text that is read back unchanged."""

import pytest

from pathways.dialect.call_labels import Action, PartLabel, actions_of, read_action, read_part, write_part
from pathways.dialect.diagnostics import Where


@pytest.mark.parametrize("action", [Action(2, "F", 3), Action(0, "B", 0), Action(10, "I", 12), Action(1, "W", 100)])
def test_a_written_action_is_read_back(action: Action) -> None:
    assert read_action(str(action)) == action
    assert str(action) == f"{action.stage}{action.kind}{action.microbatch}"


@pytest.mark.parametrize("text", ["", "F", "2F", "F3", "2X3", "2F3 ", "2f3", "2FB3", "-1F3"])
def test_text_that_is_no_action_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not an action like 2F3"):
        read_action(text)


PARTS: list[tuple[str, PartLabel]] = [
    ("2F3 stage model.py:12 step", PartLabel("2F3", "stage", Where("model.py", 12, "step"))),
    ("- add", PartLabel("", "add", None)),
    ("- add a file.py:7", PartLabel("", "add", Where("a file.py", 7))),
    ("0B1  x:1:2 f", PartLabel("0B1", "", Where("x:1", 2, "f"))),
    ("- add <stdin>:1 <module>", PartLabel("", "add", Where("<stdin>", 1, "<module>"))),
]


@pytest.mark.parametrize(("text", "part"), PARTS)
def test_a_written_part_is_read_back(text: str, part: PartLabel) -> None:
    assert write_part(part) == text and read_part(text) == part


def test_blanks_of_a_name_are_replaced() -> None:
    assert write_part(PartLabel("", "a b\n é", None)) == "- a_b_"


@pytest.mark.parametrize("text", ["", "add", "- add ", "- add model.py", "- add model.py:x", "- add model.py:12 a b"])
def test_text_that_is_no_part_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not like ACTION NAME FILE:LINE FUNCTION"):
        read_part(text)


def test_a_merged_call_has_the_actions_of_its_parts_once() -> None:
    parts = ["1F0 a", "- b", "0F0 c", "1F0 d"]
    assert actions_of("9F9", parts) == ["1F0", "0F0"]
    assert actions_of("9F9", []) == ["9F9"] and actions_of("", []) == []
