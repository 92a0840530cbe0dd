"""The pages of docs/reference that are lists: config, commands, errors, events, hooks, tools, models, the server."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec

import clew
from clew import errors
from tools.source_docs import (
    code,
    commented,
    field_table,
    fields,
    first_sentence,
    head,
    literal,
    markdown,
    signature,
    table,
)


def config_page() -> str:
    """Return the settings, group by group under their full names."""
    from clew.mcp_server import McpServer
    from clew.providers.catalog import ModelFacts
    from clew.providers.registry import ProviderConfig

    parts = [
        head(
            "Settings", "Every key of `config.toml`, which is also every field of `clew.Config`.", "the config structs"
        ),
        "The file is `$XDG_CONFIG_HOME/clew/config.toml` (`~/.config/clew`). Unknown keys are ignored; a wrong "
        "value is "
        "`invalid_input`, and the message names the valid ones. [Settings and variables](../how-to/settings.md) "
        "shows the "
        "file and lists the environment variables.\n",
        markdown(clew.Config.__doc__) + "\n",
        table(("key", "default", "type", "means"), list(_settings(clew.Config(), ""))) + "\n",
    ]
    for title, kind in (
        ("[providers.NAME]", ProviderConfig),
        ("[providers.NAME.models.MODEL]", ModelFacts),
        ("[mcp_servers.NAME]", McpServer),
    ):
        parts += [f"## `{title}`\n", markdown(kind.__doc__) + "\n", field_table(fields(kind)) + "\n"]
    return "\n".join(parts)


def _settings(group: msgspec.Struct, under: str) -> Iterator[tuple[str, ...]]:
    for field in fields(type(group)):
        value = getattr(group, field.name)
        if isinstance(value, msgspec.Struct):
            doc = field.doc or markdown(type(value).__doc__)
            yield f"`{under}{field.name}`", f"`{type(value).__name__}()`", "", doc
            yield from _settings(value, f"{under}{field.name}.")
        else:
            yield f"`{under}{field.name}`", code(msgspec.json.encode(value).decode()), code(field.type), field.doc


def commands_page() -> str:
    """Return the commands with their arguments, the exit codes, and the slash commands of a chat."""
    from clew.fronts.cli import app as front
    from clew.fronts.cli.app import app
    from clew.fronts.cli.chat.slash_commands import COMMANDS as SLASH
    from clew.fronts.cli.command import EXIT_CODES

    parts = [
        head("Commands", "The command line, `clew`.", "the commands' own help"),
        markdown((front.__doc__ or "").partition("\n\n")[2]) + "\n",
        "Every command takes `--help`, and every command that uses a store takes `--store URL`: by default "
        "`CLEW_STORE`, "
        "then your data folder. `--json` prints what HTTP would answer. [The command line](../how-to/command-line.md) "
        "says which commands need the store for themselves, and how `clew chat` works.\n",
    ]
    for name in sorted(one for one in app if not one.startswith("-")):
        command = app[name]
        inner = [one for one in command if not one.startswith("-")]
        if not inner:
            parts.append(_command(name, command))
        parts += [_command(f"{name} {sub}", command[sub]) for sub in inner]
    rows = [("0", "done")]
    rows += [(str(number), f"`{kind.__name__}`: see [Errors](errors.md)") for kind, number in EXIT_CODES]
    rows += [("1", "the run failed, or anything else"), ("130", "also: interrupted from the keyboard")]
    parts += ["## Exit codes\n", table(("code", "means"), rows) + "\n"]
    parts += ["## Slash commands of a chat\n"]
    slash = [(f"`/{f'{name} {one.usage}'.strip()}`", one.help) for name, one in SLASH.items()]
    parts.append(table(("command", "does"), slash) + "\n")
    return "\n".join(parts)


def _command(name: str, command: Any) -> str:
    positional, rows, usage = [], [], []
    for argument in command.assemble_argument_collection():
        names = [one for one in argument.names if not one.startswith("--no-")]
        default = argument.field_info.default
        needed = default is inspect.Parameter.empty
        if not argument.show:
            continue
        if not names[0].startswith("--"):
            positional.append(names[0] if needed else f"[{names[0]}]")
        elif names[0] not in ("--store", "--json"):
            value = "" if argument.hint is bool else " …"
            usage.append(f"{names[0]}{value}" if needed else f"[{names[0]}{value}]")
        else:
            usage.append(f"[{names[0]}{' URL' if names[0] == '--store' else ''}]")
            continue
        shown = "" if needed or default in (None, False, ()) else literal(default)
        choices = _choices(argument.hint)
        rows.append((code(names[0]), choices, code(shown), argument.parameter.help or ""))
    doc = inspect.cleandoc(command.help or "")
    words, *examples = re.split(r"^Example: ", doc, flags=re.MULTILINE)
    lines = [
        f"## `clew {name}`\n",
        f"```text\n{' '.join(['clew', name, *positional, *usage])}\n```\n",
        markdown(words) + "\n",
    ]
    if rows:
        lines.append(table(("argument", "values", "default", "means"), rows) + "\n")
    lines += [f"Example: `{example.strip()}`\n" for example in examples]
    return "\n".join(lines)


def _choices(hint: Any) -> str:
    found = re.findall(r"Literal\[([^\]]*)\]", str(hint))
    return ", ".join(code(one.strip("' ")) for part in found for one in part.split(",")) if found else ""


def errors_page() -> str:
    """Return the errors with their codes, statuses and exit codes."""
    from clew.fronts.cli.command import exit_code
    from clew.fronts.http import problem
    from clew.fronts.http.problem import status_of

    rows = []
    for name in errors.__all__:
        kind = getattr(errors, name)
        error = kind("for the table")
        doc = markdown(kind.__doc__) if kind.__doc__ and kind.__doc__ != kind.__mro__[1].__doc__ else ""
        assert doc, f"{name} has no docstring"
        base = "" if kind.__mro__[1] is Exception else code(kind.__mro__[1].__name__)
        rows.append((code(kind.code), code(name), base, str(status_of(error)), str(exit_code(error)), doc))
    rows.sort()
    only = []
    for kind in vars(problem).values():
        if isinstance(kind, type) and issubclass(kind, errors.ClewError) and kind.__module__ == problem.__name__:
            assert vars(kind).get("__doc__"), f"{kind.__name__} has no docstring"
            only.append((code(kind.code), str(status_of(kind("for the table"))), markdown(kind.__doc__)))
    only.append(
        (code(clew.HookRefused.code), str(status_of(clew.HookRefused("x"))), markdown(clew.HookRefused.__doc__))
    )
    tree = re.search(r"::\n\n(.*?)\n\n``code``", errors.__doc__ or "", re.DOTALL)
    assert tree
    return "\n".join(
        [
            head("Errors", "Every error of clew, its code, and how HTTP and the command line say it.", "`clew.errors`"),
            "`code` does not change; the sentence may. HTTP is the status of the response, exit the code of a "
            "command.\n",
            f"```text\n{inspect.cleandoc(tree[1])}\n```\n",
            table(("code", "class", "below", "HTTP", "exit", "means"), rows) + "\n",
            "## Over HTTP alone\n",
            table(("code", "HTTP", "means"), sorted(only)) + "\n",
            "The error of a turn, in its data and in `turn_finished`, may also have the code `interrupted`: the "
            "process "
            "ended before the turn did.\n",
        ]
    )


def events_page() -> str:
    """Return the events of a host and the hooks' relatives: see the stream of `GET /api/events`."""
    from clew.live import base

    rows = [(code(name), doc) for name, doc in commented(base, "EventType").items()]
    return "\n".join(
        [
            head("Events", "What `engine.subscribe()` and `GET /api/events` report.", "`clew.live.base`"),
            "All have `session_id`. There is no replay: a client that connects reads the state first. Over HTTP "
            "the first "
            "frame is `hello`, and an event of more than 256 KiB comes with its short fields only, and `cut: true`.\n",
            table(("event", "has"), rows) + "\n",
        ]
    )


