"""Pictures of the games that a population lives in."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from functools import cache

import torch
from PIL import Image
from torch import Tensor

from discorl.envs.families import PREFIX, find_family
from discorl.envs.registry import is_external, make_environment
from discorl.errors import DiscorlError
from discorl.reports.markup import Html, embedded, escape, join
from discorl.settings import split_spec
from discorl.watching.scenes import Picture, find_scene

_PICTURES = 4
"""Of a game: moments of an episode; of a family: members."""
_SIZE = 96
_LONGEST = 200
"""Steps of random play."""


def gallery(envs: Iterable[str]) -> Html:
    """A row of pictures for each environment that is a game of ours; others are not made."""
    return join(row for env in dict.fromkeys(envs) if (row := _row(env)))


@cache
def _row(env: str) -> Html:
    try:
        shown = list(_members(env) if env.startswith(f"{PREFIX}:") else _moments(env))
    except DiscorlError:  # Its card says why.
        return Html()
    if not shown:
        return Html()
    inside = "".join(embedded(_png(picture), "png", title) for picture, title in shown)
    return Html(f'<h3>{escape(env)}</h3><div class="films">{inside}</div>')


def _members(env: str) -> Iterator[tuple[Picture, str]]:
    """The first moment of some members, with what sets each apart."""
    family = find_family(env)
    if family is not None:
        for seed in range(_PICTURES):
            spec = family.draw(seed)
            (picture, _), *_ = _moments(spec)
            yield picture, ", ".join(f"{k}={v}" for k, v in split_spec(spec)[1].items())


def _moments(env: str) -> list[tuple[Picture, str]]:
    """Some moments of one episode of random play."""
    if is_external(env):
        return []
    made = make_environment(env, 1)
    scene, generator = find_scene(made, _SIZE), torch.Generator().manual_seed(0)
    step = made.reset(0)
    seen: list[Tensor] = []
    while not step.ended.any() and len(seen) < _LONGEST:
        assert isinstance(step.observation, Tensor)
        seen.append(step.observation[0])
        step = made.step(torch.randint(made.num_actions, (1,), generator=generator))
    count = min(_PICTURES, len(seen))
    chosen = [round(place * (len(seen) - 1) / max(count - 1, 1)) for place in range(count)]
    return [(scene.draw(seen[time]), f"step {time}") for time in chosen]


def _png(picture: Picture) -> bytes:
    out = io.BytesIO()
    Image.fromarray(picture).save(out, "PNG")
    return out.getvalue()
