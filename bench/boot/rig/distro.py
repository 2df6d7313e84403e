"""A guest that also has what makes initramfs files, initramfs-tools and dracut: a copy of
the guest in the cache, and the initramfs of a directory that has it. Starts no machine."""

import contextlib
import hashlib
import inspect
import shutil
from pathlib import Path

from lib.image import inside, unmount
from lib.run import run

from rig import kernel
from rig.machine import mounted

HERE = Path(__file__).resolve().parent.parent
REPOSITORY = HERE.parents[1]
# What is put into a guest beside packages: the modelled disk in the initramfs.
PARTS = HERE / "roots"
HELD = "usr/local/lib/boot-rig"
PACKAGES = ("initramfs-tools", "cryptsetup-initramfs", "lvm2", "btrfs-progs", "dracut-core",
            "cpio", "zstd", "libpam-systemd")
# Where each of them looks: a file of ours or of dist, and its place in the guest.
INITRAMFS_TOOLS = (
    (PARTS / "initramfs-tools/hook", "etc/initramfs-tools/hooks/boot-rig"),
    (PARTS / "initramfs-tools/premount", "etc/initramfs-tools/scripts/init-premount/boot-rig"),
    (PARTS / "initramfs-tools/overlay", "etc/initramfs-tools/scripts/local-bottom/boot-rig"),
)
DRACUT = tuple((PARTS / "dracut" / name, f"usr/lib/dracut/modules.d/89boot-rig/{name}")
               for name in ("module-setup.sh", "pre-trigger.sh"))
HOOKS = tuple((REPOSITORY / "dist/initramfs-tools" / name, f"etc/initramfs-tools/{name}")
              for name in ("hooks/headstart", "scripts/init-bottom/headstart"))
DRACUT_MODULE = tuple((REPOSITORY / "dist/dracut/90headstart" / name,
                       f"usr/lib/dracut/modules.d/90headstart/{name}")
                      for name in ("module-setup.sh", "headstart.sh"))


def distro(guest, cache, tell):
    """The image of a guest with these packages; made unless it is in the cache."""
    recipe = [guest.image.name, *PACKAGES, inspect.getsource(install)]
    recipe += [kernel.module(guest.kit).name]
    key = hashlib.sha256("\n".join(recipe).encode()).hexdigest()[:12]
    image = cache / f"distro-{key}.img"
    if not image.exists():
        tell(f"image: {' '.join(PACKAGES)}")
        draft = image.with_suffix(".draft")
        try:
            run("cp", "--sparse=always", guest.image, draft)
            with mounted(draft) as root, furnished(root):
                install(root, guest.kit)
            draft.rename(image)
        finally:
            draft.unlink(missing_ok=True)
    return image


def install(root, kit):
    """Installs the packages and the module of the modelled disk."""
    release = kernel.release(kit)
    for name in ("config", "vmlinuz"):
        shutil.copy(kit / "boot" / f"{name}-{release}", root / "boot")
    modules = root / "usr/lib/modules" / release / "updates"
    modules.mkdir(exist_ok=True)
    shutil.copy(kernel.module(kit), modules / "dm-slow.ko")
    policy = root / "usr/sbin/policy-rc.d"
    policy.write_text("#!/bin/sh\nexit 101\n")
    policy.chmod(0o755)
    inside(root, f"depmod {release}\napt-get update --quiet\n"
                 "apt-get install --yes --quiet --no-install-recommends "
                 f"{' '.join(PACKAGES)}\napt-get clean\nrm -rf /var/lib/apt/lists/*")
    policy.unlink()


@contextlib.contextmanager
def furnished(root):
    """A guest's directory with what programs in it need, while the block lasts."""
    try:
        for kind, point in (("proc", "proc"), ("sysfs", "sys"), ("tmpfs", "tmp")):
            run("mount", "-t", kind, kind, root / point)
        run("mount", "--bind", "/dev", root / "dev")
        yield
    finally:
        for point in ("dev", "tmp", "sys", "proc"):
            unmount(root / point)


def put(files, root):
    """Copies files to their places in a guest."""
    for source, target in files:
        (root / target).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, root / target)


def initramfs(root, kit, maker, with_headstart, path):
    """Writes the initramfs that a guest makes of itself, with our hook for it or without."""
    release = kernel.release(kit)
    put([(PARTS / "disk", f"{HELD}/disk")], root)
    if maker == "dracut":
        put(DRACUT + DRACUT_MODULE, root)
        ours = "--add headstart" if with_headstart else "--omit headstart"
        make = (f"dracut --force --no-hostonly --add boot-rig {ours} --compress zstd "
                f"--kver {release} /tmp/initramfs")
    else:
        put(INITRAMFS_TOOLS, root)
        if with_headstart:
            put(HOOKS, root)
        make = f"mkinitramfs -o /tmp/initramfs {release}"
    with furnished(root):
        inside(root, make)
        shutil.copy(root / "tmp/initramfs", path)
    if maker != "dracut" and with_headstart:
        for _, target in HOOKS:
            (root / target).unlink()
