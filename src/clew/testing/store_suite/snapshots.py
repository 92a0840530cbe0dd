"""Rows of workspace snapshots: replaced until they are finished, and gone with their session."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from clew.errors import InternalError
from clew.session.history.check import check
from clew.store import unit as u
from clew.store.base import Store
from clew.testing.scribe import Scribe
from clew.transcript.workspace_snapshot import Restore, WorkspaceSnapshot


def a_snapshot(scribe: Scribe, created_at: int = 1_000, **fields: Any) -> WorkspaceSnapshot:
    fields = {"workspace": "/w", "point": "message", "state": "taking", **fields}
    return WorkspaceSnapshot(id=scribe.mint.snapshot(), session_id=scribe.session_id, created_at=created_at, **fields)


@pytest.mark.rule("WR-1")
async def test_a_snapshot_is_open_until_it_is_finished(store: Store, scribe: Scribe) -> None:
    """A finished one has its tree, what it does not cover, and stays readable with everything."""
    ids: dict[str, Any] = {"message_id": scribe.mint.message(), "turn_id": scribe.mint.turn(), "step": 3}
    taking = a_snapshot(scribe, **ids, replica="rep_1")
    await scribe.commit(u.PutSnapshot(taking))
    assert await store.load_snapshots(scribe.session_id) == await store.open_snapshots() == (taking,)
    ready = replace(taking, state="ready", tree="t1", skipped={"big.bin": "too large"})
    await scribe.commit(u.PutSnapshot(ready))
    assert await store.load_snapshots(scribe.session_id) == (ready,)
    failed = a_snapshot(scribe, 2_000, state="failed", problem="no space", point="end")
    restore = Restore(tree="t1", expected="t2", saved=ready.id, paths=("a", "b"), left=("c",), move=True)
    late = a_snapshot(scribe, 1_500, state="late")
    restoring = a_snapshot(scribe, 1_600, point="restored", restore=restore)
    for one in (failed, late, restoring):
        await scribe.commit(u.PutSnapshot(one))
    assert await store.load_snapshots(scribe.session_id) == (ready, late, restoring, failed)
    assert await store.open_snapshots() == (late, restoring)
    assert await store.load_snapshot_trees() == {"/w": {"t1"}}
    assert await check(store) == []


@pytest.mark.rule("WR-6")
async def test_snapshots_go_with_their_session(store: Store, scribe: Scribe, other: Scribe) -> None:
    """Those of another session in the same workspace stay; neither can be replaced by the other's."""
    mine = a_snapshot(scribe, state="ready", tree="t1")
    others = a_snapshot(other, 2_000, state="ready", tree="t2")
    elsewhere = a_snapshot(other, 3_000, state="ready", tree="t3", workspace="/v")
    await scribe.commit(u.PutSnapshot(mine))
    await other.commit(u.PutSnapshot(others), u.PutSnapshot(elsewhere))
    assert await store.load_workspace_snapshots("/w", 0) == (mine, others)
    assert await store.load_workspace_snapshots("/w", 1_001) == (others,)
    for theirs in (others, replace(others, session_id=scribe.session_id)):
        with pytest.raises(InternalError):
            await scribe.commit(u.PutSnapshot(theirs))
    assert await store.load_snapshots(scribe.session_id) == (mine,)
    await scribe.commit(u.DeleteSession())
    assert await store.load_snapshots(scribe.session_id) == ()
    assert await store.load_workspace_snapshots("/w", 0) == (others,)
    assert await store.load_snapshot_trees() == {"/w": {"t2"}, "/v": {"t3"}}
