"""Errors of the import face."""

from dataclasses import dataclass
from typing import ClassVar

from pathways.dialect.diagnostics import Diagnostic


@dataclass(frozen=True)
class WrongSnapshot(Diagnostic):
    code: ClassVar[str] = "PWC0514"
    title: ClassVar[str] = "{name} cannot be restored from {path}"
    have: ClassVar[str] = "{have_}"
    need: ClassVar[str] = "{rule}"
    hint: ClassVar[str] = "restore into a tree of the structure, shapes and element types that were saved"
    path: str
    name: str
    have_: str
    rule: str
