//! What a user starts after a login, and after another program: counts of first order, which age.
//! Pure: times are given.
//!
//! A context is a login, or the start of a program; programs that start within [`WINDOW_MS`] after
//! it follow it. Counts are in parts of 1/256, and an occurrence of a context takes a sixteenth
//! of its counts away, so that the last sixteen or so count.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// What starts within this time after a context follows it, in ms.
pub const WINDOW_MS: u64 = 5 * 60 * 1000;
/// The context of a login; no pack has this name.
pub const LOGIN: &str = "login";
/// A whole occurrence.
const ONE: u32 = 256;
const AGE: u32 = 16;
/// Users, contexts of a user, followers of a context, and contexts of a user under observation, at
/// most.
const MOST_USERS: usize = 32;
const MOST_CONTEXTS: usize = 64;
const MOST_FOLLOWERS: usize = 32;
const MOST_OPEN: usize = 32;

/// What follows what, for all users.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Model {
    users: BTreeMap<u32, BTreeMap<String, Context>>,
}

/// How often a context occurred, and what followed.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Context {
    times: u32,
    /// When it occurred last, in seconds of Unix time.
    at: u64,
    followers: BTreeMap<String, Follower>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Follower {
    times: u32,
    /// How long after the context, in ms: a mean in which the last ones weigh most.
    after_ms: u32,
}

/// How likely a program follows a context.
#[derive(Clone, PartialEq, Debug)]
pub struct Likely {
    /// The file name of the program's pack.
    pub file_name: String,
    /// 0 to 1.
    pub chance: f64,
    /// How long after the context, in ms.
    pub after_ms: u32,
}

/// What is under observation: contexts that occurred lately.
#[derive(Clone, Debug, Default)]
pub struct Open(BTreeMap<u32, Vec<Occurrence>>);

#[derive(Clone, Debug)]
struct Occurrence {
    context: String,
    at_ms: u64,
    followed: BTreeSet<String>,
}

impl Model {
    /// A context occurs; `now_ms` is of the monotonic clock, `now` in seconds of Unix time. Nothing
    /// changes while an earlier occurrence of it is under observation.
    pub fn occurs(&mut self, open: &mut Open, uid: u32, context: &str, now_ms: u64, now: u64) {
        let occurrences = open.of(uid, now_ms);
        if occurrences.iter().any(|open| open.context == context) {
            return;
        }
        if occurrences.len() >= MOST_OPEN {
            occurrences.remove(0);
        }
        let (name, followed) = (context.to_owned(), BTreeSet::new());
        occurrences.push(Occurrence { context: name, at_ms: now_ms, followed });
        if !self.users.contains_key(&uid) && self.users.len() >= MOST_USERS {
            let last = |contexts: &BTreeMap<String, Context>| {
                contexts.values().map(|context| context.at).max()
            };
            remove_least(&mut self.users, last);
        }
        let contexts = self.users.entry(uid).or_default();
        if !contexts.contains_key(context) && contexts.len() >= MOST_CONTEXTS {
            // Logins are few, and weigh more.
            let login = contexts.remove(LOGIN);
            remove_least(contexts, |context| context.at);
            contexts.extend(login.map(|login| (LOGIN.to_owned(), login)));
        }
        contexts.entry(context.to_owned()).or_default().occurs(now);
    }

    /// A program starts, which follows the contexts under observation.
    pub fn starts(&mut self, open: &mut Open, uid: u32, file_name: &str, now_ms: u64) {
        let Some(contexts) = self.users.get_mut(&uid) else { return };
        for occurrence in open.of(uid, now_ms) {
            if occurrence.context != file_name
                && occurrence.followed.insert(file_name.to_owned())
                && let Some(context) = contexts.get_mut(&occurrence.context)
            {
                context.is_followed(file_name, now_ms.saturating_sub(occurrence.at_ms));
            }
        }
    }

    /// What follows a context, most likely first; few occurrences say little.
    pub fn likely(&self, uid: u32, context: &str) -> Vec<Likely> {
        let Some(context) = self.context(uid, context) else { return Vec::new() };
        let mut likely: Vec<_> = context
            .followers
            .iter()
            .map(|(file_name, follower)| Likely {
                file_name: file_name.clone(),
                chance: f64::from(follower.times) / f64::from(context.times.saturating_add(ONE)),
                after_ms: follower.after_ms,
            })
            .collect();
        likely.sort_by(|a, b| b.chance.total_cmp(&a.chance));
        likely
    }

