"""All arms on several disks, in virtual time.

Boots are repeatable to the microsecond, so each one of an arm gets an additional word on the
kernel's command line, which means nothing, but moves everything a little. Their spread
says how far a time can be trusted.
"""

from measured import spread
from rig import bootperf, models as disks, touches, virtual
from rig.machine import Machine
from rig.unavoidable import unavoidable

# Boots before those that are measured: headstart learns, and nothing is new any more.
BEFORE = 2
# A prefetched boot may take so many times as long as one without a delay, plus what can't run
# in parallel with the boot.
ALLOWED = 1.10


def measure(guest, cache, headstart, models, boots, tell):
    """Boots everything; the results."""
    plain = Machine(guest, cache, "bench-none")
    plain.forget()
    plain.create()
    for _ in range(BEFORE):
        plain.boot(None)
    with virtual.several() as pool:
        # The long chains first: each boot with headstart learns from the one before.
        helped = [pool.submit(chain, guest, cache, headstart, model, boots) for model in models]
        needed = pool.submit(first_touches, guest, cache)
        alone = {model: [pool.submit(plain.boot, model, [vary(n)], False) for n in range(boots)]
                 for model in [None, *models]}
        no_delay = figures([boot.result() for boot in alone[None]])
        cells = []
        for model, both in zip(models, helped):
            learned, floor = both.result()
            cells.append({"model": model, "arms": {
                "none": figures([boot.result() for boot in alone[model]]),
                "headstart": figures(learned), "no-delay": no_delay},
                "floor_us": floor.report.replay_us,
                "unavoidable": unavoidable(disks.table(model), guest.image.stat().st_size,
                                           *needed.result())})
            tell(line(cells[-1]))
    return {"cells": cells, "boots": boots, "learned": BEFORE}


def chain(guest, cache, headstart, model, boots):
    """The boots with headstart, and one that waits until everything is prefetched."""
    machine = Machine(guest, cache, f"bench-{model}", headstart)
    machine.forget()
    machine.create()
    try:
        for _ in range(BEFORE):
            machine.boot(model)
        learned = [machine.boot(model, [vary(n)]) for n in range(boots)]
        return learned, machine.boot(model, ["boot.floor"], keep=False)
    finally:
        machine.forget()


def first_touches(guest, cache):
    """When a boot without delay can read files, and when it first needs which blocks."""
    machine = Machine(guest, cache, "bench-touches")
    machine.forget()
    machine.create(touches.PREPARE)
    try:
        for _ in range(BEFORE):
            machine.boot(None)
        machine.boot(None, touches.WORDS)
        return touches.of_boot(machine.image)
    finally:
        machine.forget()


def vary(number):
    """A word that means nothing."""
    return f"boot.number={number}" + "x" * number


def figures(boots):
    """What is said of the boots of an arm."""
    return {
        "multi_user_us": spread([b.report.multi_user_us for b in boots])
        | {"values": [b.report.multi_user_us for b in boots]},
        "userspace_us": spread([b.report.userspace_us for b in boots]),
        "requests": spread([b.report.disk.get("requests") for b in boots]),
        "bytes": spread([b.report.disk.get("bytes") for b in boots]),
        "failed_units": sorted({unit for b in boots for unit in b.report.failed}),
    }


def line(cell):
    """A cell in one line."""
    times = {name: arm["multi_user_us"]["median"] / 1e6 for name, arm in cell["arms"].items()}
    said = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in times.items())
    floor = cell["floor_us"]
    floor = "no floor" if floor is None else f"floor {floor / 1e6:.2f} s"
    share = cell["unavoidable"]["delay_us"] / 1e6
    over = times["headstart"] - ALLOWED * times["no-delay"]
    return (f"{cell['model']:<10} {said}, {floor}, of which {share:.3f} s can't run in parallel with the "
            f"boot; headstart is at {times['headstart'] / times['no-delay']:.2f} x no-delay, "
            f"{over:+.3f} s from {ALLOWED:.2f} x")


def chart(cells):
    """The times in the form of other boot benchmarks."""
    return bootperf.chart({"seconds_kernel_to_multi_user": {
        f"{cell['model']}-{name}": [us / 1e6 for us in arm["multi_user_us"]["values"]]
        for cell in cells for name, arm in cell["arms"].items()}})
