//! Installs and removes the units, and the options for the kernel's command line with which boots
//! are recorded from the first page, on this machine or in an image.
//!
//! The driver. It writes files and links only and starts nothing, so that it works on an image.

use super::machine::{Machine, MachineError, STATE};
use super::record::INSTANCE;
use super::root_copies;
use crate::host::names;
use crate::pack::store::below::Below;
use crate::pack::store::replaceable;
use crate::trace::decode::EVENTS;
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// The units by name.
pub const UNITS: [(&str, &str); 2] = [
    ("headstart-boot-record.service", include_str!("units/headstart-boot-record.service")),
    ("headstart-boot-replay.service", include_str!("units/headstart-boot-replay.service")),
];

/// Ends what the kernel records when nobody is left to do so: packages may be removed, and
/// programs deleted, without `headstart boot disable`. It needs nothing of ours and no shell.
const END_TRACE: &str = "headstart-boot-end-trace.service";
const END_TRACE_TEXT: &str = include_str!("units/headstart-boot-end-trace.service");
/// Where its text has what the kernel was told, and what ends that.
const OPTION: &str = "OPTION";
const ENDS: &str = "ENDS";
/// What ends the recording of each kind of kernel: removing the instance; disabling the
/// events of the global one, which opening this file for writing does.
const REMOVE_INSTANCE: &str = "/bin/rmdir /sys/kernel/tracing/instances/headstart-boot";
const DISABLE_EVENTS: &str = "/bin/cp /dev/null /sys/kernel/tracing/set_event";

/// The program in the units, where packages install it.
pub(crate) const PACKAGED: &str = "/usr/bin/headstart";
/// Where units of this machine are, and those of packages.
pub(crate) const LOCAL_UNITS: &str = "/etc/systemd/system";
pub(crate) const PACKAGED_UNITS: &str = "/usr/lib/systemd/system";
/// What wants them.
const WANTS: &str = "sysinit.target.wants";
/// How a unit tells its program; what comes of that is ignored.
const STARTS: &str = "ExecStart=-";
/// How a unit that we wrote begins.
const OURS: &str = "# Written by `headstart boot enable`";
/// The command line of kernels that are installed by kernel-install(8).
const KERNEL_CMDLINE: &str = "/etc/kernel/cmdline";
/// Ours among the settings of GRUB, where its distribution reads several.
const GRUB: &str = "/etc/default/grub.d/headstart.cfg";
/// The first kernel whose command line can make a trace instance.
const WITH_INSTANCES: (u32, u32) = (6, 4);
/// Of one CPU; what comes until the recorder is there.
const BUFFER: &str = "4M";

/// What could not be put there or taken away.
#[derive(Debug, Error)]
pub enum InstallError {
    /// A file can't be written or removed.
    #[error("Can't change {path}; is the file system writable, and are you root?", path = names::path(.path))]
    File {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// A file of ours.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// A unit of this name is somebody else's.
    #[error("{} is not from headstart; move it away first", names::path(.0))]
    Foreign(PathBuf),
    /// The program can't be named in a unit.
    #[error("A unit can't start {}: copy headstart to /usr/local/bin", names::path(.0))]
    Program(PathBuf),
    /// Another user could replace the program.
    #[error(
        "A unit of root won't start {path}: {why}, or copy headstart to /usr/local/bin",
        path = names::path(.path)
    )]
    Replaceable {
        /// The program.
        path: PathBuf,
        /// By what.
        why: String,
    },
    /// The program can't be looked at.
    #[error("Can't look at {path}", path = names::path(.path))]
    Look {
        /// The program.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// There is no known way to change the command line.
    #[error("How this machine boots is not known: add `{0}` to the kernel's command line by hand")]
    Loader(String),
}

