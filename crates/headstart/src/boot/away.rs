//! How many packs are kept of file systems that are not mounted: those of the other root of
//! an A/B machine and of a disk that is attached now and then are, and not one of each that
//! was ever there. Pure.

/// Of each phase. A machine with more of them learns one again when it is needed.
const MOST: usize = 8;

/// The packs of one phase that are forgotten, of file systems that are `away`: all but those
/// that were learned last. Each has the time of that.
pub fn forgotten<T>(mut away: Vec<(u64, T)>) -> Vec<T> {
    away.sort_by_key(|(learned_at, _)| std::cmp::Reverse(*learned_at));
    away.into_iter().skip(MOST).map(|(_, pack)| pack).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_file_systems_that_are_away_the_packs_that_were_learned_last_are_kept() {
        let away = |count: u64| (0..count).map(|n| (n * 7 % 11, n * 7 % 11)).collect();
        for (count, expected) in [(0, vec![]), (8, vec![]), (9, vec![0]), (11, vec![2, 1, 0])] {
            assert_eq!(forgotten(away(count)), expected, "{count}");
        }
    }
}
