"""``clew schedule``, ``clew hook`` and ``clew events``: turns that no human started, and what came in and went out."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal

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

__all__ = ["COMMANDS"]

schedules = cyclopts.App(
    name="schedule", help="Prompts that are sent by themselves. They fire while `clew serve` runs."
)
hooks = cyclopts.App(name="hook", help="Webhooks: other programs start turns by POST /api/hooks/NAME, signed.")


@cyclopts.Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Destination:
    """Where the turns of a trigger go: the options that say so."""

    session: Annotated[str | None, option("In this session; it goes with that.", "--session")] = None
    label: Annotated[str | None, option("In the session of this label, made when missing.")] = None
    key: Annotated[str | None, option("In the session of this routing key, made when missing.")] = None
    model: Annotated[str | None, option("provider/model or provider/model:variant.", "--model")] = None
    agent: Annotated[str | None, option("The agent that answers.")] = None
    workspace: Annotated[Path | None, option("The folder of a session that is made.")] = None

    def routing(self) -> Routing:
        return Routing(
            session_id=self.session,
            label=self.label,
            key=self.key,
            model=self.model,
            agent=self.agent,
            # A relative folder is one of this process, not of the server's.
            workspace_root=None if self.workspace is None else str(self.workspace.expanduser().absolute()),
        )


_NOWHERE: Final = Destination()


def _where(routing: Routing) -> str:
    """Which session, for a person."""
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
    timezone: Annotated[str, option("The zone whose clock counts, such as Europe/Vienna.")] = "UTC",
    name: Annotated[str | None, option("What it is called.")] = None,
    missed: Annotated[
        Literal["skip", "once"], option("Runs missed while nobody served: left out, or made up for once.")
    ] = "skip",
    paused: Annotated[bool, flag("Do not fire until resumed.")] = False,
    to: Destination = _NOWHERE,
    store: Store = None,
    json: Json = False,
) -> None:
    """Keep a schedule; prints its id. Without a session, a label or a key each run has a session of its own.

    Example: clew schedule add "0 9 * * MON-FRI" "what is new?" --timezone Europe/Vienna
    """
    async with open_store(store, write=True, make=True) as engine:
        routing = to.routing()
        kept = await engine.schedules.add(
            cron, prompt, timezone=timezone, name=name, missed=missed, paused=paused, routing=routing
        )
    show(json, kept, [kept.id])


@schedules.command(name="watch")
async def watch_resource(
    session: str,
    server: str,
    uri: str,
    prompt: str | None = None,
    /,
    *,
    name: Annotated[str | None, option("What it is called.")] = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """Tell a session whenever a resource of an MCP server changes; prints the id under which that is kept.

    Example: clew schedule watch ses_… tracker issue://7 "Issue 7 has changed: read it."
    """
    async with open_store(store, write=True) as engine:
        kept = await engine.schedules.watch(session, server, uri, prompt=prompt, name=name)
    show(json, kept, [kept.id])


@schedules.command(name="ls")
async def list_schedules(*, store: Store = None, json: Json = False) -> None:
    """List the schedules: id, when it fires next in UTC, expression and zone, name or prompt, what is wrong after !.

    Example: clew schedule ls
    """
    async with open_store(store) as engine:
        found = await engine.schedules.list()
    lines = (
        f"{one.id}  {_next(one):<20}  {_when(one)}"
        f"  {' '.join((one.name or one.prompt).split())[:60]}"
        + (f"  ! {' '.join(one.last_error.split())}" if one.last_error else "")
        for one in found
    )
    show(json, {"schedules": found}, lines)


@schedules.command(name="show")
async def show_schedule(schedule: str, /, *, store: Store = None, json: Json = False) -> None:
    """Show a schedule, line by line.

    Example: clew schedule show sch_…
    """
    async with open_store(store) as engine:
        _show_schedule(await engine.schedules.get(schedule), json)


@schedules.command(name="pause")
async def pause_schedule(schedule: str, /, *, store: Store = None, json: Json = False) -> None:
    """Let a schedule rest. What would be due meanwhile is not made up for.

    Example: clew schedule pause sch_…
    """
    async with open_store(store, write=True) as engine:
        _show_schedule(await engine.schedules.change(schedule, paused=True), json)


@schedules.command(name="resume")
async def resume_schedule(schedule: str, /, *, store: Store = None, json: Json = False) -> None:
    """Let a schedule go on.

    Example: clew schedule resume sch_…
    """
    async with open_store(store, write=True) as engine:
        _show_schedule(await engine.schedules.change(schedule, paused=False), json)


@schedules.command(name="rm")
async def remove_schedule(schedule: str, /, *, store: Store = None) -> None:
    """Take a schedule out. What it has run stays.

    Example: clew schedule rm sch_…
    """
    async with open_store(store, write=True) as engine:
        await engine.schedules.remove(schedule)
    print(f"{plain(schedule)} is removed")


@schedules.command(name="run")
async def run_schedule(schedule: str, /, *, store: Store = None, json: Json = False) -> None:
    """Run a schedule now, paused or not; its next time stays. Prints the id of the session it runs in.

    Example: clew schedule run sch_…
    """
    async with open_store(store, write=True) as engine:
        received = await _run(engine, schedule)
    show(json, received, [received.session_id])


async def _run(engine: AnyEngine, schedule_id: str) -> Received:
    """A server goes on by itself; here the run is waited for, since it would end with this process."""
    if not isinstance(engine, Engine):
        return await engine.schedules.run(schedule_id)
    events = engine.subscribe()
    coming = asyncio.ensure_future(anext(events))
    try:
        # Listening comes first, so that no end is missed.
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


# Webhooks. Their secrets are printed once, when they are made; one that came from outside is not.

SecretFile = Annotated[Path | None, option("The file with the secret that the sender made; - is standard input.")]


def _secret_in(file: Path | None) -> str | None:
    """A secret never stands on the command line, where every process of the machine can read it."""
    if file is None:
        return None
    try:
        return (sys.stdin.read() if str(file) == "-" else file.expanduser().read_text(encoding="utf-8")).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"the secret in {file} cannot be read: {error}") from error


def _show_secret(made: Webhook, file: Path | None, json: bool) -> None:
    show(json, show_webhook(made, secret=file is None), [made.secret if file is None else f"{made.name} is kept"])
    if not json:
        # Beside what a script reads: where the deliveries go.
        print(f"clew: deliveries go to POST /api/hooks/{plain(made.key)} of `clew serve`", file=sys.stderr)


@hooks.command(name="add")
async def add_hook(
    name: str,
    /,
    *,
    scheme: Annotated[Scheme, option("How the sender signs: Standard Webhooks, or a scheme of its own.")] = "standard",
    secret_file: SecretFile = None,
    prompt: Annotated[str | None, option("What is said before what was sent.")] = None,
    paused: Annotated[bool, flag("Refuse deliveries until resumed.")] = False,
    to: Destination = _NOWHERE,
    store: Store = None,
    json: Json = False,
) -> None:
    """Keep a webhook; prints its secret, this once. Without a routing each delivery has a session of its own.

    Stripe and Slack make the secret themselves: put what they show into a file and name it, - for what is typed in.

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
    """List the webhooks: name, whether it is open, how it is signed, where it leads.

    Example: clew hook ls
    """
    async with open_store(store) as engine:
        found = await engine.webhooks.list()
    lines = (f"{one.name}  {_state(one)}  {one.scheme}  {_where(one.routing)}" for one in found)
    show(json, {"webhooks": [show_webhook(one) for one in found]}, lines)


