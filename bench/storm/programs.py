#!/usr/bin/env python3
"""Do programs behave through `headstart run` as they do alone?

Starts programs of /usr/bin with --version and --help, and small jobs, each twice alone and
twice through headstart, the second time with what it learned prefetched, in an empty directory
that is also HOME and TMPDIR. Compared: status, output, errors, the files that are left, and the
processes that are. Where the two starts alone differ (times, process numbers, temporary names),
only what is the same in both is compared, and that is counted.

Usage: bench/storm/programs.py [-n N] [--seed N] [--headstart FILE] [--out FILE] [--smoke]
Ends with status 3 if any of them behaved otherwise.
"""
import collections
import contextlib
import ctypes
import hashlib
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from measured import about, main, needs_root, tool, write  # noqa: E402
from options import drawn  # noqa: E402
from state import settled  # noqa: E402

LIMIT_S = 20
# What has not ended alone by then is passed over in a smoke run: four times the limit would be its longest part.
PATIENCE_S = 3
ENDLESS = "did not end"
MOST_BYTES = 8 << 20
# prctl(2): orphans of what we start become our children.
PR_SET_CHILD_SUBREAPER = 36
# unshare(2), mount(2)
CLONE_NEWNS, MS_REC, MS_PRIVATE = 0x20000, 0x4000, 1 << 18
# They end sessions or machines, wait for a user, or are headstart's measure themselves.
NEVER = {"reboot", "poweroff", "halt", "shutdown", "telinit", "init", "runlevel", "screen", "tmux",
         "headstart", "systemd-inhibit", "wall", "write", "mesg", "chvt", "openvt", "pkexec",
         "debconf", "debconf-apt-progress", "pager", "less", "more", "top", "htop", "watch", "vi",
         "vim", "nano", "ssh-agent", "gpg-agent", "dbus-daemon", "script", "scriptlive",
         "scriptreplay", "X", "Xorg", "startx", "xinit"}
JOBS = (
    "ls -la /etc", "find /etc -name '*.conf' -type f", "grep -r root /etc/passwd", "wc /etc/services",
    "sort -R --random-source=/etc/passwd /etc/services", "tar cf x.tar -C /etc passwd group",
    "gzip -kn9c /etc/services", "sed -n 1,5p /etc/services", "awk -F: '{print $1}' /etc/passwd",
    "cut -d: -f1 /etc/passwd", "diff /etc/passwd /etc/group", "sha256sum /etc/services",
    "dd if=/dev/zero of=x bs=4k count=9 status=none", "cp -a /etc/services y", "mkdir -p a/b/c",
    "ln -s a b", "touch -d 2020-01-01 z", "sh -c 'exit 3'", "sh -c 'kill -TERM $$'", "false",
    "sh -c 'sleep 0.05 & wait; echo done >&2; exit 9'", "python3 -c 'print(sum(range(1000)))'",
    "python3 -c 'import os; os.abort()'", "perl -e 'print 1+1; exit 4'", "git init -q repo",
    "env -i A=1 env", "xargs echo", "seq 100000", "head -c 100000 /dev/zero", "nice",
    "timeout 0.1 sleep 5", "setsid sh -c 'echo session'", "nohup echo hup", "id", "uname -a",
    "bash -c 'echo $BASH_SUBSHELL; ulimit -a'", "stat -c %s /etc/passwd", "getconf -a", "locale",
    "openssl dgst -md5 /etc/passwd", "file /bin/sh", "cc --version", "make -v",
)


def alone():
    """Hides what this machine learned, and takes orphans in."""
    libc = ctypes.CDLL(None, use_errno=True)
    store = Path("/var/lib/headstart")
    store.mkdir(parents=True, exist_ok=True)
    if (libc.unshare(CLONE_NEWNS) or libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None)
            or libc.mount(b"none", bytes(store), b"tmpfs", 0, None)
            or libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)):
        raise OSError(ctypes.get_errno(), "can't leave this machine's packs alone")


def children():
    """Our children that are alive."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit():
                state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
                if int(parent) == os.getpid() and state != "Z":
                    found.append((int(entry.name), os.readlink(entry / "exe")))
    return found


def files(place):
    """What is in a directory: names, types, modes, and contents."""
    found = {}
    for path in sorted(Path(place).rglob("*")):
        stat = path.lstat()
        content = None
        if path.is_symlink():
            content = os.readlink(path)
        elif path.is_file():
            content = hashlib.sha256(path.read_bytes()).hexdigest()
        found[str(path.relative_to(place))] = (stat.st_mode, content)
    return found


def bound():
    """Lets a program that never ends not fill the disk."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (MOST_BYTES, MOST_BYTES))


