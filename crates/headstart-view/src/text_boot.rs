//! A recorded boot as text.

use crate::units::{grouped, millis};
use headstart::boot::analysis::Analysis;
use headstart::host::names;

/// One line about it.
pub fn title(boot: &Analysis) -> String {
    let kernel = names::text(boot.boot.kernel.split(' ').next().unwrap_or_default());
    let kernel = if kernel.is_empty() { String::new() } else { format!(", Linux {kernel}") };
    let target = boot
        .boot
        .default_target_ms
        .map_or_else(String::new, |ms| format!(": default target after {:.2} s", ms / 1000.0));
    format!("Boot {}{kernel}{target}", boot.number)
}

/// What there is to say of it, in one line.
pub fn summary(boot: &Analysis) -> String {
    let mib = |bytes: u64| format!("{} MiB", millis(bytes as f64 / f64::from(1 << 20)));
    let Some(timeline) = &boot.timeline else {
        return "what came into memory and the units of systemd were not kept of it".into();
    };
    let sums = boot.sums;
    let mut parts = vec![match boot.boot.replayed {
        true => {
            format!(
                "{} prefetched, {} of it wasted",
                mib(sums.prefetched_bytes),
                mib(sums.wasted_bytes)
            )
        }
        false => "nothing was prefetched".into(),
    }];
    parts.push(format!("{} brought in by the boot itself", mib(sums.demand_bytes)));
    if boot.boot.replayed {
        parts.push(format!("{} late, {} missing", mib(sums.late_bytes), mib(sums.missing_bytes)));
    }
    parts.push(format!("{:.2} s idle", boot.idle_us() as f64 / 1e6));
    if timeline.recorded_from_us > 0 {
        parts.push(format!("recorded from {:.2} s on", timeline.recorded_from_us as f64 / 1e6));
    }
    if boot.boot.lost_events > 0 {
        parts.push(format!("{} events lost", grouped(boot.boot.lost_events as f64, 0)));
    }
    parts.join("; ")
}
