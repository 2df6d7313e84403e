"""What a power cut leaves of a disk: made from the log of all that was written to it, discarded and
flushed (`slowdisk up --log`)."""
import os
import struct
from pathlib import Path

from measured import run

BLOCK = 4096


class Log:
    """What a disk was asked to change."""

    def __init__(self, path):
        data = Path(path).read_bytes()
        # Index of a change in `events`, and of its answer.
        self.events, self.changes, self.answers = [], [], {}
        at = 0
        while at + 17 <= len(data):
            kind = data[at:at + 1]
            first, second = struct.unpack_from("<QQ", data, at + 1)
            at += 17
            if kind == b"R":
                continue
            if kind == b"A":
                self.answers[first] = len(self.events)
            else:
                body = b""
                if kind == b"W":
                    body = data[at:at + second]
                    at += second
                self.changes.append((kind, first, second, body, len(self.events)))
            self.events.append(kind)
        # Flushes that were answered: when they came, and when that was.
        self.flushes = [(place, self.answers.get(number, 2**63))
                        for number, (kind, *_, place) in enumerate(self.changes) if kind == b"F"]

    def disk(self, base, path, end, chance, part):
        """Makes the disk after a cut before event `end`; of what was not flushed, `part` is there."""
        run("cp", "--sparse=always", base, path)
        safe_since = max((came for came, done in self.flushes if done < end), default=-1)
        lost = kept = 0
        with open(path, "r+b") as file:
            for number, (kind, offset, length, body, place) in enumerate(self.changes):
                if place >= end:
                    break
                if kind == b"F":
                    continue
                is_safe = self.answers.get(number, 2**63) < safe_since
                if kind == b"D":
                    if is_safe or chance.random() < part:
                        punch(file, offset, length)
                    continue
                if is_safe:
                    os.pwrite(file.fileno(), body, offset)
                    continue
                for at in range(0, length, BLOCK):
                    if chance.random() < part:
                        os.pwrite(file.fileno(), body[at:at + BLOCK], offset + at)
                        kept += 1
                    else:
                        lost += 1
        return kept, lost


def punch(file, offset, length):
    """Makes a range read as zeroes."""
    zero, left = bytes(1 << 20), length
    while left > 0:
        part = min(left, len(zero))
        os.pwrite(file.fileno(), zero[:part], offset + length - left)
        left -= part
