"""Interpreters, and the tools of their languages that run tests and checks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from clew.permissions.programs.table import NEAR, TESTS, Program, program

__all__ = ["LANGUAGES"]

LANGUAGES: Final[Mapping[str, Program]] = {
    "black": program(
        """--check --diff --color --no-color -q --quiet -v --verbose -S --skip-string-normalization -C -l=
        --line-length= -t= --target-version= --preview --fast --safe --exclude= --include= --extend-exclude=
        --force-exclude= --version -h --help -W= --workers= --pyi --line-ranges=""",
        runs="-c= --code=", loads="--config= --stdin-filename= --required-version=",
    ),
    "eslint": program(
        """--ext= --quiet --max-warnings= --no-eslintrc --color --no-color --no-ignore
        --report-unused-disable-directives --cache --debug -h --help -v --version --no-error-on-unmatched-pattern
        --env= --global= --rule=""",
        runs="""-c= --config= --rulesdir= --resolve-plugins-relative-to= --parser= --plugin= -f= --format=
            --parser-options= --flag=""",
        writes="--fix --fix-dry-run --fix-type= -o= --output-file= --cache-location= --cache-file= --init",
        loads="--ignore-path= --ignore-pattern= --stdin --stdin-filename=",
        shortens=False,
        operand=NEAR, open_end=False,
    ),
    "lua": program("-v -i -W -E", runs="-e= -l=", stops=True, shortens=False),
    "mypy": program(
        """--strict -v --verbose -V --version -h --help --ignore-missing-imports --no-incremental --namespace-packages
        --explicit-package-bases --check-untyped-defs --disallow-untyped-defs --warn-unused-ignores
        --show-error-codes --pretty --no-error-summary --show-error-context --show-column-numbers --python-version=
        --platform= -p= --package= -m= --module= --exclude= --follow-imports= --no-color-output
        --disable-error-code= --enable-error-code= --no-strict-optional --soft-error-limit= --warn-return-any
        --install-types --non-interactive --dmypy""",
        runs="-c= --command= --python-executable= --install-types --custom-typing-module= --custom-typeshed-dir=",
        loads="--config-file= --cache-dir= --shadow-file=", writes="""--any-exprs-report= --cobertura-xml-report=
            --html-report= --linecount-report= --linecoverage-report= --lineprecision-report= --txt-report=
            --xml-report= --xslt-html-report= --xslt-txt-report= --junit-xml=""",
        operand=re.compile(r"(?!@)"), operand_danger="loads",
    ),
    "node": program(
        """-v --version -h --help -c --check --test --watch --trace-warnings --trace-deprecation --no-warnings
        --enable-source-maps --throw-deprecation --unhandled-rejections= --max-old-space-size= --stack-trace-limit=
        --test-name-pattern= --test-only --test-concurrency= --test-timeout= --experimental-strip-types
        --experimental-test-coverage""",
        runs="""-e= --eval= -p= --print= -r= --require= --import= -i --interactive --loader= --experimental-loader=
            --inspect? --inspect-brk? --inspect-wait? --test-reporter= --run= --build-snapshot
            --experimental-config-file= --openssl-config= --snapshot-blob=""",
        loads="""--env-file= --env-file-if-exists= -C= --conditions= --input-type= --icu-data-dir= --title=
            --policy-integrity= --experimental-policy=""",
        writes="""--cpu-prof --cpu-prof-dir= --cpu-prof-name= --heap-prof --heap-prof-dir= --diagnostic-dir=
            --report-dir= --report-directory= --redirect-warnings= --trace-event-file-pattern=
            --test-reporter-destination= --prof --watch-path= --disable-warning= --experimental-sea-config=
            --report-on-signal --report-filename=""",
        stops=True, shortens=False, bundles=False,
    ),
    "perl": program(
        "-w -W -T -t -v -V -c -u -h -X -U",
        runs="-e= -E= -M= -m= -I= -x? -d? -D? -n -p -a -F= -l? -0? -i? -s -S -C?", stops=True, shortens=False,
    ),
    "php": program("-v -h -l= -m -i -q -C -n --version --help --ini",
        runs="-r= -R= -B= -E= -F= -f= -d= -c= -z= -S= -t= -a -e -s -w",
        stops=True,
        shortens=False),
    "pytest": program(
        """-q --quiet -v --verbose -vv -vvv -x --exitfirst -s -k= -m= -l --showlocals --no-showlocals --maxfail= --lf
        --last-failed --ff --failed-first --nf --new-first --sw --stepwise --stepwise-skip --tb= --durations=
        --durations-min= --co --collect-only -r= --color= --disable-warnings --disable-pytest-warnings -W=
        --strict-markers --strict-config --strict --no-header --no-summary --capture= --show-capture= --full-trace
        --fixtures --fixtures-per-test --markers --version -V -h --help --setup-show --setup-plan --setup-only
        --continue-on-collection-errors --deselect= --ignore= --ignore-glob= --runxfail --verbosity= --assert=
        --code-highlight= --log-cli-level= --log-level= --cache-show? --cache-clear --lfnf= --no-cov --cov? -n=
        --numprocesses= --dist= --timeout= --timeout-method= --reruns= --hypothesis-seed= --hypothesis-profile=
        --hypothesis-show-statistics --benchmark-skip --benchmark-only --asyncio-mode= --randomly-seed= -ra -rs -rA
        --cov-fail-under= --cov-branch --no-cov-on-fail --cov-append --doctest-modules --snapshot-details
        --exitfirst""",
        runs="-p= --pdb --pdbcls= --trace --import-mode= --pyargs --doctest-glob= --tx= --rsyncdir= --px=",
        loads="""-c= --config-file= --rootdir= --confcutdir= -o= --override-ini= --cov-config= --noconftest
            --keep-duplicates --collect-in-virtualenv""",
        writes="""--basetemp= --junitxml= --junit-xml= --junit-prefix= --resultlog= --result-log= --log-file= --debug?
            --cov-report= --report-log= --html= --self-contained-html --snapshot-update --benchmark-json=
            --benchmark-save= --benchmark-storage= --log-file-mode= --inline-snapshot=""",
        sends="--pastebin=",
        values={"-W": re.compile(r"default|error|always|module|once|ignore"), "-p": re.compile(r"no:[\w.-]+")},
        operand=TESTS, operand_danger="loads", open_end=False,
    ),
    "python": program(
        "-b -B -d -E -h --help -I -O -OO -P -q -s -S -u -v -V --version -VV -x -W= -?",
        runs="-c= -i -X= --check-hash-based-pycs=",
        values={"-W": re.compile(r"default|error|always|module|once|ignore")},
        stops=True, shortens=False, module_option="-m", delegates="black mypy pip pytest ruff unittest",
    ),
    "ruby": program("-w -v -c -h --version --help -W? -y",
        runs="-e= -r= -I= -n -p -a -l -i? -x? -s -S -C= -E= -F= -T? -d -0? -K? --jit? --enable= --disable=",
        stops=True,
        shortens=False),
    "ruff": program(
        shortens=False, bundles=True,
        commands={
            "check": program(
                """-q --quiet -v --verbose -s --silent --select= --ignore= --extend-select= --extend-ignore= --diff
                --no-fix -w --watch --statistics --show-files --show-settings -e --exit-zero --exit-non-zero-on-fix
                --preview --no-preview --target-version= --output-format= --exclude= --extend-exclude= --no-cache -n
                --line-length= -h --help --show-fixes --respect-gitignore --force-exclude --isolated
                --per-file-ignores=""",
                writes="--fix --unsafe-fixes --fix-only --add-noqa -o= --output-file= --cache-dir=",
                loads="--config= --stdin-filename= --extension=",
                shortens=False,
            ),
            "format": program(
                """-q --quiet -v --verbose --check --diff --preview --line-length= --target-version= --exclude= -h
                --help --no-cache -n --isolated --force-exclude""",
                loads="--config= --stdin-filename= --cache-dir= --extension= --range=", shortens=False,
            ),
            "rule": program("--all --output-format="), "version": program("--output-format="), "linter": program(),
        },
    ),
    "tsc": program(
        """--noEmit --watch -w -v --version -h --help --strict --pretty --skipLibCheck --listFiles --showConfig
        --noEmitOnError --incremental --target= -t= --module= -m= --jsx= --lib=""",
        loads="-p= --project= -b --build --plugins= --init --rootDir= --baseUrl= --typeRoots=",
        writes="""--outDir= --outFile= --declarationDir= --tsBuildInfoFile= --generateTrace= --generateCpuProfile= -d
            --declaration --sourceMap""",
        operand=re.compile(r"(?!@)"), operand_danger="loads", bundles=False, shortens=False,
    ),
    "unittest": program("""-v --verbose -q --quiet -f --failfast -c --catch -b --buffer -k= --locals -h --help
    --durations=""",
        loads="-s= --start-directory= -t= --top-level-directory= -p= --pattern="),
}  # fmt: skip
