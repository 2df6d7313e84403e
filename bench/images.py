#!/usr/bin/env python3
"""What the order of files in an image costs a start: requests, seeks and the distance read over.

    TMPDIR=/dev/shm bench/images.py [--headstart PATH] [--tree DIR]

Builds a squashfs of Python's library twice: as mksquashfs places the files, and with
`headstart layout list`. The files are those that 60 imports open, in their order, as a pack that
`headstart pack import` makes. Each image is loop-mounted, and the files are read in this order with a
cold cache. Needs root, mksquashfs and python3. It measures no times: those depend on the disk.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

IMPORT = """
import sys
for name in ("argparse asyncio ast base64 bisect calendar cmd code codecs collections configparser "
             "contextlib copy csv ctypes dataclasses datetime decimal difflib dis doctest email "
             "email.mime.text enum fileinput fractions ftplib functools getpass gettext glob gzip "
             "hashlib heapq html.parser http.client http.server imaplib inspect ipaddress json "
             "logging.handlers lzma mailbox mimetypes multiprocessing optparse pathlib pdb pickle "
             "pkgutil platform plistlib pprint profile pydoc queue random shelve smtplib socketserver "
             "sqlite3 ssl statistics string subprocess tarfile tempfile textwrap timeit trace "
             "tracemalloc turtle typing unittest.mock urllib.request uuid wave webbrowser "
             "xml.dom.minidom xmlrpc.server zipapp zipfile").split():
    try:
        __import__(name)
    except ImportError:
        pass
"""


def opened(tree):
    """Files of the tree that the imports open, in their order."""
    trace = subprocess.run(
        ["strace", "-qq", "-e", "trace=openat", "-e", "signal=none", sys.executable, "-I", "-S", "-c", IMPORT],
        stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, check=True).stderr
    names = {}
    for line in trace.splitlines():
        name = line.partition('"')[2].partition('"')[0]
        if " = -1 " not in line and name.startswith(f"{tree}/") and os.path.isfile(name):
            names.setdefault(os.path.realpath(name))
    return list(names)


def read(image, names, tree):
    """Requests, jumps and the span in MiB of reading these files with a cold cache."""
    with tempfile.TemporaryDirectory() as mount:
        subprocess.run(["mount", "-o", "loop,ro", image, mount], check=True)
        try:
            source = subprocess.run(["findmnt", "-no", "SOURCE", mount], capture_output=True,
                                    text=True, check=True).stdout.strip()
            stat = pathlib.Path("/sys/block", os.path.basename(source), "stat")
            begin = [int(n) for n in stat.read_text().split()]
            for name in names:
                pathlib.Path(mount, os.path.relpath(name, tree)).read_bytes()
            end = [int(n) for n in stat.read_text().split()]
            return end[0] - begin[0], (end[2] - begin[2]) / 2048
        finally:
            subprocess.run(["umount", mount], check=True)


def places(image, names):
    """Where files begin in an image without compression: jumps back, and the span in MiB."""
    data = pathlib.Path(image).read_bytes()
    found = [data.find(pathlib.Path(name).read_bytes()[:256]) for name in names]
    found = [place for place in found if place >= 0]
    back = sum(b < a for a, b in zip(found, found[1:]))
    return back, (max(found) - min(found)) / (1 << 20), sum(
        abs(b - a) for a, b in zip(found, found[1:])) / (1 << 20)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--headstart", default="target/release/headstart")
    parser.add_argument("--tree", default=os.path.dirname(os.__file__))
    args = parser.parse_args()
    names = opened(args.tree)
    print(f"{len(names)} files, {sum(map(os.path.getsize, names)) / (1 << 20):.1f} MiB")
    with tempfile.TemporaryDirectory() as work:
        listing, pack, order = (f"{work}/{name}" for name in ("names", "images.pack", "order"))
        pathlib.Path(listing).write_text("".join(f"{name}\n" for name in names))
        subprocess.run([args.headstart, "pack", "import", listing, "-o", pack], check=True)
        subprocess.run([args.headstart, "layout", "list", pack, "--root", args.tree,
                        "--format", "squashfs-sort", "-o", order], check=True)
        for kind, options in (("gzip", ["-comp", "gzip"]), ("plain", ["-noI", "-noD", "-noF"])):
            for how, sort in (("as built", []), ("with the list", ["-sort", order])):
                image = f"{work}/image"
                subprocess.run(["mksquashfs", args.tree, image, "-noappend", "-no-progress",
                                "-quiet", *options, *sort, "-e", "site-packages", "test"],
                               check=True)
                requests, mib = read(image, names, args.tree)
                line = f"{kind}, {how}: {requests} requests, {mib:.1f} MiB read"
                if kind == "plain":
                    back, span, path = places(image, names)
                    line += f", {back} jumps back, span {span:.1f} MiB, {path:.1f} MiB of seeks"
                print(line)


main()
