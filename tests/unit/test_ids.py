"""Ids: their form, their order, and which ones from outside are let in."""

from __future__ import annotations

import os
import re
import string
import sys
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.errors import InvalidId
from clew.ids import (
    EPOCH_MS,
    Mint,
    SessionIdForm,
    check_message_id,
    check_named_message_id,
    check_part_id,
    check_session_id,
    check_turn_id,
    stamp_of,
)
from clew.testing.clock import FakeClock

HOUR_MS = 3_600_000
# 002's stamp, milliseconds x 4096 in 48 bits, begins again at these moments.
WRAPS = [(26 << 36, "2026-08-14"), (27 << 36, "2028-10-17")]
# The last moment the 41 bits of milliseconds can hold.
LAST_MS = EPOCH_MS + (1 << 41) - 1

SESSION = "ses_0123456789abABCDEFGHIJabcd"
MESSAGE = "msg_0123456789abABCDEFGHIJabcd"
PART = "prt_0123456789abABCDEFGHIJabcd"
TURN = "trn_0123456789abABCDEFGHIJabcd"
ULID = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
UUID = "123e4567-e89b-12d3-a456-426614174000"


def check_ulid(value: object) -> str:
    return check_session_id(value, SessionIdForm.ULID)


def check_uuid(value: object) -> str:
    return check_session_id(value, SessionIdForm.UUID)


CHECKS: list[tuple[Callable[[object], str], str]] = [
    (check_session_id, SESSION),
    (check_message_id, MESSAGE),
    (check_part_id, PART),
    (check_turn_id, TURN),
    (check_ulid, ULID),
    (check_uuid, UUID),
]


def makers(mint: Mint) -> list[Callable[[], str]]:
    """Every kind of id that begins with a stamp and so has an order."""
    return [mint.session, mint.message, mint.part, mint.turn, lambda: mint.session(SessionIdForm.ULID)]


def growing(ids: list[str]) -> bool:
    return all(before < after for before, after in pairwise(ids))


# ID-1: form.


@pytest.mark.rule("ID-1")
@pytest.mark.parametrize(
    ("prefix", "make"), [("ses_", Mint.session), ("msg_", Mint.message), ("prt_", Mint.part), ("trn_", Mint.turn)]
)
def test_an_id_is_a_prefix_a_hex_stamp_and_base62_chance(prefix: str, make: Callable[[Mint], str]) -> None:
    """Thirty characters: 4 of prefix, 12 of stamp, 14 of chance."""
    mint = Mint()
    for id_ in (make(mint) for _ in range(200)):
        assert len(id_) == 30
        assert re.fullmatch(prefix + "[0-9a-f]{12}[0-9A-Za-z]{14}", id_)


@pytest.mark.rule("ID-1")
@pytest.mark.parametrize(
    ("number", "tail"), [(0, "0" * 14), (61, "z" + "0" * 13), (62**14 - 1, "z" * 14)], ids=["least", "digit", "most"]
)
def test_the_chance_fills_all_fourteen_characters(number: int, tail: str) -> None:
    """From the smallest number to the largest, over 0-9, A-Z and a-z."""
    asked: list[int] = []

    def random(below: int) -> int:
        asked.append(below)
        return number

    clock = FakeClock(EPOCH_MS + 1)
    assert Mint(clock, random).message() == "msg_000000000080" + tail
    assert asked == [62**14]


@pytest.mark.rule("ID-1")
def test_the_stamp_is_41_bits_of_milliseconds_and_seven_of_counter() -> None:
    """Written out for one moment, and read back by `stamp_of`."""
    now = int(datetime(2027, 1, 15, 8, 0, tzinfo=UTC).timestamp() * 1000)
    mint = Mint(FakeClock(now), lambda _: 0)
    ids = [mint.part() for _ in range(3)]
    since = now - int(datetime(2024, 1, 1, tzinfo=UTC).timestamp() * 1000)
    assert ids == [f"prt_{since * 128 + counter:012x}00000000000000" for counter in range(3)]
    assert [stamp_of(id_) for id_ in ids] == [now] * 3


@pytest.mark.rule("ID-1")
def test_what_is_minted_passes_its_own_check() -> None:
    """Ids go out and come back in."""
    mint = Mint()
    assert check_session_id(mint.session())
    assert check_message_id(mint.message())
    assert check_part_id(mint.part())
    assert check_turn_id(mint.turn())
    assert check_ulid(mint.session(SessionIdForm.ULID))
    assert check_uuid(mint.session(SessionIdForm.UUID))


# ID-2: order.


@pytest.mark.rule("ID-2")
@pytest.mark.parametrize("kind", range(5))
def test_ids_of_one_millisecond_sort_as_they_were_minted(kind: int) -> None:
    """Also past the 128 that the counter bits hold: the stamp then runs ahead of the clock."""
    mint = Mint(FakeClock())
    ids = [makers(mint)[kind]() for _ in range(1000)]
    assert growing(ids)


