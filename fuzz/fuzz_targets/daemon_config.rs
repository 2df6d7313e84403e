//! `/etc/headstart/headstartd.conf`.
#![no_main]

use headstart_daemon::config::Config;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match Config::parse(text) {
        Ok(config) => {
            assert!(config.recordings > 0 && config.replays > 0 && config.trace_memory > 0);
            assert!(config.memory_percent <= 50);
            assert!(config.ignore.iter().all(|path| config.ignores(path.as_bytes())));
        }
        Err(error) => assert_eq!(error.to_string().lines().count(), 1),
    }
});
