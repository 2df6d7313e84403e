//! Waits as a part of the JSON document. Writes no file.

use super::sums::{Account, Cause, Device, Sum, Sums};
use super::{Kind, Unrecorded, Waits};
use crate::recording::Recording;
use headstart::host::json_path::JsonPath;
use headstart::host::names;
use headstart_sys::calls;
use serde::Serialize;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// What threads waited for.
#[derive(Serialize, Debug)]
pub struct WaitsDocument {
    /// The first thread of the process.
    main_thread: AccountRow,
    all_threads: AccountRow,
    threads: Vec<ThreadRow>,
    causes: Vec<CauseRow>,
    devices: Vec<DeviceRow>,
    /// What the end of the process depended on.
    path: PathRow,
    unrecorded: UnrecordedRow,
}

/// Its parts are `total_ns`.
#[derive(Serialize, Debug)]
struct AccountRow {
    total_ns: u64,
    cpu_user_ns: u64,
    cpu_calls_ns: u64,
    cpu_faults_ns: u64,
    /// By kind, with the run queue and what is unexplained.
    waits: BTreeMap<&'static str, Sum>,
    waits_not_kept_ns: u64,
}

#[derive(Serialize, Debug)]
struct ThreadRow {
    pid: i32,
    tid: i32,
    name: String,
    #[serde(flatten)]
    account: AccountRow,
}

#[derive(Serialize, Debug)]
struct CauseRow {
    #[serde(flatten)]
    name: CauseName,
    main_thread: Sum,
    all_threads: Sum,
}

#[derive(Serialize, Debug)]
struct CauseName {
    kind: &'static str,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    file: Option<JsonPath>,
    /// For what is no file, and system calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
}

/// CPU time and causes are `total_ns`.
#[derive(Serialize, Debug)]
struct PathRow {
    total_ns: u64,
    in_other_threads_ns: u64,
    cpu: Vec<ProgramRow>,
    causes: Vec<PathCauseRow>,
}

#[derive(Serialize, Debug)]
struct ProgramRow {
    program: String,
    time_ns: u64,
}

#[derive(Serialize, Debug)]
struct PathCauseRow {
    #[serde(flatten)]
    name: CauseName,
    #[serde(flatten)]
    sum: Sum,
}

#[derive(Serialize, Debug)]
struct DeviceRow {
    device: String,
    mean_depth: f64,
    #[serde(flatten)]
    row: Device,
}

#[derive(Serialize, Debug)]
struct UnrecordedRow {
    calls_32_bit: u64,
    ends_of_calls: u64,
    ends_of_requests: u64,
    waits_not_kept: u64,
}

impl AccountRow {
    fn new(account: &Account) -> Self {
        Self {
            total_ns: account.total_ns(),
            cpu_user_ns: account.user_ns,
            cpu_calls_ns: account.calls_ns,
            cpu_faults_ns: account.faults_ns,
            waits: account.waits.iter().map(|(kind, sum)| (kind.name(), *sum)).collect(),
            waits_not_kept_ns: account.unkept_ns,
        }
    }
}

/// What a cause is of: the path of a file, or another name; neither if that is not known.
pub fn name_of(recording: &Recording, waits: &Waits, cause: &Cause) -> (Option<Vec<u8>>, String) {
    match cause.kind {
        Kind::Call => {
            let number = cause.call.map(|call| match calls::name(call) {
                Some(name) => name.to_owned(),
                None => format!("call {call}"),
            });
            return (None, number.unwrap_or_default());
        }
        Kind::RunQueue => {
            let runner = cause.runner.and_then(|at| waits.runners.get(at as usize));
            let name = |tid, name| format!("{} ({tid})", names::name(recording.name(name)));
            return (None, runner.map_or_else(String::new, |who| name(who.tid, who.name)));
        }
        _ => {}
    }
    let Some(file) = cause.file.and_then(|at| waits.files.get(at as usize)) else {
        return (None, String::new());
    };
    match (file.name.map(|name| recording.name(name)), file.id) {
        (Some(path @ [b'/', ..]), _) => (Some(path.to_vec()), String::new()),
        (Some(name), _) => (None, names::name(name)),
        (None, Some(id)) => (None, format!("inode {} of {}", id.ino, id.dev)),
        (None, None) => (None, String::new()),
    }
}

impl WaitsDocument {
    /// That of a recording.
    pub fn new(recording: &Recording, waits: &Waits, sums: &Sums) -> Self {
        let thread = |(number, account): &(u32, Account)| {
            let thread = recording.threads.get(*number as usize)?;
            let process = recording.processes.get(thread.process as usize)?;
            Some(ThreadRow {
                pid: process.pid,
                tid: thread.tid,
                name: names::name(recording.name(thread.name)),
                account: AccountRow::new(account),
            })
        };
        let named = |cause: &Cause| {
            let (file, name) = name_of(recording, waits, cause);
            CauseName {
                kind: cause.kind.name(),
                file: file.map(|path| Path::new(OsStr::from_bytes(&path)).into()),
                name: (!name.is_empty()).then_some(name),
            }
        };
        let cause = |(cause, main, all): &(Cause, Sum, Sum)| CauseRow {
            name: named(cause),
            main_thread: *main,
            all_threads: *all,
        };
        let path = &sums.path;
        let program = |(name, time_ns): &(u32, u64)| ProgramRow {
            program: names::name(recording.name(*name)),
            time_ns: *time_ns,
        };
        let of_path = |(cause, sum): &(Cause, Sum)| PathCauseRow { name: named(cause), sum: *sum };
        let Unrecorded { calls_32_bit, call_ends, completions, waits: kept } = waits.unrecorded;
        Self {
            main_thread: AccountRow::new(&sums.main),
            all_threads: AccountRow::new(&sums.all),
            threads: sums.threads.iter().filter_map(thread).collect(),
            causes: sums.causes.iter().map(cause).collect(),
            devices: sums
                .devices
                .iter()
                .map(|(device, row)| DeviceRow {
                    device: device.to_string(),
                    mean_depth: (row.mean_depth() * 100.0).round() / 100.0,
                    row: *row,
                })
                .collect(),
            path: PathRow {
                total_ns: path.total_ns,
                in_other_threads_ns: path.elsewhere_ns,
                cpu: path.cpu.iter().map(program).collect(),
                causes: path.causes.iter().map(of_path).collect(),
            },
            unrecorded: UnrecordedRow {
                calls_32_bit,
                ends_of_calls: call_ends,
                ends_of_requests: completions,
                waits_not_kept: kept,
            },
        }
    }
}
