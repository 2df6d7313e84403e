//! Answers: JSON documents, with what the user may see of the state. Pure.

use super::request::may_see;
use crate::counters::Counters;
use crate::programs::table::Table;
use crate::programs::{Id, Program};
use crate::week::Week;
use serde::{Deserialize, Serialize};

/// The form of all answers.
pub const SCHEMA: &str = "headstart/daemon/1";
/// Programs in a list, at most.
const MOST_LISTED: usize = 100;

/// An answer.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Answer {
    /// [`SCHEMA`].
    pub schema: String,
    /// What went wrong, if something did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What was done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub done: Option<String>,
    /// What the service does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
    /// The last starts, the latest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub starts: Vec<Start>,
    /// Programs, those that gained most first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub programs: Vec<Listed>,
    /// The figures for Prometheus.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics: Option<String>,
}

/// What the service does.
#[derive(Clone, Default, PartialEq, Debug, Serialize, Deserialize)]
pub struct Status {
    /// Its process.
    pub pid: u32,
    /// For how long it runs, in seconds.
    pub uptime_s: u64,
    /// How it learns of execs.
    pub source: String,
    /// For how long it is paused, in seconds; none if it is not, 0 if without an end.
    pub paused_s: Option<u64>,
    /// Why nothing is learned, if so.
    pub not_learning: Option<String>,
    /// Programs that are known to start slowly.
    pub programs: usize,
    /// Starts that are being recorded, or were and are not learned yet.
    pub recording: usize,
    /// Bytes that replays in flight may read.
    pub in_flight_bytes: u64,
    /// Counts since it began.
    pub counters: Counters,
    /// Sums of this week.
    pub week: Week,
}

/// How a start was.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// It waited for disks, and was not known.
    Cold,
    /// Its files were resident.
    Hot,
    /// It was prefetched.
    Prefetched,
    /// It was recorded, and nothing was prefetched.
    Recorded,
    /// Prefetching gains nothing for it here.
    Useless,
}

/// A start.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Start {
    /// The program's name.
    pub program: String,
    /// The user.
    pub uid: u32,
    /// The process.
    pub pid: u32,
    /// When it was, in seconds of Unix time.
    pub at: u64,
    /// How it was.
    pub kind: Kind,
    /// Time that it waited for disks, as estimated, if it was watched; in µs.
    pub waited_us: Option<u64>,
    /// Time that was saved, as estimated, in µs.
    pub saved_us: u64,
    /// Bytes that were prefetched.
    pub read_bytes: u64,
    /// Bytes that were prefetched and not touched, if that was measured.
    pub wasted_bytes: Option<u64>,
    /// Whether it was learned.
    pub learned: bool,
    /// Time from the exec to the first request, in µs.
    pub first_request_us: Option<u64>,
    /// How many pages were touched, ready, late, missing; if that was measured.
    pub pages: Option<[u64; 4]>,
}

/// A program in a list.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Listed {
    /// Which it is.
    #[serde(flatten)]
    pub id: Id,
    /// What is known of it.
    #[serde(flatten)]
    pub program: Program,
}

impl Default for Answer {
    fn default() -> Self {
        Self {
            schema: SCHEMA.into(),
            error: None,
            done: None,
            status: None,
            starts: Vec::new(),
            programs: Vec::new(),
            metrics: None,
        }
    }
}

impl Answer {
    /// That something went wrong.
    pub fn error(what: impl ToString) -> Self {
        Self { error: Some(what.to_string()), ..Self::default() }
    }

    /// That something was done.
    pub fn done(what: impl Into<String>) -> Self {
        Self { done: Some(what.into()), ..Self::default() }
    }

