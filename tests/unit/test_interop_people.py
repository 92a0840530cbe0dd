"""The forms for people: readable, and inert whatever a session holds."""

from __future__ import annotations

import base64
import re
import time
from hashlib import sha256
from html.parser import HTMLParser
from typing import Any

import msgspec
import pytest

from clew.interop.html import POLICY, escape_text, format_html, render_markdown
from clew.interop.markdown import contained, fenced, format_markdown
from clew.transcript.message import MessageRow, PartRow, Role
from clew.transcript.portable import Blob, PortableSession, Queued
from clew.transcript.session import Model, Session
from clew.transcript.turn import HeadMove, Turn

SES = "ses_000000000001" + "a" * 14
TURN = "trn_000000000001" + "a" * 14
OTHER = "trn_000000000002" + "a" * 14


def message_id(n: int) -> str:
    return f"msg_{n:012x}" + "a" * 14


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def document(*messages: tuple[Any, ...], title: str = "A title", **fields: Any) -> PortableSession:
    """A session of one turn that holds these messages, each a role and its parts."""
    rows = tuple(
        MessageRow(
            message_id(n), SES, role, n, n, {}, tuple(PartRow("", at, part, n, n) for at, part in enumerate(parts))
        )
        for n, (role, *parts) in enumerate(messages, start=1)
    )
    turn = Turn(id=TURN, session_id=SES, parent_turn_id=None, created_at=1, status="completed")
    given: dict[str, Any] = {
        "turns": (turn,),
        "links": {TURN: tuple(row.id for row in rows)},
        "messages": rows,
        "moves": (HeadMove(1, SES, None, TURN, 1, "turn"),),
        **fields,
    }
    session = Session(
        id=SES,
        agent="assistant",
        model=Model("demo", "echo"),
        created_at=0,
        updated_at=0,
        head_turn_id=given["moves"][-1].to_turn_id,
        metadata={"title": title},
    )
    return PortableSession(exported_at=0, session=session, **given)


