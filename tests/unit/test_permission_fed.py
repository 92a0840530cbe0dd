"""Programs that do what their input says, and operands that make a harmless command write where programs are run."""

from __future__ import annotations

import pytest

from clew.permissions.shell.tokens import word_set
from clew.transcript.rule import Rule
from tests.corpora.options import decide

ALLOWED = word_set("awk cat cd dc echo ed ex ftp git m4 mysql npm ocaml psql sftp sort sqlite3 ssh vim wget yq")
RULES = [Rule("bash", f"{name} *", "allow") for name in ALLOWED]

FED = [
    "ssh host <<'E'\nrm -rf x\nE",
    "echo 'rm -rf x' | ssh host",
    "ssh -T -p 22 host",
    "sqlite3 a.db <<< '.shell touch x'",
    "echo '.shell touch x' | sqlite3",
    "echo .system | sqlite3 -csv a.db",
    "echo '\\! touch x' | psql",
    "psql -d app <<< '\\! touch x'",
    "echo '\\! touch x' | psql -- -l",
    "echo 'system touch x' | mysql app",
    "ed a.txt <<< '!touch x'",
    "echo ':!touch x' | vim a.txt",
    "echo '!touch x' | ex a.txt",
    "sftp host <<< '!touch x'",
    "ftp host <<< '!touch x'",
    "dc <<< '!touch x'",
    "echo 'syscmd(touch x)' | m4",
    "echo x | ocaml",
]
TOLD = [
    "git mv evil .git/hooks/pre-commit",
    "git mv evil sub/.GIT/hooks/pre-commit",
    "git mv -f evil ../other/.git/config",
    "git clone https://a.example/x .git/hooks",
    "git clone https://a.example/x /opt/x",
    "git clone https://a.example/x ../x",
    "git init ../x",
    "git remote show foo::bar",
    "git remote prune foo::bar",
    "git config edit",
    "npm audit fix",
    "npm audit fix --force",
    'yq -n \'load_str("a" + "b")\'',
    'yq -n \'eval("lo" + "ad(x)")\'',
    'awk \'BEGIN{ARGV[1]="/etc/pass" "wd";ARGC=2}{print}\'',
    "sort --files0-from=list",
    "sort --files0=list",
    "wget -O x https://a.example/x",
]
HONEST = [
    "psql -l",
    "psql --version",
    "mysql --version",
    "sqlite3 -version",
    "sqlite3 a.db 'select count(*) from t'",
    "vim --version",
    "ssh -N host",
    "git mv a.py src/b.py",
    "git mv src/*.py lib/",
    "git clone https://a.example/x",
    "git clone https://a.example/x vendor/x",
    "git init",
    "git init sub",
    "git remote show origin",
    "git config user.name",
    "npm audit",
    "npm audit --json",
    "yq '.services.web.environment' a.yml",
    "yq eval '.payload' a.yml",
    "wget -qO- https://a.example/x",
]


@pytest.mark.rule("PM-8")
def test_a_program_that_does_what_it_is_fed_is_asked_about() -> None:
    """A rule for the whole program covers its arguments, and not the programs that its input names."""
    assert {line: decide(line, *RULES).action for line in FED} == dict.fromkeys(FED, "ask")


@pytest.mark.rule("PM-8")
def test_no_operand_makes_a_harmless_command_write_where_programs_are_run() -> None:
    """git moved a file into its own folder of hooks before it found that the place is not for it."""
    assert {line: decide(line, *RULES).action for line in TOLD} == dict.fromkeys(TOLD, "ask")
    assert {line: decide(line, *RULES).action for line in HONEST} == dict.fromkeys(HONEST, "allow")
