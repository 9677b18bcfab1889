"""Defines errors of the Python API: a loss that `pw.search` cannot split, a 64-bit value that JAX would narrow, and a
snapshot that cannot be restored. `pwc explain` lists them.
"""

from dataclasses import dataclass
from typing import ClassVar

from pathways.dialect.diagnostics import Diagnostic, Exit, Explained


@dataclass(frozen=True)
class NotSearchable(Explained):
    code: ClassVar[str] = "PWC0117"
    exit: ClassVar[Exit] = Exit.USAGE
    title: ClassVar[str] = "there is no way to search for how to split {loss}"
    loss: str


@dataclass(frozen=True)
class NothingFits(Diagnostic):
    code: ClassVar[str] = "PWC0118"
    exit: ClassVar[Exit] = Exit.CAPACITY
    title: ClassVar[str] = "no way to split {loss} fits {topology}"
    have: ClassVar[str] = "{have_}"
    need: ClassVar[str] = "stages x data x model that divide the batch, on devices with memory for their part"
    hint: ClassVar[str] = "more devices, another batch, jax.checkpoint around layers, a smaller optimizer state"
    loss: str
    topology: str
    have_: str


@dataclass(frozen=True)
class Narrowed(Diagnostic):
    code: ClassVar[str] = "PWC0216"
    title: ClassVar[str] = "{name} of {dtype} cannot become a jax.Array"
    have: ClassVar[str] = "jax_enable_x64 off: JAX would make {narrow} of it"
    need: ClassVar[str] = "values of the width that the array says"
    hint: ClassVar[str] = "np.asarray(x) keeps all bits; or jax.config.update('jax_enable_x64', True)"
    name: str
    dtype: str
    narrow: str


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


@dataclass(frozen=True)
class NoReference(Diagnostic):
    code: ClassVar[str] = "PWC0811"
    exit: ClassVar[Exit] = Exit.USAGE
    title: ClassVar[str] = "{name} of {program} cannot be compared with a reference"
    have: ClassVar[str] = "a computation that calls back to the host, and --reference"
    need: ClassVar[str] = "computations without jax.debug.print, pure_callback and io_callback"
    hint: ClassVar[str] = "leave out --reference, or compare in Python with the function under jax.jit"
    name: str
    program: str