class Page(HTMLParser):
    """What a browser would make of a page: its tags with their attributes, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.open: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "br", "hr", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.words.append(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")

    @property
    def text(self) -> str:
        return "".join(self.words)


ALLOWED = {
    *("table", "thead", "tbody", "tr", "th", "td"),
    *("html", "head", "meta", "title", "style", "body", "header", "main", "footer", "article", "h1", "h2", "h3", "h4"),
    *("h5", "h6", "p", "ul", "ol", "li", "pre", "code", "blockquote", "details", "summary", "span", "strong", "em"),
    *("a", "br", "hr", "img"),
}


def is_inert(page: str) -> Page:
    """No script, no handler, nothing that is loaded, no link but to the web and to mail."""
    seen = Page(page)
    assert seen.open == []
    assert {tag for tag, _ in seen.tags} <= ALLOWED
    assert [tag for tag, _ in seen.tags].count("style") == 1
    assert page.count("</style") == 1
    for tag, attributes in seen.tags:
        allowed = {
            "a": {"href", "rel"},
            "img": {"src", "alt"},
            "meta": {"charset", "content", "http-equiv", "name"},
            "html": {"lang"},
        }
        assert set(attributes) <= allowed.get(tag, {"class", "dir"})
        if tag == "a":
            assert re.match(r"(https?://|mailto:)", str(attributes["href"]), re.IGNORECASE)
            assert attributes["rel"] == "noopener noreferrer nofollow"
        if tag == "img":
            assert re.match(r"data:image/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]*$", str(attributes["src"]))
    policies = [a["content"] for tag, a in seen.tags if tag == "meta" and "http-equiv" in a]
    assert policies == [POLICY]
    assert page.index("http-equiv") < page.index("<style")
    return seen


EVIL = [
    "<script>alert(1)</script>",
    "</pre></details></article><script src=//evil.example/x.js></script>",
    '<img src=x onerror="alert(1)">',
    "<svg/onload=alert(1)>",
    "</style><style>@import 'https://evil.example/x.css'</style>",
    "</title><meta http-equiv=refresh content='0;url=https://evil.example'>",
    "<!-- --!><script>alert(1)</script> -->",
    "<!--",
    "-->",
    "<![CDATA[",
    "<base href=https://evil.example>",
    "<iframe srcdoc='<script>alert(1)</script>'>",
    "[x](javascript:alert(1))",
    "[x](JaVaScRiPt:alert(1))",
    "[x](java\tscript:alert(1))",
    "[x](&#106;avascript:alert(1))",
    "[x](data:text/html;base64,PHNjcmlwdD4=)",
    "[x](vbscript:x)",
    "[x](file:///etc/passwd)",
    "[x](//evil.example)",
    "[x](https:evil)",
    '[x](https://e.example/"onmouseover="alert(1))',
    "[x](https://e.example/' onclick='a)",
    "[<b>x</b>](https://e.example)",
    "![x](https://evil.example/pixel.png)",
    "![x](data:image/svg+xml;base64,PHN2Zz4=)",
    'https://e.example/"><script>alert(1)</script>',
    "`<script>alert(1)</script>`",
    "``` <script>\n<script>alert(1)</script>\n```",
    "```\n</code></pre><script>alert(1)</script>",
    "**<script>**_<script>_",
    "# <script>alert(1)</script>",
    "- <script>alert(1)</script>\n1. <iframe>",
    "> <script>alert(1)</script>",
    "| <script> |\n|---|",
    '" onmouseover="alert(1)',
    "' autofocus onfocus='alert(1)",
    "&lt;script&gt;",
    "\u202egnp.exe\u202c",
    "a\u0007b\u001b[31mred",
    "\u2066[x](https://e.example/\u202e)\u2069",
]
ASCII_EVIL = [evil for evil in EVIL if evil.isascii() and evil.isprintable()]


@pytest.mark.parametrize("evil", EVIL, ids=range(len(EVIL)))
def test_a_page_is_inert_whatever_a_session_holds(evil: str) -> None:
    """In a title, a text, reasoning, a tool's name, input, output and error, a file, a summary, an unknown part."""
    call = {
        "type": "dynamic-tool",
        "toolName": evil,
        "toolCallId": "c",
        "state": "output-available",
        "input": {evil: evil},
    }
    parts = [
        text(evil),
        {"type": "reasoning", "text": evil},
        {**call, "output": evil},
        {**call, "output": {"a": [evil]}, "errorText": evil, "state": evil},
        {"type": "file", "url": evil, "mediaType": evil, "filename": evil},
        {"type": "data-compaction", "data": {"summary": evil}},
        {"type": evil, "x": evil},
        {"type": ["odd"], "text": evil},
    ]
    made = document(("user", *parts), ("assistant", *parts), title=evil)
    made = msgspec.structs.replace(made, exporter=evil, session=msgspec.structs.replace(made.session, agent=evil))
    seen = is_inert(format_html(made, hidden=True))
    # What one can read is what was said.
    if evil in ASCII_EVIL:
        assert evil in seen.text


def test_characters_one_cannot_see_are_shown_by_their_number() -> None:
    """Direction, controls and fillers; joiners that scripts and emoji need stay."""
    page = format_html(document(("user", text("a\u202eb\u200b\x07 \U000e0041 👩\u200d🚀"))))
    assert not re.search("[\u202e\u200b\x07\U000e0041]", page)
    assert 'a<span class="unseen">U+202E</span>b<span class="unseen">U+200B</span>' in page
    assert '<span class="unseen">U+0007</span> <span class="unseen">U+E0041</span> 👩\u200d🚀' in page


def test_markdown_is_rendered_so_far_as_it_is_known() -> None:
    """Paragraphs, headings, lists, quotes, code, bold, italics and links."""
    source = (
        "# Top\nOne **bold** and *soft* with `a < b`,\nsee [here](https://e.example/?a=1&b=2).\n\n"
        "- x\n- y\n1. z\n\n> q\n\n---\n\n```py\nif a < b:\n    pass\n```\n"
    )
    assert render_markdown(source).split("\n") == [
        '<h4 dir="auto">Top</h4>',
        '<p dir="auto">One <strong>bold</strong> and <em>soft</em> with <code dir="ltr">a &lt; b</code>,<br>',
        'see <a href="https://e.example/?a=1&amp;b=2" rel="noopener noreferrer nofollow">here</a>.</p>',
        "<ul>",
        '<li dir="auto">x</li>',
        '<li dir="auto">y</li>',
        "</ul>",
        "<ol>",
        '<li dir="auto">z</li>',
        "</ol>",
        "<blockquote>",
        '<p dir="auto">q</p>',
        "</blockquote>",
        "<hr>",
        '<pre dir="ltr"><code>if a &lt; b:',
        "    pass</code></pre>",
    ]


