"""Line, views and projection by examples, told as transcripts."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from clew.errors import InternalError
from clew.transcript.line import LineTurn, line_turns, path_to
from clew.transcript.message import Message
from clew.transcript.metadata import projection_of
from clew.transcript.projection import CompactionTail, Hidden, compaction_tails, hidden_messages
from clew.transcript.turn import HeadMove, Tree, Turn
from clew.transcript.turn_state import OPEN
from clew.transcript.view import find_compaction, model_view, visible_view
from tests.unit.line_history import FRAME, NAMES, History, allowed_operations

# Examples, as transcripts.


def ids(messages: list[Message]) -> list[str]:
    return [message.id for message in messages]


def test_an_empty_session_has_an_empty_line() -> None:
    """No turns, no messages, nothing hidden, nothing sent."""
    history = History()
    assert line_turns(history.tree) == ()
    assert (visible_view([]), model_view([]), history.projection()) == ([], [], {})


def test_a_plain_conversation_is_seen_and_sent_as_it_is() -> None:
    """Each message names the turn it was reached by and when it came."""
    history = History()
    history.turn()
    history.prompt()
    expected = [
        Message("u1", "user", [{"type": "text", "text": "at 1"}], {"x": "u1", "turn_id": "t1", "created_at": 1}),
        Message(
            "a1",
            "assistant",
            [
                {"type": "step-start"},
                {"type": "text", "text": "step 0 at 2"},
                {"type": "step-start"},
                {"type": "text", "text": "step 1 at 2"},
            ],
            {"x": "a1", "turn_id": "t1", "created_at": 2},
        ),
        Message("u2", "user", [{"type": "text", "text": "at 5"}], {"x": "u2", "turn_id": "t2", "created_at": 5}),
    ]
    assert visible_view(history.line_of_turns) == model_view(history.line_of_turns) == expected
    assert history.projection() == {}


def test_a_rewind_hides_what_comes_after_and_a_goto_brings_it_back() -> None:
    """Since the moment of the move."""
    history = History()
    for _ in range(3):
        history.turn()
    history.move("t1", "rewind", at=100)
    assert history.projection() == dict.fromkeys(["u2", "a2", "u3", "a3"], Hidden(100, "rewind"))
    history.move("t2", "goto", at=200)
    assert history.projection() == dict.fromkeys(["u3", "a3"], Hidden(100, "rewind"))
    history.move("t1", "rewind", at=300)
    assert history.projection() == {
        **dict.fromkeys(["u2", "a2"], Hidden(300, "rewind")),
        **dict.fromkeys(["u3", "a3"], Hidden(100, "rewind")),
    }


def test_a_rewind_of_the_first_message_leaves_nothing_and_a_second_root_may_follow() -> None:
    """Several roots are allowed."""
    history = History()
    history.turn()
    history.move(None, "rewind", at=100)
    assert line_turns(history.tree) == ()
    history.turn()
    assert [turn.id for turn in line_turns(history.tree)] == ["t2"]
    assert history.projection() == dict.fromkeys(["u1", "a1"], Hidden(100, "rewind"))


def test_a_resend_keeps_the_message_and_hides_its_answer() -> None:
    """Both turns hold the row; it is off only once the head has left both."""
    history = History()
    history.turn()
    history.turn()
    sibling = history.resend("t2")
    resent_at = history.now
    assert history.links[sibling] == ("u2",)
    assert ids(visible_view(history.line_of_turns)) == ["u1", "a1", "u2"]
    assert history.projection() == {"a2": Hidden(resent_at, "rewind")}
    history.move("t1", "rewind", at=1000)
    assert history.projection() == {"a2": Hidden(resent_at, "rewind"), "u2": Hidden(1000, "rewind")}
    history.move("t2", "goto")
    assert history.projection() == {}


def test_a_message_of_two_turns_is_hidden_since_the_last_of_them_was_left_for_good() -> None:
    """A turn that was left, entered again and left once more goes by the last time."""
    history = History()
    history.turn()
    history.turn()
    sibling = history.resend("t2")
    history.move("t2", "goto", at=100)
    history.move("t1", "rewind", at=200)
    assert history.projection()["u2"] == Hidden(200, "rewind")
    history.move(sibling, "goto", at=300)
    history.move("t2", "goto", at=400)
    history.move("t1", "rewind", at=50)
    assert history.projection() == {"u2": Hidden(50, "rewind"), "a2": Hidden(50, "rewind")}


def test_a_refused_prompt_is_hidden_as_refused_and_an_open_one_is_not() -> None:
    """The head never was there; the line ran through it while it was open."""
    history = History()
    history.turn()
    history.prompt()
    assert ids(visible_view(history.line_of_turns)) == ["u1", "a1", "u2"]
    history.settle("refused")
    assert ids(visible_view(history.line_of_turns)) == ["u1", "a1"]
    assert history.projection() == {"u2": Hidden(history.now, "refused")}


def test_a_refused_answer_to_a_resent_message_stays_on_the_line_until_the_head_leaves() -> None:
    """The head was there already: what takes the message off is the rewind."""
    history = History()
    history.turn()
    history.turn()
    history.resend("t2")
    history.reopen()
    history.settle("refused")
    assert "u2" not in history.projection()
    history.move("t1", "rewind", at=1000)
    assert history.projection()["u2"] == Hidden(1000, "rewind")


@pytest.mark.parametrize(
    ("refused_at", "hidden"), [(5, Hidden(10, "rewind")), (10, Hidden(10, "refused")), (20, Hidden(20, "refused"))]
)
def test_of_a_refusal_and_a_rewind_the_later_one_hides(refused_at: int, hidden: Hidden) -> None:
    """A row that both a turn left behind and a refused one hold."""
    left = Turn(id="t1", session_id="s", parent_turn_id=None, created_at=1, status="completed", settled_at=2)
    refused = msgspec.structs.replace(left, id="t2", status="refused", settled_at=refused_at)
    moves = (HeadMove(1, "s", None, "t1", 2, "turn"), HeadMove(2, "s", "t1", None, 10, "rewind"))
    tree = Tree(None, None, {"t1": left, "t2": refused}, {"t1": ("u1",), "t2": ("u1",)}, moves)
    assert hidden_messages(tree) == {"u1": hidden}


def compacted() -> History:
    """Three turns, the first two summarised."""
    history = History()
    for _ in range(3):
        history.turn()
    history.compact("u3")
    return history


@pytest.mark.rule("CP-3")
def test_a_compaction_stands_for_what_came_before_its_tail() -> None:
    """A person sees the marker, the model a user message in clew's own frame; the originals are hidden, not gone."""
    history = compacted()
    marker = history.shown("c1")
    assert visible_view(history.line_of_turns) == [marker, history.shown("u3"), history.shown("a3")]
    assert model_view(history.line_of_turns) == [
        Message(
            "c1",
            "user",
            [{"type": "text", "text": FRAME.format("summary by t4")}],
            {"turn_id": "t4", "synthetic": True, "summary": True},
        ),
        history.shown("u3"),
        history.shown("a3"),
    ]
    at = history.turns["t4"].settled_at
    assert at is not None
    assert history.projection() == dict.fromkeys(["u1", "a1", "u2", "a2"], Hidden(at, "compaction"))


