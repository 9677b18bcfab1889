"""Defines the errors of the StableHLO front end."""

from typing import ClassVar

from pathways.dialect.diagnostics import Explained, PathwaysError


class ModuleUnsupported(Explained):
    code: ClassVar[str] = "PWC0129"
    title: ClassVar[str] = "the module {program} of a client cannot be run"
    program: str


def unsupported(name: str, have: str, rule: str) -> PathwaysError:
    """Makes the error for a module that cannot be run."""
    advice = "jax.jit over a mesh of the devices; call the function in a pw.program for anything else"
    return PathwaysError(ModuleUnsupported(program=name, have_=have, rule=rule, advice=advice))