@hooks.command(name="show")
async def show_hook(name: str, /, *, store: Store = None, json: Json = False) -> None:
    """Show a webhook, without its secret.

    Example: clew hook show builds
    """
    async with open_store(store) as engine:
        _show_hook(await engine.webhooks.get(name), json)


@hooks.command(name="pause")
async def pause_hook(name: str, /, *, store: Store = None, json: Json = False) -> None:
    """Refuse deliveries until it is resumed.

    Example: clew hook pause builds
    """
    async with open_store(store, write=True) as engine:
        _show_hook(await engine.webhooks.change(name, paused=True), json)


@hooks.command(name="resume")
async def resume_hook(name: str, /, *, store: Store = None, json: Json = False) -> None:
    """Take deliveries again.

    Example: clew hook resume builds
    """
    async with open_store(store, write=True) as engine:
        _show_hook(await engine.webhooks.change(name, paused=False), json)


@hooks.command(name="rotate")
async def rotate_hook(name: str, /, *, secret_file: SecretFile = None, store: Store = None, json: Json = False) -> None:
    """Print a new secret, this once, or take the sender's own; the old one counts no more.

    Example: clew hook rotate builds
    """
    async with open_store(store, write=True) as engine:
        made = await engine.webhooks.rotate(name, secret=_secret_in(secret_file))
    _show_secret(made, secret_file, json)


@hooks.command(name="rm")
async def remove_hook(name: str, /, *, store: Store = None) -> None:
    """Take a webhook out. What came in stays.

    Example: clew hook rm builds
    """
    async with open_store(store, write=True) as engine:
        await engine.webhooks.remove(name)
    print(f"{plain(name)} is removed")


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
    session: Annotated[str | None, option("Of this session alone.")] = None,
    source: Annotated[str | None, option("Of this source alone.")] = None,
    turn: Annotated[str | None, option("Of this turn alone.")] = None,
    limit: int = 50,
    cursor: Annotated[str | None, option("Go on where a page ended.")] = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """List the events ledger, newest first: time, in or out, source and id, session, status.

    Example: clew events --source github
    """
    async with open_store(store) as engine:
        page = await engine.events.list(limit=limit, cursor=cursor, session_id=session, source=source, turn_id=turn)
    lines = (
        plain(
            f"{moment(one.at)}Z  {one.direction:<3}  {one.source} {one.source_id}  {one.session_id}  "
            f"{one.status or one.type or ''}"
        ).rstrip()
        for one in page.events
    )
    show(json, page, lines)


COMMANDS: Final[tuple[Callable[..., Any], ...]] = (schedules, hooks, events)
