//! `headstart layout` on loop-mounted ext4: files stay whole whatever ends it or comes between.

use crate::common::laid_out::{
    check, command, cut_power, dir, done, fails, fragmented, in_memory, layout, pack, places,
    run_until, states, took, written_meanwhile,
};
use headstart_testing::{LoopFs, has, must, run, skip};
use std::fs;

/// How often a layout is killed, and how often the power is cut.
const KILLS: u32 = 20;
const CUTS: u32 = 6;

#[test]
fn kill_9_at_any_moment_leaves_every_file_whole_and_the_rest_can_be_done_or_undone() {
    let Some(fs) = in_memory() else { return };
    let paths = fragmented(&fs, 12, 20);
    let pack = pack(&fs, &paths);
    let (before, old) = (states(&paths), places(&paths));
    let apply = || command(&["apply".as_ref(), "--force".as_ref(), pack.as_os_str()]);
    let mut span = took(&mut apply());
    done(&[&"undo", &fs.path()]);
    let mut halfway = 0;
    for n in 0..KILLS {
        // Spread over the time until all is moved, which shows; or as soon as one file is moved.
        let moment = span * (2 * (n * 7 % KILLS) + 1) / (2 * KILLS);
        let one = n as usize / 2 % paths.len();
        let is_timed = n % 4 < 2;
        let is_due = |elapsed| match is_timed {
            true => elapsed >= moment,
            false => places(&paths[one..=one])[0] != old[one],
        };
        run_until(&mut apply(), is_due, |child| child.kill().unwrap());
        assert_eq!(states(&paths), before, "after {moment:?}");
        let now = places(&paths);
        let moved = now.iter().zip(&old).filter(|(now, old)| now != old).count();
        halfway += u32::from(moved > 0 && moved < paths.len());
        if is_timed && moved == paths.len() {
            span = moment;
        }
        if n % 2 == 0 && dir(&fs).join("journal").exists() {
            done(&[&"resume", &fs.path()]);
            assert!(places(&paths).iter().all(|extents| extents.len() == 1), "after {moment:?}");
            assert_eq!(states(&paths), before, "after {moment:?}");
        }
        // There is nothing to undo if it was killed before it began.
        assert!(matches!(layout(&[&"undo", &fs.path()]).status.code(), Some(0 | 3)));
        assert_eq!((states(&paths), places(&paths)), (before.clone(), old.clone()));
        assert!(!dir(&fs).exists());
    }
    assert!(halfway > 0, "none was killed between two swaps");
    check(&fs);
    assert_eq!(states(&paths), before);
}

#[test]
fn a_power_cut_at_any_moment_leaves_every_file_whole_and_the_rest_can_be_undone() {
    let Some(fs) = in_memory() else { return };
    if !has("python3") {
        return skip("python3 is missing");
    }
    let paths = fragmented(&fs, 12, 20);
    let pack = pack(&fs, &paths);
    let (before, old) = (states(&paths), places(&paths));
    let apply = || command(&["apply".as_ref(), "--force".as_ref(), pack.as_os_str()]);
    let whole = took(&mut apply());
    done(&[&"undo", &fs.path()]);
    must("sync", &["-f", fs.path().to_str().unwrap()]);
    for n in 0..CUTS {
        let moment = whole * (2 * n + 1) / (2 * CUTS);
        run_until(&mut apply(), |elapsed| elapsed >= moment, |_| cut_power(&fs));
        fs.remount();
        assert_eq!(states(&paths), before, "after {moment:?}");
        check(&fs);
        assert!(matches!(layout(&[&"undo", &fs.path()]).status.code(), Some(0 | 3)));
        assert_eq!((states(&paths), places(&paths)), (before.clone(), old.clone()));
        check(&fs);
    }
}

#[test]
fn a_full_disk_stops_a_layout_before_it_begins_and_does_not_keep_it_from_being_undone() {
    let Some(fs) = LoopFs::sized("ext4", 64 << 20) else { return };
    let paths = fragmented(&fs, 10, 10);
    let pack = pack(&fs, &paths);
    let (before, old) = (states(&paths), places(&paths));
    let fill = || {
        let full = run(
            "dd",
            &[
                "if=/dev/zero",
                &format!("of={}", fs.path().join("fill").display()),
                "bs=64k",
                "status=none",
            ],
        );
        assert!(full.unwrap_err().contains("No space left"));
        must("sync", &["-f", fs.path().to_str().unwrap()]);
    };
    fill();
    let said = fails(&[&"apply", &"--force", &pack], 1);
    assert!(said.contains("A layout needs") && said.contains("--budget"), "{said}");
    assert_eq!((states(&paths), places(&paths)), (before.clone(), old.clone()));
    assert!(!dir(&fs).exists());
    fs::remove_file(fs.path().join("fill")).unwrap();
    must("sync", &["-f", fs.path().to_str().unwrap()]);
    done(&[&"apply", &"--force", &pack]);
    fill();
    done(&[&"undo", &fs.path()]);
    assert_eq!((states(&paths), places(&paths)), (before, old));
    check(&fs);
}

#[test]
fn a_writer_at_the_same_time_loses_nothing() {
    let Some(fs) = in_memory() else { return };
    written_meanwhile(&fs);
}
