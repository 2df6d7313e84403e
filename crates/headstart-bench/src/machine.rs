//! What else affects the figures of a benchmark: clock frequencies, other load, the settings of the
//! disks. It is recorded with the result, with warnings that say what to do. It reads through a
//! function that the caller passes.

use headstart::host::cpus;
use headstart::host::reclaim::Switch;
use serde::Serialize;

/// A machine as it was while it measured.
#[derive(Clone, PartialEq, Serialize, Debug)]
pub struct Machine {
    /// Kernel release.
    pub kernel: String,
    /// The CPUs' name, where /proc/cpuinfo tells.
    pub cpu: Option<String>,
    /// How many there are.
    pub cpus: usize,
    /// Frequency governors in use; none where the kernel has none to choose.
    pub governors: Vec<String>,
    /// Whether the CPUs may exceed their nominal frequency.
    pub turbo: Option<bool>,
    /// Memory, in bytes.
    pub memory_bytes: Option<u64>,
    /// The load averages when measuring began (/proc/loadavg).
    pub load: Option<String>,
    /// What others took of the CPUs while it was measured.
    pub others: Option<Others>,
    /// What reclaims pages without memory pressure; the caller looks for it.
    pub proactive_reclaim: Vec<Switch>,
    /// The disks under the program's files.
    pub disks: Vec<Disk>,
}

/// CPU time that others took, in CPUs: 0.5 is half of one.
#[derive(Clone, Copy, PartialEq, Serialize, Debug)]
pub struct Others {
    /// Other processes, the kernel's own threads included.
    pub busy: f64,
    /// Other guests of the same host.
    pub stolen: f64,
}

/// The request queue of a disk.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Debug)]
pub struct Disk {
    /// Its name below `/sys/block`.
    pub name: String,
    /// The I/O scheduler in use.
    pub scheduler: Option<String>,
    /// The kernel's readahead, in KiB.
    pub readahead_kb: Option<u64>,
    /// The largest request, in KiB.
    pub request_kb: Option<u64>,
    /// How many requests it queues.
    pub queue: Option<u64>,
    /// What the kernel believes; most virtual disks say yes.
    pub rotational: Option<bool>,
}

/// Where the settings of frequencies are.
const NO_TURBO: &str = "/sys/devices/system/cpu/intel_pstate/no_turbo";
/// The same where another driver than Intel's is in use.
const BOOST: &str = "/sys/devices/system/cpu/cpufreq/boost";

