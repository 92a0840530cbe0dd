"""The paths that the words of a shell line lead to, for pinned rules that close a folder to all tools.

Such a rule must apply to every name a command uses, so each word is read as a path: from the workspace and from every
folder the line changes to, with links followed and not, after an option's ``=``, inside a program's text. A word that
certainly leads to a closed path gives YES. One that may lead there, depending on the running shell, gives MAYBE: a
variable, a glob that matches a name on the way, a folder that contains the path. What a program opens by itself is not
covered.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import PurePosixPath
from typing import Final

import msgspec

from clew.permissions import paths
from clew.permissions.paths import FileSystem
from clew.permissions.rules import Certainty
from clew.permissions.shell.tokens import UNKNOWN, Token, word_set

__all__ = ["CommandPaths", "LookupBudget", "working_folders"]

_MAX_FOLDERS: Final = 16
_MAX_WORDS: Final = 500
# The system's limit for a path.
_MAX_PATH: Final = 4096
_PIECE: Final = re.compile(r"[^\s'\"(){}<>;|&,=:@\0]+")
_GLOB: Final = re.compile(r"[*?\[]")
# Their arguments are text or numbers: an unknown one cannot make them open a file.
_TEXTUAL: Final = word_set(
    ": basename break continue dirname echo exit expr false kill pwd return seq shift sleep true type which"
)
_ELSEWHERE: Final = ("-C", "--dir", "--chdir", "--cwd", "--work-tree", "--git-dir", "--prefix", "-execdir")
_CHANGE_FOLDER: Final = word_set("cd popd pushd")
# Options with which a program follows the links it finds in a folder: letters, then long ones.
_FOLLOWING: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    **dict.fromkeys(("grep", "egrep", "fgrep", "zgrep"), ("R", ("--dereference-recursive",))),
    **dict.fromkeys(("rg", "ripgrep"), ("L", ("--follow",))),
    **dict.fromkeys(("tar", "bsdtar", "gtar"), ("hL", ("--dereference",))),
    "ack": ("", ("--follow",)),
    "ag": ("f", ("--follow",)),
    "cp": ("L", ("--dereference",)),
    "diff": ("r", ("--recursive",)),
    "rsync": ("Lk", ("--copy-links", "--copy-dirlinks", "--copy-unsafe-links")),
    "scp": ("r", ()),
    "zip": ("rR", ("--recurse-paths", "--recurse-patterns")),
}
# Prefixes of an argument that names a file with further arguments or file names.
_INDIRECT: Final[Mapping[str, str]] = {
    **dict.fromkeys(word_set("addr2line ar as c++filt ld nm objcopy objdump ranlib readelf size strings strip"), "@"),
    **dict.fromkeys(word_set("7z 7za 7zr 7zz java javac"), "@"),
    **dict.fromkeys(word_set("xz unxz xzcat lzma unlzma lzcat"), "--files"),
    # These read the names from their input.
    **dict.fromkeys(word_set("cpio pax"), ""),
}
# Names of the command's own input and output, whatever this process has open under them.
_STREAMS: Final = re.compile(r"/dev/(?:null|zero|full|u?random|tty|stdin|stdout|stderr|fd/[012])")
_HANDLES: Final = re.compile(r"/dev/(?:stdin|stdout|stderr|fd(?:/[0-9]+)?)")
# Most letters in a bundle before a path that is attached to the last of them.
_MAX_BUNDLE: Final = 16


class LookupBudget(msgspec.Struct):
    """The number of paths of a line that may still be looked up; the rest counts as unknown."""

    left: int = 10_000


class _Folder(msgspec.Struct, frozen=True):
    """The parent folder of candidate paths.

    ``globs``: its names may contain globs. ``named``: a word is exactly this path, so a folder stands for its content.
    ``climbs``: it starts at an unknown number of folders above the command's working folder.
    """

    names: tuple[str, ...]
    globs: bool = False
    named: bool = False
    climbs: bool = False


class _Candidates:
    """Candidate paths by folder, so that siblings are ruled out together."""

    def __init__(self) -> None:
        self.found: dict[_Folder, dict[str, None]] = {}
        self.unknown = False

    def add(self, names: tuple[str, ...], *, globs: bool = False, named: bool = False, climbs: bool = False) -> None:
        # The root has no name: it is what the empty one leads to.
        parent = _Folder(names[:-1], globs, named, climbs)
        self.found.setdefault(parent, {})[names[-1] if names else ""] = None


class CommandPaths:
    """The paths of one command of a line, or of an unreadable line; they are looked up for the first rule.

    ``folders`` are those a relative path may start from; None if they are unknown. The commands of a line share one
    ``budget``.
    """

    def __init__(
        self,
        words: Sequence[Token],
        texts: Iterable[str],
        folders: Sequence[str] | None,
        file_system: FileSystem,
        budget: LookupBudget,
    ) -> None:
        self._words = words
        self._texts = tuple(texts)
        self._folders = folders or ()
        self._unknown_folder = folders is None or len(folders) > _MAX_FOLDERS
        self._file_system = file_system
        self._budget = budget
        self._program = words[0].value.rpartition("/")[2] if words else ""

    def of_last_word(self) -> CommandPaths:
        """Return the paths of the last word alone."""
        folders = None if self._unknown_folder else self._folders
        return CommandPaths((self._words[0], self._words[-1]), (), folders, self._file_system, self._budget)

    @property
    def names_workspace(self) -> bool:
        """Return whether a word is the workspace itself, which :meth:`match` leaves out."""
        return any(
            paths.normal(word.value if word.value.startswith("/") else f"{folder}/{word.value}")
            == self._file_system.workspace
            for word in self._words[1:]
            for folder in self._folders
        )

    def match(self, pattern: str) -> Certainty:
        """Return whether a word of the command leads to a path that the absolute ``pattern`` matches."""
        rule = paths.pattern_names(pattern, None)
        if rule is None:
            return Certainty.NO
        found = Certainty.MAYBE if self._candidates.unknown else Certainty.NO
        for parent, below in self._candidates.found.items():
            result = self._meets(rule, parent, below)
            if result is Certainty.YES:
                return result
            found = result if found is Certainty.NO else found
        return found

    def _meets(self, rule: tuple[str, ...], parent: _Folder, below: Iterable[str]) -> Certainty:
        if parent.climbs:
            # The climb may end at any folder on the way to the closed path; the rest of the word continues from there.
            # It cannot end in a closed folder: being in one is a match by itself.
            end = next((at for at, name in enumerate(rule) if name == "**" or name.startswith("!(")), len(rule))
            hit = any(paths.meets(rule, (*rule[:at], *parent.names), below) == "in" for at in range(end))
            return Certainty.MAYBE if hit else Certainty.NO
        where = paths.meets(rule, parent.names, below, globs=parent.globs)
        if where == "in" and not parent.globs:
            return Certainty.YES
        if self._program in _TEXTUAL or where == "out":
            return Certainty.NO
        return Certainty.MAYBE if where == "in" or parent.named else Certainty.NO

    @cached_property
    def _candidates(self) -> _Candidates:
        candidates = _Candidates()
        candidates.unknown = self._unknown_folder or len(self._words) > _MAX_WORDS
        elsewhere = len(self._folders) > 1 or any(word.value.startswith(_ELSEWHERE) for word in self._words)
        for word in self._words[:_MAX_WORDS]:
            if word.rooted and not word.home and word.value == UNKNOWN:
                # The handle of a substitution, whose commands are judged by themselves.
                continue
            if word is self._words[0] and word.value in ("[", "[["):
                # The builtin, not a glob.
                continue
            value = _expanded(word, self._file_system.home)
            if UNKNOWN in value:
                candidates.unknown = candidates.unknown or self._program not in _TEXTUAL
            elif not _STREAMS.fullmatch(value):
                self._add_word(candidates, value, word.glob, elsewhere)
            self._add_embedded(candidates, value)
        for text in self._texts:
            self._add_embedded(candidates, text)
        indirect = _INDIRECT.get(self._program)
        if indirect is not None and any(word.value.startswith(indirect) for word in self._words[1:]):
            candidates.unknown = True
        if self._follows_links():
            self._add_links(candidates)
        if self._program == "cd" and _destination(self._words) is None:
            # It goes home.
            candidates.unknown = candidates.unknown or self._file_system.home is None
            candidates.add(paths.names_of(self._file_system.home or "/"), named=True)
        return candidates

    def _add_word(self, candidates: _Candidates, value: str, glob: bool, elsewhere: bool) -> None:
        """Add the word as a path, and the part after its option or its equals sign."""
        texts = [] if value.startswith("-") else [value]
        if "=" in value:
            texts.append(value.partition("=")[2])
        if value.startswith("--"):
            texts.append(value[2:])
        elif value.startswith("-"):
            # Only the program knows which letter of a bundle takes the path: it may start after each of them.
            before = len(value.partition("/")[0])
            texts += [value[at:] for at in range(2, min(before, _MAX_BUNDLE) + 1)]
        for text in dict.fromkeys(filter(None, texts)):
            text = _expand_home(text, self._file_system.home)
            if text.startswith("/"):
                self._add_path(candidates, text, glob)
                continue
            for folder in self._folders:
                self._add_path(candidates, f"{folder}/{text}", glob)
            if elsewhere and ".." in (parts := text.split("/")):
                last = len(parts) - parts[::-1].index("..")
                candidates.add(tuple(name for name in parts[last:] if name not in ("", ".")), climbs=True)

    def _follows_links(self) -> bool:
        """Return whether the command reads through links below the folders it is given."""
        letters, long = _FOLLOWING.get(self._program, ("", ()))
        options = [word.value for word in self._words[1:] if word.value.startswith("-")]
        # The letters of `tar` need no dash.
        options += [f"-{word.value}" for word in self._words[1:2] if "tar" in self._program]
        return any(
            any(one.startswith(option.partition("=")[0]) for one in long)
            if option.startswith("--")
            else not set(option).isdisjoint(letters)
            for option in options
        )

    def _add_links(self, candidates: _Candidates) -> None:
        """Add where the links in those folders lead. Only the program knows which word is a folder, and where it starts
        without one: each word may be a folder, and the working folder always counts."""
        roots = dict.fromkeys(self._folders)
        for word in self._words[1:]:
            roots |= dict.fromkeys(paths.normal(f"{folder}/{word.value}") for folder in self._folders)
            roots |= dict.fromkeys([paths.normal(word.value)] if word.value.startswith("/") else [])
        for root in roots:
            found = None if self._file_system.finds is None else self._file_system.finds(f"{root.rstrip('/')}/**")
            if found is None:
                candidates.unknown = True
                return
            for path in found:
                self._add_path(candidates, path, glob=False)

    def _add_path(self, candidates: _Candidates, path: str, glob: bool) -> None:
        self._budget.left -= 1
        if self._budget.left < 0:
            candidates.unknown = True
            return
        if not glob:
            for spelling in {paths.normal(path), *self._real(path)}:
                # A command without a path works in the workspace, too, so naming it makes no difference.
                if spelling != self._file_system.workspace:
                    candidates.add(paths.names_of(spelling), named=True)
            return
        parts = path.split("/")
        first = next((at for at, part in enumerate(parts) if _GLOB.search(part)), len(parts))
        found = self._file_system.finds(path) if self._file_system.finds is not None else ()
        # Only the running shell knows where `..` leads behind a link that the glob finds.
        if self._program not in _TEXTUAL and (found is None or ".." in parts[first:]):
            candidates.unknown = True
        for variant in found or ():
            for real in self._real(variant):
                candidates.add(paths.names_of(real), globs=True, named=True)
        rest = "/".join(parts[first:])
        spelled = paths.normal("/".join(parts[:first]) or "/")
        for folder in {spelled, *self._real(spelled)}:
            candidates.add(paths.names_of(paths.normal(f"{folder}/{rest}")), globs=True, named=True)

    def _real(self, path: str) -> Iterator[str]:
        """Yield the real path and its other names. Handles are skipped: this process has others than the command."""
        if self._file_system.resolve is None or len(path) > _MAX_PATH or _HANDLES.fullmatch(path):
            return
        real = self._file_system.resolve(path)
        yield real
        if self._file_system.aliases is not None:
            yield from self._file_system.aliases(real)

    def _add_embedded(self, candidates: _Candidates, text: str) -> None:
        """Add the paths in the text of a script, a URL or a here-document."""
        for piece in dict.fromkeys(_PIECE.findall(text)):
            piece = _expand_home(piece, self._file_system.home)
            slash = piece.find("/")
            if slash < 0 and piece not in (".", ".."):
                if self._workspace is not None and not _GLOB.search(piece):
                    candidates.add((*self._workspace, piece))
                continue
            begin = piece[slash:] if slash > 0 else piece
            folders = self._folders or (self._file_system.workspace or "",)
            for path in dict.fromkeys((begin, *(f"{folder}/{piece}" for folder in folders))):
                self._budget.left -= 1
                if self._budget.left < 0:
                    candidates.unknown = True
                    return
                for real in self._real(path):
                    candidates.add(paths.names_of(real))
            if slash > 0:
                candidates.add(paths.names_of(paths.normal(piece[slash:])), globs=bool(_GLOB.search(piece, slash)))
            if slash == 0:
                candidates.add(paths.names_of(paths.normal(piece)), globs=bool(_GLOB.search(piece)))
            elif self._workspace is not None and not _GLOB.search(piece):
                candidates.add(paths.names_of(paths.normal(f"{self._file_system.workspace}/{piece}")))

    @cached_property
    def _workspace(self) -> tuple[str, ...] | None:
        return None if self._file_system.workspace is None else paths.names_of(self._file_system.workspace)


def working_folders(commands: Iterable[Sequence[Token]], file_system: FileSystem) -> tuple[str, ...] | None:
    """Return the folders a relative path of the line may start from: the workspace, and each one it changes to."""
    folders = [file_system.workspace or "/"]
    for words in commands:
        if not words or words[0].value not in _CHANGE_FOLDER:
            continue
        word = _destination(words)
        destination = (
            _expanded(word, file_system.home)
            if word is not None
            else file_system.home
            if words[0].value == "cd"
            else None
        )
        # An unknown folder makes the `cd` itself match as MAYBE, and with it the line.
        if (
            destination is None
            or UNKNOWN in destination
            or destination == "-"
            or (words[0].value != "cd" and destination.startswith(("-", "+")))
        ):
            continue
        for folder in tuple(folders):
            reached = paths.normal(destination if destination.startswith("/") else f"{folder}/{destination}")
            # In a loop `..` may be applied any number of times.
            above = PurePosixPath(reached).parents if ".." in destination.split("/") else ()
            for reachable in (reached, *map(str, above)):
                if reachable not in folders and len(folders) <= _MAX_FOLDERS:
                    folders.append(reachable)
    return tuple(folders)


def _destination(words: Sequence[Token]) -> Token | None:
    """Return the argument of a `cd`; None if it has only options."""
    rest = iter(words[1:])
    for word in rest:
        if word.value == "--":
            return next(rest, None)
        if not word.value.startswith("-") or word.value == "-":
            return word
    return None


def _expanded(word: Token, home: str | None) -> str:
    """Return the word with its leading tilde replaced by the home folder, if known."""
    if word.home and home is not None and word.value[1:2] in ("", "/"):
        return home + word.value[1:]
    return word.value


def _expand_home(text: str, home: str | None) -> str:
    """Expand a quoted tilde, which the shell leaves alone but many programs expand."""
    return home + text[1:] if home is not None and (text == "~" or text.startswith("~/")) else text