/// What the kernel's command line needs: an instance where kernels know them, else the
/// global buffer. `release` is the kernel's, as `6.1.0-18-amd64`.
pub fn kernel_words(release: &str) -> String {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let names: Vec<String> = EVENTS.iter().map(|(g, n, _)| format!("{g}:{n}")).collect();
    let names = names.join(",");
    if version >= WITH_INSTANCES {
        format!("trace_instance={INSTANCE},{names} trace_buf_size={BUFFER}")
    } else {
        format!("trace_event={names} trace_buf_size={BUFFER}")
    }
}

/// Puts the units there and enables them. `program` is headstart as the machine sees
/// it, and `words` are for the kernel's command line. Tells what was done.
///
/// # Errors
/// What can't be changed.
pub fn enable(machine: &Machine, program: &Path, words: &str) -> Result<Vec<String>, InstallError> {
    let name = startable(machine, program)?;
    let mut done = Vec::new();
    for (unit, text) in UNITS {
        let packaged = Path::new(PACKAGED_UNITS).join(unit);
        let local = Path::new(LOCAL_UNITS).join(unit);
        let mut target = &packaged;
        if !exists(machine, &packaged) || name != PACKAGED {
            target = &local;
            let there = text_of(machine, &local);
            if there.as_ref().is_some_and(|text| !text.starts_with(OURS)) {
                return Err(InstallError::Foreign(place(machine, &local)));
            }
            let text = text.replace(PACKAGED, name);
            if there.as_ref() != Some(&text) {
                write(machine, &local, &text)?;
                done.push(format!("wrote {}", shown(machine, &local)));
            }
        }
        if want(machine, unit, target)? {
            done.push(format!("enabled {unit}"));
        }
    }
    // Never that of a package, which the package removes.
    let local = Path::new(LOCAL_UNITS).join(END_TRACE);
    let text = end_trace(name, words);
    if text_of(machine, &local).as_ref() != Some(&text) {
        write(machine, &local, &text)?;
    }
    want(machine, END_TRACE, &local)?;
    Ok(done)
}

/// The unit that ends what the kernel was told to record, if `program` is gone.
fn end_trace(program: &str, words: &str) -> String {
    let option = words.split(' ').next().unwrap_or_default();
    let is_instance = option.starts_with("trace_instance=");
    let ends = if is_instance { REMOVE_INSTANCE } else { DISABLE_EVENTS };
    END_TRACE_TEXT.replace(PACKAGED, program).replace(OPTION, option).replace(ENDS, ends)
}

/// Makes the link that enables a unit; whether it was not there.
fn want(machine: &Machine, unit: &str, target: &Path) -> Result<bool, InstallError> {
    let link = wanted(unit);
    let is_there = |below: &Below| below.read_link(&link).is_ok_and(|is| is == target);
    let made = machine.below().and_then(|below| {
        let is_there = is_there(&below);
        if !is_there {
            below.link(target, &link)?;
        }
        Ok(!is_there)
    });
    made.map_err(|source| InstallError::File { path: place(machine, &link), source })
}

/// The name of a program, as the machine sees it, for a unit of root to start: nobody else can
/// put another one in its place. In an image that a user builds this user can.
///
/// # Errors
/// It can't be named in a unit, or another user could replace it.
pub(crate) fn startable<'a>(machine: &Machine, program: &'a Path) -> Result<&'a str, InstallError> {
    let name = program.to_str().filter(|name| is_plain(name));
    let name = name.ok_or_else(|| InstallError::Program(program.into()))?;
    let uid = rustix::process::geteuid().as_raw();
    match replaceable(&machine.place("/"), program, uid) {
        Ok(None) => Ok(name),
        Ok(Some(why)) => Err(InstallError::Replaceable { path: program.into(), why }),
        Err(source) => Err(InstallError::Look { path: program.into(), source }),
    }
}

