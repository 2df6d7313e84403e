//! What a container launcher starts: the image and the command inside. Names, limits, mounts and
//! networks are ignored, since they change between starts that touch the same files.
//!
//! It starts nothing and knows no daemon: whether a container's processes are children of the
//! launcher is decided elsewhere.

use super::command_words::Names;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// How the command line of a launcher names what it starts.
struct Launcher {
    names: &'static [&'static str],
    /// Subcommands that start something; empty when it does nothing else.
    verbs: &'static [&'static str],
    /// Options whose value is the image, and those that stand in for them.
    image: &'static [&'static str],
    instead: &'static [&'static str],
    /// Long options without a value, or with one behind `=` only. All others take
    /// the next word.
    flags: &'static [&'static str],
    /// Letters without a value.
    letters: &'static [u8],
    /// Options after which words are not a command but arguments of an init.
    boots: &'static [&'static str],
    /// What the first word that is no option means.
    word: Word,
}

#[derive(PartialEq)]
enum Word {
    /// The image; a command may follow.
    Image,
    /// The command.
    Command,
    /// A name of this container, which is ignored.
    Name,
}

const LAUNCHERS: &[Launcher] = &[
    Launcher {
        names: &["systemd-nspawn"],
        verbs: &[],
        image: &["-D", "--directory", "-i", "--image", "--oci-bundle"],
        instead: &["-M", "--machine", "--template"],
        flags: &[
            "--as-pid2",
            "--boot",
            "--ephemeral",
            "--keep-unit",
            "--network-veth",
            "--private-network",
            "--private-users",
            "--private-users-chown",
            "--quiet",
            "--read-only",
            "--volatile",
        ],
        letters: b"abjnPqUx",
        boots: &["-b", "--boot"],
        word: Word::Command,
    },
    Launcher {
        names: &["docker", "podman", "nerdctl"],
        verbs: &["run", "start", "exec"],
        image: &[],
        instead: &[],
        flags: &[
            "--debug",
            "--detach",
            "--disable-content-trust",
            "--env-host",
            "--http-proxy",
            "--init",
            "--interactive",
            "--no-healthcheck",
            "--no-hosts",
            "--oom-kill-disable",
            "--privileged",
            "--publish-all",
            "--quiet",
            "--read-only",
            "--read-only-tmpfs",
            "--remote",
            "--replace",
            "--rm",
            "--rmi",
            "--sig-proxy",
            "--tls",
            "--tls-verify",
            "--tty",
        ],
        letters: b"dDiPqt",
        boots: &[],
        word: Word::Image,
    },
    Launcher {
        names: &["runc", "crun", "youki"],
        verbs: &["run"],
        image: &["-b", "--bundle"],
        instead: &[],
        flags: &[
            "--debug",
            "--detach",
            "--keep",
            "--no-new-keyring",
            "--no-pivot",
            "--no-subreaper",
            "--systemd-cgroup",
        ],
        letters: b"d",
        boots: &[],
        word: Word::Name,
    },
    Launcher {
        names: &["lxc-start", "lxc-execute"],
        verbs: &[],
        image: &["-n", "--name"],
        instead: &[],
        flags: &["--close-all-fds", "--daemon", "--foreground", "--quiet"],
        letters: b"CdFq",
        boots: &[],
        word: Word::Command,
    },
    Launcher {
        names: &["apptainer", "singularity"],
        verbs: &["run", "exec", "shell"],
        image: &[],
        instead: &[],
        flags: &[
            "--cleanenv",
            "--compat",
            "--contain",
            "--containall",
            "--debug",
            "--fakeroot",
            "--no-home",
            "--nv",
            "--quiet",
            "--silent",
            "--verbose",
            "--writable",
            "--writable-tmpfs",
        ],
        letters: b"cCdefqsvw",
        boots: &[],
        word: Word::Image,
    },
];

/// What a launcher starts.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LaunchWords {
    /// The image, as it is called on the command line; a directory by its real path.
    pub image: OsString,
    /// The subcommand and the command inside, word by word.
    pub words: Vec<OsString>,
}

/// What a launcher of that name is told to start; none when the program is no
/// launcher, or its arguments don't say.
pub(super) fn launch_words(
    name: &str,
    arguments: &[OsString],
    names: &impl Names,
) -> Option<LaunchWords> {
    let launcher = LAUNCHERS.iter().find(|l| l.names.contains(&name))?;
    let (mut image, mut instead, mut boots) = (None, None, false);
    let mut verb: Option<&OsString> = None;
    let mut command: &[OsString] = &[];
    let mut at = 0;
    while let Some(word) = arguments.get(at) {
        at += 1;
        let bytes = word.as_bytes();
        if bytes == b"--" {
            command = &arguments[at..];
            break;
        }
        if bytes.len() > 1 && bytes[0] == b'-' {
            let (option, value) = launcher.option(bytes);
            boots |= launcher.boots.iter().any(|b| launcher.sets(bytes, b));
            let value = match value {
                Value::None => continue,
                Value::Here(value) => OsStr::from_bytes(value),
                Value::Next => {
                    at += 1;
                    arguments.get(at - 1)?
                }
            };
            if launcher.image.iter().any(|o| o.as_bytes() == option) {
                image = Some(value);
            } else if launcher.instead.iter().any(|o| o.as_bytes() == option) {
                instead = Some(value);
            }
        } else if verb.is_none() && !launcher.verbs.is_empty() {
            verb =
                Some(word).filter(|w| launcher.verbs.iter().any(|v| v.as_bytes() == w.as_bytes()));
            verb?;
        } else {
            match launcher.word {
                Word::Image => image = Some(word),
                Word::Command => at -= 1,
                Word::Name => {}
            }
            command = &arguments[at..];
            break;
        }
    }
    let image = image.or(instead)?;
    let directory = names.file(image).filter(|path| path.is_absolute());
    let image = match directory {
        Some(path) if launcher.word != Word::Image => path.into_os_string(),
        _ => image.to_owned(),
    };
    let command = if boots || launcher.word == Word::Name { &[] } else { command };
    Some(LaunchWords { image, words: verb.into_iter().chain(command).cloned().collect() })
}

