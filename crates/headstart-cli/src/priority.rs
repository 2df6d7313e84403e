//! CPU and I/O priority of a replay. ioprio_set(2), nice(2).

use anyhow::Context;
use headstart_sys::ioprio::{self, IoPriority};

/// Parses an I/O priority: `idle`, `best-effort[:0-7]`, `realtime[:0-7]`.
pub fn io_priority(text: &str) -> Result<IoPriority, String> {
    let wrong = || {
        format!("{text:?} is no I/O priority; write idle, best-effort:0 to :7 or realtime:0 to :7")
    };
    let (class, level) = text.split_once(':').map_or((text, None), |(c, l)| (c, Some(l)));
    let level = match level {
        None => ioprio::DEFAULT_LEVEL,
        Some(level) => level.parse().ok().filter(|l| *l <= 7).ok_or_else(wrong)?,
    };
    match class {
        "idle" => Ok(IoPriority::Idle),
        "best-effort" | "be" => Ok(IoPriority::BestEffort(level)),
        "realtime" | "rt" => Ok(IoPriority::Realtime(level)),
        _ => Err(wrong()),
    }
}

/// Sets the priorities of this process, before it starts threads.
pub fn apply(nice: Option<i32>, io: Option<IoPriority>) -> anyhow::Result<()> {
    if let Some(nice) = nice {
        rustix::process::setpriority_process(None, nice)
            .with_context(|| format!("Can't set the nice value {nice}; a raise needs root"))?;
    }
    if let Some(io) = io {
        ioprio::set_for_thread(io).context("Can't set the I/O priority; realtime needs root")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priorities_are_read_by_class_and_level() {
        for (text, expected) in [
            ("idle", Some(IoPriority::Idle)),
            ("best-effort", Some(IoPriority::BestEffort(4))),
            ("be:7", Some(IoPriority::BestEffort(7))),
            ("realtime:0", Some(IoPriority::Realtime(0))),
            ("rt:8", None),
            ("fast", None),
        ] {
            assert_eq!(io_priority(text).ok(), expected, "{text}");
        }
    }
}
