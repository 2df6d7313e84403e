//! Packs on a file system that is mounted later are found before that, below its mount
//! point.

use headstart::boot::machine::Machine;
use headstart::boot::root_copies;
use headstart::pack::FileSystem;
use headstart_testing::{root_or_skip, run, run_inner, variable};
use std::path::PathBuf;
use std::{env, fs};

#[test]
fn packs_are_also_found_before_the_file_system_they_are_on_is_mounted() {
    if !root_or_skip() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("var")).unwrap();
    let wrapper = ["unshare", "-m", "--propagation", "private"];
    let variables = [("INNER_ROOT", dir.path().to_str().unwrap().to_owned())];
    run_inner(
        concat!(module_path!(), "::with_a_var_of_its_own"),
        &wrapper,
        &env::current_exe().unwrap(),
        &variables,
    );
}

#[test]
#[ignore = "started by another test"]
fn with_a_var_of_its_own() {
    let Some(root) = variable("INNER_ROOT").map(PathBuf::from) else { return };
    let machine = Machine::at(&root);
    let on = |tag| FileSystem { uuid: Some([tag; 16]), ..FileSystem::default() };
    let (pack, gone) = (machine.pack("mounts", &on(1)), machine.pack("mounts", &on(2)));
    fs::create_dir_all(machine.state()).unwrap();
    fs::write(&gone, "of what is not learned any more").unwrap();
    let other = machine.state().join("mounts.pack");
    fs::write(&other, "no pack of a boot").unwrap();
    let var = root.join("var");
    let var = var.to_str().unwrap();
    let keep = |text: &str| {
        fs::create_dir_all(machine.state()).unwrap();
        fs::write(&pack, text).unwrap();
        root_copies::keep(&machine).unwrap();
    };
    for text in ["one", "another"] {
        run("mount", &["-t", "tmpfs", "-o", "mode=755", "none", var]).unwrap();
        keep(text);
        run("umount", &[var]).unwrap();
        assert_eq!(fs::read_to_string(&pack).unwrap(), text);
        assert!(!gone.exists() && other.exists());
        assert!(!machine.pack("system", &on(1)).exists());
    }
    // Without another file system they are the packs themselves.
    keep("all");
    assert!(!root_copies::purge(&machine).unwrap());
    assert_eq!(fs::read_to_string(&pack).unwrap(), "all");
    run("mount", &["-t", "tmpfs", "-o", "mode=755", "none", var]).unwrap();
    fs::create_dir_all(machine.state()).unwrap();
    assert!(root_copies::purge(&machine).unwrap());
    run("umount", &[var]).unwrap();
    assert!(!pack.exists());
}