@pytest.mark.rule("ID-2")
def test_the_clock_is_followed_again_once_it_has_caught_up() -> None:
    """129 ids in a millisecond borrow from the next one, no more."""
    clock = FakeClock()
    mint = Mint(clock)
    ids = [mint.message() for _ in range(129)]
    assert [stamp_of(id_) - clock.now_ms() for id_ in ids] == [0] * 128 + [1]
    clock.advance(2)
    assert stamp_of(mint.message()) == clock.now_ms()


@pytest.mark.rule("ID-2")
def test_ids_keep_their_order_when_the_clock_steps_back_an_hour() -> None:
    """As a time server does; the stamp stays ahead until the clock has caught up."""
    clock = FakeClock()
    mint = Mint(clock)
    before = [mint.message() for _ in range(5)]
    clock.set_wall(clock.now_ms() - HOUR_MS)
    assert growing([*before, *(mint.message() for _ in range(500))])


@pytest.mark.rule("ID-2")
@pytest.mark.parametrize(("wrap", "day"), WRAPS)
def test_ids_keep_their_order_where_48_bits_of_the_old_stamp_wrap(wrap: int, day: str) -> None:
    """002's stamp begins at zero again on these days."""
    assert datetime.fromtimestamp(wrap / 1000, UTC).date().isoformat() == day
    assert (wrap - 1) * 4096 % (1 << 48) > wrap * 4096 % (1 << 48)
    clock = FakeClock(wrap - 3)
    mint = Mint(clock)
    ids = []
    for _ in range(6):
        ids += [mint.message(), mint.message()]
        clock.advance(1)
    assert growing(ids)


@pytest.mark.rule("ID-2")
def test_ids_from_many_threads_are_distinct_and_grow_in_each() -> None:
    """One mint serves a process. The interpreter is made to switch threads all the time."""
    mint = Mint(FakeClock(), lambda _: 0)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            batches = list(pool.map(lambda _: [mint.message() for _ in range(5000)], range(8)))
    finally:
        sys.setswitchinterval(interval)
    assert all(growing(batch) for batch in batches)
    assert len({id_ for batch in batches for id_ in batch}) == 8 * 5000


@pytest.mark.slow
@pytest.mark.rule("ID-2")
@given(st.lists(st.tuples(st.integers(0, LAST_MS - 100), st.integers(1, 200), st.integers(0, 4)), max_size=20))
def test_ids_sort_as_they_were_minted_whatever_the_clock_does(moments: list[tuple[int, int, int]]) -> None:
    """Any sequence of readings, before 2024 too, any number of ids at each, one order over all."""
    clock = FakeClock()
    mint = Mint(clock)

    def minted() -> Iterator[tuple[int, str]]:
        for now, count, kind in moments:
            clock.set_wall(now)
            for _ in range(count):
                yield kind, makers(mint)[kind]()

    ids = list(minted())
    for kind in range(5):
        assert growing([id_ for of, id_ in ids if of == kind])
    assert growing([id_[4:16] for kind, id_ in ids if kind != 4])


@pytest.mark.rule("ID-2")
def test_the_stamp_ends_in_september_2093_with_a_clear_error() -> None:
    """Not by beginning again; and a clock that is set right again is good at once."""
    assert datetime.fromtimestamp(LAST_MS / 1000, UTC).strftime("%Y-%m") == "2093-09"
    clock = FakeClock(LAST_MS + 1)
    mint = Mint(clock)
    with pytest.raises(InvalidId, match="clock"):
        mint.message()
    clock.set_wall(LAST_MS - HOUR_MS)
    assert stamp_of(mint.message()) == LAST_MS - HOUR_MS


# ID-3: ids from outside.


@pytest.mark.rule("ID-3")
@pytest.mark.parametrize(("check", "good"), CHECKS)
def test_an_id_is_let_in_as_it_is(check: Callable[[object], str], good: str) -> None:
    """The very same text comes back."""
    assert check(good) is good


@pytest.mark.rule("ID-3")
@pytest.mark.parametrize(("check", "good"), CHECKS)
def test_an_id_is_matched_whole_and_in_ascii(check: Callable[[object], str], good: str) -> None:
    """Nothing before it, nothing after it, nothing else in it."""
    last = good[-1]
    wrong: list[object] = [
        "",
        good + "\n",
        "\n" + good,
        good + "\x00",
        good[:-1] + "\x00",
        good + " ",
        " " + good,
        good[:-1],
        good + last,
        good[:-1] + "٣",  # three, in Arabic-Indic digits
        good[:-1] + "３",  # three, full width
        good[:-1] + "é",
        good[:-1] + "\ud83d",
        good[:-1] + "/",
        good[:-1] + "*",
        good.swapcase(),
        "../" + good,
        "../" + good[3:],
        "/etc/passwd",
        "/" + good[1:],
        "*" * len(good),
        "?" * len(good),
        "[a-z]*",
        "a" * 10_240,
        good * 500,
        good.encode(),
        None,
        7,
        True,
        [good],
        {"id": good},
    ]
    for value in wrong:
        with pytest.raises(InvalidId):
            check(value)


