"""Defines the errors and warnings of `pw.pipeline`: a loss that cannot be cut, stages that do not fit in memory, or a
loss that mixes examples. `pwc explain` lists them.
"""

from typing import ClassVar

from pathways.dialect.diagnostics import Diagnostic, Exit, Explained


class CannotCut(Explained):
    code: ClassVar[str] = "PWC0111"
    title: ClassVar[str] = "{loss} cannot be cut into {stages} stages"
    loss: str
    stages: int


class BadPipeline(Explained):
    code: ClassVar[str] = "PWC0112"
    exit: ClassVar[Exit] = Exit.USAGE
    title: ClassVar[str] = "{problem}"
    problem: str


class NoCutFits(Explained):
    code: ClassVar[str] = "PWC0113"
    exit: ClassVar[Exit] = Exit.CAPACITY
    title: ClassVar[str] = "no cut of {loss} into {stages} stages fits into the memory of its slices"
    loss: str
    stages: int


class MicrobatchesDiffer(Diagnostic):
    code: ClassVar[str] = "PWC0114"
    title: ClassVar[str] = "{loss} over {microbatches} microbatches differs from {loss} of the whole batch"
    have: ClassVar[str] = "{have_}"
    need: ClassVar[str] = "a loss that is a mean (or a sum) over the examples of the batch"
    hint: ClassVar[str] = "{advice}"
    loss: str
    microbatches: int
    have_: str
    advice: str


class MixesExamples(Diagnostic):
    code: ClassVar[str] = "PWC0119"
    title: ClassVar[str] = (
        "{loss} mixes examples: over {microbatches} microbatches it differs from {loss} of the whole batch"
    )
    have: ClassVar[str] = "{have_}"
    need: ClassVar[str] = "a mean, a sum, or another function of sums over the examples"
    hint: ClassVar[str] = "microbatches=1; or mixes='allow', where each microbatch has its own statistics"
    loss: str
    microbatches: int
    have_: str


class AuxDiffers(Diagnostic):
    code: ClassVar[str] = "PWC0128"
    title: ClassVar[str] = "aux={aux!r} of {loss} over {microbatches} microbatches differs from aux of the whole batch"
    have: ClassVar[str] = "{leaves}"
    need: ClassVar[str] = "{rule}"
    hint: ClassVar[str] = "aux='stack', which keeps the value of each microbatch; or mixes='allow'"
    loss: str
    aux: str
    microbatches: int
    leaves: str
    rule: str


class WrongReduce(Diagnostic):
    code: ClassVar[str] = "PWC0124"
    exit: ClassVar[Exit] = Exit.USAGE
    title: ClassVar[str] = "reduce={reduce!r} makes {loss} {wrong}"
    have: ClassVar[str] = "{have_}"
    need: ClassVar[str] = "the loss of the whole batch"
    hint: ClassVar[str] = "reduce={right!r}; mixes='allow' only turns this check off"
    loss: str
    reduce: str
    wrong: str
    have_: str
    right: str


class NoChoice(Diagnostic):
    code: ClassVar[str] = "PWC0116"
    exit: ClassVar[Exit] = Exit.USAGE
    title: ClassVar[str] = "pw.pipeline({loss}) has no information how to split its loss"
    have: ClassVar[str] = "neither slices nor a choice"
    need: ClassVar[str] = "slices, or a choice: the argument choice=, or the option --choice of pwc compile"
    hint: ClassVar[str] = "pw.pipeline({loss}, choice='choice.toml'), or pwc compile --choice choice.toml"
    loss: str
