"""Rules, targets and decisions, written briefly."""

from __future__ import annotations

import os.path
from collections.abc import Sequence
from typing import Literal

from clew.permissions.evaluate import Decision, evaluate
from clew.transcript.rule import Rule, Target

Action = Literal["allow", "deny", "ask"]
FILE = Target("write", "path", "/w/a.txt", inside=True)


def rule(pattern: str, action: Action, permission: str = "write", *, pinned: bool = False) -> Rule:
    return Rule(permission, pattern, action, pinned=pinned)


def path(value: str, permission: str = "write") -> Target:
    return Target(permission, "path", value, inside=(value + "/").startswith("/w/"))


def bash(line: str) -> Target:
    return Target("bash", "command", line)


def decide(
    targets: Target | Sequence[Target],
    *,
    manifest: Sequence[Rule] = (),
    session: Sequence[Rule] = (),
    project: Sequence[Rule] = (),
    attended: bool = True,
) -> Decision:
    several = [targets] if isinstance(targets, Target) else targets
    return evaluate(
        several,
        manifest=manifest,
        session=session,
        project=project,
        workspace="/w",
        attended=attended,
        resolve=os.path.normpath,
    )
