#!/usr/bin/env python3
"""Does a kill of headstart change what systemd starts, or damage what is learned of it?

Boots the virtual machine of bench/boot with services that `headstart unit` was run for, and kills
headstart by SIGKILL at random moments of their starts: while the service waits, while it is
recorded, while it is learned. What systemd says of the service then has to be what it says without
headstart. The next start is not killed: it has to be learned, and after it no trace instance and no
temporary file may be left, each pack decodes, and the journal says which pages were ready, late,
missing and wasted. A kill that found no process does not count.

Usage: bench/storm/services.py [-n N] [--seed N] [--headstart FILE] [--out FILE] [--smoke]
Needs root for the image. Ends with status 3 if anything was left behind or is not as without.
"""
import random
import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "boot")]

from exec_start import SERVICES, put  # noqa: E402
from lib.run import Trouble, run  # noqa: E402
from measured import about, main, needs_root, tool, write  # noqa: E402
from options import drawn  # noqa: E402
from rig import kernel, machine, virtual  # noqa: E402
from rig.guest import guest  # noqa: E402

CACHE = Path.home() / ".cache/headstart-bench"
# Starts of a service that are killed in one boot.
BATCH = 12
# A start is recorded for so long, and not for 10 s, which would add nothing but time.
RECORDED = "1s"
# Where a kill falls, in seconds after the start, and how often: a service waits for headstart at
# first, is recorded, and then learned.
MOMENTS = ((0, 0.3, 4), (0.3, 1, 2), (1, 2.5, 4))
# What the journal says of the pages of a start that was prefetched and learned, as `run -v` does.
PAGES = re.compile(r"\d % of \d+ pages? touched were ready, \d+ late, \d+ missing, \d+ wasted")

# Runs in the guest, once it is up. Lines of the plan are a name and a moment.
SCRIPT = """#!/bin/sh
left() { ls /sys/kernel/tracing/instances 2>/dev/null | grep -c headstart; }
start() { # NAME [SECONDS]: starts it, kills headstart then, stops it; sets hit and outcome
    hit=0
    echo 1 >/proc/sys/vm/drop_caches
    systemctl start "$1" &
    if [ -n "$2" ]; then
        sleep "$2"
        if pkill -KILL -x headstart; then hit=1; fi
    fi
    wait $!
    outcome=$?
    while [ "$(systemctl is-active "$1")" = activating ]; do sleep 0.1; done
    outcome=$outcome,$(systemctl is-active "$1")
    while [ -z "$2" ] && pgrep -x headstart >/dev/null; do sleep 0.2; done
    systemctl stop "$1"
    outcome=$outcome,$(systemctl show --value -p Result "$1")
    outcome=$outcome,$(systemctl show --value -p ExecMainStatus "$1")
    systemctl reset-failed "$1" 2>/dev/null
    for _ in $(seq 200); do
        pgrep -x headstart >/dev/null || [ "$(left)" != 0 ] || break
        sleep 0.2
    done
}
starts() { headstart show --json "$1.service" 2>/dev/null | grep -o '"starts": *[0-9]*' | tr -dc 0-9; }
for name in %(names)s; do
    start "$name-bare"
    echo "storm: bare $name $outcome"
    start "$name"
    echo "storm: alone $name $outcome $(starts "$name")"
done
while read -r name moment; do
    start "$name" "$moment"
    killed="$hit $outcome"
    before=$(starts "$name")
    start "$name"
    temporary=$(find /var/lib/headstart -name '*.headstart-tmp' | wc -l)
    damaged=0
    for pack in /var/lib/headstart/packs/*.pack; do
        headstart show --json "$pack" >/dev/null || damaged=$((damaged + 1))
    done
    echo "storm: killed $name $moment $killed $outcome $(left) $temporary $damaged" \
        "$(($(starts "$name") - before))"
done <<PLAN
%(plan)s
PLAN
for name in %(names)s; do
    journalctl --output=cat -u "headstart-unit@$name" | grep -a '^headstart: ' | tail -n 1 |
        sed "s/^/storm: said $name /"
done
"""


