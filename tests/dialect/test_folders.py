"""Folders beside a file: complete when it names them, gone when it does not, and by no other while they are in use."""

import os
from pathlib import Path

import pytest

from pathways.dialect.folders import kept_folder, new_folder, own_folder, remove_unnamed

NAMED = "state.arrays-0123456789abcdef"


def never(_: str) -> bool:
    return False


def test_a_folder_of_a_file_that_was_not_written_is_removed(tmp_path: Path) -> None:
    for failure in (ValueError(), KeyboardInterrupt()):
        with pytest.raises(type(failure)), new_folder(tmp_path / "state", never) as folder:
            (folder / "a0").write_text("much")
            raise failure
        assert not os.listdir(tmp_path)
    with pytest.raises(KeyboardInterrupt), new_folder(tmp_path / "state", lambda name: True) as folder:
        raise KeyboardInterrupt  # right behind the file
    assert os.listdir(tmp_path) == [folder.name]


def test_where_there_is_no_room_for_a_folder_that_is_told(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="PWC0606"), new_folder(tmp_path / "none" / "state", never):
        pass


def test_what_no_file_names_goes_unless_it_is_in_use(tmp_path: Path) -> None:
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


def test_a_file_that_is_a_link_has_its_folder_beside_what_it_links_to(tmp_path: Path) -> None:
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
def test_other_folders_are_no_names(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError), kept_folder(tmp_path / "state", name):
        pass


def test_a_host_takes_folders_of_snapshots_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
