//! What the service reads at a login: programs that were pinned, and those that followed earlier logins.

use crate::daemon::{FILES, Service, learned_program, resident_files};
use headstart_testing::{is_root, skip, wait_until};
use serde_json::Value;
use std::path::Path;

#[test]
fn a_login_prefetches_pinned_programs_and_what_was_forgotten_is_not_read() {
    if !is_root() {
        return skip("tracing needs root");
    }
    let Some((service, fs)) = learned_program("") else { return };
    let login_pack = service.dir.path().join("state/login/0.pack");
    let name = service.programs().into_iter().find(|name| name.ends_with("reader.py")).unwrap();
    assert!(!login_pack.exists(), "one program is not likely to follow a login");
    assert!(service.ask(&["pin", &name]).status.success());
    wait_until("login pack", || login_pack.exists().then_some(()));

    fs.remount();
    assert_eq!(resident_files(&fs), 0);
    service.login();
    // Of some a page at the end is not learned.
    wait_until("prefetched files", || (resident_files(&fs) * 2 >= FILES).then_some(()));
    let counters = &service.json(&["status"])["status"]["counters"];
    assert_eq!(counters["logins"], 1, "{counters}");

    assert!(service.ask(&["forget", &name]).status.success());
    wait_until("end of the login pack", || (!login_pack.exists()).then_some(()));
}

#[test]
fn a_program_that_followed_each_login_is_predicted_if_that_is_switched_on() {
    if !is_root() {
        return skip("tracing needs root");
    }
    let Some((mut service, fs)) = learned_program("") else { return };
    let path = |name: &str| service.dir.path().join(name);
    let (conf, state) = (path("conf"), path("state/state.json"));
    let session = path("sessions/1");
    assert!(service.ask(&["off"]).status.success());
    assert!(service.child.wait().unwrap().success());

    // Sixteen logins that it followed.
    let read =
        |path: &Path| serde_json::from_slice::<Value>(&std::fs::read(path).unwrap()).unwrap();
    let mut known = read(&state);
    let programs = known["programs"].as_array().unwrap();
    let is_ours = |program: &&Value| program[1]["name"].as_str().unwrap().ends_with("reader.py");
    let pack = programs.iter().find(is_ours).unwrap()[0]["file_name"].as_str().unwrap().to_owned();
    let followers = serde_json::json!({ pack: { "times": 4096, "after_ms": 1000 } });
    known["model"] =
        serde_json::json!({ "0": { "login": { "times": 4096, "at": 1, "followers": followers } } });
    std::fs::write(&state, known.to_string()).unwrap();
    for predict in [false, true] {
        let word = if predict { "yes" } else { "no" };
        std::fs::write(&conf, format!("login-memory = 0\npredict = {word}\n")).unwrap();
        // A session that is there counts as a login, if it is new.
        let _ = std::fs::remove_file(&session);
        service.child = Service::spawn(service.dir.path());
        service.wait_until_it_answers();
        fs.remount();
        service.believes_slow(&fs);
        service.login();
        wait_until("login", || {
            let counters = &service.json(&["status"])["status"]["counters"];
            (counters["logins"] == 1).then_some(())
        });
        if predict {
            wait_until("prefetched files", || (resident_files(&fs) * 2 >= FILES).then_some(()));
        }
        // Without starts, also of other programs on this machine, which are in the sums of the week as well.
        let early = |known: &Value, what: &str| {
            let programs = known["programs"].as_array().unwrap().iter();
            let starts: u64 = programs.filter_map(|program| program[1][what].as_u64()).sum();
            known["week"][what].as_u64().unwrap() - starts
        };
        // What is in flight comes before the end.
        let before = early(&read(&state), "read_bytes");
        assert!(service.ask(&["off"]).status.success());
        assert!(service.child.wait().unwrap().success());
        assert_eq!(resident_files(&fs) * 2 >= FILES, predict);
        let after = read(&state);
        let read_bytes = early(&after, "read_bytes") - before;
        assert_eq!(read_bytes > 0, predict, "{after}");
        // Nobody started it.
        assert_eq!(early(&after, "wasted_bytes"), read_bytes, "{after}");
    }
}
