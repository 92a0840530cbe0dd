"""The cut: what is summarised, what is kept, and that nothing falls in between."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from clew.compaction.budget import estimate_message, estimate_part
from clew.compaction.context import Context, RequestFrame
from clew.compaction.cut import Cut, plan_cut
from clew.compaction.plan import plan_compaction
from clew.compaction.policy import Policy, policy_for
from clew.config import CompactionConfig, PruningConfig
from clew.transcript.line import LineTurn
from clew.transcript.message import Message, MessageRow, PartRow
from clew.transcript.part import is_open_call
from clew.transcript.session import Model
from clew.transcript.turn import Turn, TurnKind
from clew.transcript.view import Split
from tests.rounds import rounds

START = {"type": "step-start"}
BIG = 1_000_000


def policy(preset: Any = "guide", **given_: Any) -> Policy:
    return policy_for(CompactionConfig(preset=preset, **given_), PruningConfig(), None)


def text(chars: int) -> dict[str, Any]:
    return {"type": "text", "text": "x" * chars}


def call(state: str = "output-available", chars: int = 40) -> dict[str, Any]:
    return {"type": "tool-read", "toolCallId": "c", "state": state, "input": {}, "output": "y" * chars}


def user(name: str, chars: int = 40, **metadata: Any) -> Message:
    return Message(f"u{name}", "user", [text(chars)], {"turn_id": f"t{name}", **metadata})


def reply(name: str, *parts: dict[str, Any]) -> Message:
    return Message(f"a{name}", "assistant", list(parts), {"turn_id": f"t{name[0]}"})


def turn(name: str, chars: int = 40) -> list[Message]:
    return [user(name), reply(name, START, text(chars))]


def of(message: Message, start: int = 0, end: int | None = None) -> Message:
    return msgspec.structs.replace(message, parts=message.parts[start:end])


def tokens(messages: Sequence[Message]) -> int:
    return sum(map(estimate_message, messages))


def cut(body: Sequence[Message], rules: Policy | None = None, **given_: Any) -> Cut | None:
    known: dict[str, Any] = {"usable": BIG, "max_tail": BIG, "open_turn_id": None, "inside": False, **given_}
    return plan_cut(body, rules or policy(), **known)


# Turns


@pytest.mark.rule("CP-5")
def test_the_two_newest_turns_are_kept_within_a_quarter_of_what_is_usable() -> None:
    """At 25 % both stay; one token more, and only the newest does, with a warning."""
    body = [*turn("1"), *turn("2", 4_000), *turn("3")]
    size = tokens(body[2:])
    assert cut(body, usable=size * 4) == Cut(tuple(body[:2]), tuple(body[2:]), "u2", None, 1, size)
    assert cut(body, usable=size * 4 - 1) == Cut(
        tuple(body[:4]),
        tuple(body[4:]),
        "u3",
        None,
        2,
        tokens(body[4:]),
        "the last 2 turns take more than their share; only the newest is kept",
    )


@pytest.mark.rule("CP-5", "CP-1")
def test_an_open_turn_is_one_of_the_turns_that_are_kept() -> None:
    """Its user message has no reply yet."""
    body = [*turn("1"), *turn("2"), user("3")]
    assert cut(body, open_turn_id="t3") == Cut(tuple(body[:2]), tuple(body[2:]), "u2", None, 1, tokens(body[2:]))


@pytest.mark.rule("CP-9")
def test_the_checkpoint_preset_keeps_four_turns_whatever_their_share() -> None:
    """As long as there is room for them."""
    body = [message for name in "12345" for message in turn(name, 400)]
    size = tokens(body[2:])
    found = cut(body, policy("checkpoint"), usable=size + 9, max_tail=size)
    assert found == Cut(tuple(body[:2]), tuple(body[2:]), "u2", None, 1, size)
    found = cut(body, policy("checkpoint"), usable=size + 9, max_tail=size - 1)
    assert found is not None
    assert (found.tail_start_id, found.turns) == ("u5", 4)


@pytest.mark.rule("CP-5")
def test_there_is_nothing_to_summarise_when_all_is_kept() -> None:
    """Or when what would be summarised is empty."""
    hollow = reply("0", START, {"type": "reasoning", "text": "hm"})
    assert cut([]) is None
    assert cut([*turn("1"), *turn("2")]) is None
    assert cut([user("1")], open_turn_id="t1") is None
    assert cut([hollow, *turn("1"), *turn("2")]) is None


@pytest.mark.rule("CP-5")
def test_a_warning_of_the_loop_leads_no_turn() -> None:
    """Synthetic user messages are inside the turn they were put into."""
    inner = [user("2"), reply("2", START, call()), user("2w", synthetic=True), reply("2b", START, text(9))]
    body = [*turn("1"), *inner, *turn("3")]
    assert cut(body) == Cut(tuple(body[:2]), tuple(body[2:]), "u2", None, 1, tokens(body[2:]))


# Inside a turn


@pytest.mark.rule("CP-1", "CP-5")
def test_inside_a_turn_that_turn_alone_is_the_tail() -> None:
    """Whole when there is room for it."""
    body = [*turn("1"), *turn("2"), user("3"), reply("3", START, call(chars=4_000), START)]
    size = tokens(body[4:])
    found = cut(body, usable=size, max_tail=size, open_turn_id="t3", inside=True)
    assert found == Cut(tuple(body[:4]), tuple(body[4:]), "u3", None, 2, size)


@pytest.mark.rule("CP-1", "CP-2", "CP-5")
def test_a_turn_that_is_too_large_is_split_at_the_start_of_a_step() -> None:
    """The longest run of last steps within the budget stays, and the user message with it."""
    long = reply("2", START, call(chars=4_000), START, call(chars=400), START, call(chars=404), START)
    body = [*turn("1"), user("2"), long]
    max_tail = tokens(body[2:]) - 1
    kept = (body[2], of(long, 2))
    size = tokens(kept)
    found = cut(body, usable=size * 4, max_tail=max_tail, open_turn_id="t2", inside=True)
    assert found == Cut((*body[:2], of(long, 0, 2)), kept, "u2", Split("a2", 2), 2, size)
    found = cut(body, usable=size * 4 - 1, max_tail=max_tail, open_turn_id="t2", inside=True)
    assert found is not None
    assert found.split == Split("a2", 4)


@pytest.mark.rule("CP-5")
def test_the_last_step_stays_when_there_is_room_for_it_though_it_is_over_its_share() -> None:
    """A settled turn: the last step holds the answer."""
    long = reply("2", START, call(chars=40_000), START, text(4_000))
    body = [*turn("1"), user("2"), long]
    kept = (body[2], of(long, 2))
    found = cut(body, usable=tokens(kept) + 9, max_tail=tokens(kept))
    assert found is not None
    assert (found.split, found.tail, found.tail_start_id) == (Split("a2", 2), kept, "u2")


@pytest.mark.rule("CP-5")
def test_nothing_of_a_settled_turn_is_kept_when_its_last_step_does_not_fit() -> None:
    """The tail is then the marker itself."""
    body = [*turn("1"), user("2"), reply("2", START, call(), START, text(4_000))]
    assert cut(body, usable=900, max_tail=100) == Cut(
        tuple(body), (), None, None, 2, 0, "the last 2 turns take more than their share; only the newest is kept"
    )


@pytest.mark.rule("CP-5")
def test_of_an_open_turn_only_the_user_message_is_kept_when_no_step_fits() -> None:
    """All of its message is split off, at the step that just began or behind its end."""
    long = reply("2", START, call(chars=4_000), START, call(chars=4_000))
    begun = msgspec.structs.replace(long, parts=[*long.parts, START])
    for last, part in ((long, 4), (begun, 4)):
        body = [*turn("1"), user("2"), last]
        rest = (of(last, 4),) if last is begun else ()
        found = cut(body, usable=900, max_tail=100, open_turn_id="t2", inside=True)
        assert found == Cut((*body[:2], of(last, 0, 4)), (body[2], *rest), "u2", Split("a2", part), 2, 15)


@pytest.mark.rule("CP-5")
def test_the_user_message_of_an_open_turn_is_kept_even_when_it_does_not_fit() -> None:
    """There is nothing less to keep; the warning says so."""
    body = [*turn("1"), user("2", 4_000)]
    assert cut(body, usable=900, max_tail=100, open_turn_id="t2") == Cut(
        tuple(body[:2]),
        (body[2],),
        "u2",
        None,
        1,
        tokens(body[2:]),
        "what has to be kept takes more than there is room for",
    )


@pytest.mark.rule("CP-5")
def test_a_turn_that_was_warned_and_does_not_fit_is_kept_from_the_warning_on() -> None:
    """Only one message can be split, and the one before the warning is too large to stay."""
    first, second = reply("2", START, call(chars=8_000)), reply("2b", START, call(chars=8_000), START, text(40))
    body = [*turn("1"), user("2"), first, user("2w", synthetic=True), second]
    found = cut(body, usable=4_000, max_tail=100, open_turn_id="t2", inside=True)
    assert found is not None
    assert (found.tail_start_id, found.split) == ("u2w", Split("a2b", 2))
    assert found.tail == (body[4], of(second, 2))


@pytest.mark.rule("CP-1", "CP-5")
def test_a_turn_that_is_alone_is_split_to_gain_anything() -> None:
    """It fits, but the request was too large: there is nothing else to summarise."""
    long = reply("1", START, call(chars=4_000), START, text(40))
    body = [user("1"), long]
    found = cut(body, usable=2_000, max_tail=1_900)
    assert found is not None
    assert (found.split, found.turns) == (Split("a1", 2), 1)
    assert cut(body, usable=9_000, max_tail=8_000) is None


@pytest.mark.rule("CP-5")
def test_a_call_that_waits_for_its_result_is_never_summarised() -> None:
    """The cut moves to before the turn that holds it."""
    waiting = reply("1", START, call(), START, call("approval-requested"), START, text(40))
    assert cut([user("1"), waiting, *turn("2"), *turn("3")]) is None
    found = cut([*turn("0"), user("1"), waiting, *turn("2", 8_000)], usable=100, max_tail=100)
    assert found is None or not any(is_open_call(part) for message in found.summarised for part in message.parts)
    found = cut([user("1", 4_000), waiting], usable=90, max_tail=80, open_turn_id="t1", inside=True)
    assert found is not None
    assert found.split == Split("a1", 2)


# Tokens


@pytest.mark.rule("CP-5", "CP-9")
def test_recent_tokens_are_kept_to_the_boundary_at_which_they_are_reached() -> None:
    """A user message, a message of the assistant, or a step in one."""
    long = reply("2", START, call(chars=400), START, text(4_000), START, text(400))
    body = [*turn("1"), user("2"), long, *turn("3", 400)]
    rules = policy("overlay", keep_recent_tokens=110)
    assert cut(body, rules) == Cut(tuple(body[:5]), tuple(body[5:]), "a3", None, 3, tokens(body[5:]))
    rules = policy("overlay", keep_recent_tokens=111)
    assert cut(body, rules) == Cut(tuple(body[:4]), tuple(body[4:]), "u3", None, 2, tokens(body[4:]))
    rules = policy("overlay", keep_recent_tokens=122)
    kept = (of(long, 4), *body[4:])
    assert cut(body, rules) == Cut((*body[:3], of(long, 0, 4)), kept, "a2", Split("a2", 4), 2, tokens(kept))


@pytest.mark.rule("CP-5")
def test_recent_tokens_are_never_more_than_there_is_room_for() -> None:
    """Nor more than half of what is usable: the next boundary is taken."""
    body = [*turn("1", 4_000), *turn("2", 4_000), *turn("3", 400)]
    rules = policy("overlay", keep_recent_tokens=500)
    assert cut(body, rules, max_tail=tokens(body[3:])) == Cut(
        tuple(body[:3]), tuple(body[3:]), "a2", None, 2, tokens(body[3:])
    )
    assert cut(body, rules, max_tail=tokens(body[3:]) - 1) == Cut(
        tuple(body[:4]), tuple(body[4:]), "u3", None, 2, tokens(body[4:])
    )
    found = cut(body, rules, usable=200)
    assert found is not None
    assert found.tail_start_id == "a3"


@pytest.mark.rule("CP-14", "CP-9")
@pytest.mark.parametrize("max_tail", [BIG, 900, 300])
@pytest.mark.parametrize("open_turn_id", [None, "t3"])
def test_the_turn_preset_cuts_between_turns_only(max_tail: int, open_turn_id: str | None) -> None:
    """Not inside one, though it is larger than what should be kept, or than there is room for."""
    long = [user("3"), reply("3", START, call(chars=1_000), START, call(chars=1_000), START, text(40))]
    body = [*turn("1", 400), *turn("2", 400), *long]
    for keep in (1, 200, 500, 700):
        rules = policy("turn", keep_recent_tokens=keep)
        for inside in (False, True) if open_turn_id else (False,):
            made = cut(body, rules, max_tail=max_tail, open_turn_id=open_turn_id, inside=inside)
            if made is None:
                continue
            assert made.split is None
            assert made.tail_start_id in ("u1", "u2", "u3", *([] if open_turn_id else [None]))
            assert [*made.summarised, *made.tail] == body
    assert getattr(cut(body, policy("overlay", keep_recent_tokens=200), open_turn_id="t3"), "split", None) is not None
    assert getattr(cut(body, policy("turn", keep_recent_tokens=200), open_turn_id="t3"), "tail_start_id", "") == "u3"


@pytest.mark.rule("CP-5", "CP-1")
def test_recent_tokens_keep_the_message_of_the_open_turn() -> None:
    """Although enough tokens lie behind it."""
    long = reply("2", START, call(chars=4_000), START, text(400), START)
    body = [*turn("1"), user("2"), long]
    found = cut(body, policy("overlay", keep_recent_tokens=50), open_turn_id="t2", inside=True)
    assert found is not None
    assert (found.tail_start_id, found.split, found.tail) == ("u2", Split("a2", 2), (body[2], of(long, 2)))
    assert cut(body, policy("overlay"), open_turn_id="t2", inside=False) is None


# Any body


def _parts() -> st.SearchStrategy[list[dict[str, Any]]]:
    one = st.one_of(
        st.builds(text, st.sampled_from([0, 4, 400])),
        st.builds(call, st.sampled_from(["output-available", "output-error"]), st.sampled_from([0, 40, 4_000])),
        st.just({"type": "reasoning", "text": "hm"}),
    )
    steps = st.lists(st.lists(one, max_size=3), max_size=5)
    return steps.map(lambda steps: [part for step in steps for part in (START, *step)])


@st.composite
def bodies(draw: st.DrawFn) -> tuple[list[Message], bool]:
    """Turns with replies, warnings between some; perhaps the rest of an earlier cut first, and a call that waits."""
    body: list[Message] = []
    if draw(st.booleans()):
        body.append(reply("0", *draw(_parts())))
    count = draw(st.integers(1, 5))
    for number in range(1, count + 1):
        body.append(user(str(number), draw(st.sampled_from([1, 40, 2_000]))))
        for again in range(draw(st.integers(0, 2))):
            # Without a warning: a turn that was gone on with.
            if again and draw(st.booleans()):
                body.append(user(f"{number}w", synthetic=True, turn_id=f"t{number}"))
            body.append(reply(f"{number}{'b' * again}", *draw(_parts())))
    if draw(st.integers(0, 4)) == 0 and body[-1].role == "assistant":
        body[-1] = msgspec.structs.replace(body[-1], parts=[*body[-1].parts, START, call("approval-requested")])
    elif draw(st.booleans()) and body[-1].role == "assistant":
        body[-1] = msgspec.structs.replace(body[-1], parts=[*body[-1].parts, START])
    return body, draw(st.booleans())


@pytest.mark.rule("CP-3", "CP-5")
@given(bodies(), st.sampled_from(["guide", "checkpoint", "overlay", "turn"]), st.integers(1, 4_000), st.data())
def test_every_part_is_summarised_or_kept_once_and_in_order(
    made: tuple[list[Message], bool], preset: str, usable: int, data: st.DataObject
) -> None:
    """For any body: nothing lost, nothing twice, no call without its result, the open turn's message kept."""
    body, is_open_turn = made
    max_tail = data.draw(st.integers(0, usable))
    rules = policy(preset, **({"keep_recent_tokens": 300} if preset in ("overlay", "turn") else {}))
    open_id = body[-1].metadata["turn_id"] if is_open_turn else None
    inside = is_open_turn and body[-1].role == "assistant"
    found = cut(body, rules, usable=usable, max_tail=max_tail, open_turn_id=open_id, inside=inside)
    assert found == cut(body, rules, usable=usable, max_tail=max_tail, open_turn_id=open_id, inside=inside)
    if found is None:
        return
    split = found.split
    given_ = {message.id: message for message in body}
    for side in (found.summarised, found.tail):
        ids = [message.id for message in side]
        assert ids == [message.id for message in body if message.id in ids]
    before = {message.id: message.parts for message in found.summarised}
    after = {message.id: message.parts for message in found.tail}
    for id_, message in given_.items():
        assert before.get(id_, []) + after.get(id_, []) == message.parts
        assert (id_ in before and id_ in after) <= (split is not None and split.message_id == id_)
    assert not any(is_open_call(part) for parts in before.values() for part in parts)
    assert any(estimate_part(part) for parts in before.values() for part in parts)
    assert found.tail_tokens == tokens(found.tail)
    if split is not None:
        parts = given_[split.message_id].parts
        assert split.from_part == len(parts) or parts[split.from_part] == START
        assert after.get(split.message_id, []) == parts[split.from_part :]
    # The tail is all that is sent from its start on.
    start = next((i for i, message in enumerate(body) if message.id == found.tail_start_id), len(body))
    whole = {message.id for message in body[:start]}
    assert whole | ({split.message_id} if split else set()) == set(before)
    if is_open_turn:
        users = [message for message in body if message.metadata["turn_id"] == open_id and message.role == "user"]
        assert users[-1].id in after
        if len(users) == 1:
            assert users[0].id in after


