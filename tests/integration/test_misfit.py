"""Where only certain words are taken, a wrong one is answered with those: in settings, a query, a body."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

import clew
from clew.config import CompactionConfig, Config, PruningConfig
from clew.convert import explain_type_error
from clew.errors import InvalidInput
from tests.integration.command_line import Run, run
from tests.integration.http_client import served

__all__ = ["run"]

PRESETS = "allowed: checkpoint, guide, overlay, turn"


@pytest.mark.rule("CP-12")
@pytest.mark.parametrize(
    ("written", "told"),
    [
        ('[compaction]\npreset = "nonsense"', f"'nonsense' - at `$.compaction.preset`; {PRESETS}"),
        ('[save]\nsave_on = "word"', "allowed: chunk, step, turn"),
        ("[tools.output_chars_by_store]\npostgres = 5000", "allowed: json, jsonl, memory, postgresql, sqlite"),
        ('[providers.mine]\nkind = "smoke"\nbase_url = "http://127.0.0.1"', "allowed: alibaba, anthropic, "),
        ("[compaction]\ntail_turns = 0", "compaction.tail_turns must be an integer of at least 1"),
        ("[pruning]\nsoft_pct = 30", "pruning.soft_pct must be greater than 0 and at most 1"),
        ("[tools]\noutput_chars = 10", "Expected `int` >= 4000 - at `$.tools.output_chars`"),
    ],
)
def test_a_wrong_setting_is_named_with_what_may_stand_there(written: str, told: str, run: Run, tmp_path: Path) -> None:
    """At once and by every command, not by the first turn that goes by it."""
    config = tmp_path / "config" / "clew" / "config.toml"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(written)
    code, out, err = run("run", "hello", "--model", "demo/echo")
    assert (code, out, told in err) == (2, "", True), err


@pytest.mark.rule("CP-12")
async def test_over_http_a_wrong_word_is_answered_with_those_that_are_taken() -> None:
    """In a query, in a body, and in what a session sets for itself."""
    async with served() as client:
        session_id = await client.session()
        own = {"compaction": {"preset": "nonsense"}}
        answers = [
            await client.get(f"/api/sessions/{session_id}/messages?view=nonsense"),
            await client.get("/api/sessions?kind=nonsense"),
            await client.post(f"/api/sessions/{session_id}/prompt", {"text": "hi", "on_busy": "nonsense"}),
            await client.post("/api/sessions", {"metadata": own}),
            await client.request("PATCH", f"/api/sessions/{session_id}", {"metadata": own}),
        ]
        assert [(one.status, one.code) for one in answers] == [(422, "invalid_input")] * 5
        assert [one.json()["detail"].rpartition("; ")[2] for one in answers] == [
            "allowed: all, model, visible",
            "allowed: any, chat, subagent",
            "allowed: interrupt, queue, reject",
            PRESETS,
            PRESETS,
        ]
        assert "`compaction.preset`" in answers[3].json()["detail"]


@pytest.mark.rule("CP-12")
@pytest.mark.parametrize(
    "config",
    [
        Config(compaction=CompactionConfig(preset="nonsense")),  # type: ignore[arg-type]
        Config(compaction=CompactionConfig(keep_recent_tokens=0)),
        Config(pruning=PruningConfig(at_pct=7)),
    ],
)
async def test_a_program_learns_of_wrong_settings_when_it_opens_a_store(config: Config) -> None:
    """Not when its first session runs."""
    with pytest.raises(InvalidInput, match=r"preset|keep_recent_tokens|at_pct"):
        async with clew.open("memory:", config=config):
            raise AssertionError("opened")


class _Kinds(msgspec.Struct):
    one: Literal["a", "b"] | None = None
    many: list[Literal["c", "d"]] = []
    by_name: dict[str, Literal["e", "f"]] = {}
    number: int = 0


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({"one": "x"}, "Invalid enum value 'x' - at `$.one`; allowed: a, b"),
        ({"many": ["c", "x"]}, "Invalid enum value 'x' - at `$.many[1]`; allowed: c, d"),
        ({"by_name": {"n": "x"}}, "Invalid enum value 'x' - at `$.by_name[...]`; allowed: e, f"),
        ({"number": "x"}, "Expected `int`, got `str` - at `$.number`"),
    ],
)
def test_the_words_are_those_of_the_place_that_is_wrong(value: Any, told: str) -> None:
    """However deep it is; what is wrong in another way is told as it was."""
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert(value, _Kinds)
    assert explain_type_error(caught.value, _Kinds) == told
