"""Writes docs/reference from the code: ``make reference``, or ``python -m tools.reference``.

Signatures, docstrings, the table of operations, the structs of the config, the commands and the errors are the source;
a test compares the pages with it. To change a page, change the docstring it is made from. The tables of the storage
format come from the comments in ``schema.sql``.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

import clew
from clew import errors
from clew.tools.decorator import FunctionTool
from tools.reference_pages import PAGES as OTHER_PAGES
from tools.source_docs import (
    code,
    field_table,
    fields,
    first_sentence,
    head,
    markdown,
    shown_type,
    signature,
    structs_in,
    table,
)

ROOT: Final = Path(__file__).resolve().parents[1]
REFERENCE: Final = ROOT / "docs" / "reference"


class Noun(NamedTuple):
    """A page: methods of the engine and routes on one subject, with their values."""

    title: str
    purpose: str
    methods: tuple[tuple[str, type], ...]
    """Classes with the prefix of their methods."""
    operations: tuple[Any, ...]
    values: tuple[str, ...]


def written() -> dict[Path, str]:
    """Return the text of each generated page by its path."""
    nouns = _nouns()
    listed = [name for noun in nouns.values() for name in noun.values]
    missing = set(clew.__all__) - set(errors.__all__) - set(listed) - {"__version__"}
    if missing or len(listed) != len(set(listed)):
        raise SystemExit(f"each public name needs one page in tools/reference.py; check {sorted(missing)}")
    pages = {name: _noun_page(name, noun, nouns) for name, noun in nouns.items()}
    pages |= {name: make() for name, make in OTHER_PAGES.items()}
    pages["names"] = _names(nouns)
    found = {REFERENCE / f"{name}.md": text for name, text in pages.items()}
    from tools.storage_tables import storage_pages

    return found | storage_pages()


def _nouns() -> dict[str, Noun]:
    from clew.fronts.operations import history as h
    from clew.fronts.operations import host, runs, sessions
    from clew.fronts.operations import triggers as t
    from clew.session.api.engine import Engine
    from clew.session.api.files import Files
    from clew.session.api.history import History
    from clew.session.api.operations import Operations
    from clew.session.api.permissions import Permissions
    from clew.session.api.prompts import SavedPrompts
    from clew.session.api.runs import Runs
    from clew.session.api.servers import Servers
    from clew.session.api.sessions import Sessions
    from clew.session.api.settings import Settings
    from clew.session.api.transfer import Transfer
    from clew.triggers.events import Events
    from clew.triggers.schedules import Schedules
    from clew.triggers.webhooks import Webhooks

    return {
        "engine": Noun(
            "The engine",
            "Open a store, and what concerns the whole host: models, agents, usage, files, settings, MCP "
            "servers, care.",
            tuple(("", kind) for kind in (Engine, Operations, Files, SavedPrompts, Settings, Servers)),
            (*host.OPERATIONS, host.DOCUMENT),
            (
                *("open", "Engine", "Agent", "AgentList", "AgentShape", "Blob", "Damage", "McpServer", "ModelListing"),
                *(
                    "Rebuilt",
                    "ReplicaShape",
                    "SavedPrompt",
                    "ServerState",
                    "SettingsShape",
                    "UsageGroup",
                    "UsageReport",
                ),
                *("UsageSums", "DiskUse", "Config", "SavePolicy"),
            ),
        ),
        "sessions": Noun(
            "Sessions and messages",
            "Create, list, change and delete sessions, and read their messages.",
            (("", Sessions),),
            sessions.OPERATIONS,
            (
                "Session",
                "SessionList",
                "Spend",
                "Usage",
                "Model",
                "Message",
                "MessageRow",
                "PartRow",
                "FileList",
                "TouchedFile",
            ),
        ),
        "runs": Noun(
            "Prompts, streams, answers and the queue",
            "Send prompts, follow what comes of them, answer what needs a person, and change the queue.",
            (("", Runs),),
            (*runs.OPERATIONS, *runs.STREAM_OPERATIONS),
            (
                "Submission",
                "TurnStream",
                "TurnOutcome",
                "Status",
                "Waiting",
                "RunningCall",
                "StreamChunk",
                "LiveStream",
            ),
        ),
        "history": Noun(
            "History and context",
            "Go back, branch, compact, and see what a model was sent.",
            (("", History),),
            h.OPERATIONS,
            (
                *("Rewound", "ReflogEntry", "TreeView", "TreeTurn", "TreeBranch", "Compacted", "CompactionReport"),
                *(
                    "FileEffect",
                    "FilesRestored",
                    "RestorePreview",
                    "ChangedFile",
                    "ChangesReport",
                    "FileDiff",
                    "FilesCompared",
                ),
                *("ContextReport", "ContextParts", "TurnReport", "StepReport", "RequestReport", "Section"),
            ),
        ),
        "permissions": Noun(
            "Permissions",
            "Rules that allow, deny or ask, and why a call was decided as it was.",
            (("", Permissions),),
            sessions.PERMISSION_OPERATIONS,
            ("Rule", "KeptRule", "Explanation", "Subject", "Considered"),
        ),
        "transfer": Noun(
            "Search, export and import",
            "Find messages, and move sessions in and out.",
            (("", Transfer),),
            sessions.TRANSFER_OPERATIONS,
            ("SearchPage", "SearchHit", "Arrival", "Remark"),
        ),
        "triggers": Noun(
            "Events, schedules and webhooks",
            "Start turns without a person.",
            (("events.", Events), ("schedules.", Schedules), ("webhooks.", Webhooks)),
            t.OPERATIONS,
            (
                *("Event", "EventList", "LedgerEvent", "Received", "Routing", "Schedule", "SchedulePreview", "Watch"),
                *("Webhook", "Challenge"),
            ),
        ),
        "extending": Noun(
            "Tools, providers and hooks of your own",
            "The contracts of the code that a program brings along.",
            (),
            (),
            (
                *("tool", "Tool", "ToolContext", "ToolOutput", "File", "Target", "ToolSchema", "ToolCallValue"),
                *("Provider", "Providers", "ProviderSet", "ProviderFailure", "ModelInfo", "ModelRequest", "StepEnd"),
                *("UsageUpdate", "HookContext", "HookMap", "HookRefused"),
            ),
        ),
    }


_ELSEWHERE: Final = {
    "runs": ("start", "follow", "run", "answer_stream", "answer_question_stream", "find_prompt_of", "find_stream",
             "find_batches", "is_idle", "statuses", "known_statuses"),
}  # fmt: skip
"""Methods of the engine's own class that belong to another page."""


