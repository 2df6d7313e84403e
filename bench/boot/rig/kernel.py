"""What a virtual machine boots from: the kernel, the disk's module, the initramfs.

Made of the guest's kit, once for each state of what they are made of.
"""

import hashlib
import lzma
import os
import re
import shutil
import struct
import subprocess
import tempfile
from pathlib import Path

from lib.run import Trouble, run

HERE = Path(__file__).resolve().parent.parent
MODULE = HERE / "dm-slow"
NO_TRACEFS = HERE / "no-tracefs"
# In the order in which they are loaded.
DRIVERS = ("libnvdimm", "nfit", "nd_btt", "nd_pmem", "dm-mod")
# How compressed kernels begin, and what decompresses them.
FORMATS = {b"\x28\xb5\x2f\xfd": "zstd", b"\xfd7zXZ\0": "xz", b"\x02\x21\x4c\x18": "lz4"}


def vmlinux(kit):
    """The kernel as an ELF file, which QEMU starts without a boot loader."""
    path = kit / "vmlinux"
    if not path.exists():
        image = next((kit / "boot").glob("vmlinuz-*")).read_bytes()
        # See Documentation/arch/x86/boot.rst: setup sectors, then the payload, whose
        # last four bytes are its length.
        offset, length = struct.unpack_from("<II", image, 0x248)
        start = (image[0x1F1] + 1) * 512 + offset
        payload = image[start:start + length - 4]
        tool = next((t for magic, t in FORMATS.items() if payload.startswith(magic)), None)
        if tool is None or not shutil.which(tool):
            raise Trouble(f"the kernel can't be unpacked; apt-get install {tool or 'another one'}")
        done = subprocess.run([tool, "--decompress", "--stdout"], input=payload,
                              capture_output=True, check=False)
        if not done.stdout.startswith(b"\x7fELF"):
            raise Trouble(f"{tool} does not unpack the kernel: {done.stderr.decode().strip()}")
        draft = path.with_suffix(".draft")
        draft.write_bytes(done.stdout)
        draft.rename(path)
    return path


def release(kit):
    """The kernel's version."""
    return (kit / "release").read_text().strip()


def module(kit, folder=MODULE):
    """A module of ours, that of the modelled disk, built for the kit's kernel."""
    name = folder.name
    sources = sorted(path for path in folder.iterdir() if path.name in ("Kbuild", f"{name}.c"))
    digest = hashlib.sha256(b"\0".join(path.read_bytes() for path in sources)).hexdigest()[:12]
    path = kit / f"{name}-{digest}.ko"
    if path.exists():
        return path
    headers = kit / "usr/src" / f"linux-headers-{release(kit)}"
    if not shutil.which("make") or not shutil.which("gcc"):
        raise Trouble("the module needs a compiler; apt-get install make gcc")
    # The headers are meant to lie in /usr/src of the machine. Without vmlinux no type
    # information is made, which takes a tool more.
    makefile = headers / "Makefile"
    makefile.write_text(re.sub(r"/\S*/usr/src/|/usr/src/", f"{kit}/usr/src/",
                               makefile.read_text()))
    (headers / "vmlinux").unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as work:
        for source in sources:
            shutil.copy(source, work)
        run("make", "-C", headers, f"M={work}", "CC=gcc", "modules")
        draft = path.with_suffix(".draft")
        shutil.copy(Path(work) / f"{name}.ko", draft)
        draft.rename(path)
    return path


def initramfs(kit, path, headstart=None, extra=(), modules=()):
    """Writes the initramfs; with a static headstart and other files, if given.

    `extra` are pairs of a file and its path in the initramfs, `modules` more drivers of the kernel.
    """
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for directory in ("bin", "modules", "mnt", "dev", "proc", "sys", "run", "tmp"):
            (root / directory).mkdir()
        run("cp", "--archive", f"{kit}/initramfs/.", root)
        shutil.copy(kit / "bin/busybox", root / "bin/busybox")
        shutil.copy(HERE / "init", root / "init")
        (root / "init").chmod(0o755)
        files = list(extra)
        if headstart is not None:
            if b"/ld-linux" in Path(headstart).read_bytes()[:8192]:
                raise Trouble(f"{headstart} needs a C library, which an initramfs lacks; "
                              "bench/boot/README.md says how to build it without")
            files.append((headstart, "bin/headstart"))
        for source, target in files:
            (root / target).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, root / target)
        packed = next((kit / way for way in ("usr/lib/modules", "lib/modules")
                       if (kit / way).exists()))
        for name in (*DRIVERS, *modules):
            found = next(packed.rglob(f"{name}.ko*"), None)
            if found is None:
                raise Trouble(f"Linux {release(kit)} has no module {name}")
            content = found.read_bytes()
            content = lzma.decompress(content) if found.suffix == ".xz" else content
            (root / "modules" / f"{name}.ko").write_bytes(content)
        shutil.copy(module(kit), root / "modules/dm-slow.ko")
        # The same bytes from the same files: neither times nor inode numbers in it.
        run("find", root, "-exec", "touch", "--no-dereference", "--date=@0", "{}", "+")
        names = sorted(str(p.relative_to(root)) for p in root.rglob("*"))
        with open(path, "wb") as out:
            done = subprocess.run(
                [kit / "bin/busybox", "cpio", "--quiet", "-o", "-H", "newc", "-R", "0:0",
                 "--ignore-devno", "--renumber-inodes"],
                input="\n".join(names), text=True, stdout=out, cwd=root, check=False,
                env=os.environ | {"LC_ALL": "C"})
        if done.returncode:
            raise Trouble(f"busybox cpio ended with status {done.returncode}")
    return path
