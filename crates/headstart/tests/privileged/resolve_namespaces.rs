//! Chroots, other mount namespaces, and overlays whose layers are out of sight.
//!
//! Some tests start this program again in such a place, as one of the ignored
//! tests below.

use std::env;
use std::fs;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::resolved::{each_fs, file};
use headstart::host::id::{Dev, InodeId};
use headstart::host::mounts::MountTable;
use headstart::profile::resolve::{LiveNames, Method, ResolveOptions, Unnamed, resolve};
use headstart_sys::cachestat::cachestat;
use headstart_testing::{LoopFs, bind, root_or_skip, run_inner, variable};

/// A directory of `fs` that this program can run in, and its name there.
fn make_root(fs: &LoopFs) -> (PathBuf, PathBuf) {
    let root = fs.path().join("root");
    let exe = env::current_exe().unwrap();
    fs::create_dir(&root).unwrap();
    bind(Path::new("/usr"), &root.join("usr"));
    bind(Path::new("/proc"), &root.join("proc"));
    bind(exe.parent().unwrap(), &root.join("exe"));
    for name in ["lib", "lib64"] {
        symlink(format!("usr/{name}"), root.join(name)).unwrap();
    }
    (root, Path::new("/exe").join(exe.file_name().unwrap()))
}

#[test]
fn in_a_chroot_the_unlisted_root_is_known_and_its_files_are_found() {
    each_fs(|fs| {
        file(fs, &fs.path().join("root.txt"));
        let (root, exe) = make_root(fs);
        file(fs, &root.join("a/file"));
        let outside = file(fs, &fs.path().join("outside"));
        let variables = [
            ("INNER_DEV", format!("{} {}", outside.dev.major(), outside.dev.minor())),
            ("INNER_OUTSIDE", outside.ino.to_string()),
        ];
        let root = root.to_str().unwrap();
        // Where the first process does not list the mount either, only btrfs,
        // whose st_dev is another, cannot be recognised.
        let listed = fs::read_to_string("/proc/1/mountinfo")
            .is_ok_and(|table| table.contains(fs.path().to_str().unwrap()));
        if listed || fs.kind() != "btrfs" {
            run_inner(
                concat!(module_path!(), "::inside_a_chroot"),
                &["chroot", root],
                &exe,
                &variables,
            );
        }
        if fs.kind() != "btrfs" {
            run_inner(
                concat!(module_path!(), "::inside_a_chroot"),
                &["unshare", "-m", "chroot", root],
                &exe,
                &variables,
            );
        }
    });
}

#[test]
#[ignore = "started by another test"]
fn inside_a_chroot() {
    let Some(dev) = variable("INNER_DEV") else { return };
    let outside = variable("INNER_OUTSIDE").unwrap().parse().unwrap();
    let (major, minor) = dev.split_once(' ').unwrap();
    let dev = Dev::new(major.parse().unwrap(), minor.parse().unwrap());
    let table = MountTable::read().unwrap();
    let root = table.at(Path::new("/")).unwrap();
    assert_eq!((root.dev, &root.root), (dev, &PathBuf::new()));
    assert_eq!(table.at(Path::new("/proc/self")).unwrap().fstype, "proc");

    let path = Path::new("/a/file");
    let id = InodeId { dev, ino: fs::metadata(path).unwrap().ino() };
    let outside = InodeId { dev, ino: outside };
    for (calls, method) in [(true, Method::Handle), (false, Method::Walk)] {
        let options = ResolveOptions { calls, ..ResolveOptions::new(&table) };
        let resolution = resolve(&[id, outside], &options);
        assert!(resolution.problems.is_empty(), "{:?}", resolution.problems);
        assert_eq!(resolution.how, [(method, 1)].into(), "{resolution:?}");
        assert_eq!(resolution.files[0].1.path, path);
        let (left, reason) = resolution.unnamed[0];
        assert_eq!(left, outside);
        assert!(matches!(reason, Unnamed::Unreachable | Unnamed::NotFound), "{reason}");
    }
}

