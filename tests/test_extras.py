"""The line that installs an extra fits how the package itself was installed."""

import json
from importlib import metadata

import pytest

from discorl.extras import install_line


@pytest.fixture(autouse=True)
def no_cache():
    install_line.cache_clear()
    yield
    install_line.cache_clear()


@pytest.mark.parametrize(
    ("told", "line"),
    [
        (None, "pip install 'discorl[atari]'"),
        ("not json", "pip install 'discorl[atari]'"),
        ({"url": "https://a.b/c.whl"}, "pip install 'discorl[atari]'"),
        ({"url": "file:///my/x", "dir_info": {}}, "pip install '/my/x[atari]'"),
        ({"url": "file:///my%20code/x"}, "pip install 'discorl[atari]'"),
        (
            {"url": "file:///x", "dir_info": {"editable": True}},
            "pip install -e '/x[atari]'",
        ),
    ],
)
def test_from_an_index_or_from_a_checkout(told, line, monkeypatch):
    class Installed:
        def read_text(self, name):
            assert name == "direct_url.json"
            return json.dumps(told) if isinstance(told, dict) else told

    monkeypatch.setattr(metadata, "distribution", lambda name: Installed())
    assert install_line("atari") == line


def test_a_package_that_is_only_on_the_path(monkeypatch):
    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", missing)
    assert install_line("atari") == "pip install 'discorl[atari]'"
