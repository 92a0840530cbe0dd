"""The remote engine: the engine of a running server, by the names and with the values of the one in this process.

A store has one owner. When that is a server, commands that write ask it; nobody who uses an engine needs to know which
of the two it is. What only the owner's process can have, its store and its hooks, is not here.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import msgspec

from clew.compaction.context import ContextReport
from clew.compaction.files import TouchedFile
from clew.engine import ExportFormat, SessionList
from clew.errors import StoreUnavailable
from clew.fronts.cli.remote_triggers import RemoteEvents, RemoteSchedules, RemoteWebhooks
from clew.fronts.cli.wire import Wire, segment
from clew.fronts.shape import RewoundShape, SubmissionShape
from clew.history.compactions import CompactionReport
from clew.history.report import RequestReport, TurnReport
from clew.history.rewind import Rewound
from clew.history.rewind_plan import RewindMode
from clew.history.tree import ReflogEntry, TreeView
from clew.history.views import View
from clew.live.base import Event, Status
from clew.providers.base import ModelListing
from clew.runtime.answers import Decision
from clew.runtime.compact import Compacted
from clew.runtime.submission import OnBusy, Submission, TurnOutcome
from clew.store.base import SearchPage
from clew.transcript.message import Message
from clew.transcript.session import Model, Session
from clew.transcript.turn_state import OPEN

__all__ = ["RemoteEngine"]

AnyModel = str | Model | dict[str, Any] | None
T = TypeVar("T")
_DONE: Final = b"[DONE]"


class RemoteSubmission(Submission):
    """A prompt that a server took. Its end is asked for when somebody waits for it."""

    def __init__(self, engine: RemoteEngine, session_id: str, taken: SubmissionShape) -> None:
        never: asyncio.Future[TurnOutcome] = asyncio.get_running_loop().create_future()
        super().__init__(taken.message_id, never, queued=taken.queued)
        self._engine = engine
        self._session_id = session_id

    async def wait(self) -> TurnOutcome:
        return await self._engine.outcome(self._session_id, self.message_id)


class RemoteEngine:
    """What of an engine a server offers."""

    def __init__(self, url: str, token: str, pid: int | None = None) -> None:
        self._wire = Wire(url, token, pid)
        self.url = url
        self.events = RemoteEvents(self._wire)
        self.schedules = RemoteSchedules(self._wire)
        self.webhooks = RemoteWebhooks(self._wire)

    async def probe(self) -> None:
        """Raise when the server does not answer within a few seconds."""
        await self._wire.probe()

    # Sessions

    async def create_session(
        self,
        *,
        model: AnyModel = None,
        agent: str | None = None,
        workspace_root: str | Path | None = None,
        title: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Session:
        given = {"agent": agent, "model": _model(model), "title": title, "metadata": metadata}
        # A relative folder is one of this process, not of the server's.
        root = None if workspace_root is None else _absolute(workspace_root)
        return await self._post("/api/sessions", Session, **given, workspace_root=root)

    async def get_session(self, session_id: str) -> Session:
        return await self._get(_of(session_id), Session)

    async def list_sessions(
        self,
        *,
        limit: int = 50,
        cursor: str | None = None,
        agent: str | None = None,
        workspace: str | Path | None = None,
        parent: str | None = None,
        q: str | None = None,
        kind: Literal["chat", "subagent", "any"] = "chat",
        archived: bool = False,
        ephemeral: bool = False,
    ) -> SessionList:
        folder = None if workspace is None else _absolute(workspace)
        asked = {"limit": limit, "cursor": cursor, "agent": agent, "workspace": folder, "parent": parent, "q": q}
        flags = {"kind": kind, "archived": archived, "ephemeral": ephemeral}
        return await self._get("/api/sessions", SessionList, **asked, **flags)

    async def patch_session(
        self,
        session_id: str,
        *,
        title: str | None = None,
        archived: bool | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Session:
        given = {"title": title, "archived": archived, "metadata": metadata}
        body = {name: value for name, value in given.items() if value is not None}
        return msgspec.json.decode(await self._wire.call("PATCH", _of(session_id), body), type=Session)

    async def rename_session(self, session_id: str, title: str) -> Session:
        return await self.patch_session(session_id, title=title)

    async def archive_session(self, session_id: str, *, archived: bool = True) -> Session:
        return await self.patch_session(session_id, archived=archived)

    async def examples(self) -> list[Session]:
        """The sample sessions, made by the server where they are not there yet."""
        return (await self._post("/api/examples", dict[str, list[Session]]))["sessions"]

    async def delete_session(self, session_id: str, *, force: bool = False) -> None:
        await self._wire.call("DELETE", _of(session_id), query={"force": force})

    async def messages(
        self, session_id: str, *, view: View = "visible", limit: int | None = None, before: str | None = None
    ) -> list[Message]:
        asked = {"view": view, "limit": limit, "before": before}
        return (await self._get(_of(session_id, "messages"), dict[str, list[Message]], **asked))["messages"]

    # Runs

    async def submit(
        self,
        session_id: str,
        prompt: str | Sequence[Mapping[str, Any]],
        *,
        model: AnyModel = None,
        agent: str | None = None,
        message_id: str | None = None,
        on_busy: OnBusy = "queue",
        attended: bool = True,
    ) -> Submission:
        """As the engine's. A server has its own people to ask: whoever cannot be asked here denies by answering."""
        said = {"text": prompt} if isinstance(prompt, str) else {"parts": list(prompt)}
        given = {"model": _model(model), "agent": agent, "message_id": message_id, "on_busy": on_busy}
        taken = await self._post(_of(session_id, "prompt"), SubmissionShape, **said, **given)
        return RemoteSubmission(self, session_id, taken)

    async def attach(self, session_id: str) -> AsyncIterator[dict[str, Any]]:
        async with contextlib.aclosing(self._wire.frames(f"/api/chat/{segment(session_id)}/stream")) as frames:
            async for frame in frames:
                if frame != _DONE:
                    yield msgspec.json.decode(frame)

    async def abort(self, session_id: str) -> bool:
        return (await self._post(_of(session_id, "abort"), dict[str, bool]))["aborted"]

    async def continue_turn(self, session_id: str) -> Submission:
        return RemoteSubmission(self, session_id, await self._post(_of(session_id, "continue"), SubmissionShape))

    async def get_status(self, session_id: str) -> Status:
        return await self._get(_of(session_id, "status"), Status)

    async def watch_status(self, session_id: str) -> AsyncIterator[Status]:
        async with contextlib.aclosing(self._wire.frames(_of(session_id, "status"))) as frames:
            async for frame in frames:
                yield msgspec.json.decode(frame, type=Status)

    async def subscribe(self) -> AsyncGenerator[Event, None]:
        """What happens on the server. The first event, ``hello``, says that from now on none is missed."""
        async with contextlib.aclosing(self._wire.frames("/api/events")) as frames:
            async for frame in frames:
                told = msgspec.json.decode(frame, type=dict[str, Any])
                yield Event(told.pop("type"), told)

    async def outcome(self, session_id: str, message_id: str) -> TurnOutcome:
        """How the newest turn of a message ends. Listens first and looks then, so that no end is missed."""
        async with contextlib.aclosing(self.subscribe()) as events:
            async for event in events:
                turn_id: str | None = None
                if str(event.type) == "hello":
                    held = [turn for turn in (await self.tree(session_id)).turns if message_id in turn.messages]
                    turn_id = max(held, key=lambda turn: (turn.created_at, turn.id)).id if held else None
                elif event.data.get("session_id") == session_id and event.type == "turn_finished":
                    turn_id = str(event.data["turn_id"])
                turn = None if turn_id is None else await self.turn(turn_id)
                if turn is not None and message_id in turn.messages and turn.status not in OPEN:
                    data = turn.data
                    return TurnOutcome(turn.id, turn.messages[-1], turn.status, data.get("stopped"), data.get("error"))
        raise StoreUnavailable(f"the server at {self.url} ended before the turn did", session_id=session_id)

    async def answer(self, session_id: str, approval_id: str, decision: Decision, reason: str | None = None) -> int:
        path = _of(session_id, "approvals", approval_id)
        return (await self._post(path, dict[str, int], decision=decision, reason=reason))["remaining"]

    async def answer_question(self, session_id: str, tool_call_id: str, output: Any) -> int:
        return (await self._post(_of(session_id, "answers", tool_call_id), dict[str, int], output=output))["remaining"]

    async def queue(self, session_id: str) -> list[Message]:
        return (await self._get(_of(session_id, "queue"), dict[str, list[Message]]))["messages"]

    async def cancel_queued(self, session_id: str, message_id: str) -> None:
        await self._wire.call("DELETE", _of(session_id, "queue", message_id))

    # Damage

    async def accept_message(self, session_id: str, message_id: str) -> Message:
        return await self._post(_of(session_id, "messages", message_id, "accept"), Message)

    async def accept_loss(self, loss_id: str) -> None:
        await self._wire.call("POST", f"/api/losses/{segment(loss_id)}/accept", {})

    # Going back

    async def rewind(
        self,
        session_id: str,
        message_id: str,
        *,
        mode: RewindMode = "resend",
        text: str | None = None,
        run: bool = False,
        restore_files: bool = False,
    ) -> Rewound:
        given = {"message_id": message_id, "mode": mode, "text": text, "run": run, "restore_files": restore_files}
        return self._rewound(session_id, await self._post(_of(session_id, "rewind"), RewoundShape, **given))

    async def unrewind(self, session_id: str) -> Rewound:
        return self._rewound(session_id, await self._post(_of(session_id, "unrewind"), RewoundShape))

    async def set_head(self, session_id: str, turn_id: str | None) -> Rewound:
        return self._rewound(session_id, await self._post(_of(session_id, "head"), RewoundShape, turn_id=turn_id))

    def _rewound(self, session_id: str, moved: RewoundShape) -> Rewound:
        taken = None
        if isinstance(moved.message_id, str):
            taken = RemoteSubmission(self, session_id, SubmissionShape(moved.message_id, moved.queued is True))
        return Rewound(moved.head_turn_id, moved.hidden, moved.draft, taken)

    async def reflog(self, session_id: str) -> list[ReflogEntry]:
        return (await self._get(_of(session_id, "reflog"), dict[str, list[ReflogEntry]]))["moves"]

    async def branch(
        self,
        session_id: str,
        from_message_id: str,
        *,
        metadata: Mapping[str, Any] | None = None,
        model: AnyModel = None,
        start_message_id: str | None = None,
    ) -> Session:
        given = {"from_message_id": from_message_id, "metadata": metadata, "start_message_id": start_message_id}
        return await self._post(_of(session_id, "branch"), Session, **given, model=_model(model))

    async def fork(self, turn_id: str, *, label: str | None = None) -> Session:
        return await self._post(f"{_turn(turn_id)}/fork", Session, label=label)

    async def tree(self, session_id: str) -> TreeView:
        return await self._get(_of(session_id, "tree"), TreeView)

    # Room

    async def compact(self, session_id: str, focus: str | None = None) -> Compacted:
        return await self._post(_of(session_id, "compact"), Compacted, focus=focus)

    async def prune(self, session_id: str) -> Compacted:
        return await self._post(_of(session_id, "prune"), Compacted)

    async def context(self, session_id: str, *, model: str | None = None) -> ContextReport:
        return await self._get(_of(session_id, "context"), ContextReport, model=model)

    async def compaction(self, session_id: str, message_id: str) -> CompactionReport:
        return await self._get(_of(session_id, "compactions", message_id), CompactionReport)

    async def turn(self, turn_id: str) -> TurnReport:
        return await self._get(_turn(turn_id), TurnReport)

    async def request(self, turn_id: str, step: int | None = None) -> RequestReport:
        return await self._get(f"{_turn(turn_id)}/request", RequestReport, step=step)

    async def models(self) -> list[ModelListing]:
        return (await self._get("/api/models", dict[str, list[ModelListing]]))["models"]

    async def turn_messages(self, turn_id: str) -> list[Message]:
        return (await self._get(f"{_turn(turn_id)}/messages", dict[str, list[Message]]))["messages"]

    async def files(self, session_id: str) -> list[TouchedFile]:
        return (await self._get(_of(session_id, "files"), dict[str, list[TouchedFile]]))["files"]

    # Finding, coming and going

    async def search(
        self, q: str, *, limit: int = 20, cursor: str | None = None, session_id: str | None = None
    ) -> SearchPage:
        return await self._get("/api/search", SearchPage, q=q, limit=limit, cursor=cursor, session=session_id)

    async def export(
        self, session_id: str, format: ExportFormat = "json", *, redact: bool = True, hidden: bool = False
    ) -> bytes:
        query = {"format": format, "redact": redact, "hidden": hidden}
        return await self._wire.call("GET", _of(session_id, "export"), query=query)

    async def import_session(self, data: bytes, *, workspace_root: str | Path | None = None) -> Session:
        query = {"workspace": None if workspace_root is None else str(workspace_root)}
        return msgspec.json.decode(await self._wire.call("POST", "/api/import", data, query=query), type=Session)

    # Inside

    async def _get(self, path: str, type_: type[T], **query: Any) -> T:
        return msgspec.json.decode(await self._wire.call("GET", path, query=query), type=type_)

    async def _post(self, path: str, type_: type[T], **body: Any) -> T:
        return msgspec.json.decode(await self._wire.call("POST", path, body), type=type_)


def _of(session_id: str, *more: str) -> str:
    return "/".join(["/api/sessions", *(segment(part) for part in (session_id, *more))])


def _absolute(folder: str | Path) -> str:
    return str(Path(folder).expanduser().absolute())


def _turn(turn_id: str) -> str:
    return f"/api/turns/{segment(turn_id)}"


def _model(model: AnyModel) -> Any:
    return msgspec.to_builtins(model) if isinstance(model, Model) else model
