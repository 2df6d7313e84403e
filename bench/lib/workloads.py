"""What is started: how it is installed, prepared and started, and when it is ready.

Everything is in one root image. `prepare` is a shell script that runs there once,
as root, with /proc and the network; `start` runs there in a mount namespace of its
own, with /tmp in memory and HOME=/tmp. Its program needs its path where busybox, which
starts it, has one of the same name.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Workload:
    """A program that is started."""

    name: str
    title: str
    packages: tuple
    start: tuple
    prepare: str = ""
    # As `headstart bench --ready` has it; without it, when the program ends.
    ready: str = ""
    # Whether the standing benchmark has it.
    is_standing: bool = True


MODULES = """
    argparse ast asyncio base64 bisect bz2 calendar cmd codecs collections
    concurrent.futures configparser contextlib copy csv ctypes dataclasses
    datetime decimal difflib email.message enum fileinput fractions ftplib
    functools glob gzip hashlib heapq html http.client imaplib inspect ipaddress
    json logging lzma mailbox multiprocessing pathlib pickle platform plistlib
    pprint queue random secrets shelve smtplib socketserver sqlite3 ssl
    statistics subprocess tarfile tempfile unittest urllib.request
    xml.etree.ElementTree
""".split()
assert len(MODULES) == 60

MACHINE_LEARNING = """
import numpy, scipy.optimize, scipy.sparse, scipy.stats, pandas
import sklearn.cluster, sklearn.ensemble, sklearn.linear_model, sklearn.pipeline
frame = pandas.DataFrame(numpy.arange(200.0).reshape(50, 4))
model = sklearn.linear_model.LinearRegression().fit(frame[[0, 1, 2]], frame[3])
print(model.coef_)
"""

# 24 pages of text with headings, as a flat OpenDocument file.
DOCUMENT = r"""
import random
random.seed(1)
words = [bytes(random.choices(b"abcdefghiklmnoprstuvw", k=random.randint(2, 11))).decode()
         for _ in range(900)]
text = lambda n: " ".join(random.choices(words, k=n)).capitalize() + "."
body = "".join(
    f'<text:h text:outline-level="1">{i + 1} {text(4)}</text:h>'
    + "".join(f"<text:p>{text(130)}</text:p>" for _ in range(4))
    for i in range(24))
print('<?xml version="1.0" encoding="UTF-8"?>'
      '<office:document xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0"'
      ' xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0" office:version="1.3"'
      ' office:mimetype="application/vnd.oasis.opendocument.text">'
      f'<office:body><office:text>{body}</office:text></office:body></office:document>')
"""

# A page with a style sheet, a script, and two pictures.
PAGE = r"""
import random, struct, zlib
random.seed(2)
def picture(name, size):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = b"".join(b"\0" + random.randbytes(3 * size) for _ in range(size))
    open(name, "wb").write(b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0))
        + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
picture("one.png", 300)
picture("two.png", 120)
open("style.css", "w").write("body{font:16px/1.5 sans-serif;columns:2}img{border-radius:8px}"
    "table{border-collapse:collapse}td{border:1px solid #999;padding:.3em}h1{color:#245}")
open("script.js", "w").write("for(const t of document.querySelectorAll('td'))"
    "t.textContent=Number(t.textContent).toLocaleString()")
cells = "".join("<tr>" + "".join(f"<td>{random.randrange(10**6)}</td>" for _ in range(6))
    + "</tr>" for _ in range(60))
open("index.html", "w").write("<!doctype html><meta charset=utf-8><title>A page</title>"
    "<link rel=stylesheet href=style.css><h1>A page</h1><img src=one.png><img src=two.png>"
    f"<p>{'Some text with words in it. ' * 300}<table>{cells}</table><script src=script.js></script>")
"""

POSTGRES_PREPARE = r"""
pg=$(echo /usr/lib/postgresql/*/bin)
mkdir -p /srv/postgres && chown postgres:postgres /srv/postgres
as() { setpriv --reuid=postgres --regid=postgres --init-groups "$@"; }
as $pg/initdb --pgdata=/srv/postgres --auth=trust --encoding=UTF8 --locale=C.UTF-8 >/dev/null
as $pg/pg_ctl --pgdata=/srv/postgres --wait --silent \
    --options="-k /tmp -c listen_addresses= -c max_wal_size=4GB" --log=/tmp/log start
as $pg/psql --host=/tmp --quiet --set=ON_ERROR_STOP=1 postgres <<'SQL'
CREATE TABLE measurement (id int, place int, at timestamp, value float8, note text);
INSERT INTO measurement
    SELECT i, i % 1000, timestamp '2020-01-01' + i * interval '1 minute',
        sin(i / 1000.0) * 100, repeat(md5(i::text), 2)
    FROM generate_series(1, 3700000) i;
CREATE INDEX ON measurement (id);
CREATE INDEX ON measurement (place);
VACUUM (FREEZE, ANALYZE) measurement;
CHECKPOINT;
SQL
as $pg/pg_ctl --pgdata=/srv/postgres --wait --silent --mode=fast stop
"""

# Ready when the first query is answered: a row by its index, the sum over a
# range, and one row in a thousand from all over the table.
POSTGRES_START = r"""
pg=$(echo /usr/lib/postgresql/*/bin)
mkfifo /tmp/log && chown postgres /tmp/log
as="setpriv --reuid=postgres --regid=postgres --init-groups"
exec 3<>/tmp/log
$as $pg/postgres -D /srv/postgres -k /tmp -c listen_addresses= 2>/tmp/log &
server=$!
trap 'kill -INT $server; wait $server; exit 0' TERM INT
while read -r line; do
    case $line in *"ready to accept connections"*) break ;; *FATAL*) exit 1 ;; esac