def storm():
    """Boots, and compares."""
    options = drawn(__doc__, "services", "fill a guest, boot none", 60, "kills that are planned").parse_args()
    needs_root("Images are mounted")
    machine.needs()
    headstart = Path(tool(options.headstart, "./build.sh, or --headstart FILE"))
    chance = random.Random(options.seed)
    names = tuple(SERVICES)
    plan = list(planned(chance, names, options.n))
    image = guest(CACHE, lambda text: print(text, file=sys.stderr, flush=True))
    if options.smoke:
        # A boot of it takes minutes.
        smoke(image, headstart, plan)
        return 0
    # Found before several machines want it.
    kernel.module(image.kit)
    kernel.vmlinux(image.kit)
    batches = [part for name in names for part in batched([it for it in plan if it[0] == name])]
    with virtual.several() as pool:
        lines = [line for found in pool.map(lambda batch: boot(image, headstart, *batch),
                                            enumerate(batches)) for line in found]
    done = sum(kind == "killed" for kind, *_ in lines)
    if done < len(plan):
        raise Trouble(f"{done} of {len(plan)} starts were reported")
    bare = {name: outcome for kind, name, outcome, *_ in lines if kind == "bare"}
    bad, hits = [], 0
    for kind, name, *found in lines:
        if kind == "said":
            print(name, *found)
            # One that starts nothing but a shell has nothing to prefetch.
            if name != "fails" and not PAGES.search(" ".join(found)):
                bad.append({"name": name, "said": found})
        if kind == "alone" and found != [bare[name], "1"]:
            bad.append({"name": name, "found": found})
        if kind == "killed" and found[1] == "1":
            hits += 1
            # All that this one reads is in memory, so its start is not always traced.
            learned = {"0", "1"} if name == "fails" else {"1"}
            if found[2:-1] != [bare[name], bare[name], "0", "0", "0"] or found[-1] not in learned:
                bad.append({"name": name, "after_s": float(found[0]), "found": found[2:]})
    for what in bad:
        print(what)
    print(f"{hits} kills in {len(plan)} starts of services; after {len(bad)} something was not as without")
    write(options.out, about("headstart/storm-services/1", headstart) |
          {"seed": options.seed, "kills": hits, "starts": len(plan), "bad": bad})
    if not hits:
        raise Trouble("no kill met a process")
    return 3 if bad else 0


def planned(chance, names, count):
    """What is killed, and when."""
    for number in range(count):
        low, high, _ = chance.choices(MOMENTS, [weight for *_, weight in MOMENTS])[0]
        yield names[number % len(names)], round(chance.uniform(low, high), 3)


def batched(plan):
    """What is killed in each boot."""
    return [plan[at:at + BATCH] for at in range(0, len(plan), BATCH)]


def smoke(image, headstart, plan):
    """Fills a machine as a storm does, and has its shell read the script."""
    one = machine.Machine(image, CACHE, "storm")
    one.forget()
    try:
        one.create()
        with machine.mounted(one.image) as root:
            fill(root, headstart, plan)
            run("sh", "-n", root / "etc/boot-report.d/storm")
    finally:
        one.forget()


def boot(image, headstart, number, plan):
    """Boots a machine of its own for a part of the plan; the lines that its script said."""
    one = machine.Machine(image, CACHE, f"storm{number}")
    one.forget()
    try:
        one.create()
        with machine.mounted(one.image) as root:
            fill(root, headstart, plan)
        console = one.boot(None, keep=False).console
    finally:
        one.forget()
    said = [line.partition("storm: ")[2].split() for line in console.splitlines() if "storm: " in line]
    return [line for line in said if len(line) > 2]


def fill(root, headstart, plan):
    """Puts headstart, the services and the script into a guest."""
    put(root / "usr/bin/headstart", headstart.read_bytes(), 0o755)
    names = sorted({name for name, _ in plan})
    for name in names:
        kind, script = SERVICES[name]
        # Less to read than there: this is about starts, and each is one of a slow machine.
        script = script.replace("*.so*", "libc*.so*")
        unit = f"[Service]\n{kind}\nExecStart=/bin/sh -c '{script}'\n"
        put(root / f"etc/systemd/system/{name}.service", unit.replace("NAME", name).encode())
        put(root / f"etc/systemd/system/{name}-bare.service", unit.replace("NAME", name).encode())
        run(headstart, "unit", "--root", root, name, capture=True)
    template = root / "etc/systemd/system/headstart-unit@.service"
    text = template.read_text()
    if "--follow %i\n" not in text:
        raise Trouble(f"{template.name} has another ExecStart=")
    template.write_text(text.replace("--follow %i\n", f"--follow %i --for {RECORDED}\n"))
    lines = "\n".join(" ".join(map(str, line)) for line in plan)
    script = SCRIPT % {"names": " ".join(names), "plan": lines}
    put(root / "etc/boot-report.d/storm", script.encode(), 0o755)


if __name__ == "__main__":
    main(storm)
