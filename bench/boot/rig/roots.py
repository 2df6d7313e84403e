"""Boots of machines whose root is something else than ext4 on a disk, or whose initramfs is
a distribution's own: they must be learned and read ahead, and take no longer than without."""

import contextlib
import json
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

from lib.image import unmount
from lib.run import Trouble, run

from rig import broken, distro, kernel, models, told, virtual
from rig.machine import INSTALLED, enable, mounted

MIB = 1 << 20
SECTOR = 512
# The root file system, and another one if there is one.
SYSTEM, OTHER = 2048 * MIB, 512 * MIB
# Boots after which all that can be is read ahead.
LEARNING = 2
STATUS = "headstart-status: "
# What was learned and read ahead, told by the guest when the boot was learned.
SCRIPT = f"""#!/bin/sh
headstart boot status --json | sed 's/^/{STATUS}/'
"""
KEY = "etc/keys/root.key"


def ext4(tree, path):
    """A file system with these files on it."""
    run("mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", path)
    with mounted(path) as there:
        run("cp", "--archive", f"{tree}/.", there)


def btrfs(tree, path):
    """The same, in a subvolume."""
    run("mkfs.btrfs", "--quiet", path)
    with mounted(path) as there:
        run("btrfs", "subvolume", "create", there / "@")
        run("cp", "--archive", f"{tree}/.", there / "@")


def luks(tree, path):
    """An encrypted ext4, made without a device mapper."""
    if not shutil.which("qemu-img"):
        raise Trouble("qemu-img is missing; apt-get install qemu-utils")
    plain = path.with_suffix(".plain")
    try:
        # The header takes the rest.
        run("truncate", "--size", path.stat().st_size - 16 * MIB, plain)
        ext4(tree, plain)
        run("qemu-img", "convert", "-f", "raw", "-O", "luks",
            "--object", f"secret,id=key,file={tree / KEY}",
            "-o", "key-secret=key,iter-time=10", plain, path)
        run("truncate", "--size", SYSTEM, path)
    finally:
        plain.unlink(missing_ok=True)


def fstab(tree, *more):
    """Says what is mounted."""
    lines = ["/dev/root / auto noatime 0 0", *more]
    (tree / "etc/fstab").write_text("\n".join(lines) + "\n")


def with_var(tree):
    """/var is a file system of its own."""
    fstab(tree, "/dev/mapper/other /var ext4 noatime 0 2")


def with_overlay(tree):
    """Nothing is written to the root; what headstart learns is on a file system of its own."""
    (tree / "etc/fstab").write_text("/dev/mapper/other /var/lib/headstart ext4 noatime 0 2\n")
    (tree / "var/lib/headstart").mkdir(parents=True, exist_ok=True)


def with_luks(tree):
    """The key is in the initramfs."""
    (tree / KEY).parent.mkdir(parents=True)
    (tree / KEY).write_text("a key of a benchmark, known to all")
    (tree / "etc/crypttab").write_text(f"luks /dev/mapper/system /{KEY} luks,initramfs\n")
    with open(tree / "etc/cryptsetup-initramfs/conf-hook", "a") as hook:
        hook.write("CRYPTSETUP=y\nKEYFILE_PATTERN=/etc/keys/*.key\n")


@dataclass(frozen=True)
class Root:
    """A kind of root."""

    name: str
    maker: str = "initramfs-tools"
    # Changes the guest's files, and makes the file system of them.
    prepare: Callable = fstab
    make: Callable = ext4
    # A directory of the guest that is on a file system of its own.
    other: str | None = None
    device: str = "/dev/mapper/system"
    words: tuple = ("ro",)
    # Which phases the third boot must have read ahead.
    phases: tuple = ("initramfs", "mounts", "system")
    # Whether the initramfs can read ahead.
    early: bool = True


ROOTS = (
    Root("initramfs-tools"),
    Root("dracut", maker="dracut"),
    Root("btrfs", make=btrfs, words=("ro", "rootfstype=btrfs", "rootflags=subvol=@")),
    Root("var", prepare=with_var, other="var"),
    Root("overlay", prepare=with_overlay, other="var/lib/headstart",
         words=("ro", "boot.overlay=seen"), early=False, phases=("mounts", "system")),
    Root("overlay-hidden", prepare=with_overlay, other="var/lib/headstart",
         words=("ro", "boot.overlay=hidden"), early=False, phases=("mounts", "system")),
    Root("luks", prepare=with_luks, make=luks, device="/dev/mapper/luks"),
)


def names():
    """What kinds there are."""
    return [root.name for root in ROOTS]


