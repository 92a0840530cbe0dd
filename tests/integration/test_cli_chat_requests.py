"""Requests in a terminal are answered by an act aimed at them: typing meant for something else answers none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.integration.screen import Open, chat
from tests.integration.tmux import OpenTmux, tmux

__all__ = ["chat", "tmux"]
pytestmark = pytest.mark.rule("PM-13")
READY = "/help for commands"
_QUESTION = '!question {"question": "Which way?", "options": ["left", "right"]}\r'


def test_input_typed_before_a_request_was_drawn_goes_to_the_composer(chat: Open, tmp_path: Path) -> None:
    """Also single keys that would answer it; they stay there when it is drawn, and after it was answered."""
    os.mkfifo(tmp_path / "gate")
    screen = chat(model="demo/tools", moment_s=0.3)
    screen.until(READY)
    screen.type("!bash cat gate; touch made\r")
    screen.until("allow?")
    screen.answer("y", "working")
    screen.type("!bash touch other\r")
    screen.until("⋯ !bash touch other")
    screen.type("ysp")
    screen.shows("› ysp")
    (tmp_path / "gate").write_text("open")
    screen.until("⋯ ysp  (saved; answer with Enter)")
    screen.answer("\r", "y allows it once")
    screen.until("[n]o:")
    assert not (tmp_path / "other").exists()
    screen.answer("n\r", "reason (optional, sent to the model):")
    screen.type("\r")
    screen.shows("⊘ bash touch other  denied")
    screen.shows("› ysp")
    screen.type("\x15")
    screen.idle()
    assert not (tmp_path / "other").exists()
    assert screen.leave() == 0


def test_a_sentence_typed_at_a_request_is_no_answer(chat: Open, tmp_path: Path) -> None:
    """Although its first letter alone would be one."""
    screen = chat(model="demo/tools", moment_s=0.3)
    screen.until(READY)
    screen.type("!bash touch made\r")
    screen.until("[n]o:")
    screen.type("please do not do that, yes?\r")
    screen.until("is not an answer: y allows it once")
    screen.until("[n]o:")
    assert not (tmp_path / "made").exists()
    screen.answer("n\r", "reason")
    screen.type("\r")
    screen.shows("⊘ bash touch made  denied")
    screen.idle()
    assert screen.leave() == 0


def test_an_empty_enter_never_approves_at_any_stage(chat: Open, tmp_path: Path) -> None:
    """Neither the request, nor the scope of a rule, nor does it answer a question with nothing."""
    screen = chat(model="demo/tools")
    screen.until(READY)
    screen.type("!bash touch made\r")
    screen.until("allow?")
    screen.answer("\r", "y allows it once, s for this session, p for this project, n denies it\n")
    screen.until("[n]o:")
    screen.answer("s", "scope, by number:")
    for empty in ("\r", "  \r", "0\r"):
        screen.answer(empty, "a number from 1 to ")
        screen.until("scope, by number:")
    assert not (tmp_path / "made").exists()
    screen.answer("1\r", "✓ bash touch made")
    screen.idle()
    screen.type(_QUESTION)
    screen.until("your answer:")
    for empty in ("\r", "   \r"):
        screen.answer(empty, "an answer cannot be empty\n")
        screen.until("your answer:")
    screen.answer("1\r", "question done: left")
    screen.idle()
    assert screen.leave() == 0


@pytest.mark.service
@pytest.mark.slow
def test_typing_ahead_in_a_real_terminal_approves_nothing(tmux: OpenTmux, tmp_path: Path) -> None:
    """They stay in the composer, and an empty Enter at the request answers nothing."""
    (tmp_path / "config" / "clew").mkdir(parents=True)
    (tmp_path / "config" / "clew" / "config.toml").write_text('default_model = "demo/tools"\n')
    screen = tmux()
    screen.until("/ commands")
    os.mkfifo(tmp_path / "gate")
    screen.say("!bash cat gate")
    screen.until("allow? [y]es once")
    screen.press("y")
    screen.until("Esc stops · Enter queues")
    screen.say("!bash touch made")
    screen.until("⋯ !bash touch made")
    screen.type("ysp")
    screen.until("› ysp")
    (tmp_path / "gate").write_text("open")
    screen.until("? bash touch made", "⋯ ysp  (saved; answer with Enter)")
    screen.press("Enter")
    screen.until("y allows it once, s for this session")
    assert not (tmp_path / "made").exists()
    screen.press("n", "Enter")
    screen.until("reason (optional")
    screen.press("Enter")
    screen.until("⊘ bash touch made", "› ysp")
    assert not (tmp_path / "made").exists()
