#!/usr/bin/env python3
"""Does a program start, and end as it does alone, when system calls of `headstart run` fail?

Makes every system call of `headstart run` fail in turn, with each of five errors, by strace's
fault injection: first one run counts the calls of each thread, then the first call of a kind
fails in all threads, then the second, and so on. The program makes none of these calls, so
each failure is headstart's. Its output, its status, and what is left behind are compared with
a run without failures.

What fails without fault of headstart's: execve(2) itself, and what happens before its main
function begins, in the C library. These are counted apart.

Usage: bench/storm/errors.py [--errors E,…] [--calls NAME,…] [--headstart FILE] [--out FILE] [--smoke]
Ends with status 3 if a program did not start, ended otherwise, or something was left behind.
"""
import collections
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from measured import about, main, needs_root, run, tool, write  # noqa: E402
from options import common  # noqa: E402
from state import damaged, leftovers, settings, settled  # noqa: E402

ERRORS = ("ENOSPC", "EDQUOT", "EROFS", "ENOMEM", "EIO")
# Calls that headstart does not make: what the program says, and that it was told to.
PROGRAM = """
static long call(long n, long a, long b, long c, long d, long e, long f) {
    register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
    long out;
    __asm__ volatile("syscall" : "=a"(out) : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8),
                     "r"(r9) : "rcx", "r11", "memory");
    return out;
}
struct part { const char *base; unsigned long length; };
void _start(void) {
    struct part part = { "it runs\\n", 8 };
    call(328, 1, (long)&part, 1, -1, 0, 0); /* pwritev2 */
    call(60, 7, 0, 0, 0, 0, 0);             /* exit */
}
"""
LIMIT_S = 60
# A program waits for headstart for 20 ms at most; strace slows all down.
SOON_S = 2
LINE = re.compile(r"^(\d+) +(?:\d+\.\d+ )?(?:<\.\.\. )?(\w+)[( ]")
# These end or replace a process, have no result to be replaced, or never fail so: brk(2) returns
# the old end, and futex(2) wakes whom it was told to.
NEVER = {"brk", "futex", "exit", "exit_group", "execve", "rt_sigreturn", "vfork"}


