//! Parses the text files of a tracefs instance. Pure.

use super::decode::EVENTS;

/// The statistics of an instance's buffers.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct BufferStats {
    /// Events dropped because a buffer was full.
    pub dropped: u64,
    /// Events overwritten unread.
    pub overrun: u64,
    /// Events that are in the buffer.
    pub entries: u64,
}

impl BufferStats {
    /// Events that were lost, with those that were left in the buffers if these were no
    /// longer read to the end.
    pub fn lost(self, left: bool) -> u64 {
        let left = if left { self.entries } else { 0 };
        self.dropped.saturating_add(self.overrun).saturating_add(left)
    }
}

/// Finds the writer of a mark: `  headstart-4711  [001] ..... 1.2: …: MARK`.
pub fn parse_marker(trace: &str, mark: &str) -> Option<i32> {
    let line = trace.lines().find(|line| line.ends_with(mark))?;
    let (task, _) = line.split_once('[')?;
    task.trim_end().rsplit('-').next()?.parse().ok()
}

/// Reads `per_cpu/cpuN/stats`.
pub fn parse_stats(text: &str) -> BufferStats {
    let value = |key: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(key)?.trim().parse().ok())
            .unwrap_or_default()
    };
    BufferStats {
        dropped: value("dropped events:"),
        overrun: value("overrun:").saturating_add(value("commit overrun:")),
        entries: value("entries:"),
    }
}

/// Those of our events that `set_event` lists, as `filemap:mm_filemap_fault`, if it
/// lists no others.
pub fn only_ours(set_event: &str) -> Option<Vec<(&'static str, &'static str)>> {
    let ours = |line: &str| {
        let (group, name) = line.trim().split_once(':')?;
        EVENTS.iter().map(|(g, n, _)| (*g, *n)).find(|ours| *ours == (group, name))
    };
    set_event.lines().map(ours).collect()
}

/// The time in `per_cpu/cpuN/stats`, `now ts: 34995.166740`, in nanoseconds.
pub fn parse_now(text: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix("now ts:"))?.trim();
    let (seconds, micros) = value.split_once('.')?;
    let seconds: u64 = seconds.trim().parse().ok()?;
    let micros: u64 = Some(micros).filter(|m| m.len() == 6)?.parse().ok()?;
    seconds.checked_mul(1_000_000)?.checked_add(micros)?.checked_mul(1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN_MARK: &str = "headstart: whose thread is this, for 7";

    #[test]
    fn the_writer_of_our_mark_is_found_whatever_its_name_is() {
        let trace = format!(
            "# tracer: nop\n     a [x]-7     [000] ..... 1.0: tracing_mark_write: other\n\
             head-start-4711    [001] ..... 12.345678: tracing_mark_write: {OWN_MARK}\n"
        );
        assert_eq!(parse_marker(&trace, OWN_MARK), Some(4711));
        assert_eq!(parse_marker(&trace, "of another"), None);
        assert_eq!(parse_marker("# tracer: nop\n", OWN_MARK), None);
    }

    #[test]
    fn buffer_statistics_are_read_by_name() {
        let text = "entries: 5\noverrun: 7\ncommit overrun: 1\nbytes: 60\ndropped events: 9\n";
        assert_eq!(parse_stats(text), BufferStats { dropped: 9, overrun: 8, entries: 5 });
        assert_eq!([false, true].map(|left| parse_stats(text).lost(left)), [17, 22]);
        assert_eq!(parse_stats(""), BufferStats::default());
        let most = u64::MAX;
        let text = format!("entries: {most}\noverrun: {most}\ncommit overrun: {most}\n");
        assert_eq!(parse_stats(&text).lost(true), most);
    }

    #[test]
    fn events_of_others_in_a_buffer_are_noticed() {
        let ours = "filemap:mm_filemap_add_to_page_cache\nblock:block_touch_buffer\n";
        assert_eq!(only_ours(ours).map(|events| events.len()), Some(2));
        assert_eq!(only_ours(""), Some(vec![]));
        assert_eq!(only_ours(&format!("{ours}sched:sched_switch\n")), None);
    }

    #[test]
    fn the_clock_of_a_buffer_is_read_where_it_counts_seconds() {
        for (text, expected) in [
            ("oldest event ts: 1.000000\nnow ts: 34995.166740\n", Some(34_995_166_740_000)),
            ("now ts:     0.000001\n", Some(1000)),
            ("now ts: 123456789\n", None),
            ("now ts: 1.5\n", None),
            ("now ts: 99999999999999999999.000000\n", None),
            ("", None),
        ] {
            assert_eq!(parse_now(text), expected, "{text:?}");
        }
    }
}
