"""Defines the errors of the StableHLO front end."""

from dataclasses import dataclass
from typing import ClassVar

from pathways.dialect.diagnostics import Explained


@dataclass(frozen=True)
class ModuleUnsupported(Explained):
    code: ClassVar[str] = "PWC0129"
    title: ClassVar[str] = "the module {program} of a client cannot be run"
    program: str