def measure(guest, cache, headstart, model, only, consoles, tell):
    """Boots these kinds; a result for each, with what is wrong with it. What the consoles
    said is kept in the directory `consoles`, if there is one."""
    base = distro.distro(guest, cache, tell)
    with tempfile.TemporaryDirectory(prefix="boot-roots-", dir=cache) as folder, \
            virtual.several() as pool:
        chosen = [root for root in ROOTS if root.name in only]
        # One after the other: each needs mounts. Then all boot at once.
        ready = [built(root, base, guest.kit, headstart, Path(folder) / root.name, tell)
                 for root in chosen]
        found = [pool.submit(boot_all, one, guest.kit, model, consoles, tell) for one in ready]
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
        told.install(tree)
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
        run("dd", f"if={folder / name}", f"of={folder / 'disk.img'}", "bs=1M", "conv=notrunc,sparse",
            f"seek={at // MIB}")
        (folder / name).unlink()
        places.append(f"{name}:{at // SECTOR}:{size // SECTOR}")
        at += size
    words = (f"root={root.device}", *root.words, f"boot.parts={','.join(places)}")
    return Ready(root, folder, words, tuple(trace))


@contextlib.contextmanager
def looped(path):
    """A file as a device, so that what is on it is found by its UUID."""
    device = run("losetup", "--find", "--show", path, capture=True).strip()
    try:
        yield device
    finally:
        run("losetup", "--detach", device)


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
        times = {"headstart": [], "none": []}
        for number in range(broken.TRIES):
            booted = boot("headstart", number=number)
            first = first if number else booted
            times["headstart"].append(booted.report.multi_user_us)
            without = boot("none", number=number)
            times["none"].append(without.report.multi_user_us)
            if broken.ratio(times) <= broken.MOST:
                break
        result = judged(root, status(first.console), times,
                        {"headstart": first.report.state, "none": without.report.state})
        result["journal"] = told.lines(first.console)
        result["requests"] = {"headstart": first.report.disk.get("requests"),
                              "none": without.report.disk.get("requests")}
    except Trouble as trouble:
        result = {"root": root.name, "wrong": [str(trouble)]}
    tell(f"{root.name}: {line(result)}")
    return result


def status(console):
    """What headstart told of the boots, or None."""
    text = "\n".join(re.findall(rf"{STATUS}(.*)$", console.replace("\r", ""), re.M))
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return None


def judged(root, said, times, system):
    """What became of a boot, with all that is not as it must be."""
    boots = said["boots"] if said else []
    last = boots[0] if boots else {"phases": [], "problems": []}
    phases = [{"phase": phase["name"], "learned": phase["learned"],
               "read_ahead_bytes": phase["read_ahead_bytes"],
               **{name: phase["outcome"][name] for name in
                  ("touched_pages", "ready_pages", "late_pages", "missing_pages")}}
              for phase in last["phases"]]
    replayed = sorted((one["phase"], one["in_initramfs"], one["report"]["bytes"])
                      for one in (said or {}).get("this_boot", []))
    result = {"root": root.name, "ratio": round(broken.ratio(times), 4), "multi_user_us": times,
              "boots": len(boots), "phases": phases,
              "replayed": [dict(zip(("phase", "in_initramfs", "bytes"), one)) for one in replayed],
              "problems": (said or {}).get("problems", []), "system": system}
    result["wrong"] = list(wrong(root, result))
    return result


def wrong(root, result):
    """What is not as it must be, in sentences."""
    if result["boots"] != LEARNING + 1:
        yield f"{result['boots']} boots were learned and not {LEARNING + 1}"
    by_name = {phase["phase"]: phase for phase in result["phases"]}
    for name in root.phases:
        phase = by_name.get(name)
        if phase is None or not phase["learned"]:
            yield f"the phase {name} was not learned"
        elif not phase["read_ahead_bytes"]:
            yield f"nothing of the phase {name} was read ahead"
    if root.early and not any(one["in_initramfs"] for one in result["replayed"]):
        yield "the initramfs read nothing ahead"
    yield from result["problems"]
    if result["ratio"] > broken.MOST:
        yield f"the boot takes {result['ratio']:.3f} times as long as without headstart"
    if result["system"]["headstart"] != result["system"]["none"]:
        yield f"the system is {result['system']['headstart']} with headstart only"


def line(result):
    """A result in one line."""
    said = "; ".join(f"WRONG: {what}" for what in result["wrong"])
    if "ratio" not in result:
        return said
    ahead = sum(phase["read_ahead_bytes"] for phase in result["phases"])
    times = ", ".join(f"{arm} {sorted(values)[len(values) // 2] / 1e6:.2f} s"
                      for arm, values in result["multi_user_us"].items())
    return f"{times}, {ahead / MIB:.1f} MiB read ahead" + (f"; {said}" if said else "")
