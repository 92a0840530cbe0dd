"""How a shell line is read: what is refused and why, what wrappers give away, and what bash does with the tricks."""

from __future__ import annotations

import shlex

import pytest

from clew.permissions.shell.commands import take_apart
from clew.permissions.shell.parse import Redirect, read_line
from clew.permissions.shell.tokens import MAX_LINE_CHARS, MAX_NESTING, MAX_TOKENS, UNKNOWN, Unreadable, read_tokens


def nested_shells(depth: int) -> str:
    line = "ls"
    for _ in range(depth):
        line = f"bash -c {shlex.quote(line)}"
    return line


def words(line: str) -> list[list[str]]:
    return [[word.value for word in (*c.assignments, *c.words)] for c in read_line(line).commands]


@pytest.mark.rule("PM-5")
@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("", "the line holds no command"),
        ("# nothing", "the line holds no command"),
        ("ls )", "the line is not one that the grammar knows"),
        ("function f ls", "the line is not one that the grammar knows"),
        ("echo `ls` `ls`", "the line can be read in more than one way"),
        ("aa > out <<'E'|\nx\nE", "the line can be read in more than one way"),
        ("cat <<E\n\\`id\\`\nE", "the line can be read in more than one way"),
        ("case a in a) ls  esac>g", "a keyword stands inside a command"),
        ("then ls", "a keyword stands where a program should"),
        ("x=1 for q in a; do ls; done", "a keyword stands where a program should"),
        ("time ! ls", "a keyword stands where a program should"),
        ("time -p coproc ls", "a keyword stands where a program should"),
        ("select x in a; do ls; done", "`select` is not judged"),
        ("for PATH in a; do ls; done", "a loop over a variable that may mean something to a program"),
        ("for path in a; do ls; done", "a loop over a variable that may mean something to a program"),
        ("ls ;;", "the end of a case where there is none"),
        ("r\\\nm x", "a line goes on in the middle of a word"),
        ("ls;\\\nrm x", "a line goes on in the middle of a word"),
        ("cat <\\\n<E", "a line goes on in the middle of a word"),
        ('ls "a \\\nb"', "a line goes on inside quotes"),
        ('ls "$\\\n(id)"', "a line goes on inside quotes"),
        ("cat <<E\nx\\\nE\nid\nE", "a line goes on inside a here-document"),
        ("ls \\", "the line ends in a backslash"),
        ("ls 'a", "a quote is not closed"),
        ('ls "a', "a quote is not closed"),
        ("ls $'a", "a quote is not closed"),
        ("ls $(a", "a substitution is not closed"),
        ("ls `a", "a substitution is not closed"),
        ("cat <<E\nx", "a here-document is not closed"),
        ("cat <<E", "a here-document is not closed"),
        ("ls $(cat <<E)\nx\nE", "a here-document ends with its substitution"),
        ("cat <<'E'F\nx\nEF", "an unusual end mark of a here-document"),
        ("cat <<'E\"\nx\nE", "a quote is not closed"),
        ("cat <<\\E\nx\nE", "an unusual end mark of a here-document"),
        ("cat <<''E\nx\nE", "an unusual end mark of a here-document"),
        ("ls `a \\`b\\``", "a backslash inside backticks, which the shell reads twice"),
        ("ls `echo '\\'`", "a backslash inside backticks, which the shell reads twice"),
        ("((x))", "an arithmetic command"),
        ("a=(b)", "a parenthesis inside a word (an array or a pattern)"),
        ("ls @(a)", "a parenthesis inside a word (an array or a pattern)"),
        ("ls {fd}>x", "a redirect into a variable"),
        ("ls >& -x", "a redirect that also holds an argument"),
        ("ls > /dev/tcp/a/80", "a redirect to the network"),
        ("ls < /dev/udp/a/80", "a redirect to the network"),
        ("ls $((x))", "arithmetic with more than numbers"),
        ("ls $[1]", "arithmetic in its old form"),
        ("ls ${x@P}", "an expansion that may do more than read a variable"),
        ("ls ${x:=1}", "an expansion that may do more than read a variable"),
        ('ls $"a"', "text that is translated before it is used"),
        ("ls $'\\cA'", "an unusual escape"),
        ("ls $'\\0'", "an escape that cuts the text short"),
        ("ls $'\\xff'", "escapes that make no text"),
        ("ls $'\\U00110000'", "an escape that names no character"),
        ("ls\ra", "the line holds a character that cannot be seen, U+000D"),
        ("ls\u200ba", "the line holds a character that cannot be seen, U+200B"),
        ("ssh h 'ls > x'", "a redirect on another machine"),
        ("ls " + "a" * MAX_LINE_CHARS, f"the line is longer than {MAX_LINE_CHARS} characters"),
        ("ls;" * MAX_TOKENS, f"the line has more than {MAX_TOKENS} words and operators"),
        ("ls " + "$(ls " * (MAX_NESTING + 1) + ")" * (MAX_NESTING + 1), "substitutions are nested too deeply"),
        (nested_shells(9), "shells are nested too deeply"),
        ("nohup " * 9 + "ls", "commands are nested too deeply"),
        ("ls" + " && ls" * 300, "the line is nested too deeply"),
    ],
)
def test_a_line_that_is_not_certain_is_refused_with_its_reason(line: str, reason: str) -> None:
    """Each of these has been, or could be, read in a way that bash does not share."""
    with pytest.raises(Unreadable) as caught:
        take_apart(line)
    assert str(caught.value) == reason


