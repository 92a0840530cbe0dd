"""Lines that were copied: what the model sees, and every id."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import orjson

from clew.testing.scenario import Scenario

_IDS = re.compile(rb'"((?:msg|trn|prt|ses)_[0-9a-f]{12}[0-9A-Za-z]{14})"')


async def model_view(s: Scenario, session_id: str) -> list[list[dict[str, Any]]]:
    """What the model would be sent, without what every copy has of its own."""
    return [message.parts for message in await s.engine.messages(session_id, view="model")]


async def all_ids(s: Scenario, session_id: str) -> set[bytes]:
    """Every id that anything stored for a session holds, but for the turns it names as those it was made from."""
    whole = await s.engine.store.find_full_session(session_id)
    assert whole is not None
    steps = [await s.engine.store.load_steps(turn_id) for turn_id in whole.tree.turns]
    pruned = await s.engine.store.load_pruned(session_id)
    turns = whole.tree.turns.values()
    origins = {(named or "").encode() for turn in turns for named in (turn.origin_turn_id, turn.carried_from)}
    session = msgspec.structs.replace(whole.session, parent_id=None, parent_message_id=None)
    stored = msgspec.to_builtins((session, whole.messages, whole.tree, whole.seals, steps, pruned))
    return set(_IDS.findall(orjson.dumps(stored))) - origins
