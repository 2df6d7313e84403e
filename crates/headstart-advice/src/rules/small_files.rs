//! Many small files: each is a request of its own, also if it is prefetched.

use super::found::Found;
use crate::advice::{Rule, Start};
use crate::facts::Facts;
use crate::text::{number, path, size, time};
use headstart::pack::Pack;
use headstart::replay::benefit::WINDOW;
use headstart::replay::model::Model;
use headstart::replay::strategy::Order;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Files below this size are small, in bytes.
const SMALL: u64 = 64 << 10;
/// Fewer gain too little.
const LEAST: u64 = 100;

pub(super) fn apply(facts: &Facts) -> Vec<Found> {
    of_pack(facts).into_iter().collect()
}

fn of_pack(facts: &Facts) -> Option<Found> {
    let (pack, model) = (&facts.learned.as_ref()?.pack, facts.model?);
    let small = Small::of(pack);
    if small.count < LEAST {
        return None;
    }
    let each_us = request_us(&model);
    let windows = small.bytes.div_ceil(WINDOW);
    let saved = small.count.saturating_sub(windows);
    let dir = path(&small.directory);
    let (command, note) = if small.of_python * 2 >= small.count {
        // Modules are compiled beside their source: zipimport does not look into __pycache__.
        (
            format!(
                "cp -r {dir} modules && python3 -m compileall -qb modules && \
                 (cd modules && zip -0qr ../modules.zip . -x '*__pycache__*')"
            ),
            "then start it with PYTHONPATH=modules.zip".to_owned(),
        )
    } else {
        (
            format!("mkfs.erofs files.erofs {dir}"),
            format!("then sudo mount -o loop files.erofs {dir}"),
        )
    };
    Some(Found {
        rule: Rule::SmallFiles,
        file: None,
        evidence: format!(
            "the learned starts read {} files below {} with {} in all, most of them under {dir}; even \
             prefetched, each is a request",
            number(small.count),
            size(SMALL),
            size(small.bytes),
        ),
        start: Start::Cold,
        gain_ns: saved as f64 * each_us * 1e3,
        formula: format!(
            "({} − {} requests of {}) × {} a request of the device",
            number(small.count),
            number(windows),
            size(WINDOW),
            time((each_us * 1e3) as u64)
        ),
        command,
        note,
        lowers: None,
    })
}

/// What a request takes of the time of a device that has others in flight, in µs.
fn request_us(model: &Model) -> f64 {
    if model.depth == 1 || model.order() == Order::Elevator {
        f64::from(model.next_us)
    } else {
        1e6 / f64::from(model.request_rate())
    }
}

/// Small files of a pack.
struct Small {
    count: u64,
    bytes: u64,
    of_python: u64,
    /// Of all directories with half of them below, the innermost.
    directory: PathBuf,
}

impl Small {
    fn of(pack: &Pack) -> Self {
        let mut small =
            Self { count: 0, bytes: 0, of_python: 0, directory: Path::new("/").to_owned() };
        let mut below: BTreeMap<PathBuf, u64> = BTreeMap::new();
        let files = pack.files.iter().filter(|file| (1..SMALL).contains(&file.identity.size));
        for file in files {
            small.count += 1;
            small.bytes = small.bytes.saturating_add(file.identity.size);
            let name = pack.paths.path(file.node);
            let extension = name.extension().and_then(|extension| extension.to_str());
            small.of_python += u64::from(matches!(extension, Some("py" | "pyc")));
            // Modules belong to the directory of their source.
            for directory in name.ancestors().skip(1).filter(|it| !it.ends_with("__pycache__")) {
                *below.entry(directory.to_owned()).or_default() += 1;
            }
        }
        let half = below.into_iter().filter(|(_, count)| count * 2 >= small.count);
        if let Some((directory, _)) = half.max_by_key(|(path, _)| path.components().count()) {
            small.directory = directory;
        }
        small
    }
}

#[cfg(test)]
mod tests {
    use super::super::examples::CLOUD;
    use super::*;
    use crate::facts::Learned;
    use headstart::pack::paths::PathInterner;
    use headstart::pack::{File, Identity};

    fn facts(files: u64, size: u64, extension: &str) -> Facts {
        facts_of(size, (0..files).map(|n| format!("/usr/lib/x/{}/m{n}.{extension}", n % 7)))
    }

    fn facts_of(size: u64, names: impl Iterator<Item = String>) -> Facts {
        let mut paths = PathInterner::default();
        let mut pack = Pack::default();
        for path in names {
            let node = paths.intern(Path::new(&path)).unwrap();
            let identity = Identity { size, ..Identity::default() };
            pack.files.push(File { node, identity, ..File::default() });
        }
        pack.paths = paths.finish();
        let learned = Some(Learned { pack, ..Learned::default() });
        Facts { learned, model: Some(CLOUD), ..Facts::default() }
    }

    #[test]
    fn compiled_modules_are_packed_with_their_source() {
        let names = (0..200).map(|n| format!("/usr/lib/x/__pycache__/m{n}.pyc"));
        let found = apply(&facts_of(8 << 10, names)).pop().unwrap();
        assert!(found.command.starts_with("cp -r /usr/lib/x modules && "), "{}", found.command);
    }

    #[test]
    fn many_small_files_are_a_request_each_and_one_file_is_few() {
        for (name, files, size, extension, saved) in [
            ("modules", 640, 8 << 10, "pyc", Some(600)),
            ("icons", 640, 8 << 10, "png", Some(600)),
            ("few", 99, 8 << 10, "pyc", None),
            ("large", 640, 64 << 10, "pyc", None),
        ] {
            let found = apply(&facts(files, size, extension)).pop();
            // 3,000 requests a second.
            let gain = found.as_ref().map(|found| (found.gain_ns / 1e9 * 3000.0).round() as u64);
            assert_eq!(gain, saved, "{name}");
            if let Some(found) = found {
                let command =
                    if extension == "pyc" { "cp -r /usr/lib/x modules" } else { "mkfs.erofs" };
                assert!(found.command.starts_with(command), "{}", found.command);
                assert!(!found.command.contains(", "), "it is for a shell: {}", found.command);
            }
        }
    }
}
