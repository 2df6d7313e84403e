"""Upgrades: a share of the files that boots read is replaced between two of them. The next
boot loses no more than that share of what it had gained."""

import json
import os
import random
import shutil

from lib.run import run

from rig.machine import INSTALLED, mounted

# Of the files in the packs that is replaced.
SHARE = 0.2
SEED = 20
# The noise of single boots, as a share of the time.
NOISE = 0.01


def measure(learned, model, tell, share=SHARE, seed=SEED):
    """Upgrades a machine that has learned; its boots before and after, in microseconds."""
    machine = learned.twin(f"{learned.name}-upgraded")
    made = [machine]
    try:
        with mounted(machine.image) as root:
            replaced, of = replace(root, names(machine, root), share, seed)
        plain = machine.twin(f"{learned.name}-plain", headstart=False)
        made.append(plain)
        renewed = machine.twin(f"{learned.name}-renewed")
        made.append(renewed)
        with mounted(renewed.image) as root:
            said = renew(root)
        without = plain.boot(model, keep=False).report.multi_user_us
        after = [machine.boot(model).report.multi_user_us for _ in range(2)]
        with_renewed = renewed.boot(model).report.multi_user_us
    finally:
        for one in made:
            one.forget()
    # On the same disk, with all learned again.
    settled = after[-1]
    lost = {name: round((first - settled) / (without - settled), 4)
            for name, first in (("no_hook", after[0]), ("renewed", with_renewed))}
    result = {"files": of, "replaced": replaced, "without_us": without, "after_us": after,
              "renewed_us": with_renewed, "renew": said, "lost": lost, "wrong": []}
    noise = NOISE * without
    for name, first in (("without a hook", after[0]), ("renewed", with_renewed)):
        if first - settled > share * (without - settled) + noise:
            result["wrong"].append(f"replacing {share:.0%} of the files, {name}, loses "
                                   f"{(first - settled) / (without - settled):.0%}")
    tell(f"upgrade: {result}")
    return result


def renew(root):
    """Lets packs read the new files, as a hook of the package manager does; what it says."""
    run("mount", "--bind", "/proc", root / "proc")
    try:
        return json.loads(run("chroot", root, f"/{INSTALLED}", "pack", "renew", "--json",
                              capture=True))
    finally:
        run("umount", root / "proc")


def names(machine, root):
    """The files that are in the packs of an image, in order."""
    found = set()
    for pack in sorted((root / "var/lib/headstart/boot").glob("*.pack")):
        shown = json.loads(run(machine.headstart, "show", "--json", pack, capture=True))
        found.update(file["path"] for file in shown["files"])
    there = [name for name in sorted(found) if (root / name.lstrip("/")).is_file()]
    # What boots write is replaced by them.
    return [name for name in there if name.startswith("/usr/") or name.startswith("/etc/")]


def replace(root, files, share, seed):
    """Puts a copy in the place of a share of these files, as package managers do."""
    chosen = random.Random(seed).sample(files, round(share * len(files)))
    for name in chosen:
        path = root / name.lstrip("/")
        new = path.with_name(path.name + ".dpkg-new")
        shutil.copy2(path, new, follow_symlinks=False)
        stat = path.lstat()
        os.chown(new, stat.st_uid, stat.st_gid, follow_symlinks=False)
        new.replace(path)
    return len(chosen), len(files)
