"""The lines of headstart in the journal of a boot: the guest prints them when the boot is
over and has been learned."""

import re

BEGIN, END = "headstart-journal begin", "headstart-journal end"
# A login prompt may come between.
LINE = "headstart-journal: "
# Learning ends with the machine, after the report; here it is asked to end before it.
SCRIPT = f"""#!/bin/sh
echo "{BEGIN}"
systemctl stop headstart-boot-record.service
journalctl --boot --quiet --output=cat --identifier=headstart | sed 's/^/{LINE}/'
echo "{END}"
"""


def install(root):
    """Puts the script into a guest's root directory."""
    script = root / "etc/boot-report.d/headstart"
    script.parent.mkdir(exist_ok=True)
    script.write_text(SCRIPT)
    script.chmod(0o755)


def lines(console):
    """The lines, oldest first."""
    return re.findall(rf"{LINE}(.+)$", console.replace("\r", ""), re.M)
