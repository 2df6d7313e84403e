//! The normal and the t distribution, total over their arguments.
//!
//! Own code, because the ready-made inverse (`statrs` 0.18) is wrong from 1e6
//! degrees of freedom on and does not return from 1e8 on. Accurate to 1e-9 or
//! better; the formulas are in Abramowitz & Stegun, chapters 6, 7 and 26.

use std::f64::consts::{LN_2, PI, SQRT_2};

/// From this many degrees of freedom the t distribution is taken for normal:
/// its 95 % reach is then 2.4e-6 too small at most.
const NORMAL_FROM: f64 = 1e6;

/// How far from 0 the middle `confidence` of a t distribution reaches; the
/// normal distribution's for infinite `df`. `None` unless `df` is above 0 and
/// the confidence lies between 0 and 1.
pub(super) fn t_reach(confidence: f64, df: f64) -> Option<f64> {
    if !(confidence > 0.0 && confidence < 1.0 && df > 0.0) {
        return None;
    }
    let wanted = 1.0 - confidence;
    let outside = |t| t_two_sided(t, df).unwrap_or(0.0);
    let (mut low, mut high) = (0.0, 1.0);
    while outside(high) > wanted {
        (low, high) = (high, 2.0 * high);
        if high.is_infinite() {
            return None;
        }
    }
    // Newton's steps for the logarithms of both, which are nearly a line far out; where one leaves the
    // range that is known, its middle. Each halves the range or comes close.
    let slope = slope_of(df);
    let mut t = high;
    loop {
        let p = outside(t);
        if p > wanted {
            low = t;
        } else {
            high = t;
        }
        let step = (t.ln() + p * (p / wanted).ln() / (t * slope(t))).exp();
        let next = if low < step && step < high { step } else { low + (high - low) / 2.0 };
        if (next - t).abs() <= 1e-13 * t || next <= low || next >= high {
            return Some(next);
        }
        t = next;
    }
}

/// How fast [`t_two_sided`] falls at a `t` above 0: twice the density.
fn slope_of(df: f64) -> impl Fn(f64) -> f64 {
    let is_normal = df > NORMAL_FROM;
    let front = match is_normal {
        true => (2.0 / PI).ln() / 2.0,
        false => LN_2 + ln_gamma(df / 2.0 + 0.5) - ln_gamma(df / 2.0) - (df * PI).ln() / 2.0,
    };
    move |t| match is_normal {
        true => (front - t * t / 2.0).exp(),
        false => (front - (df + 1.0) / 2.0 * (t / df.sqrt()).powi(2).ln_1p()).exp(),
    }
}

/// The chance that a t distributed value is at least as far from 0 as `t`.
/// `None` when `t` is NaN or `df` is not above 0.
pub(super) fn t_two_sided(t: f64, df: f64) -> Option<f64> {
    if t.is_nan() || df.is_nan() || df <= 0.0 {
        return None;
    }
    if df > NORMAL_FROM {
        return Some(normal_two_sided(t));
    }
    // t² may leave the range of floats where the ratio does not.
    let far = (t.abs() / df.sqrt()).min(1e150).powi(2);
    Some(beta(df / 2.0, 0.5, 1.0 / (1.0 + far), far / (1.0 + far)))
}

/// The chance that a standard normal value is at most `z`; NaN for NaN.
pub(super) fn normal_below(z: f64) -> f64 {
    let outside = normal_two_sided(z) / 2.0;
    if z > 0.0 { 1.0 - outside } else { outside }
}

/// The chance that a standard normal value is at least as far from 0 as `z`;
/// NaN for NaN.
pub(super) fn normal_two_sided(z: f64) -> f64 {
    let x = z.abs() / SQRT_2;
    if x < 2.0 {
        // erf as 2/√π · e^(−x²) · Σ 2^n x^(2n+1) / (2n+1)!!
        let (mut term, mut sum) = (x, x);
        for n in 1..60 {
            term *= 2.0 * x * x / f64::from(2 * n + 1);
            sum += term;
        }
        return 1.0 - 2.0 / PI.sqrt() * (-x * x).exp() * sum;
    }
    // erfc as a continued fraction: e^(−x²)/√π / (x + ½/(x + 1/(x + 1½/(x + …
    let fraction = (1..100).rev().fold(x, |below, n| x + f64::from(n) / 2.0 / below);
    (-x * x).exp() / PI.sqrt() / fraction
}

/// The regularised incomplete beta function I_x(a, b); `y` is 1 − x, given by
/// the caller because the difference would lose its digits.
fn beta(a: f64, b: f64, x: f64, y: f64) -> f64 {
    if x <= 0.0 || y <= 0.0 {
        return if x <= 0.0 { 0.0 } else { 1.0 };
    }
    // The fraction converges fast only on this side of the mean.
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - beta(b, a, y, x);
    }
    let front = a * x.ln() + b * y.ln() + ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b);
    front.exp() / a / beta_fraction(a, b, x)
}

