//! Who else uses the CPUs: a busy machine cannot hold a model, and
//! whoever measures has to know.

use std::fs;
use std::path::Path;
use std::time::Instant;

use crate::error::{Error, Result};

/// CPUs that other work uses, above which times are not reliable.
pub const BUSY: f64 = 0.1;
/// The share of the CPUs' time that has to stay idle for a load: with less the CPUs bound it and
/// not the disk.
pub const IDLE: f64 = 0.1;

/// Parent of all kernel threads, among them the loop devices' workers.
const KTHREADD: u32 = 2;

/// A stretch of time in which the use of the CPUs is watched.
#[derive(Debug)]
pub struct Watch {
    own: Vec<u32>,
    start: Instant,
    ticks: u64,
}

impl Watch {
    /// Begins; the work of the processes `own`, of children that they waited for, and of the
    /// kernel's threads is not counted.
    ///
    /// # Errors
    /// When /proc cannot be read.
    pub fn begin(own: Vec<u32>) -> Result<Self> {
        let ticks = others(&own)?;
        Ok(Self { own, start: Instant::now(), ticks })
    }

    /// Does not count the work of a process that was started after the beginning, either.
    pub fn adopt(&mut self, id: u32) {
        self.own.push(id);
    }

    /// CPUs that others, the hypervisor included, used
    /// since the beginning. Good to a hundredth of a second of work.
    ///
    /// # Errors
    /// When /proc cannot be read.
    pub fn others(&self) -> Result<f64> {
        let ticks = others(&self.own)?.saturating_sub(self.ticks);
        let seconds = ticks as f64 / rustix::param::clock_ticks_per_second() as f64;
        Ok(seconds / self.start.elapsed().as_secs_f64().max(1e-3))
    }
}

/// Idle ticks and all ticks of the CPUs since the machine started, for [`idle_share`].
///
/// # Errors
/// When /proc cannot be read.
pub fn cpu_ticks() -> Result<(u64, u64)> {
    let path = Path::new("/proc/stat");
    let stat = fs::read_to_string(path).map_err(Error::io("read", path))?;
    idle_ticks(&stat)
        .ok_or_else(|| Error::Refused("/proc/stat does not begin with the total".to_owned()))
}

/// The share of the CPUs' time that was idle between two of [`cpu_ticks`].
pub fn idle_share(before: (u64, u64), after: (u64, u64)) -> f64 {
    let all = after.1.saturating_sub(before.1).max(1);
    after.0.saturating_sub(before.0) as f64 / all as f64
}