def _noun_page(name: str, noun: Noun, nouns: dict[str, Noun]) -> str:
    parts = [head(noun.title, noun.purpose, "docstrings and the table of operations")]
    routes = {operation.name: operation for operation in noun.operations}
    methods = list(_methods(name, noun))
    if methods:
        parts.append("## Methods\n\nOf an `Engine`; coroutines, unless the signature says otherwise.\n")
    for full, function in methods:
        parts.append(_method(full, function, routes))
    if noun.operations:
        parts.append(
            "## Routes\n\nEvery route may also answer with the [common codes](errors.md#over-http-alone); "
            "[Speak HTTP](../how-to/http.md) has what all of them share.\n"
        )
    shapes: dict[str, type] = {}
    parts += [_route(operation, shapes) for operation in noun.operations]
    if noun.values:
        parts.append("## Values\n")
    parts += [_value(value, getattr(clew, value)) for value in noun.values if value not in ("open", "Engine")]
    own = {shape: kind for shape, kind in _all_shapes(shapes).items() if _home(shape, nouns) == name}
    if own:
        parts.append("## Shapes\n\nValues that only routes have.\n")
        parts += [_value(shape, kind) for shape, kind in sorted(own.items())]
    return "\n".join(parts)


def _methods(name: str, noun: Noun) -> Iterator[tuple[str, Callable[..., Any]]]:
    if name == "engine":
        yield "clew.open", clew.open
    moved = [method for methods in _ELSEWHERE.values() for method in methods]
    for prefix, kind in noun.methods:
        for method, function in vars(kind).items():
            if (
                inspect.isfunction(function)
                and not method.startswith("_")
                and (kind is not clew.Engine or method not in moved)
            ):
                yield prefix + method, function
    for method in _ELSEWHERE.get(name, ()):
        yield method, getattr(clew.Engine, method)
    if name == "sessions":
        yield "get_session", clew.Engine.get_session


def _method(full: str, function: Callable[..., Any], routes: dict[str, Any]) -> str:
    prefix = (
        ""
        if inspect.iscoroutinefunction(inspect.unwrap(function))
        else "def "
        if full != "clew.open"
        else "async with "
    )
    doc = markdown(function.__doc__)
    assert doc, f"{full} has no docstring"
    lines = [f"### `{full}`\n", f"```text\n{prefix}{signature(function, full)}\n```\n", f"{doc}\n"]
    if full in routes:
        route = f"{routes[full].method} {routes[full].path}"
        lines.append(f"Over HTTP: [`{route}`](#{_anchor(route)}).\n")
    return "\n".join(lines)


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _route(operation: Any, shapes: dict[str, type]) -> str:
    from clew.fronts.http.openapi import _refusals

    lines = [f"### `{operation.method} {operation.path}`\n", f"{operation.summary}\n"]
    for label, kind in (("Query", operation.query), ("Body", operation.body)):
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind.__struct_fields__:
            optional = " It may be left out." if label == "Body" and operation.optional else ""
            lines.append(f"{label}: {markdown(kind.__doc__)}{optional}\n")
            lines.append(field_table(fields(kind)) + "\n")
        elif kind is not None and operation.raw:
            lines.append(f"{label}: the bytes of the file, at most {operation.limit // 1024 // 1024} MiB.\n")
    answers = []
    for status, kind in operation.answers.items():
        for struct in structs_in(kind):
            shapes[struct.__name__] = struct
        shown = (
            "nothing"
            if kind is None
            else f"`{shown_type(kind)}`"
            if operation.media == "application/json"
            else f"`{operation.media}`"
        )
        if operation.streams is not None and status == 200:
            for struct in structs_in(operation.streams):
                shapes[struct.__name__] = struct
            shown = (
                f"a stream of `{operation.streams.__name__}`"
                if kind is None
                else f"{shown}, or with `Accept: text/event-stream` a stream of them"
            )
        answers.append(f"{status}: {shown}")
    lines.append(f"Answers {'; '.join(answers)}. Refusals: {', '.join(_refusals(operation))}.")
    if operation.open:
        lines.append("No token is needed.")
    return "\n".join(lines) + "\n"


