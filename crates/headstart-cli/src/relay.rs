//! Which of the signals that reach us are for the program. Pure.
//!
//! A sender that knows only our number means the program. What goes to the
//! whole process group reaches the program without us, and what the kernel
//! has to say about our own doings is none of its business.

use rustix::process::Signal;

/// Who is who.
#[derive(Clone, Copy, Debug)]
pub struct Parties {
    /// The program's process number.
    pub program: i32,
    /// Our own.
    pub own: i32,
    /// Whether our session, and so its terminal, is ours: then the kernel
    /// tells the loss of the terminal to us alone.
    pub leads_session: bool,
}

/// What to do with a signal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Something became of a child: look.
    Look,
    /// Send it to the program.
    PassOn,
    /// Send it to the program, unless it was continued without us.
    Resume,
    /// The program has got it, or it is not meant for it.
    Drop,
}

/// Signals that a terminal, or the kernel for its sake, sends to whole process
/// groups (termios(3), setpgid(2)).
const TERMINAL: [Signal; 8] = [
    Signal::HUP,
    Signal::INT,
    Signal::QUIT,
    Signal::TSTP,
    Signal::TTIN,
    Signal::TTOU,
    Signal::CONT,
    Signal::WINCH,
];
/// What the kernel tells a session's leader about its lost terminal.
const HANGUP: [Signal; 2] = [Signal::HUP, Signal::CONT];
/// What the kernel says of the receiver's own use of the machine.
const OWN_USE: [Signal; 4] = [Signal::XCPU, Signal::XFSZ, Signal::VTALARM, Signal::PROF];

/// Judges a signal by its number, its `si_code` (sigaction(2)) and its sender,
/// `None` for the kernel.
pub fn verdict(number: i32, code: i32, sender: Option<i32>, parties: Parties) -> Verdict {
    let among = |list: &[Signal]| list.iter().any(|signal| signal.as_raw() == number);
    let from_kernel = code > 0;
    if from_kernel && number == Signal::CHILD.as_raw() {
        return Verdict::Look;
    }
    // The program signals its own group, or we wrote to a closed pipe.
    if sender == Some(parties.program)
        || sender == Some(parties.own) && number == Signal::PIPE.as_raw()
    {
        return Verdict::Drop;
    }
    if from_kernel && among(&OWN_USE) {
        return Verdict::Drop;
    }
    if from_kernel && among(&TERMINAL) && !(parties.leads_session && among(&HANGUP)) {
        return Verdict::Drop;
    }
    if number == Signal::CONT.as_raw() {
        return Verdict::Resume;
    }
    Verdict::PassOn
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARTIES: Parties = Parties { program: 7, own: 6, leads_session: false };
    const LEADER: Parties = Parties { leads_session: true, ..PARTIES };
    /// `SI_KERNEL` and `SI_QUEUE` of sigaction(2); a child's codes begin at 1.
    const KERNEL: i32 = 0x80;
    const QUEUE: i32 = -1;

    #[test]
    fn what_reached_the_program_or_was_not_meant_for_it_is_dropped_and_all_else_is_not() {
        use Verdict::{Drop, Look, PassOn, Resume};
        let anybody = Some(1);
        for (name, signal, code, sender, parties, expected) in [
            ("kill", 15, 0, anybody, PARTIES, PassOn),
            ("kill -INT", 2, 0, anybody, PARTIES, PassOn),
            ("kill -TSTP", 20, 0, anybody, PARTIES, PassOn),
            ("kill -CHLD", 17, 0, anybody, PARTIES, PassOn),
            ("a real-time signal", 34, QUEUE, anybody, PARTIES, PassOn),
            ("our alarm clock, set before our exec", 14, KERNEL, None, PARTIES, PassOn),
            ("a child", 17, 1, None, PARTIES, Look),
            ("ctrl-c", 2, KERNEL, None, PARTIES, Drop),
            ("ctrl-c for a leader", 2, KERNEL, None, LEADER, Drop),
            ("ctrl-z", 20, KERNEL, None, PARTIES, Drop),
            ("a background read", 21, KERNEL, None, PARTIES, Drop),
            ("a new window size", 28, KERNEL, None, PARTIES, Drop),
            ("hangup for the group", 1, KERNEL, None, PARTIES, Drop),
            ("hangup for the leader alone", 1, KERNEL, None, LEADER, PassOn),
            ("its continuation", 18, KERNEL, None, LEADER, Resume),
            ("fg, or kill -CONT", 18, 0, anybody, PARTIES, Resume),
            ("the program's kill 0", 15, 0, Some(7), PARTIES, Drop),
            ("our broken pipe", 13, 0, Some(6), PARTIES, Drop),
            ("what we sent ourselves before our exec", 10, 0, Some(6), PARTIES, PassOn),
            ("our processor time", 24, KERNEL, None, PARTIES, Drop),
            ("kill -XCPU", 24, 0, anybody, PARTIES, PassOn),
        ] {
            assert_eq!(verdict(signal, code, sender, parties), expected, "{name}");
        }
    }
}
