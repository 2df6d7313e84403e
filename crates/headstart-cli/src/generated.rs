//! The man pages and shell completions in `dist/`, made from the definition of the command line.
//! The test fails when those in the tree are out of date, and says how to make them again.
//!
//! Only compiled for tests: the command contains nothing of this.

use crate::cli::Cli;
use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use headstart::service::install as service;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// When this variable is set, the files are written instead of compared.
const REGENERATE: &str = "HEADSTART_REGENERATE";
/// How a paragraph of a verb's help begins that is the page's EXIT STATUS.
const EXIT_STATUS: &str = "Exit status: ";

const DESCRIPTION: &str = "headstart learns which pages of which files a program touches when it \
                           starts, and prefetches them the next time. What it \
                           learns of a program is kept in a file, its pack.";

type Items = &'static [(&'static str, &'static str)];

/// Sections of the main page that its definition does not tell.
const SECTIONS: [(&str, Items); 4] = [
    (
        "EXAMPLES",
        &[
            (
                "headstart run -- python3 app.py",
                "Starts a program. Its first starts are learned, later ones where that costs \
                 little, and from the second on its files are prefetched.",
            ),
            (
                "headstart show /var/lib/headstart/packs/python3-app.py-*.pack",
                "Shows what was learned.",
            ),
            (
                "headstart replay --wait /var/lib/headstart/packs/postgres-*.pack",
                "Prefetches what a program needs that is started by something else.",
            ),
            (
                "headstart pages --list /usr/lib/libreoffice > list; headstart replay list",
                "Keeps what is in memory now, and brings it back after a reboot.",
            ),
        ],
    ),
    (
        "EXIT STATUS",
        &[
            ("0", "All was done."),
            ("1", "It failed, or a part of it did."),
            ("2", "The command line is wrong."),
            ("3", "It was done, and the answer is no: packs differ, files changed, pages stayed."),
            ("4", "This user lacks a permission."),
            ("5", "This kernel lacks a feature."),
            (
                "any",
                "headstart run, record, faults and elf order pass on the status of the program: \
                 128 + n when signal n killed it, 127 when it was not found, 126 when it can't be executed.",
            ),
        ],
    ),
    (
        "ENVIRONMENT",
        &[
            ("HEADSTART_PACKS", "The only directory for packs, an absolute path."),
            (
                "XDG_STATE_HOME",
                "The directory above headstart/packs where users other than root have their \
                 packs; by default ~/.local/state.",
            ),
            ("PATH", "Where programs are looked for, and with that which pack is theirs."),
            ("COLUMNS", "The width of maps, instead of that of the terminal."),
            ("NO_COLOR", "When it is set and not empty, nothing is coloured."),
        ],
    ),
    (
        "FILES",
        &[
            ("/var/lib/headstart/packs/", "Packs that this machine learned as root."),
            ("/var/lib/headstart/shared/", "Copies of them that root shares with all users."),
            (
                "/usr/lib/headstart/packs/",
                "Packs that came with a package or an image; used where there is no other.",
            ),
            (
                "/var/lib/headstart/boot/, /usr/lib/headstart/boot/",
                "Packs of boots by phase and file system, PHASE@KEY.pack, and the history of the \
                 last eight boots.",
            ),
            (
                "PACK.last",
                "Beside a pack: what was late, missing or wasted in the last learned start.",
            ),
            ("/var/lib/headstart/elf/", "How files that were repacked become what they were."),
            (
                "/.headstart-layout/ on a file system",
                "The journal of a layout, and the donor with the old blocks of its files.",
            ),
            (
                "/etc/default/headstart-layout",
                "PACKS=\"a.pack b.pack\", and OPTIONS of headstart layout apply: what headstart-layout.timer and headstart-layout-shutdown.service \
                 lay out.",
            ),
            ("/var/lib/headstart/devices/", "How devices behave, as it was measured."),
            ("/etc/headstart/boot.conf", "Phases of this machine's own."),
            ("/etc/headstart/headstartd.conf", "Settings of the service; see headstartd.conf(5)."),
            (
                "/var/lib/headstart/daemon/",
                "What the service knows of programs, and the packs of users other than root.",
            ),
            ("/run/headstart/headstartd.sock", "Where the service listens."),
            ("/run/headstart/", "What was recorded and prefetched in this boot."),
            (
                "~/.local/state/headstart/packs/",
                "Packs of a user other than root; looked at before the others.",
            ),
            (
                "/sys/kernel/tracing/instances/headstart-*/",
                "Trace buffers while a start is recorded. Those of a headstart that was killed \
                 are removed by the next.",
            ),
        ],
    ),
];

const SEE_ALSO: &str = "readahead(2), posix_fadvise(2), mincore(2), cachestat(2), fincore(1), \
                        vmtouch(8), trace-cmd(1), systemd-analyze(1)";

