"""Takes a name on the session bus after a tenth of a second, and stays."""
import os, socket, struct, time
time.sleep(0.1)
_, _, where = os.environ["DBUS_SESSION_BUS_ADDRESS"].partition(":")
where = dict(part.split("=", 1) for part in where.split(";")[0].split(","))
bus = socket.socket(socket.AF_UNIX)
bus.connect(where["path"] if "path" in where else "\0" + where["abstract"])
bus.sendall(b"\0AUTH EXTERNAL " + str(os.getuid()).encode().hex().encode() + b"\r\n")
assert bus.recv(4096).startswith(b"OK")
bus.sendall(b"BEGIN\r\n")
def text(value):
    return struct.pack("<I", len(value)) + value.encode() + b"\0"
def padded(data, to):
    return data + bytes(-len(data) % to)
def call(serial, member, signature="", body=b""):
    fields = b""
    for code, kind, value in ((1, "o", "/org/freedesktop/DBus"), (3, "s", member),
                              (2, "s", "org.freedesktop.DBus"), (6, "s", "org.freedesktop.DBus")):
        fields = padded(fields, 8) + bytes([code, 1]) + kind.encode() + b"\0" + text(value)
    if signature:
        value = bytes([len(signature)]) + signature.encode() + b"\0"
        fields = padded(fields, 8) + bytes([8, 1]) + b"g\0" + value
    head = struct.pack("<cBBBIII", b"l", 1, 0, 1, len(body), serial, len(fields))
    bus.sendall(padded(head + fields, 8) + body)
call(1, "Hello")
call(2, "RequestName", "su", padded(text("org.example.Started"), 4) + struct.pack("<I", 0))
time.sleep(1000)
