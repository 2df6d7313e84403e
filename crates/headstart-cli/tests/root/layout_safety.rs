//! `headstart layout` on loop-mounted ext4: what must not be laid out is refused, and what others do to a
//! layout costs no content.

use crate::common::laid_out::{check, dir, done, fails, fragmented, json, pack, places, states};
use headstart_testing::{LoopFs, has, must, noise, skip};
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// What `layout apply` says when it refuses all of a file system; nothing is left there.
#[track_caller]
fn refused(fs: &LoopFs, pack: &Path) -> String {
    let said = fails(&[&"apply", &"--force", &"--on", &fs.path(), &pack], 1);
    assert!(!dir(fs).exists());
    said
}

/// Users of e4rat and e4rat-lite found their partitions damaged after a boot
/// (voidlinux/void-packages issue 4804), and e4defrag hangs for ever with fast commits
/// (tytso/e2fsprogs issue 137): where a crash could lose data, or something is damaged already, nothing
/// is moved.
#[test]
fn no_partition_is_damaged_as_after_e4rat_since_one_at_risk_is_refused() {
    for (features, why) in [
        ("^has_journal", "it has no journal"),
        ("fast_commit", "fast_commit does not log such moves"),
        ("bigalloc", "bigalloc keeps blocks from being moved"),
    ] {
        let Some(fs) = LoopFs::with("ext4", 256 << 20, &["-O", features]) else { return };
        let pack = pack(&fs, &fragmented(&fs, 3, 10));
        let said = refused(&fs, &pack);
        assert!(said.contains(why), "{said}");
        let plan = fails(&[&"plan", &pack], 1);
        assert!(plan.contains(why), "{plan}");
    }
    let Some(fs) = LoopFs::sized("ext4", 256 << 20) else { return };
    let paths = fragmented(&fs, 3, 10);
    let (pack, before, old) = (pack(&fs, &paths), states(&paths), places(&paths));
    let path = fs.path().to_str().unwrap();
    for (options, why) in
        [("nobarrier", "mounted with nobarrier"), ("barrier,ro", "for reading only")]
    {
        must("mount", &["-o", &format!("remount,{options}"), path]);
        let said = refused(&fs, &pack);
        assert!(said.contains(why), "{said}");
    }
    must("mount", &["-o", "remount,rw", path]);
    done(&[&"apply", &"--force", &pack]);
    // It is damaged between apply and undo.
    fs.unmount_everywhere();
    let image = fs.beside("image");
    must("debugfs", &["-w", "-R", "set_super_value state 2", image.to_str().unwrap()]);
    fs.mount();
    for verb in ["undo", "resume"] {
        let said = fails(&[&verb, &fs.path()], 1);
        assert!(said.contains("errors were found in it; e2fsck -f"), "{said}");
    }
    fs.unmount_everywhere();
    // Status 1: repaired.
    let repair = "e2fsck -fy \"$0\" || test $? = 1";
    must("sh", &["-c", repair, image.to_str().unwrap()]);
    fs.mount();
    done(&[&"undo", &fs.path()]);
    assert_eq!((states(&paths), places(&paths)), (before, old));
}

#[test]
fn packs_with_files_on_several_file_systems_need_a_choice() {
    let Some(one) = LoopFs::sized("ext4", 64 << 20) else { return };
    let Some(two) = LoopFs::sized("ext4", 64 << 20) else { return };
    let [of_one, of_two] = [&one, &two].map(|fs| fragmented(fs, 3, 10));
    let (first, second) = (pack(&one, &of_one), pack(&two, &of_two));
    let old = (places(&of_one), places(&of_two));
    let said = fails(&[&"apply", &"--force", &first, &second], 1);
    let names = |fs: &LoopFs| said.contains(fs.path().to_str().unwrap());
    assert!(said.contains("--on") && names(&one) && names(&two), "{said}");
    assert_eq!((places(&of_one), places(&of_two)), old);
    assert!(!dir(&one).exists() && !dir(&two).exists());
    done(&[&"apply", &"--force", &"--on", &two.path(), &first, &second]);
    assert_eq!(places(&of_one), old.0);
    assert!(places(&of_two).iter().all(|extents| extents.len() == 1));
}

#[test]
fn blocks_of_the_donor_that_another_program_moved_are_not_taken_for_old_ones() {
    if !has("e4defrag") {
        return skip("e4defrag is missing");
    }
    let Some(fs) = LoopFs::sized("ext4", 256 << 20) else { return };
    let paths = fragmented(&fs, 10, 10);
    let (pack, before) = (pack(&fs, &paths), states(&paths));
    done(&[&"apply", &"--force", &pack]);
    let new = places(&paths);
    let donor = dir(&fs).join("donor");
    let old = places(std::slice::from_ref(&donor));
    must("e4defrag", &[donor.to_str().unwrap()]);
    assert_ne!(places(std::slice::from_ref(&donor)), old, "e4defrag moved nothing");
    let undone = json(&[&"undo", &"--json", &fs.path()]);
    assert_eq!(undone["skipped"]["displaced"], 10, "{undone}");
    assert_eq!((states(&paths), places(&paths)), (before, new));
    check(&fs);
}

/// Maps a file, so that its pages stay in memory, until its input ends.
const MAP: &str = "import mmap, sys
file = open(sys.argv[1], 'rb')
pages = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
print(sum(pages[::4096]), flush=True)
sys.stdin.read()";

#[test]
fn damage_on_the_disk_is_found_below_pages_that_a_program_has_mapped() {
    let Some(fs) = LoopFs::sized("ext4", 64 << 20) else { return };
    if !has("python3") {
        return skip("python3 is missing");
    }
    let paths = fragmented(&fs, 3, 10);
    let pack = pack(&fs, &paths);
    done(&[&"apply", &"--force", &pack]);
    let mut child = Command::new("python3")
        .args(["-c", MAP, paths[1].to_str().unwrap()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    done(&[&"verify", &fs.path()]);
    let place = places(&paths)[1][0].physical;
    let image = OpenOptions::new().write(true).open(fs.beside("image")).unwrap();
    image.write_all_at(&noise(4096), place + 8192).unwrap();
    let said = fails(&[&"verify", &fs.path()], 1);
    let name = paths[1].file_name().unwrap().to_str().unwrap();
    assert!(said.contains("other content than before") && said.contains(name), "{said}");
    drop(child.stdin.take());
    child.wait().unwrap();
}
