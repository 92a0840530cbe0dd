"""The policy: presets, the user's settings, a session's own, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from clew.compaction.policy import Policy, Pruning, policy_for
from clew.config import CompactionConfig, PruningConfig, SmartRecovery
from clew.errors import InvalidInput


def policy(preset: Any = "guide", session: Any = None, pruning: PruningConfig | None = None, **given: Any) -> Policy:
    return policy_for(CompactionConfig(preset=preset, **given), pruning or PruningConfig(), session)


@pytest.mark.rule("CP-9", "CP-6", "PR-1", "CP-12")
def test_the_guide_preset_has_the_figures_of_its_source() -> None:
    """The default: whatever the model can write is kept free, two turns, a quarter, a low temperature."""
    assert policy_for(CompactionConfig(), PruningConfig(), None) == Policy(
        preset="guide",
        pruning=Pruning(
            hard_pct=0.6,
            soft_pct=None,
            until_pct=0.4,
            strict=False,
            over_chars=400,
            min_total_chars=0,
            keep_chars=1_500,
        ),
        enabled=True,
        prunes=True,
        reserve_tokens=None,
        at_pct=None,
        strict=False,
        min_messages=0,
        when="before_call",
        frame=None,
        prompts="own",
        tail="turns",
        tail_turns=2,
        tail_budget_pct=0.25,
        keep_recent_tokens=20_000,
        summary_tokens=2_048,
        temperature=0.2,
        timeout_ms=60_000,
        retry_on_transient=2,
        prune_tool_outputs=True,
        chunked_summarize=True,
        drop_middle=True,
        measure="request",
    )


@pytest.mark.rule("CP-9", "PR-3")
def test_the_checkpoint_preset_has_the_figures_of_its_source() -> None:
    """80 %, six messages, four turns without a share, after the turn, never fatal; two passes of pruning; the time."""
    assert policy("checkpoint") == Policy(
        preset="checkpoint",
        pruning=Pruning(soft_pct=0.3, hard_pct=0.5, strict=True, over_chars=49_999, min_total_chars=50_000),
        at_pct=0.8,
        min_messages=6,
        when="after_turn",
        frame="pair",
        tail_turns=4,
        tail_budget_pct=1.0,
        summary_tokens=4_096,
        temperature=0.3,
        max_steps=10,
        output_chars=60_000,
        sends_time=True,
        repeats_by_result=False,
    )


@pytest.mark.rule("CP-9")
def test_the_presets_that_keep_tokens_have_the_figures_of_their_sources() -> None:
    """003 reserves 16,384 and keeps 20,000; 004 keeps 30,000. Both fire above the threshold only."""
    pruning = Pruning(hard_pct=0.6, until_pct=0.4)
    assert [policy("overlay"), policy("turn")] == [
        Policy(
            preset="overlay",
            pruning=pruning,
            reserve_tokens=16_384,
            strict=True,
            tail="tokens",
            frame="marked",
            prompts="overlay",
        ),
        Policy(
            preset="turn", pruning=pruning, strict=True, tail="tokens", between_turns=True, keep_recent_tokens=30_000
        ),
    ]


@pytest.mark.rule("CP-12")
def test_a_sessions_own_settings_win_over_the_users() -> None:
    """Key by key, also inside smart_recovery and pruning; what neither sets is the preset's."""
    config = CompactionConfig(
        reserve_tokens=5_000, tail_turns=3, retry_on_transient=1, smart_recovery=SmartRecovery(drop_middle=False)
    )
    session = {
        "tail_turns": 5,
        "enabled": False,
        "retry_on_transient": None,
        "smart_recovery": {"chunked_summarize": False},
        "context_measure": "rollup",
        "pruning": {"min_chars": 900, "enabled": False},
        "a_later_key": 1,
    }
    assert policy_for(config, PruningConfig(at_pct=0.5), session) == Policy(
        preset="guide",
        pruning=Pruning(hard_pct=0.5, until_pct=0.333, over_chars=900),
        enabled=False,
        prunes=False,
        reserve_tokens=5_000,
        tail_turns=5,
        retry_on_transient=1,
        chunked_summarize=False,
        drop_middle=False,
        measure="rollup",
    )


@pytest.mark.rule("CP-12", "CP-9")
def test_a_session_that_names_another_preset_starts_from_it() -> None:
    """The user's figures were chosen for the user's preset; what is in no preset stays."""
    config = CompactionConfig(tail_turns=3, reserve_tokens=1, enabled=False)
    chosen = policy_for(config, PruningConfig(at_pct=0.1), {"preset": "overlay"})
    assert chosen == Policy(
        preset="overlay",
        pruning=Pruning(hard_pct=0.6, until_pct=0.4),
        enabled=False,
        reserve_tokens=16_384,
        strict=True,
        tail="tokens",
        frame="marked",
        prompts="overlay",
    )


