"""What a manifest of a project may not do: grant, weaken a refusal, raise a limit, hide.

A project's files come with the project, from whoever wrote it. Its agents may be stricter than clew, never freer:
what would make them so is taken away, and said. What they may do by themselves is what clew grants every agent
(``granted``), not what the file asks for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from clew.agents.manifest import DEFAULT_MAX_STEPS, Agent
from clew.transcript.rule import Rule

__all__ = ["restrain"]


def restrain(agent: Agent, granted: Sequence[Rule]) -> tuple[Agent, tuple[str, ...]]:
    """The agent as a project may have it, and a sentence for each thing that was taken away.

    ``granted`` comes first among its rules, but for what a rule of the project might lose against.
    """
    notices: list[str] = []
    own = tuple(_narrowing(agent, notices))
    rules = (*(grant for grant in granted if not any(_may_lose(rule, grant) for rule in own)), *own)
    changes: dict[str, object] = {}
    if agent.max_steps is not None and agent.max_steps > DEFAULT_MAX_STEPS:
        changes["max_steps"] = DEFAULT_MAX_STEPS
        notices.append(f"max_steps {agent.max_steps} is more than a project may set; {DEFAULT_MAX_STEPS} is used")
    if not agent.inspectable:
        changes["inspectable"] = True
        notices.append("inspectable: false is ignored; a project cannot hide what its agents do")
    if begun := [name for name, server in (agent.mcp_servers or {}).items() if server is not None]:
        # A folder alone starts no program. What the user has under that name is theirs.
        changes["mcp_servers"] = dict.fromkeys(agent.mcp_servers or {})
        notices.append(
            f"what it says of the MCP servers {', '.join(begun)} is ignored; a project cannot start a program or reach "
            "out: put them into your own config.toml"
        )
    restrained = msgspec.structs.replace(agent, rules=rules, **changes)
    return restrained, tuple(f"{agent.path}: {notice}" for notice in notices)


def _narrowing(agent: Agent, notices: list[str]) -> Iterator[Rule]:
    for rule in agent.rules:
        if rule.action == "allow":
            notices.append(
                f"the rule that allows {rule.permission} {rule.pattern} is ignored; a project cannot grant anything"
            )
        elif rule.action == "ask" and rule.pinned:
            # Pinned rules are weighed before all others: this one would turn a refusal of the user's into a question.
            notices.append(
                f"the rule that asks for {rule.permission} {rule.pattern} is not pinned; "
                "a project cannot outrank a refusal"
            )
            yield msgspec.structs.replace(rule, pinned=False)
        else:
            yield rule


def _may_lose(rule: Rule, grant: Rule) -> bool:
    """Whether the grant could be weighed as the more specific one, and so undo what the project wants stricter.

    Grants name a tool and the workspace. A rule that names the same tool and a place below the workspace is at least
    as specific and comes later; one for several tools, for every place or for an absolute one need not be.
    """
    if rule.permission == grant.permission:
        return rule.pattern.startswith("/") or not rule.pattern.strip("*")
    return rule.permission.endswith("*") and grant.permission.startswith(rule.permission[:-1])