/// Runs a script in a mount namespace of its own, until it has said `ready`.
struct Elsewhere(Child);

impl Elsewhere {
    fn new(script: &str, paths: &[&Path]) -> Self {
        let mut child = Command::new("unshare")
            .args(["-m", "sh", "-ec", script, "sh"])
            .args(paths)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut word = [0; 5];
        child.stdout.as_mut().unwrap().read_exact(&mut word).unwrap();
        assert_eq!(&word, b"ready");
        Self(child)
    }
}

impl Drop for Elsewhere {
    /// Its end closes the namespace, which else would keep mounts alive.
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn a_name_in_another_mount_namespace_becomes_the_name_here() {
    each_fs(|fs| {
        let path = fs.path().join("sub/deep/f");
        let id = file(fs, &path);
        let there = fs.beside("there");
        fs::create_dir(&there).unwrap();
        let script = "mount --bind \"$1\" \"$2\"; exec 3<\"$2/deep/f\"; echo ready; read wait";
        let process = Elsewhere::new(script, &[&fs.path().join("sub"), &there]);
        let mut live = LiveNames::new();
        live.observe(&[process.0.id() as i32]);
        drop(process);
        assert!(!there.join("deep").exists());
        let table = MountTable::read().unwrap();
        let options = ResolveOptions { live: Some(&live), ..ResolveOptions::new(&table) };
        let resolution = resolve(&[id], &options);
        assert_eq!(resolution.how, [(Method::LiveName, 1)].into(), "{}", fs.kind());
        assert_eq!(resolution.files[0].1.path, path);
    });
}

#[test]
fn a_file_system_mounted_only_in_another_namespace_is_unreachable() {
    each_fs(|fs| {
        let path = fs.path().join("f");
        let id = file(fs, &path);
        let process = Elsewhere::new("exec 3<\"$1\"; echo ready; read wait", &[&path]);
        fs.unmount();
        let mut live = LiveNames::new();
        live.observe(&[process.0.id() as i32]);
        let table = MountTable::read().unwrap();
        let options = ResolveOptions { live: Some(&live), ..ResolveOptions::new(&table) };
        let resolution = resolve(&[id], &options);
        assert_eq!(resolution.unnamed, [(id, Unnamed::Unreachable)], "{}", fs.kind());
        drop(process);
    });
}

#[test]
fn files_of_an_overlay_are_found_with_its_layers_in_sight_and_out_of_it() {
    if !root_or_skip() {
        return;
    }
    // Layers on one file system; and on two, with and without xino.
    let kinds = [("ext4", 64 << 20), ("xfs", 512 << 20)];
    for (kind, size) in kinds {
        for options in ["", ",xino=on", ",xino=off"] {
            let Some(fs) = LoopFs::sized(kind, size) else { return };
            file(&fs, &fs.path().join("low/d/hot"));
            file(&fs, &fs.path().join("low/d/cold"));
            file(&fs, &fs.path().join("low/d/warm"));
            file(&fs, &fs.path().join("low/single"));
            fs::create_dir_all(fs.path().join("up")).unwrap();
            fs::create_dir_all(fs.path().join("work")).unwrap();
            ["ov", "mem"].iter().for_each(|name| fs::create_dir(fs.beside(name)).unwrap());
            fs.remount();
            let dev = fs.dev();
            let script = "mount -t tmpfs none \"$2/mem\"; mkdir \"$2/mem/up\" \"$2/mem/work\"
                if [ -z \"$3\" ]; then up=\"$1\"; else up=\"$2/mem\"; fi
                mount -t overlay none -o \"lowerdir=$1/low,upperdir=$up/up,workdir=$up/work$3\" \"$2/ov\"
                shift 3; exec \"$@\"";
            let (path, beside) = (fs.path().to_str().unwrap(), fs.beside(""));
            let wrapper = [
                "unshare",
                "-m",
                "sh",
                "-ec",
                script,
                "sh",
                path,
                beside.to_str().unwrap(),
                options,
            ];
            let variables = [
                ("INNER_DEV", format!("{} {}", dev.major(), dev.minor())),
                ("INNER_BESIDE", beside.to_str().unwrap().to_owned()),
                ("INNER_LOWER", path.to_owned()),
            ];
            let exe = env::current_exe().unwrap();
            run_inner(concat!(module_path!(), "::beside_an_overlay"), &wrapper, &exe, &variables);
        }
    }
}

#[test]
#[ignore = "started by another test"]
fn beside_an_overlay() {
    let Some(beside) = variable("INNER_BESIDE").map(PathBuf::from) else { return };
    let lower = PathBuf::from(variable("INNER_LOWER").unwrap());
    let dev = variable("INNER_DEV").unwrap();
    let (major, minor) = dev.split_once(' ').unwrap();
    let dev = Dev::new(major.parse().unwrap(), minor.parse().unwrap());
    let id =
        |name| InodeId { dev, ino: fs::metadata(lower.join("low/d").join(name)).unwrap().ino() };
    let ids = [id("hot"), id("cold")];
    let warm = id("warm");
    let hot = beside.join("ov/d/hot");
    let mut open = fs::File::open(&hot).unwrap();
    open.read_exact(&mut [0]).unwrap();
    let cold = fs::File::open(lower.join("low/d/cold")).unwrap();
    assert!(cachestat(&cold, 0, 0).map_or(true, |stat| stat.cache == 0));
    drop(cold);

    // In sight, they are files of the layer.
    let table = MountTable::read().unwrap();
    let resolution = resolve(&ids, &ResolveOptions::new(&table));
    assert_eq!(resolution.how, [(Method::Handle, 2)].into());
    assert!(resolution.files.iter().all(|(_, file)| file.path.starts_with(&lower)));

    // Out of sight but for one file, as in containers; and altogether.
    let detach = rustix::mount::UnmountFlags::DETACH;
    let single = beside.join("single");
    bind(&lower.join("low/single"), &single);
    rustix::mount::unmount(&lower, detach).unwrap();
    for reason in [Unnamed::NotFound, Unnamed::Unreachable] {
        let table = MountTable::read().unwrap();
        let resolution = resolve(&ids, &ResolveOptions::new(&table));
        assert_eq!(resolution.how, [(Method::Overlay, 1)].into(), "{resolution:?}");
        assert_eq!((resolution.files[0].0, &resolution.files[0].1.path), (ids[0], &hot));
        assert_eq!(resolution.unnamed, [(ids[1], reason)]);
        if reason == Unnamed::NotFound {
            rustix::mount::unmount(&single, detach).unwrap();
        }
    }

    let table = MountTable::read().unwrap();
    let options = ResolveOptions { walk: false, ..ResolveOptions::new(&table) };
    assert_eq!(resolve(&ids, &options).unnamed_by_reason(), [(Unnamed::WalkSkipped, 2)].into());
    let mut live = LiveNames::new();
    live.observe(&[std::process::id() as i32]);
    let resolution = resolve(&ids, &ResolveOptions { live: Some(&live), ..options });
    assert_eq!(resolution.how, [(Method::Overlay, 1)].into());
    assert_eq!((&resolution.files[0].1.path, resolution.walked_entries), (&hot, 0));

    // Without a walk also by an earlier name, and beside what has one.
    let earlier = [(ids[0].ino, vec![hot.clone()])].into();
    let by_name = resolve(&ids, &ResolveOptions { earlier: Some(&earlier), ..options });
    assert_eq!((by_name.how, &by_name.files[0].1.path), ([(Method::Overlay, 1)].into(), &hot));
    let path = hot.with_file_name("warm");
    fs::read(&path).unwrap();
    let ids = [ids[0], ids[1], warm];
    let beside = resolve(&ids, &ResolveOptions { earlier: Some(&earlier), ..options });
    assert_eq!(beside.how, [(Method::Overlay, 2)].into());
    assert!(beside.files.iter().any(|(id, file)| *id == warm && file.path == path));
}
