"""Line, views and projection: what the conversation is, what is sent, and what other readers are told is hidden.

A small model of a session takes random operations and notes, naively and from scratch after each one, what is on
the line, what took a message off it, and what each summary was made of. The three modules are held against that.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.transcript.line import end_of_line, line_messages, line_turns
from clew.transcript.projection import compaction_tails, hidden_messages
from clew.transcript.view import model_view, visible_view
from tests.unit.line_history import NAMES, History, allowed_operations

# Random histories: the operations that the present state allows, picked by number.

SCRIPTS = st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 11)), min_size=1, max_size=25)


def play(script: list[tuple[str, int]], after_each: Callable[[History], None]) -> History:
    """The history a script makes; what cannot be done at its place is left out."""
    history = History()
    for name, number in script:
        operation = allowed_operations(history).get(name)
        if operation is not None:
            operation(number)
            after_each(history)
    return history


# Properties.


@given(SCRIPTS)
def test_the_line_is_the_path_from_the_root_to_its_end(script: list[tuple[str, int]]) -> None:
    """Through the open turn when there is one, each turn with its messages in order."""

    def judge(history: History) -> None:
        tree = history.tree
        assert list(line_turns(tree)) == history.path()
        assert [message_id for _, message_id in line_messages(tree)] == history.line
        assert all(message_id in tree.links[turn.id] for turn, message_id in line_messages(tree))
        assert end_of_line(tree.head_turn_id, tree.open_turn_id) == (history.open or history.head)

    play(script, judge)


@given(SCRIPTS)
def test_the_projection_is_what_replaying_every_move_from_scratch_gives(script: list[tuple[str, int]]) -> None:
    """After each operation: who is hidden, why, and since when."""

    def judge(history: History) -> None:
        assert history.projection() == history.hidden()

    play(script, judge)


@given(SCRIPTS, st.data())
def test_a_message_leaves_with_the_last_move_whatever_the_clock_said(
    script: list[tuple[str, int]], data: st.DataObject
) -> None:
    """Moves are ordered by their number: the clock may have stepped back between them."""
    history = History()
    for name, number in script:
        if name == "refuse":  # a refusal has a time and no number
            continue
        operation = allowed_operations(history).get(name)
        if operation is not None:
            history.now = data.draw(st.integers(0, 20))
            operation(number)
            assert history.projection() == history.hidden()


@given(SCRIPTS)
def test_a_message_on_the_line_is_visible_or_summarised_and_never_both(script: list[tuple[str, int]]) -> None:
    """What a person sees and what other readers are told agree, marker included."""

    def judge(history: History) -> None:
        hidden = history.projection()
        visible = [message.id for message in visible_view(history.line_of_turns)]
        assert len(visible) == len(set(visible))
        assert set(visible) == set(history.line) - set(hidden)
        assert {hidden[id_].by for id_ in history.line if id_ in hidden} <= {"compaction"}

    play(script, judge)


@given(SCRIPTS)
def test_a_message_is_off_only_when_no_turn_on_the_line_holds_it(script: list[tuple[str, int]]) -> None:
    """Two turns may hold one row: it stays as long as one of them does, and is off once none does."""

    def judge(history: History) -> None:
        on_line = {message_id for turn in history.path() for message_id in history.links[turn.id]}
        off = {id_ for id_, why in history.projection().items() if why.by != "compaction"}
        assert off == set(history.rows) - on_line

    play(script, judge)


@given(SCRIPTS, st.integers(0, 11), st.booleans())
def test_undoing_a_rewind_restores_the_projection_and_both_views(
    script: list[tuple[str, int]], number: int, resend: bool
) -> None:
    """Every message as it was, times included, whether the rewind was a move back or a resend."""
    history = play(script, lambda _: None)
    before = (history.projection(), visible_view(history.line_of_turns), model_view(history.line_of_turns))
    operation = allowed_operations(history).get("resend" if resend else "rewind")
    if operation is not None:
        left = history.head
        operation(number)
        history.move(left, "unrewind")
    after = (history.projection(), visible_view(history.line_of_turns), model_view(history.line_of_turns))
    assert after == before


@pytest.mark.rule("CP-3")
@given(SCRIPTS)
def test_the_model_is_sent_the_summary_and_all_from_the_start_of_the_tail_on(script: list[tuple[str, int]]) -> None:
    """In the order of the line, markers left out, the split applied; whole messages compared."""

    def judge(history: History) -> None:
        assert model_view(history.line_of_turns) == history.sent()

    play(script, judge)


@pytest.mark.rule("CP-3")
@given(SCRIPTS)
def test_every_part_of_the_line_is_in_a_summary_or_sent(script: list[tuple[str, int]]) -> None:
    """After any number of compactions, rewinds and resends; nothing falls in between, no part is sent twice."""

    def judge(history: History) -> None:
        parts = {
            (message_id, part)
            for message_id in history.line
            if message_id[0] != "c"
            for part in range(len(history.rows[message_id].parts))
        }
        newest = history.compactions()[-1] if history.compactions() else None
        sent = []
        for message in model_view(history.line_of_turns):
            if newest is None or message.id != history.links[newest.id][0]:
                whole = len(history.rows[message.id].parts)
                sent += [(message.id, part) for part in range(whole - len(message.parts), whole)]
        summarised = {place for turn in history.compactions() for place in history.summarised[turn.id]}
        assert len(sent) == len(set(sent))
        assert set(sent) | (summarised & parts) == parts

    play(script, judge)


@given(SCRIPTS)
def test_a_person_sees_the_newest_marker_before_the_first_message_kept(script: list[tuple[str, int]]) -> None:
    """One marker, in front; then the kept messages, whole, also the one that a split cuts for the model."""

    def judge(history: History) -> None:
        start, _ = history.kept_from()
        kept = [history.shown(id_) for id_ in history.line[start:] if id_[0] != "c"]
        marker = [history.shown(history.links[turn.id][0]) for turn in history.compactions()[-1:]]
        assert visible_view(history.line_of_turns) == [*marker, *kept]

    play(script, judge)


@given(SCRIPTS)
def test_reading_changes_nothing(script: list[tuple[str, int]]) -> None:
    """Tree, rows and lines are the same after every reading."""
    history = play(script, lambda _: None)
    given_ = (history.tree, history.rows, history.line_of_turns)
    before = msgspec.json.encode(given_)
    for _ in range(2):
        line_turns(history.tree), list(line_messages(history.tree)), history.projection()
        visible_view(history.line_of_turns), model_view(history.line_of_turns)
    assert msgspec.json.encode(given_) == before


@given(SCRIPTS)
def test_the_order_of_the_compactions_given_does_not_matter(script: list[tuple[str, int]]) -> None:
    """Neither do those that are off the line."""
    history = play(script, lambda _: None)
    tails = compaction_tails(history.tree, history.rows)
    on_line = [tail for tail in tails if tail.turn_id in {turn.id for turn in history.path()}]
    assert (
        hidden_messages(history.tree, reversed(tails))
        == hidden_messages(history.tree, on_line)
        == hidden_messages(history.tree, tails)
    )
