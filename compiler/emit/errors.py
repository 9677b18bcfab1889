"""Defines the errors of `pwc compile --emit`: programs that Shardy's MPMD dialect cannot express, or that Shardy
refuses.
"""

from dataclasses import dataclass
from typing import ClassVar

from pathways.dialect.diagnostics import Diagnostic, Exit, Explained


@dataclass(frozen=True)
class RefusedByShardy(Diagnostic):
    code: ClassVar[str] = "PWC0126"
    exit: ClassVar[Exit] = Exit.FAILED
    title: ClassVar[str] = "{program} as {form} is refused by Shardy of jaxlib {version}"
    have: ClassVar[str] = "{message}"
    need: ClassVar[str] = "a module that Shardy's own verifier and lowering take"
    hint: ClassVar[str] = "a fault of pwc: please file a bug, with what pwc compile --compile-to schedule prints"
    program: str
    form: str
    version: str
    message: str


@dataclass(frozen=True)
class NotInShardy(Explained):
    code: ClassVar[str] = "PWC0127"
    title: ClassVar[str] = "{what} cannot be said in Shardy's MPMD dialect"
    what: str
