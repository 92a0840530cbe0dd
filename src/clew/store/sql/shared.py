"""Writes of shared data: prompts, blobs, rules of projects, triggers and replicas."""

from __future__ import annotations

import msgspec

from clew.errors import InternalError
from clew.store import unit as u
from clew.store.sql import rows, triggers
from clew.store.sql.statements import Statements, must

__all__ = ["write_shared"]


def write_shared(sql: Statements, session_id: str, write: u.Write) -> None:
    """Apply a write of shared data or of triggers."""
    match write:
        case u.PutPrompt():
            sql.run("put_prompt", msgspec.structs.asdict(write))
        case u.PutBlob(sha256, _, data):
            sql.run("put_blob", {"size": len(data), **msgspec.structs.asdict(write)})
            sql.run("link_blob", {"session_id": session_id, "sha256": sha256})
        case u.LinkBlob(sha256):
            if sql.first("has_blob", {"sha256": sha256}) is None:
                raise InternalError("a link names a blob that does not exist", sha256=sha256)
            sql.run("link_blob", {"session_id": session_id, "sha256": sha256})
        case u.PutProjectRules(project, rules, at):
            params = {"project": project, "rules_json": rows.encode(list(rules)), "updated_at": at}
            sql.run("put_project_rules", params)
        case u.AddEvent(event):
            must(sql, "add_event", {**triggers.event_params(event), "of_session": session_id})
        case u.PutSchedule(schedule):
            # An existing one reports why it cannot run, also when another program deleted only its session.
            if not sql.run("change_schedule", triggers.schedule_params(schedule)):
                sql.run("put_schedule", triggers.schedule_params(schedule))
        case u.DropSchedule(schedule_id):
            sql.run("drop_schedule", {"schedule_id": schedule_id})
        case u.PutWebhook(webhook):
            if not sql.run("change_webhook", triggers.webhook_params(webhook)):
                sql.run("put_webhook", triggers.webhook_params(webhook))
        case u.DropWebhook(key):
            sql.run("drop_webhook", {"name": key})
        case u.JoinReplica():
            must(sql, "join_replica", msgspec.structs.asdict(write))
        case u.BeatReplica():
            must(sql, "beat_replica", msgspec.structs.asdict(write))
        case u.LeaveReplica(replica_id):
            sql.run("leave_replica", {"replica_id": replica_id})
        case _:
            raise InternalError(f"unknown kind of write: {type(write).__name__}")
