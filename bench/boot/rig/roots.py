"""Boots of machines whose root is something else than ext4 on a disk, or whose initramfs is
a distribution's own: they must be learned and prefetched, and take no longer than without."""

import json
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from lib.run import Trouble, run

from rig import broken, distro, kernel, login, models, journal, virtual
from rig.kinds import (MIB, OTHER, PLACES, ROOTS, SHIPPED, SYSTEM, Root, ext4, fill_places,
                       looped, put)
from rig.machine import INSTALLED, enable, mounted

SECTOR = 512
# Boots after which everything possible is prefetched.
LEARNING = 2
STATUS = "headstart-status: "
# The pack of a file system with a UUID, which the image's own has not.
OF_ANOTHER = re.compile(r"@[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.pack$")
# What was learned and prefetched, reported by the guest after the boot was learned.
SCRIPT = f"""#!/bin/sh
headstart boot status --json | sed 's/^/{STATUS}/'
"""


def names():
    """What kinds there are."""
    return [root.name for root in ROOTS]


def measure(guest, cache, headstart, model, only, consoles, tell):
    """Boots these kinds; a result for each, with what is wrong with it. What the consoles
    said is kept in the directory `consoles`, if there is one."""
    base = distro.distro(guest, cache, tell)
    with tempfile.TemporaryDirectory(prefix="boot-roots-", dir=cache) as folder, \
            virtual.several() as pool:
        found = [pool.submit(boot_all, built(root, base, guest.kit, headstart,
                                             Path(folder) / root.name, tell),
                             guest.kit, model, consoles, tell)
                 for root in ROOTS if root.name in only]
        return [one.result() for one in found]


@dataclass(frozen=True)
class Ready:
    """A disk of a kind of root, and what it is booted with."""

    root: Root
    folder: Path
    words: tuple
    # What headstart wants on the kernel's command line.
    trace: tuple

    @property
    def image(self):
        """The disk."""
        return self.folder / "disk.img"


def built(root, base, kit, headstart, folder, tell):
    """Makes the disk of a kind of root, and its initramfs with headstart and without."""
    tell(f"{root.name}: is built")
    folder.mkdir()
    system, other, staging = folder / "system", folder / "other", folder / "staging"
    run("cp", "--sparse=always", base, staging)
    with mounted(staging) as tree:
        run("install", "-m", "755", headstart, tree / INSTALLED)
        trace = enable(headstart, tree)
        journal.install(tree)
        script = tree / "etc/boot-report.d/headstart-status"
        script.write_text(SCRIPT)
        script.chmod(0o755)
        root.prepare(tree)
        run("truncate", "--size", SYSTEM, system)
        parts = [("system", SYSTEM)]
        if root.other:
            run("truncate", "--size", OTHER, other)
            ext4(tree / root.other, other)
            parts.append(("other", OTHER))
            run("find", tree / root.other, "-mindepth", "1", "-delete")
        root.make(tree, system)
        if root.other:
            with mounted(other) as there:
                run("cp", "--archive", f"{there}/.", tree / root.other)
        with looped(system):
            for arm in ("headstart", "none"):
                distro.initramfs(tree, kit, root.maker, arm == "headstart", folder / arm)
    staging.unlink()
    run("truncate", "--size", SYSTEM + OTHER, folder / "disk.img")
    at, places = 0, []
    for name, size in parts:
        put(folder / name, folder / "disk.img", at)
        (folder / name).unlink()
        places.append(f"{name}:{at // SECTOR}:{size // SECTOR}")
        at += size
    words = (f"root={root.device}", *root.words, f"boot.parts={','.join(places)}")
    return Ready(root, folder, words, tuple(trace))


def ship(ready):
    """Makes the packs that were learned a part of the image, and forgets all else that was."""
    system, other = ready.folder / "system", ready.folder / "other"
    for path, size in ((system, SYSTEM), (other, OTHER)):
        run("truncate", "--size", size, path)
    with mounted(ready.image, 0, SYSTEM) as tree, mounted(ready.image, SYSTEM, OTHER) as learned:
        ext4(tree / ready.root.other, other)
        shipped = ready.folder / "shipped"
        shipped.mkdir()
        packs = [pack for pack in sorted((learned / "boot").glob("*@*.pack"))
                 if not OF_ANOTHER.search(pack.name)]
        if not 0 < len(packs) <= PLACES:
            raise Trouble(f"{len(packs)} packs of the image were learned")
        for pack in packs:
            shutil.copy(pack, shipped)
        fill_places(shipped)
        run("mount", "--bind", shipped, tree / SHIPPED)
        ready.root.make(tree, system)
    for part, at in ((system, 0), (other, SYSTEM)):
        # What is nothing in the new ones is not copied.
        run("fallocate", "--punch-hole", "--offset", at, "--length", part.stat().st_size,
            ready.image)
        put(part, ready.image, at)
        part.unlink()


