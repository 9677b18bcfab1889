"""Makes text from outside safe to show: characters that a terminal would obey, or hide, become escapes.

Names, files and messages of a plan come from anywhere. `codec.py` reads them so, `diagnostics.py` prints them so.
"""


def printable(text: str) -> str:
    """Writes text on one line: control and format characters, line breaks, odd blanks as `\\x1b`, `\\n`, `\\u202e`."""
    return text if text.isprintable() else "".join(c if c.isprintable() else _escaped(c) for c in text)


def lines_of(text: str) -> str:
    """Does the same for text of several lines: line breaks and tabs stay."""
    if text.replace("\n", "").replace("\t", "").isprintable():
        return text
    return "".join(c if c in "\n\t" or c.isprintable() else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()