def hooks_page() -> str:
    """Return the hooks with their values."""
    from clew.session import hook_map, hooks

    kinds = dict.fromkeys(hooks.CHANGING, "may change") | dict.fromkeys(hooks.OBSERVING, "observes")
    described = commented(hook_map, "HookMap")
    source = inspect.getsource(hook_map)
    rows = []
    for name, kind in kinds.items():
        [value] = re.findall(rf'^ +"{re.escape(name)}": \w+\[(.+)\],$', source, re.MULTILINE)
        rows.append((code(name), kind, code(value), described[name]))
    order = list(described)
    rows.sort(key=lambda row: order.index(row[0].strip("`")))
    return "\n".join(
        [
            head("Hooks", "Code of the host that changes, refuses or observes what happens.", "`clew.session.hooks`"),
            markdown((hooks.__doc__ or "").partition("\n\n")[2]) + "\n",
            "Add one with `engine.hook(name, function)` or `clew.open(hooks={name: function})`; they are called "
            "in the order "
            "they were added. A function that takes a second argument gets a "
            "[`HookContext`](extending.md#hookcontext). "
            "A refusal is `refused_by_hook`; what an observer raises is logged.\n",
            table(("hook", "kind", "value", "means"), rows) + "\n",
        ]
    )


def tools_page() -> str:
    """Return the built-in tools."""
    from clew.tools.base import declared_capabilities
    from clew.tools.builtin import BUILTIN
    from clew.transcript.rule import CAPABILITIES

    rows = []
    for tool in BUILTIN:
        required = tool.input_schema.get("required", [])
        takes = ", ".join(code(one if one in required else f"{one}?") for one in tool.input_schema["properties"])
        uses = ", ".join(code(one) for one in declared_capabilities(tool) or ())
        rows.append((code(tool.name), takes, "yes" if tool.needs_workspace else "no", uses, markdown(tool.description)))
    return "\n".join(
        [
            head("Built-in tools", "The tools that agents have without any of yours.", "the tools themselves"),
            "The description is the one that a model gets. [Tools and permissions](../how-to/tools.md) says how "
            "their calls "
            f"are decided; the capabilities are {', '.join(code(str(one)) for one in CAPABILITIES)}.\n",
            table(("tool", "takes", "needs a workspace", "uses", "description"), rows) + "\n",
        ]
    )


