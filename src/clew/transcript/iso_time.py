"""Times in file formats: ISO 8601 in UTC with milliseconds, written and parsed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

__all__ = ["iso", "milliseconds"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def iso(ms: int) -> str:
    """Format epoch milliseconds; a time no calendar holds becomes the nearest one that it does."""
    try:
        moment = _EPOCH + timedelta(milliseconds=ms)
    except OverflowError:
        moment = datetime(9999, 12, 31, 23, 59, 59, 999000, tzinfo=UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"


def milliseconds(value: object) -> int | None:
    """Parse a time from a file: ISO text, or epoch milliseconds. None if it is neither."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(milliseconds=1)
