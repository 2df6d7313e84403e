//! From packs to a running replay: device model, read strategy, plan, engine. The only place that
//! combines these, for every kind of launch; the [`Purpose`] says what differs.

use super::policy::Purpose;
use crate::host::mounts::Mounts;
use crate::pack::Pack;
use crate::pack::store::silent::{ServerCall, Silent};
use crate::replay::engine::Replay;
use crate::replay::frequency::Choice;
use crate::replay::list::Entry;
use crate::replay::models::Models;
use crate::replay::plan::Plan;
use crate::replay::strategy::ReadStrategy;
use std::io;
use std::path::PathBuf;
use std::time::Instant;

/// The read strategy of a pack on this machine.
pub fn strategy_here(pack: &Pack, mounts: &Mounts, purpose: &Purpose) -> ReadStrategy {
    purpose.strategy(Models::here().of_pack(pack, mounts), pack)
}

/// The plan of packs, with the read strategy of the first.
pub fn plan_here(packs: &[Pack], mounts: &Mounts, purpose: &Purpose) -> Plan {
    let strategy = packs.first().map(|pack| strategy_here(pack, mounts, purpose));
    plan(packs, strategy.unwrap_or_default(), purpose)
}

/// The plan of packs with this read strategy.
pub fn plan(packs: &[Pack], strategy: ReadStrategy, purpose: &Purpose) -> Plan {
    Plan::of_packs(packs, purpose.frequency(), purpose.limits(), strategy)
}

/// The plan of the chosen ranges of one pack.
pub fn plan_chosen(
    pack: &Pack,
    choice: &Choice,
    strategy: ReadStrategy,
    purpose: &Purpose,
) -> Plan {
    Plan::of_pack(pack, choice, purpose.limits(), strategy)
}

/// The plan of a list. A whole file is as long as it is now, which may wait for its server: `call`
/// is always to that of the file at hand. A server that does not answer is not asked.
pub fn plan_of_list(
    entries: &[Entry],
    purpose: &Purpose,
    mounts: &Mounts,
    call: &ServerCall,
) -> Plan {
    let silent = Silent::here();
    let size = |path: &PathBuf| {
        let servers = mounts.table().map(|table| table.servers_at(path)).unwrap_or_default();
        call.goes_to(&servers);
        let meta = (!silent.any(&servers)).then(|| path.metadata())?;
        Some(meta.ok()?.len())
    };
    let strategy = purpose.bounds().apply(ReadStrategy::default());
    Plan::of_list(entries, size, purpose.limits(), strategy)
}

/// Starts the replay of a plan. Times count from `began`, when the process began.
///
/// # Errors
/// No thread can be started.
pub fn start(plan: Plan, purpose: &Purpose, mounts: Mounts, began: Instant) -> io::Result<Replay> {
    Replay::start(plan, purpose.options(), mounts, began)
}
