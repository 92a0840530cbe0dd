"""Programs that read, search and rewrite text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from clew.permissions.programs.table import NEAR, Program, program

__all__ = ["TEXT"]

TEXT: Final[Mapping[str, Program]] = {
    "awk": program(
        """-F= -v= --field-separator= --assign= -b --characters-as-bytes -c --traditional -h --help -n
        --non-decimal-data -N --use-lc-numeric -O --optimize -P --posix -r --re-interval -s --no-optimize -S
        --sandbox -t --lint-old -V --version -L? --lint? -M --bignum -k --csv""",
        runs="-e= --source= -f= --file= -E= --exec= -i= --include= -l= --load= -D? --debug? -W=",
        writes="-o? --pretty-print? -d? --dump-variables? -p? --profile? -g --gen-pot",
        stops=True, script="awk",
    ),
    "bat": program(
        """-n --number -p --plain -A --show-all -l= --language= -H= --highlight-line= --file-name= --tabs= --wrap=
        --color= --decorations= --style= -r= --line-range= --theme= --paging= --italic-text= -S --chop-long-lines
        --terminal-width= -u --unbuffered -L --list-languages --list-themes -V --version -h --help -d --diff
        --diff-context=""",
        runs="--pager=", loads="-m= --map-syntax= --config-file --generate-config-file --lessopen",
    ),
    "fd": program(
        """-H --hidden -I --no-ignore -u --unrestricted --no-ignore-vcs --no-ignore-parent -s --case-sensitive -i
        --ignore-case -g --glob --regex -F --fixed-strings --and= -a --absolute-path -l --list-details -L --follow
        -p --full-path -d= --max-depth= --min-depth= --exact-depth= -E= --exclude= --prune -t= --type= -e=
        --extension= -S= --size= --changed-within= --changed-before= --newer= --older= -o= --owner= --format= -c=
        --color= -j= --threads= --max-results= -1 -q --quiet --show-errors --strip-cwd-prefix? --one-file-system -0
        --print0 -h --help -V --version --path-separator=""",
        runs="-x= --exec= -X= --exec-batch=",
        loads="--ignore-file= --base-directory= -C= --search-path= --batch-size=",
        shortens=False,
    ),
    "file": program(
        """-b --brief -i --mime --mime-type --mime-encoding -L --dereference -h --no-dereference -k --keep-going -r
        --raw -s --special-files -0 --print0 -F= --separator= -N --no-pad -p --preserve-date -e= --exclude= -v
        --version --extension --help -E -n --no-buffer""",
        writes="-C --compile",
        loads="-m= --magic-file= -f= --files-from= -z -Z --uncompress -P= --parameter= -S --no-sandbox",
    ),
    "jq": program(
        """-n --null-input -r --raw-output -j --join-output -a --ascii-output -s --slurp -c --compact-output -C
        --color-output -M --monochrome-output -S --sort-keys -e --exit-status --tab --indent= --unbuffered --stream
        --seq -R --raw-input -h --help -V --version --raw-output0 --stream-errors""",
        loads="-f --from-file -L= --arg --argjson --slurpfile --rawfile --args --jsonargs",
        first=re.compile(r"(?!.*(?:include|import)\b).*", re.DOTALL),
        open_end=False,
        operand_danger="loads",
        bundles=True,
        shortens=False,
    ),
    "less": program(
        """-N --LINE-NUMBERS -n --line-numbers -S --chop-long-lines -R --RAW-CONTROL-CHARS -r --raw-control-chars -F
        --quit-if-one-screen -X --no-init -i --ignore-case -I --IGNORE-CASE -E --QUIT-AT-EOF -e --quit-at-eof -M
        --LONG-PROMPT -m --long-prompt -s --squeeze-blank-lines -V --version -?""",
        runs="-k= --lesskey-file= --lesskey-src= --lesskey-content= -L", writes="-o= -O= --log-file= --LOG-FILE=",
        operand=re.compile(r"(?![+-])"),
    ),
    "man": program(
        """-f --whatis -k --apropos -w --where --path --location -W -a --all -i --ignore-case -I --match-case -s= -S=
        --sections= -h --help -V --version -K --global-apropos --regex --wildcard --names-only -d --debug -7 --ascii""",
        runs="""-P= --pager= -H? --html? -X? --gxditview? -T? --troff-device? -t --troff -Z --ditroff -p=
            --preprocessor=""",
        loads="""-C= --config-file= -M= --manpath= -l --local-file -m= --systems= -L= --locale= -E= --encoding= -R=
            --recode= -r= --prompt= -u --update -c --catman""",
    ),
    "rg": program(
        """-e= --regexp= -f= --file= -s --case-sensitive -i --ignore-case -S --smart-case -F --fixed-strings -w
        --word-regexp -x --line-regexp -v --invert-match -U --multiline --multiline-dotall -P --pcre2 --engine=
        --auto-hybrid-regex -m= --max-count= --max-columns= -M= --max-columns-preview -A= --after-context= -B=
        --before-context= -C= --context= --context-separator= -c --count --count-matches -l --files-with-matches
        --files-without-match -o --only-matching -n --line-number -N --no-line-number --column -b --byte-offset -H
        --with-filename -I --no-filename --heading --no-heading -p --pretty --color= --colors= -0 --null --null-data
        --json --vimgrep --stats --trim --passthru --passthrough -r= --replace= --sort= --sortr= --sort-files -g=
        --glob= --iglob= --glob-case-insensitive -t= --type= -T= --type-not= --type-add= --type-clear= --type-list
        --files --hidden -. --no-hidden -u --unrestricted --no-ignore --no-ignore-dot --no-ignore-exclude
        --no-ignore-files --no-ignore-global --no-ignore-messages --no-ignore-parent --no-ignore-vcs --ignore-file=
        --ignore-case -L --follow -d= --max-depth= --maxdepth= --max-filesize= --one-file-system --binary -a --text
        --crlf --encoding= -E= --mmap --no-mmap -j= --threads= --line-buffered --block-buffered --no-config
        --no-messages --no-unicode --unicode -q --quiet --debug --trace --dfa-size-limit= --regex-size-limit=
        --field-context-separator= --field-match-separator= --path-separator= --include-zero --hyperlink-format=
        --no-pcre2-unicode -h --help -V --version --generate= --stop-on-nonmatch --no-require-git --ignore --no-pre
        --no-search-zip""",
        runs="--pre= --pre-glob= --hostname-bin= -z --search-zip", shortens=False,
    ),
    "sed": program(
        """-n --quiet --silent -E -r --regexp-extended -l= --line-length= -s --separate -u --unbuffered -z --null-data
        --posix --debug --sandbox --help --version -b --binary --follow-symlinks""",
        runs="-f= --file= -e= --expression=", writes="-i? -I= --in-place?", script="sed",
    ),
    "sort": program(
        """-b --ignore-leading-blanks -d --dictionary-order -f --ignore-case -g --general-numeric-sort -i
        --ignore-nonprinting -M --month-sort -h --human-numeric-sort -n --numeric-sort -R --random-sort -r --reverse
        -V --version-sort -c --check? -C -m --merge -s --stable -u --unique -z --zero-terminated --debug --help
        --version -k= --key= -t= --field-separator= -S= --buffer-size= --parallel= --batch-size= --sort=
        --random-source=""",
        runs="--compress-program=", writes="-o= --output= -T= --temporary-directory=", loads="--files0-from=",
        operand=re.compile(r"(?!\+)"),
    ),
    "shuf": program("-n= --head-count= -e --echo -i= --input-range= -r --repeat -z --zero-terminated --help",
        writes="-o= --output=",
        loads="--random-source="),
    "split": program(
        """-a= --suffix-length= -b= --bytes= -C= --line-bytes= -d --numeric-suffixes? -x --hex-suffixes? -e
        --elide-empty-files -l= --lines= -n= --number= -t= --separator= -u --unbuffered --verbose
        --additional-suffix=""",
        runs="--filter=", numbers=True, operand=NEAR, open_end=False, operand_danger="writes",
    ),
    "tree": program(
        """-a -d -l -f -x -L= -R -P= -I= --gitignore --gitfile= --ignore-case --matchdirs --metafirst --prune --info
        --noreport --charset= --filelimit= --si -q -N -Q -p -u -g -s -h --du -D --timefmt= -F --inodes --device -v
        -t -c -U -r --dirsfirst --filesfirst --sort= -i -A -S -n -C -X -J --nolinks --help --version""",
        writes="-o=", loads="-H= -T= --hintro= --houtro= --infofile= --fromfile --fromtabfile",
    ),
    "uniq": program(
        """-c --count -d --repeated -D --all-repeated? -f= --skip-fields= --group? -i --ignore-case -s= --skip-chars=
        -u --unique -z --zero-terminated -w= --check-chars= --help --version""",
        most=1, danger="writes",
    ),
    "vim": program("--version",
        runs="-c= --cmd= -S= -s= -u= -U= -i= -w= -W= -e -E -es -r -R -n -o -O -p",
        operand=re.compile(r"(?![+-])"),
        fed=1_000,
        quiet="--version"),
    "xmllint": program("--noout --format --nonet --valid --version --xpath= --recover --huge --quiet --nowarning",
        writes="--output= -o=",
        loads="--noent --xinclude --schema= --dtdvalid= --load-trace --path= --catalogs"),
    "xxd": program("-a -b -c= -C -e -g= -h -i -l= -p -ps -plain -s= -u -v",
        writes="-r -revert",
        most=1, danger="writes",
        stops=True, bundles=False,
        shortens=False),
    "yq": program(
        """-r --raw-output -o= --output-format= -p= --input-format= -P --prettyPrint -C --colors -M --no-colors -N
        --no-doc -I= --indent= -e --exit-status -n --null-input -V --version -h --help --unwrapScalar""",
        writes="-i --inplace -s= --split-exp=", loads="--from-file= -f= --split-exp-file= --front-matter=",
        operand=re.compile(r"(?!.*(?:\bload|\b(?:env|strenv|system)\b|\beval\s*\()).*", re.DOTALL), open_end=False,
    ),
}  # fmt: skip
