//! The packs of boots: which names are those of packs, and any pack by file system.
#![no_main]

use headstart::boot::pack_name::{file_name, key, parse};
use headstart::boot::split::{is_empty, share, split};
use headstart_fuzz::{check_encoding, pack};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(name) = std::str::from_utf8(data)
        && let Some((phase, key)) = parse(name)
    {
        assert_eq!(format!("{phase}@{key}.pack"), name);
    }
    let Some(whole) = pack(data) else { return };
    let shares = split(&whole);
    for (fs, part) in &shares {
        assert!(!is_empty(part));
        check_encoding(part);
        assert_eq!(parse(&file_name("system", fs)), Some(("system", key(fs).as_str())));
        assert_eq!(shares.iter().filter(|(other, _)| other.is(fs)).count(), 1);
        assert_eq!(split(part), [(fs.clone(), part.clone())]);
        assert!(share(whole.clone(), |other| other.is(fs)).is_some());
    }
});