@pytest.mark.rule("CP-12")
def test_what_is_set_decides_how_the_tail_is_chosen() -> None:
    """The nearest layer that sets a number of turns or of tokens; of both, tokens."""
    modes = [
        policy("guide").tail,
        policy("guide", keep_recent_tokens=9).tail,
        policy("overlay", tail_turns=3).tail,
        policy("overlay", tail_budget_pct=0.1).tail,
        policy("guide", {"tail_turns": 4}, keep_recent_tokens=9).tail,
        policy("guide", tail_turns=4, keep_recent_tokens=9).tail,
    ]
    assert modes == ["turns", "tokens", "turns", "tokens", "turns", "tokens"]


@pytest.mark.rule("PR-3", "CP-12")
def test_the_passes_of_pruning_can_be_set() -> None:
    """One threshold replaces two; a soft one comes before it."""
    assert policy("checkpoint", pruning=PruningConfig(at_pct=0.4)).pruning == Pruning(
        hard_pct=0.4, over_chars=49_999, min_total_chars=50_000
    )
    assert policy(pruning=PruningConfig(soft_pct=0.2, keep_chars=10)).pruning == Pruning(
        soft_pct=0.2, hard_pct=0.6, until_pct=0.4, keep_chars=10
    )
    assert policy("checkpoint", {"pruning": {"hard_pct": 0.7, "min_total_chars": 1}}).pruning == Pruning(
        soft_pct=0.3, hard_pct=0.7, strict=True, over_chars=49_999, min_total_chars=1
    )


@pytest.mark.rule("CP-12")
@pytest.mark.parametrize(
    ("session", "key"),
    [
        ({"reserve_tokens": "many"}, "compaction.reserve_tokens"),
        ({"reserve_tokens": -1}, "compaction.reserve_tokens"),
        ({"tail_turns": 0}, "compaction.tail_turns"),
        ({"tail_budget_pct": 0}, "compaction.tail_budget_pct"),
        ({"tail_budget_pct": 1.01}, "compaction.tail_budget_pct"),
        ({"keep_recent_tokens": True}, "compaction.keep_recent_tokens"),
        ({"preset": "mine"}, "compaction.preset"),
        ({"smart_recovery": 3}, "compaction.smart_recovery"),
        ({"smart_recovery": {"drop_middle": "no"}}, "compaction.smart_recovery.drop_middle"),
        ({"pruning": []}, "compaction.pruning"),
        ({"pruning": {"at_pct": 60}}, "compaction.pruning.at_pct"),
        ({"pruning": {"keep_chars": 0}}, "compaction.pruning.keep_chars"),
        ("off", "compaction"),
    ],
)
def test_a_bad_value_is_refused_by_its_key(session: Any, key: str) -> None:
    """What a session says is checked before anything goes by it."""
    with pytest.raises(InvalidInput) as caught:
        policy(session=session)
    assert key in str(caught.value)


@pytest.mark.rule("CP-12")
def test_a_bad_value_of_the_user_is_refused_by_its_key() -> None:
    """Also where the settings came from a file."""
    with pytest.raises(InvalidInput, match=r"^pruning\.hard_pct must be greater than 0"):
        policy(pruning=PruningConfig(hard_pct=-0.5))


@pytest.mark.rule("CP-1", "CP-12")
def test_a_reserve_is_what_the_model_can_write_up_to_20_000_and_half_the_window() -> None:
    """min(20,000, max output); a small window is not all reserve."""
    guide, own = policy(), policy(reserve_tokens=7_000)
    assert [guide.reserve(200_000, out) for out in (19_999, 20_000, 20_001)] == [19_999, 20_000, 20_000]
    assert [guide.reserve(limit, 20_000) for limit in (39_999, 40_000)] == [19_999, 20_000]
    assert [own.reserve(limit, 100) for limit in (8_000, 200_000)] == [4_000, 7_000]


@pytest.mark.rule("CP-6", "CP-9")
def test_a_summary_takes_at_most_its_figure_or_a_quarter_of_what_is_usable() -> None:
    """2,048 for the guide, 4,096 for the checkpoint."""
    assert [policy().summary_cap(usable) for usable in (8_188, 8_192, 8_196)] == [2_047, 2_048, 2_048]
    assert [policy("checkpoint").summary_cap(usable) for usable in (16_380, 16_384, 90_000)] == [4_095, 4_096, 4_096]


@pytest.mark.rule("CP-5", "CP-9")
def test_a_tail_has_a_share_of_what_is_usable() -> None:
    """25 % in turns; in tokens the figure, and at most half."""
    assert [policy().tail_budget(usable) for usable in (399, 400)] == [99, 100]
    assert policy(tail_budget_pct=0.29).tail_budget(100) == 29
    assert policy("checkpoint").tail_budget(400) == 400
    assert [policy("overlay").tail_budget(usable) for usable in (39_998, 40_000, 90_000)] == [19_999, 20_000, 20_000]
