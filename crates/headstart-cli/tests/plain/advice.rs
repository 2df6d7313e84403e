//! Advice of `headstart faults` on small programs that show a pattern, and on the same programs without
//! it.

use crate::command::headstart;
use crate::faults::is_forbidden;
use headstart_testing::{must, python, skip};
use serde_json::Value;
use std::fs;
use std::path::Path;

/// The advice of a rule on a command, from the document that is kept; `None` where recording is
/// forbidden.
fn advice(json: &Path, options: &[&str], command: &[&str], rule: &str) -> Option<Vec<Value>> {
    let words = [&["faults", "--json", json.to_str().unwrap()], options, &["--"], command].concat();
    let output = headstart(&words);
    if is_forbidden(&output) {
        return None;
    }
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let document: Value = serde_json::from_slice(&fs::read(json).unwrap()).unwrap();
    let all = document["advice"].as_array().unwrap().iter();
    Some(all.filter(|advice| advice["rule"] == rule).cloned().collect())
}

/// Touches a page in each so many bytes of 64 MiB of new memory.
const TOUCH: &str = "
import mmap, sys
size, step = 64 << 20, int(sys.argv[1])
memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for at in range(0, size, step):
    memory[at] = 1
";

#[test]
fn memory_that_is_touched_page_by_page_gains_from_huge_pages_and_sparse_memory_does_not() {
    let setting = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    if !setting.is_ok_and(|setting| setting.contains("[madvise]")) {
        return skip("transparent huge pages are not set to madvise");
    }
    let Some(python) = python() else { return };
    let dir = tempfile::tempdir().unwrap();
    let run = |name: &str, options: &[&str], step: &str| {
        let json = dir.path().join(name);
        advice(&json, options, &[&python, "-I", "-S", "-c", TOUCH, step], "huge-pages")
    };
    let Some(dense) = run("dense", &[], "4096") else { return };
    let [found] = dense.as_slice() else { panic!("{dense:?}") };
    assert!(found["gain_ns"].as_u64() > Some(1_000_000), "{found:#}");
    assert!(found["command"].as_str().unwrap().starts_with("GLIBC_TUNABLES="), "{found:#}");
    let before = dir.path().join("dense");
    let options = ["--before", before.to_str().unwrap()];
    assert_eq!(run("sparse", &options, "2097152"), Some(vec![]));
    let sparse: Value =
        serde_json::from_slice(&fs::read(dir.path().join("sparse")).unwrap()).unwrap();
    let checked = sparse["earlier"]["advice"].as_array().unwrap().iter();
    let mut checked = checked.filter(|checked| checked["rule"] == "huge-pages");
    assert_eq!(checked.next().unwrap()["outcome"], "came-true", "{sparse:#}");
}

#[test]
fn a_program_with_many_relocations_gains_from_packing_and_one_without_does_not() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("x.c");
    let row = "&x, ".repeat(500);
    let table = format!("static int x;\nvoid *table[] = {{ {} }};\n", row.repeat(400));
    fs::write(&source, table + "int main(void) { return table[7] != &x; }\n").unwrap();
    let build = |name: &str, options: &[&str]| {
        let program = dir.path().join(name).to_str().unwrap().to_owned();
        must("gcc", &[options, &["-o", &program, source.to_str().unwrap()]].concat());
        program
    };
    let run = |program: &str| advice(&dir.path().join("json"), &[], &[program], "relocations");
    let Some(unpacked) = run(&build("pie", &["-fPIE", "-pie", "-Wl,-z,nopack-relative-relocs"]))
    else {
        return;
    };
    let [found] = unpacked.as_slice() else { panic!("{unpacked:?}") };
    // 200,000 relocations of 3.8 ns.
    assert!(found["gain_ns"].as_u64() >= Some(760_000), "{found:#}");
    assert!(found["command"].as_str().unwrap().ends_with("/pie"), "{found:#}");
    assert_eq!(run(&build("fixed", &["-fno-pie", "-no-pie"])), Some(vec![]));
}

#[test]
fn earlier_advice_is_read_before_the_program_runs() {
    let dir = tempfile::tempdir().unwrap();
    let (file, made) = (dir.path().join("old"), dir.path().join("made"));
    for (content, message) in [
        ("no json", "It is not JSON"),
        ("{\"schema\": \"headstart/run/2\"}", "no result of headstart faults"),
        ("{\"schema\": \"headstart/faults/1\"}", "an older headstart"),
    ] {
        fs::write(&file, content).unwrap();
        let words = ["faults", "--before", file.to_str().unwrap(), "touch", made.to_str().unwrap()];
        let output = headstart(&words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && said.contains(message), "{said}");
        assert!(!made.exists());
    }
}
