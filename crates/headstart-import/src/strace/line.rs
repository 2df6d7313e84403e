//! A line of a log: thread, time, and the call or a part of one.

use crate::clock::DayClock;
use std::borrow::Cow;
use std::collections::HashMap;

const SECOND_NS: u64 = 1_000_000_000;

/// A time as it stands in a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Time {
    /// In ns of a clock, which may be one of a day (`-t`, `-tt`).
    At(u64),
    /// In ns since the line before (`-r`).
    After(u64),
}

/// What a line holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Part<'a> {
    /// A call with its result.
    Whole(&'a [u8]),
    /// The start of a call that another thread's line interrupted.
    Unfinished(&'a [u8]),
    /// The rest of one.
    Resumed(&'a [u8]),
    /// The thread has ended.
    End,
    /// The thread has become another of its process, which executes a program.
    Becomes(i32),
    /// A signal, or what strace itself says.
    Note,
    /// Nothing of that.
    Other,
}

/// A line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Line<'a> {
    /// The thread; 0 in the log of a single one.
    pub tid: i32,
    pub time: Option<Time>,
    pub part: Part<'a>,
}

/// A call on one line.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Whole<'a> {
    pub tid: i32,
    pub text: Cow<'a, [u8]>,
}

/// What a line holds.
pub(super) fn parse(text: &[u8]) -> Line<'_> {
    let (tid, rest) = thread(text);
    let (time, rest) = time(rest);
    Line { tid, time, part: part(rest) }
}

/// `[pid 12] …` on a terminal, `12 …` in a file.
fn thread(text: &[u8]) -> (i32, &[u8]) {
    let text = text.trim_ascii_start();
    let number = |digits: &[u8]| std::str::from_utf8(digits).ok()?.parse().ok();
    if let Some(rest) = text.strip_prefix(b"[pid") {
        let rest = rest.trim_ascii_start();
        let end = digits(rest);
        if let (Some(tid), Some(rest)) = (number(&rest[..end]), rest[end..].strip_prefix(b"]")) {
            return (tid, rest.trim_ascii_start());
        }
    }
    let end = digits(text);
    match number(&text[..end]) {
        Some(tid) if text.get(end) == Some(&b' ') => (tid, text[end..].trim_ascii_start()),
        _ => (0, text),
    }
}

fn digits(text: &[u8]) -> usize {
    text.iter().take_while(|byte| byte.is_ascii_digit()).count()
}

/// `12:34:56`, `12:34:56.789012`, `1700000000.123456`, `0.000123`, and `(+ 0.000123)` behind one.
fn time(text: &[u8]) -> (Option<Time>, &[u8]) {
    let end = text.iter().position(|byte| *byte == b' ').unwrap_or(text.len());
    let (word, rest) = (&text[..end], text[end..].trim_ascii_start());
    let Some(time) = std::str::from_utf8(word).ok().and_then(time_word) else {
        // Behind the number of a thread, `-r` alone has blanks before its time.
        return (None, text);
    };
    let behind = rest.strip_prefix(b"(+").and_then(|more| {
        let end = more.iter().position(|byte| *byte == b')')?;
        Some(more[end + 1..].trim_ascii_start())
    });
    (Some(time), behind.unwrap_or(rest))
}

fn time_word(word: &str) -> Option<Time> {
    let (whole, fraction) = word.split_once('.').unwrap_or((word, ""));
    if fraction.len() > 9 || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let fraction: u64 = format!("{fraction:0<9}").parse().ok()?;
    let mut parts = whole.split(':');
    let numbers = [parts.next(), parts.next(), parts.next(), parts.next()];
    let seconds = match numbers {
        [Some(hours), Some(minutes), Some(seconds), None] => {
            let number = |text: &str| text.parse::<u64>().ok().filter(|n| *n < 100);
            number(hours)? * 3600 + number(minutes)? * 60 + number(seconds)?
        }
        [Some(seconds), None, ..] if word.contains('.') => seconds.parse().ok()?,
        _ => return None,
    };
    let ns = seconds.checked_mul(SECOND_NS)?.checked_add(fraction)?;
    // A clock tells the seconds since 1970; no call comes so long after another.
    let is_relative = !whole.contains(':') && seconds < 1 << 28;
    Some(if is_relative { Time::After(ns) } else { Time::At(ns) })
}

fn part(text: &[u8]) -> Part<'_> {
    if let Some(note) = text.strip_prefix(b"+++ ") {
        let other = note.strip_prefix(b"superseded by execve in pid ").and_then(|rest| {
            let digits = &rest[..digits(rest)];
            std::str::from_utf8(digits).ok()?.parse().ok()
        });
        return match other {
            Some(other) => Part::Becomes(other),
            None if note.starts_with(b"exited") || note.starts_with(b"killed") => Part::End,
            None => Part::Note,
        };
    }
    if text.starts_with(b"--- ") || text.starts_with(b"strace: ") {
        return Part::Note;
    }
    if let Some(rest) = text.strip_prefix(b"<... ") {
        let resumed = b" resumed>";
        return match rest.windows(resumed.len()).position(|window| window == resumed) {
            Some(at) => Part::Resumed(&rest[at + resumed.len()..]),
            None => Part::Other,
        };
    }
    match text.strip_suffix(b"<unfinished ...>") {
        Some(call) => Part::Unfinished(call),
        None if text.contains(&b'(') => Part::Whole(text),
        None => Part::Other,
    }
}

