"""Folders of array data beside a file are complete when the file names them.

Folders that no file names are removed, unless a process uses them.
"""

import errno
import fcntl
import os
from pathlib import Path

import pytest

from pathways.dialect.folders import kept_folder, new_folder, own_folder, remove_unnamed

NAMED = "state.arrays-0123456789abcdef"


def never(_: str) -> bool:
    return False


def test_a_folder_is_removed_if_its_file_is_not_written(tmp_path: Path) -> None:
    for failure in (ValueError(), KeyboardInterrupt()):
        with pytest.raises(type(failure)), new_folder(tmp_path / "state", never) as folder:
            (folder / "a0").write_text("much")
            raise failure
        assert not os.listdir(tmp_path)
    with pytest.raises(KeyboardInterrupt), new_folder(tmp_path / "state", lambda name: True) as folder:
        raise KeyboardInterrupt  # just after the file was written
    assert os.listdir(tmp_path) == [folder.name]


def test_a_folder_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="PWC0606"), new_folder(tmp_path / "none" / "state", never):
        pass


def test_unnamed_folders_are_removed_unless_they_are_in_use(tmp_path: Path) -> None:
    path = tmp_path / "state"
    with new_folder(path, never) as mine, new_folder(path, never) as theirs:
        others = ["state.arrays-", "state.arrays-0", "states.arrays-0123456789abcdef", "arrays-0123456789abcdef"]
        for name in (NAMED, *others):
            (tmp_path / name).mkdir()
        (tmp_path / "state.arrays-ffffffffffffffff").symlink_to(tmp_path / others[2])
        with kept_folder(path, NAMED):
            remove_unnamed(path, never)
            assert (tmp_path / NAMED).exists() and mine.exists() and theirs.exists()
        remove_unnamed(path, never)
        assert not (tmp_path / NAMED).exists() and mine.exists() and theirs.exists()
    remove_unnamed(path, lambda name: name == mine.name)
    assert set(os.listdir(tmp_path)) == {mine.name, "state.arrays-ffffffffffffffff", *others}


def test_the_folder_of_a_linked_file_lies_beside_the_link_target(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "elsewhere" / "state")
    with new_folder(link, never) as folder:
        assert folder.parent == tmp_path / "elsewhere"
    with kept_folder(link, folder.name) as kept:
        assert kept == folder
    remove_unnamed(link, never)
    assert not folder.exists()


@pytest.mark.parametrize("name", ["", ".", "..", "state", f"../{NAMED}", f"/{NAMED}", f"x/{NAMED}", f"{NAMED}/.."])
def test_invalid_folder_names_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError), kept_folder(tmp_path / "state", name):
        pass


def test_a_host_accepts_only_snapshot_folders_of_its_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with new_folder(tmp_path / "state", never) as folder:
        assert own_folder(str(folder)) == folder
    (tmp_path / NAMED).symlink_to(folder)
    (tmp_path / "state.arrays-1111111111111111").write_text("a file")
    for bad in (
        "",
        "/",
        "/etc",
        str(tmp_path),
        folder.name,
        f"{folder}/",
        f"{tmp_path}/./{folder.name}",
        f"{folder}/../{folder.name}",
        str(tmp_path / NAMED),
        str(tmp_path / "state.arrays-1111111111111111"),
        str(tmp_path / "state.arrays-2222222222222222"),
        f"{folder}\0",
    ):
        with pytest.raises(ValueError):
            own_folder(bad)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(ValueError, match="of this user"):
        own_folder(str(folder))


def fail_locks(monkeypatch: pytest.MonkeyPatch, error: int) -> None:
    def fail(*_: int) -> None:
        raise OSError(error, "the lock failed")

    monkeypatch.setattr(fcntl, "flock", fail)


@pytest.mark.parametrize("error", [errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS])
def test_without_locks_folders_are_read_and_none_is_removed(
    error: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_locks(monkeypatch, error)
    path = tmp_path / "state"
    with new_folder(path, never) as folder, kept_folder(path, folder.name) as kept:
        assert kept == folder
    remove_unnamed(path, never)
    assert folder.is_dir()
    fail_locks(monkeypatch, errno.EIO)
    with pytest.raises(OSError, match="the lock failed"), kept_folder(path, folder.name):
        pass
