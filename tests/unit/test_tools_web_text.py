"""Text out of pages: character sets, HTML as a person reads it, and HTML made to hurt."""

from __future__ import annotations

import pytest

from clew.tools.web.text import decode, html_to_text

PAGE = """<!doctype html><html><head><title>The  Labyrinth
&amp; more</title><style>p { color: red }</style><script>alert("no")</script></head>
<body><nav><a href="/">Home</a></nav>
<h1>Way   out</h1><p>Follow the <b>thread</b>&mdash;it is <a href="/thread?a=1&amp;b=2">red</a>.</p>
<ul><li>one<li>two<ol><li>first</li><li>second</li></ol></ul>
<pre>  kept
    as it is

end</pre>
<table><tr><th>a</th><th>b</th></tr><tr><td>1</td><td>2</td></tr></table>
<noscript>no</noscript><template>no</template><svg><title>no</title><text>no</text></svg>
<img src="x.png" alt="a door"><br>last<!-- no --> line &lt;b&gt;
<a href="#top">top</a> <a href="javascript:x()">js</a> <a href="https://x.test/">https://x.test/</a>
</body></html>"""

READ = """\
Home (https://site.test/)

# Way out

Follow the thread—it is red (https://site.test/thread?a=1&b=2).

- one
- two

  1. first
  2. second

  kept
    as it is

end

a | b
1 | 2

[image: a door]
last line <b> top js https://x.test/"""


def test_a_page_reads_as_a_person_reads_it() -> None:
    """Headings, lists, links, tables; no scripts, styles or comments."""
    assert html_to_text(PAGE, "https://site.test/a/") == ("The Labyrinth & more", READ, False)


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("plain", "plain"),
        ("", ""),
        ("<p>one<p>two", "one\n\ntwo"),
        ("<head><title>t</title><body>body", "body"),
        ("a<script>no", "a"),
        ("<div>a</div></div></p></li></ul>b", "a\n\nb"),
        ("<a href='/x'>", ""),
        ("<a href='/x'><div>card</div></a>", "card (https://site.test/x)"),
        ("<a href='http://[bad'>x</a>", "x"),
        ("a &unknown; &#0; &#xD800; b", "a &unknown; \ufffd \ufffd b"),
        ("1 < 2 & 3 > 2", "1 < 2 & 3 > 2"),
        ("<svg/>after", "after"),
        ("<p>" + "<b>" * 5000 + "deep", "deep"),
    ],
)
def test_broken_html_is_read_as_far_as_it_goes(html: str, text: str) -> None:
    """Pages are written by people."""
    assert html_to_text(html, "https://site.test/")[1] == text


@pytest.mark.parametrize(
    "piece",
    [
        "<",
        "<!",
        "<!--",
        "<![CDATA[",
        "<?",
        "</",
        "<a ",
        "<a b=",
        "<a b='",
        "&",
        "&#",
        "<!-->",
        "<![",
        "<a/",
        "<pre>\n",
        "<li>",
        "<ol>",
    ],
)
def test_html_made_to_hurt_ends_in_time(piece: str) -> None:
    """The parser is quadratic on some of these; it is stopped with what it has."""
    _, text, _ = html_to_text("<p>start</p>" + piece * 300_000, "https://site.test/", seconds=0.2)
    assert text.startswith("start")


def test_a_long_script_does_not_end_the_page() -> None:
    """Many pages carry their data in one."""
    html = f"<p>before</p><script>{'var x = 1 < 2;' * 50_000}</script><p>after</p>"
    assert html_to_text(html, "https://site.test/") == ("", "before\n\nafter", False)


@pytest.mark.slow
def test_a_page_too_long_is_cut_and_said_so() -> None:
    """Two million characters are a book."""
    _, text, cut = html_to_text("<p>word</p>" * 200_000, "https://site.test/")
    assert cut
    assert text.startswith("word\n\nword")


@pytest.mark.parametrize(
    ("body", "content_type", "text"),
    [
        ("é".encode(), "text/plain; charset=utf-8", "é"),
        ("é".encode(), "text/plain", "é"),
        ("é".encode("latin-1"), "text/plain; charset=ISO-8859-1", "é"),
        (b"\x93quoted\x94", "text/plain; charset=latin1", "“quoted”"),
        ("é".encode("cp1252"), 'text/html; charset="windows-1252"', "é"),
        ("漢字".encode("shift_jis"), "text/html;charset=Shift_JIS", "漢字"),
        ("漢字".encode("gbk"), "text/html; charset=gbk", "漢字"),
        ("привет".encode("koi8-r"), "text/html; charset=koi8-r", "привет"),
        (b'<meta charset="koi8-r">' + "да".encode("koi8-r"), "text/html", '<meta charset="koi8-r">да'),
        (
            b'<META http-equiv=content-type content="text/html; charset=windows-1251">' + "да".encode("cp1251"),
            "text/html",
            '<META http-equiv=content-type content="text/html; charset=windows-1251">да',
        ),
        (b"\xef\xbb\xbfabc", "text/plain; charset=latin1", "abc"),
        ("é".encode("utf-16"), "text/plain; charset=utf-8", "é"),
        (b"ok \xff\xfe", "text/plain", "ok \ufffd\ufffd"),
    ],
)
def test_the_character_set_is_found(body: bytes, content_type: str, text: str) -> None:
    """A mark at the start first, then what the server says, then the page, then UTF-8."""
    assert decode(body, content_type) == (text, "")


@pytest.mark.parametrize(
    "charset", ["klingon", "punycode", "rot13", "hex", "unicode_escape", "utf-7", "undefined", "zlib", "x" * 60]
)
def test_a_character_set_nobody_writes_pages_in_is_read_as_utf_8(charset: str) -> None:
    """Python has codecs that are slow, or no character sets at all."""
    text, remark = decode("é \\u0041".encode(), f"text/plain; charset={charset}")
    assert text == "é \\u0041"
    assert remark == f"the character set {charset!r} is not known; read as UTF-8"
