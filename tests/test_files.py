"""Files are whole or not there, and as readable as other files of their owner."""

import os

import pytest

from discorl.files import read_json, write_atomically, write_json


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600)])
def test_a_file_is_as_readable_as_the_umask_says(tmp_path, umask, mode):
    before = os.umask(umask)
    try:
        write_json(tmp_path / "a.json", {"a": 1})
    finally:
        os.umask(before)
    assert (tmp_path / "a.json").stat().st_mode & 0o777 == mode
    assert read_json(tmp_path / "a.json") == {"a": 1}


def test_a_write_that_fails_leaves_what_was_there(tmp_path):
    path = tmp_path / "a.json"
    write_json(path, {"a": 1})

    def half(temporary):
        temporary.write_text("{")
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError):
        write_atomically(path, half)
    assert read_json(path) == {"a": 1}
    assert list(tmp_path.iterdir()) == [path]
