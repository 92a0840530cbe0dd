"""Ids: how they are minted, and how ids from outside are checked.

An id is four characters of prefix, twelve hex digits of stamp and fourteen random base62 characters, thirty in
all. The stamp packs 41 bits of milliseconds since 2024-01-01 and a counter of seven bits into *one* integer that only
grows: within a millisecond, across a clock that steps back, and above 128 ids per millisecond, where it runs ahead of
the clock. Ids minted by one process therefore sort in the order they were minted. Still, the turn tree defines the
order of messages, never their ids.

Ids from outside are matched whole and in ASCII before any other use. ``re.match`` with ``$`` would accept a trailing
newline, hence ``fullmatch`` everywhere.
"""

from __future__ import annotations

import functools
import os
import re
import sys
import threading
import uuid
from collections.abc import Callable
from enum import Enum
from hashlib import sha256
from typing import Final

from clew.clock import Clock, SystemClock
from clew.errors import InvalidId

__all__ = [
    "EPOCH_MS",
    "Mint",
    "SessionIdForm",
    "check_alias",
    "check_message_id",
    "check_named_message_id",
    "check_part_id",
    "check_schedule_id",
    "check_session_id",
    "check_shared_id",
    "check_turn_id",
    "derived_id",
    "derived_session_id",
    "is_alias",
    "is_message_id",
    "is_session_id",
    "is_shared_id",
    "random_name",
    "stamp_of",
]

EPOCH_MS = 1_704_067_200_000
"""2024-01-01T00:00:00Z, where the 41 bits of milliseconds start. They end in September 2093."""

_COUNTER_BITS = 7
_STAMP_LIMIT = 1 << 48
_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_TAIL = 14
_BUFFER_BYTES = 1024
_TAILS = len(_ALPHABET) ** _TAIL
# Two characters at a time: a branch mints thousands of ids.
_PAIRS = tuple(low + high for high in _ALPHABET for low in _ALPHABET)
_EVEN = 256 // len(_ALPHABET) * len(_ALPHABET)
"""Bytes below this make every letter equally likely; the others are skipped."""
_LETTERS = bytes(ord(_ALPHABET[byte % len(_ALPHABET)]) for byte in range(256))
_UNEVEN = bytes(range(_EVEN, 256))

_CLEW = "[0-9a-f]{12}[0-9A-Za-z]{14}"


_SHARED = re.compile("[A-Za-z0-9_-]{1,64}", re.ASCII)
_MESSAGE = re.compile(f"msg_{_CLEW}", re.ASCII)
_ALIAS = re.compile(r"(?!ses_)[\x20-\x7e]{1,128}", re.ASCII)


class SessionIdForm(Enum):
    """The formats of a session id; a store declares its own.

    ``SHARED`` is for files that other programs write, too: clew's own ids, and theirs.
    """

    CLEW = re.compile(f"ses_{_CLEW}", re.ASCII)
    SHARED = _SHARED
    ULID = re.compile("[0-9A-HJKMNP-TV-Z]{26}", re.ASCII)
    UUID = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.ASCII)

    def accepts_foreign_id(self, session_id: str) -> bool:
        """Return whether a session from another store can keep its id in a store with this format."""
        other = (SessionIdForm.ULID, SessionIdForm.UUID) if self is SessionIdForm.SHARED else ()
        is_other = any(form.value.fullmatch(session_id) for form in other)
        return self.value.fullmatch(session_id) is not None and not is_other


class _RandomSource:
    """Random numbers from the system, buffered: a system call per number would release the GIL each time."""

    def __init__(self) -> None:
        self._reset()
        # A forked process must not use the same numbers.
        if sys.platform != "win32":
            os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        self._buffer = b""
        self._letters = ""
        self._lock = threading.Lock()

    def letters(self, count: int) -> str:
        """Return ``count`` random letters of the alphabet."""
        with self._lock:
            while len(self._letters) < count:
                self._letters += os.urandom(_BUFFER_BYTES).translate(_LETTERS, _UNEVEN).decode()
            drawn, self._letters = self._letters[:count], self._letters[count:]
            return drawn

    def below(self, limit: int) -> int:
        bits = (limit - 1).bit_length()
        size = (bits + 7) // 8
        with self._lock:
            while True:
                if len(self._buffer) < size:
                    self._buffer = os.urandom(_BUFFER_BYTES)
                drawn, self._buffer = self._buffer[:size], self._buffer[size:]
                number = int.from_bytes(drawn) >> (8 * size - bits)
                if number < limit:
                    return number


_random_source: Final = _RandomSource()


def random_name() -> str:
    """Return sixteen random hexadecimal digits, for temporary names that are not stored."""
    return f"{_random_source.below(1 << 64):016x}"


