"""The document as JSON: one object, byte for byte the same for the same session.

Keys are sorted, but for those inside a part: what the model is shown of a pruned output is cut from its JSON, so the
order of a part's keys is part of its value.
"""

from __future__ import annotations

import json
from typing import Any, TypeVar

import msgspec

from clew.errors import InvalidInput, UnsupportedValue
from clew.interop.document import FORMAT, VERSION, MessageRecord, SessionDocument

__all__ = ["decode_value", "encode_value", "format_json", "parse_json", "to_record"]

Record = TypeVar("Record")


def format_json(document: SessionDocument) -> bytes:
    """The canonical form, with a newline at its end."""
    return encode_value(document) + b"\n"


def parse_json(data: bytes) -> SessionDocument:
    """The document in these bytes, of the right shape; whether it holds together is not looked at here."""
    value = decode_value(data, "the file")
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise InvalidInput(f'this is not a clew session: the file must be an object with "format": "{FORMAT}"')
    if value.get("version") != VERSION:
        raise InvalidInput(
            f"this file is of version {str(value.get('version'))[:20]}; this clew reads version {VERSION}"
        )
    return to_record(value, SessionDocument, "the file")


def encode_value(value: Any) -> bytes:
    """A record, or the document, in its canonical form."""
    built = msgspec.to_builtins(value)
    messages = built["messages"] if isinstance(value, SessionDocument) else ()
    for message in (built,) if isinstance(value, MessageRecord) else messages:
        for part in message["parts"]:
            part["data"] = msgspec.Raw(msgspec.json.encode(part["data"]))
    return msgspec.json.encode(built, order="sorted")


def decode_value(data: bytes, where: str) -> Any:
    """JSON from outside as plain values. Depth and odd numbers are refused as what they are, not as a crash."""
    try:
        return msgspec.json.decode(data)
    except RecursionError as error:
        raise UnsupportedValue(f"{where} is nested too deeply", where=where) from error
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as error:
        if _reads_leniently(data):
            raise UnsupportedValue(f"{where} holds a value that cannot be kept: {error}", where=where) from error
        raise InvalidInput(f"{where} is not JSON: {error}", where=where) from error


def _reads_leniently(data: bytes) -> bool:
    """Whether only a value is wrong: half a surrogate pair, or a number that is none or beyond all bounds."""
    try:
        json.loads(data.decode())
    except (json.JSONDecodeError, UnicodeDecodeError):
        return False
    except (ValueError, RecursionError):
        # Read as far as a number with too many digits, or too deep.
        return True
    return True


def to_record(value: Any, kind: type[Record], where: str) -> Record:
    """Plain values as a record of that kind; keys it does not know are left to later versions."""
    try:
        return msgspec.convert(value, kind)
    except RecursionError as error:
        raise UnsupportedValue(f"{where} is nested too deeply", where=where) from error
    except (msgspec.ValidationError, ValueError, OverflowError) as error:
        raise InvalidInput(f"{where} does not read as a clew session: {error}", where=where) from error