# One after the other


def line_of(messages: Sequence[Message], markers: Sequence[tuple[int, Cut]]) -> list[LineTurn]:
    """The messages as turns, with a compaction above the message at each of these places."""
    line: list[LineTurn] = []
    for place, message in enumerate((*messages, None)):
        for at, made in markers:
            if at == place:
                data = {"summary": "s", "tail_start_id": made.tail_start_id, "split": msgspec.to_builtins(made.split)}
                marker = row_of(Message(f"c{len(line)}", "assistant", [{"type": "data-compaction", "data": data}], {}))
                line.append(LineTurn(turn_of(f"tc{len(line)}", "compaction"), (marker,)))
        if message is not None:
            turn_id = str(message.turn_id)
            held = line.pop().messages if line and line[-1].turn.id == turn_id else ()
            line.append(LineTurn(turn_of(turn_id), (*held, row_of(message))))
    return line


def turn_of(turn_id: str, kind: TurnKind = "normal") -> Turn:
    return Turn(id=turn_id, session_id="s", parent_turn_id=None, created_at=0, kind=kind, status="completed")


def row_of(message: Message) -> MessageRow:
    parts = tuple(PartRow(f"{message.id}.{n}", n, part, 0, 0) for n, part in enumerate(message.parts))
    return MessageRow(message.id, "s", message.role, 0, 0, dict(message.metadata), parts)


