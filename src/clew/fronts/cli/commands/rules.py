"""``clew rules``: list, add, revoke and explain permission rules. ``clew mode``: a session's permission mode."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Literal

import cyclopts

from clew.errors import InvalidInput
from clew.escape import escape_invisible
from clew.fronts.cli.command import Json, Store, open_store, option, show
from clew.permissions.explain import Explanation
from clew.tools.builtin import NAMES
from clew.transcript.rule import CAPABILITIES, KeptRule, Mode

__all__ = ["explained", "mode", "rule_lines", "rules", "unknown_tool"]

Session = Annotated[str | None, option("Rules of this session.", "--session")]
Workspace = Annotated[Path | None, option("Rules of this folder; by default the current one.")]

rules = cyclopts.App(name="rules", help="Permission rules of sessions, projects and agents.")


def _folder(workspace: Path | None) -> str:
    # A relative folder is relative to this process, not to the server.
    return str((workspace or Path.cwd()).expanduser().absolute())


@rules.default
@rules.command(name="ls")
async def list_rules(
    *,
    session: Session = None,
    workspace: Workspace = None,
    agent: Annotated[str | None, option("Rules of this agent.")] = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """List rules with their ids: those in force for a session, or those of a folder or an agent.

    Example: clew rules ls --session ses_…
    """
    async with open_store(store) as engine:
        if session is not None:
            found = await engine.rules(session_id=session, agent=agent)
        elif agent is not None:
            found = await engine.rules(scope="agent", agent=agent, workspace=_folder(workspace))
        else:
            found = await engine.rules(scope="project", workspace=_folder(workspace))
    show(json, {"rules": found}, rule_lines(found) if found else ["no rules; add one with `clew rules add`"])


@rules.command(name="add")
async def add_rule(
    action: Literal["allow", "ask", "deny"],
    permission: str,
    pattern: str,
    /,
    *,
    session: Session = None,
    workspace: Workspace = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """Add a rule to a session or to a folder: for a tool, a capability such as fs.write, or `*`. Prints its id.

    Example: clew rules add allow bash "git status *"
    """
    async with open_store(store, write=True, make=True) as engine:
        if session is not None:
            added = await engine.add_rule("session", permission, pattern, action, session_id=session)
        else:
            added = await engine.add_rule("project", permission, pattern, action, workspace=_folder(workspace))
    show(json, added, [added.id])
    if remark := unknown_tool(permission):
        print(f"clew: {remark}", file=sys.stderr)


@rules.command(name="revoke")
async def revoke_rule(rule: str, /, *, session: Session = None, store: Store = None) -> None:
    """Revoke a rule by its id. A session's own rule needs --session.

    Example: clew rules revoke rule_0a1b…
    """
    async with open_store(store, write=True) as engine:
        await engine.revoke_rule(rule, session_id=session)


@rules.command(name="explain")
async def explain_rule(
    tool: str,
    target: str = "",
    /,
    *,
    session: Session = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """Explain the decision about a call of a tool, or about a capability: the deciding rule, and the others considered.

    Example: clew rules explain bash "git push" --session ses_…
    """
    if session is None:
        raise InvalidInput("give a session: --session ID; `clew ls` lists sessions")
    async with open_store(store) as engine:
        decided = await engine.explain_permission(session, tool, target)
    show(json, decided, explained(decided))
    if remark := unknown_tool(tool):
        print(f"clew: {remark}", file=sys.stderr)


async def mode(
    session: str,
    mode: Literal["ask", "accept_edits", "read_only"] | None = None,
    /,
    *,
    store: Store = None,
    json: Json = False,
) -> None:
    """Show a session's permission mode, or set it: ask, accept_edits or read_only.

    Example: clew mode ses_… accept_edits
    """
    chosen: Mode | None = mode
    async with open_store(store, write=chosen is not None) as engine:
        found = await engine.get_session(session)
        if chosen is not None:
            found = await engine.patch_session(session, mode=chosen)
    show(json, {"mode": found.mode}, [found.mode])


def unknown_tool(name: str) -> str | None:
    """Return a warning for a name that is not a built-in tool; it may be one of yours, so it is no error."""
    if name in NAMES or name in CAPABILITIES or not set("*?[").isdisjoint(name):
        return None
    near = difflib.get_close_matches(name, NAMES, n=1)
    meant = f"did you mean {near[0]}?" if near else f"built-in tools: {', '.join(NAMES)}."
    return escape_invisible(f"{name!r} is not a built-in tool; {meant} It may be one of your own.")


def rule_lines(found: Iterable[KeptRule]) -> Iterator[str]:
    """Yield rules as text, grouped by scope."""
    scope: tuple[str, str] | None = None
    for rule in found:
        if (rule.scope, rule.of) != scope:
            scope = rule.scope, rule.of
            yield escape_invisible(f"{rule.scope} {rule.of}")
        pinned = "  pinned" if rule.pinned else ""
        if rule.unknown:
            pinned += "  unknown permission" + ("; applies to every tool" if rule.action != "allow" else "")
        # Escaped: after a line break in a pattern the rest would look like another rule.
        yield escape_invisible(f"  {rule.id}  {rule.action:<5}  {rule.permission} {rule.pattern}{pinned}")


def explained(decided: Explanation) -> Iterator[str]:
    """Yield an explanation as text."""
    yield escape_invisible(f"{decided.action}: {decided.reason}")
    for subject in decided.subjects if len(decided.subjects) > 1 else ():
        yield escape_invisible(f"  {subject.action}: {subject.permission} {subject.shown}: {subject.reason}")
    for other in decided.considered:
        rule = other.rule
        text = f"{rule.action} {rule.permission} {rule.pattern}"
        yield escape_invisible(f"  not by the {other.scope} rule {text}: {other.why}")
