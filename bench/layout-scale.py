#!/usr/bin/env python3
"""How long does a layout of very many files take, and how much memory?

Makes an ext4 in an image on the disk of this machine, with files in several extents each, a pack that
touches all of them, and lays it out, undoes it, and counts extents.

Usage: bench/layout-scale.py [-n FILES] [--dir DIR] [--headstart FILE] [--out FILE]
"""
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "storm"))

from layout import extents  # noqa: E402
from lib.alone import alone  # noqa: E402
from measured import BUILT, RESULTS, about, command_line, main, needs_root, run, tool, write  # noqa: E402

CHUNK = 8 << 10


def timed(*words):
    """Runs a command; seconds, peak memory in bytes, and what it said."""
    began = time.monotonic()
    child = subprocess.Popen([str(word) for word in words], stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True)
    said = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    assert status == 0, said
    return {"s": round(time.monotonic() - began, 2), "peak_bytes": usage.ru_maxrss << 10}


def scale():
    parser = command_line(__doc__)
    parser.add_argument("-n", type=int, default=10_000)
    parser.add_argument("--dir", default="/var/tmp")
    parser.add_argument("--headstart", default=BUILT / "headstart")
    parser.add_argument("--out", default=RESULTS / "layout-scale.json")
    options = parser.parse_args()
    needs_root("Mounts need it")
    alone()
    headstart = tool(options.headstart, "./build.sh, or --headstart FILE")
    resource.setrlimit(resource.RLIMIT_NOFILE, (options.n + 100,) * 2)
    chance = random.Random(1)
    with tempfile.TemporaryDirectory(dir=options.dir) as place:
        image, mount, pack = (Path(place) / name for name in ("image", "mount", "pack"))
        mount.mkdir()
        with open(image, "wb") as file:
            file.truncate(3 << 30)
        run("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", image)
        run("mount", "-o", "loop,noatime", image, mount)
        try:
            paths = [mount / f"d{n % 100}" / f"f{n:05}" for n in range(options.n)]
            for path in paths[:100]:
                path.parent.mkdir(exist_ok=True)
            files = [open(path, "wb", buffering=0) for path in paths]
            sizes = [chance.randint(1, 9) for _ in files]
            for at in range(9):
                for size, file in zip(sizes, files, strict=True):
                    if at < size:
                        file.write(chance.randbytes(CHUNK))
                run("sync", "-f", mount)
            for file in files:
                file.close()
            run("sync", "-f", mount)
            chance.shuffle(paths)
            (Path(place) / "list").write_text("".join(f"{path}\n" for path in paths))
            run(headstart, "pack", "import", "--output", pack, Path(place) / "list")
            count = lambda: [extents(path) for path in paths]  # noqa: E731
            old = count()
            result = about("headstart-bench/layout-scale/1", headstart)
            result |= {"files": options.n, "bytes": CHUNK * sum(sizes), "extents": sum(map(len, old))}
            result["plan"] = timed("sh", "-c", '"$@" || test $? = 3', "sh", headstart, "layout", "plan", pack)
            result["apply"] = timed(headstart, "layout", "apply", "--force", pack)
            result["extents_after"] = sum(map(len, count()))
            result["undo"] = timed(headstart, "layout", "undo", mount)
            assert count() == old, "undo moved blocks elsewhere"
            result["extents_after_undo"] = sum(map(len, count()))
        finally:
            run("umount", mount)
        run("e2fsck", "-fn", image)
    print(result)
    write(options.out, result)
    return 0


if __name__ == "__main__":
    main(scale)