/// The files with the CPUs' governors; one that is offline has none.
fn governor_files(read: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let most = cpus::count(&read(cpus::POSSIBLE).unwrap_or_default());
    (0..most)
        .map(|cpu| format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor"))
        .filter(|file| read(file).is_some())
        .collect()
}

/// The directory of a disk's queue; a partition has that of its disk.
fn queue_dir(disk: &str, read: impl Fn(&str) -> Option<String>) -> String {
    let own = format!("/sys/class/block/{disk}/queue");
    match read(&format!("{own}/nr_requests")) {
        Some(_) => own,
        None => format!("/sys/class/block/{disk}/../queue"),
    }
}

/// The scheduler in use, from `[mq-deadline] none`.
fn chosen(schedulers: &str) -> Option<&str> {
    let (_, rest) = schedulers.split_once('[')?;
    Some(rest.split_once(']')?.0)
}

impl Machine {
    /// Looks at the machine; `disks` by name.
    pub fn examine(disks: &[String], read: impl Fn(&str) -> Option<String>) -> Self {
        let stat = read("/proc/stat").unwrap_or_default();
        let is_cpu = |line: &&str| {
            line.strip_prefix("cpu").is_some_and(|n| n.starts_with(|c: char| c.is_ascii_digit()))
        };
        let cpus = stat.lines().filter(is_cpu).count();
        let mut governors: Vec<String> = governor_files(&read)
            .iter()
            .filter_map(|file| Some(read(file)?.trim().to_owned()))
            .collect();
        governors.sort();
        governors.dedup();
        let flag = |path: &str| Some(read(path)?.trim() != "0");
        let after_colon = |path: &str, key: &str| {
            let text = read(path)?;
            let line = text.lines().find(|line| line.starts_with(key))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        };
        let memory = after_colon("/proc/meminfo", "MemTotal");
        let kib = memory.and_then(|text| text.strip_suffix("kB")?.trim().parse::<u64>().ok());
        Self {
            kernel: read("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned(),
            cpu: after_colon("/proc/cpuinfo", "model name"),
            cpus,
            governors,
            turbo: flag(NO_TURBO).map(|no| !no).or_else(|| flag(BOOST)),
            memory_bytes: kib.map(|kib| kib << 10),
            load: read("/proc/loadavg").map(|text| text.trim().to_owned()),
            others: None,
            proactive_reclaim: Vec::new(),
            disks: disks.iter().map(|name| Disk::examine(name, &read)).collect(),
        }
    }

    /// What to know about it, and what to do.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        let slow: Vec<&str> =
            self.governors.iter().map(String::as_str).filter(|g| *g != "performance").collect();
        if !slow.is_empty() {
            warnings.push(format!(
                "The CPU frequency governor is {}: a CPU that waits for the disk clocks down, and \
                 a cold start pays for that too. Choose performance (cpupower frequency-set).",
                slow.join(" and ")
            ));
        }
        if self.turbo == Some(true) {
            warnings.push(
                "Turbo is on: how fast the CPU runs depends on how warm it is. Turn it off \
                 in /sys/devices/system/cpu while measuring."
                    .into(),
            );
        }
        for Switch { file, off } in &self.proactive_reclaim {
            warnings.push(format!(
                "DAMON's proactive reclaim is on: it also takes pages that were just read, so that single \
                 starts take longer. Turn it off while measuring: echo {off} > {}",
                file.display()
            ));
        }
        if let Some(Others { busy, stolen }) = self.others {
            let cpus = self.cpus.max(1) as f64;
            if busy > 0.1 * cpus {
                warnings.push(format!(
                    "Other work took {busy:.1} of {} CPUs meanwhile. Stop it and measure again; \
                     ratios of the same rounds bear it, times do not.",
                    self.cpus
                ));
            }
            if stolen > 0.02 * cpus {
                warnings.push(format!(
                    "The host gave {stolen:.1} of {} CPUs to other guests meanwhile. Measure more \
                     rounds, or on a machine of its own.",
                    self.cpus
                ));
            }
        }
        warnings
    }
}

impl Disk {
    fn examine(name: &str, read: impl Fn(&str) -> Option<String>) -> Self {
        let queue = queue_dir(name, &read);
        let text = |file: &str| Some(read(&format!("{queue}/{file}"))?.trim().to_owned());
        let number = |file: &str| text(file)?.parse().ok();
        Self {
            name: name.to_owned(),
            scheduler: text("scheduler").map(|t| chosen(&t).unwrap_or(&t).to_owned()),
            readahead_kb: number("read_ahead_kb"),
            request_kb: number("max_sectors_kb"),
            queue: number("nr_requests"),
            rotational: number("rotational").map(|flag| flag != 0),
        }
    }
}

/// CPU time since the machine started, in clock ticks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ticks {
    busy: u64,
    stolen: u64,
    /// Of `busy`, what this process and the children it waited for took.
    own: u64,
}

impl Ticks {
    /// From /proc/stat and /proc/self/stat (proc(5)).
    pub fn parse(stat: &str, own: &[u8]) -> Option<Self> {
        let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let n: Vec<u64> = line.split_ascii_whitespace().map_while(|n| n.parse().ok()).collect();
        let &[user, nice, system, _idle, _iowait, irq, softirq, stolen, ..] = &n[..] else {
            return None;
        };
        // The name in brackets may hold any byte.
        let after_name = own.iter().rposition(|b| *b == b')')? + 1;
        let own = std::str::from_utf8(&own[after_name..]).ok()?;
        // utime, stime, cutime and cstime are fields 14 to 17.
        let own: Vec<u64> =
            own.split_ascii_whitespace().skip(11).map_while(|n| n.parse().ok()).take(4).collect();
        let sum = |ticks: &[u64]| ticks.iter().fold(0u64, |sum, n| sum.saturating_add(*n));
        let busy = sum(&[user, nice, system, irq, softirq]);
        (own.len() == 4).then(|| Self { busy, stolen, own: sum(&own) })
    }