/// All files by their paths below `dist/`.
fn files() -> BTreeMap<PathBuf, Vec<u8>> {
    let mut command = Cli::command();
    command.build();
    let mut files = BTreeMap::new();
    add_pages(&command, &mut files);
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        let name = match shell {
            Shell::Zsh => "_headstart".to_owned(),
            shell => format!("headstart.{shell}"),
        };
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut Cli::command(), "headstart", &mut text);
        files.insert(Path::new("completions").join(name), text);
    }
    // They are in the command, and here for packages.
    let of_service = (service::TEMPLATE, service::TEMPLATE_TEXT);
    let units = headstart::boot::install::UNITS.iter().chain([&of_service]);
    let units = units.chain(&headstart_layout::dist::UNITS);
    files.extend(units.map(|(name, text)| (Path::new("systemd").join(name), (*text).into())));
    for (path, text) in [
        ("man/headstartd.conf.5", headstart_daemon::dist::MAN_PAGE),
        ("systemd/headstartd.service", headstart_daemon::dist::UNIT),
        ("etc/headstartd.conf", headstart_daemon::dist::CONFIG),
    ] {
        files.insert(path.into(), text.into());
    }
    files
}

/// Adds the page of a command and those of its subcommands.
fn add_pages(command: &Command, files: &mut BTreeMap<PathBuf, Vec<u8>>) {
    let man = Man::new(command.clone())
        .source(concat!("headstart ", env!("CARGO_PKG_VERSION")))
        .manual("headstart manual")
        // Without a value, the arguments behind it would be taken for it.
        .date(r#""""#);
    files.insert(Path::new("man").join(man.get_filename()), page(command, &man));
    command.get_subcommands().for_each(|sub| add_pages(sub, files));
}

fn page(command: &Command, man: &Man) -> Vec<u8> {
    let mut out = Vec::new();
    man.render_title(&mut out).unwrap();
    man.render_name_section(&mut out).unwrap();

    let mut roff = Roff::new();
    // clap_mangen's own has each option, and none with its value.
    let usage = command.clone().render_usage().to_string();
    roff.control("SH", ["SYNOPSIS"]).text([bold(usage.trim_start_matches("Usage: "))]);
    roff.control("SH", ["DESCRIPTION"]);
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let is_main = command.get_name() == "headstart";
    let (statuses, paragraphs): (Vec<&str>, Vec<&str>) =
        help.split("\n\n").filter(|p| !p.is_empty()).partition(|p| p.starts_with(EXIT_STATUS));
    if is_main {
        roff.text([roman(DESCRIPTION)]);
    } else {
        roff.text([roman(format!("{about}."))]);
    }
    for paragraph in paragraphs {
        roff.control("PP", []).text([roman(paragraph)]);
    }
    roff.to_writer(&mut out).unwrap();

    man.render_options_section(&mut out).unwrap();
    if command.has_subcommands() {
        man.render_subcommands_section(&mut out).unwrap();
    }

    let mut roff = Roff::new();
    for list in &statuses {
        roff.control("SH", ["EXIT STATUS"]);
        for item in list[EXIT_STATUS.len()..].trim_end_matches('.').split("; ") {
            let (status, meaning) = item.split_once(' ').unwrap();
            assert!(status.parse::<u8>().is_ok(), "{item:?} should begin with a status");
            tagged(&mut roff, status, meaning);
        }
    }
    if is_main {
        for (heading, items) in SECTIONS {
            roff.control("SH", [heading]);
            items.iter().for_each(|(tag, text)| tagged(&mut roff, tag, text));
        }
    }
    roff.control("SH", ["SEE ALSO"]);
    roff.text([roman(if is_main { SEE_ALSO } else { "headstart(1)" })]);
    roff.to_writer(&mut out).unwrap();
    out
}

fn tagged(roff: &mut Roff, tag: &str, text: &str) {
    roff.control("TP", []).text([bold(tag)]).text([roman(text)]);
}

/// The paths below `dist` of the files in its directories of such files.
fn in_tree(dist: &Path) -> Vec<PathBuf> {
    ["completions", "etc", "man", "systemd"]
        .iter()
        .flat_map(|dir| fs::read_dir(dist.join(dir)).into_iter().flatten())
        .map(|entry| entry.unwrap().path().strip_prefix(dist).unwrap().to_owned())
        .collect()
}

#[test]
fn man_pages_and_completions_are_those_of_the_command_line() {
    let dist = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist");
    let files = files();
    if std::env::var_os(REGENERATE).is_some() {
        in_tree(&dist).iter().for_each(|old| fs::remove_file(dist.join(old)).unwrap());
        for (path, text) in &files {
            let path = dist.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }
    let is_made = |path: &PathBuf| fs::read(dist.join(path)).ok().as_ref() == files.get(path);
    let mut old: Vec<PathBuf> = in_tree(&dist).into_iter().chain(files.keys().cloned()).collect();
    old.retain(|path| !is_made(path));
    old.sort();
    old.dedup();
    assert!(
        old.is_empty(),
        "out of date in dist/: {old:?}; run `{REGENERATE}=1 cargo test -p headstart-cli generated`"
    );
}
