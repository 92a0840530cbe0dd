"""The limits of a project's manifest: it may not grant, weaken a refusal, raise a limit or hide anything.

A project's files come from its authors. Its agents may be stricter than clew, never less strict: anything that would
make them so is removed and reported. What they may do without asking is what clew grants every agent (``granted``), not
what the file asks for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from clew.agents.manifest import DEFAULT_MAX_STEPS, Agent
from clew.transcript.rule import Rule

__all__ = ["restrain"]


def restrain(agent: Agent, granted: Sequence[Rule]) -> tuple[Agent, tuple[str, ...]]:
    """Return the agent limited to what a project may define, and a sentence for each removal.

    ``granted`` comes first among its rules, except where it could override a rule of the project.
    """
    notices: list[str] = []
    own = tuple(_stricter_rules(agent, notices))
    # All grants are to read. They name a tool, which is more specific than a capability.
    own += tuple(
        msgspec.structs.replace(rule, permission=grant.permission)
        for rule in own
        for grant in granted
        if rule.permission == "fs.read"
    )
    rules = (*(grant for grant in granted if not any(_may_be_overridden(rule, grant) for rule in own)), *own)
    changes: dict[str, object] = {}
    if agent.max_steps is not None and agent.max_steps > DEFAULT_MAX_STEPS:
        changes["max_steps"] = DEFAULT_MAX_STEPS
        notices.append(f"max_steps {agent.max_steps} exceeds the limit for projects; {DEFAULT_MAX_STEPS} is used")
    if not agent.inspectable:
        changes["inspectable"] = True
        notices.append("inspectable: false is ignored; a project cannot hide its agents' sessions")
    if defined := [name for name, server in (agent.mcp_servers or {}).items() if server is not None]:
        # A project must not start programs. Servers of the same name in the user's config stay available.
        changes["mcp_servers"] = dict.fromkeys(agent.mcp_servers or {})
        notices.append(
            f"its settings for the MCP servers {', '.join(defined)} are ignored; a project cannot start a program or "
            "connect to a host. Define them in your own config.toml"
        )
    restrained = msgspec.structs.replace(agent, rules=rules, **changes)
    return restrained, tuple(f"{agent.path}: {notice}" for notice in notices)


def _stricter_rules(agent: Agent, notices: list[str]) -> Iterator[Rule]:
    for rule in agent.rules:
        if rule.action == "allow":
            notices.append(
                f"the rule allowing {rule.permission} {rule.pattern} is ignored; a project cannot grant permissions"
            )
        elif rule.action == "ask" and rule.pinned:
            # Pinned rules are evaluated first: this one would turn a refusal by the user into a question.
            notices.append(
                f"the rule asking for {rule.permission} {rule.pattern} is not pinned; "
                "a project cannot override a refusal"
            )
            yield msgspec.structs.replace(rule, pinned=False)
        else:
            yield rule


def _may_be_overridden(rule: Rule, grant: Rule) -> bool:
    """Return whether the grant could be weighed as more specific, and so cancel a stricter rule of the project.

    Grants name a tool and the workspace. A rule for the same tool and a path below the workspace is at least as
    specific and comes later; one for several tools, for every path or for an absolute one might not be.
    """
    if rule.permission == grant.permission:
        return rule.pattern.startswith("/") or not rule.pattern.strip("*")
    return rule.permission.endswith("*") and grant.permission.startswith(rule.permission[:-1])
