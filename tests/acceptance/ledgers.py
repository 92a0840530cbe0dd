"""The turn ledger read with plain SQL, and the same worked out from the store's own answers, to compare the two."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from clew.session.api import Engine
from clew.store.base import Store
from clew.transcript.line import path_to
from clew.transcript.message import MessageRow
from clew.transcript.turn import Tree, Turn
from clew.transcript.view import compaction_data

__all__ = ["ask", "chain", "disagreements", "lines_differ"]

_TEXTS = "SELECT text FROM ledger_messages WHERE turn_id = ? ORDER BY position"


def ask(path: Path, question: str, *given: Any) -> list[tuple[Any, ...]]:
    """What plain sqlite3 answers."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        return connection.execute(question, given).fetchall()


def chain(path: Path, turn_id: str | None) -> list[str]:
    """The turns from the root to this one, by ``parent_turn_id`` alone, whichever session they are of."""
    parents = dict(ask(path, "SELECT id, parent_turn_id FROM ledger_turns"))
    found: list[str] = []
    while turn_id is not None:
        found.insert(0, turn_id)
        turn_id = parents[turn_id]
    return found


class Books(NamedTuple):
    """Every session of a store as the store tells it."""

    trees: dict[str, Tree]
    turns: dict[str, Turn]
    rows: dict[str, MessageRow]

    @classmethod
    async def load(cls, store: Store) -> Books:
        trees = {id_: await store.load_tree(id_) for id_ in await store.session_ids()}
        rows = {row.id: row for id_ in trees for row in await store.load_messages(id_)}
        return cls(trees, {turn.id: turn for tree in trees.values() for turn in tree.turns.values()}, rows)

    def said(self, turn: Turn) -> Any:
        """What a turn is: its kind, its end, and all that was said in it; of a summary the text, not the ids."""
        held = [self.rows[id_] for id_ in self.trees[turn.session_id].links.get(turn.id, ())]
        if turn.kind == "compaction":
            return turn.kind, turn.status, [(compaction_data(row) or {}).get("summary") for row in held]
        return turn.kind, turn.status, [(row.role, [part.data for part in row.parts]) for row in held]

    def path(self, turn: Turn) -> tuple[Turn, ...]:
        return path_to(self.trees[turn.session_id].turns, turn.id)

    def first(self, turn: Turn) -> Turn:
        """The turn this one is a copy of, and that one of, while all up to it is the same in both."""
        origin = self.turns.get(turn.origin_turn_id or "")
        if origin is None:
            return turn
        here, there = self.path(turn), self.path(origin)
        if [one.origin_turn_id for one in here] != [one.id for one in there]:
            return turn
        if any(self.said(one) != self.said(other) for one, other in zip(here, there, strict=True)):
            return turn
        return self.first(origin)

    def first_id(self, turn_id: str | None) -> str | None:
        return None if turn_id is None else self.first(self.turns[turn_id]).id

    def holder(self, turn: Turn, message_id: str | None) -> str | None:
        """The turn that holds a message a compaction names: on its own path, or below it, else the newest."""
        tree = self.trees[turn.session_id]
        held = sorted(
            (id_ for id_, links in tree.links.items() if message_id in links and id_ != turn.id), reverse=True
        )
        above = {one.id for one in self.path(turn)}
        related = [id_ for id_ in held if id_ in above or turn in self.path(tree.turns[id_])]
        return self.first_id(next(iter(related or held), None))


async def disagreements(path: Path, store: Store) -> list[str]:
    """Where the views say something else than the store. The views are read after the store: nobody may write."""
    books = await Books.load(store)
    shown = {id_: turn for id_, turn in books.turns.items() if books.first(turn) is turn}
    return [
        *_compare("sessions", await _sessions(store, books), _sessions_in_sql(path)),
        *_compare("turns", {id_: _turn(books, turn) for id_, turn in shown.items()}, _turns_in_sql(path)),
        *_compare("messages", _messages(books, shown), _messages_in_sql(path)),
        *_compare("tool calls", _calls(books, shown), _calls_in_sql(path)),
    ]


