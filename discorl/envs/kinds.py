"""Arrays that are more than numbers: names of things, texts, and stacks of images."""

from __future__ import annotations

from collections import deque
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

_Array = npt.NDArray[Any]

BYTES = 256
"""How many kinds of bytes there are."""


class Kinds(spaces.Box):
    """An array whose numbers, from 0 to `number` - 1, name kinds of things: glyphs or letters.

    Networks learn a vector for each kind. A map [rows, columns] goes through convolutions; a list
    [length] becomes the mean of its vectors, without zeros: a bag of words or bytes.
    """

    def __init__(self, number: int, shape: tuple[int, ...]) -> None:
        self.number = number
        super().__init__(0, number - 1, shape, np.uint8 if number <= BYTES else np.int16)


class Frames(spaces.Box):
    """Consecutive images [S, rows, columns, channels], the newest last, as bytes.

    Those from before the episode are zeros. Replay keeps each image once.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__(0, 255, shape, np.uint8)


def text_bytes(text: str, length: int) -> npt.NDArray[np.uint8]:
    """The first `length` bytes of a text, with zeros behind it: [length]."""
    encoded = np.frombuffer(text.encode("utf-8", "replace")[:length], dtype=np.uint8)
    return np.pad(encoded, (0, length - len(encoded)))


class TextAsBytes(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Texts of a dictionary observation as bytes that agents read, which they cannot do otherwise.

    Args:
      length: bytes that are read of each; the others are ignored.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], length: int = 64) -> None:
        super().__init__(env)
        self._length = length
        assert isinstance(env.observation_space, spaces.Dict), "it must show a dictionary"
        parts = env.observation_space.spaces
        self._texts = [name for name, part in parts.items() if _is_text(part)]
        read = {name: Kinds(BYTES, (length,)) for name in self._texts}
        self.observation_space = spaces.Dict({**parts, **read})

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        observation, info = super().reset(**kwargs)
        return self._read(observation), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Act."""
        observation, *rest = super().step(action)
        return self._read(observation), *rest  # type: ignore[return-value]

    def _read(self, observation: Any) -> dict[str, Any]:
        read = {name: text_bytes(observation[name], self._length) for name in self._texts}
        return {**observation, **read}


def _is_text(space: spaces.Space[Any]) -> bool:
    """Gymnasium's texts, and MiniGrid's missions."""
    return isinstance(space, spaces.Text) or getattr(space.dtype, "kind", "") == "U"


class StackedImages(gymnasium.Wrapper[Any, Any, Any, Any]):
    """The newest `stack` images [rows, columns, channels] of an episode, as `Frames`."""

    def __init__(self, env: gymnasium.Env[Any, Any], stack: int) -> None:
        super().__init__(env)
        shape = env.observation_space.shape
        assert shape is not None
        self._frames: deque[_Array] = deque(maxlen=stack)
        self._before = np.zeros(shape, dtype=np.uint8)
        self.observation_space = Frames((stack, *shape))

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        image, info = super().reset(**kwargs)
        self._frames.extend([self._before] * (self._frames.maxlen or 1))
        self._frames.append(image)
        return np.stack(self._frames), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Act."""
        image, *rest = super().step(action)
        self._frames.append(image)
        return np.stack(self._frames), *rest  # type: ignore[return-value]