/// Where the value of an option is.
enum Value<'a> {
    None,
    Here(&'a [u8]),
    Next,
}

impl Launcher {
    /// An option without its value, and where that is. Of letters in one word, as
    /// `-itv`, the one that takes a value is the option.
    fn option<'a>(&self, word: &'a [u8]) -> (Vec<u8>, Value<'a>) {
        if word.starts_with(b"--") {
            if let Some(equals) = word.iter().position(|&b| b == b'=') {
                return (word[..equals].to_vec(), Value::Here(&word[equals + 1..]));
            }
            let flag = self.flags.iter().any(|f| f.as_bytes() == word);
            return (word.to_vec(), if flag { Value::None } else { Value::Next });
        }
        let valued = word.iter().skip(1).position(|b| !self.letters.contains(b));
        match valued.map(|i| i + 1) {
            None => (word.to_vec(), Value::None),
            Some(i) if i + 1 == word.len() => (vec![b'-', word[i]], Value::Next),
            Some(i) => (vec![b'-', word[i]], Value::Here(&word[i + 1..])),
        }
    }

    /// Whether a word sets a flag, alone or among letters.
    fn sets(&self, word: &[u8], flag: &str) -> bool {
        let flag = flag.as_bytes();
        if flag.starts_with(b"--") {
            return word == flag;
        }
        let letters = word.iter().skip(1).take_while(|b| self.letters.contains(b));
        !word.starts_with(b"--") && letters.into_iter().any(|b| *b == flag[1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Programs are not looked for here.
    fn nowhere(_: &OsStr) -> Option<std::path::PathBuf> {
        None
    }

    fn words(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(Into::into).collect()
    }

    #[test]
    fn a_launcher_is_told_an_image_and_a_command_and_the_rest_does_not_count() {
        for (line, expected) in [
            ("systemd-nspawn -b -D /srv/c", "/srv/c"),
            ("systemd-nspawn -bD /srv/c", "/srv/c"),
            ("systemd-nspawn -bD/srv/c", "/srv/c"),
            ("systemd-nspawn --boot --directory=/srv/c systemd.unit=rescue.target", "/srv/c"),
            ("systemd-nspawn --bind /a:/b -q --boot --directory /srv/c", "/srv/c"),
            ("systemd-nspawn --machine=x --image=/srv/c.raw --boot", "/srv/c.raw"),
            ("systemd-nspawn -M web --network-veth --boot", "web"),
            ("systemd-nspawn -D /srv/c -E A=b ls -l", "/srv/c ls -l"),
            ("systemd-nspawn -D /srv/c -- ls -b", "/srv/c ls -b"),
            ("docker run -it --rm debian:12 bash -c true", "debian:12 run bash -c true"),
            ("docker run -p 80:80 -v/a:/b --name=x nginx", "nginx run"),
            ("docker --log-level debug run --name x -d -e A=b nginx", "nginx run"),
            (
                "podman run -itv /a:/b --pull=never quay.io/x/y@sha256:00",
                "quay.io/x/y@sha256:00 run",
            ),
            ("podman start web", "web start"),
            ("runc run --bundle /srv/none some-id-17", "/srv/none run"),
            ("crun --root /x run -b /srv/none -d other", "/srv/none run"),
            ("lxc-start -F -n web", "web"),
            ("apptainer exec --nv -B /a image.sif python3 x.py", "image.sif exec python3 x.py"),
        ] {
            let all = words(line);
            let found = launch_words(all[0].to_str().unwrap(), &all[1..], &nowhere)
                .unwrap_or_else(|| panic!("{line}"));
            let found: Vec<_> = [found.image].into_iter().chain(found.words).collect();
            assert_eq!(found, words(expected), "{line}");
        }
    }

    #[test]
    fn arguments_without_an_image_name_none() {
        for line in [
            "ls -D /srv/c",
            "systemd-nspawn --boot",
            "systemd-nspawn -b -D",
            "docker ps --filter x",
            "docker run",
            "docker run --name",
            "docker",
            "podman build .",
            "runc run id",
        ] {
            let all = words(line);
            assert_eq!(launch_words(all[0].to_str().unwrap(), &all[1..], &nowhere), None, "{line}");
        }
    }

    #[test]
    fn a_directory_counts_by_its_real_path() {
        let directory = tempfile::tempdir().unwrap();
        let link = directory.path().join("link");
        std::fs::create_dir(directory.path().join("root")).unwrap();
        std::os::unix::fs::symlink("root", &link).unwrap();
        let found =
            launch_words("systemd-nspawn", &["-bD".into(), link.into_os_string()], &nowhere)
                .unwrap();
        let real = directory.path().canonicalize().unwrap().join("root");
        assert_eq!(found.image, real.into_os_string());
    }
}
