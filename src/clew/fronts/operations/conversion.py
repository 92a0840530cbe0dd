"""Conversions between the values of the facade and the responses of the table, where these differ.

A server shows a value as its response, and a client restores the value from it. Each response that differs from the
value of the facade is one row of :data:`CONVERSIONS`; all others are sent as they are.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec

from clew.convert import convert, convert_json
from clew.fronts.operations import results as r
from clew.fronts.operations.operation import Operation
from clew.permissions.explain import Explanation
from clew.session.api import Engine, SessionList
from clew.session.history.rewind import Rewound
from clew.session.prompt.submission import Submission
from clew.transcript.rule import Rule
from clew.transcript.session import Session
from clew.triggers.values.webhook import Webhook

__all__ = ["Submitted", "restore", "show"]

Submitted = Callable[[str, bool], Submission]
"""Makes the submission of the called session from a message id, and whether it is queued."""
Arguments = Mapping[str, Any]
_SHOW_SECRET: Final = ("webhooks.add", "webhooks.rotate")


class Conversion(msgspec.Struct, frozen=True):
    """The conversion of a response. ``show`` makes it from the facade's value, ``read`` is the type that a client reads
    it as, and ``restore`` makes the facade's value from that."""

    show: Callable[[Engine, Operation, Arguments, Any], Awaitable[Any]] | None = None
    read: Any = None
    restore: Callable[[Any, Submitted], Any] | None = None


async def show(engine: Engine, operation: Operation, arguments: Arguments, value: Any) -> Any:
    """Return the facade's result as the response of the operation."""
    conversion = CONVERSIONS.get(operation.answer)
    if conversion is not None and conversion.show is not None:
        return await conversion.show(engine, operation, arguments, value)
    return value if operation.envelope is None else operation.answer(value)


def restore(operation: Operation, data: bytes, submitted: Submitted) -> Any:
    """Return the facade's result from the JSON of a response."""
    conversion = CONVERSIONS.get(operation.answer, _AS_IT_IS)
    if conversion.restore is not None:
        return conversion.restore(convert_json(data, conversion.read or operation.answer), submitted)
    kind = conversion.read or operation.answer
    if operation.envelope is not None:
        data = bytes(convert_json(data, dict[str, msgspec.Raw])[operation.envelope])
        kind = conversion.read or msgspec.structs.fields(operation.answer)[0].type
    return convert_json(data, kind)


async def _show_session(engine: Engine, operation: Operation, arguments: Arguments, session: Session) -> Any:
    return r.show_session(session, await engine.get_status(session.id))


async def _show_page(engine: Engine, operation: Operation, arguments: Arguments, page: SessionList) -> Any:
    checked = None if page.unsettled is None else page.unsettled | (page.failed or frozenset())
    statuses = await engine.statuses((one.id for one in page.sessions), unsettled=checked)
    return r.SessionPage([r.show_session(one, statuses[one.id]) for one in page.sessions], page.next_cursor)


async def _show_queue(engine: Engine, operation: Operation, arguments: Arguments, messages: Any) -> Any:
    status = await engine.get_status(arguments["session_id"])
    return r.QueueShape(messages, status.paused, status.paused_by)


async def _show_rewound(engine: Engine, operation: Operation, arguments: Arguments, rewound: Rewound) -> Any:
    return r.show_rewound(rewound)


def _restore_rewound(shape: r.RewoundShape, submitted: Submitted) -> Rewound:
    submission = None
    if isinstance(shape.message_id, str):
        submission = submitted(shape.message_id, shape.queued is True)
    files = None if shape.files is msgspec.UNSET else shape.files
    return Rewound(shape.head_turn_id, shape.hidden, shape.draft, submission, files)


async def _show_webhook(engine: Engine, operation: Operation, arguments: Arguments, webhook: Webhook) -> Any:
    return r.show_webhook(webhook, secret=operation.name in _SHOW_SECRET)


async def _show_webhooks(engine: Engine, operation: Operation, arguments: Arguments, webhooks: Any) -> Any:
    return r.WebhookList([r.show_webhook(webhook) for webhook in webhooks])


def _restore_webhook(shown: Mapping[str, Any], submitted: Submitted | None = None) -> Webhook:
    return convert({"secret": "", **shown}, Webhook)


async def _show_rules(engine: Engine, operation: Operation, arguments: Arguments, rules: Any) -> Any:
    return convert({"rules": rules}, r.RuleList, from_attributes=True)


async def _show_attributes(engine: Engine, operation: Operation, arguments: Arguments, value: Any) -> Any:
    return convert(value, operation.answer, from_attributes=True)


_AS_IT_IS: Final = Conversion()
CONVERSIONS: Final[Mapping[Any, Conversion]] = {
    r.SessionShape: Conversion(_show_session, read=Session),
    r.SessionPage: Conversion(_show_page, read=SessionList),
    r.SessionList: Conversion(read=list[Session]),
    r.QueueShape: Conversion(_show_queue, restore=lambda shape, _: shape.messages),
    r.SubmissionShape: Conversion(
        _show_attributes, restore=lambda shape, submitted: submitted(shape.message_id, shape.queued)
    ),
    r.RewoundShape: Conversion(_show_rewound, restore=_restore_rewound),
    r.RuleList: Conversion(_show_rules, read=tuple[Rule, ...]),
    r.ExplainedShape: Conversion(_show_attributes, read=Explanation),
    r.WebhookShape: Conversion(_show_webhook, read=dict[str, Any], restore=_restore_webhook),
    r.WebhookList: Conversion(
        _show_webhooks,
        read=dict[str, list[dict[str, Any]]],
        restore=lambda shown, _: tuple(_restore_webhook(one) for one in shown["webhooks"]),
    ),
}
"""By the type of a response."""