@pytest.mark.rule("PM-5")
@pytest.mark.parametrize(
    ("line", "commands"),
    [
        ("a > out b c", [["a", "b", "c"]]),
        ("> out a b", [["a", "b"]]),
        ("2>&1 a 3>b", [["a"]]),
        ("a 2 > b", [["a", "2"]]),
        ("a b2>c", [["a", "b2"]]),
        ("python3 - <<E\nx\nE", [["python3", "-"]]),
        ("A=1 B=2 c D=3", [["A=1", "B=2", "c", "D=3"]]),
        ("a ~/x A=~/x x~y", [["a", "\0/x", "A=\0/x", "x~y"]]),
        ("a \"b $c\" 'd $e'", [["a", "b \0", "d $e"]]),
        ("a $'\\x62\\t\\'\\u00e9'", [["a", "b\t'é"]]),
        ("a {b,c} {} {d}", [["a", "\0", "{}", "{d}"]]),
        ("a <(b) >(c)", [["a", "\0", "\0"], ["b"], ["c"]]),
        ("a \\\n  b \\\n  # c\nd", [["a", "b"], ["d"]]),
        ("[ -f a ] && [[ -f b ]]", [["[", "-f", "a", "]"], ["[[", "-f", "b", "]]"]]),
        ("if a; then b; elif c; then d; else e; fi", [["a"], ["b"], ["c"], ["d"], ["e"]]),
        ("case a in b|c) d;; *) e;; esac", [["d"], ["e"]]),
        ("f() { a; }; function g { b; }", [["a"], ["b"]]),
        ("export A=1; unset B", [["export", "A=1"], ["unset", "B"]]),
        ("a <<E | b && c\n$(d)\nE\ne", [["a"], ["b"], ["c"], ["e"], ["d"]]),
    ],
)
def test_every_simple_command_is_found_with_the_words_bash_would_pass(line: str, commands: list[list[str]]) -> None:
    """Quotes removed, redirects taken out, unknown text marked; the inside of substitutions comes last."""
    assert words(line) == commands


@pytest.mark.parametrize(
    ("line", "redirects"),
    [
        ("a > b >> c 2> d", [("write", "b", True), ("write", "c", True), ("write", "d", True)]),
        ("a >| b &> c &>> d >& e", [("write", name, True) for name in "bcde"]),
        ("a < b", [("read", "b", True)]),
        ("a 2>&1 >&2 <&3 3>&1-", []),
        ("a > /dev/null < /dev/null 2> /dev/stderr", []),
        ("a > '/dev/null'", []),
        ("a > $b", [("write", UNKNOWN, False)]),
        ("a > b*", [("write", "b*", False)]),
        ("a > {b,c}", [("write", UNKNOWN, False)]),
        ("a > $'b'", [("write", "b", False)]),
        ('a >&"b"', [("write", "b", False)]),
        ("a > 'b c'", [("write", "b c", True)]),
        ("for x in a; do b; done > c", [("write", "c", True)]),
        ("echo $(a > b)", [("write", "b", True)]),
    ],
)
def test_redirects_are_found_with_what_is_known_of_their_files(
    line: str, redirects: list[tuple[str, str, bool]]
) -> None:
    """Copies of descriptors and the usual devices open nothing."""
    assert [(r.permission, r.path, r.known) for r in read_line(line).redirects] == redirects


def test_a_redirect_inside_a_wrapper_is_adrift_unless_it_is_absolute() -> None:
    """`env -C`, `find -execdir` and a shell's own `cd` change where a relative path leads."""
    assert take_apart("bash -c 'ls > a > /b'").redirects == (
        Redirect("write", "a", False, steady=False),
        Redirect("write", "/b", True, steady=False),
    )