@pytest.mark.rule("CP-5")
@pytest.mark.parametrize(
    ("max_tail", "expected"),
    [(500, ("u1", Split("a1", 4), 355)), (290, ("a1b", Split("a1b", 4), 116)), (110, ("a1b", Split("a1b", 4), 116))],
)
def test_a_turn_that_went_on_in_a_second_answer_is_cut_in_the_first_and_then_begins_behind_it(
    max_tail: int, expected: tuple[str, Split, int]
) -> None:
    """One was cut before: it is cut again, to its end, so that its first parts are never sent again."""
    body = [user("1"), reply("1", *[START, call(chars=400)] * 2), reply("1b", *[START, call(chars=400)] * 3)]
    found = cut(body, usable=9, max_tail=max_tail, open_turn_id="t1", inside=True, split_id="a1", split_reach=2)
    assert found is not None
    assert (found.tail_start_id, found.split, found.tail_tokens) == expected
    assert (found.warning is None) == (max_tail > 116)


_WARNED = [
    user("1", 1),
    reply("1", *[START, call(chars=400)] * 2),
    user("1w", synthetic=True, turn_id="t1"),
    reply("1b", *[START, call(chars=400)] * 2),
]


@pytest.mark.rule("CP-3", "CP-13")
@settings(max_examples=rounds(20))
@given(
    bodies(),
    st.sampled_from(["guide", "checkpoint", "overlay"]),
    st.lists(st.tuples(st.integers(0, 3), st.integers(300, 4_000)), min_size=2, max_size=4),
)
@example((_WARNED, True), "guide", [(2, 300), (2, 300)])
@example((_WARNED, True), "overlay", [(2, 600), (2, 1_500), (0, 400)])
def test_what_is_sent_after_any_number_of_compactions_is_what_the_last_one_kept(
    made: tuple[list[Message], bool], preset: str, stages: list[tuple[int, int]]
) -> None:
    """Of all messages, wherever the cut before it went through: no part that a summary tells of is sent again."""
    body, is_open_turn = made
    rules = policy(preset, **({"keep_recent_tokens": 300} if preset == "overlay" else {}))
    first = seen = next(n for n, message in enumerate(body) if message.turn_id == body[-1].turn_id)
    markers: list[tuple[int, Cut]] = []
    for more, window in stages:
        seen = min(max(seen + more, first + 1), len(body))
        frame = RequestFrame(model=Model("test", "model"), window=window, max_output=50, system_chars=0, tools_chars=0)
        context = Context(frame, rules, line_of(body[:seen], markers), ())
        inside = is_open_turn and body[seen - 1].role == "assistant"
        open_id = str(body[-1].turn_id) if is_open_turn else None
        plan = plan_compaction(context, "s", open_turn_id=open_id, inside=inside, auto=False)
        if plan is not None and plan.cut.tail_start_id is not None:
            # For an open turn it goes above that turn.
            markers.append((first if is_open_turn else seen, plan.cut))
            after = Context(frame, rules, line_of(body[:seen], markers), ())
            assert [(m.id, m.parts) for m in after.body] == [(m.id, m.parts) for m in plan.cut.tail]


@pytest.mark.rule("CP-3", "CP-13")
def test_a_split_in_a_turn_that_the_line_has_left_is_not_carried_on() -> None:
    """The compaction that made room for that turn stays below the next one; what its split names is sent no more."""
    body = [message for n in "1234" for message in turn(n, 400)]
    frame = RequestFrame(model=Model("test", "model"), window=4_000, max_output=50, system_chars=0, tools_chars=0)
    left = Cut((), (), "u9", Split("a9", 3), 0, 0)
    context = Context(frame, policy(), line_of(body, [(2, left)]), ())
    plan = plan_compaction(context, "s", open_turn_id=None, inside=False, auto=False)
    assert plan is not None
    assert (plan.cut.tail_start_id, plan.cut.split) == ("u3", None)
