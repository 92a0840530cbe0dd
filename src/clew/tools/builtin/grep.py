"""``grep``: the lines that fit a regular expression, in one file or below a folder.

Each file that would be opened is put to ``permit`` as a ``read`` first: a rule that keeps a file from being read
must not be got around by searching it, not even to learn whether a guess was right.
"""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from typing import Annotated, Final

from msgspec import Meta

from clew.tools.base import ToolContext
from clew.tools.decorator import tool
from clew.tools.files.access import file_errors, open_folder, open_plain
from clew.tools.files.paths import ResolvedPath, judged_path, path_targets
from clew.tools.files.pattern import Glob
from clew.tools.files.search import SearchResult, search
from clew.tools.files.walk import LeftOut, StopCheck, count, permitted, walk
from clew.tools.output import fit_text
from clew.tools.thread import run_in_thread

__all__ = ["grep"]

MAX_SHOWN: Final = 500
MAX_FILES: Final = 50_000
SECONDS: Final = 20.0


@tool(needs_workspace=True, targets=path_targets("grep"), capabilities=["fs.read"], timeout_ms=90_000)
async def grep(
    pattern: Annotated[
        str, Meta(description="A regular expression as Python's re has it, matched line by line.", min_length=1)
    ],
    context: ToolContext,
    path: Annotated[str, Meta(description="A file or folder; the workspace if left out.", min_length=1)] = ".",
    glob: Annotated[
        str | None, Meta(description="Only files that fit, such as *.py (in any folder) or src/**/*.ts.")
    ] = None,
    ignore_case: Annotated[bool, Meta(description="Take upper and lower case as the same.")] = False,
) -> str:
    """Search the contents of files.

    Gives path:line: text. Binary files and links are not searched, but counted. At most 500 lines are shown, and the
    search ends after 20 seconds.
    """
    name_filter = None if glob is None else Glob(glob if "/" in glob else f"**/{glob}")
    resolved = await judged_path("grep", path, context)
    left_out = LeftOut()
    with file_errors(resolved.shown), ExitStack() as stack:
        handle, is_folder = await run_in_thread(_open, resolved, stack)
        stop_check = StopCheck(context.signal, SECONDS)
        skipped: Counter[str] = Counter()
        found = await run_in_thread(_gather, handle, name_filter, stop_check, left_out, skipped) if is_folder else [""]
        answers = await permitted(found, resolved, "read", context, stop_check)
        if unasked := len(found) - len(answers):
            left_out.stopped = f"{stop_check.stop_reason}, {count(unasked, 'file')} not looked at"
        skipped["file that may not be read"] = answers.count(False)
        files = [file for file, allowed in zip(found, answers, strict=False) if allowed]
        result = await search(
            pattern,
            handle,
            files,
            ignore_case=ignore_case,
            max_matches=MAX_SHOWN,
            seconds=SECONDS,
            signal=context.signal,
        )
    return await fit_text(_format_result(result, files, skipped, resolved, left_out), context, "grep")


def _open(resolved: ResolvedPath, stack: ExitStack) -> tuple[int, bool]:
    if resolved.path.is_dir():
        return stack.enter_context(open_folder(resolved.path)), True
    return stack.enter_context(open_plain(resolved.path))[0], False


def _gather(
    handle: int, name_filter: Glob | None, stop_check: StopCheck, left_out: LeftOut, skipped: Counter[str]
) -> list[str]:
    files: list[str] = []
    for entry in walk(handle, stop_check, left_out, name_filter.may_hold if name_filter else lambda _: True):
        if entry.kind == "folder" or (name_filter and not name_filter.matches(entry.path)):
            continue
        if entry.kind != "file":
            skipped["link" if entry.kind == "link" else "special file"] += 1
        elif len(files) < MAX_FILES:
            files.append(entry.path)
        else:
            skipped[f"file beyond the first {MAX_FILES:,}"] += 1
    return files


def _format_result(
    result: SearchResult, files: list[str], skipped: Counter[str], resolved: ResolvedPath, left_out: LeftOut
) -> str:
    names = [resolved.below(file).shown for file in files]
    lines = [f"{names[match.file]}:{match.line}: {match.text}" for match in result.matches]
    notes = []
    if not lines:
        notes.append(f"no line fits in {count(len(names), 'file')}")
    if result.total > len(lines):
        notes.append(f"{result.total - len(lines):,} more of {count(result.total, 'line')} are not shown")
    if result.stopped_at is not None:
        stopped_file = names[result.stopped_at] if names else resolved.shown
        notes.append(
            f"stopped early: the pattern took too long in {stopped_file}, "
            f"{count(len(names) - result.stopped_at, 'file')} of {len(names):,} not searched to the end"
        )
    skipped.update({"binary file": result.binary, "unreadable file": result.unreadable})
    beyond = f"file beyond the first {MAX_FILES:,}"
    kinds = ("binary file", "link", "special file", "unreadable file", beyond, "file that may not be read")
    notes += [f"not searched: {skipped[what]:,} × {what}" for what in kinds if skipped[what]]
    return "\n".join(lines + [f"[{note}]" for note in notes + left_out.sentences()])
