"""Escapes characters in untrusted text that a terminal would execute or hide. It is called for names and messages from
plans before they are shown.

Names, files and messages of a plan may come from any source. `codec.py` escapes them when it reads a plan, and
`diagnostics.py` when it prints a message.
"""


def printable(text: str) -> str:
    """Escapes control and format characters, line breaks and odd blanks, for example as `\\x1b`, `\\n`, `\\u202e`."""
    return text if text.isprintable() else "".join(c if c.isprintable() else _escaped(c) for c in text)


def lines_of(text: str) -> str:
    """Escapes the same characters in text of several lines, but keeps line breaks and tabs."""
    if text.replace("\n", "").replace("\t", "").isprintable():
        return text
    return "".join(c if c in "\n\t" or c.isprintable() else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()
