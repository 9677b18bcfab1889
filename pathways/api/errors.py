"""Defines errors of the Python API: a loss that `pw.search` cannot split, a 64-bit value that JAX would narrow, and a
snapshot that cannot be restored. `pwc explain` lists them.
"""

from typing import ClassVar

from pathways.dialect.diagnostics import Diagnostic, Exit, Explained


class NotSearchable(Explained):
    code: ClassVar[str] = "PWC0117"
    exit: ClassVar[Exit] = Exit.USAGE
    title: ClassVar[str] = "pwc search cannot split {loss}"
    loss: str


class NothingFits(Diagnostic):
    code: ClassVar[str] = "PWC0118"
    exit: ClassVar[Exit] = Exit.CAPACITY
    title: ClassVar[str] = "no split of {loss} fits {topology}"
    have: ClassVar[str] = "{have_}"
    need: ClassVar[str] = "stages x data x model that divide the batch, on devices with enough memory for their share"
    hint: ClassVar[str] = (
        "use more devices, another batch size, jax.checkpoint around layers, or a smaller optimizer state"
    )
    loss: str
    topology: str
    have_: str


class Narrowed(Diagnostic):
    code: ClassVar[str] = "PWC0216"
    title: ClassVar[str] = "{name} of type {dtype} cannot become a jax.Array"
    have: ClassVar[str] = "jax_enable_x64 is off, so JAX would convert the values to {narrow}"
    need: ClassVar[str] = "a jax.Array with the element type of the array"
    hint: ClassVar[str] = "np.asarray(x) keeps all bits; or call jax.config.update('jax_enable_x64', True)"
    name: str
    dtype: str
    narrow: str


class WrongSnapshot(Diagnostic):
    code: ClassVar[str] = "PWC0514"
    title: ClassVar[str] = "{name} cannot be restored from {path}"
    have: ClassVar[str] = "{have_}"
    need: ClassVar[str] = "{rule}"
    hint: ClassVar[str] = "restore into a pytree of the structure, shapes and element types that were saved"
    path: str
    name: str
    have_: str
    rule: str


class NoReference(Diagnostic):
    code: ClassVar[str] = "PWC0811"
    exit: ClassVar[Exit] = Exit.USAGE
    title: ClassVar[str] = "{name} of {program} cannot be compared with a reference"
    have: ClassVar[str] = "a computation with a host callback, and --reference"
    need: ClassVar[str] = "computations without jax.debug.print, pure_callback and io_callback"
    hint: ClassVar[str] = "leave out --reference, or compare in Python with the function under jax.jit"
    name: str
    program: str
