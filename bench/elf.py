#!/usr/bin/env python3
"""Does a system whose relocations are packed do what it did before?

Packs the relocations of all programs and libraries of a root directory (headstart elf repack),
and compares, before and after: what programs print and make (LibreOffice, Chromium, clang, git,
Python, QEMU and others, as far as they are there), what ldd -r says of each repacked file, and,
with --boot, whether the root boots in a container without failed units. Then undoes it, and
compares contents, owners, modes, times and extended attributes of all files with those of
before; and packs again, so that the root stays packed.

Usage: bench/elf.py --root DIR [--boot] [--headstart FILE] [--out FILE]
Ends with status 3 when something differs.
"""
import contextlib
import hashlib
import json
import os
import re
import subprocess
import time
from pathlib import Path

from lib.run import Trouble, run
from measured import BUILT, RESULTS, about, command_line, main, needs_root, tool, write

LIMIT_S = 300
PAGE = "<p id=p>before</p><script>p.textContent = [1, 2, 3].map(n => n * n) + 'done'</script>"
SOURCE = r'''#include <stdio.h>
int main(void) { int sum = 0; for (int n = 0; n < 100; n++) sum += n * n; printf("%d\n", sum); }
'''
PYTHON = ("import asyncio, decimal, hashlib, json, re, sqlite3, ssl, xml.dom.minidom; "
          "c = sqlite3.connect(':memory:'); c.execute('create table t(a)'); "
          "c.execute('insert into t values (42)'); "
          "print(c.execute('select a from t').fetchall(), decimal.Decimal(1) / 7, "
          "hashlib.sha256(b'x').hexdigest(), json.dumps({'a': [1, 2]}), ssl.OPENSSL_VERSION)")
# Program, and a job for it; the files that a job leaves in /job are compared too.
JOBS = {
    "git": "git init -q r && cd r && cp ../page.html . && git add . && git -c user.name=a -c "
           "user.email=a@b commit -qm one && echo more >> page.html && git status --porcelain && "
           "git log --format=%H && cd .. && rm -r r",
    "python3": f'python3 -c "{PYTHON}"',
    "clang": "clang --version && clang -O2 -c main.c -o main.o && clang main.o -o program && ./program",
    "qemu-system-x86_64": "qemu-system-x86_64 --version && qemu-system-x86_64 -machine help",
    # What a PDF has besides its pages differs each time.
    "soffice": "soffice --headless --convert-to pdf page.html >/dev/null && "
               "grep -ac '/Type */Page' page.pdf && rm page.pdf && "
               "soffice --headless --convert-to txt:Text page.html >/dev/null && cat page.txt",
    "chromium": "chromium --headless --no-sandbox --disable-gpu --dump-dom file:///job/page.html",
    "firefox-esr": "firefox-esr --version",
    "blender": "blender --version",
    "node": "node -e 'console.log([3, 1, 2].sort(), process.versions.v8)'",
    "java": "java -version",
    "gdb": "gdb --batch -ex 'print 6 * 7'",
    "ffmpeg": "ffmpeg -v error -f lavfi -i testsrc=duration=1:size=64x64:rate=5 -f md5 -",
    "inkscape": "inkscape --version",
    "dockerd": "dockerd --version",
    "psql": "psql --version",
    "mold": "mold --version",
    "rustc": "rustc --version --verbose",
}
# What differs between two runs of the same program.
NOISE = [(rb"/CreationDate\(.*?\)", b""), (rb"/ID *\[.*?\]", b""), (rb"/DocChecksum */[0-9A-F]+", b""),
         (rb"\[\d+:\d+:\d+/\d+\.\d+:", b"["), (rb"0x[0-9a-f]{8,}", b"0x"), (rb"built on .*", b"")]


def arguments():
    parser = command_line(__doc__)
    add = parser.add_argument
    add("--root", type=Path, required=True, help="the root directory of a system; it is changed")
    add("--boot", action="store_true", help="boot it too, by systemd-nspawn")
    add("--headstart", default=BUILT / "headstart")
    add("--out", default=RESULTS / "elf.json")
    return parser.parse_args()