def test_rewinding_before_a_compaction_brings_the_originals_back_by_itself() -> None:
    """The compaction is a turn on the path; going back to it brings its summary back."""
    history = compacted()
    hidden = history.projection()
    history.move("t3", "rewind", at=100)
    assert ids(model_view(history.line_of_turns)) == ["u1", "a1", "u2", "a2", "u3", "a3"]
    assert history.projection() == {"c1": Hidden(100, "rewind")}
    history.move("t4", "unrewind")
    assert history.projection() == hidden


@pytest.mark.rule("CP-3")
def test_a_second_compaction_takes_the_place_of_the_first_and_leaves_its_times() -> None:
    """What the first covered stays hidden since the first; its marker is covered by the second."""
    history = compacted()
    first = history.now - 1
    history.turn()
    history.compact("u4")
    second = history.now - 1
    assert ids(visible_view(history.line_of_turns)) == ["c2", "u4", "a4"]
    assert history.projection() == {
        **dict.fromkeys(["u1", "a1", "u2", "a2"], Hidden(first, "compaction")),
        **dict.fromkeys(["u3", "a3", "c1"], Hidden(second, "compaction")),
    }


@pytest.mark.rule("CP-3")
def test_a_tail_that_begins_before_an_older_marker_leaves_that_marker_out() -> None:
    """With two turns kept each time this is the rule, not the exception."""
    history = History()
    for _ in range(3):
        history.turn()
    history.compact("u2")
    history.turn()
    history.compact("u3")
    assert ids(model_view(history.line_of_turns)) == ["c2", "u3", "a3", "u4", "a4"]
    assert history.projection()["c1"] == Hidden(history.now - 1, "compaction")
    assert "c2" not in history.projection()


