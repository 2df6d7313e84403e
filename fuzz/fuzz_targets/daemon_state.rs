//! The state file of the service.
#![no_main]

use headstart_daemon::programs::table::MOST;
use headstart_daemon::state::{decode, encode};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    match decode(data) {
        Ok(state) => {
            assert!(state.table.len() <= MOST);
            assert!(state.table.iter().all(|(id, _)| !id.file_name.contains('/')));
            // Only what is worth remembering is written, and that comes back.
            let written = decode(&encode(&state)).expect("it was read before");
            assert_eq!(encode(&written), encode(&state));
        }
        Err(error) => assert_eq!(error.to_string().lines().count(), 1),
    }
});
