"""A frame of a video: the picture, and beside it what the agent makes of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

from discorl.observations import Observation
from discorl.watching.scenes import COLOURS, Picture

_PAPER, _INK, _FAINT = (255, 255, 255), (40, 40, 40), (225, 225, 225)
_OTHERS, _CHOSEN = COLOURS[0], COLOURS[1]
_MARGIN = 10
_LINE, _ROW = 17, 16
"""Heights of a line of text and of an action's bar."""
_TEXT = 12
_BAR = 80
_MOST_ACTIONS = 18
"""Of more, only the likeliest are shown."""
_LONGEST_NAME = 14


@dataclass(frozen=True)
class Moment:
    """One step of an episode, as it is shown."""

    episode: int
    step: int
    """Actions taken so far."""
    reward: float
    """What the last action brought."""
    total: float
    """The return so far."""
    observation: Observation | None
    """What is seen, [*shape]; None if the environment hides what an episode ended on."""
    probabilities: npt.NDArray[np.float64] | None = None
    """The policy [A]; None after the last action."""
    action: int | None = None
    """What is done next; None after the last action."""
    value: float | None = None
    """What the agent expects from here on, if it says so."""

    @property
    def last(self) -> bool:
        """Whether nothing is done any more."""
        return self.action is None

    def lines(self) -> list[tuple[str, str]]:
        """Label and text of everything but the policy."""
        # Zero is added because what rounds to it may be negative.
        value = "" if self.value is None else f"{round(self.value, 2) + 0:.2f}"
        return [
            (f"episode {self.episode + 1}", f"step {self.step}"),
            ("reward", f"{round(self.reward, 2) + 0:+.2f}"),
            ("return", f"{round(self.total, 2) + 0:.2f}"),
            ("value", value),
        ]


def shown_actions(probabilities: npt.NDArray[np.float64]) -> list[int]:
    """All actions in their order, or only the likeliest of very many."""
    if len(probabilities) <= _MOST_ACTIONS:
        return list(range(len(probabilities)))
    return [int(action) for action in np.argsort(-probabilities)[:_MOST_ACTIONS]]


def action_name(names: tuple[str, ...] | None, action: int) -> str:
    """What an action is called, cut to fit."""
    return names[action][:_LONGEST_NAME] if names is not None else f"action {action}"


class Composer:
    """Puts pictures and their captions together, all frames of one size.

    Args:
      names: what the actions are called, if that is known.
      num_actions: A.
    """

    def __init__(self, names: tuple[str, ...] | None, num_actions: int) -> None:
        self._names = names
        shown = min(num_actions, _MOST_ACTIONS)
        self._more = num_actions - shown
        texts = [action_name(names, action) for action in range(num_actions)]
        self._label = int(max(_font().getlength(text) for text in texts)) + 16
        self._width = self._label + _BAR + 42
        self._height = 4 * _LINE + 10 + _ROW * shown + (_LINE if self._more else 0)
        self._size: tuple[int, int] | None = None

    def compose(self, picture: Picture, moment: Moment) -> Picture:
        """One frame, [rows, columns, 3]."""
        rows, columns = picture.shape[:2]
        if self._size is None:
            width = columns + self._width + 3 * _MARGIN
            height = max(rows, self._height) + 2 * _MARGIN
            self._size = width + width % 2, height + height % 2  # As mp4 wants them.
        frame = Image.new("RGB", self._size, _PAPER)
        frame.paste(Image.fromarray(picture), (_MARGIN, (self._size[1] - rows) // 2))
        left = self._size[0] - self._width - _MARGIN
        self._write(ImageDraw.Draw(frame), moment, left)
        return np.array(frame)

    def _write(self, draw: Any, moment: Moment, left: int) -> None:
        top = _MARGIN
        for label, text in moment.lines():
            if text:
                draw.text((left, top), label, _INK, _font())
                draw.text((left + self._width, top), text, _INK, _font(), anchor="ra")
            top += _LINE
        top += 10
        if moment.probabilities is None:
            draw.text((left, top), "end of the episode" if moment.last else "", _INK, _font())
            return
        for action in shown_actions(moment.probabilities):
            self._bar(draw, left, top, action, moment)
            top += _ROW
        if self._more:
            draw.text((left, top), f"and {self._more} actions more", _INK, _font())

    def _bar(self, draw: Any, left: int, top: int, action: int, moment: Moment) -> None:
        assert moment.probabilities is not None
        share, chosen = float(moment.probabilities[action]), action == moment.action
        middle, start = top + _ROW // 2, left + self._label
        if chosen:  # Not by colour alone.
            corners = [(left, middle - 4), (left, middle + 4), (left + 6, middle)]
            draw.polygon(corners, fill=_CHOSEN)
        draw.text((left + 10, middle), action_name(self._names, action), _INK, _font(), anchor="lm")
        draw.rectangle((start, middle - 5, start + _BAR, middle + 5), fill=_FAINT)
        if share * _BAR >= 0.5:
            colour = _CHOSEN if chosen else _OTHERS
            draw.rectangle((start, middle - 5, start + share * _BAR, middle + 5), fill=colour)
        end = left + self._width
        draw.text((end, middle), f"{share:.0%}", _INK, _font(), anchor="rm")


@cache
def _font() -> Any:
    return ImageFont.load_default(_TEXT)
