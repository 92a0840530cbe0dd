"""The examples of the documentation run, and its links lead somewhere."""

from __future__ import annotations

import ast
import codeop
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.pages import DOCS, ROOT, blocks, name_of, prose
from tools.words import TEXT

README = ROOT / "README.md"
QUICKSTART = DOCS / "quickstart.md"
INDEX = DOCS / "README.md"
NOTES = [ROOT / "bench" / "NOTES.md", ROOT / "tests" / "rules.md"]
"""For those who develop clew, next to what they are about."""
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *NOTES])
OWN_PAGES = [page for page in PAGES if page.name != "CONTRIBUTING.md"]
# Links to anywhere else would have to be looked after; these are the changelog's, and a name for examples.
HOSTS = {"keepachangelog.com", "semver.org", "example.org"}
OWN_MACHINE = re.compile(r"127\.0\.0\.1(:\d+)?")
MACHINE_PATH = re.compile(r"(?<![\w.:/$~-])/(?:home|root|Users|tmp|var|work|opt|mnt|usr|etc|private)(?:/|\b)|[A-Z]:\\")
# Runs Python that uses await outside of a function, as `python -m asyncio` does.
RUNNER = """
import ast, asyncio, inspect, sys
code = compile(open("example.py").read(), "example.py", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
result = eval(code, {"__name__": "__main__"})
if inspect.iscoroutine(result):
    asyncio.run(result)
"""


