"""What a controller is told of the end of a run on a host."""

from collections.abc import Sequence
from typing import Any, Protocol

from pathways.dialect.diagnostic_json import write_diagnostic
from pathways.runtime.host.load.loaded_part import PartResult
from pathways.runtime.host.observe.numbers import NumbersOnHost
from pathways.runtime.host.run.failures import why_failed
from pathways.runtime.journal import note
from pathways.runtime.wire import messages as m


class PostAll(Protocol):
    """Sends messages to the controller, in this order; any thread may call it."""

    def __call__(self, *messages: m.Message) -> None: ...


def end_of_run(
    number: int, seconds: float, results: Sequence[tuple[PartResult, Any]], numbers: NumbersOnHost | None
) -> m.Message:
    """The end of a run that kept its devices busy for so long, and which of its results will never be there."""
    causes: dict[str, str] = {}
    for result, value in results:
        if (cause := why_failed(value, result.origin)) is not None:
            causes[str(result.number)] = write_diagnostic(cause)
    note("run", number, f"ended, {len(causes)} bad results" if causes else "ended")
    spent = int(seconds * 1e9)
    if numbers is not None and numbers.found is not None:
        return m.Failed(number, spent, causes, write_diagnostic(numbers.found), numbers.step)
    return m.Failed(number, spent, causes) if causes else m.Done(number, spent)
