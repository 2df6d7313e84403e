//! The k-th smallest of the n² pairwise averages or differences, without
//! building them: O(n) memory and about 64·n steps, however many runs.
//!
//! Rounding keeps sums and differences in order, so counting how many are at
//! most x takes one pass over sorted values, and halving the range of x finds
//! the exact member.

use super::middle;

/// How many Walsh averages (x_i + x_j)/2, i ≤ j, there are.
pub(super) fn walsh_members(n: usize) -> u64 {
    let n = n as u64;
    n * (n + 1) / 2
}

/// The `rank`-th smallest (from 1) Walsh average of ascending finite values.
pub(super) fn walsh(sorted: &[f64], rank: u64) -> f64 {
    kth(rank, |x| {
        let mut end = sorted.len();
        let mut count = 0;
        for (i, &low) in sorted.iter().enumerate() {
            while end > i && middle(low, sorted[end - 1]) > x {
                end -= 1;
            }
            if end == i {
                break;
            }
            count += (end - i) as u64;
        }
        count
    })
}

/// The `rank`-th smallest (from 1) difference b − a of ascending finite values.
pub(super) fn difference(a: &[f64], b: &[f64], rank: u64) -> f64 {
    kth(rank, |x| {
        let mut end = 0;
        let mut count = 0;
        for &from in a {
            while end < b.len() && b[end] - from <= x {
                end += 1;
            }
            count += end as u64;
        }
        count
    })
}

/// Up to so many differences, sorting them all is faster than counting.
const FEW: usize = 512;

/// [`difference`], for several ranks of the same values.
pub(super) fn differences<'a>(a: &'a [f64], b: &'a [f64]) -> impl Fn(u64) -> f64 + 'a {
    let is_few = a.len().saturating_mul(b.len()) <= FEW;
    let few = if is_few { a } else { &[] };
    // Both zeros are one, as by counting.
    let mut all: Vec<f64> =
        few.iter().flat_map(|from| b.iter().map(move |to| to - from + 0.0)).collect();
    all.sort_unstable_by(f64::total_cmp);
    move |rank| match usize::try_from(rank).ok().and_then(|rank| all.get(rank.checked_sub(1)?)) {
        Some(found) => *found,
        None => difference(a, b, rank),
    }
}

/// The median of `members` values, given the k-th smallest of them.
pub(super) fn median(members: u64, kth: impl Fn(u64) -> f64) -> f64 {
    middle(kth(members.div_ceil(2)), kth(members / 2 + 1))
}

/// The smallest x with at least `rank` members at most x.
fn kth(rank: u64, count_up_to: impl Fn(f64) -> u64) -> f64 {
    let (mut low, mut high) = (key(f64::NEG_INFINITY), key(f64::INFINITY));
    while low < high {
        let mid = low + (high - low) / 2;
        if count_up_to(value(mid)) >= rank {
            high = mid;
        } else {
            low = mid + 1;
        }
    }
    // Both zeros compare equal, so the search may end on the negative one.
    value(low) + 0.0
}

const SIGN: u64 = 1 << 63;

/// Numbers the floats in ascending order.
fn key(x: f64) -> u64 {
    let bits = x.to_bits();
    if bits & SIGN == 0 { bits | SIGN } else { !bits }
}

/// The float with this number.
fn value(key: u64) -> f64 {
    f64::from_bits(if key & SIGN == 0 { !key } else { key ^ SIGN })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ascending(mut values: Vec<f64>) -> Vec<f64> {
        values.sort_by(f64::total_cmp);
        values
    }

    proptest! {
        #[test]
        fn selecting_agrees_with_sorting_them_all(
            a in prop::collection::vec(-1e3..1e3f64, 1..12),
            b in prop::collection::vec(prop_oneof![-1e3..1e3f64, Just(0.0), Just(7.0)], 1..12),
        ) {
            let (a, b) = (ascending(a), ascending(b));
            let mut averages = Vec::new();
            for (i, x) in b.iter().enumerate() {
                averages.extend(b[i..].iter().map(|y| middle(*x, *y)));
            }
            for (i, expected) in ascending(averages).into_iter().enumerate() {
                prop_assert_eq!(walsh(&b, i as u64 + 1), expected);
            }
            let all = b.iter().flat_map(|y| a.iter().map(move |x| y - x)).collect();
            for (i, expected) in ascending(all).into_iter().enumerate() {
                let rank = i as u64 + 1;
                prop_assert_eq!(difference(&a, &b, rank), expected);
                prop_assert_eq!(differences(&a, &b)(rank), expected);
            }
        }
    }

    #[test]
    fn the_largest_floats_do_not_overflow_an_average() {
        let big = f64::MAX;
        assert_eq!(walsh(&[big, big], 2), big);
        assert_eq!(walsh(&[-big, big], 2), 0.0);
    }
}