class Rig:
    """A program, and a store of packs."""

    def __init__(self, headstart, place):
        self.headstart = headstart
        self.place = Path(place)
        self.program = self.place / "program"
        source = self.place / "program.c"
        source.write_text(PROGRAM)
        run("cc", "-O1", "-static", "-nostdlib", "-ffreestanding", "-o", self.program, source)
        self.store = self.place / "packs"
        self.log = self.place / "trace"

    def start(self, *injection):
        """Starts it; returns its status and output, and what headstart said."""
        words = ["strace", "-f", "-qq", "-o", self.log, *injection, self.headstart, "run", "--always",
                 "--", self.program]
        began = time.monotonic()
        with tempfile.TemporaryFile("w+") as errors:
            running = subprocess.Popen(
                [str(word) for word in words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=errors, text=True, errors="replace", start_new_session=True,
                env={"HEADSTART_PACKS": str(self.store), "PATH": "/usr/bin:/bin"})
            guard = threading.Timer(LIMIT_S, os.killpg, (running.pid, signal.SIGKILL))
            guard.start()
            output = running.stdout.read()
            self.waited_s = time.monotonic() - began
            status = running.wait()
            if not guard.is_alive():
                raise subprocess.TimeoutExpired(words, LIMIT_S)
            guard.cancel()
            errors.seek(0)
            return status, output, errors.read()

    def counts(self):
        """How often each call is made by the thread that makes it most, in a first start and
        in one with a pack."""
        most = collections.Counter()
        for _ in range(2):
            status, output, said = self.start()
            assert (status, output) == (7, "it runs\n"), (status, output, said)
            each = collections.Counter()
            for line in self.log.read_text(errors="replace").splitlines():
                found = LINE.match(line)
                if found and "resumed>" not in line:
                    each[found.group(1, 2)] += 1
            for (_, name), count in each.items():
                most[name] = max(most[name], count)
        # strace can't inject into calls that are newer than itself, and has only numbers for them.
        self.unknown = sorted(name for name in most if name.startswith("syscall_"))
        return {name: count for name, count in sorted(most.items())
                if name not in NEVER | {"pwritev2"} and name not in self.unknown}

    def failed_before_main(self):
        """Whether the first process had its failure before headstart's main function: in the C
        library, or in Rust's runtime, which ends with a second stack for signals."""
        first, stacks = None, 0
        for line in self.log.read_text(errors="replace").splitlines():
            if not (found := LINE.match(line)):
                continue
            first = first or found.group(1)
            if found.group(1) == first and "(INJECTED)" in line:
                return True
            stacks += found.group(1, 2) == (first, "sigaltstack")
            if stacks == 2:
                return False
        return False


def attempt(rig, name, number, error):
    """One start in which these calls fail; returns what is wrong with it, or nothing."""
    try:
        status, output, said = rig.start(f"--inject={name}:error={error}:when={number}")
        if rig.waited_s > SOON_S:
            return f"started after {rig.waited_s:.1f} s"
    except subprocess.TimeoutExpired:
        return "did not end"
    if "panicked" in said:
        return f"panicked: {said.strip()[-300:]}"
    if (status, output) != (7, "it runs\n"):
        return f"status {status}, output {output!r}: {said.strip()[-300:]}"
    return None


def errors():
    parser = common(__doc__, "errors", "ENOSPC for some calls only")
    parser.add_argument("--errors", default=",".join(ERRORS), metavar="E,…", help="errors [default: %(default)s]")
    parser.add_argument("--calls", default="", metavar="NAME,…", help="system calls [default: all]")
    options = parser.parse_args()
    needs_root("Learning is a part of it")
    headstart = tool(options.headstart, "./build.sh, or --headstart FILE")
    tool("strace", "install strace")
    result = about("headstart/storm-errors/1", headstart)
    chosen = options.errors.split(",")[:1 if options.smoke else None]
    with tempfile.TemporaryDirectory(dir="/var/tmp") as place:
        rig = Rig(headstart, place)
        counts = rig.counts()
        if options.calls:
            counts = {name: counts[name] for name in options.calls.split(",")}
        if options.smoke:
            counts = {name: min(counts[name], 2) for name in ("clone", "clone3", "mmap", "openat",
                                                               "renameat", "write") if name in counts}
        before = settings()
        tried, bad, excused = 0, [], []
        for name, count in counts.items():
            began = time.monotonic()
            for number in range(1, count + 1):
                for error in chosen:
                    tried += 1
                    wrong = attempt(rig, name, number, error)
                    if not wrong:
                        continue
                    what = {"call": name, "number": number, "error": error, "wrong": wrong}
                    (excused if rig.failed_before_main() else bad).append(what)
                    print(f"{name} {number} {error}: {wrong}", flush=True)
            took = time.monotonic() - began
            print(f"{name}: {count} × {len(chosen)} in {took:.0f} s", flush=True)
        # The next start cleans up.
        status, output, said = rig.start()
        left = settled(headstart) + leftovers(rig.store) + damaged(headstart, rig.store)
        changed = [name for name, value in settings().items() if before.get(name) != value]
        result |= {"calls": counts, "unknown": rig.unknown, "tried": tried, "before_main": excused, "bad": bad,
                   "left": left, "changed_settings": changed}
    print(f"{tried} failures of {sum(counts.values())} calls of {len(counts)} kinds: "
          f"{tried - len(bad) - len(excused)} starts as without, {len(excused)} failed before main, "
          f"{len(bad)} otherwise; left behind: {left or 'nothing'}; settings: {changed or 'as before'}")
    if not options.smoke:
        write(options.out, result)
    good = not bad and not left and not changed and (status, output) == (7, "it runs\n")
    return 0 if good else 3


if __name__ == "__main__":
    main(errors)
