"""Characters that a terminal would obey become escapes; all others stay."""

import pytest

from pathways.dialect.printable import lines_of, printable


@pytest.mark.parametrize(
    ("text", "one_line", "lines"),
    [
        ("", "", ""),
        ("Größe ≤ 3 ✓", "Größe ≤ 3 ✓", "Größe ≤ 3 ✓"),
        ("a\n\tb", "a\\n\\tb", "a\n\tb"),
        ("\x1b[31m", "\\x1b[31m", "\\x1b[31m"),
        ("a\n\x1bé\u202e\t", "a\\n\\x1bé\\u202e\\t", "a\n\\x1bé\\u202e\t"),
        ("a\r\nb", "a\\r\\nb", "a\\r\nb"),
    ],
)
def test_control_characters_become_escapes(text: str, one_line: str, lines: str) -> None:
    assert (printable(text), lines_of(text)) == (one_line, lines)