class Rig:
    """Where programs are started."""

    def __init__(self, headstart, place):
        self.headstart = headstart
        # The same name each time: programs print it.
        self.home = Path(place) / "home"
        self.said = Path(place) / "output", Path(place) / "errors"

    def start(self, command, *through, limit=LIMIT_S):
        """Starts a shell command's program; returns what came of it in so many seconds."""
        shutil.rmtree(self.home, ignore_errors=True)
        self.home.mkdir()
        home = str(self.home)
        environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": home, "TMPDIR": home, "LANG": "C.UTF-8",
                       "TERM": "dumb"}
        line = " ".join(["exec", *through, command])
        with open(self.said[0], "wb") as output, open(self.said[1], "wb") as errors:
            running = subprocess.Popen(["/bin/sh", "-c", line], cwd=home, env=environment,
                                       stdin=subprocess.DEVNULL, stdout=output, stderr=errors,
                                       start_new_session=True, preexec_fn=bound)
            try:
                status = running.wait(timeout=limit)
            except subprocess.TimeoutExpired:
                status = ENDLESS
        if status == ENDLESS:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)
            running.wait()
        left = self.left()
        output, errors = (path.read_bytes() for path in self.said)
        if status == ENDLESS:
            # How far it came is chance.
            output = errors = b""
        return {"status": status, "output": output, "errors": errors, "files": files(self.home),
                "processes": left}

    def left(self):
        """The names of processes that stay when the program has ended, which are killed."""
        def others():
            return [(pid, exe) for pid, exe in children() if exe != self.headstart]
        # Those that are about to end have a moment.
        until = time.monotonic() + 1
        while others() and time.monotonic() < until:
            time.sleep(0.01)
        found = others()
        for pid, _ in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        return sorted(exe for _, exe in found)


def compare(rig, command, patience):
    """What differs through headstart, and what differs without it; None if it has not ended alone in so many seconds."""
    first = rig.start(command, limit=patience)
    if first["status"] == ENDLESS and patience < LIMIT_S:
        return None
    through = [rig.start(command, rig.headstart, "run", *options, "--") for options in ([], ["--always"])]
    second = rig.start(command)
    varying = {part for part in first if first[part] != second[part]}
    return varying, {part: [repr(way[part])[:300] for way in (first, *through)] for part in first
                     if part not in varying and any(way[part] != first[part] for way in through)}


def programs():
    options = drawn(__doc__, "programs", "10 programs and 10 jobs", 500, "programs").parse_args()
    needs_root("What is learned has to be hidden")
    headstart = tool(options.headstart, "./build.sh, or --headstart FILE")
    result = about("headstart/storm-programs/1", headstart) | {"seed": options.seed}
    chance = random.Random(options.seed)
    names = sorted({path.name for path in Path("/usr/bin").iterdir()
                    if os.access(path, os.X_OK) and path.is_file() and path.name not in NEVER})
    count, jobs = (10, JOBS[:10]) if options.smoke else (options.n, JOBS)
    names = sorted(chance.sample(names, min(count, len(names))))
    commands = [f"{name} {option}" for name in names for option in ("--version", "--help")]
    commands += jobs
    patience = PATIENCE_S if options.smoke else LIMIT_S
    bad, varied, passed_over = [], collections.Counter(), []
    with tempfile.TemporaryDirectory(dir="/var/tmp") as place:
        alone()
        rig = Rig(headstart, place)
        for command in commands:
            found = compare(rig, command, patience)
            if found is None:
                passed_over.append(command)
                continue
            varying, other = found
            varied.update(varying)
            if other:
                bad.append({"command": command, "other": other})
                print(f"{command}: {other}", flush=True)
        left = settled(headstart)
    result |= {"programs": len(names), "commands": len(commands), "varying": varied, "bad": bad,
               "left": left}
    print(f"{len(commands)} commands of {len(names)} programs: {len(bad)} behaved otherwise; "
          f"by themselves varied: {dict(varied) or 'nothing'}; left behind: {left or 'nothing'}; "
          f"passed over: {', '.join(passed_over) or 'nothing'}")
    if not options.smoke:
        write(options.out, result)
    return 3 if bad or left else 0


if __name__ == "__main__":
    main(programs)
