"""Completion in real shells: somebody types a part of a word and asks for the rest."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.integration.command_line import Run, run
from tests.integration.processes import CLEW
from tests.integration.tmux import OpenTmux, tmux

__all__ = ["run", "tmux"]

ASKED = {"clew ser": ["serve"], "clew serve --st": ["--store"], "clew export x --format ai": ["ai-sdk"]}
"""What was typed, and all it can become."""
BASH = """source ./made
for line in "$@"; do
    read -ra COMP_WORDS <<< "$line"
    COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 )) COMPREPLY=()
    _clew
    echo "${COMPREPLY[*]}"
done
"""


def need(shell: str) -> str:
    found = shutil.which(shell)
    if found is None:
        pytest.skip(f"{shell} is not installed, so its completion is not tried")
    return found


@pytest.mark.slow
def test_bash_completes_commands_options_and_choices(run: Run, tmp_path: Path) -> None:
    """The script as it is printed, in the shell itself."""
    bash = need("bash")
    code, script, _ = run("completion", "bash")
    (tmp_path / "made").write_text(script)
    told = subprocess.run([bash, "-c", BASH, "bash", *ASKED], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert (code, told.stdout.splitlines()) == (0, [" ".join(words) for words in ASKED.values()])


@pytest.mark.slow
def test_fish_completes_commands_options_and_choices(run: Run, tmp_path: Path) -> None:
    """fish tells what it would offer, each with a word about it."""
    fish = need("fish")
    _, script, _ = run("completion", "fish")
    (tmp_path / "made").write_text(script)
    for line, words in ASKED.items():
        command = [fish, "-c", f"source ./made; complete -C '{line}'"]
        told = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        assert [one.partition("\t")[0] for one in told.stdout.splitlines()] == words


@pytest.mark.slow
@pytest.mark.parametrize(("shell", "begin"), [("bash", "--norc -i"), ("zsh", "-f -i")])
def test_a_tab_at_the_prompt_finishes_the_word(tmux: OpenTmux, tmp_path: Path, shell: str, begin: str) -> None:
    """As somebody would set it up: by a line of the shell's own startup, with the key pressed in a terminal."""
    screen = tmux("--version;", f"PATH={Path(CLEW).parent}:$PATH", need(shell), begin)
    screen.say('PS1=no""w:')
    screen.until("now:")
    if shell == "zsh":
        screen.say("autoload -Uz compinit; compinit -u -D")
    screen.say(f'eval "$(clew completion {shell})"; echo re""ady')
    screen.until("ready")
    screen.type("clew comple")
    screen.press("Tab")
    screen.until("clew completion ")


def test_a_shell_it_does_not_know_is_refused_with_those_it_does(run: Run) -> None:
    """Named or not."""
    assert run("completion", SHELL="/bin/tcsh") == (
        2,
        "",
        "clew: completion is available for bash, zsh, fish; give one of them (invalid_input)\n",
    )
    assert run("completion", SHELL="/usr/bin/zsh")[1].startswith("#compdef clew")
    assert run("completion", "tcsh")[0] == 2
