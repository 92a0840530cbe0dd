"""Measures a source tree: its size, its imports and its largest parts.

``python tools/house.py [TREE]`` prints the measurements of a package, ``src/clew`` by default, so that two checkouts
can be compared. Only the source is read; nothing is imported.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

FACADE: Final = "session.api"
"""The package of the engine, below the root."""
_LAYOUT: Final = frozenset(
    {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
)
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Module:
    """A file: its lines, classes and private functions, and the modules of the package that it imports."""

    name: str
    lines: int
    code_lines: int
    comment_lines: int
    public_methods: Mapping[str, int]
    """The number of public methods of each class."""
    private_uses: Mapping[str, int]
    """The number of mentions of each private function or method in the module."""
    imports: frozenset[str]
    """Including those for type checkers alone and those inside functions."""


def read_tree(root: Path) -> list[Module]:
    """Return every module below ``root``, the folder of a package, by name."""
    paths = module_paths(root)
    return [_read_module(name, path, paths) for name, path in sorted(paths.items())]


def module_paths(root: Path) -> dict[str, Path]:
    """Return the file of every module below ``root``, by name."""
    return {module_name(root, path): path for path in sorted(root.rglob("*.py"))}


def module_name(root: Path, path: Path) -> str:
    """Return the dotted name of a file below ``root``."""
    parts = (root.name, *path.relative_to(root).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _read_module(name: str, path: Path, known: Mapping[str, Path]) -> Module:
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source, filename=str(path))
    code: set[int] = set()
    comments: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            comments.add(token.start[0])
        elif token.type not in _LAYOUT:
            code.update(range(token.start[0], token.end[0] + 1))
    code.difference_update(_docstring_lines(tree))
    mentions = Counter(
        node.id if isinstance(node, ast.Name) else node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Name | ast.Attribute)
    )
    return Module(
        name=name,
        lines=len(source.splitlines()),
        code_lines=len(code),
        comment_lines=len(comments),
        public_methods={
            node.name: sum(isinstance(item, _FUNCTIONS) and not item.name.startswith("_") for item in node.body)
            for node in ast.walk(tree)
            if isinstance(node, ast.ClassDef)
        },
        private_uses={
            node.name: mentions[node.name]
            for node in ast.walk(tree)
            if isinstance(node, _FUNCTIONS) and node.name.startswith("_") and not node.name.endswith("__")
        },
        imports=frozenset(_imports(name, path, tree, known)) - {name},
    )


def _docstring_lines(tree: ast.Module) -> Iterator[int]:
    for node in ast.walk(tree):
        match node:
            case ast.Module() | ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                match node.body[:1]:
                    case [ast.Expr(value=ast.Constant(value=str()), lineno=first, end_lineno=int() as last)]:
                        yield from range(first, last + 1)


def _imports(name: str, path: Path, tree: ast.Module, known: Mapping[str, Path]) -> Iterator[str]:
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, *filter(None, [node.module])])
            for alias in node.names:
                # A name imported from a package is one of its modules or is defined in the package itself.
                found = f"{base}.{alias.name}"
                if found in known or base in known:
                    yield found if found in known else base


def find_cycles(modules: list[Module]) -> list[list[str]]:
    """Return the groups of modules that import one another in a cycle, each sorted; the largest first."""
    direct = {module.name: module.imports for module in modules}
    reachable: dict[str, set[str]] = {}
    for name in direct:
        reachable[name] = set()
        ahead = [*direct[name]]
        while ahead:
            if (next_ := ahead.pop()) not in reachable[name]:
                reachable[name].add(next_)
                ahead += direct[next_]
    groups = {
        frozenset(other for other in reachable[name] if name in reachable[other])
        for name in direct
        if name in reachable[name]
    }
    return sorted((sorted(group) for group in groups), key=lambda group: (-len(group), group))


def describe(modules: list[Module]) -> Iterator[str]:
    """Yield the measurements, one per line."""
    lines = sum(module.lines for module in modules)
    comments = sum(module.comment_lines for module in modules)
    private = sum(len(module.private_uses) for module in modules)
    once = sum(uses == 1 for module in modules for uses in module.private_uses.values())
    largest = max(modules, key=lambda module: module.lines)
    classes = sorted(
        (count, f"{kind} in {module.name}") for module in modules for kind, count in module.public_methods.items()
    )
    cycles = find_cycles(modules)
    yield f"modules                {len(modules)}"
    yield f"lines                  {lines:,}"
    yield f"lines of code          {sum(module.code_lines for module in modules):,}"
    yield f"comment lines          {comments:,} ({comments / lines:.1%} of lines)"
    yield f"largest module         {largest.name}: {largest.lines} lines"
    yield f"largest classes        {', '.join(f'{name}: {count}' for count, name in classes[:-4:-1])} public methods"
    yield f"private functions      {private:,}, {once:,} of them used once ({once / private:.0%})"
    yield f"import cycles          {len(cycles)}, {sum(map(len, cycles))} modules in them"
    yield from (f"  {' · '.join(cycle)}" for cycle in cycles)
    inside = {module.name for module in modules if f"{module.name.partition('.')[2]}.".startswith(f"{FACADE}.")}
    outside = {name for module in modules if module.name in inside for name in module.imports} - inside
    yield f"engine's imports       {len(outside)} modules"


def main() -> None:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[1] / "src" / "clew"
    for line in describe(read_tree(root)):
        print(line)


if __name__ == "__main__":
    main()
