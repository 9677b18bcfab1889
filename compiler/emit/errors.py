"""Defines the errors of `pwc compile --emit`: programs that Shardy's MPMD dialect cannot express, or that Shardy
refuses.
"""

from typing import ClassVar

from pathways.dialect.diagnostics import Diagnostic, Exit, Explained


class RefusedByShardy(Diagnostic):
    code: ClassVar[str] = "PWC0126"
    exit: ClassVar[Exit] = Exit.FAILED
    title: ClassVar[str] = "Shardy of jaxlib {version} refuses {program} as {form}"
    have: ClassVar[str] = "{message}"
    need: ClassVar[str] = "a module that Shardy's own verifier and lowering accept"
    hint: ClassVar[str] = "this is a bug of pwc: please report it with the output of pwc compile --compile-to schedule"
    program: str
    form: str
    version: str
    message: str


class NotInShardy(Explained):
    code: ClassVar[str] = "PWC0127"
    title: ClassVar[str] = "Shardy's MPMD dialect cannot express {what}"
    what: str