done <&3
$as $pg/psql --host=/tmp --no-align --tuples-only postgres --command="
    SELECT (SELECT note FROM measurement WHERE id = 1234567),
        (SELECT sum(value) FROM measurement WHERE id BETWEEN 2000000 AND 2020000),
        (SELECT avg(value) FROM measurement WHERE place = 77)" >/tmp/answer || exit 1
echo answered
wait $server
"""

# Half of the kernel's source. A status refreshes the index, so that later ones only
# have to look at the files.
REPOSITORY = r"""
mkdir -p /srv/linux && cd /srv/linux
tar --extract --xz --strip-components=1 --file=$(ls /usr/src/linux-source-*.tar.xz) \
    --exclude='*/drivers/gpu/drm/amd/include' --exclude='*/Documentation' \
    --exclude='*/arch' --exclude='*/tools'
apt-get remove --yes --quiet 'linux-source-*'
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.org
export GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@example.org
sed -i '/^\/\*$/d' .gitignore  # Debian's ignores everything.
git init --quiet --initial-branch=main
git config core.compression 1
git config gc.auto 0
git add --all
git commit --quiet --message='Import'
git repack -a -d --quiet --window=1
git status >/dev/null
"""

SMALL_FILES = r"""
import os, random
random.seed(3)
for directory in range(200):
    os.makedirs(f"/srv/small/{directory:03}", exist_ok=True)
    for file in range(100):
        with open(f"/srv/small/{directory:03}/{file:03}.conf", "w") as out:
            for line in range(random.randint(2, 40)):
                out.write(f"setting_{line} = {random.random()}\n")
"""


def in_python(directory, script):
    """A shell command that runs a Python script in a directory."""
    return f"mkdir -p {directory} && cd {directory} && python3 - <<'END'\n{script}\nEND\n"


OFFICE = ("soffice", "-env:UserInstallation=file:///srv/office/profile", "--headless",
          "--convert-to", "pdf", "--outdir", "/tmp", "/srv/office/document.fodt")

WORKLOADS = (
    Workload(
        "python", "python3 imports 60 standard modules", ("python3",),
        ("python3", "-c", "import " + ", ".join(MODULES)),
    ),
    Workload(
        "ml", "python3 imports numpy, scipy, pandas, scikit-learn",
        ("python3", "python3-venv"),
        ("/srv/ml/bin/python", "-c", MACHINE_LEARNING),
        "python3 -m venv /srv/ml\n"
        "/srv/ml/bin/pip install --quiet --no-cache-dir --only-binary=:all: numpy==1.26.4"
        " scipy==1.13.1 pandas==2.2.3 scikit-learn==1.5.2\n",
    ),
    Workload(
        "office", "LibreOffice converts a document", ("libreoffice-writer-nogui",),
        OFFICE,
        "mkdir -p /srv/office && cd /srv/office && python3 - >document.fodt <<'END'\n"
        + DOCUMENT + "\nEND\n" + " ".join(OFFICE) + " >/dev/null\n",
    ),
    Workload(
        "chromium", "Chromium prints a local page",
        ("chromium", "fonts-dejavu-core"),
        ("chromium", "--headless", "--no-sandbox", "--disable-gpu",
         "--print-to-pdf=/tmp/page.pdf", "file:///srv/page/index.html"),
        in_python("/srv/page", PAGE),
    ),
    Workload(
        "postgres", "PostgreSQL answers a first query on 500 MB", ("postgresql",),
        ("/bin/sh", "-c", POSTGRES_START), POSTGRES_PREPARE, "line:answered",
    ),
    Workload(
        "clojure", "Clojure on a JVM evaluates an expression", ("clojure",),
        ("clojure", "-e", "(println (reduce + (map #(* % %) (range 1000))))"),
    ),
    Workload(
        "git", "git status in a repository of 46,000 files", ("git", "xz-utils", "linux-source"),
        ("git", "-C", "/srv/linux", "status", "--short"), REPOSITORY,
    ),
    Workload(
        "small-files", "a shell loop reads 20,000 small files", ("python3",),
        ("bash", "-c", 'n=0; for file in /srv/small/*/*; do mapfile -t lines <"$file"; '
                       '((n += ${#lines[@]})); done; ((n))'),
        in_python("/srv/small", SMALL_FILES),
    ),
    Workload(
        "clang", "clang compiles a C file", ("clang", "libc6-dev"),
        ("clang", "-O2", "-c", "/srv/clang/main.c", "-o", "/tmp/main.o"),
        "mkdir -p /srv/clang && printf '#include <stdio.h>\\n"
        "int main(void) { return puts(\"hello\") < 0; }\\n' >/srv/clang/main.c",
        is_standing=False,
    ),
    # The first start makes what a user has of it, in HOME.
    Workload(
        "gimp", "GIMP without a window, with all of its plug-ins", ("gimp",),
        ("gimp-console", "--no-interface", "--batch", "(gimp-quit 0)"), is_standing=False,
    ),
    Workload(
        "emacs", "Emacs loads Org, Gnus and Tramp", ("emacs-nox",),
        ("emacs", "--batch", "--eval", "(progn (require 'org) (require 'gnus) (require 'tramp))"),
        is_standing=False,
    ),
)
