"""History: rewinding and branching, compaction, and reports about turns and requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from clew import ids
from clew.errors import InvalidInput
from clew.session.acquire.waiting import LEFT_OPEN
from clew.session.api.base import EnginePart, check_limit
from clew.session.history.lookup import get_turn_of
from clew.session.history.report import CompactionReport, load_compaction
from clew.session.history.rewind_plan import Edit, RestoreTo, RewindMode
from clew.session.history.tree import ReflogEntry, TreeView, load_reflog, load_tree_view
from clew.session.history.views import load_turn_messages
from clew.transcript.message import Message
from clew.transcript.metadata import check_metadata
from clew.transcript.session import Model, Session
from clew.transcript.value_check import check_value

# Imports inside functions: they load the runtime or the request builder, half as large as clew itself. Only an opened
# engine needs them, so importing clew stays fast.
if TYPE_CHECKING:
    from clew.compaction.context import ContextReport
    from clew.session.context.compact import Compacted
    from clew.session.history.changes import WorkspaceChanges
    from clew.session.history.file_values import (
        ChangesReport,
        FileDiff,
        FilesCompared,
        FilesMode,
        FilesRequest,
        FilesRestored,
        RestorePreview,
    )
    from clew.session.history.report import RequestReport, TurnReport
    from clew.session.history.rewind import Rewinding, Rewound

__all__ = ["History"]


class History(EnginePart):
    """The operations that move a session's head, copy its line, compact it, or report what was sent."""

    async def rewind(
        self,
        session_id: str,
        message_id: str,
        *,
        mode: RewindMode = "resend",
        text: str | None = None,
        run: bool = False,
        files: FilesMode = "keep",
        force: bool = False,
        paths: Sequence[str] = (),
        restore_files: bool = False,
        parts: Sequence[Mapping[str, Any]] | None = None,
        model: str | Model | dict[str, Any] | None = None,
        agent: str | None = None,
        client_message_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Rewound:
        """Go back to a user message. What came after it leaves the conversation and stays stored.

        ``resend`` keeps the message and waits for a new answer; ``edit`` takes it back and returns its text as a draft.
        With ``run`` the message, or its edited version, is answered immediately. ``text`` replaces its text, ``parts``
        all of it; agent and client metadata stay the message's own unless given. So does the model, unless another was
        picked for the session since.

        With ``files="restore"`` the workspace goes back, too, to its state when the message was sent; with ``only`` the
        conversation stays. Files that another hand has changed since are left alone, unless they are in ``paths``, or
        all with ``force``. ``restore_files=True`` is the older name of ``files="restore"``.
        """
        check_metadata(metadata)
        edit = Edit(
            text=text,
            parts=parts,
            model=model,
            agent=agent,
            client_message_id=client_message_id,
            metadata=metadata,
        )
        return await self._rewinding().rewind(
            await self._resolve_session(session_id),
            message_id,
            mode=mode,
            edit=edit,
            run=run,
            files=_request("restore" if restore_files and files == "keep" else files, force, paths),
        )

    async def unrewind(
        self, session_id: str, *, files: FilesMode = "keep", force: bool = False, paths: Sequence[str] = ()
    ) -> Rewound:
        """Undo the newest rewind; raise ``NewerTurns`` if the conversation has continued after it.

        With ``files="restore"`` files go back to what they were before it; with ``only``, to what they were before the
        newest restore, whichever operation made it.
        """
        request = _request(files, force, paths)
        return await self._rewinding().unrewind(await self._resolve_session(session_id), request)

    async def set_head(
        self,
        session_id: str,
        turn_id: str | None,
        *,
        files: FilesMode = "keep",
        force: bool = False,
        paths: Sequence[str] = (),
    ) -> Rewound:
        """Go to any turn that the conversation has been at; None is its empty start.

        With ``files``, the workspace goes to its state at the end of that turn.
        """
        request = _request(files, force, paths)
        return await self._rewinding().set_head(await self._resolve_session(session_id), turn_id, request)

    async def preview_restore(
        self,
        session_id: str,
        *,
        message_id: str | None = None,
        turn_id: str | None = None,
        to: RestoreTo = None,
    ) -> RestorePreview:
        """Return what restoring files would do now: the files with their lines added and removed, and conflicts.

        To the state when a message was sent, to that at the end of a turn, or ``to`` the ``start``, to the state before
        the newest rewind (``unrewind``) or before the newest restore (``undo``).
        """
        return await self._rewinding().preview(await self._resolve_session(session_id), message_id, turn_id, to)

    async def changes(self, session_id: str, *, turn_id: str | None = None, step: int | None = None) -> ChangesReport:
        """Return the files that the session's own calls have changed: in all, in a turn, or in a step of it.

        Compared are the states before and after its calls. A file that another session or a person changed meanwhile
        is ``shared``.
        """
        found = await self._resolve_session(session_id)
        return await self._workspace_changes().report(found, await self._own_turn(found, turn_id), step)

    async def change_diff(
        self, session_id: str, path: str, *, turn_id: str | None = None, step: int | None = None
    ) -> FileDiff:
        """Return the changes of one file as a unified diff, with the headers of its hunks."""
        found = await self._resolve_session(session_id)
        return await self._workspace_changes().diff(found, path, await self._own_turn(found, turn_id), step)

    async def compare_files(self, session_id: str, other_id: str, *, path: str | None = None) -> FilesCompared:
        """Return the files that differ between the workspaces of a session and a branch of it, as they were last saved.

        With a ``path``, the diff of that file, too.
        """
        one, other = await self._resolve_session(session_id), await self._resolve_session(other_id)
        return await self._workspace_changes().compare(one, other, path)

    async def revert_change(
        self,
        session_id: str,
        path: str,
        *,
        hunk: str | None = None,
        turn_id: str | None = None,
        step: int | None = None,
        force: bool = False,
    ) -> FilesRestored:
        """Take the changes of one file back, or the ``hunk`` with that header; ``unrewind(files="only")`` undoes that.

        Refused with ``Conflict`` if the file was changed since, unless ``force`` is given.
        """
        from clew.session.acquire.prepare import locked_idle_session

        found = await self._resolve_session(session_id)
        turn_id = await self._own_turn(found, turn_id)
        async with locked_idle_session(self._host, self._runtime.sessions, found):
            return await self._workspace_changes().revert(
                found, path, hunk=hunk, turn_id=turn_id, step=step, force=force
            )

    def _workspace_changes(self) -> WorkspaceChanges:
        from clew.session.history.changes import WorkspaceChanges

        return WorkspaceChanges(self._host, self._runtime)

    async def _own_turn(self, session_id: str, turn_id: str | None) -> str | None:
        """Check that a turn is one of the session's."""
        return None if turn_id is None else (await get_turn_of(self._store, session_id, turn_id)).id

    async def reflog(
        self, session_id: str, *, limit: int | None = None, before: int | None = None
    ) -> list[ReflogEntry]:
        """Return every move of the head, newest first; or at most ``limit``, of those before the move ``before``."""
        check_limit(limit)
        return await load_reflog(self._store, await self._resolve_session(session_id), limit, before)

    async def branch(
        self,
        session_id: str,
        from_message_id: str,
        *,
        metadata: Mapping[str, Any] | None = None,
        model: str | Model | dict[str, Any] | None = None,
        start_message_id: str | None = None,
        worktree: str | Path | None = None,
    ) -> Session:
        """Create a session with a copy of the line up to and including that message.

        ``metadata`` is merged into the copied one; ``start_message_id`` copies only from there: a user message that
        begins a turn, or a summary. Rules, queue, permission mode, and the metadata by which events are routed or that
        says who made the session are not copied. A summary in force stays in force if it kept the message.
        ``worktree`` is a new folder for the branch, with the files as they were at that message: a git worktree if the
        workspace is a repository, else a copy.
        """
        from clew.session.history.branch import Branching

        return await Branching(self._host, self._runtime).branch(
            await self._resolve_session(session_id),
            from_message_id,
            metadata=metadata,
            model=model,
            start_message_id=start_message_id,
            worktree=None if worktree is None else await self._resolve_new_folder(worktree),
        )

    async def fork(self, turn_id: str, *, label: str | None = None, text: str | None = None) -> Session:
        """Create a branch at a turn, also at one with children; its label is ``fork-<uuid>`` by default.

        A settled turn can be forked while its session runs. ``text`` is its first prompt, and is run.
        """
        from clew.session.history.branch import Branching

        return await Branching(self._host, self._runtime).fork(
            await self._resolve_turn(turn_id), label=label, text=text
        )

    async def tree(self, session_id: str, *, limit: int | None = None, cursor: str | None = None) -> TreeView:
        """Return every turn of the session with its position, and the branches that start at them.

        With a ``limit``, that many of the newest turns; the ``next_cursor`` of a page leads to those before it. A turn
        that the end of its process cut off is ``failed``, also before it is settled.
        """
        check_limit(limit)
        before = None if cursor is None else ids.check_turn_id(cursor)
        view = await load_tree_view(self._store, await self._resolve_session(session_id), limit, before)
        if view.open_turn_id is None or (await self._present_status(view.session_id)).message != LEFT_OPEN:
            return view
        turns = (replace(turn, status="failed") if turn.id == view.open_turn_id else turn for turn in view.turns)
        return replace(view, turns=tuple(turns))

    # Context size

    async def compact(self, session_id: str, focus: str | None = None) -> Compacted:
        """Summarise what lies before the newest turns, now. ``focus`` says what matters most.

        Nothing is deleted: what was summarised stays readable. Prompts sent meanwhile are queued.
        """
        check_value(focus, "focus")
        if focus is not None and len(focus) > 2_000:
            raise InvalidInput("a focus is a sentence or two: at most 2,000 characters")
        return await self._runtime.runner.compact(await self._resolve_session(session_id), focus)

    async def prune(self, session_id: str) -> Compacted:
        """Replace older tool outputs with stubs for the model. The stored outputs stay complete."""
        return await self._runtime.prune(await self._resolve_session(session_id))

    async def context(self, session_id: str, *, model: str | Model | dict[str, Any] | None = None) -> ContextReport:
        """Return the size of the next request and its limit, for the session's model or another."""
        from clew.session.context.context import load_report

        return await load_report(self._host, await self._resolve_session(session_id), model)

    async def compaction(self, session_id: str, message_id: str) -> CompactionReport:
        """Return what the compaction marked by this message summarised."""
        session = await self._get_session(session_id)
        return await load_compaction(self._store, session.id, ids.check_named_message_id(message_id))

    # Reports

    async def turn(self, turn_id: str) -> TurnReport:
        """Return a turn with its steps: models, usage, timing, digests."""
        from clew.session.history.report import load_turn

        return await load_turn(self._store, await self._resolve_turn(turn_id))

    async def turn_messages(self, turn_id: str) -> list[Message]:
        """Return the messages of one turn, also of one that is no longer on the line."""
        return await load_turn_messages(self._store, await self._resolve_turn(turn_id))

    async def request(self, turn_id: str, step: int | None = None) -> RequestReport:
        """Return the request sent to the model at a step, by default the last one, rebuilt and verified by its digest.

        ``prompt`` has the sections of the system prompt, ``proven`` says whether the digests are equal.
        """
        from clew.session.history.report import load_request

        return await load_request(self._store, await self._resolve_turn(turn_id), step)

    def _rewinding(self) -> Rewinding:
        from clew.session.history.rewind import Rewinding

        return Rewinding(self._host, self._runtime)


def _request(files: str, force: bool, paths: Sequence[str]) -> FilesRequest:
    from clew.session.history.file_values import FilesRequest

    return FilesRequest.of(files, force, paths)
