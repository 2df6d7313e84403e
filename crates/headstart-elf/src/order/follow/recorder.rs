//! What is known of files over several runs: their functions, and the first calls of each run.

use super::layout::{self, Module};
use crate::order::code::{Code, Point};
use crate::order::document::{Document, FileOrder, SCHEMA};
use crate::order::read;
use headstart::host::contents;
use headstart::host::id::InodeId;
use headstart::host::proc::status_text;
use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Files and runs.
#[derive(Default, Debug)]
pub struct Recorder {
    files: Vec<File>,
    by_id: HashMap<InodeId, usize>,
    /// Programs that are not in `files`.
    skipped: Vec<Skipped>,
    /// Whether a program was executed in this run.
    is_begun: bool,
}

/// A file that some process has mapped.
#[derive(Debug)]
struct File {
    path: PathBuf,
    code: Code,
    /// Why no functions of it are known, or some calls of it may be missing.
    problem: Option<String>,
    /// By point.
    is_called: Vec<bool>,
    /// Of this run, in order.
    called: Vec<u32>,
    /// Of the runs before.
    runs: Vec<Vec<u32>>,
}

/// A file that is not in the result, or not with all of its calls.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Skipped {
    /// Where it is.
    pub path: PathBuf,
    /// Why.
    pub why: String,
}

impl Recorder {
    /// Whether no program was executed yet in this run; from now on there was one.
    pub(super) fn is_new_run(&mut self) -> bool {
        !std::mem::replace(&mut self.is_begun, true)
    }

    /// The kernel has taken privileges of a program.
    pub(super) fn without_privileges(&mut self, path: PathBuf) {
        let why = "it ran without its own privileges (set-user-ID or capabilities), as another \
                   user than root traced it";
        self.without_breakpoints(path, why.into());
    }

    pub(super) fn unwritable(&mut self, file: usize, error: &io::Error) {
        if let Some(file) = self.files.get_mut(file) {
            let why = format!("breakpoints can't be set or cleared in its memory: {error}");
            file.problem.get_or_insert(why);
        }
    }

    /// Calls of a program are missing, for the sake of its own signals.
    pub(super) fn uses_traps(&mut self, process: i32, why: &str) {
        let Ok(path) = fs::read_link(format!("/proc/{process}/exe")) else { return };
        match self.files.iter_mut().find(|file| file.path == path) {
            Some(file) => _ = file.problem.get_or_insert(why.to_owned()),
            None => self.without_breakpoints(path, why.to_owned()),
        }
    }

    fn without_breakpoints(&mut self, path: PathBuf, why: String) {
        let skipped = Skipped { path, why };
        if !self.skipped.contains(&skipped) {
            self.skipped.push(skipped);
        }
    }

    pub(super) fn code(&self, file: usize) -> Option<&Code> {
        self.files.get(file).map(|file| &file.code)
    }

    pub(super) fn point(&self, file: usize, point: usize) -> Option<&Point> {
        self.code(file)?.points.get(point)
    }

    /// A function was called. Only the first call counts.
    pub(super) fn called(&mut self, file: usize, point: usize) {
        let Some(file) = self.files.get_mut(file) else { return };
        if let (Some(is_called @ false), Ok(index)) =
            (file.is_called.get_mut(point), u32::try_from(point))
        {
            *is_called = true;
            file.called.push(index);
        }
    }

    /// Ends a run.
    pub fn end_run(&mut self) {
        self.is_begun = false;
        for file in &mut self.files {
            file.runs.push(std::mem::take(&mut file.called));
            file.is_called.fill(false);
        }
    }

    /// The modules of a process: of its program, and with `libraries` of all files.
    pub(super) fn modules(&mut self, process: i32, libraries: bool) -> Vec<Module> {
        let Ok(maps) = contents::bytes(format!("/proc/{process}/maps")) else { return Vec::new() };
        let exe = PathBuf::from(format!("/proc/{process}/exe"));
        let name = fs::read_link(&exe).unwrap_or_default();
        let ino = fs::metadata(&exe).map(|meta| meta.ino()).ok();
        layout::modules(&maps, |id, path| {
            let path = Path::new(OsStr::from_bytes(path));
            // Overlays can show another inode number in maps.
            if Some(id.ino) == ino || path == name {
                return Some(self.file(id, path, &exe));
            }
            let mut inside = OsString::from(format!("/proc/{process}/root"));
            inside.push(path);
            libraries.then(|| self.file(id, path, Path::new(&inside)))
        })
    }