def test_pictures_of_the_session_are_in_the_page() -> None:
    """Of kinds that cannot do anything; a drawing that could is only named."""
    png, svg = b"\x89PNG", b"<svg onload=alert(1)>"
    blobs = tuple(
        Blob(sha256(data).hexdigest(), kind, data) for data, kind in ((png, "image/png"), (svg, "image/svg+xml"))
    )
    files = [
        {"type": "file", "mediaType": blob.media_type, "filename": f"f{n}", "url": f"/api/blobs/{blob.sha256}"}
        for n, blob in enumerate(blobs)
    ]
    seen = is_inert(format_html(document(("user", *files), blobs=blobs)))
    pictures = [attributes for tag, attributes in seen.tags if tag == "img"]
    assert pictures == [{"src": f"data:image/png;base64,{base64.b64encode(png).decode()}", "alt": "f0"}]
    assert "Attached: f1" in seen.text


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        "**a " * 30_000,
        "[" * 60_000,
        "`" * 60_001,
        "` `` " * 20_000,
        "> " * 30_000,
        "# " * 50_000 + "x",
        "*a" * 40_000,
        "_a_ " * 4_000,
        "- a\n" * 20_000,
    ],
)
def test_no_text_takes_long_to_show(words: str) -> None:
    """Markup that is never closed costs no more than its length."""
    began = time.process_time()
    render_markdown(words)
    contained(words)
    assert time.process_time() - began < 5


# What is shown


def rewound() -> PortableSession:
    """Two turns side by side, the first left behind; one message queued, one cancelled."""
    said: list[tuple[Role, str, dict[str, Any]]] = [
        ("user", "first try", {}),
        ("assistant", "first answer", {}),
        ("user", "second try", {}),
        ("assistant", "second answer", {}),
        ("user", "later", {}),
        ("user", "never", {"cancelled_at": 6}),
    ]
    rows = [
        MessageRow(message_id(n), SES, role, n, n, meta, (PartRow("", 0, text(words), n, n),))
        for n, (role, words, meta) in enumerate(said, start=1)
    ]
    turns = tuple(
        Turn(id=id_, session_id=SES, parent_turn_id=None, created_at=1, status="completed") for id_ in (TURN, OTHER)
    )
    moves = (
        HeadMove(1, SES, None, TURN, 2, "turn"),
        HeadMove(2, SES, TURN, None, 3, "rewind"),
        HeadMove(3, SES, None, OTHER, 4, "turn"),
    )
    links = {TURN: (rows[0].id, rows[1].id), OTHER: (rows[2].id, rows[3].id)}
    return document(turns=turns, links=links, messages=tuple(rows), moves=moves, queue=(Queued(rows[4].id, 5),))


def test_hidden_messages_are_left_out_unless_asked_for() -> None:
    """What waits is shown as such; with hidden, all that was left behind is marked."""
    assert format_markdown(rewound()) == (
        "# A title\n\ndemo/echo · assistant · 1970-01-01 00:00 UTC\n\n"
        "*3 messages are not shown: summarised, or left behind; an export with --hidden "
        "(hidden=true over HTTP) has all.*\n\n## Turn 1\n\n### User\n\nsecond try\n\n### Assistant\n\nsecond answer\n\n"
        "## Turn 2\n\n### User (waits in the queue)\n\nlater\n"
    )
    every = format_markdown(rewound(), hidden=True)
    assert re.findall("### .*", every) == [
        "### User (left behind by a rewind)",
        "### Assistant (left behind by a rewind)",
        "### User",
        "### Assistant",
        "### User (cancelled before it was sent)",
        "### User (waits in the queue)",
    ]
    assert "first answer" not in Page(format_html(rewound())).text
    assert "left behind by a rewind" in is_inert(format_html(rewound(), hidden=True)).text


