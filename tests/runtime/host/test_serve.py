"""Tests that the process of a host refuses arguments that do not fit each other."""

import signal
import sys

import pytest

from pathways.runtime.host.serve import serve


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--connect", "127.0.0.1:1"), "--connect needs --keys"),
        ((), "one of the arguments --socket --connect is required"),
        (("--connect", "127.0.0.1:1", "--socket", "s"), "not allowed with argument"),
        (("--connect", "127.0.0.1:1", "--keys", "nowhere"), "PWC0914"),
    ],
)
def test_a_host_that_cannot_connect_exits_with_the_reason(
    arguments: tuple[str, ...], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["serve", "--island", "i", "--devices", "1", "--platform", "cpu", *arguments])
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    with pytest.raises(SystemExit) as caught:
        serve()
    assert message in f"{caught.value.code} {capsys.readouterr().err}" and caught.value.code