    /// The number of a file, which is read if it is not known yet.
    fn file(&mut self, id: InodeId, path: &Path, readable: &Path) -> usize {
        if let Some(file) = self.by_id.get(&id) {
            return *file;
        }
        let (code, problem) = match read::code(readable, path) {
            Ok(code) => (code, None),
            Err(error) => (Code::default(), Some(error.to_string())),
        };
        let is_called = vec![false; code.points.len()];
        // It called nothing in the runs before.
        let runs = self.files.first().map_or(0, |file| file.runs.len());
        let runs = vec![Vec::new(); runs];
        let path = path.to_owned();
        self.files.push(File { path, code, problem, is_called, called: Vec::new(), runs });
        let number = self.files.len() - 1;
        self.by_id.insert(id, number);
        number
    }

    /// Files of which no functions are known, and programs that ran without their privileges.
    pub fn skipped(&self) -> Vec<Skipped> {
        let files = self.files.iter().filter_map(|file| {
            Some(Skipped { path: file.path.clone(), why: file.problem.clone()? })
        });
        files.chain(self.skipped.iter().cloned()).collect()
    }

    /// Whether no program was executed.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty() && self.skipped.is_empty()
    }

    /// What was recorded.
    pub fn document(&self, command: Vec<String>) -> Document {
        let files = self.files.iter().map(File::order).filter(|file| !file.functions.is_empty());
        Document { schema: SCHEMA.into(), command, files: files.collect() }
    }
}

impl File {
    fn order(&self) -> FileOrder {
        // Functions get the indices of their order in the file.
        let mut called: BTreeMap<u32, u32> =
            self.runs.iter().flatten().map(|point| (*point, 0)).collect();
        for (index, place) in (0..).zip(called.values_mut()) {
            *place = index;
        }
        let places = |points: &[u32]| -> Vec<u32> {
            points.iter().filter_map(|point| called.get(point).copied()).collect()
        };
        let point = |point: &u32| self.code.points.get(*point as usize);
        let mut initializers = places(&self.code.initializers);
        initializers.dedup();
        FileOrder {
            path: self.path.as_path().into(),
            build_id: self.code.build_id.clone(),
            functions_in_file: self.code.points.len() as u64,
            text_address: self.code.text_address,
            functions: called.keys().filter_map(point).map(|p| p.function.clone()).collect(),
            runs: self.runs.iter().map(|run| places(run)).collect(),
            initializers,
        }
    }
}

/// The program of a process that was executed without the privileges that its file gives it.
pub(super) fn lost_privileges(process: i32) -> Option<PathBuf> {
    /// `S_ISUID` and `S_ISGID` of inode(7); the latter counts with the group's right to execute.
    const SET_UID: u32 = 0o4000;
    const SET_GID: u32 = 0o2010;
    let exe = PathBuf::from(format!("/proc/{process}/exe"));
    let meta = fs::metadata(&exe).ok()?;
    let text = contents::bytes(format!("/proc/{process}/status")).ok()?;
    // Real, effective, saved, and that for files.
    let effective = |name| status_text(&text, name)?.split_whitespace().nth(1)?.parse::<u32>().ok();
    let (uid, gid) = (effective("Uid")?, effective("Gid")?);
    let capabilities = u64::from_str_radix(status_text(&text, "CapPrm")?, 16).ok()?;
    let has_capabilities =
        || rustix::fs::getxattr(&exe, "security.capability", &mut [0u8; 64][..]).is_ok();
    let mode = meta.mode();
    let is_lost = (mode & SET_UID != 0 && uid != meta.uid())
        || (mode & SET_GID == SET_GID && gid != meta.gid())
        || (capabilities == 0 && has_capabilities());
    is_lost.then(|| fs::read_link(&exe).unwrap_or(exe))
}
