// Axes: from values to pixels and back, ticks at round values, numbers with their units.
const UNITS = {
  ns: [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]],
  bytes: [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"], [1, "B"]],
};

function shownIn(unit, size) {
  const units = UNITS[unit === "bytes_per_second" ? "bytes" : unit];
  if (!units) return [1, ""];
  const [one, name] = units.find(([one]) => size >= one) || units[3];
  return [one, unit === "bytes_per_second" ? name + "/s" : name];
}

function number(value, decimals) {
  return value.toLocaleString("en-US", { minimumFractionDigits: decimals, maximumFractionDigits: decimals });
}

function amount(unit, value) {
  const [one, name] = shownIn(unit, Math.abs(value));
  if (!name) return Number.isInteger(value) ? number(value, 0) : number(value, 2);
  const size = value / one;
  const decimals = one === 1 ? 0 : Math.abs(size) < 9.995 ? 2 : Math.abs(size) < 99.95 ? 1 : 0;
  return `${number(size, decimals)} ${name}`;
}

// Of values from `low` to `high` on pixels from `start` to `end`.
function scaleOf(axis, low, high, start, end) {
  const log = axis.log && low > 0;
  const to = log ? Math.log : (value) => value;
  const from = to(low);
  const each = (end - start) / (to(high) - from);
  return {
    log, low, high, start, end, from, each, unit: axis.unit,
    pixel: (value) => start + (to(value) - from) * each,
    value: (pixel) => (log ? Math.exp(from + (pixel - start) / each) : from + (pixel - start) / each),
  };
}

function ticksOf(scale, most) {
  const { low, high, unit, log } = scale;
  const ticks = [];
  if (log && high / low > 3) {
    const decades = Math.log10(high / low) / most * 8;
    const digits = decades < 2.5 ? [1, 2, 5] : decades < 4 ? [1, 3] : [1];
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++) {
      for (const digit of digits) ticks.push(digit * 10 ** power);
    }
  } else {
    const rough = (high - low) / Math.max(most, 1);
    const power = 10 ** Math.floor(Math.log10(rough));
    let step = unit.startsWith("bytes") ? 2 ** Math.ceil(Math.log2(rough))
      : [1, 2, 5, 10].map((times) => times * power).find((step) => step >= rough * (1 - 1e-9));
    step = Math.max(step, 1);
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high * (1 + 1e-12); i++) ticks.push(i * step || 0);
  }
  const [one, name] = shownIn(unit, high);
  const whole = (value) => Math.abs(value - Math.round(value)) <= 1e-6 * Math.max(1, Math.abs(value));
  const digits = (value) => [0, 1, 2, 3, 4, 5, 6].find((digits) => whole(value * 10 ** digits)) ?? 6;
  const decimals = Math.max(0, ...ticks.map((tick) => digits(tick / one)));
  return ticks.filter((tick) => tick >= low && tick <= high).map((tick) => ({
    value: tick,
    label: number(tick / one, log ? digits(tick / one) : decimals) + (name ? " " + name : ""),
  }));
}
