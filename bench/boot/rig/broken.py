"""Fault injection: boots of a broken machine take as long as without headstart, and the
journal names the fault in one line."""

import os
import re
import shutil
from dataclasses import dataclass, field
from typing import Callable

from lib.run import run

from rig import kernel, journal
from rig.machine import mounted

# A boot may take this much longer; scheduling alone varies by 1 %.
MOST = 1.02
# So often each is booted before it is called longer.
TRIES = 3
OTHER_UUID = "6b0e3a52-5f0c-4a6e-9d3c-0123456789ab"


@dataclass(frozen=True)
class State:
    """Something that is wrong."""

    name: str
    # What the line about it says, and nothing else does.
    says: str
    # Breaks the guest in this directory, and what is done to the image itself.
    in_root: Callable = lambda root: None
    on_image: Callable = lambda image: None
    words: tuple = ()
    # How many lines that are: each unit tells what keeps it from its own work.
    lines: int = 1
    # Whether the packs must be what they were.
    packs_stay: bool = True
    extra: Callable = field(default=lambda kit: ())


def fill(root):
    """Fills the file system."""
    step, end = 1 << 30, 0
    with open(root / "full", "wb") as file:
        while step:
            try:
                os.posix_fallocate(file.fileno(), end, step)
                end += step
            except OSError:
                step //= 2


def without_var(root):
    """There is no /var, as after a factory reset. One that fstab names and that can't be
    mounted keeps systemd from basic.target, whatever else is installed."""
    shutil.rmtree(root / "var")


def rename(image):
    """The file system gets another UUID, as that of another machine has."""
    # tune2fs wants a checked file system; status 1 of e2fsck says that it fixed something.
    run("sh", "-c", 'e2fsck -fy "$1" || [ $? = 1 ]', "sh", image)
    run("tune2fs", "-U", OTHER_UUID, image)


def damage(root):
    """Truncates the packs."""
    for pack in (root / "var/lib/headstart/boot").glob("*.pack"):
        os.truncate(pack, pack.stat().st_size // 2)


STATES = (
    State("disk-full", r"No space left on device", in_root=fill),
    State("var-missing", r"there are no packs yet", in_root=without_var, packs_stay=False),
    State("no-tracefs", r"tracefs", words=("boot.no-tracefs",),
          extra=lambda kit: [(kernel.module(kit, kernel.NO_TRACEFS), "modules/no-tracefs.ko")]),
    State("other-machine", r"not mounted", packs_stay=False,
          on_image=rename),
    State("damaged-packs", r"is not used", in_root=damage, lines=2,
          packs_stay=False),
)


def measure(learned, model, tell, only=()):
    """Boots `learned` in all states; a result for each, with what is wrong with it."""
    return [boot_in(state, learned, model, tell)
            for state in STATES if not only or state.name in only]


def boot_in(state, learned, model, tell):
    """Boots with and without headstart in a state."""
    machine = learned.twin(f"{learned.name}-broken")
    plain = used = None
    try:
        with mounted(machine.image) as root:
            state.in_root(root)
        state.on_image(machine.image)
        plain = machine.twin(f"{learned.name}-plain", headstart=False)
        used = machine.twin(f"{learned.name}-used")
        extra = state.extra(learned.guest.kit)
        times = {"headstart": [], "none": []}
        for number in range(TRIES):
            words = [*state.words, f"boot.number={number}"]
            without = plain.boot(model, words, False, extra)
            # The state after the first boot is checked.
            booted = (machine if number else used).boot(model, words, not number, extra)
            times["none"].append(without.report.multi_user_us)
            times["headstart"].append(booted.report.multi_user_us)
            first = booted if number == 0 else first
            if ratio(times) <= MOST:
                break
        changed = packs(machine) != packs(used)
    finally:
        for one in filter(None, (machine, plain, used)):
            one.forget()
    result = {"state": state.name, "ratio": round(ratio(times), 4), "multi_user_us": times,
              "journal": journal.lines(first.console),
              "system": {"none": without.report.state, "headstart": booted.report.state}}
    result["wrong"] = list(wrong(state, result, changed))
    tell(f"{state.name}: {result['ratio']:.3f} of the time without; {' | '.join(result['journal'])}"
         + "".join(f"; WRONG: {what}" for what in result["wrong"]))
    return result


def ratio(times):
    """Median with headstart to median without."""
    middle = {arm: sorted(all_of)[len(all_of) // 2] for arm, all_of in times.items()}
    return middle["headstart"] / middle["none"]


def packs(machine):
    """The packs in a machine's image, by name."""
    with mounted(machine.image) as root:
        folder = root / "var/lib/headstart/boot"
        return {pack.name: pack.read_bytes() for pack in folder.glob("*.pack")}


def wrong(state, result, changed):
    """What is not as it must be, in sentences."""
    if result["ratio"] > MOST:
        yield f"the boot takes {result['ratio']:.3f} times as long as without headstart"
    about = [line for line in result["journal"] if re.search(state.says, line)]
    if len(about) != state.lines:
        yield f"{len(about)} lines of the journal are about it and not {state.lines}"
    if result["system"]["headstart"] != result["system"]["none"]:
        yield f"the system is {result['system']['headstart']} with headstart only"
    if state.packs_stay and changed:
        yield "the packs that were there have changed"
