//! Many counters tested at once: the false discovery rate.

/// Benjamini and Hochberg's adjusted p values (Journal of the Royal Statistical
/// Society B 57, 1995), in the order given. Calling every counter changed whose
/// adjusted value is at most q keeps the expected share of false calls to q.
///
/// A p value that is not a number stays so and does not count as a test.
pub fn adjust(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).filter(|&i| !p[i].is_nan()).collect();
    order.sort_by(|&i, &j| p[j].total_cmp(&p[i]));
    let tests = order.len();
    let mut adjusted = vec![f64::NAN; p.len()];
    let mut smallest = 1.0f64;
    for (above, i) in order.into_iter().enumerate() {
        smallest = smallest.min(p[i] * (tests as f64 / (tests - above) as f64));
        adjusted[i] = smallest;
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjusted_values_keep_the_order_of_the_raw_ones() {
        assert_eq!(adjust(&[0.5, 0.125, 0.375, 0.25]), [0.5, 0.5, 0.5, 0.5]);
        assert_eq!(adjust(&[0.5, 0.001]), [0.5, 0.002]);
    }

    #[test]
    fn a_counter_without_a_test_does_not_count_as_one() {
        let adjusted = adjust(&[0.01, f64::NAN, 0.02]);
        assert_eq!((adjusted[0], adjusted[2]), (0.02, 0.02));
        assert!(adjusted[1].is_nan());
        assert!(adjust(&[]).is_empty());
    }
}
