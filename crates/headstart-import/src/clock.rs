//! Times of logs that tell only the time of day: they go on after midnight.

const DAY_NS: u64 = 86_400_000_000_000;

/// A clock of a log.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DayClock {
    now: Option<u64>,
    /// What midnights add.
    days: u64,
}

impl DayClock {
    /// A time of the log, in ns, in the order of its lines. One that goes back by hours is past
    /// midnight.
    pub(crate) fn at(&mut self, ns: u64) -> u64 {
        let mut now = ns.saturating_add(self.days);
        if self.now.is_some_and(|before| before > now.saturating_add(DAY_NS / 2)) {
            self.days = self.days.saturating_add(DAY_NS);
            now = now.saturating_add(DAY_NS);
        }
        *self.now.insert(now)
    }

    /// So long after the time before.
    pub(crate) fn after(&mut self, ns: u64) -> u64 {
        *self.now.insert(self.now.unwrap_or(0).saturating_add(ns))
    }
}
