"""The disks that are modelled, read from slowdisk's own files."""

import tomllib
from pathlib import Path

from lib.run import Trouble

MODELS = Path(__file__).resolve().parents[3] / "crates/slowdisk/models"
# As dm-slow has them.
NANOSECONDS_A_MINUTE = 60e9


def names():
    """What models there are."""
    return sorted(path.stem for path in MODELS.glob("*.toml"))


def table(name):
    """The numbers that dm-slow takes for a model; none where nothing is delayed."""
    path = MODELS / f"{name}.toml"
    if not path.exists():
        raise Trouble(f"there is no model {name}; there are {', '.join(names())}")
    device = tomllib.loads(path.read_text()).get("device")
    if device is None:
        return []
    seek = device.get("seek")
    moves = [0, 0, 0, 0] if seek is None else [
        seek["settle_us"] * 1e3, seek["full_stroke_us"] * 1e3,
        NANOSECONDS_A_MINUTE / seek["rpm"] / 2, seek["window"]]
    return [round(number) for number in (
        device["queue_depth"], device["read_latency_us"] * 1e3,
        device["write_latency_us"] * 1e3, 1e6 / device["bandwidth_mb_s"],
        1e9 / device["iops"] if "iops" in device else 0, *moves)]


def slowed(name, times):
    """The same of a disk that is so many times as slow."""
    depth, *rest = table(name)
    *slower, window = rest
    return [depth, *(round(number * times) for number in slower), window]
