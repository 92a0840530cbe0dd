"""``clew schedule``, ``clew hook`` and ``clew events``: turns started by triggers, and the event ledger."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

import cyclopts

from clew.errors import InvalidInput
from clew.fronts.cli.command import AnyEngine, Json, Store, flag, moment, open_store, option, show
from clew.fronts.cli.safe_text import plain
from clew.fronts.operations.results import show_webhook
from clew.session.api import Engine
from clew.triggers.router import Received
from clew.triggers.values.routing import Routing
from clew.triggers.values.schedule import Schedule
from clew.triggers.values.signature import Scheme
from clew.triggers.values.webhook import Webhook

__all__ = ["events", "hooks", "schedules"]

schedules = cyclopts.App(name="schedule", help="Scheduled prompts. They run while `clew serve` runs.")
hooks = cyclopts.App(name="hook", help="Webhooks: other programs start turns with a signed POST /api/hooks/NAME.")


@cyclopts.Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Destination:
    """The options for the session of a trigger's turns."""

    session: Annotated[str | None, option("Run in this session; deleted with it.", "--session")] = None
    label: Annotated[str | None, option("Run in the session with this label, created if missing.")] = None
    key: Annotated[str | None, option("Run in the session with this routing key, created if missing.")] = None
    model: Annotated[str | None, option("provider/model, optionally with :variant.", "--model")] = None
    agent: Annotated[str | None, option("The agent that answers.")] = None
    workspace: Annotated[Path | None, option("The folder of a created session.")] = None

    def routing(self) -> Routing:
        return Routing(
            session_id=self.session,
            label=self.label,
            key=self.key,
            model=self.model,
            agent=self.agent,
            # A relative folder is relative to this process, not to the server.
            workspace_root=None if self.workspace is None else str(self.workspace.expanduser().absolute()),
        )


_NOWHERE: Final = Destination()


def _where(routing: Routing) -> str:
    """Return the destination as text."""
    return " ".join(f"{name} {value}" for name, value in routing.chosen().items()) or "a new session each time"


def _rows(values: Mapping[str, object]) -> Iterator[str]:
    return (f"{name:<8}{value}" for name, value in values.items() if value is not None)


# Schedules


@schedules.command(name="add")
async def add_schedule(
    cron: str,
    prompt: str,
    /,
    *,
    timezone: Annotated[str, option("The time zone, such as Europe/Vienna.")] = "UTC",
    name: Annotated[str | None, option("The name of the schedule.")] = None,
    missed: Annotated[
        Literal["skip", "once"], option("Runs missed while no server ran: skip them, or run once.")
    ] = "skip",
    paused: Annotated[bool, flag("Create it paused.")] = False,
    to: Destination = _NOWHERE,
    store: Store = None,
    json: Json = False,
) -> None:
    """Create a schedule. Prints its id. Without --session, --label or --key each run gets its own session.

    Example: clew schedule add "0 9 * * MON-FRI" "what is new?" --timezone Europe/Vienna
    """
    async with open_store(store, write=True, make=True) as engine:
        routing = to.routing()
        added = await engine.schedules.add(
            cron, prompt, timezone=timezone, name=name, missed=missed, paused=paused, routing=routing
        )
    show(json, added, [added.id])


