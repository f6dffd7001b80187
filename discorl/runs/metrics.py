"""Metrics of a run: one JSON object per line, and TensorBoard beside it; W&B if asked for."""

from __future__ import annotations

import json
from functools import cached_property
from pathlib import Path
from typing import Any

from discorl.errors import DiscorlError
from discorl.extras import install_line
from discorl.files import explain_write_errors, write_atomically

METRICS_FILE = "metrics.jsonl"


class MetricsWriter:
    """Appends records to `metrics.jsonl` and to event files in the same folder."""

    def __init__(
        self, folder: Path, start_step: int = 0, wandb: bool = False, config: Any = None
    ) -> None:
        """Drop records after `start_step`, left by a run that was cut off."""
        self._path = folder / METRICS_FILE
        kept = [r for r in read_metrics(folder) if r["step"] <= start_step]
        text = "".join(json.dumps(record) + "\n" for record in kept)
        write_atomically(self._path, lambda p: p.write_text(text))
        self._file = self._path.open("a")
        self._events = folder / "tensorboard"
        self._purge_step = start_step + 1 if start_step else None
        self._wandb = _start_wandb(folder, config) if wandb else None

    @cached_property
    def _tensorboard(self) -> Any:
        """Opened at the first record, so that the first steps need not wait for TensorBoard."""
        from torch.utils.tensorboard import SummaryWriter

        return SummaryWriter(str(self._events), purge_step=self._purge_step)

    def write(self, step: int, values: dict[str, float]) -> None:
        """Append one record; it is in the file when this returns."""
        with explain_write_errors(self._path):
            self._file.write(json.dumps({"step": step, **values}) + "\n")
            self._file.flush()
            for name, value in values.items():
                self._tensorboard.add_scalar(name, value, step)
        if self._wandb is not None:
            self._wandb.log(values, step=step)

    def write_video(self, step: int, name: str, gif: bytes, width: int, height: int) -> None:
        """Show a GIF among TensorBoard's images."""
        from tensorboard.compat.proto.summary_pb2 import Summary

        image = Summary.Image(height=height, width=width, colorspace=3, encoded_image_string=gif)
        summary = Summary(value=[Summary.Value(tag=name, image=image)])
        with explain_write_errors(self._path):
            self._tensorboard._get_file_writer().add_summary(summary, step)

    def close(self) -> None:
        """Flush everything."""
        with explain_write_errors(self._path):
            self._file.close()
            if "_tensorboard" in vars(self):
                self._tensorboard.close()
        if self._wandb is not None:
            self._wandb.finish()


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """All records of a run, oldest first; a last line cut short by a kill is left out.

    Raises DiscorlError for damage anywhere else: resuming would lose what follows it.
    """
    records, damaged = salvage_metrics(folder)
    if damaged:
        raise DiscorlError(
            f"{folder / METRICS_FILE}: line {damaged[0]} is not a record of metrics: take it out"
        )
    return records


def salvage_metrics(folder: Path) -> tuple[list[dict[str, Any]], list[int]]:
    """The records of a run that can be read, and the numbers of the lines that are none.

    A last line cut short by a kill is no damage.
    """
    path = folder / METRICS_FILE
    if not path.exists():
        return [], []
    records: list[dict[str, Any]] = []
    damaged: list[int] = []
    try:
        lines = path.read_text().rstrip("\n").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DiscorlError(f"{path} cannot be read: {error}") from error
    for number, line in enumerate(lines, start=1):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            if number == len(lines):
                break
            record = None
        if isinstance(record, dict) and type(record.get("step")) is int:
            records.append(record)
        else:
            damaged.append(number)
    return records, damaged


def _start_wandb(folder: Path, config: Any) -> Any:
    try:
        import wandb
    except ImportError as error:
        raise DiscorlError(f"--wandb needs the extra: {install_line('wandb')}") from error
    return wandb.init(project="discorl", name=folder.name, dir=str(folder), config=config)
