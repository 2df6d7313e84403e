//! The null distributions of the Wilcoxon signed-rank and the Mann-Whitney statistics: exact for
//! the run counts of a benchmark, normal above.
//!
//! Sources: Hollander & Wolfe, Nonparametric Statistical Methods, ch. 3 and 4; the counts of
//! Mann-Whitney's U are Gaussian binomial coefficients.

use super::{CONFIDENCE, dist};

/// Up to this many values (of each side, or as many pairs) the distribution is
/// exact. From here on the normal approximation of the tails that bound an
/// interval is off by less than 0.0005.
pub(super) const EXACT_UP_TO: usize = 50;

/// How a rank statistic with values 0..=members is distributed when nothing
/// differs. Symmetric about members/2.
#[derive(Debug)]
pub(super) struct Null {
    members: u64,
    shape: Shape,
}

#[derive(Debug)]
enum Shape {
    /// P(T ≤ i) at index i.
    Exact(Vec<f64>),
    Normal {
        sd: f64,
    },
}

impl Null {
    /// Wilcoxon's signed-rank sum of `n` values without ties or zeros.
    pub(super) fn signed_rank(n: usize) -> Null {
        let members = super::select::walsh_members(n);
        if n <= EXACT_UP_TO {
            let ranks: Vec<usize> = (1..=n).collect();
            return Null { members, shape: Shape::Exact(cumulative(signed_sum_mass(&ranks))) };
        }
        let n = n as f64;
        let sd = (n * (n + 1.0) * (2.0 * n + 1.0) / 24.0).sqrt();
        Null { members, shape: Shape::Normal { sd } }
    }

    /// Mann-Whitney's U of `n` and `m` values without ties.
    pub(super) fn rank_sum(n: usize, m: usize) -> Null {
        let members = n as u64 * m as u64;
        if n * m <= EXACT_UP_TO * EXACT_UP_TO {
            return Null { members, shape: Shape::Exact(cumulative(rank_sum_mass(n, m))) };
        }
        let sd = (members as f64 * (n as f64 + m as f64 + 1.0) / 12.0).sqrt();
        Null { members, shape: Shape::Normal { sd } }
    }

    pub(super) fn is_exact(&self) -> bool {
        matches!(self.shape, Shape::Exact(_))
    }

    /// The rank, from 1, of the member that bounds the interval on each side
    /// (counted from its end), and the confidence this gives. Without enough
    /// values for the confidence requested it is the outermost member.
    pub(super) fn interval_rank(&self) -> (u64, f64) {
        let tail = (1.0 - CONFIDENCE) / 2.0;
        let (mut low, mut high) = (1, (self.members / 2).max(1));
        while low < high {
            let mid = low + (high - low).div_ceil(2);
            if self.below(mid) <= tail {
                low = mid;
            } else {
                high = mid - 1;
            }
        }
        (low, (1.0 - 2.0 * self.below(low)).max(0.0))
    }

    /// P(T < k) for k ≥ 1.
    fn below(&self, k: u64) -> f64 {
        match &self.shape {
            Shape::Exact(cumulative) => cumulative.get(k as usize - 1).copied().unwrap_or(1.0),
            Shape::Normal { sd } => {
                dist::normal_below((k as f64 - 0.5 - self.members as f64 / 2.0) / sd)
            }
        }
    }
}

/// Mid-ranks (from 1, doubled to stay whole) of `values`, in their order.
pub(super) fn doubled_ranks(values: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&i, &j| values[i].total_cmp(&values[j]));
    let mut ranks = vec![0; values.len()];
    let mut start = 0;
    for tied in order.chunk_by(|&i, &j| values[i] == values[j]) {
        // Ranks start+1 ..= start+len have the mean start + (len+1)/2.
        for &i in tied {
            ranks[i] = 2 * start + tied.len() + 1;
        }
        start += tied.len();
    }
    ranks
}

/// The chance that the ranks of one sign sum to at most `sum`, when every rank
/// gets its sign by a fair coin: exact also with ties.
pub(super) fn signed_sum_at_most(ranks: &[usize], sum: usize) -> f64 {
    signed_sum_mass(ranks).iter().take(sum + 1).sum()
}

