//! Values on the command line: times, sizes, shares.

use std::time::Duration;

/// The longest time, a hundred years, which can still be added to the current time.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// Parses a time: `10s`, `500ms`, `2m 30s`; a bare number means seconds.
pub fn duration(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().map(Duration::from_secs);
    let time = seconds.or_else(|_| {
        humantime::parse_duration(text)
            .map_err(|_| format!("{text:?} is not a time; write it like 10s, 500ms or 2m"))
    })?;
    Ok(time.min(LONGEST))
}

/// Parses a size: `4096`, `512K`, `64M`, `2G`, also with `iB` or `B` behind.
pub fn bytes(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?} is not a size; write it like 512K, 64M or 2G");
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit.trim_end_matches(['B', 'i']).to_ascii_uppercase().as_str() {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return Err(wrong()),
    };
    let number: u64 = number.parse().map_err(|_| wrong())?;
    number.checked_mul(1 << shift).ok_or_else(wrong)
}

/// Parses a share: `3%`, `0.5 %`; a bare number means per cent too.
pub fn percent(text: &str) -> Result<f64, String> {
    let number = text.trim().trim_end_matches('%').trim_end();
    match number.parse::<f64>() {
        Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(percent / 100.0),
        _ => Err(format!("{text:?} is no share; write it like 3%")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_in_their_units() {
        for (text, ms) in
            [("10s", 10_000), ("500ms", 500), ("2", 2000), ("1m 30s", 90_000), ("1h", 3_600_000)]
        {
            assert_eq!(duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in ["", "s", "10x", "-1s", "1e400", "99999999999999999999h"] {
            assert!(duration(text).is_err(), "{text}");
        }
        let longest = duration("18446744073709551615").unwrap();
        assert!(std::time::Instant::now().checked_add(longest).is_some());
    }

    #[test]
    fn sizes_are_read_in_powers_of_two() {
        for (text, expected) in
            [("0", 0), ("4096", 4096), ("512K", 512 << 10), ("64MiB", 64 << 20), ("2GB", 2 << 30)]
        {
            assert_eq!(bytes(text), Ok(expected), "{text}");
        }
        for text in ["", "K", "1.5M", "12X", "99999999999999T"] {
            assert!(bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn shares_are_read_as_per_cent() {
        for (text, share) in [("3%", 0.03), ("0.5 %", 0.005), ("10", 0.1), ("0%", 0.0)] {
            assert_eq!(percent(text), Ok(share), "{text}");
        }
        for text in ["", "%", "-1%", "101%", "nan%", "three"] {
            assert!(percent(text).is_err(), "{text}");
        }
    }
}
