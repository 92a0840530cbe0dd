"""Programs that build, test and install what a project is made of."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Literal

from clew.permissions.programs.table import ANY, Program, program
from clew.permissions.tokens import names

__all__ = ["BUILDING"]

# A name in the registry, with a version: no path, no address, no alias for something else.
_PACKAGE: Final = re.compile(r"(?:@[\w.-]+/)?[\w][\w.-]*(?:\[[\w,.-]+\])?(?:[=<>~!@][\w.^~*<>=!@,-]*)?")

_NPM: Final = program(
    """-s --silent -q --quiet -d --verbose -v --version -h --help --json -l --long --parseable -p -a --all --loglevel=
    -w= --workspace= -ws --workspaces --include-workspace-root --if-present --ignore-scripts --no-audit --no-fund
    --audit --fund --no-progress --progress --color? --no-color --depth= --omit= --include= --production --only=
    --offline --prefer-offline --prefer-online --legacy-peer-deps --force -f --strict-peer-deps --no-save --save -S
    -D --save-dev -E --save-exact -O --save-optional -P --save-prod --package-lock-only --no-package-lock --dry-run
    --no-optional --dd --yes -y""",
    runs="""--script-shell= --shell= --node-options= --git= --editor= --viewer= --browser= -c= --call= --init-module=
        --onload-script= --node-gyp= --python= --package= --foreground-scripts --scripts-prepend-node-path=
        --npm-path=""",
    loads="""--prefix= -C= --userconfig= --globalconfig= --registry= --reg= -reg= --cafile= --ca= --cache= --location=
        -L= -g --global --proxy= --https-proxy= --noproxy= --local-address= --scope= --tag= --auth-type= --otp=
        --access= --ignore-prepublish --unsafe-perm --user= --tmp= --umask= --key= --cert= --workspaces-update
        --replace-registry-host= --install-links --install-strategy= --global-style --before= --engine-strict
        --allow-same-version""",
)


def _npm(
    danger: str = "",
    operand: re.Pattern[str] | None = None,
    *,
    passes: Literal["", "asked", "free"] = "",
    most: int | None = None,
) -> Program:
    return program(
        base=_NPM,
        danger=danger,
        operand=operand or ANY,
        open_end=operand is None,
        passes=passes,
        most=most,
        enough=True,
    )


_INSTALL: Final = _npm("runs", _PACKAGE, most=0)
_SCRIPT: Final = _npm(passes="asked")
_PNPM: Final[Mapping[str, Program]] = {
    "audit": _npm("runs", most=0),
    **dict.fromkeys(names("bin ci dedupe doctor explain fund help info list ls outdated ping prune root"), _npm()),
    **dict.fromkeys(names("search show view whoami why"), _npm()),
    **dict.fromkeys(names("build lint restart run run-script start stop t test tst"), _SCRIPT),
    **dict.fromkeys(names("add i install"), _INSTALL),
    **dict.fromkeys(names("remove uninstall"), _npm("writes")),
    "update": _npm("runs", most=0),
    "version": _npm("writes", most=0),
}
# `yarn x` and `pnpm x` run a script or a program of that name, so only what is known is not asked about.
_SHORT: Final = {
    name: _PNPM[name] for name in names("audit install add list outdated run test why remove build lint start info")
}
_CARGO: Final = program(
    """-q --quiet -v --verbose -vv --offline --locked --frozen --color= -h --help -V --version --list -p= --package=
    --workspace --all --exclude= --lib --bin= --bins --example= --examples --test= --tests --bench= --benches
    --all-targets -F= --features= --all-features --no-default-features -r --release --profile= -j= --jobs=
    --keep-going --no-run --no-fail-fast --doc --message-format= --timings --no-deps --document-private-items
    --target= --check --depth= -i= --invert= -e= --edges= -d --duplicates --format= --prefix= --ignore-rust-version
    --dev -n --dry-run""",
    runs="-Z= --config= --fix",
    loads="--manifest-path= -C= --lockfile-path=",
    writes="""--target-dir= --artifact-dir= --out-dir= --build-plan --unit-graph --allow-dirty --allow-staged --open
        --root= --git= --path=""",
    operand=re.compile(r"(?!\+)"),
    shortens=False,
)


def _cargo(danger: str = "", *, passes: Literal["", "asked", "free"] = "") -> Program:
    return program(base=_CARGO, danger=danger, passes=passes, shortens=False, operand=_CARGO.operand)


_GO: Final = program(
    """-a -n -p= -race -msan -asan -v -work -x -json -short -run= -count= -timeout= -failfast -bench= -benchmem
    -benchtime= -cover -covermode= -coverpkg= -cpu= -list= -parallel= -shuffle= -skip= -fuzz= -fuzztime= -tags=
    -trimpath -buildvcs= -mod= -e -f= -m -u -t -deps -find -test -compiled -versions -retracted -reuse= -c -changed
    -h -help -l -s -w? -d -go= -all -src -short -cmd -i""",
    runs="-exec= -toolexec= -vettool= -ldflags= -gcflags= -asmflags= -gccgoflags= -compiler= -installsuffix=",
    loads="-C= -modfile= -overlay= -pkgdir= -pgo=",
    writes="""-o= -coverprofile= -cpuprofile= -memprofile= -blockprofile= -mutexprofile= -trace= -outputdir=
        -fuzzcachedir= -modcacherw""",
    single=True,
    operand_danger="loads",
)


def _go(danger: str = "", *, stops: bool = False, options: bool = True) -> Program:
    return program(base=_GO if options else None, danger=danger, stops=stops, single=True)


_PIP: Final = program(
    """-h --help -v --verbose -V --version -q --quiet --no-input --no-color --disable-pip-version-check --retries=
    --timeout= --no-cache-dir --isolated --require-virtualenv -o --outdated -u --uptodate -l --local --format= -f
    --files --all --not-required --exclude= --include-editable --exclude-editable -U --upgrade --upgrade-strategy=
    --no-deps --pre --dry-run --no-warn-script-location --only-binary= --progress-bar= -y --yes --no-warn-conflicts
    --require-hashes --prefer-binary --user --force-reinstall -I --ignore-installed --root-user-action= --path=""",
    runs="""--python= --global-option= --build-option= --config-settings= -C= --no-build-isolation --use-pep517
        --no-binary= -e= --editable=""",
    loads="""-i= --index-url= --extra-index-url= --no-index --find-links= -r= --requirement= -c= --constraint=
        --trusted-host= --cert= --client-cert= --proxy= --cache-dir= --keyring-provider= --use-feature=
        --use-deprecated= --exists-action= --break-system-packages --abi= --platform= --implementation=
        --python-version= --group=""",
    writes="--log= --target= -t= --root= --prefix= --src= -d= --dest= -w= --wheel-dir= --report= --download=",
)


def _pip(danger: str = "", operand: re.Pattern[str] | None = None) -> Program:
    return program(base=_PIP, danger=danger, operand=operand or ANY, open_end=operand is None)


BUILDING: Final[Mapping[str, Program]] = {
    "bun": program(
        commands={
            "run": program(passes="asked"),
            "test": program(),
            "install": program(most=0, danger="runs", enough=True),
        }
    ),
    "cargo": program(
        base=_CARGO,
        operand=_CARGO.operand,
        shortens=False,
        commands={
            "bench": _cargo(passes="asked"),
            "build": _cargo(),
            "b": _cargo(),
            "check": _cargo(),
            "c": _cargo(),
            "clean": _cargo(),
            "clippy": _cargo(passes="asked"),
            "doc": _cargo(),
            "fetch": _cargo(),
            "fmt": _cargo(passes="asked"),
            "metadata": _cargo(),
            "run": _cargo(passes="free"),
            "r": _cargo(passes="free"),
            "search": _cargo(),
            "test": _cargo(passes="free"),
            "t": _cargo(passes="free"),
            "tree": _cargo(),
            "update": _cargo(),
            "verify-project": _cargo(),
            "add": _cargo("loads"),
            "install": _cargo("runs"),
            "version": _cargo(),
            "help": _cargo(),
        },
    ),
    "deno": program(commands={"check": program(), "fmt": program("--check"), "info": program(), "lint": program()}),
    "go": program(
        single=True,
        plain="-h",
        commands={
            "build": _go(),
            "doc": _go(),
            "env": program("-json -changed", loads="-w -u", single=True),
            "fmt": _go(),
            "get": _go("loads"),
            "help": _go(),
            "install": _go("runs"),
            "list": _go(),
            "mod": program(
                single=True,
                commands={
                    "download": _go(),
                    "graph": _go(),
                    "tidy": _go(),
                    "verify": _go(),
                    "why": _go(),
                    "vendor": _go(),
                },
            ),
            "run": _go("runs", stops=True),
            "test": _go(),
            "version": _go(),
            "vet": _go(),
        },
    ),
    "make": program(
        """-b -m -B --always-make -d --debug? -h --help -i --ignore-errors -k --keep-going -l? --load-average? -n
        --just-print --dry-run --recon -O? --output-sync? -q --question -r --no-builtin-rules -R
        --no-builtin-variables -s --silent --quiet --no-silent -S --no-keep-going --stop --trace -v --version -w
        --print-directory --no-print-directory --warn-undefined-variables -j? --jobs? -p --print-data-base
        --shuffle?""",
        runs="--eval= -E= --file= -f= --makefile= -e --environment-overrides",
        loads="""-C= --directory= -I= --include-dir= -o= --old-file= --assume-old= -W= --what-if= --new-file=
            --assume-new= --jobserver-auth= --jobserver-style=""",
        writes="-t --touch",
        operand=re.compile(r"[^=]*"),
        open_end=False,
    ),
    "npm": program(base=_NPM, commands=_PNPM),
    "npx": program(
        "-y --yes --no-install --no -q --quiet --silent -v --version -h --help --offline --prefer-offline",
        runs="-c= --call= -p= --package= --shell= --script-shell= -n= --node-arg= --node-options=",
        loads="--prefix= --userconfig= --registry= --cache= -w= --workspace= --ignore-existing",
        stops=True,
        most=0,
        danger="runs",
        delegates="eslint tsc",
    ),
    "pip": program(
        base=_PIP,
        commands={
            "check": _pip(),
            "debug": _pip(),
            "freeze": _pip(),
            "help": _pip(),
            "index": _pip(),
            "inspect": _pip(),
            "install": _pip("runs", _PACKAGE),
            "list": _pip(),
            "search": _pip(),
            "show": _pip(),
            "uninstall": _pip("writes"),
        },
    ),
    "pnpm": program(base=_NPM, commands=_SHORT),
    "yarn": program(base=_NPM, commands=_SHORT),
    "uv": program(
        "-q --quiet -v --verbose -V --version -h --help --offline --no-progress",
        loads="--config-file= --directory= --project= --cache-dir= --native-tls --python=",
        shortens=False,
        commands={
            "lock": program("--check --locked"),
            "sync": program("""--frozen --locked --all-extras --dev --no-dev --extra= --group= --all-groups"""),
            "tree": program("--depth= --frozen --locked"),
            "version": program(),
            "pip": program(
                commands={"list": _pip(), "show": _pip(), "freeze": _pip(), "check": _pip(), "tree": _pip()}
            ),
        },
    ),
}