/// Calls that start a thread or process.
const STARTS: [&[u8]; 4] = [b"fork(", b"vfork(", b"clone(", b"clone3("];
/// No more do so at once.
const MOST_STARTING: usize = 64;

/// Joins the parts of calls, and makes times of one clock.
#[derive(Debug, Default)]
pub(super) struct Joiner<'a> {
    /// What each thread has begun.
    begun: HashMap<i32, &'a [u8]>,
    /// Threads that have begun to start another one, which has no line yet; the last one last.
    starting: Vec<i32>,
    clock: DayClock,
}

impl<'a> Joiner<'a> {
    /// The time of a line in ns; none where the log has none.
    pub(super) fn time(&mut self, line: &Line) -> Option<u64> {
        Some(match line.time? {
            Time::After(ns) => self.clock.after(ns),
            Time::At(ns) => self.clock.at(ns),
        })
    }

    /// The call that a line completes.
    pub(super) fn join(&mut self, line: Line<'a>) -> Option<Whole<'a>> {
        let tid = line.tid;
        match line.part {
            Part::Whole(text) => Some(Whole { tid, text: text.into() }),
            Part::Unfinished(text) => {
                self.begun.insert(tid, text);
                if STARTS.iter().any(|start| text.starts_with(start))
                    && self.starting.len() < MOST_STARTING
                {
                    self.starting.push(tid);
                }
                None
            }
            Part::Becomes(other) => {
                let begun = self.begun.remove(&other)?;
                self.begun.insert(tid, begun);
                None
            }
            Part::Resumed(rest) => {
                self.starting.retain(|other| *other != tid);
                // On a terminal a single process has no number until it has started another.
                let begun = self.begun.remove(&tid).or_else(|| self.begun.remove(&0))?;
                Some(Whole { tid, text: [begun, rest].concat().into() })
            }
            Part::End => {
                self.begun.remove(&tid);
                self.starting.retain(|other| *other != tid);
                None
            }
            Part::Note | Part::Other => None,
        }
    }

    /// The thread that starts one without a line so far, and the call as far as it is known: the last
    /// one that has begun to.
    pub(super) fn starter(&mut self) -> Option<(i32, &'a [u8])> {
        let tid = self.starting.pop()?;
        Some((tid, self.begun.get(&tid)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_and_time_are_found_in_every_form_that_strace_writes() {
        for (text, tid, time) in [
            ("read(3, \"\", 1) = 0", 0, None),
            ("77 read(3) = 0", 77, None),
            ("[pid    77] read(3) = 0", 77, None),
            ("77 12:00:01 read(3) = 0", 77, Some(Time::At(43_201 * SECOND_NS))),
            ("12:00:01.5 read(3) = 0", 0, Some(Time::At(43_201_500_000_000))),
            ("77 1700000000.000001 read(3) = 0", 77, Some(Time::At(1_700_000_000_000_001_000))),
            ("77      0.000300 read(3) = 0", 77, Some(Time::After(300_000))),
            (
                "[pid 7] 12:00:01 (+     0.000300) read(3) = 0",
                7,
                Some(Time::At(43_201 * SECOND_NS)),
            ),
        ] {
            let line = parse(text.as_bytes());
            assert_eq!((line.tid, line.time), (tid, time), "{text}");
            assert!(
                matches!(line.part, Part::Whole(call) if call.starts_with(b"read(3")),
                "{text}"
            );
        }
    }

    #[test]
    fn parts_of_calls_are_joined_by_thread() {
        let mut joiner = Joiner::default();
        let mut joined = |text: &'static str| {
            let whole = joiner.join(parse(text.as_bytes()))?;
            Some((whole.tid, String::from_utf8(whole.text.into_owned()).unwrap()))
        };
        assert_eq!(joined("7 read(3,  <unfinished ...>"), None);
        assert_eq!(joined("8 close(4) = 0"), Some((8, "close(4) = 0".into())));
        assert_eq!(joined("9 <... read resumed>\"x\", 1) = 1"), None, "its begin is missing");
        assert_eq!(
            joined("7 <... read resumed>\"x\", 1) = 1"),
            Some((7, "read(3,  \"x\", 1) = 1".into()))
        );
        assert_eq!(joined("+++ exited with 0 +++"), None);
    }

    #[test]
    fn a_clock_of_a_day_goes_on_after_midnight() {
        let mut joiner = Joiner::default();
        let mut time = |text: &'static str| joiner.time(&parse(text.as_bytes()));
        let before = time("23:59:59 close(3) = 0").unwrap();
        assert_eq!(time("00:00:01 close(3) = 0"), Some(before + 2 * SECOND_NS));
        assert_eq!(time("00:00:00.9 close(3) = 0"), Some(before + 1_900_000_000), "another CPU");
        for _ in 0..2 {
            let last = time("18446744073.709551615 close(3) = 0");
            assert_eq!(last, Some(u64::MAX), "nothing overflows");
            time("00:00:01 close(3) = 0");
        }
    }
}
