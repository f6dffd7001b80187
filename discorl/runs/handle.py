"""A run folder in Python: it reads like its result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from discorl.errors import DiscorlError
from discorl.files import read_json
from discorl.runs.folder import RESULT_FILE
from discorl.runs.metrics import read_metrics


class RunFolder(Mapping[str, Any]):
    """What a run has written so far; `run["seconds"]` and the like read its `result.json`."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    @property
    def result(self) -> dict[str, Any]:
        """What `result.json` holds; empty until the run has finished."""
        path = self.folder / RESULT_FILE
        values = read_json(path) if path.exists() else {}
        if not isinstance(values, dict):
            raise DiscorlError(f"{path}: expected an object")
        return values

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """Every record of `metrics.jsonl`, oldest first: `pandas.DataFrame(run.metrics)`."""
        return read_metrics(self.folder)

    def __getitem__(self, name: str) -> Any:
        return self.result[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.result)

    def __len__(self) -> int:
        return len(self.result)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.folder)!r})"
