"""Programs that read many small files from a modelled disk, and are started at the same time."""

import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from lib.disk import Disk
from lib.run import Trouble, run

# Files of a directory.
DIRECTORY = 500
# How long programs and the service may take for a start.
PATIENCE_S = 120
LOOK_S = 0.1
# A filesystem needs as much for a small file, and for itself.
FILE_BYTES, OWN_BYTES = 4096 + 512, 64 << 20


class Readers(Disk):
    """A disk with so many programs, each with so many files of its own; `place` is for its image."""

    name = "headstart-readers"

    def __init__(self, slowdisk, model, place, programs, files):
        self.programs = range(programs)
        image = Path(place) / "readers.img"
        with tempfile.TemporaryDirectory(dir=place) as content:
            for number in self.programs:
                own = Path(content) / str(number)
                own.mkdir()
                shutil.copy(shutil.which("grep"), own / f"reads,files-{number}")
                for file in range(files):
                    path = own / f"part{file // DIRECTORY}" / f"file with a usual name {file}"
                    path.parent.mkdir(exist_ok=True)
                    path.write_text(f"{file}\n" * 20)
            image.unlink(missing_ok=True)
            size = OWN_BYTES + programs * files * FILE_BYTES
            run("mke2fs", "-q", "-t", "ext4", "-N", programs * (files + files // DIRECTORY) + 1000,
                "-d", content, image, f"{size >> 10}k")
        super().__init__(slowdisk, model, image)

    def start(self, count):
        """Starts so many of the programs at once from a cold cache, and waits for their ends."""
        self.make_cold()
        children = []
        for number in self.programs[:count]:
            own = self.mount / str(number)
            words = [own / f"reads,files-{number}", "-r", "-c", "nothing", own]
            children.append(subprocess.Popen(words, stdout=subprocess.DEVNULL))
        for child in children:
            child.wait(PATIENCE_S)

    def make_cold(self):
        """Mounts the disk again, as soon as nobody has a file of it open."""
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                return run(*self.cold().split())
            except Trouble:
                if time.monotonic() > until:
                    raise
                time.sleep(LOOK_S)

    def starts(self, service, count, times):
        """So many starts of each, as the service sees and learns them; its memory at most, and what it
        learned."""
        for _ in range(times):
            self.start(count)
            until = time.monotonic() + PATIENCE_S
            while True:
                time.sleep(LOOK_S)
                status = service.ask("status")["status"]
                if not status["recording"] and not status["in_flight_bytes"]:
                    break
                if time.monotonic() > until:
                    raise Trouble("the service is not done with programs that have ended")
        counters = service.counters()
        return {"peak": service.memory()["peak"],
                "counters": {name: counters[name] for name in ("cold", "learned", "lost_events", "failed")},
                "packs_bytes": sorted(path.stat().st_size for path in service.place.glob("packs/*.pack"))}