@pytest.mark.rule("CP-3")
def test_a_split_sends_only_the_later_steps_of_the_message_it_cuts() -> None:
    """A person still sees it whole."""
    history = History()
    history.turn()
    history.compact("a1", split=2)
    assert [message.parts for message in model_view(history.line_of_turns)][1:] == [history.shown("a1").parts[2:]]
    assert visible_view(history.line_of_turns) == [history.shown("c1"), history.shown("a1")]
    assert history.projection() == {"u1": Hidden(history.now - 1, "compaction")}


@pytest.mark.rule("CP-3")
def test_a_compaction_for_an_open_turn_lies_above_it_and_keeps_it() -> None:
    """Its marker comes before its tail on the line, and is not hidden for that."""
    history = History()
    history.turn()
    history.prompt()
    history.compact("u2")
    assert [turn.id for turn in line_turns(history.tree)] == ["t1", "t3", "t2"]
    assert ids(visible_view(history.line_of_turns)) == ["c1", "u2"]
    assert history.projection() == dict.fromkeys(["u1", "a1"], Hidden(history.now - 1, "compaction"))
    history.compact("u2")
    assert ids(model_view(history.line_of_turns)) == ["c2", "u2"]
    assert history.projection()["c1"] == Hidden(history.now - 1, "compaction")


@pytest.mark.rule("CP-3")
def test_a_prompt_edited_below_its_compaction_is_sent() -> None:
    """The tail named the message that was edited and is off the line now: all above the marker stays summarised."""
    history = History()
    history.turn()
    history.prompt()
    history.compact("u2")
    history.reply()
    history.settle()
    history.move("t3", "rewind", at=100)
    assert ids(model_view(history.line_of_turns)) == ["c1"]
    history.turn()
    assert ids(model_view(history.line_of_turns)) == ["c1", "u3", "a3"]
    assert ids(visible_view(history.line_of_turns)) == ["c1", "u3", "a3"]
    compacted_at = history.turns["t3"].settled_at
    assert compacted_at is not None
    assert history.projection() == {
        **dict.fromkeys(["u1", "a1"], Hidden(compacted_at, "compaction")),
        **dict.fromkeys(["u2", "a2"], Hidden(100, "rewind")),
    }


@pytest.mark.rule("CP-3")
def test_a_prompt_resent_below_its_compaction_is_sent() -> None:
    """The tail began in the answer that was left behind. The prompt is in the summary too: better twice than never."""
    history = History()
    history.turn()
    history.prompt()
    history.reply()
    history.compact("a2", split=2)
    assert ids(model_view(history.line_of_turns)) == ["c1", "a2"]
    history.settle()
    history.resend("t2")
    assert ids(model_view(history.line_of_turns)) == ids(visible_view(history.line_of_turns)) == ["c1", "u2"]
    assert model_view(history.line_of_turns)[1] == history.shown("u2")