    /// How likely a program that is known starts after a login: a third before any login was seen.
    pub fn after_login(&self, uid: u32, file_name: &str) -> Likely {
        let context = self.context(uid, LOGIN);
        let follower = context.and_then(|context| context.followers.get(file_name));
        let of = |times: u32| f64::from(times) / f64::from(ONE);
        let (followed, all) = (
            follower.map_or(0.0, |follower| of(follower.times)),
            context.map_or(0.0, |context| of(context.times)),
        );
        Likely {
            file_name: file_name.to_owned(),
            chance: ((followed + 1.0) / (all + 3.0)).min(1.0),
            after_ms: follower.map_or(u32::MAX, |follower| follower.after_ms),
        }
    }

    /// Forgets a program.
    pub fn forget(&mut self, uid: u32, file_name: &str) {
        let Some(contexts) = self.users.get_mut(&uid) else { return };
        contexts.remove(file_name);
        for context in contexts.values_mut() {
            context.followers.remove(file_name);
        }
    }

    /// The same within its bounds, with what `is_name` says can be a pack: for what was read from a
    /// file.
    #[must_use]
    pub fn bounded(mut self, is_name: impl Fn(&str) -> bool) -> Self {
        let is_context = |name: &str| name == LOGIN || is_name(name);
        truncate(&mut self.users, MOST_USERS);
        for contexts in self.users.values_mut() {
            contexts.retain(|name, _| is_context(name));
            truncate(contexts, MOST_CONTEXTS);
            for context in contexts.values_mut() {
                context.times = context.times.min(ONE * AGE);
                context.followers.retain(|name, _| is_name(name));
                truncate(&mut context.followers, MOST_FOLLOWERS);
                let most = context.times;
                context.followers.values_mut().for_each(|one| one.times = one.times.min(most));
            }
        }
        self
    }

    fn context(&self, uid: u32, context: &str) -> Option<&Context> {
        self.users.get(&uid)?.get(context)
    }
}

impl Context {
    fn occurs(&mut self, now: u64) {
        let aged = |times: u32| times - times.div_ceil(AGE);
        self.times = aged(self.times).saturating_add(ONE).min(ONE * AGE);
        self.at = now;
        self.followers.values_mut().for_each(|follower| follower.times = aged(follower.times));
        self.followers.retain(|_, follower| follower.times > 0);
    }

    fn is_followed(&mut self, file_name: &str, after_ms: u64) {
        if !self.followers.contains_key(file_name) && self.followers.len() >= MOST_FOLLOWERS {
            remove_least(&mut self.followers, |follower| follower.times);
        }
        let after_ms = u32::try_from(after_ms).unwrap_or(u32::MAX);
        let most = self.times;
        let follower = self.followers.entry(file_name.to_owned()).or_default();
        follower.after_ms = match follower.times {
            0 => after_ms,
            _ => follower.after_ms - follower.after_ms / 4 + after_ms / 4,
        };
        follower.times = follower.times.saturating_add(ONE).min(most);
    }
}

impl Open {
    /// Whether a user has a context of this name under observation.
    pub fn has(&mut self, uid: u32, context: &str, now_ms: u64) -> bool {
        self.of(uid, now_ms).iter().any(|open| open.context == context)
    }

    /// What a user has under observation.
    fn of(&mut self, uid: u32, now_ms: u64) -> &mut Vec<Occurrence> {
        if self.0.len() >= MOST_USERS {
            self.0.retain(|of, occurrences| {
                *of == uid || occurrences.last().is_some_and(|last| last.is_recent(now_ms))
            });
        }
        if !self.0.contains_key(&uid) && self.0.len() >= MOST_USERS {
            self.0.pop_first();
        }
        let occurrences = self.0.entry(uid).or_default();
        occurrences.retain(|occurrence| occurrence.is_recent(now_ms));
        occurrences
    }
}

impl Occurrence {
    fn is_recent(&self, now_ms: u64) -> bool {
        now_ms.saturating_sub(self.at_ms) < WINDOW_MS
    }
}

/// Removes the entry of least value.
fn remove_least<K: Ord + Clone, V, O: Ord>(map: &mut BTreeMap<K, V>, value: impl Fn(&V) -> O) {
    let least = map.iter().min_by_key(|(_, entry)| value(entry)).map(|(key, _)| key.clone());
    least.into_iter().for_each(|key| drop(map.remove(&key)));
}

fn truncate<K: Ord, V>(map: &mut BTreeMap<K, V>, most: usize) {
    while map.len() > most {
        map.pop_last();
    }
}

#[cfg(test)]
#[path = "model_tests.rs"]
mod tests;
