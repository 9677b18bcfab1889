"""Defines the errors of importing programs of Shardy's MPMD dialect: unreadable text, an unsupported feature, or the
wrong phase of Shardy.
"""

from typing import ClassVar

from pathways.dialect.diagnostics import Diagnostic, Exit, Explained


class NotMpmd(Diagnostic):
    code: ClassVar[str] = "PWC0120"
    exit: ClassVar[Exit] = Exit.USAGE
    title: ClassVar[str] = "{name} is not a program of Shardy's MPMD dialect"
    have: ClassVar[str] = "{have_}"
    need: ClassVar[str] = "one function with a topology, as mpmd.jit(f, config).lower(...).as_text('mpmd') writes it"
    hint: ClassVar[str] = "{advice}"
    name: str
    have_: str
    advice: str


class WrongMpmdPhase(Explained):
    """An operation that Shardy's phase IMPORT removes is left, or the order of an ordered program would change."""

    code: ClassVar[str] = "PWC0121"
    title: ClassVar[str] = "{problem}"
    problem: str


class MpmdUnsupported(Explained):
    code: ClassVar[str] = "PWC0122"
    title: ClassVar[str] = "{what} of a program of Shardy's MPMD dialect cannot be run"
    what: str


class NoMpmdJit(Explained):
    code: ClassVar[str] = "PWC0123"
    exit: ClassVar[Exit] = Exit.USAGE
    title: ClassVar[str] = "{what} is not supported"
    what: str
