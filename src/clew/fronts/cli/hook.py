"""``clew hook``: doors for other programs. Their secrets are printed once, when they are made."""

from __future__ import annotations

from typing import Annotated

import cyclopts

from clew.fronts.cli.command import Json, Store, end, opened, print_json
from clew.fronts.cli.plain import plain
from clew.fronts.cli.routing import Agent, Key, Label, ModelOf, SessionOf, Workspace, routing_of, where
from clew.fronts.operations.results import show_webhook
from clew.triggers.webhook import Webhook

__all__ = ["app"]

app = cyclopts.App(name="hook", help="Webhooks: other programs start turns by POST /api/hooks/NAME, signed.")


@app.command
def add(
    name: str,
    /,
    *,
    prompt: Annotated[str | None, cyclopts.Parameter(help="What is said before what was sent.")] = None,
    paused: Annotated[bool, cyclopts.Parameter(negative=(), help="Refuse deliveries until resumed.")] = False,
    session: SessionOf = None,
    label: Label = None,
    key: Key = None,
    model: ModelOf = None,
    agent: Agent = None,
    workspace: Workspace = None,
    store: Store = None,
    json: Json = False,
) -> int:
    """Keep a webhook; prints its secret, this once. Without a routing each delivery has a session of its own.

    Example: clew hook add builds --prompt "A build ended. What is to do?" --label builds
    """

    async def run() -> int:
        async with opened(store, write=True, make=True) as engine:
            routing = routing_of(session, label, key, model, agent, workspace)
            made = await engine.webhooks.add(name, prompt=prompt, paused=paused, routing=routing)
        print_json(show_webhook(made, secret=True)) if json else print(made.secret)
        return 0

    return end(run())


@app.command
def ls(*, store: Store = None, json: Json = False) -> int:
    """List the webhooks: name, whether it is open, where it leads.

    Example: clew hook ls
    """

    async def run() -> int:
        async with opened(store) as engine:
            found = await engine.webhooks.list()
        if json:
            print_json({"webhooks": [show_webhook(one) for one in found]})
        for one in () if json else found:
            print(plain(f"{one.name}  {_state(one)}  {where(one.routing)}"))
        return 0

    return end(run())


@app.command
def show(name: str, /, *, store: Store = None, json: Json = False) -> int:
    """Show a webhook, without its secret.

    Example: clew hook show builds
    """

    async def run() -> int:
        async with opened(store) as engine:
            return _print(await engine.webhooks.get(name), json)

    return end(run())


@app.command
def pause(name: str, /, *, store: Store = None, json: Json = False) -> int:
    """Refuse deliveries until it is resumed.

    Example: clew hook pause builds
    """
    return end(_set_paused(name, True, store, json))


@app.command
def resume(name: str, /, *, store: Store = None, json: Json = False) -> int:
    """Take deliveries again.

    Example: clew hook resume builds
    """
    return end(_set_paused(name, False, store, json))


@app.command
def rotate(name: str, /, *, store: Store = None, json: Json = False) -> int:
    """Print a new secret, this once; the old one counts no more.

    Example: clew hook rotate builds
    """

    async def run() -> int:
        async with opened(store, write=True) as engine:
            made = await engine.webhooks.rotate(name)
        print_json(show_webhook(made, secret=True)) if json else print(made.secret)
        return 0

    return end(run())


@app.command
def rm(name: str, /, *, store: Store = None) -> int:
    """Take a webhook out. What came in stays.

    Example: clew hook rm builds
    """

    async def run() -> int:
        async with opened(store, write=True) as engine:
            await engine.webhooks.remove(name)
        print(f"{plain(name)} is removed")
        return 0

    return end(run())


async def _set_paused(name: str, paused: bool, store: str | None, json: bool) -> int:
    async with opened(store, write=True) as engine:
        return _print(await engine.webhooks.change(name, paused=paused), json)


def _state(webhook: Webhook) -> str:
    return "paused" if webhook.paused else "open"


def _print(webhook: Webhook, json: bool) -> int:
    if json:
        print_json(show_webhook(webhook))
        return 0
    lines = {
        "name": webhook.name,
        "state": _state(webhook),
        "where": where(webhook.routing),
        "path": f"/api/hooks/{webhook.name}",
        "prompt": webhook.prompt,
    }
    for key, value in lines.items():
        if value is not None:
            print(plain(f"{key:<8}{value}"))
    return 0
