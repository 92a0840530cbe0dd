"""What git does with its arguments. Whatever makes it run another program, write elsewhere or change its settings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from clew.permissions.programs.table import NEAR, Program, program

__all__ = ["GIT"]

# A transport helper (`ext::sh -c …`) is a program; a path is another repository, with hooks of its own.
_REMOTE: Final = re.compile(r"(?!-)(?!.*::)[^\0]*")
_PUSHED: Final = re.compile(r"(?!-)(?!.*::)(?:https?://|ssh://|git@[\w.-]+:|[\w-][\w.-]*$)[^\0]*")
_STRATEGY: Final = re.compile(r"ort|ours|recursive|resolve|subtree|octopus")


def _git(plain: str = "", **more: object) -> Program:
    return program(plain, negates=True, **more)  # type: ignore[arg-type]


_DIFF: Final = _git(
    """-p -u --patch -s --no-patch -U? --unified? --output-indicator-new= --output-indicator-old=
    --output-indicator-context= --raw --patch-with-raw --indent-heuristic --minimal --patience --histogram
    --anchored= --diff-algorithm= --stat? --stat-width= --stat-name-width= --stat-graph-width= --stat-count=
    --compact-summary --numstat --shortstat -X? --dirstat? --cumulative --dirstat-by-file? --summary
    --patch-with-stat -z --name-only --name-status --submodule? --color? --color-moved? --color-moved-ws=
    --word-diff? --word-diff-regex= --color-words? --no-renames --rename-empty --check --ws-error-highlight=
    --full-index --binary --abbrev? -B? --break-rewrites? -M? --find-renames? -D --irreversible-delete -C?
    --find-copies? --find-copies-harder -l= --diff-filter= -S= -G= --find-object= --pickaxe-all --pickaxe-regex -O=
    --skip-to= --rotate-to= -R --relative? -a --text --ignore-cr-at-eol --ignore-space-at-eol -b
    --ignore-space-change -w --ignore-all-space --ignore-blank-lines -I= --ignore-matching-lines=
    --inter-hunk-context= -W --function-context --exit-code --quiet --ignore-submodules? --src-prefix= --dst-prefix=
    --no-prefix --default-prefix --line-prefix= --ita-invisible-in-index --ita-visible-in-index --follow -c --cc
    --combined-all-paths -t -r -m --no-ext-diff --no-textconv""",
    runs="--ext-diff --textconv",
    writes="--output=",
)
_REVISIONS: Final = """-n= --max-count= --skip= --since= --after= --until= --before= --since-as-filter= --author=
    --committer= --grep-reflog= --grep= --all-match --invert-grep -i --regexp-ignore-case --basic-regexp -E
    --extended-regexp -F --fixed-strings -P --perl-regexp --remove-empty --merges --no-merges --min-parents=
    --max-parents= --no-min-parents --no-max-parents --first-parent --exclude-first-parent-only --not --all
    --branches? --tags? --remotes? --glob= --exclude= --exclude-hidden= --reflog --alternate-refs --single-worktree
    --ignore-missing --stdin --bisect --cherry-mark --cherry-pick --left-only --right-only --cherry -g
    --walk-reflogs --merge --boundary --simplify-by-decoration --show-pulls --full-history --dense --sparse
    --simplify-merges --ancestry-path? --date-order --author-date-order --topo-order --reverse --no-walk? --do-walk
    --pretty? --format= --abbrev-commit --no-abbrev-commit --oneline --encoding= --expand-tabs? --notes? --no-notes
    --show-notes? --standard-notes --show-signature --relative-date --date= --parents --children --left-right
    --graph --no-graph --show-linear-break? --source --use-mailmap --mailmap --clear-decorations --decorate?
    --no-decorate --decorate-refs= --decorate-refs-exclude= --log-size -L= -q --count --max-age= --min-age=
    --diff-merges= --dd --remerge-diff --no-diff-merges"""
_LOG: Final = _git(_REVISIONS, base=_DIFF, numbers=True)
_PATHSPECS: Final = "--pathspec-from-file= --pathspec-file-nul"
_MERGING: Final = """--stat --log? --squash --commit --no-commit --edit --no-edit --cleanup= --ff --no-ff --ff-only
    --signoff --verify-signatures --autostash --allow-unrelated-histories --progress -v --verbose -q --quiet
    --no-verify --verify -X= --strategy-option="""
_FETCHING: Final = """-v --verbose -q --quiet --all --set-upstream -a --append -f --force -t --tags -n --prefetch -p
    --prune -P --prune-tags --recurse-submodules? --dry-run --write-fetch-head -k --keep -u --update-head-ok
    --progress --depth= --shallow-since= --shallow-exclude= --deepen= --unshallow --refetch --update-shallow
    --refmap= -4 --ipv4 -6 --ipv6 --negotiation-tip= --filter= --auto-maintenance --auto-gc --show-forced-updates
    --write-commit-graph --atomic -m --multiple --no-tags --porcelain"""
_SETS: Final = "change the settings by which it later runs programs"

_COMMANDS: Final[Mapping[str, Program]] = {
    "add": _git(
        f"""-n --dry-run -v --verbose -f --force -u --update --renormalize -N --intent-to-add -A --all
        --ignore-removal --refresh --ignore-errors --ignore-missing --sparse --chmod= {_PATHSPECS}""",
        runs="-i --interactive -p --patch -e --edit",
    ),
    "bisect": _git(
        commands={
            "bad": _git(), "good": _git(), "log": _git(), "new": _git(), "next": _git(), "old": _git(),
            "reset": _git(), "run": _git(danger="runs", whole=True, stops=True), "skip": _git(),
            "start": _git("--no-checkout --first-parent --term-new= --term-old= --term-bad= --term-good="),
            "terms": _git("--term-good --term-bad"),
        },
    ),
    "blame": _git(
        """--incremental -b --root --show-stats --progress --score-debug -f --show-name -n --show-number -p
        --porcelain --line-porcelain -c -t -l -s -e --show-email -w --ignore-rev= --ignore-revs-file= --color-lines
        --color-by-age --minimal -S= --contents= -C? -M? -L= --abbrev? --since= --date= --first-parent --reverse""",
    ),
    "branch": _git(
        """-v --verbose -q --quiet -t --track? -u= --set-upstream-to= --unset-upstream --color? -r --remotes
        --contains? --no-contains? --abbrev? -a --all -d --delete -D -m --move -M -c --copy -C -l --list
        --show-current --create-reflog -f --force --merged? --no-merged? --column? --sort= --points-at= -i
        --ignore-case --omit-empty --recurse-submodules --format= --no-track --no-color --no-column --no-abbrev""",
        runs="--edit-description",
    ),
    "cat-file": _git(
        """-e -p -t -s --allow-unknown-type --use-mailmap --mailmap --batch? --batch-check? -z --batch-command?
        --batch-all-objects --buffer --follow-symlinks --unordered --path=""",
        runs="--textconv --filters",
    ),
    "check-attr": _git("-a --all --cached --stdin -z --source="),
    "check-ignore": _git("-q --quiet -v --verbose --stdin -z -n --non-matching --no-index"),
    "checkout": _git(
        f"""-b= -B= -l --guess --overlay -q --quiet --recurse-submodules? --progress -m --merge --conflict= -d
        --detach -t --track? -f --force --orphan= --overwrite-ignore --ignore-other-worktrees -2 --ours -3 --theirs
        --ignore-skip-worktree-bits {_PATHSPECS}""",
        runs="-p --patch",
    ),
    "cherry": _git("-v --verbose --abbrev?"),
    "cherry-pick": _git(
        """--quit --continue --abort --skip --cleanup= -n --no-commit -e --edit -s --signoff -m= --mainline= -x --ff
        --rerere-autoupdate --strategy= -X= --strategy-option= --allow-empty --allow-empty-message
        --keep-redundant-commits --empty=""",
        runs="-S? --gpg-sign?", values={"--strategy": _STRATEGY},
    ),
    "clean": _git("-q --quiet -n --dry-run -f --force -d -e= --exclude= -x -X", runs="-i --interactive"),
    "clone": _git(
        """-v --verbose -q --quiet --progress -n --no-checkout --bare --mirror -l --local --no-hardlinks -s --shared
        --recurse-submodules? --recursive? -j= --jobs= --dissociate -o= --origin= -b= --branch= --depth=
        --shallow-since= --shallow-exclude= --single-branch --no-tags --tags --shallow-submodules -4 --ipv4 -6
        --ipv6 --filter= --also-filter-submodules --remote-submodules --sparse --reject-shallow""",
        runs="-u= --upload-pack=", loads="--template= -c= --config= --reference= --reference-if-able= --bundle-uri=",
        writes="--separate-git-dir=", first=_REMOTE, operand=NEAR, open_end=False,
    ),
    "commit": _git(
        f"""-q --quiet -v --verbose -F= --file= --author= --date= -m= --message= -c= --reedit-message= -C=
        --reuse-message= --fixup= --squash= --reset-author --trailer= -s --signoff -t= --template= -e --edit
        --cleanup= --status -a --all -i --include -o --only -n --no-verify --verify --dry-run --short --branch
        --ahead-behind --porcelain --long -z --null --amend --no-edit --allow-empty --allow-empty-message
        --no-post-rewrite -u? --untracked-files? --no-gpg-sign {_PATHSPECS}""",
        runs="-S? --gpg-sign? --interactive -p --patch",
    ),
    "config": _git(
        """--global --system --local --worktree -f= --file= --blob= --get --get-all --get-regexp --get-urlmatch -l
        --list -t= --type= --bool --int --bool-or-int --bool-or-str --path --expiry-date -z --null --name-only
        --includes --show-origin --show-scope --default= --get-color --get-colorbool --show-names --all --value=
        --url=""",
        loads="""--replace-all --add --unset --unset-all --rename-section --remove-section --fixed-value -e --edit
            --comment=""",
        most=1, danger=_SETS, first=re.compile(r"(?!edit$)"),
    ),
    "count-objects": _git("-v --verbose -H --human-readable"),
    "describe": _git(
        """--contains --debug --all --tags --long --first-parent --abbrev? --exact-match --candidates= --match=
        --exclude= --always --dirty? --broken?""",
    ),
    "diff": _git("--cached --staged --merge-base --no-index -1 -2 -3 -0 --base --ours --theirs -q", base=_DIFF),
    "diff-files": _git("-0 -1 -2 -3 -q --base --ours --theirs", base=_DIFF),
    "diff-index": _git("--cached --merge-base", base=_DIFF),
    "diff-tree": _git("--root --stdin --no-commit-id -v --pretty? --format= --merge-base --always -s", base=_DIFF),
    "fetch": _git(
        f"{_FETCHING} -j= --jobs= --negotiate-only --stdin",
        runs="--upload-pack=",
        sends="-o= --server-option=",
        first=_REMOTE, open_end=False,
    ),
    "for-each-ref": _git(
        """-s --shell -p --perl --python --tcl --count= --format= --color? --sort= --points-at= --merged? --no-merged?
        --contains? --no-contains? --ignore-case --omit-empty --exclude= --stdin""",
    ),
    "fsck": _git("""-v --verbose --unreachable --dangling --no-dangling --tags --root --full --strict
    --connectivity-only --progress"""),
    "gc": _git("-q --quiet --prune? --aggressive --auto --force --keep-largest-pack --cruft"),
    "grep": _git(
        """--cached --no-index --untracked --exclude-standard --recurse-submodules -v --invert-match -i --ignore-case
        -w --word-regexp -a --text -I -r --recursive --max-depth= -E --extended-regexp -G --basic-regexp -F
        --fixed-strings -P --perl-regexp -n --line-number --column -h -H --full-name -l --files-with-matches
        --name-only -L --files-without-match -z --null -o --only-matching -c --count --color? --break --heading -C=
        --context= -B= --before-context= -A= --after-context= --threads= -p --show-function -W --function-context
        -f= -e= --and --or --not -q --quiet --all-match -m= --max-count= --no-recursive --no-textconv""",
        runs="-O? --open-files-in-pager? --textconv --ext-grep", numbers=True,
    ),
    "help": _git("-a --all -g --guides -c --config", runs="-w --web -i --info -m --man"),
    "init": _git("--bare -q --quiet -b= --initial-branch= --object-format= --shared?",
        loads="--template=",
        writes="--separate-git-dir=",
        operand=NEAR, operand_danger="writes", open_end=False),
    "log": _LOG,
    "ls-files": _git(
        """-z -t -v -f -c --cached -d --deleted -m --modified -o --others -i --ignored -s --stage -k --killed
        --directory --eol --no-empty-directory --empty-directory -u --unmerged --resolve-undo -x= --exclude= -X=
        --exclude-from= --exclude-per-directory= --exclude-standard --full-name --recurse-submodules --error-unmatch
        --with-tree= --abbrev? --deduplicate --sparse --format=""",
    ),
    "ls-remote": _git(
        "-q --quiet -t --tags -h --heads --branches --refs --get-url --sort= --exit-code --symref",
        runs="--upload-pack= --exec=", sends="-o= --server-option=", first=_REMOTE, open_end=False,
    ),
    "ls-tree": _git("""-d -r -t -z -l --long --name-only --name-status --object-only --full-name --full-tree --format=
    --abbrev?"""),
    "merge": _git(
        f"""{_MERGING} -n -e --summary --rerere-autoupdate -m= --message= -F= --file= --into-name= --abort --quit
        --continue --overwrite-ignore -s= --strategy=""",
        runs="-S? --gpg-sign?", values={"-s": _STRATEGY, "--strategy": _STRATEGY},
    ),
    "merge-base": _git("-a --all --octopus --independent --is-ancestor --fork-point"),
    # It moves a file to wherever it is told, and only then finds that git's own folder is no place for it.
    "mv": _git("-v --verbose -n --dry-run -f --force -k --sparse", operand=NEAR, operand_danger="writes",
        open_end=False),
    "name-rev": _git("--name-only --tags --refs= --exclude= --all --annotate-stdin --undefined --always"),
    "pull": _git(
        f"{_FETCHING} {_MERGING} -r? --rebase? -j? --jobs? -s= --strategy=",
        runs="--upload-pack= -S? --gpg-sign?", sends="-o= --server-option=", first=_REMOTE, open_end=False,
        values={"-s": _STRATEGY, "--strategy": _STRATEGY},
    ),
    "push": _git(
        """-v --verbose -q --quiet --all --branches --mirror -d --delete --tags -n --dry-run --porcelain -f --force
        --force-with-lease? --force-if-includes --recurse-submodules= --thin -u --set-upstream --progress --prune
        --no-verify --verify --follow-tags --atomic -4 --ipv4 -6 --ipv6""",
        runs="--receive-pack= --exec= --signed?", sends="--repo= -o= --push-option=", first=_PUSHED, open_end=False,
    ),
    "range-diff": _git("--creation-factor= --no-dual-color --dual-color --notes? --left-only --right-only",
        base=_DIFF),
    "rebase": _git(
        """--onto= --keep-base --no-verify --verify -q --quiet -v --verbose -n --no-stat --stat --signoff
        --committer-date-is-author-date --reset-author-date --ignore-date --ignore-whitespace --whitespace= -f
        --force-rebase --no-ff --continue --skip --abort --quit --show-current-patch --apply -m --merge
        --rerere-autoupdate --empty= --autosquash --no-autosquash --update-refs --autostash -r? --rebase-merges?
        --fork-point -X= --strategy-option= --root --reapply-cherry-picks -C= -s= --strategy=""",
        runs="-x= --exec= -i --interactive --edit-todo --reschedule-failed-exec -S? --gpg-sign?",
        values={"-s": _STRATEGY, "--strategy": _STRATEGY},
    ),
    "reflog": _LOG,
    "remote": _git(
        "-v --verbose",
        commands={
            "get-url": _git("--push --all"), "prune": _git("-n --dry-run", operand=_REMOTE, open_end=False),
            "show": _git("-n -v", operand=_REMOTE, open_end=False), "update": _git("-p --prune -v"),
        },
    ),
    "reset": _git(
        f"""-q --quiet --no-refresh --refresh --mixed --soft --hard --merge --keep --recurse-submodules? -N
        --intent-to-add {_PATHSPECS}""",
        runs="-p --patch",
    ),
    "restore": _git(
        f"""-s= --source= -S --staged -W --worktree --ignore-unmerged --overlay -q --quiet --recurse-submodules?
        --progress -m --merge --conflict= -2 --ours -3 --theirs --ignore-skip-worktree-bits {_PATHSPECS}""",
        runs="-p --patch",
    ),
    "rev-list": _git(
        f"""{_REVISIONS} --objects --objects-edge --unpacked --header --object-names --no-object-names
        --no-commit-header --bisect-vars --bisect-all --disk-usage? --in-commit-order --filter=
        --filter-print-omitted --missing= --timestamp --quiet --no-abbrev --abbrev?""",
        numbers=True,
    ),
    "rev-parse": _git(
        """--verify -q --quiet --short? --abbrev-ref? --symbolic --symbolic-full-name --all --branches? --tags?
        --remotes? --show-toplevel --show-prefix --show-cdup --git-dir --absolute-git-dir --git-common-dir
        --is-inside-work-tree --is-inside-git-dir --is-bare-repository --is-shallow-repository
        --show-superproject-working-tree --show-object-format? --git-path= --revs-only --no-revs --flags --no-flags
        --default= --path-format= --sq --not --local-env-vars --shared-index-path --disambiguate= --end-of-options""",
    ),
    "revert": _git(
        """--quit --continue --abort --skip --cleanup= -n --no-commit -e --edit --no-edit -s --signoff -m= --mainline=
        --rerere-autoupdate --strategy= -X= --strategy-option= --reference""",
        runs="-S? --gpg-sign?", values={"--strategy": _STRATEGY},
    ),
    "rm": _git(f"-n --dry-run -q --quiet --cached -f --force -r --ignore-unmatch --sparse {_PATHSPECS}"),
    "shortlog": _git(f"{_REVISIONS} -c --committer -n --numbered -s --summary -e --email -w? --group=",
        base=_DIFF, numbers=True),
    "show": _LOG,
    "show-branch": _git("""-a --all -r --remotes --color? --more? --list --no-name --current --topics -g? --reflog?
    --merge-base --independent"""),
    "show-ref": _git("""--tags --heads --branches --verify --head -d --dereference -s? --hash? --abbrev? -q --quiet
    --exists"""),
    "sparse-checkout": _git(commands={"list": _git()}),
    "stash": _git(
        "-u --include-untracked -a --all -q --quiet -k --keep-index -m= --message= -S --staged",
        runs="-p --patch",
        commands={
            "apply": _git("--index -q --quiet"), "clear": _git(), "drop": _git("-q --quiet"),
            "branch": _git(), "create": _git(), "list": _LOG, "pop": _git("--index -q --quiet"),
            "push": _git(
                f"-u --include-untracked -a --all -q --quiet -k --keep-index -m= --message= -S --staged {_PATHSPECS}",
                runs="-p --patch",
            ),
            "save": _git("-u --include-untracked -a --all -q --quiet -k --keep-index", runs="-p --patch"),
            "show": _git("-u --include-untracked --only-untracked", base=_DIFF),
        },
    ),
    "status": _git(
        """-v --verbose -s --short -b --branch --show-stash --ahead-behind --porcelain? --long -z --null -u?
        --untracked-files? --ignored? --ignore-submodules? --column? --no-renames --renames -M? --find-renames?""",
    ),
    "submodule": _git(
        "-q --quiet --cached",
        commands={
            "deinit": _git("-f --force --all"), "init": _git(), "status": _git("--cached --recursive"),
            "summary": _git("--cached --files -n= --summary-limit="), "sync": _git("--recursive"),
            "update": _git(
                """--init --recursive -f --force --remote -N --no-fetch --depth= -j= --jobs= --checkout --merge
                --rebase --recommend-shallow --no-recommend-shallow --single-branch --progress -q --quiet""",
                loads="--reference= --filter=",
            ),
        },
    ),
    "switch": _git(
        """-c= --create= -C= --force-create= --guess --discard-changes -q --quiet --recurse-submodules? --progress -m
        --merge --conflict= -d --detach -t --track? -f --force --orphan= --overwrite-ignore --ignore-other-worktrees""",
    ),
    "symbolic-ref": _git("-q --quiet --short --recurse", most=1, danger="writes", loads="-d --delete -m="),
    "tag": _git(
        """-l --list -n? -d --delete -a --annotate -m= --message= -F= --file= -e --edit --cleanup= -f --force
        --create-reflog --column? --contains? --no-contains? --merged? --no-merged? --sort= --points-at= --format=
        --color? -i --ignore-case --omit-empty""",
        runs="-v --verify -s --sign -u= --local-user=",
    ),
    "version": _git("--build-options"),
    "whatchanged": _LOG,
    "worktree": _git(
        commands={
            "list": _git("-v --verbose --porcelain -z --expire="),
            "prune": _git("-n --dry-run -v --verbose --expire="),
        },
    ),
}  # fmt: skip
GIT: Final = program(
    """-v --version -h --help -p --paginate -P --no-pager --no-replace-objects --no-lazy-fetch --no-optional-locks
    --no-advice --literal-pathspecs --glob-pathspecs --noglob-pathspecs --icase-pathspecs --html-path --man-path
    --info-path""",
    runs="--exec-path?",
    loads="""-c= --config-env= -C= --git-dir= --work-tree= --namespace= --super-prefix= --attr-source= --bare
        --list-cmds=""",
    commands=_COMMANDS,
    shortens=False,
    bundles=False,
)