async def lines_differ(path: Path, engine: Engine) -> list[str]:
    """Sessions whose line, walked in the ledger from ``current_turn_id`` up, is not the one the engine shows."""
    books, found = await Books.load(engine.store), []
    for session_id, turn_id in ask(path, "SELECT id, current_turn_id FROM ledger_sessions"):
        view = await engine.tree(session_id)
        # A turn that is gone on with after it had settled is open, and the head still.
        settled = [turn for turn in view.turns if turn.is_head or turn.id != view.open_turn_id]
        shown = sorted((turn.depth, turn.id) for turn in settled if turn.on_line)
        walked = chain(path, turn_id)
        if walked != [books.first_id(id_) for _, id_ in shown]:
            found.append(f"{session_id}: {walked} in the ledger, {shown} in the tree")
        words = [text for id_ in walked for (text,) in ask(path, _TEXTS, id_)]
        every = {message.id: message for message in await engine.messages(session_id, view="all")}
        held = [every[id_] for _, turn in shown for id_ in books.trees[session_id].links.get(turn, ())]
        texts = [[part["text"] for part in message.parts if part["type"] == "text"] for message in held]
        if words != ["\n".join(one) if one else None for one in texts]:
            found.append(f"{session_id}: {words} in the ledger, {texts} in the engine's messages")
    return found


def _compare(what: str, expected: dict[Any, Any], found: dict[Any, Any]) -> list[str]:
    keys = sorted(expected.keys() | found.keys(), key=str)
    return [
        f"{what} {key}: {expected.get(key)} in the store, {found.get(key)} in the ledger"
        for key in keys
        if expected.get(key) != found.get(key)
    ]


async def _sessions(store: Store, books: Books) -> dict[str, Any]:
    found = {}
    for id_, tree in books.trees.items():
        session = await store.find_session(id_)
        assert session is not None
        key = session.metadata.get("routing_key")
        found[id_] = (session.label, key, session.kind, books.first_id(tree.head_turn_id), session.parent_id)
    return found


def _sessions_in_sql(path: Path) -> dict[str, Any]:
    asked = "SELECT id, label, routing_key, kind, current_turn_id, parent_session_id FROM ledger_sessions"
    return {row[0]: row[1:] for row in ask(path, asked)}


def _turn(books: Books, turn: Turn) -> Any:
    parent = books.first_id(turn.parent_turn_id)
    held = [books.rows[id_] for id_ in books.trees[turn.session_id].links.get(turn.id, ())]
    data = next(filter(None, map(compaction_data, held)), None) if turn.kind == "compaction" else None
    if data is None:
        return (turn.session_id, parent, turn.kind, turn.status, None, None, None, None, None)
    told = (
        books.holder(turn, data.get("range", {}).get("through_message_id")),
        books.holder(turn, data["tail_start_id"]),
    )
    figures = (data.get("tokens_before"), data.get("tokens_after"))
    return (turn.session_id, parent, turn.kind, turn.status, data["summary"], *told, *figures)


def _turns_in_sql(path: Path) -> dict[str, Any]:
    asked = (
        "SELECT id, session_id, parent_turn_id, turn_type, status, summary, summarized_through_turn_id,"
        " first_kept_turn_id, tokens_before, tokens_after FROM ledger_turns"
    )
    return {row[0]: row[1:] for row in ask(path, asked)}


def _messages(books: Books, shown: dict[str, Turn]) -> dict[Any, Any]:
    found = {}
    for turn in shown.values():
        for position, id_ in enumerate(books.trees[turn.session_id].links.get(turn.id, ())):
            row = books.rows[id_]
            texts = [part.data["text"] for part in row.parts if part.type == "text"]
            found[turn.id, position] = (id_, row.session_id, row.role, "\n".join(texts) if texts else None)
    return found


def _messages_in_sql(path: Path) -> dict[Any, Any]:
    asked = "SELECT turn_id, position, id, session_id, role, text FROM ledger_messages"
    return {row[:2]: row[2:] for row in ask(path, asked)}


def _calls(books: Books, shown: dict[str, Turn]) -> dict[Any, Any]:
    return {
        (turn.id, id_, part.index): (
            part.tool_call_id,
            part.data.get("toolName") or part.type.removeprefix("tool-"),
            part.tool_state,
            part.data.get("input", part.data.get("rawInput")),
            part.data.get("output"),
            part.data.get("errorText"),
        )
        for turn in shown.values()
        for id_ in books.trees[turn.session_id].links.get(turn.id, ())
        for part in books.rows[id_].parts
        if part.tool_call_id is not None
    }


def _calls_in_sql(path: Path) -> dict[Any, Any]:
    asked = (
        "SELECT turn_id, message_id, position, id, tool, state, input_json, output_json, error FROM ledger_tool_calls"
    )
    return {
        row[:3]: (*row[3:6], *(None if text is None else json.loads(text) for text in row[6:8]), row[8])
        for row in ask(path, asked)
    }