/// Adds to the kernel's command line what recording from the first page takes. Tells
/// what was done, and what is left to be done by hand.
///
/// # Errors
/// What can't be changed, or that it is not known how.
pub fn add_kernel_words(machine: &Machine, words: &str) -> Result<Vec<String>, InstallError> {
    let mut done = remove_kernel_words(machine)?;
    done.clear();
    let cmdline = Path::new(KERNEL_CMDLINE);
    if let Some(text) = text_of(machine, cmdline) {
        write(machine, cmdline, &with_words(&text, words))?;
        done.push(format!("added to {}: {words}", shown(machine, cmdline)));
        done.push("run `kernel-install add-all`, or what else makes the loader's entries".into());
        return Ok(done);
    }
    let is_there = |path: &str| exists(machine, Path::new(path));
    let is_dir = machine.below().is_ok_and(|b| b.is_dir(Path::new("/etc/default/grub.d")));
    if is_there("/etc/default/grub") && (is_dir || is_there("/usr/sbin/update-grub")) {
        let line = format!("GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX {words}\"");
        let grub = Path::new(GRUB);
        write(machine, grub, &format!("# Written by `headstart boot enable`.\n{line}\n"))?;
        done.push(format!("wrote {}", shown(machine, grub)));
        done.push("run `update-grub` to let it take effect".into());
        return Ok(done);
    }
    Err(InstallError::Loader(words.into()))
}

/// A command line with these words at its end, before the blanks and line breaks that it ends
/// with.
fn with_words(text: &str, words: &str) -> String {
    let line = text.trim_end();
    let gap = if line.is_empty() { "" } else { " " };
    format!("{line}{gap}{words}{}", &text[line.len()..])
}

/// Disables and removes what [`enable`] and [`add_kernel_words`] left. Tells what was
/// done.
///
/// # Errors
/// What can't be changed.
pub fn disable(machine: &Machine) -> Result<Vec<String>, InstallError> {
    let mut done = Vec::new();
    for unit in UNITS.iter().map(|(unit, _)| *unit).chain([END_TRACE]) {
        if remove(machine, &wanted(unit))? && unit != END_TRACE {
            done.push(format!("disabled {unit}"));
        }
        let path = Path::new(LOCAL_UNITS).join(unit);
        let ours = text_of(machine, &path).is_some_and(|text| text.starts_with(OURS));
        if ours && remove(machine, &path)? {
            done.push(format!("removed {}", shown(machine, &path)));
        }
    }
    remove_empty(machine, &Path::new(LOCAL_UNITS).join(WANTS))?;
    done.extend(remove_kernel_words(machine)?);
    Ok(done)
}

/// Removes all packs and the history of boots; whether there were any.
///
/// # Errors
/// They can't be removed.
pub fn purge(machine: &Machine) -> Result<bool, InstallError> {
    let path = machine.state();
    let copies = root_copies::purge(machine);
    let copies = copies.map_err(|source| InstallError::File { path: path.clone(), source })?;
    let removed = machine.below().and_then(|below| below.remove_all(Path::new(STATE)));
    let removed = removed.map_err(|source| InstallError::File { path, source })?;
    Ok(removed || copies)
}

/// Which units are enabled.
pub fn enabled(machine: &Machine) -> Vec<&'static str> {
    let Ok(below) = machine.below() else { return Vec::new() };
    let is = |unit: &&str| below.read_link(&wanted(unit)).is_ok();
    UNITS.iter().map(|(unit, _)| *unit).filter(is).collect()
}

fn remove_kernel_words(machine: &Machine) -> Result<Vec<String>, InstallError> {
    let mut done = Vec::new();
    let grub = Path::new(GRUB);
    if remove(machine, grub)? {
        done.push(format!("removed {}; run `update-grub`", shown(machine, grub)));
    }
    let cmdline = Path::new(KERNEL_CMDLINE);
    if let Some(text) = text_of(machine, cmdline) {
        let without = without_ours(&text);
        if without != text {
            write(machine, cmdline, &without)?;
            done.push(format!("removed headstart's words from {}", shown(machine, cmdline)));
        }
    }
    Ok(done)
}

/// A command line without our words, of whichever kernel they are.
pub fn without_ours(text: &str) -> String {
    let mut out = text.to_owned();
    for words in [kernel_words("6.4"), kernel_words("6.1")] {
        out = out.replace(&format!(" {words}"), "").replace(&words, "");
    }
    out
}

