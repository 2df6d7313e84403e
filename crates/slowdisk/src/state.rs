//! What is up: one directory for each disk, with its description, the FUSE
//! mount point, the control socket and the server's messages.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::engine::Overhead;
use crate::error::{Error, Result};
use crate::model::Model;

/// A disk that is up, or was.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Disk {
    /// The image file.
    pub image: PathBuf,
    /// The model as named on the command line.
    pub model_name: String,
    /// The model.
    pub model: Model,
    /// Where its file system is mounted, if it is.
    pub mount: Option<PathBuf>,
    /// Options for mount(8).
    pub options: Option<String>,
    /// Whether writes go to the image.
    pub keep_writes: bool,
    /// Where requests are logged, if they are.
    pub log: Option<PathBuf>,
    /// The server's process.
    pub server: Option<u32>,
    /// The loop device; known once all is ready.
    pub device: Option<PathBuf>,
    /// What is taken off each modelled time.
    pub overhead: Overhead,
}

/// The directory of all disks, locked against other commands.
#[derive(Debug)]
pub struct State {
    dir: PathBuf,
    _lock: File,
}

/// One disk's directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    dir: PathBuf,
}

impl State {
    /// Opens the directory, making it if need be, and waits for the lock.
    ///
    /// # Errors
    /// When it cannot be made or locked.
    pub fn open(dir: &Path) -> Result<Self> {
        fs::create_dir_all(dir).map_err(Error::io("make", dir))?;
        let dir = fs::canonicalize(dir).map_err(Error::io("find", dir))?;
        let path = dir.join("lock");
        let lock = File::create(&path).map_err(Error::io("open", &path))?;
        lock.lock().map_err(Error::io("lock", &path))?;
        Ok(Self { dir, _lock: lock })
    }

    /// All entries, in order of their numbers.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn entries(&self) -> Result<Vec<Entry>> {
        entries(&self.dir)
    }

    /// A new entry with the next free number.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn add(&self) -> Result<Entry> {
        let last = self.entries()?.iter().filter_map(Entry::number).max();
        let dir = self.dir.join(last.map_or(0, |n| n + 1).to_string());
        fs::create_dir(&dir).map_err(Error::io("make", &dir))?;
        Ok(Entry { dir })
    }
}

/// All entries below `dir` without a lock, for commands that only look; none
/// when it does not exist.
///
/// # Errors
/// When it cannot be read.
pub fn entries(dir: &Path) -> Result<Vec<Entry>> {
    let list = match fs::read_dir(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        list => list.map_err(Error::io("list", dir))?,
    };
    let mut entries = Vec::new();
    for item in list {
        let entry = Entry { dir: item.map_err(Error::io("list", dir))?.path() };
        if entry.number().is_some() {
            entries.push(entry);
        }
    }
    entries.sort_by_key(Entry::number);
    Ok(entries)
}

impl Entry {
    /// The entry of that directory.
    pub fn at(dir: &Path) -> Self {
        Self { dir: dir.to_owned() }
    }

    /// Its directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    fn number(&self) -> Option<u32> {
        self.dir.file_name()?.to_str()?.parse().ok()
    }

    /// The file that the FUSE file system is mounted on.
    pub fn disk_file(&self) -> PathBuf {
        self.dir.join("disk")
    }

    /// Where the server's messages go.
    pub fn log(&self) -> PathBuf {
        self.dir.join("log")
    }

    /// The name that loop devices of this disk show as their backing file.
    pub fn copy_name(&self) -> String {
        format!("slowdisk{}", self.dir.display()).replace('/', "-")
    }

    /// The description; `None` when a start was broken off before it.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn load(&self) -> Result<Option<Disk>> {
        let path = self.dir.join("disk.json");
        match fs::read_to_string(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(Error::io("read", &path)(e)),
            Ok(text) => serde_json::from_str(&text)
                .map_err(|e| Error::Refused(format!("{}: {e}: remove it", path.display())))
                .map(Some),
        }
    }

    /// Writes the description, all of it or nothing.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn save(&self, disk: &Disk) -> Result<()> {
        let path = self.dir.join("disk.json");
        let new = self.dir.join("disk.json.new");
        let write = || fs::write(&new, serde_json::to_vec_pretty(disk)?);
        write().and_then(|()| fs::rename(&new, &path)).map_err(Error::io("write", &path))
    }

    /// Removes the directory.
    ///
    /// # Errors
    /// When something in it cannot be removed.
    pub fn remove(&self) -> Result<()> {
        fs::remove_dir_all(&self.dir).map_err(Error::io("remove", &self.dir))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk() -> Disk {
        Disk {
            image: "/image".into(),
            model_name: "hdd".into(),
            model: Model::find("hdd").unwrap(),
            mount: Some("/mnt".into()),
            options: None,
            keep_writes: false,
            log: None,
            server: Some(7),
            device: None,
            overhead: Overhead { fixed_ns: 1.5, per_kib_ns: 0.1 },
        }
    }

    #[test]
    fn entries_are_numbered_and_come_back_as_saved() {
        let dir = tempfile::tempdir().unwrap();
        let state = State::open(&dir.path().join("new")).unwrap();
        let first = state.add().unwrap();
        let second = state.add().unwrap();
        assert_eq!(first.load().unwrap(), None);
        second.save(&disk()).unwrap();
        assert_eq!(second.load().unwrap(), Some(disk()));
        assert_eq!(state.entries().unwrap(), [first.clone(), second.clone()]);
        first.remove().unwrap();
        assert_eq!(state.add().unwrap().dir().file_name().unwrap(), "2");
    }

    #[test]
    fn a_broken_description_names_its_file() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("disk.json"), "{").unwrap();
        let message = Entry::at(dir.path()).load().unwrap_err().to_string();
        assert!(message.contains("disk.json"), "{message}");
    }

    #[test]
    fn without_a_state_directory_nothing_is_up() {
        assert_eq!(entries(Path::new("/nonexistent/slowdisk")).unwrap(), []);
    }
}
