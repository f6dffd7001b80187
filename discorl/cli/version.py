"""`discorl version` and `discorl --version`."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version
from typing import ClassVar

import discorl


@dataclass(frozen=True)
class VersionCommand:
    """Print the versions of discorl and of PyTorch."""

    examples: ClassVar = ("discorl version",)

    def run(self) -> int:
        """Print; PyTorch's from its package, because importing it takes a second."""
        print(f"discorl {discorl.__version__}, torch {version('torch')}")
        return 0