/// The program of the recorder as its unit has it.
pub(crate) fn recorder(machine: &Machine) -> String {
    let unit = Path::new(LOCAL_UNITS).join(UNITS[0].0);
    let text = text_of(machine, &unit).unwrap_or_default();
    let program = text.lines().find_map(|line| line.strip_prefix(STARTS)?.split(' ').next());
    program.unwrap_or(PACKAGED).to_owned()
}

/// The link that enables a unit.
fn wanted(unit: &str) -> PathBuf {
    Path::new(LOCAL_UNITS).join(WANTS).join(unit)
}

pub(crate) fn place(machine: &Machine, path: &Path) -> PathBuf {
    machine.place(&path.to_string_lossy())
}

/// Whether a unit takes this path as it is (systemd.service(5), "COMMAND LINES").
pub(crate) fn is_plain(path: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+".contains(c);
    path.starts_with('/') && path.chars().all(plain)
}

/// A path on a machine as it is seen from here, for people.
pub(crate) fn shown(machine: &Machine, path: &Path) -> String {
    names::path(&place(machine, path)).to_string()
}

/// The text of a file of a machine, if it can be read.
pub(crate) fn text_of(machine: &Machine, path: &Path) -> Option<String> {
    machine.below().and_then(|below| below.text(path)).ok()
}

pub(crate) fn exists(machine: &Machine, path: &Path) -> bool {
    machine.below().is_ok_and(|below| below.exists(path))
}

pub(crate) fn write(machine: &Machine, path: &Path, text: &str) -> Result<(), InstallError> {
    let written = machine.below().and_then(|below| below.write(path, text.as_bytes()));
    written.map_err(|source| InstallError::File { path: place(machine, path), source })
}

/// Removes a file; whether there was one.
pub(crate) fn remove(machine: &Machine, path: &Path) -> Result<bool, InstallError> {
    let removed = machine.below().and_then(|below| below.remove(path));
    removed.map_err(|source| InstallError::File { path: place(machine, path), source })
}

