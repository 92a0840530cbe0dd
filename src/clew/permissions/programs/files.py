"""Programs that find, pack and copy files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from clew.permissions.programs.table import NEAR, Program, program

__all__ = ["FILES"]


FILES: Final[Mapping[str, Program]] = {
    # What follows `-exec` is a command of its own, which the wrapper's reading takes out.
    "find": program(
        """-H -L -P -O? -D= -amin= -anewer= -atime= -cmin= -cnewer= -ctime= -daystart -depth -d -empty -executable
        -false -follow -fstype= -gid= -group= -help --help -ignore_readdir_race -noignore_readdir_race -ilname=
        -iname= -inum= -ipath= -iregex= -iwholename= -links= -lname= -ls -maxdepth= -mindepth= -mmin= -mount -mtime=
        -name= -newer= -newerac= -newerat= -newerca= -newerct= -newerma= -newermc= -newermt= -newermm= -nogroup
        -noleaf -nouser -nowarn -path= -perm= -print -print0 -printf= -prune -quit -readable -regex= -regextype=
        -samefile= -size= -true -type= -uid= -used= -user= -version --version -warn -wholename= -writable -xdev
        -xtype= -not -and -or -a -o -context= -E -X -s -x""",
        actions="-exec -execdir -ok -okdir",
        writes="-delete -fls= -fprint= -fprint0= -fprintf=",
        loads="-files0-from= -f=",
        single=True,
    ),
    "rsync": program(
        """-v --verbose -q --quiet -c --checksum -a --archive -r --recursive -R --relative -u --update --inplace
        --append -d --dirs -l --links -L --copy-links -H --hard-links -p --perms -E --executability -A --acls -X
        --xattrs -o --owner -g --group -D --devices --specials -t --times -O --omit-dir-times -S --sparse -n
        --dry-run -W --whole-file -x --one-file-system --existing --ignore-existing --max-size= --min-size= -z
        --compress --exclude= --include= -C --cvs-exclude -0 --from0 -s --stats -h --human-readable --progress -P
        --partial -i --itemize-changes --list-only --bwlimit= --version --help --timeout= --size-only -I
        --ignore-times --info= --no-perms --no-owner --no-group --delete --delete-after --delete-excluded
        --prune-empty-dirs -m""",
        runs="-e= --rsh= --rsync-path= -M= --remote-option= --daemon --server --sender",
        writes="""--log-file= --write-batch= --only-write-batch= -b --backup --backup-dir= -T= --temp-dir=
            --partial-dir=""",
        loads="""--files-from= --exclude-from= --include-from= -f= --filter= -F --password-file= --read-batch=
            --config=""",
        operand=re.compile(r"(?![^/]*:).*"), operand_danger="sends", open_end=False,
    ),
    "tar": program(
        """-A -c -d -r -t -u -x --list --extract --get --create --diff --compare --test-label -a --auto-compress -j
        --bzip2 -J --xz --lzip --lzma --lzop -z --gzip --gunzip --ungzip -Z --compress --zstd -v --verbose -w -W
        --verify -k --keep-old-files --keep-newer-files --skip-old-files --overwrite -m --touch -p
        --preserve-permissions --same-permissions -o --no-same-owner --no-same-permissions --numeric-owner -O
        --to-stdout --strip-components= --exclude= --exclude-vcs --exclude-vcs-ignores --exclude-backups
        --exclude-caches --wildcards --no-wildcards --anchored --ignore-case --no-recursion -h --dereference
        --hard-dereference --totals --mtime= --owner= --group= --mode= --sort= --format= -H= --posix --pax-option=
        --utc --full-time --block-number -R --show-transformed-names -s --checkpoint? --warning= --help --version
        --no-auto-compress --occurrence? --record-size= -b= -B -i -n -S --sparse --one-file-system --same-owner
        --xattrs --acls --selinux -f= --file= -C= --directory= --force-local --append --update --concatenate
        --catenate""",
        runs="""-I= --use-compress-program= --checkpoint-action= --to-command= -F= --info-script= --new-volume-script=
            --rmt-command= --rsh-command=""",
        writes="""--delete --remove-files -P --absolute-names --unlink-first -U --recursive-unlink --index-file= -g=
            --listed-incremental= -K= --starting-file= --backup? --one-top-level? --transform= --xform=
            --volno-file= --overwrite-dir --keep-directory-symlink""",
        loads="""-T= --files-from= -X= --exclude-from= --add-file= -V= --label= -L= --tape-length= -M --multi-volume
            -N= --newer= --after-date=""",
        values={"-f": NEAR, "--file": NEAR, "-C": NEAR, "--directory": NEAR}, value_danger="writes", script="tar",
    ),
    "unzip": program("-l -t -v -z -Z -q -n -j -L -C -a -u -p -c -x -f -h",
        writes="-o -d= -: -^ -K -X -B",
        shortens=False),
    "zip": program(
        """-r -q -v -j -x= -i= -u -f -0 -1 -2 -3 -4 -5 -6 -7 -8 -9 -y -X -D -n= -h -sf --recurse-paths --quiet
        --verbose --junk-paths --symlinks --exclude= --include=""",
        runs="-T --test -TT= --unzip-command=",
        writes="-m --move -b= --temp-path= -O= --out= --output-file= -d --delete -@ --names-stdin",
        first=NEAR, operand_danger="writes", open_end=False,
    ),
}  # fmt: skip
