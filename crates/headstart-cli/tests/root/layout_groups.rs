//! `headstart layout apply --make-room` on loop-mounted btrfs whose free space is in pieces: block groups are moved first,
//! all files stay whole whatever ends it, and the layout comes back.

use crate::common::laid_out::{dir, done, fails, json, layout, places, run_until, states, took};
use crate::common::perforated::Perforated;
use headstart_sys::fiemap::Extent;
use headstart_testing::{has, must, skip};
use std::process::{Command, Stdio};

fn rig() -> Option<Perforated> {
    Perforated::of("btrfs", 256 << 20)
}

/// In how many places what is touched next lies elsewhere.
fn jumps(rig: &Perforated) -> usize {
    let all: Vec<Extent> = places(&rig.paths).into_iter().flatten().collect();
    let follows = |pair: &[Extent]| pair[0].physical + pair[0].length == pair[1].physical;
    all.windows(2).filter(|pair| !follows(pair)).count()
}

#[test]
fn a_layout_lies_together_when_block_groups_are_moved_and_undo_moves_it_back() {
    let Some(rig) = rig() else { return };
    let (before, old) = (states(&rig.all()), places(&rig.all()));
    let said = done(&[&"apply", &"--force", &rig.pack]);
    assert!(said.contains("pieces") && said.contains("with --make-room"), "{said}");
    let in_pieces = jumps(&rig);
    assert_eq!(places(&rig.others), old[rig.paths.len()..], "they are moved only with --make-room");
    done(&[&"undo", &rig.fs.path()]);
    assert_eq!(places(&rig.paths), old[..rig.paths.len()]);

    let applied = json(&[&"apply", &"--force", &"--make-room", &"--json", &rig.pack]);
    assert!(applied["relocated_bytes"].as_u64() > Some(0), "{applied}");
    let length: u64 = old[..rig.paths.len()].iter().flatten().map(|e| e.length).sum();
    assert_eq!((&applied["moved_bytes"], &applied["aside_bytes"]), (&length.into(), &0.into()));
    assert_ne!(places(&rig.others), old[rig.paths.len()..]);
    // Three files may begin elsewhere, since sizes go to block groups of their own.
    assert!(jumps(&rig) * 4 < in_pieces, "{} of {in_pieces}", jumps(&rig));
    assert_eq!(states(&rig.all()), before);
    rig.check();
    done(&[&"verify", &rig.fs.path()]);

    done(&[&"undo", &rig.fs.path()]);
    assert!(!dir(&rig.fs).exists());
    let back = places(&rig.paths);
    assert!(back.iter().zip(&old).all(|(new, old)| new.len() <= old.len()), "{back:?}");
    assert!(back.iter().flatten().count() > rig.paths.len(), "{back:?}");
    assert_eq!(states(&rig.all()), before);
    rig.check();
}

#[test]
fn kill_9_while_block_groups_are_moved_leaves_all_files_whole_and_no_balance() {
    const KILLS: u32 = 8;
    if !has("btrfs") {
        return skip("btrfs is missing");
    }
    let Some(rig) = rig() else { return };
    let before = states(&rig.all());
    let whole = took(&mut rig.apply());
    done(&[&"undo", &rig.fs.path()]);
    for n in 0..KILLS {
        let moment = whole * (2 * n + 1) / (2 * KILLS);
        run_until(&mut rig.apply(), |elapsed| elapsed >= moment, |child| child.kill().unwrap());
        assert_eq!(states(&rig.all()), before, "after {moment:?}");
        let status = Command::new("btrfs").args(["balance", "status"]).arg(rig.fs.path()).output();
        let status = String::from_utf8(status.unwrap().stdout).unwrap();
        assert!(status.contains("No balance found"), "{status}");
        assert!(matches!(layout(&[&"undo", &rig.fs.path()]).status.code(), Some(0 | 3)));
        assert!(!dir(&rig.fs).exists());
    }
    done(&[&"apply", &"--force", &"--make-room", &rig.pack]);
    rig.check();
    assert_eq!(states(&rig.all()), before);
}

#[test]
fn a_balance_of_others_is_named() {
    if !has("btrfs") {
        return skip("btrfs is missing");
    }
    let Some(rig) = rig() else { return };
    let before = states(&rig.all());
    // A paused one is enough. One that ended before it could be paused is begun again.
    let path = rig.fs.path();
    let btrfs = |verb: &str, more: &[&str]| {
        let mut command = Command::new("btrfs");
        command.args(["balance", verb]).args(more).arg(path);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command
    };
    let is_paused = || {
        let mut running = btrfs("start", &["-d"]).spawn().unwrap();
        loop {
            let is_over = running.try_wait().unwrap().is_some();
            if btrfs("pause", &[]).status().unwrap().success() {
                running.wait().unwrap();
                return true;
            }
            if is_over {
                return false;
            }
        }
    };
    while !is_paused() {}
    let said = fails(&[&"apply", &"--force", &"--make-room", &rig.pack], 1);
    assert!(said.contains("there is another balance"), "{said}");
    assert!(!dir(&rig.fs).exists());
    assert_eq!(states(&rig.all()), before);
    must("btrfs", &["balance", "cancel", path.to_str().unwrap()]);
    done(&[&"apply", &"--force", &"--make-room", &rig.pack]);
    assert_eq!(states(&rig.all()), before);
}
