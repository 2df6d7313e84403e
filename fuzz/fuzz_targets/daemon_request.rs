//! What a client says to the service.
#![no_main]

use headstart_daemon::control::request::parse;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(request) = parse(data) {
        let line = request.line();
        assert_eq!(parse(&line[..line.len() - 1]).as_ref(), Ok(&request));
        // Root may do what anybody may.
        assert!(request.check(0).is_ok());
    }
});