/// P(sum = i) at index i. Every figure is a multiple of 2^-n, so for n ≤ 50
/// floating point adds them without rounding.
fn signed_sum_mass(ranks: &[usize]) -> Vec<f64> {
    let mut mass = vec![0.0; ranks.iter().sum::<usize>() + 1];
    mass[0] = 1.0;
    let mut reach = 0;
    for &rank in ranks {
        reach += rank;
        for sum in (0..=reach).rev() {
            let with = if sum >= rank { mass[sum - rank] } else { 0.0 };
            mass[sum] = 0.5 * (mass[sum] + with);
        }
    }
    mass
}

/// P(U = u) at index u, from whole counts: the product of (1 − q^(m+i)) over
/// the product of (1 − q^i), i = 1..=n. At most C(100, 50) ≈ 1e29 orders.
fn rank_sum_mass(n: usize, m: usize) -> Vec<f64> {
    let top = n * m;
    let mut counts = vec![0i128; top + 1];
    counts[0] = 1;
    for i in 1..=n {
        for u in (m + i..=top).rev() {
            counts[u] -= counts[u - m - i];
        }
        for u in i..=top {
            counts[u] += counts[u - i];
        }
    }
    let orders = counts.iter().sum::<i128>() as f64;
    counts.iter().map(|&count| count as f64 / orders).collect()
}

fn cumulative(mass: Vec<f64>) -> Vec<f64> {
    mass.into_iter()
        .scan(0.0, |sum, p| {
            *sum += p;
            Some(*sum)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn critical_values_are_the_published_ones() {
        // Two-sided 5 %: the largest T that rejects; the interval starts one above it.
        for (n, critical) in [(6, 0), (7, 2), (10, 8), (15, 25), (20, 52), (25, 89), (30, 137)] {
            let (rank, confidence) = Null::signed_rank(n).interval_rank();
            assert_eq!(rank, critical + 1, "signed rank, n = {n}");
            assert!(confidence >= 0.95);
        }
        for ((n, m), critical) in
            [((4, 4), 0), ((5, 5), 2), ((5, 8), 6), ((10, 10), 23), ((20, 20), 127)]
        {
            let (rank, confidence) = Null::rank_sum(n, m).interval_rank();
            assert_eq!(rank, critical + 1, "rank sum, n = {n}, m = {m}");
            assert!(confidence >= 0.95);
        }
    }

    #[test]
    fn too_few_values_give_the_whole_range_and_say_how_little_it_means() {
        for (n, confidence) in [(1, 0.0), (2, 0.5), (3, 0.75), (5, 0.9375)] {
            assert_eq!(Null::signed_rank(n).interval_rank(), (1, confidence));
        }
        assert_eq!(Null::rank_sum(1, 1).interval_rank(), (1, 0.0));
        let (rank, confidence) = Null::rank_sum(3, 3).interval_rank();
        assert_eq!((rank, (confidence * 10.0).round()), (1, 9.0));
    }

    #[test]
    fn the_normal_approximation_takes_over_without_a_step() {
        for (exact, normal) in [
            (Null::signed_rank(EXACT_UP_TO), Null::signed_rank(EXACT_UP_TO + 1)),
            (Null::rank_sum(50, 50), Null::rank_sum(51, 50)),
        ] {
            assert!(exact.is_exact() && !normal.is_exact());
            let share = |null: &Null| null.interval_rank().0 as f64 / null.members as f64;
            let (e, n) = (share(&exact), share(&normal));
            assert!((e - n).abs() < 0.005, "{e} {n}");
        }
        let exact = Null::signed_rank(EXACT_UP_TO);
        let n = EXACT_UP_TO as f64;
        let sd = (n * (n + 1.0) * (2.0 * n + 1.0) / 24.0).sqrt();
        let normal = Null { members: exact.members, shape: Shape::Normal { sd } };
        for k in [200, 300, 400, 435] {
            assert!((exact.below(k) - normal.below(k)).abs() < 0.0005, "{k}");
        }
    }

    #[test]
    fn tied_values_share_the_mean_of_their_ranks() {
        assert_eq!(doubled_ranks(&[3.0, 1.0, 3.0, 2.0]), [7, 2, 7, 4]);
        assert_eq!(doubled_ranks(&[]), [0usize; 0]);
    }

    #[test]
    fn every_distribution_sums_to_one_and_is_symmetric() {
        for mass in [signed_sum_mass(&[1, 2, 3, 4, 5]), rank_sum_mass(7, 4), rank_sum_mass(50, 50)]
        {
            assert!((mass.iter().sum::<f64>() - 1.0).abs() < 1e-12);
            for (a, b) in mass.iter().zip(mass.iter().rev()) {
                assert!((a - b).abs() < 1e-15);
            }
        }
    }
}
