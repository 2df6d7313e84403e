"""What a guest said of its boot. Parses text; starts nothing."""

import re
from dataclasses import dataclass, field

BEGIN, END = "boot-report begin", "boot-report end"


@dataclass(frozen=True)
class Report:
    """Times are microseconds of the guest's monotonic clock."""

    state: str  # as `systemctl is-system-running` has it
    userspace_us: int
    finish_us: int
    reached_us: dict  # by name of the target
    failed: tuple  # units
    # How long the initramfs was with headstart.
    replay_us: int | None = None
    # Of the modelled disk in a virtual machine: requests, bytes, mean_ns.
    disk: dict = field(default_factory=dict)

    @property
    def multi_user_us(self):
        """When multi-user.target was reached."""
        return self.reached_us["multi-user.target"]


def parse(console):
    """The report in the text of a console; None when there is no whole one."""
    text = console.replace("\r", "")
    if BEGIN not in text or END not in text:
        return None
    lines = text[text.rindex(BEGIN):text.rindex(END)].splitlines()[1:]
    pairs = [line.partition("=")[::2] for line in lines if "=" in line]
    values = dict(pairs)
    reached = {name: int(value) for name, value in pairs
               if name.endswith(".target") and value.isdigit()}
    if not reached.get("multi-user.target"):
        return None
    return Report(
        state=values.get("state", "unknown"),
        userspace_us=int(values.get("UserspaceTimestampMonotonic") or 0),
        finish_us=int(values.get("FinishTimestampMonotonic") or 0),
        reached_us=reached,
        failed=tuple(value for name, value in pairs if name == "failed"),
        replay_us=lasted(text),
        disk={name: int(value) for name, _, value in
              (word.partition("=") for word in values.get("disk", "").split())
              if value.isdigit()},
    )


def lasted(text):
    """From when to when headstart ran in the initramfs, in microseconds."""
    times = [re.search(rf"\[ *(\d+)\.(\d+)\] boot-rig: replay {word}", text)
             for word in ("begins", "returned")]
    if None in times:
        return None
    begin, end = (int(seconds) * 1_000_000 + int(micros) for seconds, micros in
                  (time.groups() for time in times))
    return end - begin