@contextlib.contextmanager
def entered(root):
    """Mounts what programs need."""
    mounted = []
    try:
        for name, words in (("proc", ["-t", "proc", "proc"]), ("dev", ["--rbind", "/dev"]),
                            ("tmp", ["-t", "tmpfs", "tmp"])):
            run("mount", *words, root / name)
            mounted.append(root / name)
        yield
    finally:
        for point in reversed(mounted):
            run("umount", "--lazy", point)


def quiet(text):
    """Without what differs between any two runs."""
    for pattern, instead in NOISE:
        text = re.sub(pattern, instead, text)
    return text


def in_root(root, command):
    """What a command does: its status and a digest of what it printed and made."""
    job = root / "job"
    run("rm", "-rf", job)
    job.mkdir()
    (job / "page.html").write_text(PAGE)
    (job / "main.c").write_text(SOURCE)
    environment = {"PATH": "/usr/local/bin:/usr/bin:/usr/sbin:/bin:/sbin", "HOME": "/tmp", "LC_ALL": "C.UTF-8",
                   "TZ": "UTC", "GIT_AUTHOR_DATE": "2001-01-01T00:00:00Z",
                   "GIT_COMMITTER_DATE": "2001-01-01T00:00:00Z"}
    words = ["chroot", str(root), "sh", "-c", f"cd /job && {command}"]
    start = time.monotonic()
    done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, env=environment, timeout=LIMIT_S, check=False)
    made = {}
    for path in sorted(job.rglob("*")):
        if path.is_file():
            made[path.name] = hashlib.sha256(quiet(path.read_bytes())).hexdigest()
    printed = quiet(done.stdout).decode(errors="replace")
    return {"status": done.returncode, "printed": printed, "made": made}, time.monotonic() - start


def jobs(root, tell):
    """All jobs whose programs are there."""
    found = {}
    for name, command in JOBS.items():
        if any((root / place / name).exists() for place in ("usr/bin", "usr/sbin")):
            found[name], took = in_root(root, command)
            tell(f"{name}: status {found[name]['status']}, {took:.1f} s")
    return found


def linked(root, files):
    """What ldd -r says of each file, without addresses."""
    listed = "\n".join("/" + str(Path(file).relative_to(root)) for file in files)
    script = "while read -r file; do echo \"== $file\"; ldd -r \"$file\" 2>&1 | sed 's/(0x[0-9a-f]*)//'; done"
    done = subprocess.run(["chroot", str(root), "sh", "-c", script], input=listed, text=True,
                          stdout=subprocess.PIPE, timeout=1800, check=False)
    parts = done.stdout.split("== ")[1:]
    return {part.split("\n", 1)[0]: sorted(part.split("\n")[1:]) for part in parts}


def state(root):
    """Of each file in /usr and /opt its content and attributes; hard links by their names."""
    found = {}
    for top in ("usr", "opt"):
        for directory, _, names in os.walk(root / top):
            for name in names:
                path = Path(directory) / name
                if path.is_symlink() or not path.is_file():
                    continue
                stat = path.stat()
                extended = {name: os.getxattr(path, name).hex() for name in os.listxattr(path)}
                digest = hashlib.file_digest(path.open("rb"), "sha256").hexdigest()
                found[str(path)] = (digest, stat.st_mode, stat.st_uid, stat.st_gid, stat.st_mtime_ns,
                                    stat.st_nlink, tuple(sorted(extended.items())))
    return found


