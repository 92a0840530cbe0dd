"""Programs that manage a machine, and those through which other programs run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from clew.permissions.programs.table import Program, program
from clew.permissions.tokens import names

__all__ = ["SYSTEM"]

_LISTING: Final = program(
    """-a --all -q --quiet --no-trunc -f= --filter= --format= -n= --last= -l --latest -s --size --digests -t
    --timestamps --tail= --since= --until= --details --follow --type= --help --no-stream -H --human""",
)
_COMPOSE: Final = program("""-a --all -q --quiet --services --format= --filter= --tail= --follow -f -t --timestamps
    --no-color --images --volumes --hash=""")

SYSTEM: Final[Mapping[str, Program]] = {
    "apt": program(
        commands={
            name: program(
                "-a --all-versions --installed --upgradable -n --names-only -q --quiet",
                loads="-o= -c= --option= --config-file=",
            )
            for name in ("list", "policy", "search", "show", "depends", "rdepends", "showsrc", "madison", "pkgnames")
        },
    ),
    "docker": program(
        "-v --version --help -D --debug -l= --log-level=",
        loads="-H= --host= -c= --context= --config= --tlscacert= --tlscert= --tlskey=",
        commands={
            **dict.fromkeys(
                (
                    "ps",
                    "images",
                    "logs",
                    "inspect",
                    "info",
                    "version",
                    "top",
                    "port",
                    "stats",
                    "diff",
                    "history",
                    "events",
                ),
                _LISTING,
            ),
            "compose": program(
                commands=dict.fromkeys(("ps", "logs", "images", "config", "ls", "top", "version"), _COMPOSE),
                loads="-f= --file= -p= --project-name= --env-file= --project-directory= --profile=",
            ),
            "container": program(commands=dict.fromkeys(("ls", "list", "inspect", "logs", "top", "stats"), _LISTING)),
            "image": program(commands=dict.fromkeys(("ls", "list", "inspect", "history"), _LISTING)),
            "network": program(commands=dict.fromkeys(("ls", "inspect"), _LISTING)),
            "volume": program(commands=dict.fromkeys(("ls", "inspect"), _LISTING)),
        },
    ),
    # The wrapper's reading says what they run; these are what they may be told beside it.
    "env": program(
        "-i - --ignore-environment -0 --null -v --debug",
        runs="-S= --split-string=",
        loads="-u= --unset= -C= --chdir=",
        stops=True,
        shortens=False,
    ),
    # GitHub's: what it runs by itself is its aliases and extensions.
    "gh": program(
        commands={
            area: program(
                commands=dict.fromkeys(
                    names("checks diff list status view"),
                    program(
                        """-a= --assignee= -A= --author= -B= --base= -H= --head= --json= -q= --jq= -l= --label= -L=
                        --limit= -s= --state= -S= --search= -c --comments --log --log-failed --name-only --color=
                        -R= --repo= --watch --required --exit-status -b= --branch= -w= --workflow= -v --verbose -u=
                        --user=""",
                        runs="--web",
                        shortens=False,
                    ),
                ),
            )
            for area in names("issue pr repo run workflow release label")
        },
        shortens=False,
    ),
    "mysql": program(
        "-h= -u= -P= -N -B -t -E --version --table --batch",
        runs="-e= --execute= --pager= --tee= --init-command= --plugin-dir= --defaults-file=",
        fed=1_000,
        quiet="--version -e --execute",
    ),
    "psql": program(
        "-h= -U= -p= -d= -l -V --version --list --host= --username= --port= --dbname= -w -X -q -t -A -x",
        runs="-c= --command= -f= --file= -v= --set= -P= --pset= -W",
        writes="-o= --output= -L= --log-file=",
        fed=1_000,
        quiet="-l --list -V --version -c --command -f --file",
    ),
    "sqlite3": program(
        """-header -noheader -json -csv -column -line -list -box -table -markdown -readonly -version -help -html
        -quote -separator=""",
        runs="-cmd= -init= -interactive -unsafe-testing -vfs= -A -ar -append -zip -deserialize",
        operand=re.compile(
            r"(?!-|\||.*(?:^|\n)[^\S\n]*\.|(?i:.*(?:writefile|load_extension|edit|attach|vacuum|fts3_tokenizer)\b)).*",
            re.DOTALL,
        ),
        first=re.compile(r"(?!-|\|)[^\0]*"),
        open_end=False,
        single=True,
        fed=2,
        quiet="-version --version -help --help",
    ),
    "systemctl": program(
        """-a --all -l --full -n= --lines= --no-pager --plain -q --quiet --type= -t= --state= --failed --user --system
        -o= --output= -p= --property= --value --no-legend --version --help -h""",
        loads="-H= --host= -M= --machine= --root= --image=",
        runs="--force -f --now",
        commands={
            name: program(
                """-a --all -l --full -n= --lines= --no-pager --plain -q --quiet --type= -t= --state= --failed --user
                --system -o= --output= -p= --property= --value --no-legend""",
                loads="-H= --host= -M= --machine= --root= --image=",
            )
            for name in (
                "status",
                "show",
                "list-units",
                "list-unit-files",
                "list-timers",
                "is-active",
                "is-enabled",
                "is-failed",
                "cat",
                "list-dependencies",
                "get-default",
            )
        },
    ),
    "journalctl": program(
        """-u= --unit= -n? --lines? -f --follow -b? --boot? -k --dmesg -p= --priority= -S= --since= -U= --until=
        --no-pager -o= --output= -r --reverse -x --catalog -a --all -q --quiet -e --pager-end -t= --identifier= -g=
        --grep= --list-boots --disk-usage --user --system -h --help --version""",
        writes="""--vacuum-size= --vacuum-time= --vacuum-files= --rotate --flush --sync --cursor-file= --setup-keys
            --update-catalog --relinquish-var""",
        loads="-D= --directory= --file= --root= --image= -M= --machine=",
        operand=re.compile(r"(?!/)"),
    ),
    "kubectl": program(
        commands=dict.fromkeys(
            ("get", "describe", "logs", "top", "explain", "version", "api-resources", "cluster-info"),
            program(
                """-n= --namespace= -A --all-namespaces -o= --output= -l= --selector= -w --watch --show-labels --tail=
                -f --follow --since= -c= --container= -p --previous --sort-by= --field-selector= --no-headers
                --client --short -h --help""",
                loads="""--kubeconfig= --context= --cluster= -s= --server= --token= --user= --as= -k= --kustomize=
                    --filename= --template= --cache-dir= --profile= --profile-output= --raw=""",
                values={"-o": re.compile(r"json|yaml|wide|name"), "--output": re.compile(r"json|yaml|wide|name")},
                value_danger="loads",
                shortens=False,
            ),
        ),
        loads="--kubeconfig= --context= -n= --namespace= --cluster= -s= --server= --token= --user=",
        shortens=False,
    ),
}
