"""Sends requests, such as for the status, to the controller of a cluster, and waits for the answers. `Attached` uses
it.
"""

import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pathways.dialect.diagnostic_json import read_diagnostic
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.user_line import caller
from pathways.runtime.monitor import Monitor
from pathways.runtime.wire import messages as m


class ControllerRequests:
    """Requests to the controller that are not answered yet."""

    def __init__(self, changed: Monitor, check_there: Callable[[], None]) -> None:
        """`changed` is also notified when the controller is lost; `check_there` then raises the cause."""
        self._changed, self._check_there = changed, check_there
        self._answers: dict[int, m.Answer | None] = {}
        self._numbers = itertools.count()

    def ask(self, post: Callable[[m.Message], None], make: Callable[[int], m.Message]) -> Any:
        """Posts the request that `make` creates from a request number; waits for the answer and returns its value.

        Raises the diagnostic in the answer, or PWC0917 if the controller is lost.
        """
        number = next(self._numbers)
        self._answers[number] = None

        def is_over() -> bool:
            if self._answers[number] is None:
                self._check_there()
            return self._answers[number] is not None

        try:
            post(make(number))
            self._changed.wait_for(is_over)
        finally:
            answer = self._answers.pop(number)
        assert answer is not None
        if answer.error:
            raise PathwaysError(replace(read_diagnostic(answer.error), where=caller()))
        return json.loads(answer.value)

    def deliver(self, answer: m.Answer) -> None:
        """Delivers an answer to its waiting caller."""
        if answer.request in self._answers:
            self._answers[answer.request] = answer
        self._changed.notify_all()