def boot(root):
    """Boots the root; its state and the units that failed."""
    script = root / "usr/local/sbin/report-and-end"
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text("#!/bin/sh\nsystemctl is-system-running --wait >/report\n"
                      "systemctl --failed --plain --no-legend >>/report\nsystemctl poweroff --no-block\n")
    script.chmod(0o755)
    unit = root / "etc/systemd/system/report-and-end.service"
    unit.write_text("[Unit]\nAfter=multi-user.target\n[Service]\nType=simple\n"
                    "ExecStart=/usr/local/sbin/report-and-end\n")
    wants = root / "etc/systemd/system/multi-user.target.wants/report-and-end.service"
    wants.parent.mkdir(parents=True, exist_ok=True)
    (root / "report").unlink(missing_ok=True)
    with contextlib.suppress(FileExistsError):
        wants.symlink_to("../report-and-end.service")
    start = time.monotonic()
    try:
        subprocess.run(["systemd-nspawn", "--boot", "--register=no", "--keep-unit", "--private-network",
                        "--resolv-conf=off", "--timezone=off", "--link-journal=no", "--console=pipe",
                        f"--directory={root}"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL, timeout=LIMIT_S, check=False)
    finally:
        for path in (wants, unit, script):
            path.unlink(missing_ok=True)
    report = (root / "report").read_text() if (root / "report").exists() else "no report\n"
    words = [line.split()[0] for line in report.splitlines() if line]
    return {"state": words[0], "failed": words[1:], "seconds": round(time.monotonic() - start, 1)}


def repack(headstart, root, *more):
    """Packs all, or says what would be; the command's document."""
    words = [str(headstart), "elf", "repack", "--root", str(root), "--packaged", "--json", "--system",
             *more]
    start = time.monotonic()
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise Trouble(f"headstart elf repack ended with status {done.returncode}: {done.stderr[-500:]}")
    return json.loads(done.stdout), time.monotonic() - start


def differences(before, after):
    """The names of what is not the same."""
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


def measure(options, tell):
    root = options.root.resolve()
    with entered(root):
        planned, _ = repack(options.headstart, root)
        files = [file["path"] for file in planned["files"]]
        tell(f"{len(files)} files can be repacked")
        # The first run makes caches and profiles.
        jobs(root, tell)
        before = jobs(root, tell)
        unstable = differences(before, jobs(root, tell))
        links_before = linked(root, files)
    boot_before = boot(root) if options.boot else None
    tell(f"boot before: {boot_before}")
    state_before = state(root)
    packed, seconds = repack(options.headstart, root, "--in-place")
    tell(f"repacked {len(packed['files'])} in {seconds:.0f} s")
    with entered(root):
        after = jobs(root, tell)
        links_after = linked(root, files)
    boot_after = boot(root) if options.boot else None
    tell(f"boot after: {boot_after}")
    state_packed = state(root)
    metadata = [name for name, now in state_packed.items()
                if name in state_before and now[1:] != state_before[name][1:]]
    changed = [name for name, now in state_packed.items()
               if name in state_before and now[0] != state_before[name][0]]
    run(options.headstart, "elf", "undo", "--all", "--root", root)
    not_undone = differences(state_before, state(root))
    repack(options.headstart, root, "--in-place")
    reasons = {}
    for skipped in packed["skipped"]:
        reason = re.sub(r"\d+", "N", re.sub(r"/\S+", "PATH", skipped["reason"]))
        reasons[reason] = reasons.get(reason, 0) + 1
    biggest = sorted(packed["files"], key=lambda file: -file["saved"])[:12]
    return {
        "files_repacked": len(packed["files"]), "names_changed": len(changed),
        "failed": packed["failed"], "total": packed["total"], "seconds": round(seconds, 1),
        "skipped": dict(sorted(reasons.items(), key=lambda item: -item[1])),
        "biggest": [{"file": Path(file["path"]).name, "rela_before": file["rela_before"],
                     "rela_after": file["rela_after"], "relr": file["relr"]} for file in biggest],
        "jobs": {name: job["status"] for name, job in after.items()},
        "jobs_that_differ_anyway": unstable,
        "jobs_that_differ": [name for name in differences(before, after) if name not in unstable],
        "ldd_files": len(links_before), "ldd_differs": differences(links_before, links_after),
        "metadata_differs": metadata, "not_undone": not_undone,
        "boot_before": boot_before, "boot_after": boot_after,
    }


def all_right(found):
    """Whether nothing differs."""
    boots = [found["boot_before"], found["boot_after"]]
    same_boot = not boots[0] or [boots[0][key] for key in ("state", "failed")] == [
        boots[1][key] for key in ("state", "failed")]
    return same_boot and not any(found[key] for key in (
        "failed", "jobs_that_differ", "ldd_differs", "metadata_differs", "not_undone"))


def script():
    options = arguments()
    needs_root("A system is changed and entered")
    options.headstart = tool(options.headstart, "./build.sh, or --headstart FILE")
    found = measure(options, lambda text: print(text, flush=True))
    write(options.out, about("headstart-bench/elf/1", str(options.headstart)) | found)
    print(json.dumps({key: found[key] for key in found if key not in ("biggest", "skipped")}, indent=1))
    return 0 if all_right(found) else 3


if __name__ == "__main__":
    main(script)