def models_page() -> str:
    """Return the demo models, and how failures of a provider are classified."""
    from clew.providers import base
    from clew.providers.base import cause_of
    from clew.providers.demo import DEMO_MODELS
    from clew.providers.demo import provider as demo

    described = commented(demo, "_MODELS")
    models = [
        (f"`demo/{name}`", f"{info.window:,}", "yes" if info.tools else "no", described[name])
        for name, info in DEMO_MODELS.items()
    ]
    causes: dict[str, set[str]] = {}
    for kind in commented(base, "FailureKind"):
        for status in (None, 402, 404, 429, 500):
            causes.setdefault(cause_of(kind, status), set()).add(kind)  # type: ignore[arg-type]
    failures = [
        (code(kind), doc, ", ".join(code(cause) for cause, of in causes.items() if kind in of))
        for kind, doc in commented(base, "FailureKind").items()
    ]
    reasons = [(code(name), doc) for name, doc in commented(base, "FailureCause").items()]
    return "\n".join(
        [
            head(
                "Models and failures of providers",
                "The demo models, and how a failed model call is told.",
                "`clew.providers`",
            ),
            "## Demo models\n",
            "They need no key and no network, and answer the same way each time. Their longest answer is "
            f"{demo.MAX_OUTPUT} tokens, which is not enforced; a token is four characters. The variant `slow` waits "
            f"{demo.SLOW_MS} ms before each chunk: `demo/long:slow`.\n",
            table(("model", "window", "tools", "does"), models) + "\n",
            "Real models are in [Providers](../providers.md).\n",
            "## Kinds of failures\n",
            "A provider raises `ProviderFailure(message, kind=…)`. The kind says whether clew calls the model "
            "again; the "
            "`cause` says what a person can do about it.\n",
            table(("kind", "means", "causes"), failures) + "\n",
            "## Causes\n",
            "The `cause` in the error of a turn.\n",
            table(("cause", "means"), reasons) + "\n",
        ]
    )


def server_page() -> str:
    """Return the names of `clew.server`."""
    import clew.server as server

    parts = [
        head("clew.server", "clew's API and page inside an ASGI app of your own.", "`clew.server`"),
        markdown(server.__doc__) + "\n",
    ]
    for name in server.__all__:
        value = getattr(server, name)
        if inspect.isfunction(value):
            parts.append(f"## `{name}`\n\n```text\n{signature(value, name)}\n```\n\n{markdown(value.__doc__)}\n")
        elif isinstance(value, type):
            doc = markdown(value.__doc__)
            rows = field_table(fields(value)) if issubclass(value, msgspec.Struct) else ""
            parts.append(f"## `{name}`\n\n{doc}\n\n{rows}\n".rstrip() + "\n")
    return "\n".join(parts)


_UNSTABLE: Final = (
    "clew.testing.scripted",
    "clew.testing.scenario",
    "clew.testing.clock",
    "clew.testing.scribe",
    "clew.testing.chunks",
    "clew.testing.store_suite",
    "clew.failpoints",
    "clew.tools.base",
    "clew.live.base",
    "clew.session.turn.recorder",
    "clew.session.acquire.recovery",
    "clew.session.history.check",
    "clew.snapshots.base",
    "clew.store.base",
    "clew.store.sql.sqlite.memory",
    "clew.store.unit",
    "clew.transcript.chunk",
    "clew.transcript.fold",
    "clew.transcript.replay",
)
"""Modules beyond the public names that tests, benchmarks and examples use."""


def unstable_page() -> str:
    """Return the modules beyond the public names that pages and examples use."""
    rows = []
    for name in _UNSTABLE:
        module = importlib.import_module(name)
        names = ", ".join(code(one) for one in sorted(getattr(module, "__all__", ())))
        rows.append((code(name), first_sentence(markdown(module.__doc__)), names))
    return "\n".join(
        [
            head("Names that may change", "Modules beyond the public names, for tests and extensions.", "the modules"),
            "They may change without notice in any version. Tests, benchmarks and the examples use them.\n",
            table(("module", "is", "names"), rows) + "\n",
        ]
    )


PAGES: Final[Mapping[str, Callable[[], str]]] = {
    "config": config_page,
    "commands": commands_page,
    "errors": errors_page,
    "events": events_page,
    "hooks": hooks_page,
    "tools": tools_page,
    "models": models_page,
    "server": server_page,
    "unstable": unstable_page,
}