def boot_all(ready, kit, model, consoles, tell):
    """Lets a machine learn, and compares the boots after that with those without it."""
    root = ready.root
    numbers = models.table(model)

    def boot(arm, keep=False, number=0):
        words = [*ready.words, f"boot.number={number}"]
        words += ready.trace if arm == "headstart" else ["headstart=off"]
        booted = virtual.boot(kernel.vmlinux(kit), ready.folder / arm, ready.image, numbers,
                              words, keep)
        if consoles:
            what = "learned" if keep else arm
            (consoles / f"{root.name}-{what}-{number}").write_text(booted.console)
        return booted

    try:
        for number in range(LEARNING):
            boot("headstart", keep=True, number=number)
        if root.ships:
            ship(ready)
        times, sessions = {"headstart": [], "none": []}, {"headstart": [], "none": []}
        for number in range(broken.TRIES):
            booted = boot("headstart", number=number)
            first = first if number else booted
            without = boot("none", number=number)
            for arm, one in (("headstart", booted), ("none", without)):
                times[arm].append(one.report.multi_user_us)
                sessions[arm].append(login.session_us(one.console))
            if max(ratios(root, times, sessions).values()) <= broken.MOST:
                break
        result = judged(root, status(first.console), times, sessions,
                        {"headstart": first.report.state, "none": without.report.state})
        result["journal"] = journal.lines(first.console)
        result["requests"] = {"headstart": first.report.disk.get("requests"),
                              "none": without.report.disk.get("requests")}
    except Trouble as trouble:
        result = {"root": root.name, "wrong": [str(trouble)]}
    tell(f"{root.name}: {line(result)}")
    return result


def status(console):
    """What headstart reported of the boots, or None."""
    text = "\n".join(re.findall(rf"{STATUS}(.*)$", console.replace("\r", ""), re.M))
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return None


def ratios(root, times, sessions):
    """How long boots are with headstart by how long they are without, by what ends them."""
    found = {"boot": broken.ratio(times)}
    if root.login:
        if None in (*sessions["headstart"], *sessions["none"]):
            raise Trouble("nobody logged in")
        found["login"] = broken.ratio(sessions)
    return found


def judged(root, said, times, sessions, system):
    """The result of a boot, with all that is not as it must be."""
    boots = said["boots"] if said else []
    last = boots[0] if boots else {"phases": [], "problems": []}
    phases = [{"phase": phase["name"], "learned": phase["learned"],
               "prefetched_bytes": phase["prefetched_bytes"],
               **{name: phase["outcome"][name] for name in
                  ("touched_pages", "ready_pages", "late_pages", "missing_pages")}}
              for phase in last["phases"]]
    replayed = sorted((one["phase"], one["in_initramfs"], one["report"]["bytes"])
                      for one in (said or {}).get("this_boot", []))
    by_end = ratios(root, times, sessions)
    result = {"root": root.name, "ratio": round(by_end["boot"], 4), "multi_user_us": times,
              "boots": len(boots), "phases": phases,
              "replayed": [dict(zip(("phase", "in_initramfs", "bytes"), one)) for one in replayed],
              "problems": (said or {}).get("problems", []), "system": system}
    if root.login:
        result |= {"login_ratio": round(by_end["login"], 4), "session_us": sessions}
    result["wrong"] = list(wrong(root, result))
    return result


def wrong(root, result):
    """What is not as it must be, in sentences."""
    boots = 1 if root.ships else LEARNING + 1
    if result["boots"] != boots:
        yield f"{result['boots']} boots were learned and not {boots}"
    by_name = {phase["phase"]: phase for phase in result["phases"]}
    for name in root.phases:
        phase = by_name.get(name)
        if phase is None or not phase["learned"]:
            yield f"the phase {name} was not learned"
        elif not phase["prefetched_bytes"]:
            yield f"nothing of the phase {name} was prefetched"
    if root.early and not any(one["in_initramfs"] for one in result["replayed"]):
        yield "the initramfs prefetched nothing"
    yield from result["problems"]
    for what, ratio in (("boot", result["ratio"]), ("login", result.get("login_ratio", 0))):
        if ratio > broken.MOST:
            yield f"the {what} takes {ratio:.3f} times as long as without headstart"
    if result["system"]["headstart"] != result["system"]["none"]:
        yield f"the system is {result['system']['headstart']} with headstart only"


def line(result):
    """A result in one line."""
    said = "; ".join(f"WRONG: {what}" for what in result["wrong"])
    if "ratio" not in result:
        return said
    ahead = sum(phase["prefetched_bytes"] for phase in result["phases"])
    times = ", ".join(f"{arm} {sorted(values)[len(values) // 2] / 1e6:.2f} s"
                      for arm, values in result["multi_user_us"].items())
    return f"{times}, {ahead / MIB:.1f} MiB prefetched" + (f"; {said}" if said else "")
