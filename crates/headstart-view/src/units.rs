//! Numbers as text: durations and sizes with their significant digits.

use crate::picture::Unit;

/// Milliseconds with three digits or all before the point: "4.13", "41.3",
/// "413", "18,849".
pub fn millis(ms: f64) -> String {
    let decimals = match ms.abs() {
        size if size < 9.995 => 2,
        size if size < 99.95 => 1,
        _ => 0,
    };
    grouped(ms, decimals)
}

/// A time in ns with its unit: "4.1 µs", "41.3 ms", "4.13 s".
pub fn nanos(ns: u64) -> String {
    let ns = ns as f64;
    match ns {
        0.0..1e6 => format!("{:.1} µs", ns / 1e3),
        1e6..1e9 => format!("{:.1} ms", ns / 1e6),
        _ => format!("{:.2} s", ns / 1e9),
    }
}

/// Units of time in ns, and of sizes in bytes, the largest first.
const TIMES: [(f64, &str); 4] = [(1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns")];
const SIZES: [(f64, &str); 4] =
    [(1073741824.0, "GiB"), (1048576.0, "MiB"), (1024.0, "KiB"), (1.0, "B")];

/// The unit in which a value of this size is shown: how much it is, and its name.
pub(crate) fn shown_in(unit: Unit, size: f64) -> (f64, String) {
    let of = |units: [(f64, &str); 4], behind: &str| {
        let fitting = units.into_iter().find(|(one, _)| size >= *one).unwrap_or(units[3]);
        (fitting.0, format!("{}{behind}", fitting.1))
    };
    match unit {
        Unit::Ns => of(TIMES, ""),
        Unit::Bytes => of(SIZES, ""),
        Unit::BytesPerSecond => of(SIZES, "/s"),
        Unit::Count | Unit::Label | Unit::Kind => (1.0, String::new()),
    }
}

/// A value with its unit: "4.13 ms", "1.20 MiB", "1,200".
pub fn amount(unit: Unit, value: f64) -> String {
    let (one, name) = shown_in(unit, value);
    match (one, name.is_empty()) {
        (_, true) => grouped(value, 0),
        // Nothing is smaller than these.
        (1.0, _) => format!("{} {name}", grouped(value, 0)),
        _ => format!("{} {name}", millis(value / one)),
    }
}

/// How many decimals show two digits of a difference, so that numbers which
/// differ by so much don't look equal: none for 24, one for 2.4. At most four.
pub fn decimals_for(difference: f64) -> usize {
    let magnitude = difference.abs().log10().floor();
    if magnitude.is_finite() { (1.0 - magnitude).clamp(0.0, 4.0) as usize } else { 0 }
}

/// A number with commas between groups of three digits.
pub fn grouped(x: f64, decimals: usize) -> String {
    let text = format!("{:.decimals$}", x.abs());
    if !x.is_finite() {
        return x.to_string();
    }
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let mut out = String::new();
    if x < 0.0 && text.bytes().any(|digit| (b'1'..=b'9').contains(&digit)) {
        out.push('-');
    }
    for (i, digit) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn milliseconds_have_three_digits_and_groups() {
        for (ms, text) in [
            (0.0, "0.00"),
            (0.005, "0.01"),
            (4.126, "4.13"),
            (9.996, "10.0"),
            (41.25, "41.2"),
            (99.96, "100"),
            (412.7, "413"),
            (999.6, "1,000"),
            (18_849.4, "18,849"),
            (1_234_567.0, "1,234,567"),
            (-1234.5, "-1,234"),
            (-0.001, "0.00"),
            (f64::NAN, "NaN"),
            (f64::INFINITY, "inf"),
        ] {
            assert_eq!(millis(ms), text);
        }
    }

    #[test]
    fn an_amount_has_the_unit_that_fits() {
        for (unit, value, text) in [
            (Unit::Ns, 0.0, "0 ns"),
            (Unit::Ns, 999.0, "999 ns"),
            (Unit::Ns, 4_130.0, "4.13 µs"),
            (Unit::Ns, 2.5e9, "2.50 s"),
            (Unit::Bytes, 4096.0, "4.00 KiB"),
            (Unit::BytesPerSecond, 1048576.0, "1.00 MiB/s"),
            (Unit::Count, 1200.0, "1,200"),
        ] {
            assert_eq!(amount(unit, value), text);
        }
    }

    #[test]
    fn decimals_keep_two_digits_of_the_difference() {
        for (difference, decimals) in [
            (122.0, 0),
            (10.0, 0),
            (9.9, 1),
            (-0.4, 2),
            (1e-9, 4),
            (0.0, 0),
            (f64::NAN, 0),
            (f64::INFINITY, 0),
        ] {
            assert_eq!(decimals_for(difference), decimals, "{difference}");
        }
    }
}