def test_a_prompt_refused_after_room_was_made_for_it_is_hidden_as_refused() -> None:
    """The head left its turn for the compaction while it was open; what took it off the line is the refusal."""
    history = History()
    history.turn()
    history.resend("t1")
    history.reopen()
    history.compact("u1")
    history.settle("refused")
    assert [turn.id for turn in line_turns(history.tree)] == ["t3"]
    assert history.projection()["u1"] == Hidden(history.now, "refused")


@pytest.mark.parametrize("tail", [None, 7, {"a": 1}, ["u3"]])
def test_a_marker_without_a_readable_tail_hides_nothing(tail: Any) -> None:
    """Rather all of it twice than some of it not at all."""
    history = compacted()
    _rewrite(history, tail_start_id=tail)
    assert ids(model_view(history.line_of_turns)) == ["c1", "u1", "a1", "u2", "a2", "u3", "a3"]
    assert history.projection() == {}


@pytest.mark.parametrize(
    "split",
    [None, 7, {}, {"message_id": "u3"}, {"message_id": "a3", "from_part": -1}, {"message_id": "a9", "from_part": 1}],
)
def test_a_split_that_cannot_be_read_leaves_its_message_whole(split: Any) -> None:
    """Also one of a message that is not there."""
    history = compacted()
    _rewrite(history, split=split)
    assert model_view(history.line_of_turns)[1:] == [history.shown("u3"), history.shown("a3")]


def test_a_compaction_turn_without_a_marker_counts_for_nothing() -> None:
    """One that failed, or whose message is lost."""
    history = compacted()
    lost = [entry for entry in history.line_of_turns if entry.turn.id != "t4"]
    assert find_compaction([*lost, LineTurn(history.turns["t4"], ())]) is None
    assert compaction_tails(history.tree, {}) == ()
    assert compaction_tails(history.tree, history.rows) == (CompactionTail("t4", "u3", history.now - 1),)


def test_a_compaction_part_in_a_normal_turn_is_a_part_like_any_other() -> None:
    """Only a compaction turn holds a marker."""
    history = compacted()
    history.turns["t4"] = msgspec.structs.replace(history.turns["t4"], kind="normal")
    assert find_compaction(history.line_of_turns) is None
    assert ids(model_view(history.line_of_turns)) == ["u1", "a1", "u2", "a2", "u3", "a3", "c1"]
    assert compaction_tails(history.tree, history.rows) == ()


@pytest.mark.parametrize("parent", ["t9", "t2"], ids=["missing", "circle"])
def test_a_broken_tree_is_an_error_and_no_endless_walk(parent: str) -> None:
    """A parent that is not there, and turns that are each other's."""
    history = History()
    history.turn()
    history.turn()
    turns = {**history.turns, "t1": msgspec.structs.replace(history.turns["t1"], parent_turn_id=parent)}
    with pytest.raises(InternalError, match="the turn tree is broken"):
        path_to(turns, "t2")


def test_the_two_keys_are_read_as_they_stand() -> None:
    """Absent reads as none."""
    assert projection_of({"hidden_at": 5, "hidden_by": "rewind"}) == (5, "rewind")
    assert projection_of({}) == (None, None)


def test_the_model_makes_every_kind_of_history() -> None:
    """Each operation is open at some point; otherwise the properties would prove little."""
    seen: set[str] = set()
    history = History()
    for name in (
        "turn",
        "rewind",
        "unrewind",
        "compact",
        "prompt",
        "refuse",
        "resend",
        "reopen",
        "reply",
        "settle",
        "goto",
    ):
        operations = allowed_operations(history)
        operations[name](1)
        seen.add(name)
    assert seen == set(NAMES)
    assert all((turn.status in OPEN) == (turn.id == history.open) for turn in history.turns.values())


def _rewrite(history: History, **changes: Any) -> None:
    """Change what the marker c1 says, as another program might have."""
    row = history.rows["c1"]
    data = {**row.parts[0].data, "data": {**row.parts[0].data["data"], **changes}}
    history.rows["c1"] = msgspec.structs.replace(row, parts=(msgspec.structs.replace(row.parts[0], data=data),))
