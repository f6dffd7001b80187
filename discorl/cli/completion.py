"""`discorl completion`: scripts that let a shell complete commands and flags."""

from __future__ import annotations

import contextlib
import io
import os
import re
from dataclasses import dataclass
from typing import ClassVar, Literal
from unittest import mock

import tyro

from discorl.cli.commands import COMMANDS, parse_arguments

_BASH = """_discorl() {{
  local words
  case "${{COMP_WORDS[1]}}" in
{cases}
    *) words="{commands}" ;;
  esac
  [ "$COMP_CWORD" -le 1 ] && words="{commands}"
  COMPREPLY=($(compgen -W "$words" -- "${{COMP_WORDS[COMP_CWORD]}}"))
  [ "${{#COMPREPLY[@]}}" -eq 0 ] && COMPREPLY=($(compgen -f -- "${{COMP_WORDS[COMP_CWORD]}}"))
}}
complete -o filenames -F _discorl discorl
"""


@dataclass(frozen=True)
class CompletionCommand:
    """Print a script for tab completion in bash, zsh or fish."""

    shell: tyro.conf.Positional[Literal["bash", "zsh", "fish"]]
    """Your shell."""

    examples: ClassVar = (
        'eval "$(discorl completion bash)"     # in ~/.bashrc',
        'eval "$(discorl completion zsh)"      # in ~/.zshrc, after compinit',
        "discorl completion fish > ~/.config/fish/completions/discorl.fish",
    )

    def run(self) -> int:
        """Print."""
        flags = known_flags()
        if self.shell == "fish":
            lines = [f"complete -c discorl -n __fish_use_subcommand -a '{' '.join(flags)}'"]
            for name, own in flags.items():
                start = f"complete -c discorl -n '__fish_seen_subcommand_from {name}'"
                if words := [word for word in own if not word.startswith("--")]:
                    lines.append(f"{start} -a '{' '.join(words)}'")
                lines += [f"{start} -l {flag[2:]}" for flag in own if flag.startswith("--")]
            print("\n".join(lines))
            return 0
        cases = "\n".join(f'    {name}) words="{" ".join(own)}" ;;' for name, own in flags.items())
        script = _BASH.format(cases=cases, commands=" ".join(flags))
        start = "autoload -U +X bashcompinit && bashcompinit\n" if self.shell == "zsh" else ""
        print(start + script, end="")
        return 0


def known_flags() -> dict[str, list[str]]:
    """Command -> its subcommands and flags, as its own help names them."""
    flags = {}
    for name in COMMANDS:
        text = _help_of(name)
        choices = re.search(r"\{(\w+(?:,\w+)+)\}", text.partition("\n\n")[0])
        words = choices[1].split(",") if choices else []
        if "subcommands" in text:
            text += "".join(_help_of(name, word) for word in words)
        flags[name] = words + sorted(set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+", text)))
    return flags


def _help_of(name: str, *words: str) -> str:
    """What a command's help says, without its examples."""
    out = io.StringIO()
    wide = mock.patch.dict(os.environ, {"COLUMNS": "200", "NO_COLOR": "1"})
    with wide, contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        parse_arguments(name, [*words, "--help"])
    return out.getvalue().partition("\nExamples:\n")[0]