    /// What others took since `before`, `seconds` ago.
    pub fn others_since(self, before: Self, seconds: f64, ticks_per_second: u64) -> Others {
        let cpus =
            |now: u64, was: u64| now.saturating_sub(was) as f64 / ticks_per_second as f64 / seconds;
        let busy = cpus(self.busy, before.busy) - cpus(self.own, before.own);
        // The counters are rounded, and read one after the other.
        Others { busy: busy.max(0.0), stolen: cpus(self.stolen, before.stolen) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(path: &str) -> Option<String> {
        let text = match path {
            "/proc/stat" => "cpu  1 2 3\ncpu0 1\ncpu2 1\ncpufreq 3\nintr 1\n",
            // The second is offline.
            cpus::POSSIBLE => "0-3\n",
            "/proc/sys/kernel/osrelease" => "6.1.0\n",
            "/proc/cpuinfo" => "processor\t: 0\nmodel name\t: A CPU: fast\n",
            "/proc/meminfo" => "MemTotal:       1024 kB\nMemFree: 1 kB\n",
            "/proc/loadavg" => "0.10 0.20 0.30 1/2 3\n",
            "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor" => "powersave\n",
            "/sys/devices/system/cpu/cpu2/cpufreq/scaling_governor" => "performance\n",
            NO_TURBO => "0\n",
            "/sys/class/block/vda/queue/nr_requests" => "64\n",
            "/sys/class/block/vda/queue/scheduler" => "none [mq-deadline] kyber\n",
            "/sys/class/block/vda1/../queue/scheduler" => "none\n",
            "/sys/class/block/vda1/../queue/rotational" => "1\n",
            _ => return None,
        };
        Some(text.to_owned())
    }

    #[test]
    fn a_machine_is_described_by_what_it_tells() {
        let found = Machine::examine(&["vda".into(), "vda1".into()], machine);
        assert_eq!((found.cpus, found.cpu.as_deref()), (2, Some("A CPU: fast")));
        assert_eq!(found.governors, ["performance", "powersave"]);
        assert_eq!((found.turbo, found.memory_bytes), (Some(true), Some(1 << 20)));
        assert_eq!(found.disks[0].scheduler.as_deref(), Some("mq-deadline"));
        assert_eq!(found.disks[0].queue, Some(64));
        assert_eq!(found.disks[1].scheduler.as_deref(), Some("none"));
        assert_eq!(found.disks[1].rotational, Some(true));
        let silent = Machine::examine(&["x".into()], |_| None);
        assert_eq!((silent.cpus, silent.turbo, silent.warnings().len()), (0, None, 0));
        assert_eq!(silent.disks, [Disk { name: "x".into(), ..Disk::default() }]);
    }

    #[test]
    fn warnings_say_what_to_do() {
        let mut found = Machine::examine(&[], machine);
        found.others = Some(Others { busy: 0.9, stolen: 0.3 });
        found.proactive_reclaim = vec![Switch { file: "/sys/x/state".into(), off: "off" }];
        let warnings = found.warnings();
        for (warning, (what, cure)) in warnings.iter().zip([
            ("is powersave:", "cpupower frequency-set"),
            ("Turbo is on", "/sys/devices/system/cpu"),
            ("DAMON's proactive reclaim", "echo off > /sys/x/state"),
            ("took 0.9 of 2 CPUs", "Stop it"),
            ("gave 0.3 of 2 CPUs", "more rounds"),
        ]) {
            assert!(warning.contains(what) && warning.contains(cure), "{warning}");
        }
        assert_eq!(warnings.len(), 5);
        found.others = Some(Others { busy: 0.1, stolen: 0.0 });
        assert_eq!(found.warnings().len(), 3);
    }

    #[test]
    fn what_others_took_is_what_was_busy_without_us() {
        let own = |ticks: u64| format!("7 (a) b) S 1 1 1 0 -1 0 0 0 0 0 {ticks} 0 10 0 20 0");
        let at = |busy: u64, stolen: u64, ours: u64| {
            let stat = format!("cpu  {busy} 1 1 500 5 1 1 {stolen} 0 0\ncpu0 1\n");
            Ticks::parse(&stat, own(ours).as_bytes()).unwrap()
        };
        let others = at(500, 30, 150).others_since(at(100, 10, 50), 2.0, 100);
        assert!((others.busy - 1.5).abs() < 1e-9 && (others.stolen - 0.1).abs() < 1e-9);
        let rounded = at(100, 10, 51).others_since(at(100, 10, 50), 2.0, 100);
        assert_eq!(rounded.busy, 0.0);
        for (stat, own) in [("", "7 (a) S"), ("cpu  1 2\n", "7 (a) S"), ("cpu 1 1 1 1 1 1 1 1", "")]
        {
            assert_eq!(Ticks::parse(stat, own.as_bytes()), None);
        }
        let most = at(u64::MAX, u64::MAX, u64::MAX);
        assert_eq!(most.others_since(most, 1.0, 100), Others { busy: 0.0, stolen: 0.0 });
    }
}
