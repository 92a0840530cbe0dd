"""A session's context, read: the line the next call would send, with the settings in force for it."""

from __future__ import annotations

import logging
from typing import Any, Final

from clew.compaction.context import Context, ContextReport, RequestFrame, report
from clew.compaction.policy import Policy, policy_for
from clew.config import Config
from clew.errors import InvalidInput
from clew.providers.evidence import encode_tools
from clew.runtime.host import Host
from clew.runtime.setting import Setting, resolve
from clew.store.base import LineSlice, Store, get_session
from clew.transcript.message import Message
from clew.transcript.session import Model, Session
from clew.transcript.turn import Step

__all__ = ["frame_of", "load_context", "load_idle_context", "load_report", "measured_context", "session_policy"]

log = logging.getLogger("clew.context")

_COUNTED: Final = 3
"""Turns with calls that are looked at for what characters take; and so many above the newest compaction's tail."""


def session_policy(config: Config, session: Session) -> Policy:
    """The settings in force for a session: its own, then the user's, then the preset's.

    Settings are checked where a session is given them. One that holds bad ones all the same must not be stuck.
    """
    try:
        return policy_for(config.compaction, config.pruning, session.compaction)
    except InvalidInput as error:
        log.warning("the compaction settings of session %s are not used: %s", session.id, error)
        return policy_for(config.compaction, config.pruning, None)


def frame_of(setting: Setting) -> RequestFrame:
    return RequestFrame(
        model=setting.model,
        window=setting.info.window,
        max_output=setting.info.max_output,
        system_chars=len(setting.system_prompt.text),
        tools_chars=len(encode_tools(setting.schemas)) if setting.schemas else 0,
        files=setting.info.file_rule,
        workspace_root=setting.session.workspace_root,
    )


async def load_context(host: Host, setting: Setting) -> Context:
    """The context of a session as it is stored."""
    line = await host.store.find_view(setting.session.id, keep_damaged=True, kept=True)
    policy = session_policy(host.config, setting.session)
    return await measured_context(host.store, frame_of(setting), policy, line or LineSlice((), True))


async def load_idle_context(host: Host, session: Session, model: str | Model | dict[str, Any] | None = None) -> Context:
    """The context of a session that nobody runs on, as its own agent and model would be sent it, or ``model``."""
    return await load_context(host, await resolve(host, session, model=model, agent=None, attended=False))


async def load_report(host: Host, session_id: str, model: str | Model | dict[str, Any] | None = None) -> ContextReport:
    """What the next call would send. Reads, and changes nothing."""
    return report(await load_idle_context(host, await get_session(host.store, session_id), model))


async def measured_context(
    store: Store, frame: RequestFrame, policy: Policy, line: LineSlice, live: Message | None = None
) -> Context:
    """The context of a line, measured by the newest turn that has steps.

    What characters take is asked of a few turns: most have one call, and some none.
    """
    context = Context(frame, policy, line.turns, line.pruned, live=live)
    found: list[tuple[Step, ...]] = []
    turns, above = [entry.turn for entry in line.turns], None
    for _ in range(len(turns) + _COUNTED):
        # Above the line too: what was summarised was counted.
        turn = turns.pop() if turns else await store.find_turn(above) if above is not None else None
        if turn is None or len(found) == _COUNTED:
            break
        above = turn.parent_turn_id
        steps = await store.load_steps(turn.id) if turn.kind == "normal" else ()
        if steps:
            found.append(steps)
    if found:
        context.measure(found[0], [step for steps in reversed(found[1:]) for step in steps])
    return context
