"""A video: shown in a notebook, saved as a GIF or as an mp4."""

from __future__ import annotations

import base64
import importlib
import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from PIL import Image

from discorl.errors import DiscorlError
from discorl.extras import install_line
from discorl.files import write_atomically
from discorl.settings import Count, Range, check_fields
from discorl.watching.scenes import Picture

SUFFIXES = (".gif", ".mp4")
_SAMPLES = 8
"""Frames that decide the colours of a GIF."""
_EXACT = 64
"""Its commonest colours, which are kept as they are; all others are near to what they were."""
_NEAR = 8
"""Colours that differ by less in each of red, green and blue become one, the commoner."""
_HOLD = 0.8
"""Seconds for which the end of an episode is held."""


@dataclass(frozen=True)
class VideoSettings:
    """How long and how large a video is."""

    max_frames: Count = 500
    """Frames after which the video ends, whatever is still to come."""
    every: Count = 1
    """Show every how many-th step; the end of an episode is always shown."""
    size: Annotated[int, Range(32, 2000)] = 240
    """Height of the picture in pixels, roughly: boards have cells of whole pixels."""
    fps: Annotated[int, Range(1, 50)] | None = None
    """Frames in a second; by default 6 for boards, what the environment says for its own pictures,
    and 25 for all else."""

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, eq=False)
class Video:
    """Episodes that were played. A notebook shows it in place; `save` writes it to a file."""

    frames: list[Picture]
    """[rows, columns, 3] each, all of one size."""
    ends: list[int]
    """Which frames are held for a moment: each episode's last."""
    returns: list[float]
    """Of each episode; of one that the video does not show to its end, what it had so far."""
    fps: int
    cut: bool
    """Whether the video ended before the episodes did."""

    @property
    def seconds(self) -> float:
        """How long it takes to watch."""
        return (len(self.frames) + len(self.ends) * (self._held - 1)) / self.fps

    @property
    def _held(self) -> int:
        return max(round(_HOLD * self.fps), 1)

    def save(self, path: str | Path) -> Path:
        """Write a `.gif`, or an `.mp4`, which needs the extra `video`; returns the path."""
        path = Path(path)
        check_format(path)
        if path.suffix.lower() == ".gif":
            write_atomically(path, lambda p: p.write_bytes(self.gif))
        else:
            write_atomically(path, lambda p: _write_mp4(p, self._timed(), self.shape, self.fps))
        return path

    @cached_property
    def gif(self) -> bytes:
        """The bytes of a GIF."""
        images = [Image.fromarray(frame) for frame in self.frames]
        palette = _palette(images)
        flat = [image.quantize(palette=palette, dither=Image.Dither.NONE) for image in images]
        # A GIF counts hundredths of a second, and viewers slow down those below two.
        hundredths = max(round(100 / self.fps), 2)
        times = [10 * hundredths * count for count in self._counts()]
        out = io.BytesIO()
        rest: dict[str, Any] = {"append_images": flat[1:], "duration": times, "loop": 0}
        flat[0].save(out, "GIF", save_all=True, **rest)
        return out.getvalue()

    def _counts(self) -> list[int]:
        """For how many frames' time each is shown."""
        return [self._held if number in self.ends else 1 for number in range(len(self.frames))]

    def _timed(self) -> Iterator[Picture]:
        for frame, count in zip(self.frames, self._counts(), strict=True):
            yield from [frame] * count

    @property
    def shape(self) -> tuple[int, int]:
        """Width and height."""
        rows, columns = self.frames[0].shape[:2]
        return columns, rows

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        data = base64.b64encode(self.gif).decode()
        return f'<img src="data:image/gif;base64,{data}" alt="{self!r}">'

    def _repr_png_(self) -> bytes:
        """The last frame, for whatever shows no HTML."""
        out = io.BytesIO()
        Image.fromarray(self.frames[-1]).save(out, "PNG")
        return out.getvalue()

    def __len__(self) -> int:
        return len(self.frames)

    def __repr__(self) -> str:
        return f"Video({self.summary()})"

    def summary(self) -> str:
        """How long it is, and how the episodes went."""
        episodes = "1 episode" if len(self.returns) == 1 else f"{len(self.returns)} episodes"
        mean = float(np.mean(self.returns))
        word = "return" if len(self.returns) == 1 else "mean return"
        cut = ", cut off" if self.cut else ""
        return (
            f"{episodes}, {word} {mean:.2f}, {len(self.frames)} frames, {self.seconds:.1f} s{cut}"
        )


def check_format(path: Path) -> None:
    """Raise DiscorlError if no video can be written to a file of this name, and say why."""
    if path.suffix.lower() not in SUFFIXES:
        raise DiscorlError(f"{path}: expected a name ending in {' or '.join(SUFFIXES)}")
    if path.suffix.lower() == ".mp4":
        _ffmpeg()


def _palette(images: list[Image.Image]) -> Image.Image:
    """Colours that suit all frames, from some of them side by side."""
    chosen = images[:: max(len(images) // _SAMPLES, 1)][:_SAMPLES]
    width, height = chosen[0].size
    joined = Image.new("RGB", (width, height * len(chosen)))
    for number, image in enumerate(chosen):
        joined.paste(image, (0, number * height))
    counted = sorted(joined.getcolors(joined.width * joined.height) or [], reverse=True)
    common = [_triple(colour) for _, colour in counted[:_EXACT]]
    rest = joined.quantize(256 - _EXACT).getpalette() or []
    others = [_triple(rest[place : place + 3]) for place in range(0, len(rest), 3)]
    # Pillow looks colours up in steps of four, so that of two near ones it may take the wrong one.
    kept: list[tuple[int, int, int]] = []
    for colour in common + others:
        if not any(_is_near(colour, other) for other in kept):
            kept.append(colour)
    palette = Image.new("P", (1, 1))
    palette.putpalette([part for colour in kept for part in colour])
    return palette


def _triple(colour: Any) -> tuple[int, int, int]:
    red, green, blue = colour
    return red, green, blue


def _is_near(colour: tuple[int, int, int], other: tuple[int, int, int]) -> bool:
    return all(abs(a - b) < _NEAR for a, b in zip(colour, other, strict=True))


def _write_mp4(path: Path, frames: Iterable[Picture], size: tuple[int, int], fps: int) -> None:
    writer = _ffmpeg().write_frames(
        str(path),
        size,
        fps=fps,
        macro_block_size=2,
        output_params=["-f", "mp4"],
        ffmpeg_log_level="error",
    )
    writer.send(None)
    try:
        for frame in frames:
            writer.send(np.ascontiguousarray(frame))
    finally:
        writer.close()


def _ffmpeg() -> Any:
    try:
        return importlib.import_module("imageio_ffmpeg")
    except ImportError as error:
        raise DiscorlError(
            f"an mp4 needs the extra: {install_line('video')}; a .gif needs nothing"
        ) from error