def _value(name: str, value: Any) -> str:
    lines = [f"### `{name}`\n"]
    if inspect.isfunction(value):
        # The decorator passes its options on.
        lines.append(f"```text\n{signature(FunctionTool.__init__ if name == 'tool' else value, name)}\n```\n")
    doc = markdown(_HOOK_MAP if name == "HookMap" else getattr(value, "__doc__", None) or "")
    if doc:
        lines.append(f"{doc}\n")
    if isinstance(value, type) and issubclass(value, msgspec.Struct):
        if name == "Config":
            lines.append("Its fields are on [their own page](config.md).\n")
        elif value.__struct_fields__:
            lines.append(field_table(fields(value)) + "\n")
    elif isinstance(value, type) and name not in ("Engine", "HookMap"):
        lines += _members(value)
    return "\n".join(lines)


_HOOK_MAP: Final = "A hook under each name, typed by the value it receives: see [Hooks](hooks.md)."


_HANDED_OUT: Final = ("StreamChunk", "Submission", "TurnStream")
"""Classes whose instances only clew creates."""


def _members(value: type) -> list[str]:
    """Return the rows of a class that is no struct: its constructor, properties and methods."""
    rows = []
    init = vars(value).get("__init__")
    if inspect.isfunction(init) and value.__name__ not in _HANDED_OUT and not getattr(value, "_is_protocol", False):
        rows.append((code(signature(init, value.__name__).rpartition(" -> ")[0]), ""))
    for name, member in vars(value).items():
        if name.startswith("_"):
            continue
        if isinstance(member, property):
            rows.append((f"`{name}`", markdown(member.__doc__)))
        elif inspect.isfunction(member):
            rows.append((code(signature(member, name)), markdown(member.__doc__)))
    return (
        [table(("member", "meaning"), [(" ".join(left.split()), right) for left, right in rows]) + "\n"] if rows else []
    )


def _all_shapes(found: dict[str, type]) -> dict[str, type]:
    """Return the structs of responses with those inside of them, without the public ones."""
    queue, seen = list(found.values()), dict[str, type]()
    while queue:
        kind = queue.pop()
        if kind.__name__ in seen:
            continue
        seen[kind.__name__] = kind
        try:
            queue += [inner for one in msgspec.structs.fields(kind) for inner in structs_in(one.type)]
        except (NameError, TypeError):
            continue
    return {name: kind for name, kind in seen.items() if getattr(clew, name, None) is not kind}


def _home(shape: str, nouns: dict[str, Noun]) -> str:
    """Return the first page with a route that answers with this shape."""
    for name, noun in nouns.items():
        kinds = [
            struct
            for one in noun.operations
            for answer in (*one.answers.values(), one.streams)
            for struct in structs_in(answer)
        ]
        if shape in _all_shapes({kind.__name__: kind for kind in kinds}):
            return name
    raise AssertionError(shape)


def _names(nouns: dict[str, Noun]) -> str:
    rows = [("`__version__`", "The version of clew.")]
    for page, noun in nouns.items():
        for name in noun.values:
            target = {"open": "#clewopen", "Engine": ""}.get(name, f"#{_anchor(name)}")
            doc = first_sentence(markdown(_HOOK_MAP if name == "HookMap" else getattr(clew, name).__doc__))
            rows.append((f"[`{name}`]({page}.md{target})", doc))
    rows.sort(key=lambda row: row[0].strip("[`").lower())
    text = head(
        "Public names",
        "What `import clew` gives. A name that is on no page of this reference is not public.",
        "`clew.__all__`",
    )
    return f"{text}\nEvery error is public too: see [Errors](errors.md).\n\n{table(('name', 'is'), rows)}\n"


def main() -> int:
    found = written()
    for stale in [page for page in REFERENCE.glob("*.md") if page not in found]:
        stale.unlink()
    for path, text in found.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.rstrip() + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
