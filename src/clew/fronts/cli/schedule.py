"""``clew schedule``: prompts that are sent by themselves, at times a cron expression names."""

from __future__ import annotations

import asyncio
from typing import Annotated, Literal

import cyclopts

from clew.dispatch.router import Received
from clew.engine import Engine
from clew.fronts.cli.command import AnyEngine, Json, Store, end, opened, print_json
from clew.fronts.cli.plain import plain
from clew.fronts.cli.routing import Agent, Key, Label, ModelOf, SessionOf, Workspace, moment, routing_of, where
from clew.triggers.schedule import Schedule

__all__ = ["app"]

app = cyclopts.App(name="schedule", help="Prompts that are sent by themselves. They fire while `clew serve` runs.")


@app.command
def add(
    cron: str,
    prompt: str,
    /,
    *,
    timezone: Annotated[str, cyclopts.Parameter(help="The zone whose clock counts, such as Europe/Vienna.")] = "UTC",
    name: Annotated[str | None, cyclopts.Parameter(help="What it is called.")] = None,
    missed: Annotated[
        Literal["skip", "once"],
        cyclopts.Parameter(help="Runs missed while nobody served: left out, or made up for once."),
    ] = "skip",
    paused: Annotated[bool, cyclopts.Parameter(negative=(), help="Do not fire until resumed.")] = False,
    session: SessionOf = None,
    label: Label = None,
    key: Key = None,
    model: ModelOf = None,
    agent: Agent = None,
    workspace: Workspace = None,
    store: Store = None,
    json: Json = False,
) -> int:
    """Keep a schedule; prints its id. Without a session, a label or a key each run has a session of its own.

    Example: clew schedule add "0 9 * * MON-FRI" "what is new?" --timezone Europe/Vienna
    """

    async def run() -> int:
        async with opened(store, write=True, make=True) as engine:
            routing = routing_of(session, label, key, model, agent, workspace)
            kept = await engine.schedules.add(
                cron, prompt, timezone=timezone, name=name, missed=missed, paused=paused, routing=routing
            )
        print_json(kept) if json else print(kept.id)
        return 0

    return end(run())


@app.command
def ls(*, store: Store = None, json: Json = False) -> int:
    """List the schedules: id, when it fires next in UTC, expression and zone, name or prompt.

    Example: clew schedule ls
    """

    async def run() -> int:
        async with opened(store) as engine:
            found = await engine.schedules.list()
        if json:
            print_json({"schedules": found})
        for one in () if json else found:
            words = " ".join((one.name or one.prompt).split())[:60]
            print(plain(f"{one.id}  {_next(one):<20}  {one.cron} {one.timezone}  {words}"))
        return 0

    return end(run())


@app.command
def show(schedule: str, /, *, store: Store = None, json: Json = False) -> int:
    """Show a schedule, line by line.

    Example: clew schedule show sch_…
    """

    async def run() -> int:
        async with opened(store) as engine:
            return _print(await engine.schedules.get(schedule), json)

    return end(run())


@app.command
def pause(schedule: str, /, *, store: Store = None, json: Json = False) -> int:
    """Let a schedule rest. What would be due meanwhile is not made up for.

    Example: clew schedule pause sch_…
    """
    return end(_set_paused(schedule, True, store, json))


@app.command
def resume(schedule: str, /, *, store: Store = None, json: Json = False) -> int:
    """Let a schedule go on.

    Example: clew schedule resume sch_…
    """
    return end(_set_paused(schedule, False, store, json))


@app.command
def rm(schedule: str, /, *, store: Store = None) -> int:
    """Take a schedule out. What it has run stays.

    Example: clew schedule rm sch_…
    """

    async def run() -> int:
        async with opened(store, write=True) as engine:
            await engine.schedules.remove(schedule)
        print(f"{plain(schedule)} is removed")
        return 0

    return end(run())


@app.command
def run(schedule: str, /, *, store: Store = None, json: Json = False) -> int:
    """Run a schedule now, paused or not; its next time stays. Prints the id of the session it runs in.

    Example: clew schedule run sch_…
    """

    async def go() -> int:
        async with opened(store, write=True) as engine:
            received = await _run(engine, schedule)
        print_json(received) if json else print(received.session_id)
        return 0

    return end(go())


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


async def _set_paused(schedule_id: str, paused: bool, store: str | None, json: bool) -> int:
    async with opened(store, write=True) as engine:
        return _print(await engine.schedules.change(schedule_id, paused=paused), json)


def _next(schedule: Schedule) -> str:
    return "paused" if schedule.paused else moment(schedule.next_fire_at, "never")


def _print(schedule: Schedule, json: bool) -> int:
    if json:
        print_json(schedule)
        return 0
    lines = {
        "id": schedule.id,
        "name": schedule.name,
        "cron": f"{schedule.cron} {schedule.timezone}",
        "next": _next(schedule),
        "last": moment(schedule.last_fired_at, "never"),
        "missed": schedule.missed,
        "skipped": schedule.skipped or None,
        "error": schedule.last_error,
        "where": where(schedule.routing),
        "prompt": schedule.prompt,
    }
    for name, value in lines.items():
        if value is not None:
            print(plain(f"{name:<8}{value}"))
    return 0
