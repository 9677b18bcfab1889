"""Text from elsewhere, made safe to show: what a terminal would obey, or hide, is shown as its escape.

Names, files and messages of a plan come from anywhere. `codec.py` reads them so, `diagnostics.py` prints them so.
"""


def printable(text: str) -> str:
    """The text on one line: control and format characters, line breaks, and odd blanks as `\\x1b`, `\\n`, `\\u202e`."""
    return text if text.isprintable() else "".join(c if c.isprintable() else _escaped(c) for c in text)


def lines_of(text: str) -> str:
    """The same for text of several lines, which stay, and so do tabs."""
    if text.replace("\n", "").replace("\t", "").isprintable():
        return text
    return "".join(c if c in "\n\t" or c.isprintable() else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()
