"""Rules as generous as people write them, and lines made at random from tricks and honest ones.

The generator is shared: the tests take a few hundred lines of it, the fuzz campaign as many as it is given time for.
"""

from __future__ import annotations

import os.path
import random
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Final

from clew.permissions.evaluate import Decision, evaluate
from clew.permissions.shell.tokens import word_set
from clew.transcript.rule import Rule, Target

FOLDER: Final = Path(__file__).resolve().parent

# Whole programs, as somebody who is tired of being asked would allow them.
PROGRAMS: Final = sorted(
    word_set("""awk cargo cat cd curl cut echo env export file find gawk gh git go grep head jq ls make mawk mysql
    node npm npx pip psql pytest python python3 rg sed shuf sort split sqlite3 ssh tail tar uniq uptime
    wc xargs xxd""")
)
NARROW: Final = ("git log*", "git status*", "git diff*", "git show*", "git grep*", "npm test*", "python -m pytest*")
RULES: Final = (
    *(Rule("bash", f"{name} *", "allow") for name in PROGRAMS),
    *(Rule("bash", pattern, "allow") for pattern in NARROW),
    Rule("read", "./**", "allow"),
)


def decide(line: str, *rules: Rule, manifest: Sequence[Rule] = ()) -> Decision:
    target = Target("bash", "command", line)
    return evaluate(
        [target], manifest=manifest, session=rules or RULES, workspace="/w", resolve=os.path.normpath, home="/home/u"
    )


@cache
def tricks() -> list[str]:
    lines = (FOLDER / "options.txt").read_text(encoding="utf-8").splitlines()
    return [line.replace("<NL>", "\n") for line in lines if line and not line.startswith("#")]


def everyday() -> list[tuple[str, str]]:
    lines = (FOLDER / "everyday.txt").read_text(encoding="utf-8").splitlines()
    marked = [line.split("\t", 1) for line in lines if line and not line.startswith("#")]
    return [(mark, line) for mark, line in marked]


# What can be done to a line without making a trick harmless: other spellings, other commands around it, more arguments.
_SPELLINGS: Final = ("{}", "{} ", " {}", "{}\n", "{} # x", "( {} )", "{{ {}; }}", "! {}", "{} 2>&1", "{} 2>/dev/null")
_AROUND: Final = (
    "{}; ls", "ls; {}", "{} && ls", "ls && {}", "{} || ls", "{} | cat", "cat a | {}", "{} & ls", "ls\n{}",
    "if true; then {}; fi", "for q in a b; do {}; done", "while ls; do {}; done", "echo $({})", 'echo "$({})"',
    "cat <({})", "f() {{ {}; }}; ls", "case a in a) {};; esac",
)  # fmt: skip


def mutations(chance: random.Random) -> Iterator[str]:
    """Tricks without end, each changed in a few ways that leave it a trick. None of them may be allowed."""
    known = [line for line in tricks() if "<<" not in line]
    while True:
        line = chance.choice(known)
        for _ in range(chance.randint(0, 2)):
            line = _respelled(line, chance)
        for _ in range(chance.randint(0, 2)):
            line = chance.choice((*_SPELLINGS, *_AROUND)).format(line)
        yield line


def _respelled(line: str, chance: random.Random) -> str:
    """One plain word quoted in another way, or one blank made longer."""
    words = line.split(" ")
    at = chance.randrange(len(words))
    word = words[at]
    before = " ".join(words[:at])
    if before.count("'") % 2 or before.count('"') % 2:
        return line
    if word.isascii() and word.replace("-", "").replace("=", "").replace("/", "").isalnum() and len(word) > 1:
        cut = chance.randrange(1, len(word))
        words[at] = chance.choice(
            (f"'{word}'", f'"{word}"', f"{word[:cut]}''{word[cut:]}", f'{word[:cut]}"{word[cut:]}"', f"\\{word}")
        )
    elif word:
        words[at] = f"{word} "
    return " ".join(words)


def judge(line: str) -> str:
    """What is wrong with the decision about a mutated trick; empty when nothing is."""
    decision = decide(line)
    if "could not be evaluated" in decision.reason:
        return f"{line!r} broke the evaluation: {decision.reason}"
    return f"{line!r} was allowed" if decision.action == "allow" else ""
