"""Reading a session file: what clew cannot have written is refused by its place."""

from __future__ import annotations

import msgspec
import pytest

from clew.errors import InvalidInput
from clew.interop.session_file import format_json, parse_session
from clew.transcript.message import MessageRow, PartRow
from clew.transcript.portable import PortableSession
from clew.transcript.session import Model, Session

SESSION = "ses_" + "0" * 26


def test_a_part_has_an_id_or_none_yet_and_never_an_empty_one() -> None:
    """None stands for one that is still being written; an empty text would pass for it."""
    part = PartRow("", 0, {"type": "text", "text": "hi"}, 1, 1)
    row = MessageRow("msg_" + "0" * 26, SESSION, "user", 1, 1, {"cancelled_at": 1}, (part,))
    session = Session(id=SESSION, agent="assistant", model=Model("demo", "echo"), created_at=1, updated_at=1)
    written = format_json(PortableSession(session=session, messages=(row,)))
    assert parse_session(written).messages == (row,)
    document = msgspec.json.decode(written)
    assert document["messages"][0]["parts"][0]["id"] is None
    document["messages"][0]["parts"][0]["id"] = ""
    with pytest.raises(InvalidInput, match=r"messages\[0\].*'' is not a part id"):
        parse_session(msgspec.json.encode(document))