/// Removes a directory if nothing is left in it; whether it did.
pub(crate) fn remove_empty(machine: &Machine, path: &Path) -> Result<bool, InstallError> {
    let removed = machine.below().and_then(|below| below.remove_empty(path));
    removed.map_err(|source| InstallError::File { path: place(machine, path), source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const WORDS: &str = "trace_instance=headstart-boot,a:b trace_buf_size=4M";

    fn tree(root: &Path) -> Vec<(PathBuf, String)> {
        let mut out = Vec::new();
        let mut dirs = vec![root.to_owned()];
        while let Some(dir) = dirs.pop() {
            for entry in fs::read_dir(dir).unwrap().flatten() {
                if entry.file_type().unwrap().is_dir() {
                    dirs.push(entry.path());
                } else {
                    let text = match fs::read_link(entry.path()) {
                        Ok(target) => target.to_string_lossy().into_owned(),
                        Err(_) => fs::read_to_string(entry.path()).unwrap(),
                    };
                    out.push((entry.path(), text));
                }
            }
        }
        out.sort();
        out
    }

    #[test]
    fn each_kernel_is_told_in_words_that_it_knows() {
        for (release, expected) in [
            ("6.4.0", "trace_instance=headstart-boot,filemap:"),
            ("7.0-rc1", "trace_instance="),
            ("6.1.0-18-amd64", "trace_event=filemap:"),
            ("5.15", "trace_event="),
            ("odd", "trace_event="),
        ] {
            assert!(kernel_words(release).starts_with(expected), "{release}");
        }
    }

    #[test]
    fn what_enable_leaves_disable_takes_away_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let machine = Machine::at(dir.path());
        for (path, text) in [
            ("/etc/kernel/cmdline", "root=/dev/sda1 quiet\n"),
            ("/etc/systemd/system/other.service", "[Unit]\n"),
        ] {
            write(&machine, Path::new(path), text).unwrap();
        }
        let before = tree(dir.path());
        let program = Path::new("/usr/local/bin/headstart");
        assert_eq!(enable(&machine, program, WORDS).unwrap().len(), 4);
        assert_eq!(enabled(&machine).len(), 2);
        let unit = machine.place("/etc/systemd/system/headstart-boot-record.service");
        let text = fs::read_to_string(unit).unwrap();
        assert!(text.contains("ExecStart=-/usr/local/bin/headstart boot record\n"), "{text}");
        for _ in 0..2 {
            add_kernel_words(&machine, &kernel_words("6.12")).unwrap();
        }
        let cmdline = fs::read_to_string(machine.place("/etc/kernel/cmdline")).unwrap();
        assert!(cmdline.starts_with("root=/dev/sda1 quiet trace_instance="), "{cmdline}");
        assert_eq!(cmdline.matches("trace_instance").count(), 1);
        let after = tree(dir.path());
        assert_eq!(enable(&machine, program, WORDS).unwrap(), [""; 0]);
        assert_eq!(tree(dir.path()), after);
        assert_eq!(disable(&machine).unwrap().len(), 6);
        assert_eq!(tree(dir.path()), before);
        assert_eq!(disable(&machine).unwrap(), [""; 0]);
    }

    #[test]
    fn units_of_a_package_are_only_linked_and_those_of_others_stay() {
        let dir = tempfile::tempdir().unwrap();
        let machine = Machine::at(dir.path());
        for (unit, text) in UNITS {
            write(&machine, &Path::new(PACKAGED_UNITS).join(unit), text).unwrap();
        }
        assert_eq!(enable(&machine, Path::new(PACKAGED), WORDS).unwrap().len(), 2);
        let link = fs::read_link(place(&machine, &wanted(UNITS[0].0))).unwrap();
        assert_eq!(link, Path::new(PACKAGED_UNITS).join(UNITS[0].0));
        let own = place(&machine, &Path::new(LOCAL_UNITS).join(UNITS[0].0));
        fs::write(&own, "[Unit]\nDescription=mine\n").unwrap();
        let refused = enable(&machine, Path::new("/usr/local/bin/headstart"), WORDS);
        assert!(matches!(refused, Err(InstallError::Foreign(_))));
        disable(&machine).unwrap();
        assert!(own.exists());
        let odd = enable(&machine, Path::new("/home/me/my programs/headstart"), WORDS);
        assert!(matches!(odd, Err(InstallError::Program(_))));
    }

    #[test]
    fn what_the_kernel_records_is_ended_without_us_by_what_it_was_told() {
        for (release, ends) in [("6.12", REMOVE_INSTANCE), ("6.1", DISABLE_EVENTS)] {
            let text = end_trace("/opt/headstart", &kernel_words(release));
            let option = kernel_words(release).split(' ').next().unwrap().to_owned();
            for line in [
                format!("ConditionKernelCommandLine={option}"),
                format!("ExecStart=-{ends}"),
                "ConditionFileIsExecutable=!/opt/headstart".to_owned(),
            ] {
                assert!(text.lines().any(|l| l == line), "{line} in {text}");
            }
        }
    }

    #[test]
    fn grub_gets_a_file_of_its_own_and_an_unknown_loader_a_word() {
        let dir = tempfile::tempdir().unwrap();
        let machine = Machine::at(dir.path());
        let words = kernel_words("6.1");
        let refused = add_kernel_words(&machine, &words).unwrap_err().to_string();
        assert!(refused.contains(&words), "{refused}");
        write(&machine, Path::new("/etc/default/grub"), "").unwrap();
        write(&machine, Path::new("/usr/sbin/update-grub"), "").unwrap();
        add_kernel_words(&machine, &words).unwrap();
        let text = fs::read_to_string(machine.place(GRUB)).unwrap();
        assert!(text.ends_with(&format!("\"$GRUB_CMDLINE_LINUX {words}\"\n")), "{text}");
        assert_eq!(disable(&machine).unwrap().len(), 1);
        assert!(!machine.place(GRUB).exists());
    }
}
