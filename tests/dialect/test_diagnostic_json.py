"""Errors sent to another process as JSON keep their code, their text and the user's source line."""

import json
from typing import Any, ClassVar

import pytest

from pathways.dialect.diagnostic_json import read_diagnostic, write_diagnostic
from pathways.dialect.diagnostics import Diagnostic, PathwaysError, Where
from pathways.runtime.errors import ComputationFailed, DeviceLost, Hang

LINE = Where("model.py", 3, "step", "/home/me/model.py")
EXAMPLES: list[Diagnostic] = [
    ComputationFailed(computation="f", island="island0", cause='a "quoted" {cause}\nof two lines', where=LINE),
    ComputationFailed(computation="f", island="island0", cause="no line"),
    DeviceLost(island="pod", device=3, reason="it was away"),
    Hang(seconds="120", program="p", run=7, client="main", calls="a", others="b", where=LINE),
]
SAID = {"title": "t", "have": "h", "need": "", "hint": ""}


@pytest.mark.parametrize("diagnostic", EXAMPLES)
def test_a_diagnostic_is_equal_after_a_round_trip(diagnostic: Diagnostic) -> None:
    read = read_diagnostic(write_diagnostic(diagnostic))
    assert read == diagnostic and str(PathwaysError(read)) == str(PathwaysError(diagnostic))
    assert (None if read.where is None else read.where.here) == (diagnostic.where and diagnostic.where.here)


def test_an_unknown_error_class_keeps_its_text_and_source_line() -> None:
    def made() -> type[Diagnostic]:
        class OfAnotherVersion(Diagnostic):
            title: ClassVar[str] = "{name} is new"
            have: ClassVar[str] = "{{braces}}"
            hint: ClassVar[str] = "update"
            name: str

        return OfAnotherVersion

    cls: Any = made()
    text = write_diagnostic(cls(name="x", where=LINE)).replace("OfAnotherVersion", "Elsewhere")
    read = read_diagnostic(text)
    assert PathwaysError(read).code == "PWC0000" and read.where == LINE
    assert str(PathwaysError(read)) == str(PathwaysError(cls(name="x", where=LINE)))


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "3", "{}", '{"class": "DeviceLost"}',
        json.dumps({"class": "X", "code": "PWC1", "fields": {}, "where": ["a"], "said": {}}),
        json.dumps({"class": "X", "code": "PWC1", "fields": {}, "where": [1, 2, 3, 4], "said": {}}),
        json.dumps({"class": "X", "code": "PWC1", "fields": {}, "where": None, "said": {"title": "t"}}),
        *(
            json.dumps({"class": "X", "code": "PWC1", "fields": {}, "where": where, "said": SAID})
            for where in (["f", "3", "g", "h"], [1, 3, "g", "h"], ["f", 3, "g", 4], [1, "3", "g", "h"])
        ),
    ],
)  # fmt: skip
def test_text_that_encodes_no_diagnostic_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        read_diagnostic(text)


def test_a_field_of_a_wrong_type_gives_a_generic_error() -> None:
    written = json.loads(write_diagnostic(EXAMPLES[2]))
    written["fields"]["reason"] = ["a", "list"]
    read = read_diagnostic(json.dumps(written))
    assert not isinstance(read, DeviceLost) and PathwaysError(read).code == "PWC0512"
