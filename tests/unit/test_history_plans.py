"""What rewinds and branches come to, decided over values: no store, no clock, no engine."""

from __future__ import annotations

import random

import pytest

from clew.errors import BranchPointInvalid, InvalidInput, NewerTurns, NothingToUndo, RewindTargetInvalid
from clew.ids import Mint
from clew.session.history.branch_plan import check_point, cut_line, plan_branch, start_line
from clew.session.history.lookup import LocatedMessage
from clew.session.history.rewind_plan import (
    Edit,
    check_request,
    check_target,
    left_line,
    parts_to_send,
    plan_resend,
    plan_undo,
)
from clew.store.unit import CopyLine, InsertSession, MoveHead
from clew.testing.clock import FakeClock
from clew.transcript.head import moved, with_turn
from clew.transcript.message import MessageRow, PartRow
from clew.transcript.portable import PortableSession
from clew.transcript.session import Model, Session
from clew.transcript.turn import Tree, Turn, with_parent

MINT = Mint(FakeClock(1_750_000_000_000), random.Random(3).randrange)
SES = MINT.session()
TRN = [MINT.turn() for _ in range(3)]
ASK = [MINT.message() for _ in range(3)]
SAID = [MINT.message() for _ in range(3)]


def user(n: int) -> MessageRow:
    data = {"type": "text", "text": f"ask {n}"}
    return MessageRow(ASK[n], SES, "user", n, n, {}, (PartRow(MINT.part(), 0, data, n, n),))


def talk(count: int = 3) -> Tree:
    """So many turns one below the other, each asked and answered."""
    tree = Tree(None, None, {}, {}, ())
    for n in range(count):
        turn = Turn(
            id=TRN[n],
            session_id=SES,
            parent_turn_id=TRN[n - 1] if n else None,
            created_at=n,
            status="completed",
            settled_at=n,
        )
        tree = moved(with_turn(tree, turn, (ASK[n], SAID[n])), SES, turn.id, n, "turn")
    return tree


def place(tree: Tree, n: int, *, on_line: bool = True) -> LocatedMessage:
    return LocatedMessage(user(n), tree.turns.get(TRN[n]), on_line, tree.links[TRN[n]])


def line(tree: Tree, *rows: MessageRow) -> PortableSession:
    session = Session(id=SES, agent="assistant", model=Model("demo", "echo"), created_at=0, updated_at=0)
    return PortableSession(session=session, turns=tuple(tree.turns.values()), links=dict(tree.links), messages=rows)


@pytest.mark.rule("RW-1")
def test_what_leaves_the_line_is_told_in_its_order() -> None:
    """And a turn that starts over keeps its own message on it."""
    tree = talk()
    assert left_line(tree, moved(tree, SES, TRN[0], 9, "rewind")) == (ASK[1], SAID[1], ASK[2], SAID[2])
    sibling = plan_resend(tree, tree.turns[TRN[1]], TRN[0], "trn_new", 9)
    assert sibling is not None
    after = moved(with_turn(tree, sibling, (ASK[1],)), SES, sibling.id, 9, "rewind")
    assert left_line(tree, after) == (SAID[1], ASK[2], SAID[2])
    assert (sibling.status, sibling.parent_turn_id, sibling.settled_at) == ("unanswered", TRN[0], 9)
    # Where nobody has answered it yet, there is nothing to do.
    alone = Tree(sibling.id, None, {sibling.id: sibling}, {sibling.id: (ASK[1],)}, after.moves)
    assert plan_resend(alone, sibling, None, "trn_other", 10) is None


@pytest.mark.rule("RW-3")
def test_the_newest_rewind_is_undone_until_something_was_added() -> None:
    """Each once, the newest first."""
    tree = talk()
    with pytest.raises(NothingToUndo):
        plan_undo(tree)
    back = moved(moved(tree, SES, TRN[1], 4, "rewind"), SES, TRN[0], 5, "rewind")
    assert plan_undo(back).from_turn_id == TRN[1]
    assert plan_undo(moved(back, SES, TRN[1], 6, "unrewind")).from_turn_id == TRN[2]
    new = Turn(id="trn_new", session_id=SES, parent_turn_id=TRN[0], created_at=7, status="completed")
    with pytest.raises(NewerTurns):
        plan_undo(moved(with_turn(back, new), SES, new.id, 7, "turn"))


@pytest.mark.rule("RW-1")
def test_only_a_user_message_of_the_line_can_be_gone_back_to() -> None:
    """The refusal names what to name instead."""
    tree = talk()
    assert check_target(place(tree, 1)).id == TRN[1]
    answer = MessageRow(SAID[1], SES, "assistant", 1, 1, {})
    for wrong, word in (
        (LocatedMessage(answer, tree.turns[TRN[1]], True, tree.links[TRN[1]]), ASK[1]),
        (place(tree, 1, on_line=False), TRN[1]),
        (LocatedMessage(user(1), None, False), "queue"),
    ):
        with pytest.raises(RewindTargetInvalid, match=word):
            check_target(wrong)
    with pytest.raises(InvalidInput, match="use mode edit"):
        check_request("resend", Edit(text="x"), run=True)
    assert parts_to_send(user(1), Edit(text="x")) == [{"type": "text", "text": "x"}]


@pytest.mark.rule("BR-1")
def test_a_line_is_cut_at_its_point_and_copied_under_new_ids() -> None:
    """From its start to its point; the copied turns name where they come from, and nothing else of it."""
    whole = line(talk(), user(1))
    cut = cut_line(whole, TRN[1], ASK[1])
    assert [turn.id for turn in cut.turns] == TRN[:2]
    assert (cut.links[TRN[0]], cut.links[TRN[1]]) == ((ASK[0], SAID[0]), (ASK[1],))
    part = start_line(cut, user(1))
    assert ([turn.id for turn in part.turns], part.links) == ([TRN[1]], {TRN[1]: (ASK[1],)})
    with pytest.raises(BranchPointInvalid):
        start_line(part, user(0))
    with pytest.raises(BranchPointInvalid):
        check_point(LocatedMessage(user(0), None, False))
    child = Session(id=MINT.session(), agent="assistant", model=Model("demo", "echo"), created_at=9, updated_at=9)
    [[inserted, copied, head]] = plan_branch(part, child, MINT, 9, whole=False)
    assert isinstance(inserted, InsertSession)
    assert isinstance(copied, CopyLine)
    (entry,) = copied.turns
    # Nobody has answered it there: what came of it was cut off.
    assert entry.turn == with_parent(
        Turn(
            id=entry.turn.id,
            session_id=child.id,
            parent_turn_id=None,
            created_at=1,
            status="unanswered",
            origin_turn_id=TRN[1],
            settled_at=1,
        ),
        None,
    )
    assert head == MoveHead(entry.turn.id, 9, "branch")
    assert [message.source_id for message in entry.messages] == [ASK[1]]
    assert not {entry.turn.id, entry.messages[0].id} & {*TRN, *ASK}
