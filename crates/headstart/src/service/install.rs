//! Installs and removes headstart for a systemd service: a drop-in that pulls in a unit of ours
//! before the service.
//!
//! The driver. The service's own lines stay, and so do its main process, notifications, user and
//! sandbox; and systemd starts the service even if our unit fails. It writes files only, so that it
//! works on an image.

use crate::boot::install::{
    InstallError, LOCAL_UNITS, PACKAGED, PACKAGED_UNITS, exists, place, remove, remove_empty,
    shown, startable, text_of, write,
};
use crate::boot::machine::{Machine, UNIT_DIRS};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// The unit that prefetches and learns, one for each service.
pub const TEMPLATE: &str = "headstart-unit@.service";
/// Its text, with the program where packages install it.
pub const TEMPLATE_TEXT: &str = include_str!("units/headstart-unit@.service");
/// How a file that we wrote begins.
const OURS: &str = "# Written by `headstart unit`";
/// The drop-in. systemd puts the service's name in for `%N`, also that of an instance.
const DROP_IN: &str = "\
# Written by `headstart unit`; `headstart unit --remove` takes it away.
[Unit]
Wants=headstart-unit@%N.service
After=headstart-unit@%N.service
";
const DROP_IN_NAME: &str = "headstart.conf";
const SUFFIX: &str = ".service";

