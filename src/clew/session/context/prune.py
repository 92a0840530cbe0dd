"""Pruning: record the tool outputs that a plan selects; the model then receives stubs in their place."""

from __future__ import annotations

import logging

from clew.errors import SessionBusy
from clew.session.context.compact import Compacted
from clew.session.context.context import load_context
from clew.session.host import Host
from clew.session.prompt.turn_config import resolve
from clew.store.unit import AddPruned, EpochIs, Refused, Unit
from clew.transcript.session import Session

__all__ = ["commit_pruned", "prune_idle"]

log = logging.getLogger("clew.compaction")


async def prune_idle(host: Host, session: Session) -> Compacted:
    """Replace every unprotected tool output with a stub for the model."""
    setting = await resolve(host, session, model=None, agent=None, attended=False)
    context = await load_context(host, setting)
    before = context.size.used
    planned = context.plan_prune(host.clock.now_ms(), by_hand=True)
    if not planned:
        return Compacted(compacted=False, tokens_before=before, tokens_after=before)
    state = await host.store.load_state(session.id)
    if not await commit_pruned(host, session.id, AddPruned(planned), state.epoch):
        raise SessionBusy("the session was acquired by another run", session_id=session.id)
    after = (await load_context(host, setting)).size.used
    return Compacted(compacted=True, strategy="prune", tokens_before=before, tokens_after=after, pruned=len(planned))


async def commit_pruned(host: Host, session_id: str, write: AddPruned, epoch: int) -> bool:
    """Record a prune; return whether it was accepted. One that a newer run made obsolete is no loss."""
    outcome = await host.store.commit(Unit(session_id, (write,), (EpochIs(epoch),), sync="power"))
    if isinstance(outcome, Refused):
        log.info("a prune of session %s was refused: %s", session_id, outcome.reason)
    return not isinstance(outcome, Refused)