class Mint:
    """A generator of ids. A process has one; it is thread-safe."""

    def __init__(self, clock: Clock | None = None, random: Callable[[int], int] | None = None) -> None:
        """``random`` returns a number below its argument; by default the system's random source."""
        self._clock = clock or SystemClock()
        self._random = random or _random_source.below
        self._last = 0
        self._lock = threading.Lock()

    def session(self, form: SessionIdForm = SessionIdForm.CLEW) -> str:
        if form in (SessionIdForm.CLEW, SessionIdForm.SHARED):
            return self._make("ses_")
        if form is SessionIdForm.ULID:
            return self._ulid()
        return str(uuid.UUID(int=self._random(1 << 128), version=4))

    def message(self) -> str:
        return self._make("msg_")

    def part(self) -> str:
        return self._make("prt_")

    def turn(self) -> str:
        return self._make("trn_")

    def call(self) -> str:
        return self._make("cal_")

    def approval(self) -> str:
        return self._make("apr_")

    def event(self) -> str:
        return self._make("evt_")

    def schedule(self) -> str:
        return self._make("sch_")

    def replica(self) -> str:
        return self._make("rep_")

    def snapshot(self) -> str:
        return self._make("snp_")

    def _stamp(self) -> int:
        with self._lock:
            by_clock = max(self._clock.now_ms() - EPOCH_MS, 0) << _COUNTER_BITS
            stamp = max(self._last + 1, by_clock)
            if stamp >= _STAMP_LIMIT:
                raise InvalidId("the clock is beyond what an id can hold; set it to before September 2093")
            self._last = stamp
            return stamp

    def _make(self, prefix: str) -> str:
        return f"{prefix}{self._stamp():012x}{self._tail()}"

    def _ulid(self) -> str:
        """Return a ULID that grows with the stamp: the stamp's millisecond, then its counter, then random bits."""
        stamp = self._stamp()
        value = ((stamp >> _COUNTER_BITS) + EPOCH_MS) << 80
        value |= (stamp & ((1 << _COUNTER_BITS) - 1)) << 73
        value |= self._random(1 << 73)
        return "".join(_CROCKFORD[(value >> shift) & 31] for shift in range(125, -1, -5))

    def _tail(self) -> str:
        if self._random == _random_source.below:
            return _random_source.letters(_TAIL)
        number = self._random(_TAILS)
        digits = []
        for _ in range(_TAIL // 2):
            number, pair = divmod(number, len(_PAIRS))
            digits.append(_PAIRS[pair])
        return "".join(digits)


def derived_id(prefix: str, session_id: str, position: str, at: int) -> str:
    """Return an id of clew's format that is always the same for the same position in another program's file."""
    number = int.from_bytes(sha256(f"{session_id}/{position}".encode()).digest()[:16])
    tail = ""
    for _ in range(_TAIL):
        number, digit = divmod(number, len(_ALPHABET))
        tail += _ALPHABET[digit]
    return f"{prefix}{(max(at - EPOCH_MS, 0) << _COUNTER_BITS) & (_STAMP_LIMIT - 1):012x}{tail}"


def derived_session_id(form: SessionIdForm, key: str) -> str:
    """Return the same for a session, in the format of its store."""
    if form is SessionIdForm.UUID:
        return str(uuid.UUID(bytes=sha256(key.encode()).digest()[:16], version=4))
    if form is not SessionIdForm.ULID:
        return derived_id("ses_", key, "", 0)
    value = int.from_bytes(sha256(key.encode()).digest()[:16])
    return "".join(_CROCKFORD[(value >> shift) & 31] for shift in range(125, -1, -5))


def stamp_of(id_: str) -> int:
    """Return the epoch milliseconds of an id, for debugging; never for ordering."""
    return (int(id_[4:16], 16) >> _COUNTER_BITS) + EPOCH_MS


def _check(what: str, pattern: re.Pattern[str], value: object) -> str:
    if isinstance(value, str) and pattern.fullmatch(value):
        return value
    shown = repr(value)[:60]
    raise InvalidId(f"{shown} is not a {what} id", **{f"{what}_id": shown})


def check_session_id(value: object, form: SessionIdForm = SessionIdForm.CLEW) -> str:
    """Return ``value`` when it is a session id of ``form``, else raise :class:`InvalidId`."""
    return _check("session", form.value, value)


def is_session_id(value: object, form: SessionIdForm = SessionIdForm.CLEW) -> bool:
    return isinstance(value, str) and form.value.fullmatch(value) is not None


def is_alias(value: object) -> bool:
    """Whether a caller may call a session this: none of clew's own names begins like it."""
    return isinstance(value, str) and _ALIAS.fullmatch(value) is not None


def check_alias(value: str, form: SessionIdForm) -> str:
    """A caller's own name for a session; one that could be an id of the store would hide it, or never be found."""
    if not is_alias(value) or (form is not SessionIdForm.SHARED and is_session_id(value, form)):
        raise InvalidId("an alias is 1 to 128 printable ASCII characters, and no id of clew's", alias=value[:60])
    return value


def check_shared_id(what: str, value: object) -> str:
    """Return ``value`` when it can be the id of a message or part, whichever program made it."""
    return _check(what, _SHARED, value)


def is_shared_id(value: object) -> bool:
    """Whether this can be the id of a session, message or part that another program made."""
    return isinstance(value, str) and _SHARED.fullmatch(value) is not None


def is_message_id(value: object) -> bool:
    """Whether clew gave a message this id."""
    return isinstance(value, str) and _MESSAGE.fullmatch(value) is not None


check_message_id = functools.partial(_check, "message", _MESSAGE)
check_part_id = functools.partial(_check, "part", re.compile(f"prt_{_CLEW}", re.ASCII))
check_turn_id = functools.partial(_check, "turn", re.compile(f"trn_{_CLEW}", re.ASCII))
check_schedule_id = functools.partial(_check, "schedule", re.compile(f"sch_{_CLEW}", re.ASCII))
check_named_message_id = functools.partial(_check, "message", re.compile(r"[\x20-\x7e]{1,128}", re.ASCII))
"""An id that names a message from outside: the client's own (1 to 128 printable ASCII characters) or clew's."""
