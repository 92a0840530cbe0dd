"""Plans of the runtime that need no engine: requests withdrawn, work raced, a way out of a full window."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from clew.compaction.context import Context, RequestFrame, report
from clew.compaction.plan import find_branch, parent_of_marker, plan_compaction, plan_summary, written_by_rule
from clew.compaction.policy import policy_for
from clew.config import CompactionConfig, PruningConfig
from clew.errors import CompactionError
from clew.providers.base import ProviderFailure
from clew.providers.retry import MAX_ATTEMPTS, delay_ms
from clew.session.acquire.waiting import open_waits
from clew.session.cancellable import after, run_until, when_done
from clew.session.prompt.submission import Outcomes, TurnOutcome
from clew.testing.clock import FakeClock
from clew.tools.base import Signal
from clew.transcript.fold import Fold
from clew.transcript.head import moved, newly_hidden, restart_turn, with_turn
from clew.transcript.line import LineTurn
from clew.transcript.message import MessageRow, PartRow
from clew.transcript.projection import Hidden
from clew.transcript.session import Model
from clew.transcript.turn import Tree, Turn
from clew.transcript.usage import Usage
from clew.transcript.wait import Wait, changed_parts, close_request, is_answered, waits_of, with_waits

MODEL = Model("demo", "echo")


def turn(id: str, parent: str | None = None, status: Any = "completed", **data: Any) -> Turn:
    return Turn(id=id, session_id="s", parent_turn_id=parent, created_at=1, status=status, data=data)


def row(id: str, role: Any, *parts: dict[str, Any]) -> MessageRow:
    held = tuple(PartRow(f"p{n}", n, part, 1, 1) for n, part in enumerate(parts))
    return MessageRow(id, "s", role, 1, 1, {}, held)


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


# Waiting


@pytest.mark.parametrize(
    ("state", "left", "error"),
    [
        ("approval-requested", "output-denied", None),
        ("approval-responded", "output-denied", None),
        ("input-available", "output-error", "never mind"),
        ("output-available", "output-available", None),
    ],
)
def test_a_request_that_nobody_answers_is_denied(state: str, left: str, error: str | None) -> None:
    """A question ends as an error; what has ended stays."""
    call = {"type": "tool-ask", "toolCallId": "c", "state": state, "input": {}, "approval": {"id": "apr"}}
    message = row("a", "assistant", call)
    fold = Fold("a", parts=[call])
    close_request(fold, "c", "never mind", {})
    assert (fold.part(0)["state"], fold.part(0).get("errorText")) == (left, error)
    assert [part.index for part in changed_parts(message, fold, 9)] == ([0] if left != state else [])


def test_what_waits_is_what_has_no_answer() -> None:
    """The turn keeps the answered ones of its step too."""
    waits = (
        Wait("c1", "ask", "approval", 1, "d", "apr", {"approved": True}),
        Wait("c2", "ask", "question", 2, "e"),
    )
    held = turn("t", status="waiting", **with_waits(waits))
    assert waits_of(held) == waits
    assert [wait.tool_call_id for wait in open_waits(waits)] == ["c2"]
    assert (is_answered(waits), is_answered(waits[:1]), waits_of(None)) == (False, True, ())


# Outcomes and races


async def test_an_outcome_reaches_everybody_who_asked_for_it_once() -> None:
    """One future a message; what nobody awaits is no error, and a cancelled one is told."""
    outcomes = Outcomes()
    first, again, other = (outcomes.expect("s1", id_) for id_ in ("u1", "u1", "u2"))
    kept, gone = outcomes.expect("s1", "u3"), outcomes.expect("s2", "u4")
    assert first is again
    ended = TurnOutcome("t", "a", "completed")
    outcomes.resolve("u1", ended)
    outcomes.resolve("u1", ended)
    outcomes.cancel("u2")
    outcomes.cancel_session("s2")
    assert (await first, other.cancelled()) == (ended, True)
    assert (kept.cancelled(), gone.cancelled()) == (False, True)


async def test_work_is_done_or_stopped() -> None:
    """What is done is handed back, failed or not; what is stopped is cancelled, and given a moment for it."""

    async def done() -> int:
        return 1

    async def fail() -> int:
        raise ValueError("no")

    async def never() -> int:
        await asyncio.Event().wait()
        return 2

    assert (await run_until(done(), when_done(never()))).result() == 1
    assert isinstance((await run_until(fail(), when_done(never()))).exception(), ValueError)
    clock, signal, loop = FakeClock(), Signal(), asyncio.get_running_loop()
    assert (await run_until(never(), when_done(done()), grace_s=1)).cancelled()
    loop.call_soon(clock.advance, 10)
    assert (await run_until(never(), after(clock, 10), grace_s=1)).cancelled()
    loop.call_soon(signal.abort, "by somebody")
    assert (await run_until(never(), signal.on_abort, grace_s=1)).cancelled()
    assert (await run_until(never(), signal.on_abort, grace_s=1)).cancelled(), "it was aborted before"


async def test_who_left_is_not_told_of_an_abort() -> None:
    """Work that was done hears nothing of what comes later, and whoever still listens does, once."""
    signal, told = Signal(), []
    left, stayed = (signal.on_abort(lambda name=name: told.append(name)) for name in ("left", "stayed"))  # type: ignore[misc]
    left.cancel()
    signal.abort("enough")
    signal.abort("again")
    stayed.cancel()
    assert told == ["stayed"]


async def test_one_who_fails_when_told_of_an_abort_keeps_it_from_nobody(caplog: pytest.LogCaptureFixture) -> None:
    signal, told = Signal(), []

    def fail() -> None:
        raise RuntimeError("not now")

    signal.on_abort(fail)
    signal.on_abort(lambda: told.append("heard"))
    signal.abort("enough")
    assert (told, [record.exc_text is not None for record in caplog.records]) == (["heard"], [True])


@pytest.mark.rule("RN-3")
def test_only_a_passing_failure_is_tried_again() -> None:
    """Longer each time; a provider that says how long is believed, up to two minutes."""
    passing = ProviderFailure("busy", kind="transient")
    assert [delay_ms(passing, attempt, 1.0) for attempt in range(1, MAX_ATTEMPTS + 1)] == [1000, 2000, 4000, 8000, None]
    assert delay_ms(passing, 1, 0.0) == 500
    assert delay_ms(ProviderFailure("no", kind="auth"), 1, 1.0) is None
    assert delay_ms(ProviderFailure("busy", kind="transient", retry_after_ms=120_000), 1, 0.0) == 120_000
    assert delay_ms(ProviderFailure("busy", kind="transient", retry_after_ms=120_001), 1, 0.0) is None


# The head


def test_a_move_hides_what_leaves_the_line_and_shows_what_comes_back() -> None:
    """Only what differs is to be written."""
    turns = {"t1": turn("t1"), "t2": turn("t2", "t1")}
    tree = moved(Tree("t1", None, turns, {"t1": ("u1",), "t2": ("u2",)}, ()), "s", "t2", 1, "turn")
    back = moved(tree, "s", "t1", 2, "rewind")
    assert newly_hidden(tree, back, ()) == {"u2": Hidden(2, "rewind")}
    assert newly_hidden(back, moved(back, "s", "t2", 3, "unrewind"), ()) == {"u2": None}
    grown = with_turn(back, turn("t3", "t1"), ("u3",))
    assert (grown.turns["t3"].depth, grown.links["t3"]) == (1, ("u3",))
    assert restart_turn(tree, (), tree.turns["t2"], "new") == ("t1", ())
    assert restart_turn(tree, (), tree.turns["t1"], "new") == (None, ())


# Room


def context(*turns: tuple[int, int], window: int = 4_000) -> Context:
    """Turns of so many characters each, said and answered."""
    line = [
        LineTurn(
            turn(f"t{n}", f"t{n - 1}" if n else None),
            (
                row(f"u{n}", "user", text("x" * said)),
                row(f"a{n}", "assistant", {"type": "step-start"}, text("y" * back)),
            ),
        )
        for n, (said, back) in enumerate(turns)
    ]
    frame = RequestFrame(model=MODEL, window=window, max_output=500, system_chars=400, tools_chars=0)
    return Context(frame, policy_for(CompactionConfig(), PruningConfig(), None), line, ())


@pytest.mark.rule("CP-8")
def test_the_way_out_of_a_full_window_is_the_longest_tail_that_fits() -> None:
    """It begins with a user message, and leaves out the turn that does not fit; without room there is none."""
    full = context((40, 9_000), (40, 4_000), (40, 40), (16_000, 0))
    model = {"provider_id": "demo", "model_id": "echo"}
    assert full.overflows
    assert find_branch(full, "t3") is None
    assert find_branch(context((40, 14_000), (40, 400), (40, 40), (400, 0)), "t3") == {
        "from_message_id": "a2",
        "start_message_id": "u1",
        "model": model,
    }


def test_a_compaction_is_planned_from_values_alone() -> None:
    """Where it cuts, what the summariser is given, and a summary by rule that is smaller than what it replaces."""
    full = context(*[(400, 2_000)] * 6)
    plan = plan_compaction(full, "s", open_turn_id=None, inside=False, auto=True)
    assert plan is not None
    assert (plan.session_id, plan.cut.summarised[0].id, plan.auto) == ("s", "u0", True)
    task = plan_summary(full, plan)
    assert (task.previous, task.directives, task.summary_tokens) == (None, (), plan.summary_tokens)
    assert [message.id for message in task.messages] == [message.id for message in plan.cut.summarised]
    written = written_by_rule(task, plan, Usage())
    assert (written.strategy, written.tokens < plan.replaced_tokens) == ("drop_middle", True)
    assert plan_compaction(context((40, 40)), "s", open_turn_id=None, inside=False, auto=True) is None


def test_the_gauge_adds_up() -> None:
    """What is used is the sum of its parts."""
    shown = report(context((400, 400), (400, 400)))
    parts = shown.parts
    assert shown.used == parts.system + parts.tools + parts.summary + parts.history
    assert (shown.limit, shown.measured, parts.pruned) == (4_000, False, 0)


def test_a_compaction_goes_below_the_head_or_above_an_open_turn_that_is_it() -> None:
    """Never above a turn with turns below it: their history would change."""
    opened = turn("t2", "t1", "running")
    assert [parent_of_marker("t1", one, has_child=False) for one in (None, opened)] == ["t1", "t1"]
    assert parent_of_marker("t2", opened, has_child=False) == "t1"
    with pytest.raises(CompactionError):
        parent_of_marker("t2", opened, has_child=True)
