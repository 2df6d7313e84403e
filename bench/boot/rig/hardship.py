"""Fault injection in virtual time: upgrades, power cuts and broken machines. One machine
learns; each trial takes a copy of it."""

from rig import broken, power, journal, upgrade
from rig.machine import Machine, mounted

PARTS = ("upgrade", "power", "broken")
# Boots until the packs are stable.
LEARNING = 2


def measure(guest, cache, headstart, model, only, kept, tell):
    """Does these parts; the results.

    The machine that has learned is `kept` under this name, and found there again, or is
    forgotten at the end.
    """
    learned = Machine(guest, cache, kept or f"hardship-{model}", headstart)
    if not kept:
        learned.forget()
    parts = {}
    try:
        if not learned.image.exists():
            learn(learned, model)
            tell(f"{model}: learned")
        if "upgrade" in only:
            parts["upgrade"] = upgrade.measure(learned, model, tell)
        if "broken" in only:
            parts["broken"] = broken.measure(learned, model, tell)
        if "power" in only:
            parts["power"] = power.measure(learned, model, tell)
    finally:
        if not kept:
            learned.forget()
    return {"model": model} | parts


def learn(machine, model):
    """Makes a machine, and lets it learn."""
    machine.create()
    try:
        with mounted(machine.image) as root:
            journal.install(root)
        for _ in range(LEARNING):
            machine.boot(model)
    except BaseException:
        machine.forget()
        raise


def wrong(results):
    """All that is not as it must be, in sentences."""
    for part in PARTS:
        found = results.get(part, [])
        for one in found if isinstance(found, list) else [found]:
            where = f"{part} {one.get('state', '')}".strip()
            yield from (f"{where}: {what}" for what in one["wrong"])
