"""Boots a guest as a virtual machine in virtual time: the same boot takes the same time.

QEMU counts instructions (TCG with icount) and its clock is their number, so nothing
of this machine takes part in a time. One CPU at 10^9 instructions a second,
without caches: what computes takes other times than on any real machine.
"""

import contextlib
import os
import subprocess
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from lib.run import Trouble

from rig import report
from rig.container import tail, text

MEMORY = "2G"
LIMIT_S = 1800
# Later than any file of an image, so that no clock runs backwards.
CLOCK = "2040-01-01T00:00:00"


# Machines that run now, and whether none may begin any more.
RUNNING = set()
STOPPED = threading.Event()


@dataclass(frozen=True)
class Booted:
    """What a boot was."""

    report: report.Report
    wall_s: float
    console: str


def command(kernel, initramfs, image, numbers, append, keep):
    """The command that boots."""
    kept = ["quiet"] if keep else ["quiet", "boot-report=fast"]
    line = ["console=ttyS0", "panic=-1", *kept, *append,
            *([f"boot.slow={','.join(map(str, numbers))}"] if numbers else [])]
    size = Path(image).stat().st_size
    return [
        "qemu-system-x86_64", "-accel", "tcg,thread=single,tb-size=512",
        # While it records, the main loop and the thread of the CPU take turns. Without that a boot
        # now and then differs. The recording is not needed.
        "-icount", "shift=0,sleep=off,align=off,rr=record,rrfile=/dev/null", "-smp", "1",
        # No random numbers but those of the seed, no clock but the virtual one. After
        # cmpxchg16b QEMU 7.2 has other flags than it should when an interrupt comes then,
        # and now and then a kernel dies of that. With erms and fsrm the kernel moves bytes
        # one by one (`rep movsb`), each an instruction: 1 GB/s, a tenth of real memory.
        "-cpu", "max,-rdrand,-rdseed,-cx16,-erms,-fsrm", "-seed", "1",
        "-rtc", f"base={CLOCK},clock=vm",
        "-M", "q35,nvdimm=on", "-m", f"{MEMORY},slots=2,maxmem=16G",
        "-object", f"memory-backend-file,id=disk,share={'on' if keep else 'off'},"
                   f"mem-path={image},size={size}",
        "-device", "nvdimm,memdev=disk,id=nvdimm",
        "-kernel", str(kernel), "-initrd", str(initramfs), "-append", " ".join(line),
        "-nographic", "-no-reboot", "-nic", "none",
    ]


def boot(kernel, initramfs, image, numbers, append=(), keep=False):
    """Boots an image from a disk with these numbers and waits until it is off.

    Writes are lost unless they are to be kept: then the image is changed.
    """
    status, said, wall_s = run_until_off(command(kernel, initramfs, image, numbers, append, keep))
    found = report.parse(said)
    if found is None:
        raise Trouble(f"the machine ended with status {status} and reached no multi-user.target: {tail(said)}")
    return Booted(found, wall_s, said)


def run_until_off(words, limit_s=LIMIT_S):
    """Runs a machine until it is off: its status, what its console said, and for how long it ran, in seconds."""
    began = time.monotonic()
    with tempfile.TemporaryFile() as console:
        # In the session of this script: in one of its own the kernel would not regard how nice it is (sched(7)).
        child = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=console,
                                 stderr=console, process_group=0)
        RUNNING.add(child)
        try:
            if STOPPED.is_set():
                raise Trouble("the others were stopped")
            child.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise Trouble(f"the machine did not end in {limit_s} s: {tail(text(console))}") from None
        finally:
            if child.poll() is None:
                child.kill()
                child.wait()
            RUNNING.discard(child)
        return child.returncode, text(console), time.monotonic() - began


@contextlib.contextmanager
def several():
    """Lets several machines boot at once; none of them outlives the block."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        try:
            yield pool
        except BaseException:
            STOPPED.set()
            pool.shutdown(wait=False, cancel_futures=True)
            for child in list(RUNNING):
                child.kill()
            raise
