//! What the tests of the command share: programs, packs, boots, terminals.

pub mod invocations;
pub mod managers;
pub mod packs;
pub mod process;
pub mod python;
pub mod scripted_boot;
pub mod small_root;
pub mod terminal;

/// The names of the trace instances that there are.
pub fn instances() -> Vec<String> {
    let entries = std::fs::read_dir("/sys/kernel/tracing/instances").into_iter().flatten();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}
