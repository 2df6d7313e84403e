#!/usr/bin/env python3
"""Do services that systemd starts through `headstart run` behave as without it?

Boots a Debian in systemd-nspawn with services of each type whose ExecStart= begins with
`headstart run`, and the same services without it. Compares what systemd says of them, and
what was learned; see bench/boot/README.md. Needs root.
"""

import argparse
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from lib.run import Trouble, run  # noqa: E402
from measured import BUILT, main, needs_root  # noqa: E402
from rig import container  # noqa: E402
from rig.guest import guest  # noqa: E402

# What each service reads, and then does. $$$$ is a dollar sign twice for systemd, and the
# number of the shell for it.
READ = "cat /usr/lib/x86_64-linux-gnu/*.so* >/dev/null"
SERVICES = {
    "simple": ("Type=simple", f"{READ}; echo $$$$ >/run/NAME.pid; exec sleep 1000"),
    "notify": ("Type=notify\nNotifyAccess=all",
               f"{READ}; echo $$$$ >/run/NAME.pid; systemd-notify --ready; exec sleep 1000"),
    "forking": ("Type=forking\nPIDFile=/run/NAME.pid",
                f"{READ}; sleep 1000 & echo $$! >/run/NAME.pid"),
    "oneshot": ("Type=oneshot", f"{READ}; echo $$$$ >/run/NAME.pid"),
    "fails": ("Type=oneshot", "exit 7"),
}
HEADSTART = "/usr/local/bin/headstart run --for 60s --pack /var/lib/trial/NAME.pack -- "
STARTS = 3
# How long a service may take to stop; systemd would kill what is left after 90.
STOP_S = 5

# Runs in the guest, once it is up.
SCRIPT = """#!/bin/sh
out=/run/boot-report/services
now() { cut -d' ' -f1 /proc/uptime; }
for name in %(names)s; do
    for start in %(starts)s; do
        rm -f "/run/$name.pid"
        from=$(now)
        systemctl start "$name"
        echo "$name start status $?"
        echo "$name start seconds $from $(now)"
        while [ "$(systemctl is-active "$name")" = active ] && [ ! -s "/run/$name.pid" ]; do
            sleep 0.1
        done
        echo "$name start main $(systemctl show --value -p MainPID "$name") \\
$(cat "/run/$name.pid" 2>/dev/null)"
        echo "$name start active $(systemctl is-active "$name")"
        from=$(now)
        systemctl stop "$name"
        echo "$name stop seconds $from $(now)"
        echo "$name stop result $(systemctl show --value -p Result "$name") \\
$(systemctl show --value -p ExecMainStatus "$name")"
        echo "$name stop tasks $(systemctl show --value -p TasksCurrent "$name")"
        systemctl reset-failed "$name" 2>/dev/null
        # Other starts leave learning to one that is at it.
        while pgrep -x headstart >/dev/null; do sleep 0.1; done
    done
    starts=$(headstart show --json "/var/lib/trial/$name.pack" 2>/dev/null |
        grep -o '"starts": *[0-9]*' | head -n 1)
    echo "$name learned starts ${starts##*[: ]}"
done >"$out" 2>&1
"""


def services():
    """Compares them."""
    args = arguments()
    needs_root("Containers need root")
    image = guest(args.cache, lambda text: print(text, file=sys.stderr, flush=True)).image
    with tempfile.TemporaryDirectory(prefix="exec-start-") as folder:
        found = parse(said(Path(folder), image, args.bin / "headstart"))
    for name in SERVICES:
        own, bare = found[name], found[f"{name}-bare"]
        print(f"{name:<8} start {seconds(own, 'start')} s, without headstart "
              f"{seconds(bare, 'start')} s; stop {seconds(own, 'stop')} s, without "
              f"{seconds(bare, 'stop')} s; {own['learned starts'][0][0] or 'no'} starts learned")
        check(name, own, bare)


def parse(text):
    """What was said, by service and by the first two words of each line."""
    found = {}
    for line in text.splitlines():
        words = line.split(" ")
        if words[0].removesuffix("-bare") in SERVICES and len(words) > 2:
            of = found.setdefault(words[0], {})
            of.setdefault(" ".join(words[1:3]), []).append(words[3:] or [""])
    return found


def seconds(of, what):
    """How long it took in each start."""
    return "/".join(f"{float(to) - float(begin):.2f}" for begin, to in of[f"{what} seconds"])


def check(name, own, bare):
    """What must hold."""
    same = ("start status", "start active", "stop result", "stop tasks")
    for what in same:
        if [words[:1] for words in own[what]] != [words[:1] for words in bare[what]]:
            raise Trouble(f"{name}: {what} is {own[what]}, and without headstart {bare[what]}")
    for main_pid, noted in own["start main"]:
        if name in ("simple", "notify", "forking") and main_pid != noted:
            raise Trouble(f"{name}: the main process is {main_pid}, and the program {noted}")
    longest = max(float(to) - float(begin) for begin, to in own["stop seconds"])
    if longest > STOP_S:
        raise Trouble(f"{name}: a stop takes {longest:.1f} s")
    if own["learned starts"] != [[str(STARTS)]]:
        raise Trouble(f"{name}: {own['learned starts']} of {STARTS} starts are learned")


def arguments():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--bin", type=Path, default=BUILT, help="where headstart is")
    add("--cache", type=Path, default=Path.home() / ".cache/headstart-bench", metavar="DIR",
        help="for images")
    return parser.parse_args()


def said(folder, image, headstart):
    """Boots a guest with the services, and returns what its script said."""
    below, above, work, root = (folder / name for name in ("below", "above", "work", "root"))
    for directory in (below, above, work, root):
        directory.mkdir()
    run("mount", "-o", "loop,ro,noload", image, below)
    run("mount", "-t", "overlay", "overlay", "-o",
        f"lowerdir={below},upperdir={above},workdir={work}", root)
    try:
        fill(root, headstart)
        return boot(root)
    finally:
        run("umount", root)
        run("umount", below)


def fill(root, headstart):
    """Puts the services and the script there."""
    put(root / "usr/local/bin/headstart", headstart.read_bytes(), 0o755)
    (root / "var/lib/trial").mkdir()
    for name, (kind, script) in SERVICES.items():
        for own, before in ((name, HEADSTART), (f"{name}-bare", "")):
            unit = f"[Service]\n{kind}\nExecStart={before}/bin/sh -c '{script}'\n"
            put(root / f"etc/systemd/system/{own}.service", unit.replace("NAME", own).encode())
    names = " ".join(f"{name}-bare {name}" for name in SERVICES)
    script = SCRIPT % {"names": names, "starts": " ".join(map(str, range(STARTS)))}
    put(root / "etc/boot-report.d/services", script.encode(), 0o755)


def put(path, data, mode=0o644):
    """Writes a file of the guest."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    path.chmod(mode)


def boot(root):
    """Boots it, and returns what its script said."""
    with tempfile.TemporaryDirectory() as kept:
        container.boot(root, keep=kept)
        return (Path(kept) / "services").read_text()


if __name__ == "__main__":
    main(services)
