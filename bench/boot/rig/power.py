"""Power cuts: what a kill of the machine at random moments of a boot leaves on its disk.
After each, packs and records are whole, and it boots.

The machine is stopped, its disk is copied, and it goes on: the disk is memory that it
shares with this machine, so what is in the copy is what is there after `kill -9` at that
moment. So one boot serves for many cuts. The last one is a kill.
"""

import contextlib
import json
import os
import random
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass

from lib.run import Trouble, run

from rig import journal, virtual
from rig.container import text
from rig.machine import mounted

CUTS = 20
SEED = 20
# Every so many cuts the machine boots from what is left.
BOOT_EVERY = 10
TICK_S = 0.01


@dataclass(frozen=True)
class Length:
    """How long a boot is, and from when to when it is learned, in seconds of this machine's
    CPUs: a clock would also count the time that it waited for them."""

    whole: float
    begin: float
    end: float


def measure(machine, model, tell, cuts=CUTS, seed=SEED):
    """Cuts the power of a machine that has learned; what was found after each.

    Half of the moments are anywhere in a boot, the others while it is learned, which is
    short.
    """
    chance = random.Random(seed)
    length = measured(machine, model)
    anywhere = [chance.random() * length.whole for _ in range(cuts // 2)]
    learning = [length.begin + chance.random() * (length.end - length.begin)
                for _ in range(cuts - cuts // 2)]
    found, left = [], []
    try:
        for after in cut(machine, model, sorted(anywhere + learning)):
            at = computed = after.pop("computed_s")
            after = {"computed_s": round(at, 2),
                     "while_learned": length.begin <= computed <= length.end} | after
            found.append(after)
            copy = machine.twin(f"{machine.name}-cut-{len(found)}")
            after |= look(copy)
            tell(f"cut {len(found)}: {after}")
            if len(found) % BOOT_EVERY == 0:
                left.append((len(found), copy))
            else:
                copy.forget()
        boots = [whole(copy, model, number) for number, copy in left]
    finally:
        for _, copy in left:
            copy.forget()
    for boot in boots:
        tell(f"after cut {boot['after_cut']}: {boot}")
    wrong = [f"after cut {number}: {what}" for number, after in enumerate(found, 1)
             for what in after["wrong"]]
    wrong += [f"the boot after cut {boot['after_cut']} is {boot['system']}; {boot['wrong']}"
              for boot in boots if boot["system"] != "running" or boot["wrong"]]
    if len(found) < cuts:
        wrong.append(f"there were {len(found)} cuts and not {cuts}: the boot was over before")
    return {"cuts": found, "boots": boots, "wrong": wrong}


def measured(machine, model):
    """How long a boot is."""
    begin = end = last = None
    with running(machine, model, keep=False) as (child, console):
        while child.poll() is None:
            last = computing_s(child.pid) or last
            so_far = text(console)
            begin = begin or (last if journal.BEGIN in so_far else None)
            end = end or (last if journal.END in so_far else None)
            time.sleep(TICK_S)
    if end is None:
        raise Trouble("the machine did not boot before its power was to be cut")
    return Length(last, begin, end)


def cut(machine, model, moments):
    """Stops a boot at these moments and yields at each; kills it at the last."""
    with running(machine, model, keep=True) as (child, _):
        for number, moment in enumerate(moments, 1):
            while child.poll() is None and (computing_s(child.pid) or 0) < moment:
                time.sleep(TICK_S)
            if child.poll() is not None:
                return
            child.send_signal(signal.SIGKILL if number == len(moments) else signal.SIGSTOP)
            yield {"computed_s": computing_s(child.pid) or moment}
            child.send_signal(signal.SIGCONT)


@contextlib.contextmanager
def running(machine, model, keep):
    """A machine that boots, with what its console says; ended at the end of the block."""
    with machine.booting(model) as words, tempfile.TemporaryFile() as console:
        child = subprocess.Popen(virtual.command(*words, keep), stdin=subprocess.DEVNULL,
                                 stdout=console, stderr=console, start_new_session=True)
        try:
            yield child, console
        finally:
            if child.poll() is None:
                child.kill()
            child.wait()


def computing_s(pid):
    """The CPU time of a process; None when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
            fields = stat.read().rpartition(")")[2].split()
    except OSError:
        return None
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def whole(machine, model, number):
    """A boot that is let through."""
    booted = machine.boot(model)
    return {"after_cut": number, "system": booted.report.state,
            "multi_user_us": booted.report.multi_user_us} | look(machine)


def look(machine):
    """What of headstart's is in an image. Mounting it replays the journal of its file
    system, as the next boot would."""
    wrong, packs, records = [], 0, 0
    with mounted(machine.image) as root:
        state = root / "var/lib/headstart/boot"
        for pack in sorted(state.glob("*.pack")):
            try:
                json.loads(run(machine.headstart, "show", "--json", pack, capture=True))
                packs += 1
            except Trouble as trouble:
                wrong.append(str(trouble))
        for record in sorted(state.glob("history/*.json")):
            try:
                json.loads(record.read_text())
                records += 1
            except ValueError as why:
                wrong.append(f"{record.name}: {why}")
        unfinished = len(list(state.rglob("*.headstart-tmp")))
    if packs == 0:
        wrong.append("there is no pack any more")
    return {"packs": packs, "records": records, "unfinished": unfinished, "wrong": wrong}
