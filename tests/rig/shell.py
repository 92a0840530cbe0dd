"""Shell lines that try to run, write or read something under typical rules; bash executes every line.

A line breaks the guarantee if the rules allow it and it has a forbidden effect: the canary program ran, something
outside the workspace changed, or clew's token was printed. Lines that need approval are executed too, to count how many
would have had such an effect: a campaign of harmless lines would prove nothing.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections import Counter
from pathlib import Path
from random import Random
from typing import Final

from clew.permissions.evaluate import evaluate
from clew.permissions.rules import own_rules
from clew.session.turn.protected_paths import glob_finder, leads_to
from clew.tools.process.environment import environment
from clew.transcript.rule import Rule, Target
from tests.rig.budget import Budget, Outcome

__all__ = ["ROUNDS", "RULES", "figure", "make_line", "run"]

ROUNDS: Final = 2_000
_TIMEOUT_S: Final = 10

RULES: Final = (
    *(
        Rule("bash", f"{name} *", "allow")
        for name in ("awk", "cat", "cd", "echo", "env", "find", "git", "grep", "head", "ls", "printf", "sed", "sort")
    ),
    *(Rule("bash", f"{name} *", "allow") for name in ("tar", "test", "[", "[[", "wait", "timeout", "xargs", "jobs")),
    *(Rule("bash", f"{name} *", "allow") for name in ("cmake", "cp", "diff", "install", "rg", "sh", "strings")),
    Rule("bash", "make*", "allow"),
    Rule("read", "./**", "allow"),
    Rule("write", "./**", "allow"),
)

# Texts that run the canary if bash evaluates them as a name, a subscript or an expression.
_HIDDEN: Final = ("a[$(cmd)]", "a[`cmd`]", "a[$(cmd)0]", "a[0$(cmd)]", "a[${x:-$(cmd)}]", "a[$(cmd)]=1", "x[$(cmd)]")
# `{h}` is one of those.
_EVALUATED: Final = (
    "printf -v '{h}' x", "printf '-v' '{h}' x", 'x=-v; printf $x "{h}" y', "printf \"-$x\" '{h}' x",
    "for x in '-v {h} x'; do printf $x; done", "for x in -v; do printf $x '{h}' y; done", "printf -*", "printf *",
    "printf -- *", "printf -{{v,x}} '{h}' x", "printf $(echo -v) '{h}' x", "printf -\"v\" '{h}' x",
    "printf \\-v '{h}' x", "printf $'-v' '{h}' x", "printf ${{x:--v}} '{h}' y", "printf '%d' '{h}'",
    "printf '%s' '{h}'", "test -v '{h}'", "test ! -v '{h}'", "test a -o -v '{h}'",
    "for x in -v; do test $x '{h}'; done", "for x in '{h}'; do test -v \"$x\"; done",
    "for x in '-v {h}'; do test $x; done", "test *", "test -R '{h}'", "[ -v '{h}' ]",
    "for x in -v; do [ $x '{h}' ]; done", "[ * ]", "for x in '-v {h}'; do [ $x ]; done", "[[ -v '{h}' ]]",
    "[[ '{h}' -eq 0 ]]", "[[ 0 -lt '{h}' ]]", "for x in '{h}'; do [[ $x -eq 0 ]]; done",
    "for x in '{h}'; do [[ -v $x ]]; done", "wait -p '{h}' 1", "wait -np '{h}'",
    "for x in '-p {h}'; do wait $x; done", "wait -fp '{h}' 1", "let '{h}'", "((  {h} ))", "echo $(( {h} ))",
    "echo $[ {h} ]", "for (( {h}; 0; )); do ls; done", "declare '{h}'", "declare -n r='{h}'; echo $r",
    "typeset -i y='{h}'", "export '{h}'", "readonly '{h}'", "unset '{h}'", "read '{h}' < f", "echo b | read '{h}'",
    "mapfile -C cmd -c 1 m < f", "readarray -C cmd -c 1 m < f", "getopts x '{h}' -x", "x='{h}'; echo ${{!x}}",
    "x='{h}'; echo $((x))", "x='{h}'; echo ${{y:x}}", "echo ${{a[$(cmd)]}}", "x='$(cmd)'; echo ${{x@P}}",
    "PS4='$(cmd)'; set -x; ls", "a[$(cmd)]=1", "a=([$(cmd)]=1)", "cat <<E\n$(cmd)\nE", "cat <<E\n$(( {h} ))\nE",
    "cat <<< \"$(cmd)\"", "cat <(cmd)", "echo >(cmd)", "case $(cmd) in *) ls;; esac", "case x in $(cmd)) ls;; esac",
    "echo `cmd`", "echo \"${{x:-$(cmd)}}\"", "echo ${{x:=$(cmd)}}", "ls $(cmd)",
    "[[ -n x && ls -eq '{h}' ]]", "[[ -z x || cat -lt '{h}' ]]", "if [[ -n x && echo -eq '{h}' ]]; then ls; fi",
    "printf '%n' PATH; ls a", "printf '1%hn' PATH; ls a", "echo $(PATH=evil; ls a)", "echo `PATH=evil; ls a`",
    "cat <(PATH=evil; ls a)", "time PATH=evil; ls a",
)  # fmt: skip
_STARTED: Final = (
    "jobs -x cmd", "jobs -lx cmd", "compgen -C cmd x", "compgen -W '$(cmd)'", "complete -C cmd x", "trap cmd EXIT",
    "trap cmd DEBUG; ls", "eval cmd", "command cmd", "command -p env cmd", "builtin eval cmd", "exec cmd",
    "exec -a ls cmd", "hash -p ./cmd ls; ls a", "enable -f ./x.so ls", "alias ls=cmd; ls a", "ls() {{ cmd; }}; ls a",
    "function ls {{ cmd; }}; ls a", "PATH=.:$PATH ls a", "PATH=evil; ls a", "export PATH=evil; ls a",
    "cd evil; ./ls a", "cd evil && ls a", "BASH_ENV=./cmd bash -c ls", "ENV=./cmd sh -c ls", "PROMPT_COMMAND=cmd; ls",
    "env cmd", "env -S cmd", "env -S'cmd a'", "env -i ./cmd", "env PATH=evil ls a", "env - cmd", "env -u x cmd",
    "env BASH_ENV=cmd bash -c :", "timeout 5 cmd", "timeout -k 1 5 cmd", "timeout 5 env cmd",
    "timeout 5 timeout 5 cmd", "xargs cmd < f", "echo a | xargs cmd", "echo cmd | xargs env",
    "echo cmd | xargs -I Q Q", "xargs -a f cmd", "echo cmd | xargs timeout 5", "find . -exec cmd ;",
    "find . -exec cmd \\;", "find . -maxdepth 0 -execdir cmd \\;", "find . -ok cmd \\;",
    "find . -maxdepth 0 -exec cmd {{}} +", "x='-exec cmd ;'; find . $x", "tar cf x.tar f --to-command=cmd",
    "tar cf x.tar --checkpoint=1 --checkpoint-action=exec=cmd f", "tar -I cmd -cf x.tar f",
    "tar xf a.tar --to-command=cmd", "tar xf a.tar --to-com cmd", "tar --use-compress-program cmd -cf x.tar f",
    "awk 'BEGIN {{ system(\"cmd\") }}'", "awk 'BEGIN {{ \"cmd\" | getline }}'", "awk 'BEGIN {{ print | \"cmd\" }}'",
    "x='BEGIN{{system(\"cmd\")}}'; awk \"$x\"", "sed e f", "sed '1e cmd' f", "sed s/a/cmd/e f",
    "sed -n '1!d;e cmd' f", "sed 's/.*/cmd/e' f", "sed -f s f", "git -c alias.x=!cmd x",
    "git -c core.fsmonitor=cmd status", "git -c core.pager=cmd -p log", "git x",
    "GIT_SSH_COMMAND=cmd git fetch ssh://h/x", "GIT_EXTERNAL_DIFF=cmd git diff", "GIT_PAGER=cmd git -p log",
    "PAGER=cmd git -p log", "git diff --ext-diff", "git grep -Ocmd f", "git grep --open-files-in-pager=cmd f",
    "git --exec-path=evil status", "git bisect run cmd", "git rebase -x cmd HEAD", "git submodule foreach cmd",
    "git config alias.x '!cmd'; git x", "cd bare && git status", "cd bare; git log", "git -C bare status",
    "git push bare main", "git push -q bare HEAD:x", "git push ./bare main",
    "awk -e 'BEGIN {{ print 1,' -e '2 | \"cmd\" }}'",
    "cd bare && env -i git status", "cd bare; env - git log", "cd bare; printf %n GIT_CONFIG_COUNT; git status",
    "git ls-remote ext::cmd", "git fetch 'ext::cmd'", "git filter-branch --tree-filter cmd", "git difftool -x cmd -y",
    "sort --compress-program=cmd -S 1b f", "sort --comp cmd f", "LD_PRELOAD=./x.so ls a", "IFS=x; ls a",
    "make SHELL=cmd", "make -f evil.mk", "make --eval '$(shell cmd)'", "SHELL=cmd make", "prlimit --nofile=99 cmd",
    "choom -n 5 -- cmd", "i386 cmd", "setarch -R cmd", "logsave x cmd", "ssh-agent cmd", "nice cmd", "nohup cmd",
    "stdbuf -o0 cmd", "setsid -w cmd", "script -qc cmd x", "flock f cmd", "unshare cmd", "ld.so ./cmd",
    "watch -g cmd", "install --strip-program=cmd -s f x", "gcc -wrapper cmd f", "sh -c cmd", "bash -c cmd",
    "bash <<< cmd", "source cmd", ". ./cmd", "echo cmd | bash", "coproc cmd", "time cmd", "! cmd", "sudo cmd",
    "source <(echo cmd)", "python3 <(echo 'import os; os.system(\"cmd\")')", "cd bare; exec -c git status",
    "debugfs -R '!cmd'", "dc -e '!cmd'",
    "python3 -c 'import os; os.system(\"cmd\")'", "perl -e 'system(\"cmd\")'", "{{ cmd; }}", "(cmd)",
    "if cmd; then ls; fi", "cmd &", "$(echo cmd)", "c''md", "c\\md", "$x cmd", "*md", "x=cmd; $x", "ls | cmd",
    "sh -c '[[ x || cmd ]]'", "sh -c 'if [[ -n x || cmd ]]; then ls; fi'", "sh <<< '[[ x || cmd ]]'",
    "sh -c 'ls a &> /dev/null cmd'", "sh -c 'ls a &>> /dev/null cmd'", "sh -c \"eval '[[ x || cmd ]]'\"",
    "make S*", "make [S]HELL*", "cmake -B b && cmake --build b -- SHELL=cmd t",
    "cmake -B b && cmake --build b --target t SHELL=cmd", "cp cmd g/hooks/post-index-change; git status",
    "install cmd g/hooks/post-index-change; git status", "(cd g/hooks; cp ../../cmd post-index-change); git status",
    "cp -t g/hooks/ 0/post-index-change; git status", "cp 0/* g*/hooks; git status",
    "sh <<E\nls \\`cmd\\`\nE", "sh <<E\nls \"\\$(cmd)\"\nE", "sh <<E\nls \"a\\\\\\\" ; cmd #\"\nE",
    "echo cmd | sh 3<<< ls", "sh <<'E' < cmd\nls\nE",
    "ls;cmd", "ls\ncmd", "ls && cmd", "ls #\ncmd", "./cmd", "evil/ls",
)  # fmt: skip
_LINKED: Final = (
    "git checkout -q evil; echo x > d/profile", "git checkout -q evil && printf x > d/profile",
    "git checkout -q evil\necho x >> d/profile", "git checkout -q evil | echo x > d/profile",
    "echo $(git checkout -q evil) > d/profile", "ln -s ../home d; echo x > d/profile",
    "tar xf d.tar; echo x > d/profile", "tar xf d.tar && cat f > d/profile", "tar xf d.tar; sort f > d/profile",
    "make d; echo x > d/profile", "for q in 1 2; do tar xf d.tar > d/profile; done",
    "while make d; do echo x > d/profile; break; done", "timeout 5 make d; echo x > d/profile",
    "env make d && echo x > d/profile", "make d; echo x > ./d/../profile", "make d; cd d; echo x > profile",
    "make d; (cd d && echo x > profile)", "make d; bash -c 'echo x > d/profile'",
    "echo d | xargs make; echo x > d/profile", "f() {{ make d; }}; f; echo x > d/profile",
    "make d; git log > d/profile", "make d; cat < f > d/profile", "make d & wait; echo x > d/profile",
    "echo x > ../home/profile", "echo x > ~/profile", "make d; tar cf d/profile f", "make d; sort -o d/profile f",
    "make d; sed -n 'w d/profile' f", "make d; find . -maxdepth 0 -fprint d/profile",
    "make d; git log --output=d/profile", "echo x > \"$HOME/profile\"", "make d; echo x | tee d/profile",
    "make d; cp f d/profile", "tar cf linked/h/profile f", "tar xf a.tar -C linked/h", "git init -q linked/h/x",
    "git clone -q ./bare linked/h/x", "cd linked/h; tar cf profile .config/x", "tar xf d.tar; tar xf a.tar -C d",
    "git checkout -q evil; git init -q d/x", "make d; echo x &> d/profile", "make d; echo x >| d/profile",
)  # fmt: skip
_TOKEN: Final = "secret-4711"
# `linked/h` leads home from the start, `d` once the branch is checked out. `{c}` reads a file, `{s}` a whole folder.
_READ: Final = (
    "git checkout -q evil; {c} d/.config/clew/token", "git merge -q evil && {c} d/.config/clew/token",
    "{{ git checkout -q evil; {c} ./d/.config/clew/token; }}", "git reset -q --hard evil; {c} d/.config/clew/token",
    "git pull -q . evil; {c} d/.config/clew/token", "git restore -s evil d; {c} d/.config/clew/token",
    "git checkout evil -- d; {c} < d/.config/clew/token", "git checkout -q evil; grep -r '' d/",
    "git checkout -q evil; git diff --no-index /dev/null d/.config/clew/token", "git stash -q; {c} t",
    "git checkout -q evil; git grep --no-index '' d/.config/clew", "git checkout -q evil | {c} d/.config/clew/token",
    "git mv linked/h x; {c} x/.config/clew/token", "tar xf d.tar; {c} d/.config/clew/token", "tar xf d.tar; {s} d",
    "{c} linked/h/.config/clew/token", "{c} linked/*/.config/clew/token", "{c} ../home/.config/clew/token",
    "{c} ~/.config/clew/token", "cd linked/h; {c} .config/clew/token", "{c} $(cat names)", "xargs {c} < names",
    "xargs -a names {c}", "strings @names", "for x in ../home/.config/clew/token; do {c} $x; done", "{s} linked",
    "{s} .", "{s} ./linked", "cd linked; {s} .", "grep -R ''", "grep -R -e ''", "rg -L '' --hidden", "tar ch linked",
    "tar -c --dereference .", "tar --deref -c .", "find -L . -name token -exec {c} {{}} +", "diff -r linked bare",
    "diff --recursive linked evil", "find . -name names | xargs {c}", "sort --files0-from=names", "git log -p -- d",
    "awk 1 linked/h/.config/clew/token", "sed -n p linked/h/.config/clew/token", "grep -f names -r .",
)  # fmt: skip
_AROUND: Final = (
    *("{}",) * 6, "{}; ls", "ls; {}", "{} && ls", "ls && {}", "{} || ls", "{} | cat", "echo a | {}", "( {} )",
    "{{ {}\n}}", "if true; then {}\nfi", "for q in a b; do {}\ndone", "echo $({})", 'echo "$({}\n)"', "! {}",
    "{} 2>&1", "{} 2>/dev/null", "ls\n{}", "{} # x", "cat <({}\n)", "case a in a) {}\n;; esac", "f() {{ {}\n}}; f",
    "timeout 5 {}", "env {}", "time {}", "echo x > out; {}", "cd . && {}", "grep -q x f || {}", "test -f f && {}",
    "[ -f f ] && {}", "echo a | xargs -I% {}",
)  # fmt: skip
_SPELLED: Final = (
    ("cmd", "cmd"),
    ("cmd", "./cmd"),
    ("cmd", "'cmd'"),
    (" ", "  "),
    ("'", '"'),
    ("printf", "builtin printf"),
)


def make_line(random: Random) -> str:
    """Return a line that is harmful, or looks like one."""
    kind = random.choice((_EVALUATED, _EVALUATED, _STARTED, _LINKED, _READ))
    line = random.choice(kind).format(
        h=random.choice(_HIDDEN),
        c=random.choice(("cat", "head", "grep ''", "strings", "sort", "awk 1")),
        s=random.choice(("grep -R ''", "grep -nR .", "grep --dereference-r ''", "rg -L ''", "tar ch", "diff -Nr evil")),
    )
    if random.random() < 0.3:
        line = line.replace(*random.choice(_SPELLED))
    if random.random() < 0.2:
        line = f"{line}; {random.choice(_EVALUATED).format(h=random.choice(_HIDDEN))}"
    return random.choice(_AROUND).format(line)


class _Scratch:
    """A home, a workspace with hostile names, and the canary. ``template`` is copied for every line."""

    def __init__(self, folder: Path) -> None:
        self.template, self.world = folder / "template", folder / "world"
        # The canary writes this file, wherever it is started.
        self.mark = folder / "ran"
        self.output = folder / "output"
        self.environment = environment(
            {"PATH": f"{self.world}/bin:{os.environ.get('PATH', os.defpath)}", "HOME": str(self.world / "home")}
        )
        work = self.template / "work"
        for path in (self.template / "bin", self.template / "home/.config/clew", work / "evil"):
            path.mkdir(parents=True)
        (self.template / "home/profile").write_text("whole\n")
        (self.template / "home/.config/clew/token").write_text(f"{_TOKEN}\n")
        (work / "linked").mkdir()
        (work / "linked/h").symlink_to("../../home")
        (work / "names").write_text("../home/.config/clew/token")
        (work / "f").write_text("a\nb\n")
        (work / "Makefile").write_text("all:\n\t@true\nd:\n\t@ln -sfn ../home d\n")
        (work / "evil.mk").write_text("all:\n\t@cmd\n")
        (work / "s").write_text("e cmd\n")
        (work / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.10)\nproject(x NONE)\nadd_custom_target(t)\n"
        )
        self._git("init", "-q", "-b", "main")
        self._git("add", "-A")
        self._git("commit", "-qm", "a")
        self._git("checkout", "-qb", "evil")
        (work / "d").symlink_to("../home")
        self._git("add", "-A")
        self._git("commit", "-qm", "b")
        subprocess.run(["tar", "cf", "d.tar", "d"], cwd=work, check=True)
        self._git("checkout", "-q", "main")
        subprocess.run(["tar", "cf", "a.tar", "f"], cwd=work, check=True)
        subprocess.run(["git", "init", "-q", "--bare", "bare"], cwd=work, check=True)
        with (work / "bare/config").open("a") as config:
            config.write(f"[core]\n\tbare = false\n\tworktree = {self.world}/work\n\tfsmonitor = cmd\n\tpager = cmd\n")
        hook = work / "bare/hooks/pre-receive"
        later = work / "evil/post-index-change"
        for path in (self.template / "bin/cmd", work / "cmd", work / "evil/ls", work / "evil/git", hook, later):
            path.write_text(f"#!/bin/sh\necho ran >> {self.mark}\n")
            path.chmod(0o755)
        # A folder that `printf %n` can name.
        for name in ("0", "1"):
            shutil.copytree(work / "evil", work / name)
        # Names that a glob matches first, and that have a meaning for a builtin or `make`.
        for name in ("-v", "-va[$(cmd)]", "a[$(cmd)]", "-v a[$(cmd)] x", "SHELL=cmd"):
            (work / name).touch()
        (work / "g").symlink_to(".git")

    def _git(self, *arguments: str) -> None:
        settings = ("-c", "user.name=a", "-c", "user.email=a@example.com")
        quiet = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
        subprocess.run(
            ["git", *settings, *arguments], cwd=self.template / "work", check=True, env=quiet, capture_output=True
        )

    def decide(self, line: str) -> str:
        """Judge the line in a fresh copy of the template."""
        if self.world.exists():
            shutil.rmtree(self.world)
        shutil.copytree(self.template, self.world, symlinks=True)
        home = self.world / "home"
        return evaluate(
            [Target("bash", "command", line)],
            manifest=own_rules([str(home / ".config/clew")], []),
            session=RULES,
            workspace=str(self.world / "work"),
            resolve=leads_to,
            home=str(home),
            finds=glob_finder(),
        ).action

    def execute(self, line: str) -> bool:
        """Run the line; return whether the canary ran, a file outside changed, or the token was printed."""
        self.mark.unlink(missing_ok=True)
        outside = self._outside()
        with self.output.open("wb") as output:
            process = subprocess.Popen(
                ["bash", "-c", line],
                cwd=self.world / "work",
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_TIMEOUT_S)
        # Including processes that the line left running.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        process.wait()
        shown = _TOKEN.encode() in self.output.read_bytes()
        return shown or self.mark.exists() or self._outside() != outside

    def _outside(self) -> dict[str, bytes]:
        return {
            str(path): path.read_bytes()
            for name in ("home", "bin")
            for path in (self.world / name).rglob("*")
            if path.is_file()
        }


def run(budget: Budget) -> Outcome:
    outcome = Outcome()
    with tempfile.TemporaryDirectory(prefix="clew-shell-", ignore_cleanup_errors=True) as folder:
        scratch = _Scratch(Path(folder).resolve())
        for seed in budget.rounds():
            line = make_line(Random(seed))
            action = scratch.decide(line)
            effect = scratch.execute(line)
            outcome.counts.update({"rounds": 1, action: 1, "effects": effect, "silent": effect and action == "allow"})
            if effect and action == "allow":
                outcome.broken.append(f"seed {seed}: allowed, and had an effect: {line!r}")
    return outcome


def figure(counts: Counter[str]) -> str:
    return (
        f"shell: {counts['rounds']} lines under {len(RULES)} rules run by bash, {counts['effects']} with an effect, "
        f"{counts['allow']} allowed, {counts['silent']} silent effects"
    )
