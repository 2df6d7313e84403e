"""A file system with programs of several kinds, and a seeded script of mixed use."""

import random
import shutil
from pathlib import Path

from lib.run import Trouble, run
from lib.workloads import MODULES

SIZE = "1G"
DATA_FILES, DATA_BYTES = 48, 2 << 20
SOURCES = 12
# What is done, and how often of all.
ACTIONS = {"cold": 50, "hot": 20, "read": 12, "idle": 12, "compile": 6}
PYTHON = "/usr/bin/python3"


def script(seed, programs):
    """What is done, one after the other, without an end: (action, argument)."""
    choice = random.Random(seed)
    # Some programs are used much more often than others.
    weights = [1 / (number + 1) for number in range(len(programs))]
    for _ in range(4):
        yield from (("cold", name) for name in programs[:2])
    while True:
        action = choice.choices(list(ACTIONS), list(ACTIONS.values()))[0]
        name = choice.choices(programs, weights)[0]
        argument = {
            "cold": name, "hot": (name, choice.randint(1, 6)),
            "read": choice.sample(range(DATA_FILES), choice.randint(1, 6)),
            "idle": choice.randint(1, 10), "compile": choice.randint(1, 3),
        }[action]
        yield action, argument


class Mixture:
    """The programs, below a directory that they will be mounted at."""

    def __init__(self, folder, mount):
        self.tree, self.mount = Path(folder) / "tree", Path(mount)

    def image(self):
        """Makes the file system; its image."""
        image = self.tree.parent / "image"
        self.fill()
        run("truncate", "--size", SIZE, image)
        run("mkfs.ext4", "-q", "-d", self.tree, image)
        shutil.rmtree(self.tree)
        return image

    def fill(self):
        tree, seeded = self.tree, random.Random(1)
        for name in ("bin", "app", "data", "source"):
            (tree / name).mkdir(parents=True)
        real = Path(PYTHON).resolve()
        library = f"lib/{real.name}"
        # A name of its own: those that are executed often are skipped.
        shutil.copy(real, tree / "bin/python3.99")
        shutil.copytree(f"/usr/{library}", tree / library, symlinks=False,
                        ignore=shutil.ignore_patterns("test", "dist-packages", "config-*", "sitecustomize.py"))
        run(tree / "bin/python3.99", "-Es", "-m", "compileall", "-q", "-s", tree, tree / library)
        (tree / "app/modules.py").write_text("import " + ", ".join(MODULES) + "\n")
        (tree / "app/small.py").write_text("import json, subprocess, urllib.request\n")
        # Reads files of its own, others at each start, and some of them only sometimes.
        (tree / "app/documents.py").write_text(
            "import random, sys\nfor number in random.sample(range(400), 150):\n"
            "    open(f'{sys.path[0]}/documents/{number}', 'rb').read()\n")
        (tree / "app/documents").mkdir()
        for number in range(400):
            (tree / f"app/documents/{number}").write_bytes(seeded.randbytes(seeded.randint(2, 40) << 10))
        (tree / "app/settings").mkdir()
        for number in range(120):
            (tree / f"app/settings/{number}").write_bytes(seeded.randbytes(6000))
        (tree / "app/settings.sh").write_text(
            f"#!/bin/sh\nfor file in {self.mount}/app/settings/*; do read -r line <$file; done\nexit 0\n")
        (tree / "app/settings.sh").chmod(0o755)
        shutil.copy(shutil.which("git"), tree / "bin/git")
        self.repository(seeded)
        for number in range(DATA_FILES):
            (tree / f"data/{number}").write_bytes(seeded.randbytes(DATA_BYTES))
        for number in range(SOURCES):
            (tree / f"source/{number}.c").write_text(
                "#include <stdio.h>\n#include <stdlib.h>\n#include <math.h>\n"
                + "".join(f"int f{number}_{n}(int x) {{ return x * {n} + (x >> {n % 31}); }}\n"
                          for n in range(200)))
        self.compiler()

    def repository(self, seeded):
        place = self.tree / "repository"
        for number in range(400):
            file = place / f"{number % 40}/{number}"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(seeded.randbytes(600))
        git = ["git", "-C", place, "-c", "user.name=a", "-c", "user.email=a@example.org"]
        run(*git, "init", "--quiet")
        # The copy has other inodes.
        run(*git, "config", "core.checkStat", "minimal")
        run(*git, "config", "core.trustCtime", "false")
        run(*git, "add", ".")
        run(*git, "commit", "--quiet", "--message=all")

    def compiler(self):
        """One that is a large shared library, if Rust is installed."""
        if not shutil.which("rustc"):
            return
        root = Path(run("rustc", "--print=sysroot", capture=True).strip())
        (self.tree / "rust/bin").mkdir(parents=True)
        (self.tree / "rust/lib").mkdir()
        shutil.copy(root / "bin/rustc", self.tree / "rust/bin/rustc")
        for library in (root / "lib").glob("*.so*"):
            shutil.copy(library, self.tree / "rust/lib")

    def programs(self):
        """The programs: name, command."""
        place = self.mount
        python = [place / "bin/python3.99", "-EsB"]
        found = {
            "python modules": [*python, place / "app/modules.py"],
            "git status": [place / "bin/git", "-C", place / "repository", "status", "--short"],
            "shell settings": [place / "app/settings.sh"],
            "python small": [*python, place / "app/small.py"],
            "rustc": [place / "rust/bin/rustc", "-vV"],
            "python documents": [*python, place / "app/documents.py"],
        }
        if not shutil.which("rustc"):
            del found["rustc"]
        return {name: [str(word) for word in words] for name, words in found.items()}

    def environment(self):
        """That of the programs."""
        return {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C.UTF-8",
                "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}


def needed():
    """What must be installed."""
    missing = [tool for tool in ("git", "gcc", "mkfs.ext4", PYTHON) if not shutil.which(tool)]
    if missing:
        raise Trouble(f"{' and '.join(missing)} missing; apt-get install git gcc e2fsprogs python3")
