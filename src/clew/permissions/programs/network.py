"""Programs that talk to other machines."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from clew.permissions.programs.table import Program, program

__all__ = ["NETWORK"]

# Other schemes read files or speak to anything that listens.
_WEB: Final = re.compile(r"(?i:https?://)|[\w.-]+(?::[0-9]+)?(?:/|$)")
_TEXT: Final = re.compile(r"(?![@<])[^\0]*", re.DOTALL)
_NO_FILE: Final = re.compile(r"[^@<\0]*", re.DOTALL)
_NOWHERE: Final = re.compile("-|/dev/null")
_FORMAT: Final = re.compile(r"(?!@)(?!.*%output)(?!.*%\{stderr)[^\0]*", re.DOTALL)

NETWORK: Final[Mapping[str, Program]] = {
    "curl": program(
        """-s --silent -S --show-error -f --fail --fail-with-body --fail-early -L --location -I --head -i --include
        --show-headers -v --verbose -# --progress-bar --no-progress-meter -k --insecure -X= --request= -H= --header=
        -d= --data= --data-raw= --data-ascii= --data-binary= --data-urlencode= --json= -G --get --url-query= -A=
        --user-agent= -e= --referer= -u= --user= --basic --digest --oauth2-bearer= -m= --max-time=
        --connect-timeout= --retry= --retry-delay= --retry-max-time= --retry-all-errors --retry-connrefused
        --compressed --http1.0 -0 --http1.1 --http2 --http3 -4 --ipv4 -6 --ipv6 --tlsv1.2 --tlsv1.3 --max-redirs=
        --path-as-is -N --no-buffer -w= --write-out= -b= --cookie= --limit-rate= -r= --range= --url= -g --globoff -q
        --disable -V --version -h --help -M --manual --keepalive-time= --no-keepalive --tcp-nodelay --parallel -Z
        --max-filesize= -y= -Y= --speed-time= --speed-limit= --post301 --post302 --post303 --raw --tr-encoding
        --styled-output --no-sessionid --proto= --proto-redir= --proto-default= --location-trusted""",
        writes="""-o= --output= -O --remote-name --remote-name-all -J --remote-header-name --output-dir= --create-dirs
            -D= --dump-header= -c= --cookie-jar= --trace= --trace-ascii= --trace-time --stderr= --libcurl=
            --etag-save= --hsts= --alt-svc= --remove-on-error -R --remote-time --clobber --xattr -C= --continue-at=""",
        loads="""-K= --config= --engine= --variable= --etag-compare= --form-string= --capath= --cacert= --crlfile=
            --random-file= --egd-file=""",
        sends="""-T= --upload-file= -F= --form= -n --netrc --netrc-optional --netrc-file= -E= --cert= --key= -x=
            --proxy= --preproxy= --socks4= --socks4a= --socks5= --socks5-hostname= -U= --proxy-user= --unix-socket=
            --abstract-unix-socket= --interface= --resolve= --connect-to= --doh-url= --dns-servers= -t=
            --telnet-option= -Q= --quote= -P= --ftp-port= --mail-from= --mail-rcpt= --negotiate --ntlm --anyauth
            --delegation= -a --append -z= --time-cond= -l --list-only -B --use-ascii""",
        values={
            "-d": _TEXT, "--data": _TEXT, "--data-ascii": _TEXT, "--data-binary": _TEXT, "--json": _TEXT,
            "--data-urlencode": _NO_FILE, "--url-query": _NO_FILE, "-H": _TEXT, "--header": _TEXT, "-w": _FORMAT,
            "--write-out": _FORMAT, "-b": re.compile(r"[^@\0]*=[^\0]*"), "--cookie": re.compile(r"[^@\0]*=[^\0]*"),
            "-o": _NOWHERE, "--output": _NOWHERE,
            "--url": re.compile(r"(?i:https?://).*"), "--proto": re.compile("=?(?:https?,?)+"),
            "--proto-redir": re.compile("=?(?:https?,?)+"),
            "--proto-default": re.compile("https?"),
        },
        value_danger="sends", operand=_WEB, operand_danger="sends", negates=True,
    ),
    "nc": program("-v -z -n -w= -4 -6 -u -h",
        runs="-e= -c= --exec= --sh-exec= --lua-exec=",
        sends="-l -k -p= -s= -U -X= -x="),
    "scp": program(
        "-r -p -q -v -C -3 -4 -6 -B -l= -P= -T", runs="-S= -o= -F= -D= -J= -s -O -R -A -c= -i=",
        operand=re.compile(r"(?![^/]*:).*"), operand_danger="sends", open_end=False,
    ),
    "sftp": program("-q -v -C -4 -6 -p -r -P= -l=", runs="-b= -D= -S= -o= -F= -J= -s= -c= -i= -B= -R= -A -a",
        fed=1_000),
    "wget": program(
        """-q --quiet -v --verbose -nv --no-verbose -c --continue -N --timestamping -nc --no-clobber -t= --tries= -T=
        --timeout= --spider -S --server-response -np --no-parent -r --recursive -l= --level= -nd --no-directories -k
        --convert-links -p --page-requisites -4 -6 --header= --user-agent= -U= --no-check-certificate
        --show-progress --limit-rate= -w= --wait= --random-wait --max-redirect= -A= --accept= -R= --reject= -V
        --version -h --help --method= --post-data= --body-data= --no-cache --no-cookies --no-hsts
        --retry-connrefused --content-on-error""",
        runs="-e= --execute= --use-askpass=",
        writes="""-O= --output-document= -o= --output-file= -a= --append-output= -P= --directory-prefix=
            --save-cookies= --warc-file= -x --force-directories --rejected-log= --hsts-file= -b --background
            --content-disposition -E -K --delete-after --save-headers -m --mirror --trust-server-names""",
        loads="-i= --input-file= --config= --load-cookies= --ca-certificate= -F --force-html -B= --base=",
        sends="--post-file= --body-file= --certificate= --private-key= --bind-address= --proxy= -Y= --netrc",
        values={"-O": _NOWHERE, "--output-document": _NOWHERE}, value_danger="writes",
        operand=re.compile(r"(?i:https?://)|[\w.-]+(?:/|$)"), operand_danger="sends",
    ),
}  # fmt: skip
