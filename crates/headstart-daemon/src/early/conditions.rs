//! Whether the machine has power, memory and time for what nobody waits for. Pure; `service/machine`
//! reads what the kernel says.

/// The part of the available memory that may be filled.
const OF_AVAILABLE: u64 = 4;

/// The machine at a moment.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Conditions {
    /// Whether it runs on battery.
    pub on_battery: bool,
    /// Bytes of memory that are available without swapping: most of them hold something.
    pub available: u64,
    /// Bytes that can be filled before the kernel reclaims anything.
    pub spare: u64,
    /// Whether a task has waited for memory lately.
    pub stalled: bool,
}

impl Conditions {
    /// How many bytes may be read. Nothing is ever evicted for them.
    pub fn may_read(&self) -> u64 {
        if self.on_battery || self.stalled {
            return 0;
        }
        self.spare.min(self.available / OF_AVAILABLE)
    }
}

/// Whether the machine is idle: the load of the last minute, by /proc/loadavg (proc(5)), is below so
/// many percent of its CPUs.
pub fn is_idle(loadavg: &str, cpus: usize, percent: u64) -> bool {
    let load = loadavg.split_ascii_whitespace().next().and_then(|load| load.parse::<f64>().ok());
    load.is_some_and(|load| load * 100.0 < cpus as f64 * percent as f64)
}

/// What /sys/class/power_supply says of a supply
/// (`Documentation/ABI/testing/sysfs-class-power`).
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Supply {
    /// `type`: `Mains`, `USB`, `Battery` and others.
    pub kind: String,
    /// `scope`: `Device` for that of a mouse.
    pub scope: String,
    /// `online` of what is no battery.
    pub online: String,
    /// `status` of a battery.
    pub status: String,
}

/// Whether a machine with these supplies runs on battery: one of its batteries is discharged, and
/// nothing else is online.
pub fn on_battery(supplies: &[Supply]) -> bool {
    let mut own = supplies.iter().filter(|supply| supply.scope != "Device");
    let is_battery = |supply: &&Supply| supply.kind == "Battery";
    let is_online = own.clone().any(|supply| !is_battery(&supply) && supply.online == "1");
    !is_online && own.any(|supply| is_battery(&supply) && supply.status == "Discharging")
}

/// Bytes of free memory above the watermarks at which the kernel stops to reclaim, by /proc/meminfo and
/// /proc/zoneinfo (proc(5)); `None` where they can't be read.
pub fn spare(meminfo: &str, zoneinfo: &str, page_size: u64) -> Option<u64> {
    let free = meminfo.lines().find_map(|line| line.strip_prefix("MemFree:"))?;
    let free: u64 = free.trim().strip_suffix("kB")?.trim().parse().ok()?;
    let of_zone = |line: &str| line.trim().strip_prefix("high ")?.trim().parse::<u64>().ok();
    let mut zones = zoneinfo.lines().filter_map(of_zone).peekable();
    zones.peek()?;
    let high = zones.fold(0, u64::saturating_add);
    Some(free.saturating_mul(1024).saturating_sub(high.saturating_mul(page_size)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn supply(kind: &str, scope: &str, online: &str, status: &str) -> Supply {
        let [kind, scope, online, status] = [kind, scope, online, status].map(Into::into);
        Supply { kind, scope, online, status }
    }

    #[test]
    fn a_machine_is_on_battery_when_its_own_is_discharged_and_nothing_is_plugged_in() {
        let ac = |online| supply("Mains", "", online, "");
        let battery = |status| supply("Battery", "System", "", status);
        let mouse = supply("Battery", "Device", "", "Discharging");
        for (what, supplies, expected) in [
            ("a desktop", vec![], false),
            ("unplugged", vec![ac("0"), battery("Discharging")], true),
            ("plugged in", vec![ac("1"), battery("Charging")], false),
            ("plugged in, a weak supply", vec![ac("1"), battery("Discharging")], false),
            ("by USB", vec![supply("USB", "", "1", ""), battery("Full")], false),
            ("a mouse", vec![mouse], false),
            ("a tablet", vec![battery("Discharging")], true),
            ("two", vec![battery("Unknown"), battery("Discharging")], true),
        ] {
            assert_eq!(on_battery(&supplies), expected, "{what}");
        }
    }

    #[test]
    fn memory_is_spare_above_the_watermarks_of_all_zones() {
        let meminfo = "MemTotal: 9000 kB\nMemFree:  5000 kB\n";
        let zones = "Node 0, zone DMA\n  pages free 9\n  min 1\n  low 2\n  high 30\n pagesets\n  \
                     high:  378\nNode 0, zone Normal\n  high     40\n";
        assert_eq!(spare(meminfo, zones, 4096), Some((5000 - 70 * 4) * 1024));
        assert_eq!(spare("MemFree: 100 kB", zones, 4096), Some(0));
        for (meminfo, zones) in [("", zones), (meminfo, ""), ("MemFree: many kB", zones)] {
            assert_eq!(spare(meminfo, zones, 4096), None);
        }
    }

    #[test]
    fn a_machine_is_idle_while_its_load_is_a_small_part_of_its_cpus() {
        for (loadavg, cpus, percent, expected) in [
            ("0.39 0.80 1.20 1/123 4567\n", 2, 20, true),
            ("0.40 0.00 0.00 1/123 4567\n", 2, 20, false),
            ("0.40 0.00 0.00 1/123 4567\n", 4, 20, true),
            ("", 2, 20, false),
            ("much", 2, 20, false),
        ] {
            assert_eq!(is_idle(loadavg, cpus, percent), expected, "{loadavg}");
        }
    }

    proptest! {
        #[test]
        fn never_more_is_read_than_is_spare_or_a_quarter_of_what_is_available(
            on_battery: bool, stalled: bool, available: u64, spare: u64
        ) {
            let conditions = Conditions { on_battery, stalled, available, spare };
            let may = conditions.may_read();
            prop_assert!(may <= spare && may <= available / 4);
            prop_assert!(may == 0 || !(on_battery || stalled));
        }

        #[test]
        fn any_text_of_the_kernel_is_taken(meminfo in "\\PC*", zones in "\\PC*") {
            let _ = spare(&meminfo, &zones, 4096);
        }
    }
}
