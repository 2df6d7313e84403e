"""A headless Chromium that is driven through the DevTools protocol, with the standard library only."""
import base64
import json
import os
import shutil
import socket
import struct
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path

from lib.run import Trouble

NAMES = ("chromium", "chromium-browser", "google-chrome")
# How long the browser may take to start, and an answer to come.
PATIENCE = 60


class Browser:
    """A browser with one page, and one frame of it that scripts are for. Ends with the block."""

    def __init__(self, width=1400, height=900):
        name = next(filter(None, map(shutil.which, NAMES)), None)
        if not name:
            raise Trouble("there is no Chromium; install it with: apt-get install chromium")
        self.home = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
        self.process = subprocess.Popen(
            [name, "--headless=new", "--remote-debugging-port=0", "--disable-gpu", "--no-first-run",
             # So that a sandboxed frame is a context of the page, and no target of its own.
             "--disable-features=IsolateSandboxedIframes",
             f"--user-data-dir={self.home.name}", f"--window-size={width},{height}", *sandbox,
             "about:blank"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)
        self.number = 0
        # Contexts of scripts: of the page and of its frames; and the one that is used, if not the page's.
        self.contexts, self.context = [], None
        try:
            self.socket = self.connect()
            for domain in ("Page", "Runtime", "Log"):
                self.call(f"{domain}.enable")
            self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                      deviceScaleFactor=1, mobile=False)
        except BaseException:
            self.__exit__()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        self.home.cleanup()

    def connect(self):
        file, until = Path(self.home.name, "DevToolsActivePort"), time.monotonic() + PATIENCE
        while True:
            try:
                port = int(file.read_text().splitlines()[0])
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list", timeout=PATIENCE) as found:
                    pages = [page for page in json.load(found) if page["type"] == "page"]
                if pages:
                    break
            except (OSError, IndexError, ValueError):
                pass
            if time.monotonic() > until or self.process.poll() is not None:
                raise Trouble("Chromium does not start")
            time.sleep(0.02)
        path = pages[0]["webSocketDebuggerUrl"].split(f":{port}", 1)[1]
        link = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        key = base64.b64encode(os.urandom(16)).decode()
        link.sendall((f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\n"
                      f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\n"
                      "Sec-WebSocket-Version: 13\r\n\r\n").encode())
        self.reader = link.makefile("rb")
        if b" 101 " not in self.reader.readline():
            raise Trouble("Chromium refuses the connection")
        while self.reader.readline().strip():
            pass
        return link

    def send(self, text):
        data, mask = text.encode(), os.urandom(4)
        size = len(data)
        head = struct.pack("!BB", 0x81, 0x80 | size) if size < 126 else (
            struct.pack("!BBH", 0x81, 0xfe, size) if size < 1 << 16 else
            struct.pack("!BBQ", 0x81, 0xff, size))
        masked = bytes(byte ^ mask[i % 4] for i, byte in enumerate(data))
        self.socket.sendall(head + mask + masked)

    def receive(self):
        """The next message, in however many frames it comes."""
        whole = b""
        while True:
            first, size = struct.unpack("!BB", self.reader.read(2))
            if size == 126:
                size, = struct.unpack("!H", self.reader.read(2))
            elif size == 127:
                size, = struct.unpack("!Q", self.reader.read(8))
            data = self.reader.read(size)
            if first & 15 > 2:
                continue
            whole += data
            if first & 0x80:
                return json.loads(whole)

    def call(self, method, **params):
        """Calls a method of the protocol, and returns its result. What the page logs is raised."""
        self.number += 1
        self.send(json.dumps({"id": self.number, "method": method, "params": params}))
        while True:
            message = self.receive()
            if message.get("method") == "Runtime.executionContextCreated":
                self.contexts.append(message["params"]["context"]["id"])
            if message.get("method") == "Runtime.executionContextDestroyed":
                gone = message["params"]["executionContextId"]
                self.contexts = [context for context in self.contexts if context != gone]
            if message.get("method") == "Runtime.exceptionThrown":
                details = message["params"]["exceptionDetails"]
                raise Trouble(f"the page failed: {details.get('exception', details)}")
            if message.get("method") == "Log.entryAdded" and message["params"]["entry"]["level"] == "error":
                raise Trouble(f"the page reports: {message['params']['entry']['text']}")
            if message.get("id") == self.number:
                if "error" in message:
                    raise Trouble(f"{method}: {message['error']['message']}")
                return message["result"]

    def value(self, script):
        """What a script comes to; a promise is awaited."""
        context = {"contextId": self.context} if self.context else {}
        result = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True,
                           **context)
        if "exceptionDetails" in result:
            raise Trouble(f"{script}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def open(self, path, ready):
        """Opens a file, and waits until `ready` is true; how many seconds that took."""
        self.context = None
        began = time.monotonic()
        self.call("Page.navigate", url=Path(path).resolve().as_uri())
        self.wait_for(lambda: self.value(ready), path, began)
        return time.monotonic() - began

    def enter(self, script, ready):
        """Opens a frame by a script; scripts are then for that. How many seconds until it is ready."""
        began = time.monotonic()
        self.value(script)
        # A frame has a context before it is opened, and gets another one with its page.
        self.wait_for(lambda: self.in_frame(ready), "the frame", began)
        return time.monotonic() - began

    def in_frame(self, ready):
        self.context = None
        self.value("0")  # Now it is known which contexts there are.
        self.context = self.contexts[-1]
        try:
            return self.value(f"location.href === 'about:srcdoc' && ({ready})")
        except Trouble as trouble:
            # The frame got another one meanwhile.
            if "Cannot find context" not in str(trouble):
                raise
            return False

    def wait_for(self, condition, name, began):
        while not condition():
            if time.monotonic() - began > PATIENCE:
                raise Trouble(f"{name} does not get ready")
            time.sleep(0.005)

    def key(self, key):
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, text=key if len(key) == 1 else "")
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def screenshot(self, path):
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=False)
        Path(path).write_bytes(base64.b64decode(shot["data"]))
