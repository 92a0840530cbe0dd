"""What a provider's answer means: which status may get better, what is too large, how long to wait."""

from __future__ import annotations

import email.utils
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.providers.failure import LONGEST_RETRY_AFTER_MS, kind_of_status, parse_retry_after, says_overflow

NOW_MS = 1_800_000_000_000


@pytest.mark.parametrize(
    ("status", "text", "kind"),
    [
        (400, "", "invalid"),
        (400, "This model's maximum context length is 8192 tokens", "overflow"),
        (400, "prompt is too long: 208310 tokens > 200000 maximum", "overflow"),
        (400, "the request exceeds the available context size", "overflow"),
        (400, "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)", "overflow"),
        (400, "Your credit balance is too low", "invalid"),
        (401, "context length", "auth"),
        (402, "", "auth"),
        (403, "", "auth"),
        (404, "", "invalid"),
        (408, "", "transient"),
        (409, "", "transient"),
        (413, "", "invalid"),
        (413, "request_too_large: Request exceeds the maximum size", "overflow"),
        (422, "max_tokens is too large", "invalid"),
        (425, "", "transient"),
        (429, "", "transient"),
        (429, "Request too large: tokens per minute exceeded", "transient"),
        (429, "You exceeded your current quota (insufficient_quota)", "auth"),
        (500, "", "transient"),
        (502, "maximum context length", "transient"),
        (529, "", "transient"),
        (302, "", "unknown"),
    ],
)
def test_a_status_and_its_words_have_a_kind(status: int, text: str, kind: str) -> None:
    """Waiting helps, shrinking helps, the account helps, or nothing does."""
    assert kind_of_status(status, text) == kind


def test_a_rate_limit_that_counts_tokens_is_no_overflow() -> None:
    """The window is not what was exceeded."""
    assert not says_overflow("Limit 30000 tokens per minute, requested 42000: reduce the length or wait")


@pytest.mark.parametrize(
    ("text", "wait_ms"),
    [
        (None, None),
        ("", None),
        ("1", 1_000),
        (" 2.5 ", 2_500),
        ("0", 0),
        ("-5", 0),
        ("1e999", LONGEST_RETRY_AFTER_MS),
        ("99999999999999999999", LONGEST_RETRY_AFTER_MS),
        ("nan", None),
        ("inf", None),
        ("1.2.3", None),
        ("soon", None),
        ("١٢", None),
        (email.utils.format_datetime(datetime.fromtimestamp(NOW_MS / 1000 + 30, UTC), usegmt=True), 30_000),
        (email.utils.format_datetime(datetime.fromtimestamp(NOW_MS / 1000 - 30, UTC), usegmt=True), 0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", LONGEST_RETRY_AFTER_MS),
        ("Fri, 31 Feb 2030 23:59:59 GMT", None),
    ],
)
def test_retry_after_is_seconds_or_a_date_or_nothing(text: str | None, wait_ms: int | None) -> None:
    """Whatever a server writes, the answer is a wait of at most a day, or none."""
    assert parse_retry_after(text, NOW_MS) == wait_ms


def test_retry_after_in_milliseconds() -> None:
    """The unit of a header that is not the standard one."""
    assert parse_retry_after("1500", NOW_MS, unit_ms=1) == 1_500


@given(st.text() | st.floats().map(str) | st.integers().map(str))
def test_no_header_breaks_it(text: str) -> None:
    """Never an exception, never negative, never more than a day."""
    wait_ms = parse_retry_after(text, NOW_MS)
    assert wait_ms is None or 0 <= wait_ms <= LONGEST_RETRY_AFTER_MS