def test_markdown_folds_reasoning_and_tools() -> None:
    """And says what a summary is."""
    call = {"type": "tool-ls", "toolCallId": "c", "state": "output-available", "input": {"path": "."}, "output": "a\nb"}
    failed = {"type": "tool-ls", "toolCallId": "d", "state": "output-error", "input": {}, "errorText": "no"}
    made = document(("assistant", {"type": "step-start"}, {"type": "reasoning", "text": "hm"}, call, failed))
    assert format_markdown(made).split("### Assistant\n\n")[1] == (
        "<details>\n<summary>Reasoning</summary>\n\n```text\nhm\n```\n\n</details>\n\n"
        "<details>\n<summary>Tool: ls · output-available</summary>\n\n"
        'Input:\n\n```json\n{\n  "path": "."\n}\n```\n\nOutput:\n\n```text\na\nb\n```\n\n</details>\n\n'
        "<details>\n<summary>Tool: ls · output-error</summary>\n\n"
        "Input:\n\n```json\n{}\n```\n\nError:\n\n```text\nno\n```\n\n</details>\n"
    )


# Fences


@pytest.mark.parametrize(
    "words",
    ["```", "a\n```\nb", "````\n```", "`" * 9, "~~~\n```\r\n```", "```\r</details>\r```", "  ```", "\u2028```\u2028"],
)
def test_nothing_breaks_out_of_a_fence(words: str) -> None:
    """The fence is longer than any run of backticks in what it holds."""
    built = fenced(words)
    fence = built.partition("text\n")[0]
    assert set(fence) == {"`"}
    assert fence not in words
    assert built == f"{fence}text\n{words}\n{fence}"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("plain **bold**", "plain **bold**"),
        ("a < b and c > d", "a < b and c > d"),
        ("<script>x</script>", "&lt;script>x&lt;/script>"),
        ("use `<b>` or <b>", "use `<b>` or &lt;b>"),
        ("<!-- never closed", "&lt;!-- never closed"),
        ("```\n<b>\n```\n<b>", "```\n<b>\n```\n&lt;b>"),
        ("```html\n<b>", "```html\n<b>\n```"),
        ("~~~\n```\n<b>", "~~~\n```\n<b>\n~~~"),
        ("````\n```\n<b>", "````\n```\n<b>\n````"),
        ("` open\nx ` <b> `", "` open\nx ` &lt;b> `"),
        ("\\`<b>`", "\\`&lt;b>`"),
        ("``` not ` a fence <b>", "``` not ` a fence &lt;b>"),
        ("- a\n  ```\n  code\n<b>", "````text\n- a\n  ```\n  code\n<b>\n````"),
        ("> ```\n<b>", "````text\n> ```\n<b>\n````"),
        ("a\r```\r<b>", "a\n```\n<b>\n```"),
    ],
)
def test_a_text_stays_where_it_is_put(words: str, expected: str) -> None:
    """HTML outside of code is escaped, open fences are closed, and what is unsure is shown word for word."""
    assert contained(words) == expected


def test_a_title_and_a_name_mean_nothing_to_markdown() -> None:
    """Not a heading, not a link, not a tag."""
    call = {"type": "dynamic-tool", "toolName": "</summary>\n\n# x", "toolCallId": "c", "state": "input-available"}
    made = format_markdown(document(("assistant", call), title="x](y) <b>\n# `z`"))
    assert made.startswith("# x\\](y) \\<b\\> \\# \\`z\\`\n")
    assert "<summary>Tool: &lt;/summary&gt; # x · input-available</summary>" in made


def test_escaping_leaves_nothing_to_interpret() -> None:
    """Quotes too, for attributes."""
    assert escape_text("<a href=\"x\" b='y'>&") == "&lt;a href=&quot;x&quot; b=&#x27;y&#x27;&gt;&amp;"