/// Why a service can't be learned and prefetched.
#[derive(Debug, Error)]
pub enum ServiceError {
    /// It is no service.
    #[error("{0} is no service: only a service starts programs; name one, as in nginx.service")]
    Kind(String),
    /// This can't be a name.
    #[error("{0:?} can't be the name of a service; name one, as in nginx.service")]
    Name(String),
    /// It is one of ours.
    #[error("{0} is a part of headstart itself; name another service")]
    Own(String),
    /// There is none.
    #[error("There is no {0}; `systemctl list-unit-files --type=service` lists those there are")]
    Unknown(String),
    /// It never starts.
    #[error("{0} is masked, so it never starts; `systemctl unmask {0}` changes that")]
    Masked(String),
    /// It starts before packs can be read.
    #[error("{0} is a part of the early boot, which `headstart boot enable` prefetches")]
    Early(String),
    /// A file can't be changed.
    #[error(transparent)]
    Install(#[from] InstallError),
}

/// The full name of a service that a user has named.
///
/// # Errors
/// It can't be the name of a service.
pub fn full_name(name: &str) -> Result<String, ServiceError> {
    let kind = name.rsplit_once('.').map_or("", |(_, kind)| kind);
    let others = ["socket", "target", "timer", "mount", "automount", "path", "swap", "slice"];
    if others.contains(&kind) || ["scope", "device"].contains(&kind) {
        return Err(ServiceError::Kind(name.into()));
    }
    let stem = name.strip_suffix(SUFFIX).unwrap_or(name);
    let usual = |c: char| c.is_ascii_alphanumeric() || ":-_.\\@".contains(c);
    let odd = stem.is_empty() || stem.starts_with(['-', '.', '@']) || stem.len() > 200;
    if odd || !stem.chars().all(usual) {
        return Err(ServiceError::Name(name.into()));
    }
    if stem.starts_with("headstart-") {
        return Err(ServiceError::Own(name.into()));
    }
    Ok(format!("{stem}{SUFFIX}"))
}

/// Where the drop-in of a service is, by its full name.
pub fn drop_in(service: &str) -> PathBuf {
    Path::new(LOCAL_UNITS).join(format!("{service}.d")).join(DROP_IN_NAME)
}

/// Enables prefetching and learning of a service, by its full name, with `program`. Returns what
/// was done.
///
/// # Errors
/// What keeps it from working, or what can't be changed.
pub fn add(machine: &Machine, service: &str, program: &Path) -> Result<Vec<String>, ServiceError> {
    let text = unit_text(machine, service)?;
    let is_early = |line: &str| {
        let (key, value) = line.split_once('=').unwrap_or_default();
        let no = ["no", "false", "0", "off", "n", "f"];
        key.trim() == "DefaultDependencies" && no.contains(&value.trim())
    };
    if text.lines().any(is_early) {
        return Err(ServiceError::Early(service.into()));
    }
    let name = startable(machine, program)?;
    let mut files = Vec::new();
    if !exists(machine, &Path::new(PACKAGED_UNITS).join(TEMPLATE)) || name != PACKAGED {
        files.push((template(), TEMPLATE_TEXT.replace(PACKAGED, name)));
    }
    files.push((drop_in(service), DROP_IN.to_owned()));
    let is_foreign = |path: &Path| exists(machine, path) && !is_ours(machine, path);
    if let Some((path, _)) = files.iter().find(|(path, _)| is_foreign(path)) {
        return Err(InstallError::Foreign(place(machine, path)).into());
    }
    let mut done = Vec::new();
    for (path, text) in files {
        if text_of(machine, &path).as_ref() != Some(&text) {
            write(machine, &path, &text)?;
            done.push(format!("wrote {}", shown(machine, &path)));
        }
    }
    Ok(done)
}

/// Removes what [`add`] wrote for a service; with the last one also our unit. Returns
/// what was done.
///
/// # Errors
/// What can't be changed.
pub fn take_away(machine: &Machine, service: &str) -> Result<Vec<String>, ServiceError> {
    let mut done = Vec::new();
    let path = drop_in(service);
    if is_ours(machine, &path) && remove(machine, &path)? {
        done.push(format!("removed {}", shown(machine, &path)));
        // Other drop-ins may be in it.
        path.parent().map(|dir| remove_empty(machine, dir)).transpose()?;
    }
    let template = template();
    if added(machine).is_empty() && is_ours(machine, &template) && remove(machine, &template)? {
        done.push(format!("removed {}", shown(machine, &template)));
    }
    Ok(done)
}

/// The services that are learned and prefetched, by their full names.
pub fn added(machine: &Machine) -> Vec<String> {
    let Ok(below) = machine.below() else { return Vec::new() };
    let service = |name: OsString| {
        let name = name.into_string().ok()?;
        let service = name.strip_suffix(".d").filter(|name| name.ends_with(SUFFIX))?;
        is_ours(machine, &drop_in(service)).then(|| service.to_owned())
    };
    let names = below.names(Path::new(LOCAL_UNITS)).into_iter();
    let mut all: Vec<String> = names.filter_map(service).collect();
    all.sort_unstable();
    all
}

fn template() -> PathBuf {
    Path::new(LOCAL_UNITS).join(TEMPLATE)
}

fn is_ours(machine: &Machine, path: &Path) -> bool {
    text_of(machine, path).is_some_and(|text| text.starts_with(OURS))
}

/// The file of a service, or of the template that it is an instance of.
fn unit_text(machine: &Machine, service: &str) -> Result<String, ServiceError> {
    let of_template = service.split_once('@').map(|(prefix, _)| format!("{prefix}@{SUFFIX}"));
    let look = |source| InstallError::File { path: machine.place("/"), source };
    let below = machine.below().map_err(look)?;
    for name in [Some(service.to_owned()), of_template].into_iter().flatten() {
        let mut paths = UNIT_DIRS.iter().map(|dir| Path::new(dir).join(&name));
        let is_there = |path: &PathBuf| below.exists(path) || below.read_link(path).is_ok();
        let Some(path) = paths.find(is_there) else { continue };
        let is_off = below.read_link(&path).is_ok_and(|link| link == Path::new("/dev/null"));
        let text = below.bytes(&path);
        if is_off || text.as_ref().is_ok_and(Vec::is_empty) {
            return Err(ServiceError::Masked(service.into()));
        }
        // One that is no text has no line to look for.
        return Ok(text.map(|text| String::from_utf8_lossy(&text).into()).unwrap_or_default());
    }
    Err(ServiceError::Unknown(service.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn machine(units: &[(&str, &str)]) -> (tempfile::TempDir, Machine) {
        let dir = tempfile::tempdir().unwrap();
        let machine = Machine::at(dir.path());
        for (unit, text) in units {
            write(&machine, &Path::new(PACKAGED_UNITS).join(unit), text).unwrap();
        }
        (dir, machine)
    }

    const WEB: (&str, &str) =
        ("web.service", "[Service]\nType=notify\nExecStart=-@+/bin/web web\n");

    #[test]
    fn a_service_gets_a_drop_in_and_loses_it_with_all_that_came_with_it() {
        let (_dir, machine) = machine(&[WEB, ("tty@.service", "[Service]\nExecStart=/bin/tty\n")]);
        let program = Path::new("/usr/local/bin/headstart");
        assert_eq!(add(&machine, "web.service", program).unwrap().len(), 2);
        assert_eq!(add(&machine, "web.service", program).unwrap(), [""; 0]);
        assert_eq!(add(&machine, "tty@1.service", program).unwrap().len(), 1);
        assert_eq!(added(&machine), ["tty@1.service", "web.service"]);
        let text = fs::read_to_string(place(&machine, &template())).unwrap();
        assert!(text.contains("ExecStart=-/usr/local/bin/headstart unit --follow %i\n"), "{text}");
        assert!(!text.contains(PACKAGED), "{text}");
        assert_eq!(take_away(&machine, "web.service").unwrap().len(), 1);
        assert!(exists(&machine, &template()));
        assert_eq!(take_away(&machine, "tty@1.service").unwrap().len(), 2);
        let left = fs::read_dir(machine.place(LOCAL_UNITS)).unwrap().flatten();
        assert_eq!(left.map(|e| e.file_name()).collect::<Vec<_>>(), [""; 0]);
        assert_eq!(take_away(&machine, "web.service").unwrap(), [""; 0]);
    }

    #[test]
    fn the_unit_of_a_package_is_used_and_files_of_others_stay() {
        let (_dir, machine) = machine(&[WEB, (TEMPLATE, TEMPLATE_TEXT)]);
        assert_eq!(add(&machine, WEB.0, Path::new(PACKAGED)).unwrap().len(), 1);
        assert!(!exists(&machine, &template()));
        let path = place(&machine, &drop_in(WEB.0));
        write(&machine, &drop_in(WEB.0), "[Unit]\n").unwrap();
        let refused = add(&machine, WEB.0, Path::new(PACKAGED)).unwrap_err();
        assert!(matches!(refused, ServiceError::Install(InstallError::Foreign(_))), "{refused}");
        assert_eq!(take_away(&machine, WEB.0).unwrap(), [""; 0]);
        assert!(path.exists());
    }

    #[test]
    fn what_cannot_work_is_refused_in_one_sentence() {
        let early = ("early.service", "[Unit]\nDefaultDependencies = no\n");
        let (_dir, machine) = machine(&[early, ("empty.service", "")]);
        let masked = machine.place(LOCAL_UNITS).join("masked.service");
        fs::create_dir_all(masked.parent().unwrap()).unwrap();
        symlink("/dev/null", masked).unwrap();
        for (name, words) in [
            ("cups.socket", "is no service"),
            ("../x", "can't be the name"),
            ("", "can't be the name"),
            ("-x", "can't be the name"),
            ("a b", "can't be the name"),
            ("headstart-boot-record", "a part of headstart"),
            ("none", "There is no none.service"),
            ("none@1", "There is no none@1.service"),
            ("masked", "is masked"),
            ("empty.service", "is masked"),
            ("early", "early boot"),
        ] {
            let added = full_name(name).and_then(|s| add(&machine, &s, Path::new(PACKAGED)));
            let said = added.unwrap_err().to_string();
            assert!(said.contains(words), "{name}: {said}");
        }
        let web = add(&machine, "early.service", Path::new("/odd path/headstart"));
        assert!(web.is_err());
    }
}
