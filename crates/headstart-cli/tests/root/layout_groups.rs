//! `headstart layout apply --make-room` on loop-mounted btrfs whose free space is in pieces: block groups are moved first,
//! all files stay whole whatever ends it, and the layout comes back.

use crate::common::laid_out::{
    check, command, dir, done, fails, fragmented, json, layout, of_kind, pack, places, run_until,
    states, took,
};
use headstart_sys::fiemap::Extent;
use headstart_testing::{LoopFs, has, must, noise, skip};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Bytes of each other file, and of each free piece between two of them.
const PIECE: usize = 96 << 10;

/// A file system whose free space is in pieces.
struct Rig {
    fs: LoopFs,
    /// Files in many extents, which are laid out, and their pack.
    paths: Vec<PathBuf>,
    pack: PathBuf,
    /// Files between the pieces.
    others: Vec<PathBuf>,
}

impl Rig {
    fn new() -> Option<Self> {
        let fs = of_kind("btrfs", 256 << 20)?;
        let paths = fragmented(&fs, 12, 10);
        let folder = fs.path().join("others");
        fs::create_dir(&folder).unwrap();
        let (bytes, mut others) = (noise(PIECE), Vec::new());
        loop {
            let number = others.len();
            let path = folder.join(format!("{number:04}"));
            let own: Vec<u8> = bytes.iter().map(|byte| byte ^ number as u8).collect();
            let mut file = File::create_new(&path).unwrap();
            // Its place is that of its writing.
            if file.write_all(&own).and_then(|()| file.sync_data()).is_err() {
                break fs::remove_file(path).unwrap();
            }
            others.push(path);
        }
        others.iter().skip(1).step_by(2).for_each(|path| fs::remove_file(path).unwrap());
        must("sync", &["-f", fs.path().to_str().unwrap()]);
        let others = others.into_iter().step_by(2).collect();
        Some(Self { pack: pack(&fs, &paths), fs, paths, others })
    }

    fn all(&self) -> Vec<PathBuf> {
        [&self.paths[..], &self.others[..]].concat()
    }

    fn apply(&self) -> Command {
        let words = ["apply", "--force", "--make-room"].map(OsStr::new);
        command(&[&words[..], &[self.pack.as_os_str()]].concat())
    }

    /// In how many places what is touched next lies elsewhere.
    fn jumps(&self) -> usize {
        let all: Vec<Extent> = places(&self.paths).into_iter().flatten().collect();
        let follows = |pair: &[Extent]| pair[0].physical + pair[0].length == pair[1].physical;
        all.windows(2).filter(|pair| !follows(pair)).count()
    }
}

#[test]
fn a_layout_lies_together_when_block_groups_are_moved_and_undo_moves_it_back() {
    let Some(rig) = Rig::new() else { return };
    let (before, old) = (states(&rig.all()), places(&rig.all()));
    let said = done(&[&"apply", &"--force", &rig.pack]);
    assert!(said.contains("pieces") && said.contains("with --make-room"), "{said}");
    let in_pieces = rig.jumps();
    assert_eq!(places(&rig.others), old[rig.paths.len()..], "they are moved only with --make-room");
    done(&[&"undo", &rig.fs.path()]);
    assert_eq!(places(&rig.paths), old[..rig.paths.len()]);

    let applied = json(&[&"apply", &"--force", &"--make-room", &"--json", &rig.pack]);
    assert!(applied["relocated_bytes"].as_u64() > Some(0), "{applied}");
    let length: u64 = old[..rig.paths.len()].iter().flatten().map(|e| e.length).sum();
    assert_eq!((&applied["moved_bytes"], &applied["aside_bytes"]), (&length.into(), &0.into()));
    assert_ne!(places(&rig.others), old[rig.paths.len()..]);
    // Three files may begin elsewhere, since sizes go to block groups of their own.
    assert!(rig.jumps() * 4 < in_pieces, "{} of {in_pieces}", rig.jumps());
    assert_eq!(states(&rig.all()), before);
    check(&rig.fs);
    done(&[&"verify", &rig.fs.path()]);

    done(&[&"undo", &rig.fs.path()]);
    assert!(!dir(&rig.fs).exists());
    let back = places(&rig.paths);
    assert!(back.iter().zip(&old).all(|(new, old)| new.len() <= old.len()), "{back:?}");
    assert!(back.iter().flatten().count() > rig.paths.len(), "{back:?}");
    assert_eq!(states(&rig.all()), before);
    check(&rig.fs);
}

#[test]
fn kill_9_while_block_groups_are_moved_leaves_all_files_whole_and_no_balance() {
    const KILLS: u32 = 8;
    if !has("btrfs") {
        return skip("btrfs is missing");
    }
    let Some(rig) = Rig::new() else { return };
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
    check(&rig.fs);
    assert_eq!(states(&rig.all()), before);
}

#[test]
fn a_balance_of_others_is_named() {
    if !has("btrfs") {
        return skip("btrfs is missing");
    }
    let Some(rig) = Rig::new() else { return };
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
