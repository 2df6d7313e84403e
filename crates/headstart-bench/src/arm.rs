//! The arms of a benchmark: the program in several states of the page cache, and other tools and
//! programs.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

/// What of the program's files is in memory when it starts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum CacheState {
    /// Nothing that can be dropped.
    Cold,
    /// Nothing of what the program uses; the rest of the system stays.
    Selective,
    /// Nothing, and the pack is prefetched in parallel as `headstart run` does.
    Prefetched,
    /// What an earlier start left there.
    Hot,
}

impl CacheState {
    /// All, in the order in which they are shown.
    pub const ALL: [Self; 4] = [Self::Cold, Self::Selective, Self::Prefetched, Self::Hot];

    /// Its name on the command line and in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cold => "cold",
            Self::Selective => "selective",
            Self::Prefetched => "prefetched",
            Self::Hot => "hot",
        }
    }
}

impl fmt::Display for CacheState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for CacheState {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|state| state.name() == text).ok_or_else(|| {
            format!("{text:?} is no state; there are cold, selective, prefetched and hot")
        })
    }
}

/// How another command takes part.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum PeerMode {
    /// It runs to its end, then the program starts cold; both are timed.
    Before,
    /// It is started in parallel with the cold program.
    Parallel,
    /// It is started instead of the program, cold and hot.
    Instead,
}

/// Another command to compare with.
#[derive(Clone, PartialEq, Eq, Serialize, Debug)]
pub struct Peer {
    /// What the results call it.
    pub name: String,
    /// How it takes part.
    pub how: PeerMode,
    /// The command, as a shell understands it. Empty: nothing is run.
    pub command: String,
}

impl FromStr for Peer {
    type Err = String;

    /// `NAME=CMD` runs before, `NAME&=CMD` beside, `NAME:=CMD` instead.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| {
            format!(
                "{text:?} {why}; write NAME=CMD to run CMD before the program, NAME&=CMD \
                 in parallel with it, NAME:=CMD instead of it"
            )
        };
        let (name, command) = text.split_once('=').ok_or_else(|| wrong("has no ="))?;
        let (name, how) = match (name.strip_suffix('&'), name.strip_suffix(':')) {
            (Some(name), _) => (name, PeerMode::Parallel),
            (_, Some(name)) => (name, PeerMode::Instead),
            _ => (name, PeerMode::Before),
        };
        let (name, command) = (name.trim(), command.trim());
        if name.is_empty() {
            return Err(wrong("has no name"));
        }
        if name == FLOOR || CacheState::from_str(name).is_ok() {
            return Err(wrong("has the name of a state"));
        }
        if how == PeerMode::Instead && command.is_empty() {
            return Err(wrong("has no command"));
        }
        Ok(Self { name: name.to_owned(), how, command: command.to_owned() })
    }
}

/// The name of [`Arm::Floor`].
pub const FLOOR: &str = "floor";

/// One of the things that each round measures once. Peers by their index.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Debug)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Arm {
    /// The program.
    Program {
        /// Its state.
        state: CacheState,
    },
    /// The program, cold, helped by a peer.
    Helped {
        /// Which.
        peer: usize,
    },
    /// Another program.
    Other {
        /// Which.
        peer: usize,
        /// Its state: cold or hot.
        state: CacheState,
    },
    /// No program: the pack's pages are read as fast as they can be.
    Floor,
}

impl Arm {
    /// Whether it begins with everything dropped.
    pub fn begins_cold(self) -> bool {
        matches!(
            self,
            Self::Program { state: CacheState::Cold | CacheState::Prefetched }
                | Self::Other { state: CacheState::Cold, .. }
                | Self::Helped { .. }
                | Self::Floor
        )
    }

    /// Whether `self` is a hot start that `filler` leaves the cache ready for:
    /// a start of the same program that brought its pages in by itself, so that
    /// they lie in memory as after an ordinary start.
    pub fn is_filled_by(self, filler: Self) -> bool {
        match (self, filler) {
            (
                Self::Program { state: CacheState::Hot },
                Self::Program { state: CacheState::Cold | CacheState::Selective },
            ) => true,
            (
                Self::Other { peer, state: CacheState::Hot },
                Self::Other { peer: other, state: CacheState::Cold },
            ) => peer == other,
            _ => false,
        }
    }

    /// Its name.
    pub fn name(self, peers: &[Peer]) -> String {
        let peer = |index: usize| peers.get(index).map_or("?", |peer| peer.name.as_str());
        match self {
            Self::Program { state } => state.to_string(),
            Self::Helped { peer: index } => peer(index).to_owned(),
            Self::Other { peer: index, state } => format!("{} {state}", peer(index)),
            Self::Floor => FLOOR.to_owned(),
        }
    }
}

/// The arms in the order in which they are shown: the states, the peers, the
/// floor.
pub fn arms(states: &[CacheState], peers: &[Peer], floor: bool) -> Vec<Arm> {
    let mut arms: Vec<Arm> = CacheState::ALL
        .into_iter()
        .filter(|state| states.contains(state))
        .map(|state| Arm::Program { state })
        .collect();
    for (peer, Peer { how, .. }) in peers.iter().enumerate() {
        if *how != PeerMode::Instead {
            arms.push(Arm::Helped { peer });
            continue;
        }
        // It is compared with the program in the same state.
        let comparable =
            [CacheState::Cold, CacheState::Hot].into_iter().filter(|s| states.contains(s));
        arms.extend(comparable.map(|state| Arm::Other { peer, state }));
    }
    arms.extend(floor.then_some(Arm::Floor));
    arms
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_read_with_its_way_of_taking_part() {
        for (text, name, how, command) in [
            ("vmtouch=vmtouch -t /x", "vmtouch", PeerMode::Before, "vmtouch -t /x"),
            ("cat&=cat a=b > /dev/null", "cat", PeerMode::Parallel, "cat a=b > /dev/null"),
            ("old build:=./old --x", "old build", PeerMode::Instead, "./old --x"),
            ("again=", "again", PeerMode::Before, ""),
        ] {
            let peer = Peer { name: name.into(), how, command: command.into() };
            assert_eq!(text.parse(), Ok(peer));
        }
        for (text, why) in [
            ("vmtouch", "has no ="),
            ("=x", "has no name"),
            ("&=x", "has no name"),
            ("hot=x", "has the name of a state"),
            ("floor&=x", "has the name of a state"),
            ("old:= ", "has no command"),
        ] {
            let error = text.parse::<Peer>().unwrap_err();
            assert!(error.contains(why) && error.contains("NAME&=CMD"), "{error}");
        }
    }

    #[test]
    fn arms_are_the_states_requested_then_peers_then_the_floor() {
        let peers: Vec<Peer> =
            ["a=x", "b&=x", "c:=x"].iter().map(|text| text.parse().unwrap()).collect();
        let names = |states: &[CacheState], floor| -> Vec<String> {
            arms(states, &peers, floor).iter().map(|arm| arm.name(&peers)).collect()
        };
        assert_eq!(
            names(&[CacheState::Hot, CacheState::Cold], true),
            ["cold", "hot", "a", "b", "c cold", "c hot", "floor"]
        );
        assert_eq!(names(&[CacheState::Prefetched], false), ["prefetched", "a", "b"]);
    }

    #[test]
    fn states_have_the_names_of_the_option() {
        for state in CacheState::ALL {
            assert_eq!(state.to_string().parse(), Ok(state));
        }
        assert!("warm".parse::<CacheState>().unwrap_err().contains("cold, selective, prefetched"));
    }
}