def environment(folder: Path) -> dict[str, str]:
    """No settings but an example's own."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("CLEW_", "XDG_"))}
    own = {"HOME": str(folder), "PATH": f"{Path(sys.executable).parent}:{env['PATH']}"}
    return env | own


def execute(folder: Path, command: list[str]) -> str:
    """Run an example in a folder of its own; what it prints. How long it may take, the test's own limit says."""
    done = subprocess.run(command, cwd=folder, env=environment(folder), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


# Examples

# Each starts several processes one after another, which costs seconds of computing, and a busy machine has few of them.
PATIENT = pytest.mark.timeout(300)
NEEDS_CURL = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")


def shell_block(holding: str) -> str:
    """Return the one shell block of the quickstart that has a text, for an environment that is active already."""
    [shell] = [block for block in blocks(QUICKSTART, "bash") if holding in block]
    script = shell.replace("source .venv/bin/activate\n", "")
    assert script != shell
    return script


@pytest.mark.slow
def test_the_example_in_the_readme_runs(tmp_path: Path) -> None:
    """To its end: the chunks until the request, and the answer after it was approved."""
    [source] = blocks(README, "python")
    assert source.startswith("# example: talk.py")
    (tmp_path / "talk.py").write_text(source, encoding="utf-8")
    assert execute(tmp_path, [sys.executable, "talk.py"]).splitlines() == [
        "start",
        "start-step",
        "tool-input-start",
        "tool-input-delta",
        "tool-input-available",
        "tool-approval-request",
        "finish-step",
        "finish",
        "roll done: a 20, of course",
    ]


@pytest.mark.slow
@PATIENT
@NEEDS_CURL
def test_the_calls_in_the_quickstart_do_what_it_says(tmp_path: Path) -> None:
    """The shell block, as it is there, against a server: a talk, an approval, a stream cut and joined again."""
    with (tmp_path / "address.txt").open("w") as out:
        server = subprocess.Popen(["clew", "serve", "--port", "0"], cwd=tmp_path, env=environment(tmp_path), stdout=out)
    try:
        while "token=" not in (tmp_path / "address.txt").read_text():
            assert server.poll() is None
            time.sleep(0.05)
        printed = execute(tmp_path, ["bash", "-eu", "-c", shell_block("post chat")])
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(60)
    pieces = re.split(r'^(?=data: \{"type":"start",|user: )', printed, flags=re.MULTILINE)[1:]
    # Between the request and what came of it the rest of that run is shown, if it has not ended by then.
    (tour, asked), (shown, cut, joined) = pieces[:2], pieces[-3:]
    assert "ball " in tour
    assert '"tool-approval-request"' in asked
    assert '{"remaining":0}' in asked
    assert "assistant: bash done: hi [exit code 0]" in shown
    assert '"finish"' not in cut
    assert joined.rstrip().endswith("data: [DONE]")
    deltas = re.findall(r'"text-delta".*"delta":"(.*)"}$', joined, re.MULTILINE)
    assert len("".join(deltas).split()) == 100
    assert cut.split('"messageId":"')[1][:30] == joined.split('"messageId":"')[1][:30]


@pytest.mark.slow
@PATIENT
@NEEDS_CURL
def test_the_kill_in_the_quickstart_loses_nothing(tmp_path: Path) -> None:
    """The shell block, as it is there: what was seen before the kill is stored, and the judge is content."""
    seen, stored, status, verdict = execute(tmp_path, ["bash", "-eu", "-c", shell_block("kill -9")]).splitlines()
    words = seen.removeprefix("seen:   ")
    assert len(words.split()) >= 20
    assert stored.removeprefix("stored: assistant: ").startswith(words)
    assert (status, verdict) == ('{"state":"idle"}', "1 sessions, 0 problems")


HOW_TO_PAGES = [page for page in sorted((DOCS / "how-to").glob("*.md")) if blocks(page, "python")]
TUTORIALS = sorted((DOCS / "tutorials").glob("*.md"))
RUN_PAGES = [
    *(DOCS / name for name in ("quickstart.md", "embedding.md", "client.md", "testing.md")),
    *HOW_TO_PAGES,
    *TUTORIALS,
]


@pytest.mark.slow
@PATIENT
@pytest.mark.parametrize("page", RUN_PAGES, ids=name_of)
def test_the_examples_of_a_page_run_from_top_to_bottom(tmp_path: Path, page: Path) -> None:
    """In one process, one after another, as somebody who follows the page would paste them."""
    (tmp_path / "example.py").write_text("\n\n".join(blocks(page, "python")), encoding="utf-8")
    execute(tmp_path, [sys.executable, "-c", RUNNER])


@pytest.mark.parametrize("page", RUN_PAGES, ids=name_of)
def test_the_examples_of_a_page_can_be_pasted(page: Path) -> None:
    """Into ``python -m asyncio``, which ends an indented block at a blank line, and only there."""
    compiler = codeop.CommandCompiler()
    compiler.compiler.flags |= ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    for block in blocks(page, "python"):
        held: list[str] = []
        for line in [*block.splitlines(), ""]:
            held.append(line)
            if compiler("\n".join(held), "<pasted>") is not None:
                held = []
        assert held == []


def test_every_python_block_is_an_example_that_runs() -> None:
    """A page with an example that no test runs would grow old unseen."""
    assert [name_of(page) for page in OWN_PAGES if blocks(page, "python")] == [
        "README.md",
        "docs/client.md",
        "docs/embedding.md",
        *map(name_of, HOW_TO_PAGES),
        "docs/quickstart.md",
        "docs/storage-format/streams.md",
        "docs/testing.md",
        *map(name_of, TUTORIALS),
    ]
    for page in OWN_PAGES:
        for block in blocks(page, "python"):
            compile(block, name_of(page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


# Links and paths


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as they are made for Markdown on the web."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    """To a file of this repository, and to a heading in it where one is named."""
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if target.startswith(("http://", "https://")):
            continue
        file, _, anchor = target.partition("#")
        there = (page.parent / file).resolve() if file else page
        if not there.is_file() or not there.is_relative_to(ROOT) or (anchor and anchor not in anchors(there)):
            broken.append(target)
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_page_names_a_machine_or_a_registry(page: Path) -> None:
    """Paths of one machine and addresses of package registries mean nothing to a reader."""
    content = page.read_text(encoding="utf-8")
    assert MACHINE_PATH.findall(content) == []
    named = set(re.findall(r"https?://([^/\s)>\"`]+)", content))
    assert {host for host in named - HOSTS if not OWN_MACHINE.fullmatch(host)} == set()


def test_the_search_for_machine_paths_finds_them() -> None:
    """And leaves URLs, variables and paths of a user's own folder alone."""
    for bad in ("see /home/me/x", "`/tmp/x.db`", "sqlite at /var/x", "C:\\Users"):
        assert MACHINE_PATH.search(bad), bad
    for good in ("sqlite:////folder/file.db", "~/.config/clew", "$HOME/tmp/x", "docs/opt/x.md", "read/write"):
        assert not MACHINE_PATH.search(good), good


def test_every_page_is_in_the_index() -> None:
    """A page that is linked from nowhere is not read."""
    links = re.findall(r"\]\(([^)#]+)\)", prose(INDEX))
    linked = {(INDEX.parent / link).resolve() for link in links}
    assert sorted(name_of(page) for page in PAGES if page not in (README, INDEX, *NOTES) and page not in linked) == []


def test_the_readme_stays_short() -> None:
    """Somebody new reads all of it."""
    assert len(README.read_text(encoding="utf-8").split()) <= 900


GENERATED = [page for page in PAGES if "by `make reference`.*" in page.read_text(encoding="utf-8")]
TO_LOOK_UP = [ROOT / "CHANGELOG.md", *GENERATED]
MAX_USER_WORDS = 45_000


@pytest.mark.parametrize("page", [one for one in PAGES if one not in (*NOTES, *TO_LOOK_UP)], ids=name_of)
def test_a_page_to_read_has_at_most_3000_words(page: Path) -> None:
    """A longer one is split by task or subject; generated pages are searched instead."""
    limit = 900 if page.name == "performance.md" else 3_000
    assert len(page.read_text(encoding="utf-8").split()) <= limit


def test_the_documentation_written_by_hand_has_at_most_45000_words(
    record_property: Callable[[str, object], None],
) -> None:
    """Of prose: without generated pages and tables, code and diagrams."""
    counted = sum(words_of_prose(page) for page in DOCS.rglob("*.md") if page not in GENERATED)
    record_property("figure", f"{counted:,} of {MAX_USER_WORDS:,} words of documentation written by hand")
    assert counted <= MAX_USER_WORDS


@pytest.mark.parametrize("page", [one for one in PAGES if one not in (*NOTES, *GENERATED)], ids=name_of)
def test_a_page_is_in_plain_english(page: Path) -> None:
    """None of the words that the check of the code refuses."""
    banned = re.compile(r"\b(" + "|".join(map(re.escape, TEXT)) + r"|anybody|without a word)\b", re.IGNORECASE)
    assert banned.findall(prose(page)) == []


def words_of_prose(page: Path) -> int:
    written = re.sub(r"<!-- (table|kill-matrix).*?<!-- (end|/kill-matrix) -->", "", prose(page), flags=re.DOTALL)
    return sum(1 for word in written.split() if re.search(r"\w", word))


def test_the_glossary_has_at_most_40_words() -> None:
    """Everything else is used as in the AI SDK, SQLite or Git."""
    glossary = (DOCS / "glossary.md").read_text(encoding="utf-8")
    words = re.findall(r"^\| ([a-z][a-z -]*) \| (?!meaning)", glossary, re.MULTILINE)
    assert 20 < len(words) <= 40
