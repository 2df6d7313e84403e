//! Numbers as text: durations with their significant digits.

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