@pytest.mark.rule("PM-5")
@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("timeout $t ls", "an argument that only the running shell knows stands before the inner command"),
        ("env A=$x ls", "an argument that only the running shell knows stands before the inner command"),
        ("sudo -u * ls", "an argument that only the running shell knows stands before the inner command"),
        ("find . $x -exec ls {} +", "an argument that only the running shell knows stands before the inner command"),
        ("find . -exec ls $x {} +", "an argument that only the running shell knows stands before the inner command"),
        ("find *", "an argument that only the running shell knows stands before the inner command"),
        ("find . -exec ls {}", "an action of `find` has no end"),
        ("sudo -Z ls", "the option `-Z` is not known"),
        ("env -S ls", "the option `-S` is not known"),
        ("nohup - ls", "the option `-` is not known"),
        ("exec -la x ls", "the option `-la` is not known"),
        ("xargs --replace ls", "the option `--replace` is not known"),
        ("timeout -k", "`-k` has no value"),
        ("ssh h -v ls", "an option of `ssh` behind the host"),
        ("ssh h $x", "the line it runs is not written out"),
        ("eval $x", "the line it runs is not written out"),
        ("eval ls *", "the line it runs is not written out"),
        ("bash -c $x", "an argument that only the running shell knows stands before the inner command"),
        ("bash -c", "`-c` has no line"),
        ("bash +x -c ls", "the option `+x` is not known"),
        ("bash -- x", "the option `--` is not known"),
        ("bash -o posix -c ls", "the option `-o` is not known"),
        ("bash", "a shell that runs what it is fed"),
        ("bash -s", "the option `-s` is not known"),
        ("bash <<E\n$x\nE", "a shell that runs what it is fed"),
        ("zsh -c ls", "a shell with a language of its own"),
        ("strace ls", "`strace` runs other commands in ways that are not analysed"),
        ("/usr/bin/strace ls", "`strace` runs other commands in ways that are not analysed"),
        ("python3", "it runs what it is fed"),
        ("node -r x", "it runs what it is fed"),
        ("perl /dev/stdin", "it runs what it is fed"),
        ("[ -v a ]", "an argument may run code or set a variable"),
        ("[[ a -eq b ]]", "an argument may run code or set a variable"),
        ("printf -v a b", "an argument may run code or set a variable"),
        ("wait -fp a", "an argument may run code or set a variable"),
        ("read 'a[b]'", "an argument may run code or set a variable"),
        ("$x", "its program is not written out"),
        ("l*", "its program is not written out"),
    ],
)
def test_a_command_that_no_rule_can_allow_says_why(line: str, reason: str) -> None:
    """An option that is not known could move the place where the inner command begins."""
    command = take_apart(line).commands[0]
    assert (command.cover, command.why) == ("none", reason)


@pytest.mark.rule("PM-5")
@pytest.mark.parametrize(
    ("line", "inner"),
    [
        ("env -i -u A B=1 ls", ["B=1 ls"]),
        ("env", []),
        ("sudo -n -u root A=1 ls", ["A=1 ls"]),
        ("sudo -l", []),
        ("command -v ls", []),
        ("command -p ls", ["ls"]),
        ("exec -a x ls", ["ls"]),
        ("exec", []),
        ("time -p ls", ["ls"]),
        ("timeout -k 1 --signal=KILL 5 ls", ["ls"]),
        ("gtimeout 5 ls", ["ls"]),
        ("nice -5 ls", ["ls"]),
        ("nice -n5 ls", ["ls"]),
        ("stdbuf -oL -e0 ls", ["ls"]),
        ("taskset -c 0 ls", ["ls"]),
        ("setsid -cw ls", ["ls"]),
        ("busybox ls -l", ["ls -l"]),
        ("xargs", []),
        ("xargs -0 -n1 ls -l", ["ls -l \0"]),
        ("xargs -I% ls a%b", ["ls a\0b"]),
        ("xargs -I % cp % x", ["cp \0 x"]),
        ("find . -exec a {} \\; -okdir b x{} +y \\;", ["a \0", "b x\0 +y"]),
        ("find . -name '*.py'", []),
        ("watch -n 1", []),
        ("watch -n 1 ls -l", ["ls -l"]),
        ("watch -x ls '-l a'", ["ls '-l a'"]),
        ("watch 'ls; pwd'", ["ls", "pwd"]),
        ("ssh -N -p 22 h", []),
        ("ssh h ls -l", ["ls -l"]),
        ("eval ls -l", ["ls -l"]),
        ("eval -- ls", ["ls"]),
        ("eval", []),
        ("trap 'ls; pwd' EXIT", ["ls", "pwd"]),
        ("trap -- ls EXIT", ["ls"]),
        ("trap - EXIT", []),
        ("bash -euo pipefail -c 'ls'", ["ls"]),
        ("bash --norc -c 'ls' x y", ["ls"]),
        ("bash --version", []),
        ("bash x.sh", []),
        ("bash <<E\nls\nE", ["ls"]),
        ("sh - <<< ls", ["ls"]),
    ],
)
def test_a_wrapper_is_judged_as_itself_and_for_what_it_runs(line: str, inner: list[str]) -> None:
    """First the wrapper, which only a rule that names it covers, then every command inside."""
    wrapper, *others = take_apart(line).commands
    assert wrapper.cover == "named"
    assert [command.text for command in others] == inner


def test_tokens_know_where_they_stand_in_bytes() -> None:
    """The grammar counts bytes, so a letter of two bytes must not shift what comes after it."""
    (level,) = read_tokens("é 'ü' x")
    assert [(token.value, token.start, token.end) for token in level] == [("é", 0, 2), ("ü", 3, 7), ("x", 8, 9)]