@pytest.mark.rule("ID-3")
@pytest.mark.parametrize(("check", "good"), CHECKS)
def test_every_character_of_an_id_is_looked_at(check: Callable[[object], str], good: str) -> None:
    """One that does not belong is found at each place, the wrong case in a stamp or a UUID included."""
    for place, right in enumerate(good):
        hexadecimal = check is check_uuid or (check is not check_ulid and 4 <= place < 16)
        for wrong in "_-. /\n\x00éİ٣" + ("Ag" if hexadecimal else "") + ("aI" if check is check_ulid else ""):
            if wrong != right:
                with pytest.raises(InvalidId):
                    check(good[:place] + wrong + good[place + 1 :])


@pytest.mark.rule("ID-3")
def test_an_id_of_one_kind_is_none_of_another() -> None:
    """Each check lets in one of these six and no other."""
    taken: list[str | None] = []
    for check, _ in CHECKS:
        for _, value in CHECKS:
            try:
                taken.append(check(value))
            except InvalidId:
                taken.append(None)
    assert taken == [value if at == of else None for at in range(6) for of, (_, value) in enumerate(CHECKS)]


@pytest.mark.rule("ID-3")
@pytest.mark.parametrize("letter", "ILOU")
def test_a_ulid_has_no_letter_that_reads_like_another(letter: str) -> None:
    """Crockford's alphabet leaves four out."""
    with pytest.raises(InvalidId):
        check_ulid(ULID[:-1] + letter)


@pytest.mark.rule("ID-3")
@pytest.mark.parametrize("wrong", [UUID.upper(), "{" + UUID + "}", "urn:uuid:" + UUID, UUID.replace("-", "")])
def test_a_uuid_has_one_form(wrong: str) -> None:
    """Python's own parser would take all of these."""
    with pytest.raises(InvalidId):
        check_uuid(wrong)


@pytest.mark.rule("ID-3")
@given(st.text(max_size=40) | st.from_regex(r"\A(ses_|msg_)[0-9a-zA-Z]{20,30}\s?\Z"))
def test_only_the_form_decides(text: str) -> None:
    """Compared with the form spelled out character by character."""
    hexadecimal, base62 = set("0123456789abcdef"), set(string.digits + string.ascii_letters)
    well_formed = (
        len(text) == 30
        and text[:4] == "msg_"
        and all(char in hexadecimal for char in text[4:16])
        and all(char in base62 for char in text[16:])
    )
    try:
        check_message_id(text)
    except InvalidId:
        assert not well_formed
    else:
        assert well_formed


@pytest.mark.rule("ID-3")
def test_a_refusal_names_the_id_and_never_more_than_a_line_of_it() -> None:
    """What was sent goes into logs; it is shown escaped and cut."""
    with pytest.raises(InvalidId) as refusal:
        check_turn_id("evil\n\x1b[31m" + "x" * 10_000)
    shown = repr("evil\n\x1b[31m" + "x" * 10_000)[:60]
    assert str(refusal.value) == f"{shown} is not a turn id"
    assert refusal.value.ids == {"turn_id": shown}
    assert refusal.value.code == "invalid_id"


@pytest.mark.rule("ID-3")
@pytest.mark.parametrize("good", ["x", "~", " ", "a" * 128, MESSAGE, "../x", "".join(map(chr, range(0x20, 0x7F)))])
def test_a_client_may_name_a_message_in_printable_ascii(good: str) -> None:
    """One to 128 characters; it is looked up, never made into a path."""
    assert check_named_message_id(good) is good


@pytest.mark.rule("ID-3")
@pytest.mark.parametrize(
    "wrong", ["", "a" * 129, "a\n", "a\x00", "\t", "\x7f", "é", "\ud83d", "٣", b"x", None, 7, ["x"]], ids=repr
)
def test_a_client_may_not_name_a_message_otherwise(wrong: object) -> None:
    """Empty, too long, not printable, not ASCII, not text."""
    with pytest.raises(InvalidId):
        check_named_message_id(wrong)


def test_a_process_and_its_fork_draw_different_numbers() -> None:
    """What was kept of the system's chance before the fork is given out by one of them only."""
    mint = Mint(FakeClock(1))
    mint.message()
    reading, writing = os.pipe()
    with warnings.catch_warnings(action="ignore"):  # newer versions of Python warn of threads
        child = os.fork()
    if child == 0:
        os.write(writing, mint.message().encode())
        os._exit(0)
    os.waitpid(child, 0)
    theirs, ours = os.read(reading, 100).decode(), mint.message()
    os.close(reading)
    os.close(writing)
    assert theirs[:16] == ours[:16]
    assert theirs != ours
