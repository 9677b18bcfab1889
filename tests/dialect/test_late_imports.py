"""Ctrl-C during a late import leaves no library loaded in part."""

import signal
import sys
from pathlib import Path

import pytest

from pathways.dialect.late_imports import import_late

LIBRARY = "import signal\nsignal.raise_signal(signal.SIGINT)\nloaded = True\n"


def test_an_interrupt_takes_effect_after_the_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "library_of_a_test.py").write_text(LIBRARY)
    monkeypatch.syspath_prepend(tmp_path)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        import_late("library_of_a_test")
    assert sys.modules.pop("library_of_a_test").loaded
    assert signal.getsignal(signal.SIGINT) is before
    assert import_late("json") is sys.modules["json"]
