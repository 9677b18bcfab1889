"""Defines the errors of drawing: an unknown file type, a missing package, an invalid trace file, or nothing to draw."""

from typing import ClassVar

from pathways.dialect.diagnostics import Diagnostic, Exit


class UnknownPicture(Diagnostic):
    code: ClassVar[str] = "PWC0820"
    exit: ClassVar[Exit] = Exit.USAGE
    title: ClassVar[str] = "{path} does not name a kind of drawing"
    have: ClassVar[str] = "the ending {ending!r}"
    need: ClassVar[str] = "one of {known}"
    hint: ClassVar[str] = ".html is the page with all views; .txt is the schedule as text"
    path: str
    ending: str
    known: str


class NeedsViz(Diagnostic):
    code: ClassVar[str] = "PWC0821"
    exit: ClassVar[Exit] = Exit.USAGE
    title: ClassVar[str] = "{what} needs {package}, which is not installed"
    have: ClassVar[str] = "{problem}"
    need: ClassVar[str] = "the optional packages for drawings"
    hint: ClassVar[str] = "pip install 'pathways-mpmd[viz]'; .html, .dot, .json and .txt work without it"
    what: str
    package: str
    problem: str


class NoTrace(Diagnostic):
    code: ClassVar[str] = "PWC0822"
    exit: ClassVar[Exit] = Exit.USAGE
    title: ClassVar[str] = "{path} is not a trace that can be drawn"
    have: ClassVar[str] = "{problem}"
    need: ClassVar[str] = "{rule}"
    hint: ClassVar[str] = "pwc run plan.bin --trace trace.json writes a trace; in Python, pw.trace('trace.json') does"
    path: str
    problem: str
    rule: str


class NothingToDraw(Diagnostic):
    code: ClassVar[str] = "PWC0823"
    exit: ClassVar[Exit] = Exit.USAGE
    title: ClassVar[str] = "there is nothing to draw in {path}"
    have: ClassVar[str] = "{problem}"
    need: ClassVar[str] = "{rule}"
    hint: ClassVar[str] = "{advice}"
    path: str
    problem: str
    rule: str
    advice: str