/// 1 + d1/(1 + d2/(1 + …, evaluated from the front by Lentz's method.
fn beta_fraction(a: f64, b: f64, x: f64) -> f64 {
    let nonzero = |x: f64| if x == 0.0 { f64::MIN_POSITIVE } else { x };
    let (mut value, mut c, mut d) = (1.0, 1.0, 0.0);
    for i in 1..20_000 {
        let m = f64::from(i / 2);
        let term = if i % 2 == 0 {
            m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m))
        } else {
            -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0))
        };
        d = 1.0 / nonzero(1.0 + term * d);
        c = nonzero(1.0 + term / c);
        value *= c * d;
        if (c * d - 1.0).abs() < 1e-15 {
            break;
        }
    }
    value
}

/// The logarithm of the gamma function for x > 0: Stirling's series, after
/// moving small arguments up to where it is exact.
fn ln_gamma(x: f64) -> f64 {
    let (mut x, mut product) = (x, 1.0);
    while x < 15.0 {
        product *= x;
        x += 1.0;
    }
    let square = (x * x).recip();
    let series = (((square / 1188.0 - 1.0 / 1680.0) * square + 1.0 / 1260.0) * square
        - 1.0 / 360.0)
        * square
        + 1.0 / 12.0;
    (x - 0.5) * x.ln() - x + (LN_2 + PI.ln()) / 2.0 + series / x - product.ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_close(found: f64, expected: f64, relative: f64) {
        let error = (found / expected - 1.0).abs();
        assert!(error <= relative, "{found:e} is not {expected:e}: {error:e} off");
    }

    #[test]
    fn the_t_reach_is_the_published_one() {
        for (df, reach) in [
            (0.7, 36.611_415_031_589),
            (1.0, 12.706_204_736_175),
            (2.5, 3.574_654_842_004),
            (4.0, 2.776_445_105_198),
            (19.3, 2.090_824_234_779),
            (1e3, 1.962_339_080_826),
            (1e6, 1.959_966_356_814),
        ] {
            assert_close(t_reach(0.95, df).unwrap(), reach, 1e-8);
        }
        assert_close(t_reach(0.95, 1e9).unwrap(), 1.959_963_986_912, 2e-8);
        assert_close(t_reach(0.95, f64::INFINITY).unwrap(), 1.959_963_984_540, 1e-12);
    }

    #[test]
    fn tails_keep_their_digits() {
        for (t, p) in [
            (1e-12, 0.999_999_999_999_222_8),
            (0.1, 0.922_423_011_137_612_4),
            (3.0, 0.014_098_459_163_801_093),
            (10.0, 2.370_385_420_850_79e-6),
            (1e3, 3.514_305_583_988_998e-25),
        ] {
            assert_close(t_two_sided(t, 9.5).unwrap(), p, 1e-11);
            assert_close(t_two_sided(-t, 9.5).unwrap(), p, 1e-11);
        }
        for (z, p) in [
            (0.1, 0.920_344_325_445_942),
            (3.0, 0.002_699_796_063_260_186_6),
            (10.0, 1.523_970_604_832_094e-23),
        ] {
            assert_close(normal_two_sided(z), p, 1e-12);
        }
        assert_eq!((normal_below(0.0), normal_below(50.0)), (0.5, 1.0));
    }

    #[test]
    fn a_p_value_undoes_the_reach() {
        for df in [0.01, 0.7, 1.0, 3.3, 30.0, 1e4, 1e6, 1e7, 1e10] {
            let p = t_two_sided(t_reach(0.95, df).unwrap(), df).unwrap();
            assert!((p - 0.05).abs() < 1e-9, "df {df}: {p}");
        }
    }

    #[test]
    fn the_slope_is_that_of_the_tails() {
        for df in [0.3, 2.0, 17.5, 1e3, 1e8] {
            for t in [0.5, 2.0, 7.0] {
                let by = 1e-4 * t;
                let [near, far] = [t - by, t + by].map(|t| t_two_sided(t, df).unwrap());
                assert_close(slope_of(df)(t), (near - far) / (2.0 * by), 1e-5);
            }
        }
    }

    #[test]
    fn arguments_without_a_meaning_give_no_answer_and_no_panic() {
        for df in [0.0, -1.0, f64::NAN] {
            assert_eq!(t_reach(0.95, df), None);
            assert_eq!(t_two_sided(1.0, df), None);
        }
        for confidence in [0.0, 1.0, 2.0, f64::NAN] {
            assert_eq!(t_reach(confidence, 5.0), None);
        }
        assert_eq!(t_reach(0.95, 1e-300), None, "beyond the range of floats");
        assert_eq!(t_two_sided(f64::NAN, 5.0), None);
        assert_eq!(t_two_sided(0.0, 5.0), Some(1.0));
        assert!(t_two_sided(f64::INFINITY, 5.0).unwrap() < 1e-100);
        assert!(normal_two_sided(f64::NAN).is_nan() && normal_below(f64::NAN).is_nan());
        assert_eq!(normal_two_sided(f64::INFINITY), 0.0);
    }
}
