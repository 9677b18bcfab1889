"""Tests where the folder of a cluster may be."""

from pathlib import Path

import pytest
from support.codes import code_of

from pathways.runtime.launch.local_cluster import clear_folder, make_folder


def test_a_refused_name_leaves_no_folder(monkeypatch: pytest.MonkeyPatch, short_path: Path) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short_path))
    assert code_of(make_folder, "n" * 200, None) == "PWC0918"
    assert code_of(make_folder, "evil name", None) == "PWC0918"
    assert not list(short_path.rglob("*"))


def test_no_other_user_may_replace_the_folder_of_a_cluster(short_path: Path) -> None:
    above = short_path / "above"
    above.mkdir()
    above.chmod(0o777)
    assert code_of(make_folder, str(above / "cluster"), None) == "PWC0918"
    assert not list(above.iterdir())
    above.chmod(0o1777)  # as /tmp: only its owner may replace what is in it
    clear_folder(make_folder(str(above / "cluster"), None))
    assert not list(above.iterdir())
