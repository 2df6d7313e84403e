//! What naming an inode costs, by method and file system. Prints figures and
//! judges none: `cargo test --release -p headstart --test resolve_speed --
//! --ignored --nocapture`.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use headstart::host::id::InodeId;
use headstart::host::mounts::MountTable;
use headstart::profile::resolve::{LiveNames, Resolution, ResolveOptions, resolve};
use headstart_sys::btrfs::inode_path;
use headstart_testing::LoopFs;

/// Files of one page, a hundred to a directory, five levels down.
fn make_files(fs: &LoopFs, count: usize) -> Vec<InodeId> {
    let dev = fs.dev();
    (0..count)
        .map(|n| {
            let dir = fs.path().join(format!("usr/lib/python3/{}/{}", n / 10_000, n / 100));
            if n.is_multiple_of(100) {
                fs::create_dir_all(&dir).unwrap();
            }
            let path = dir.join(format!("module_{n}.py"));
            fs::write(&path, [7; 4096]).unwrap();
            InodeId { dev, ino: fs::metadata(path).unwrap().ino() }
        })
        .collect()
}

fn measure<'a>(
    fs: &LoopFs,
    runs: usize,
    what: &str,
    ids: &[InodeId],
    change: impl Fn(&mut ResolveOptions<'a>),
) {
    // As long as the closure's borrows.
    let table = Box::leak(Box::new(MountTable::read().unwrap()));
    let mut options = ResolveOptions::new(table);
    change(&mut options);
    let mut runs: Vec<Resolution> = (0..runs).map(|_| resolve(ids, &options)).collect();
    runs.sort_by_key(|run| run.elapsed);
    let (fastest, middle) = (&runs[0], &runs[runs.len() / 2]);
    let each = |time: Duration| time.as_secs_f64() * 1e6 / ids.len() as f64;
    println!(
        "{} {what} n={}: median {:?} = {:.2} us each, fastest {:.2}; {:?} {:?}, {} entries",
        fs.kind(),
        ids.len(),
        middle.elapsed,
        each(middle.elapsed),
        each(fastest.elapsed),
        middle.how,
        middle.unnamed_by_reason(),
        middle.walked_entries,
    );
}

#[test]
#[ignore = "measures"]
fn microseconds_per_inode() {
    for (kind, size) in [("ext4", 4 << 30), ("xfs", 4 << 30), ("btrfs", 4u64 << 30)] {
        for count in [3_000, 100_000] {
            let Some(fs) = LoopFs::sized(kind, size) else { continue };
            let ids = make_files(&fs, count);
            rustix::fs::sync();
            measure(&fs, 5, "hot", &ids, |_| {});
            measure(&fs, 5, "walk, hot", &ids, |options| options.calls = false);
            let few: Vec<InodeId> = ids.iter().step_by(33).copied().collect();
            measure(&fs, 5, "scattered, hot", &few, |_| {});
            measure(&fs, 5, "walk for a scattered few, hot", &few, |options| options.calls = false);
            if kind == "btrfs" {
                let root = fs::File::open(fs.path()).unwrap();
                let start = Instant::now();
                ids.iter().for_each(|id| drop(inode_path(&root, 5, id.ino).unwrap()));
                let each = start.elapsed().as_secs_f64() * 1e6 / ids.len() as f64;
                println!("btrfs index alone, hot n={}: {each:.2} us each", ids.len());
            }
            fs.remount();
            let dev = fs.dev();
            let few: Vec<InodeId> = few.iter().map(|id| InodeId { dev, ..*id }).collect();
            // All from the image. For btrfs this is the index, for others a
            // try for nothing; the walk then starts with half of the work done.
            measure(&fs, 1, "after mounting", &few, |options| options.walk = false);
            measure(&fs, 1, "then a walk", &few, |_| {});
        }
    }
}

#[test]
#[ignore = "measures"]
fn microseconds_per_live_name() {
    let Some(fs) = LoopFs::sized("ext4", 64 << 20) else { return };
    let ids = make_files(&fs, 900);
    let paths: Vec<_> = {
        let table = MountTable::read().unwrap();
        let found = resolve(&ids, &ResolveOptions::new(&table)).files;
        found.into_iter().map(|(_, file)| file.path).collect()
    };
    let open: Vec<_> = paths.iter().map(|path| fs::File::open(path).unwrap()).collect();
    let mut times: Vec<Duration> = (0..20)
        .map(|_| {
            let mut live = LiveNames::new();
            let start = Instant::now();
            live.observe(&[std::process::id() as i32]);
            assert!(live.len() > open.len());
            start.elapsed()
        })
        .collect();
    times.sort();
    println!("observing a process with {} open files: median {:?}", open.len(), times[10]);
    let mut live = LiveNames::new();
    live.observe(&[std::process::id() as i32]);
    measure(&fs, 5, "live names", &ids, |options| options.live = Some(&live));
}
