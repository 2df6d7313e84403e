//! Programs that load others (interpreters, dynamic loaders, application launchers, wrappers), and
//! how their command line names what they load. Pure tables.

/// How the command line of a loading program names what it loads.
pub(super) struct Loader {
    /// Its names, without version numbers.
    pub(super) names: &'static [&'static str],
    /// Options that contain the program itself, such as `-c CODE`.
    pub(super) program: &'static [&'static str],
    /// Options whose value is the next word.
    pub(super) valued: &'static [&'static str],
    /// What the first word that is no option means.
    pub(super) then: Then,
}

/// Options whose value names the program; that of others is inline code.
pub(super) const NAMED: &[&str] = &["-m", "-jar", "--module"];

pub(super) enum Then {
    /// It is a script: nothing behind it counts.
    Script,
    /// It is a program, which may load others in turn.
    Program,
    /// The process becomes that program (exec): the loader itself does not count.
    Becomes,
    /// It is a subcommand; the next word names the program.
    Subcommand,
}

pub(super) const LOADERS: &[Loader] = &[
    Loader {
        names: &["python", "pypy"],
        program: &["-c", "-m"],
        valued: &["-W", "-X", "--check-hash-based-pycs"],
        then: Then::Script,
    },
    Loader {
        names: &["sh", "bash", "dash", "ash", "zsh", "ksh", "mksh", "fish"],
        program: &["-c"],
        valued: &["-o", "+o", "-O", "--rcfile", "--init-file"],
        then: Then::Script,
    },
    Loader { names: &["perl"], program: &["-e", "-E"], valued: &["-I"], then: Then::Script },
    Loader {
        names: &["ruby"],
        program: &["-e"],
        valued: &["-I", "-C", "-r", "-E"],
        then: Then::Script,
    },
    Loader { names: &["lua", "luajit"], program: &["-e"], valued: &["-l"], then: Then::Script },
    Loader {
        names: &["Rscript", "php", "tclsh", "wish", "guile"],
        program: &["-e", "-E", "-r"],
        valued: &["-I", "-C", "-d", "-l"],
        then: Then::Script,
    },
    Loader {
        names: &["node", "nodejs", "deno", "bun"],
        program: &["-e", "--eval", "-p", "--print"],
        valued: &["-r", "--require", "--import", "-C", "--conditions"],
        then: Then::Script,
    },
    Loader {
        names: &["java"],
        program: &["-jar", "-m", "--module"],
        valued: &["-cp", "-classpath", "--class-path", "-p", "--module-path", "--add-modules"],
        then: Then::Script,
    },
    Loader {
        names: &["env"],
        program: &["-S", "--split-string"],
        valued: &["-u", "--unset", "-C", "--chdir"],
        then: Then::Becomes,
    },
    Loader {
        names: &["ld.so"],
        program: &[],
        valued: &["--library-path", "--preload", "--audit", "--argv0", "--inhibit-rpath"],
        then: Then::Program,
    },
    Loader {
        names: &["flatpak", "snap"],
        program: &[],
        valued: &["--command", "--branch", "--arch"],
        then: Then::Subcommand,
    },
];

/// Wrappers, which run another program in a changed environment: their whole command line counts.
pub(super) const WRAPPERS: &[&str] = &[
    "chroot",
    "unshare",
    "nsenter",
    "setpriv",
    "setsid",
    "nohup",
    "nice",
    "ionice",
    "taskset",
    "chrt",
    "timeout",
    "time",
    "stdbuf",
    "sudo",
    "doas",
    "su",
    "runuser",
    "setarch",
    "linux",
    "systemd-run",
    "systemd-nspawn",
    "bwrap",
    "firejail",
    "xvfb-run",
    "dbus-run-session",
    "strace",
    "ltrace",
    "perf",
    "gdb",
    "valgrind",
    "busybox",
    "toybox",
    "numactl",
    "prlimit",
    "catchsegv",
];

impl Loader {
    /// Whether this option carries the program; also at the end of a cluster
    /// of short options, as in `-lc`.
    pub(super) fn carries_program(&self, option: &str) -> bool {
        let cluster = |p: &&&str| {
            let letter = p.strip_prefix('-').filter(|l| l.len() == 1);
            letter.is_some_and(|l| {
                option.len() > 2
                    && option.starts_with('-')
                    && option[1..].bytes().all(|b| b.is_ascii_alphabetic())
                    && option.ends_with(l)
                    && matches!(self.then, Then::Script)
                    && !self.names.contains(&"java")
            })
        };
        self.program.contains(&option) || self.program.iter().any(|p| cluster(&p))
    }
}

/// The name without version numbers: `python3.11` is `python`.
pub(super) fn stem(name: &str) -> &str {
    // ld-linux-x86-64.so.2, ld-musl-aarch64.so.1
    if name.starts_with("ld-") && name.contains(".so") {
        return "ld.so";
    }
    name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loaders_are_known_by_every_version_of_their_name() {
        for (name, expected) in [
            ("python3.11", "python"),
            ("perl5.36.0", "perl"),
            ("ld-linux-x86-64.so.2", "ld.so"),
            ("ld-musl-x86_64.so.1", "ld.so"),
            ("ruby3.1", "ruby"),
            ("bash", "bash"),
        ] {
            assert_eq!(stem(name), expected);
        }
    }
}