@schedules.command(name="watch")
async def watch_resource(
    session: str,
    server: str,
    uri: str,
    prompt: str | None = None,
    /,
    *,
    name: Annotated[str | None, option("The name of the watch.")] = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """Notify a session whenever a resource of an MCP server changes. Prints the id of the watch.

    Example: clew schedule watch ses_… tracker issue://7 "Issue 7 has changed: read it."
    """
    async with open_store(store, write=True) as engine:
        added = await engine.schedules.watch(session, server, uri, prompt=prompt, name=name)
    show(json, added, [added.id])


@schedules.command(name="ls")
async def list_schedules(*, store: Store = None, json: Json = False) -> None:
    """List schedules: id, next run in UTC, expression and zone, name or prompt, and errors after !.

    Example: clew schedule ls
    """
    async with open_store(store) as engine:
        found = await engine.schedules.list()
    lines = (
        f"{schedule.id}  {_next(schedule):<20}  {_when(schedule)}"
        f"  {' '.join((schedule.name or schedule.prompt).split())[:60]}"
        + (f"  ! {' '.join(schedule.last_error.split())}" if schedule.last_error else "")
        for schedule in found
    )
    show(json, {"schedules": found}, lines)


@schedules.command(name="show")
async def show_schedule(schedule: str, /, *, store: Store = None, json: Json = False) -> None:
    """Show a schedule.

    Example: clew schedule show sch_…
    """
    async with open_store(store) as engine:
        _show_schedule(await engine.schedules.get(schedule), json)


@schedules.command(name="pause")
async def pause_schedule(schedule: str, /, *, store: Store = None, json: Json = False) -> None:
    """Pause a schedule. Runs that fall into the pause are skipped.

    Example: clew schedule pause sch_…
    """
    async with open_store(store, write=True) as engine:
        _show_schedule(await engine.schedules.change(schedule, paused=True), json)


@schedules.command(name="resume")
async def resume_schedule(schedule: str, /, *, store: Store = None, json: Json = False) -> None:
    """Resume a schedule.

    Example: clew schedule resume sch_…
    """
    async with open_store(store, write=True) as engine:
        _show_schedule(await engine.schedules.change(schedule, paused=False), json)


@schedules.command(name="rm")
async def remove_schedule(schedule: str, /, *, store: Store = None) -> None:
    """Delete a schedule. Its past runs stay.

    Example: clew schedule rm sch_…
    """
    async with open_store(store, write=True) as engine:
        await engine.schedules.remove(schedule)
    print(f"deleted {plain(schedule)}")


@schedules.command(name="run")
async def run_schedule(schedule: str, /, *, store: Store = None, json: Json = False) -> None:
    """Run a schedule now, even if it is paused; its next run is unchanged. Prints the session's id.

    Example: clew schedule run sch_…
    """
    async with open_store(store, write=True) as engine:
        received = await _run(engine, schedule)
    show(json, received, [received.session_id])


async def _run(engine: AnyEngine, schedule_id: str) -> Received:
    """Run a schedule. In this process, wait for the turn, which would end with it."""
    if not isinstance(engine, Engine):
        return await engine.schedules.run(schedule_id)
    events = engine.subscribe()
    coming = asyncio.ensure_future(anext(events))
    try:
        # Subscribe first, so that the end is not missed.
        await asyncio.sleep(0)
        received = await engine.schedules.run(schedule_id)
        while received.event_id in [event.id for event in await engine.store.open_events(received.session_id)]:
            await coming
            coming = asyncio.ensure_future(anext(events))
    finally:
        coming.cancel()
        await asyncio.gather(coming, return_exceptions=True)
    return received


def _when(schedule: Schedule) -> str:
    if schedule.watches is not None:
        return f"when {schedule.watches.uri} of {schedule.watches.server} changes"
    return f"{schedule.cron or 'once'} {schedule.timezone}"


def _next(schedule: Schedule) -> str:
    return (
        "paused" if schedule.paused else "on change" if schedule.watches is not None else _moment(schedule.next_fire_at)
    )


def _moment(at: int | None) -> str:
    return "never" if at is None else f"{moment(at)}Z"


def _show_schedule(schedule: Schedule, json: bool) -> None:
    rows = {
        "id": schedule.id,
        "name": schedule.name,
        "cron": _when(schedule),
        "by": "the agent of its session" if schedule.by == "agent" else None,
        "next": _next(schedule),
        "last": _moment(schedule.last_fired_at),
        "missed": schedule.missed,
        "skipped": schedule.skipped or None,
        "error": schedule.last_error,
        "where": _where(schedule.routing),
        "prompt": schedule.prompt,
    }
    show(json, schedule, _rows(rows))


# Webhooks. A created secret is printed once; a secret of the sender is not printed.

SecretFile = Annotated[Path | None, option("A file with the sender's secret; - reads stdin.")]


def _secret_in(file: Path | None) -> str | None:
    """Read a secret from a file: other processes can see command lines."""
    if file is None:
        return None
    try:
        return (sys.stdin.read() if str(file) == "-" else file.expanduser().read_text(encoding="utf-8")).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"the secret in {file} cannot be read: {error}") from error


def _show_secret(made: Webhook, file: Path | None, json: bool) -> None:
    show(json, show_webhook(made, secret=file is None), [made.secret if file is None else f"saved {made.name}"])
    if not json:
        # On stderr, apart from the output for scripts.
        print(f"clew: deliveries go to POST /api/hooks/{plain(made.key)} of `clew serve`", file=sys.stderr)


