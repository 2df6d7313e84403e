//! A check of doctor, and its result.

use serde::Serialize;

/// How something is.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Debug)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// As it should be.
    Ok,
    /// Headstart works, but does less or slower.
    Degraded,
    /// Headstart can't record or can't replay.
    Missing,
}

/// What is lacking when something is missing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Debug)]
#[serde(rename_all = "snake_case")]
pub enum Lack {
    /// A right of this user.
    Permission,
    /// A feature of this kernel.
    Kernel,
}

/// One thing that was looked at.
#[derive(Clone, PartialEq, Eq, Serialize, Debug)]
pub struct Check {
    /// Its name; stable.
    pub id: &'static str,
    /// How it is.
    pub state: State,
    /// What is lacking; only when [`State::Missing`].
    pub lack: Option<Lack>,
    /// What was found and what that means: one sentence without its full stop.
    pub meaning: String,
    /// The command that fixes it, where one can.
    pub fix: Option<String>,
}

impl Check {
    pub(super) fn ok(id: &'static str, meaning: impl Into<String>) -> Self {
        Self { id, state: State::Ok, lack: None, meaning: meaning.into(), fix: None }
    }

    pub(super) fn degraded(id: &'static str, meaning: impl Into<String>) -> Self {
        Self { state: State::Degraded, ..Self::ok(id, meaning) }
    }

    pub(super) fn missing(id: &'static str, lack: Lack, meaning: impl Into<String>) -> Self {
        Self { state: State::Missing, lack: Some(lack), ..Self::ok(id, meaning) }
    }

    pub(super) fn fix(self, fix: impl Into<String>) -> Self {
        Self { fix: Some(fix.into()), ..self }
    }
}

/// What keeps headstart from working, if anything does: the hardest to fix of
/// all that is missing.
pub fn verdict(checks: &[Check]) -> Option<Lack> {
    checks.iter().filter_map(|check| check.lack).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verdict_is_what_is_hardest_to_fix() {
        let missing = |lack| Check::missing("x", lack, "");
        let degraded = Check::degraded("y", "");
        assert_eq!(verdict(&[Check::ok("z", ""), degraded.clone()]), None);
        let checks = [degraded, missing(Lack::Permission)];
        assert_eq!(verdict(&checks), Some(Lack::Permission));
        let checks = [missing(Lack::Kernel), missing(Lack::Permission)];
        assert_eq!(verdict(&checks), Some(Lack::Kernel));
    }
}
