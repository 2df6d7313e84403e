//! A command line becomes the name of a file in the store, whatever its words are: words end at
//! zero bytes.
#![no_main]

use headstart::host::names::is_visible;
use headstart::pack::key::{Key, program_of};
use libfuzzer_sys::fuzz_target;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

fuzz_target!(|data: &[u8]| {
    let argv: Vec<OsString> =
        data.split(|byte| *byte == 0).map(|word| OsString::from_vec(word.to_vec())).collect();
    let locate = |word: &OsStr| -> Option<PathBuf> {
        Some(Path::new("/usr/bin").join(Path::new(word).file_name()?))
    };
    let key = Key::of_command(&argv, locate);
    assert_eq!(key.file_name, Key::of_command(&argv, locate).file_name);
    let names = key.file_names();
    assert_eq!(names.last(), Some(&key.file_name));
    for name in &names {
        assert!(name.len() < 128 && !name.starts_with('.') && !name.contains('/'));
        assert!(name.chars().all(is_visible));
        assert_eq!(program_of(name), program_of(&key.file_name));
        assert!(program_of(name).is_some());
    }
    for (number, name) in names.iter().enumerate() {
        let narrower = key.narrower(OsStr::from_bytes(name.as_bytes()));
        let expected = number.checked_sub(1).map(|above| names[above].clone());
        assert_eq!(narrower.map(|key| key.file_name), expected);
    }
    let by_name = Key::of_name(&String::from_utf8_lossy(data));
    assert!(by_name.file_name.len() < 128 && !by_name.file_name.contains('/'));
});