    /// The last starts and the programs, as far as this user may see them.
    pub fn top<'a>(starts: impl Iterator<Item = &'a Start>, table: &Table, uid: u32) -> Self {
        let starts = starts.filter(|start| may_see(uid, start.uid)).cloned().collect();
        let seen =
            table.iter().filter(|(id, program)| may_see(uid, id.uid) && program.is_remembered());
        let mut programs: Vec<_> =
            seen.map(|(id, program)| Listed { id: id.clone(), program: program.clone() }).collect();
        programs.sort_by_key(|listed| std::cmp::Reverse(listed.program.saved_us));
        programs.truncate(MOST_LISTED);
        Self { starts, programs, ..Self::default() }
    }

    /// Its line, with the line end.
    pub fn line(&self) -> Vec<u8> {
        // Strings and numbers have a form.
        let mut line = serde_json::to_vec(self).unwrap_or_default();
        line.push(b'\n');
        line
    }
}

/// The one program that a user means: by its name, its executable, or its file name.
///
/// # Errors
/// What to do if there is none or several.
pub fn find(table: &Table, wanted: &str, uid: u32) -> Result<Id, String> {
    let is_it = |(id, program): &(&Id, &Program)| {
        may_see(uid, id.uid)
            && (id.file_name == wanted || program.name == wanted || program.executable == wanted)
    };
    let mut found = table.iter().filter(is_it);
    match (found.next(), found.next()) {
        (Some((id, _)), None) => Ok(id.clone()),
        // The user's own comes before those of others.
        (Some((id, _)), Some(_)) if id.file_name == wanted && id.uid == uid => Ok(id.clone()),
        (Some((first, _)), Some((second, _))) => Err(format!(
            "several programs are called so: name one by its pack, such as {} or {}",
            first.file_name, second.file_name
        )),
        (None, _) => Err("no program of this name was seen; see `headstart daemon top`".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let program = |(uid, file, name, saved_us)| {
            let id = Id { uid, file_name: format!("{file}.pack") };
            let executable = format!("/usr/bin/{name}");
            let name = String::from(name);
            (id, Program { name, executable, saved_us, cold_starts: 1, ..Program::default() })
        };
        let list: [(u32, &str, &str, u64); 4] = [
            (0, "git-1", "git", 5),
            (7, "git-1", "git", 6),
            (7, "sh-1", "sh", 9),
            (7, "sh-2", "sh", 7),
        ];
        list.into_iter().map(program).collect()
    }

    #[test]
    fn a_program_is_found_by_what_names_only_it_among_those_that_the_user_may_see() {
        let table = table();
        for (wanted, uid, expected) in [
            ("git", 7, Ok("git-1.pack")),
            ("/usr/bin/git", 7, Ok("git-1.pack")),
            ("git-1.pack", 0, Ok("git-1.pack")),
            ("git", 8, Err("no program")),
            ("git", 0, Err("several")),
            ("sh", 7, Err("sh-1.pack or sh-2.pack")),
            ("sh-2.pack", 7, Ok("sh-2.pack")),
            ("", 7, Err("no program")),
        ] {
            match (find(&table, wanted, uid), expected) {
                (Ok(id), Ok(name)) => assert_eq!(id.file_name, name, "{wanted}"),
                (Err(error), Err(why)) => assert!(error.contains(why), "{wanted}: {error}"),
                (found, _) => panic!("{wanted}: {found:?}"),
            }
        }
    }

    #[test]
    fn a_list_has_what_the_user_may_see_with_the_largest_gain_first() {
        let start = |uid| Start {
            program: "p".into(),
            uid,
            pid: 1,
            at: 2,
            kind: Kind::Hot,
            waited_us: None,
            saved_us: 0,
            read_bytes: 0,
            wasted_bytes: None,
            learned: false,
            first_request_us: None,
            pages: None,
        };
        let starts = [start(0), start(7)];
        for (uid, starts_seen, saved) in
            [(0, 2, vec![9, 7, 6, 5]), (7, 1, vec![9, 7, 6]), (8, 0, vec![])]
        {
            let answer = Answer::top(starts.iter(), &table(), uid);
            assert_eq!(answer.starts.len(), starts_seen, "{uid}");
            let of = |listed: &Listed| listed.program.saved_us;
            assert_eq!(answer.programs.iter().map(of).collect::<Vec<_>>(), saved, "{uid}");
            let line = answer.line();
            assert_eq!(serde_json::from_slice::<Answer>(&line).unwrap(), answer);
        }
    }
}