/// Ticks spent outside the processes `own` and the kernel's threads. From the
/// total and not as a sum over processes, which would miss those that end.
fn others(own: &[u32]) -> Result<u64> {
    let path = Path::new("/proc/stat");
    let total = fs::read_to_string(path).map_err(Error::io("read", path))?;
    let total = total_ticks(&total)
        .ok_or_else(|| Error::Refused("/proc/stat does not begin with the total".to_owned()))?;
    let proc = Path::new("/proc");
    let list = fs::read_dir(proc).map_err(Error::io("list", proc))?;
    let ids = list.filter_map(|item| item.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let ticks = |id: u32| {
        // A process that has ended meanwhile is none of those looked for.
        let stat = fs::read_to_string(proc.join(id.to_string()).join("stat")).ok()?;
        let (parent, ticks) = process_ticks(&stat)?;
        (parent == KTHREADD || own.contains(&id)).then_some(ticks)
    };
    Ok(total.saturating_sub(ids.filter_map(ticks).sum()))
}

/// User, nice, system and stolen ticks of /proc/stat (proc_stat(5)).
/// Interrupts are not counted: they are mostly of the disk itself.
fn total_ticks(stat: &str) -> Option<u64> {
    let fields = stat.lines().next()?.strip_prefix("cpu ")?.split_ascii_whitespace();
    let fields: Vec<u64> = fields.map_while(|field| field.parse().ok()).collect();
    [0, 1, 2, 7].iter().map(|i| fields.get(*i)).try_fold(0u64, |sum, v| sum.checked_add(*v?))
}

/// Ticks without work, waiting for a disk among them, and all ticks but those of guests, which
/// are in the user's (proc_stat(5)).
fn idle_ticks(stat: &str) -> Option<(u64, u64)> {
    let fields = stat.lines().next()?.strip_prefix("cpu ")?.split_ascii_whitespace();
    let fields: Vec<u64> = fields.take(8).map_while(|field| field.parse().ok()).collect();
    let idle = fields.get(3)?.checked_add(*fields.get(4)?)?;
    Some((idle, fields.iter().try_fold(0u64, |sum, field| sum.checked_add(*field))?))
}

/// Parent of a process, and user and system ticks of itself and of the children that it waited for
/// (proc_pid_stat(5)).
fn process_ticks(stat: &str) -> Option<(u32, u64)> {
    // The name in parentheses may itself hold parentheses and spaces.
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<_> = rest.split_ascii_whitespace().collect();
    let mut ticks = fields.get(11..15)?.iter().map(|field| field.parse::<u64>().ok());
    let ticks = ticks.try_fold(0u64, |sum, ticks| sum.checked_add(ticks?))?;
    Some((fields.get(1)?.parse().ok()?, ticks))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn user_nice_system_and_stolen_ticks_are_summed() {
        let stat = "cpu  100 20 3 9000 400 5 6 7 0 0\ncpu0 1 1 1 1\n";
        assert_eq!(total_ticks(stat), Some(130));
        assert_eq!(total_ticks("cpu  1 2 3 4 5 6 7\n"), None);
        assert_eq!(total_ticks("intr 1"), None);
    }

    #[test]
    fn cpus_that_wait_for_a_disk_are_idle() {
        let stat = "cpu  100 20 3 9000 400 5 6 7 50 0\ncpu0 1 1 1 1\n";
        assert_eq!(idle_ticks(stat), Some((9400, 9541)));
        assert_eq!(idle_ticks("cpu  1 2 3\n"), None);
        assert_eq!(idle_share((9400, 9541), (9425, 9641)), 0.25);
        assert_eq!(idle_share((5, 5), (5, 5)), 0.0);
    }

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let stat = "7 (a) b (c) S 2 0 0 0 -1 0 0 0 0 0 30 12 5 3 20 0 1 0 5";
        assert_eq!(process_ticks(stat), Some((2, 50)));
        assert_eq!(process_ticks("7 (x) S 2 0"), None);
    }

    #[test]
    fn the_work_of_this_process_counts_only_for_others() {
        let spin = || {
            // Not by the wall clock: others may have the CPUs.
            let used = || rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
            let end = used().tv_sec * 1000 + used().tv_nsec / 1_000_000 + 300;
            while used().tv_sec * 1000 + used().tv_nsec / 1_000_000 < end {
                std::hint::spin_loop();
            }
        };
        let seen = |own: Vec<u32>| {
            let watch = Watch::begin(own).unwrap();
            spin();
            watch.others().unwrap()
        };
        // Other tests and other people run as well: only a lower bound holds.
        assert!(seen(Vec::new()) > 0.3);
        let before = others(&[]).unwrap() - others(&[std::process::id()]).unwrap();
        spin();
        let after = others(&[]).unwrap() - others(&[std::process::id()]).unwrap();
        assert!(after > before + 10, "{before} ticks became {after}");
    }

    proptest! {
        #[test]
        fn any_text_is_taken_as_statistics(text in any::<String>()) {
            total_ticks(&text);
            process_ticks(&text);
            total_ticks(&format!("cpu  {text}"));
            idle_ticks(&format!("cpu  {text}"));
            process_ticks(&format!("1 (x) {text}"));
        }
    }
}