@hooks.command(name="add")
async def add_hook(
    name: str,
    /,
    *,
    scheme: Annotated[Scheme, option("The sender's signature scheme; standard is Standard Webhooks.")] = "standard",
    secret_file: SecretFile = None,
    prompt: Annotated[str | None, option("Text to put before the delivered content.")] = None,
    paused: Annotated[bool, flag("Create it paused: deliveries are refused.")] = False,
    to: Destination = _NOWHERE,
    store: Store = None,
    json: Json = False,
) -> None:
    """Create a webhook. Prints its secret, which cannot be shown again. By default each delivery gets its own session.

    Stripe and Slack create the secret themselves: save it to a file and pass --secret-file, or - for stdin.

    Example: clew hook add builds --prompt "A build ended. What is to do?" --label builds
    """
    async with open_store(store, write=True, make=True) as engine:
        routing = to.routing()
        made = await engine.webhooks.add(
            name, scheme=scheme, secret=_secret_in(secret_file), prompt=prompt, paused=paused, routing=routing
        )
    _show_secret(made, secret_file, json)


@hooks.command(name="ls")
async def list_hooks(*, store: Store = None, json: Json = False) -> None:
    """List webhooks: name, state, signature scheme, destination.

    Example: clew hook ls
    """
    async with open_store(store) as engine:
        found = await engine.webhooks.list()
    lines = (f"{webhook.name}  {_state(webhook)}  {webhook.scheme}  {_where(webhook.routing)}" for webhook in found)
    show(json, {"webhooks": [show_webhook(webhook) for webhook in found]}, lines)


@hooks.command(name="show")
async def show_hook(name: str, /, *, store: Store = None, json: Json = False) -> None:
    """Show a webhook, without its secret.

    Example: clew hook show builds
    """
    async with open_store(store) as engine:
        _show_hook(await engine.webhooks.get(name), json)


@hooks.command(name="pause")
async def pause_hook(name: str, /, *, store: Store = None, json: Json = False) -> None:
    """Pause a webhook: deliveries are refused.

    Example: clew hook pause builds
    """
    async with open_store(store, write=True) as engine:
        _show_hook(await engine.webhooks.change(name, paused=True), json)


@hooks.command(name="resume")
async def resume_hook(name: str, /, *, store: Store = None, json: Json = False) -> None:
    """Resume a webhook.

    Example: clew hook resume builds
    """
    async with open_store(store, write=True) as engine:
        _show_hook(await engine.webhooks.change(name, paused=False), json)


@hooks.command(name="rotate")
async def rotate_hook(name: str, /, *, secret_file: SecretFile = None, store: Store = None, json: Json = False) -> None:
    """Replace a webhook's secret. Prints the new one once, unless it is the sender's. The old one becomes invalid.

    Example: clew hook rotate builds
    """
    async with open_store(store, write=True) as engine:
        made = await engine.webhooks.rotate(name, secret=_secret_in(secret_file))
    _show_secret(made, secret_file, json)


@hooks.command(name="rm")
async def remove_hook(name: str, /, *, store: Store = None) -> None:
    """Delete a webhook. Past deliveries stay.

    Example: clew hook rm builds
    """
    async with open_store(store, write=True) as engine:
        await engine.webhooks.remove(name)
    print(f"deleted {plain(name)}")


def _state(webhook: Webhook) -> str:
    return "paused" if webhook.paused else "open"


def _show_hook(webhook: Webhook, json: bool) -> None:
    rows = {
        "name": webhook.name,
        "state": _state(webhook),
        "scheme": webhook.scheme,
        "where": _where(webhook.routing),
        "path": f"/api/hooks/{webhook.key}",
        "prompt": webhook.prompt,
    }
    show(json, show_webhook(webhook), _rows(rows))


# Events


async def events(
    *,
    session: Annotated[str | None, option("Only of this session.")] = None,
    source: Annotated[str | None, option("Only of this source.")] = None,
    turn: Annotated[str | None, option("Only of this turn.")] = None,
    limit: int = 50,
    cursor: Annotated[str | None, option("The cursor of the next page.")] = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """List the event ledger, newest first: time, direction, source and id, session, status.

    Example: clew events --source github
    """
    async with open_store(store) as engine:
        page = await engine.events.list(limit=limit, cursor=cursor, session_id=session, source=source, turn_id=turn)
    lines = (
        plain(
            f"{moment(event.at)}Z  {event.direction:<3}  {event.source} {event.source_id}  {event.session_id}  "
            f"{event.status or event.type or ''}"
        ).rstrip()
        for event in page.events
    )
    show(json, page, lines)
