//! The key of a program's pack: the identity of its executable and, if that only loads the real
//! program (interpreters, loaders, wrappers, container launchers), of what it loads. Pure but for
//! the look-ups that the caller passes in ([`Names`]).

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::command_words::Names;
use super::loader::{self, LOADERS, NAMED, Then, WRAPPERS};
use super::{launcher, subcommand};

/// The name of a program's pack.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Key {
    /// What people call the program.
    pub name: String,
    /// The pack's file name.
    pub file_name: String,
    /// The words of the command that the key is made from, for people; a hash stands for inline
    /// code and for the arguments of wrappers and container launchers. Other words may hold
    /// passwords, and are not kept.
    pub words: Vec<OsString>,
    /// The words behind them that may name a subcommand.
    pub subcommand: Vec<String>,
}

/// The words of a command that identify the program.
#[derive(Default)]
struct Parts {
    /// All that counts, with a zero byte after each.
    identity: Vec<u8>,
    /// The same as a command for people.
    words: Vec<OsString>,
    /// The words behind it that may name a subcommand.
    subcommand: Vec<String>,
}

impl Parts {
    fn count(&mut self, word: &OsStr) {
        self.identity.extend_from_slice(word.as_bytes());
        self.identity.push(0);
    }

    /// A word that counts, and is shown.
    fn add(&mut self, word: &OsStr) {
        self.count(word);
        self.words.push(word.to_owned());
    }

    /// Words that count. They are not shown, since any of them may be a secret.
    fn count_all(&mut self, words: &[OsString]) {
        words.iter().for_each(|word| self.count(word));
        if !words.is_empty() {
            self.words.push(hash_of(&words.join(OsStr::new(" "))));
        }
    }

    /// What follows does not say which program it is.
    fn end(&mut self, rest: &[OsString], names: &impl Names) {
        self.subcommand = subcommand::words(rest, |word| names.is_file(word));
    }

    /// Inline code counts, and is not shown.
    fn add_code(&mut self, code: &OsStr) {
        self.count(code);
        self.words.push(hash_of(code));
    }
}

fn hash_of(text: &OsStr) -> OsString {
    format!("#{:016x}", fnv1a(text.as_bytes())).into()
}

/// Whether a word of a key stands for words that are not kept.
pub(super) fn is_hash(word: &OsStr) -> bool {
    let digits = word.to_str().and_then(|word| word.strip_prefix('#'));
    digits.is_some_and(|digits| digits.len() == 16 && digits.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// Longest part of a file name that comes from the program's name.
const NAME_LENGTH: usize = 48;
/// The most programs that load each other.
const LOADERS_DEEP: usize = 8;

impl Key {
    /// The key of a command line, whose words lead to these files.
    pub fn of_command(argv: &[OsString], names: impl Names) -> Self {
        let mut parts = Parts::default();
        let name = identify(argv, &names, LOADERS_DEEP, &mut parts);
        let name = name.unwrap_or_else(|| "program".into());
        let Parts { identity, words, subcommand } = parts;
        Self { words, subcommand, ..Self::new(&name, &identity) }
    }

    /// The same command in a container of an image with this identity and name.
    #[must_use]
    pub fn in_image(&self, identity: &OsStr, name: &str) -> Self {
        let words = [vec![name.into()], self.words.clone()].concat();
        self.extended(identity.as_bytes(), &format!("{name}-{}", self.name), words)
    }

    /// A child of the same command that does a job of this name without exec.
    #[must_use]
    pub fn of_job(&self, name: &str) -> Self {
        let words = [self.words.clone(), vec![name.into()]].concat();
        let identity = [b"fork\0", name.as_bytes()].concat();
        self.extended(&identity, &format!("{}-{name}", self.name), words)
    }

    fn extended(&self, identity: &[u8], name: &str, words: Vec<OsString>) -> Self {
        let identity = [identity, b"\0", self.file_name.as_bytes()].concat();
        Self { words, subcommand: self.subcommand.clone(), ..Self::new(name, &identity) }
    }

    /// The key for a name that the user gave.
    pub fn of_name(name: &str) -> Self {
        Self::new(name, &[b"name", name.as_bytes()].concat())
    }

    fn new(name: &str, identity: &[u8]) -> Self {
        let safe: String = name
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() || "._+-".contains(c) { c } else { '_' })
            .take(NAME_LENGTH)
            .collect();
        // A leading dot would hide the pack.
        let safe = safe.trim_start_matches('.');
        let file_name = format!("{safe}-{:016x}.pack", fnv1a(identity));
        Self { name: name.to_owned(), file_name, words: Vec::new(), subcommand: Vec::new() }
    }

    /// The file names that its pack may have: that of the subcommand first, that of the program
    /// last.
    pub fn file_names(&self) -> Vec<String> {
        let jobs = (1..=self.subcommand.len()).rev();
        let of_job = |n| subcommand::file_name(&self.file_name, &self.subcommand[..n]);
        jobs.map(of_job).chain([self.file_name.clone()]).collect()
    }

    /// The key of the program or job whose pack has this file name; of the program, if none has.
    pub fn of_pack(&self, file_name: &OsStr) -> Self {
        self.with_words(self.words_of(file_name).unwrap_or(0))
    }

    /// The key of the job that has one more word than the one whose pack has this file name;
    /// nothing, if the command has no more.
    pub fn narrower(&self, than: &OsStr) -> Option<Self> {
        let words = self.words_of(than)? + 1;
        (words <= self.subcommand.len()).then(|| self.with_words(words))
    }

    /// The number of subcommand words in this file name of a pack.
    fn words_of(&self, file_name: &OsStr) -> Option<usize> {
        self.file_names().iter().rev().position(|name| *file_name == **name)
    }

    fn with_words(&self, count: usize) -> Self {
        let Some((first, more)) = self.subcommand[..count].split_first() else {
            return Self { subcommand: Vec::new(), ..self.clone() };
        };
        let mut words = self.words.clone();
        words.push(first.into());
        // Further from the program's name anything may stand.
        words.extend(more.iter().map(|word| hash_of(word.as_ref())));
        let name = format!("{} {first}", self.name);
        let file_name = subcommand::file_name(&self.file_name, &self.subcommand[..count]);
        Self { name, file_name, words, subcommand: Vec::new() }
    }
}

/// The name of the program in the file name of a pack, as far as that has it.
pub fn program_of(file_name: &str) -> Option<&str> {
    let (name, digits) = file_name.strip_suffix(".pack")?.rsplit_once('-')?;
    digits.split('+').all(subcommand::is_hash).then_some(name)
}

/// Appends what identifies the program and returns its name. Loaders may load so many others.
fn identify(
    argv: &[OsString],
    names: &impl Names,
    loaders: usize,
    parts: &mut Parts,
) -> Option<String> {
    let (program, arguments) = argv.split_first()?;
    let path = names.program(program).unwrap_or_else(|| PathBuf::from(program));
    let called = base_name(Path::new(program));
    parts.count(path.as_os_str());
    // One executable of many names acts by the name it is called.
    parts.count(called.as_ref());
    parts.words.push(program.clone());
    let launched = launcher::launch_words(&called, arguments, names)
        .or_else(|| launcher::launch_words(&base_name(&path), arguments, names));
    if let Some(told) = launched {
        parts.add(told.image.as_ref());
        parts.count_all(&told.words);
        return Some(format!("{called}-{}", base_name(Path::new(&told.image))));
    }
    if WRAPPERS.contains(&base_name(&path).as_str()) || WRAPPERS.contains(&called.as_str()) {
        parts.count_all(arguments);
        return Some(called);
    }
    let Some(loader) = LOADERS
        .iter()
        .find(|l| [&called, &base_name(&path)].iter().any(|n| l.names.contains(&loader::stem(n))))
    else {
        parts.end(arguments, names);
        return Some(called);
    };
    let mut words = arguments.iter().enumerate();
    while let Some((i, word)) = words.next() {
        let text = word.to_string_lossy();
        if loader.carries_program(&text) {
            parts.add(text.as_ref().as_ref());
            if let Some((at, value)) = words.next() {
                if NAMED.contains(&&*text) {
                    parts.add(value);
                    parts.end(&arguments[at + 1..], names);
                    return Some(format!("{called}-{}", label(value)));
                }
                parts.add_code(value);
                return Some(format!("{called}-code"));
            }
        } else if loader.valued.contains(&&*text) {
            words.next();
        } else if text == "--" || text.starts_with('-') && text.len() > 1 {
            // An option or their end.
        } else if text == "run" && ["deno", "bun"].contains(&loader::stem(&called)) {
            // What to do with the script.
        } else {
            match loader.then {
                Then::Becomes if text.contains('=') && !text.starts_with('/') => continue,
                Then::Program | Then::Becomes => {
                    let Some(loaders) = loaders.checked_sub(1) else { return Some(called) };
                    if matches!(loader.then, Then::Becomes) {
                        *parts = Parts::default();
                    }
                    return identify(&arguments[i..], names, loaders, parts).or(Some(called));
                }
                Then::Script => {
                    let script = names.file(word).unwrap_or_else(|| word.into());
                    parts.add(script.as_os_str());
                    parts.end(&arguments[i + 1..], names);
                    return Some(format!("{called}-{}", base_name(&script)));
                }
                Then::Subcommand => {
                    parts.add(word);
                    let named = words.find(|(_, w)| !w.as_bytes().starts_with(b"-"));
                    if let Some((_, app)) = named {
                        parts.add(app);
                        return Some(format!("{called}-{}", app.to_string_lossy()));
                    }
                }
            }
        }
    }
    Some(called)
}

fn base_name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

/// The name of a module or file, for people.
fn label(value: &OsStr) -> String {
    let text = value.to_string_lossy();
    text.split(|c: char| !c.is_alphanumeric() && c != '.' && c != '_')
        .filter(|w| !w.is_empty())
        .take(3)
        .collect::<Vec<_>>()
        .join("_")
}

/// FNV-1a, 64 bits: it never changes, unlike std's hashes.
pub(crate) fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(command: &[&str]) -> Key {
        let argv: Vec<OsString> = command.iter().map(Into::into).collect();
        Key::of_command(&argv, |program: &OsStr| {
            let name = Path::new(program).file_name()?.to_str()?;
            let name = if name == "python3" { "python3.11" } else { name };
            Some(Path::new("/usr/bin").join(name))
        })
    }

    #[test]
    fn commands_that_load_the_same_share_a_key_and_others_do_not() {
        // Each group shares a key that no other group has.
        let groups: &[&[&[&str]]] = &[
            &[&["ls"], &["ls", "-l"], &["/usr/bin/ls", "/tmp"], &["env", "A=1", "ls"]],
            &[&["python3", "-c", "import json"], &["python3", "-I", "-c", "import json", "x"]],
            &[&["python3", "-c", "import ssl"]],
            &[&["python3", "-Ic", "import json"]],
            &[&["python3", "-m", "http.server"], &["python3", "-m", "http.server", "80"]],
            &[
                &["python3", "-X", "dev", "/srv/app.py"],
                &["python3", "/srv/app.py", "--port", "1"],
                &["env", "-u", "X", "env", "python3", "/srv/app.py"],
            ],
            &[&["python3", "/srv/other.py"]],
            &[&["python3"], &["python3", "-i"]],
            &[&["sh", "-c", "true"], &["sh", "-e", "-c", "true"]],
            &[&["java", "-cp", "x.jar", "Main"], &["java", "-Xmx1g", "Main", "arg"]],
            &[&["java", "-jar", "a.jar"], &["java", "-jar", "a.jar", "b"]],
            &[&["node", "-r", "ts", "/srv/a.js"]],
            &[&["deno", "run", "-A", "/srv/a.ts"], &["deno", "/srv/a.ts", "x"]],
            &[&["deno", "run", "/srv/b.ts"]],
            &[&["ruby", "-r", "bundler/setup", "/srv/a.rb"], &["ruby", "-l", "/srv/a.rb", "x"]],
            &[&["ruby", "-r", "bundler/setup", "/srv/b.rb"]],
            &[&["perl", "-l", "/srv/a.pl", "x"], &["perl", "-I", "lib", "/srv/a.pl"]],
            &[&["perl", "-lne", "print"], &["perl", "-lne", "print", "x"]],
            &[&["env"], &["env", "A=1"]],
            &[&["env", "-S", "ls -l"]],
            &[&["ld.so", "/usr/bin/ls"], &["ld.so", "--preload", "x", "/usr/bin/ls", "-l"]],
            &[&["chroot", "/mnt", "ls"]],
            &[&["chroot", "/mnt", "ls", "-l"]],
            &[
                &["systemd-nspawn", "--boot", "-D", "/srv/web", "-M", "one"],
                &["systemd-nspawn", "--bind=/a:/b", "-bD/srv/web", "systemd.unit=x.target"],
            ],
            &[&["systemd-nspawn", "--boot", "-D", "/srv/other"]],
            &[&["systemd-nspawn", "-D", "/srv/web", "ls"]],
            &[&["systemd-nspawn", "--boot"]],
            &[&["docker", "run", "--rm", "nginx:1"], &["docker", "run", "--name", "x", "nginx:1"]],
            &[&["docker", "run", "--rm", "nginx:2"]],
            &[&["docker", "run", "nginx:2", "nginx", "-t"]],
            &[&["docker", "ps"], &["docker", "ps", "-a"]],
            &[&["flatpak", "run", "org.x.Y"], &["flatpak", "run", "--branch=a", "org.x.Y", "f"]],
        ];
        let mut seen = std::collections::HashMap::new();
        for (i, group) in groups.iter().enumerate() {
            for command in *group {
                let file_name = key(command).file_name;
                assert_eq!(*seen.entry(file_name).or_insert(i), i, "{command:?}");
            }
        }
        assert_eq!(seen.len(), groups.len());
    }

    #[test]
    fn loaders_that_load_each_other_without_end_have_a_key() {
        for loader in ["env", "ld.so"] {
            assert_eq!(key(&vec![loader; 100_000]).name, loader);
        }
    }

    #[test]
    fn a_job_has_a_pack_of_its_own_with_one_more_word_than_the_one_that_was_found() {
        let cargo = key(&["cargo", "build", "docs"]);
        let [two, one, program] = &cargo.file_names()[..] else { panic!("three") };
        assert_eq!(*program, key(&["cargo"]).file_name);
        assert_eq!(*one, key(&["cargo", "-q", "x", "build", "--release"]).file_names()[0]);
        for name in [two, one, program] {
            assert_eq!(program_of(name), Some("cargo"));
        }
        let narrower = |than: &str| {
            let key = cargo.narrower(than.as_ref())?;
            let words: Vec<_> = key.words.iter().map(|word| word.to_string_lossy()).collect();
            Some((key.file_name, key.name, words.join(" ")))
        };
        let is = |file: &str, words: &str| Some((file.into(), "cargo build".into(), words.into()));
        assert_eq!(narrower(program), is(one, "cargo build"));
        assert_eq!(narrower(one), is(two, "cargo build #dc47fd6761f51d72"));
        assert_eq!((narrower(two), narrower("other.pack")), (None, None));
        for (file, name) in [(program, "cargo"), (one, "cargo build"), (two, "cargo build")] {
            let key = cargo.of_pack(file.as_ref());
            assert_eq!((&*key.file_name, &*key.name), (&**file, name));
        }
        assert_eq!(cargo.of_pack("other.pack".as_ref()).file_name, *program);
    }

    #[test]
    fn jobs_are_those_of_the_program_and_not_of_what_loads_it() {
        for (command, expected) in [
            (&["git", "status"][..], "status"),
            (&["python3", "/srv/manage.py", "migrate"], "migrate"),
            (&["python3", "-m", "pip", "install", "x"], "install x"),
            (&["env", "git", "log"], "log"),
            (&["python3", "-c", "import json", "word"], ""),
            (&["sudo", "git", "log"], ""),
            (&["docker", "run", "nginx:1", "serve"], ""),
            (&["flatpak", "run", "org.x.Y", "word"], ""),
        ] {
            assert_eq!(key(command).subcommand.join(" "), expected, "{command:?}");
        }
    }

    #[test]
    fn names_are_readable_and_safe_as_file_names() {
        for (command, prefix) in [
            (&["python3", "-c", "import json, ssl"][..], "python3-code-"),
            (&["sh", "-lc", "mysql --password=secret"], "sh-code-"),
            (&["python3", "-m", "http.server"], "python3-http.server-"),
            (&["systemd-nspawn", "-bD", "/srv/web"], "systemd-nspawn-web-"),
            (&["podman", "run", "quay.io/x/y:1"], "podman-y_1-"),
            (&["/opt/my prog"], "my_prog-"),
            (&[".hidden"], "hidden-"),
        ] {
            assert!(key(command).file_name.starts_with(prefix), "{:?}", key(command));
        }
        let web = key(&["ls"]).in_image("sha256:1".as_ref(), "web:1");
        assert!(web.file_name.starts_with("web_1-ls-") && web.words == ["web:1", "ls"]);
        assert_eq!(
            web.file_name,
            key(&["ls", "-l"]).in_image("sha256:1".as_ref(), "web:1").file_name
        );
        assert_ne!(web.file_name, key(&["ls"]).in_image("sha256:2".as_ref(), "web:1").file_name);
        let job = |name| key(&["python3", "/srv/zygote.py"]).of_job(name);
        assert!(job("render").file_name.starts_with("python3-zygote.py-render-"));
        assert_ne!(job("render").file_name, job("child").file_name);
        assert!(Key::of_name("../../etc").file_name.starts_with("_.._etc-"));
        assert!(Key::of_name(&"x".repeat(500)).file_name.len() < 100);
    }

    #[test]
    fn only_what_counts_of_a_command_is_kept_and_of_inline_code_its_hash() {
        for (command, kept) in [
            (&["/bin/ls", "--password=x"][..], "/bin/ls"),
            (&["python3", "-X", "dev", "/srv/app.py", "--token", "x"], "python3 /srv/app.py"),
            (&["python3", "-m", "http.server", "80"], "python3 -m http.server"),
            (&["sh", "-c", "secret"], "sh -c #ab23f0eec020c951"),
            (&["env", "PASSWORD=x", "ls", "-l"], "ls"),
            (&["sudo", "mysql", "-psecret"], "sudo #c09a1f593e02443a"),
            (&["docker", "run", "-e", "TOKEN=x", "nginx:1"], "docker nginx:1 #89b2a81960c55a4a"),
            (&["flatpak", "run", "org.x.Y", "file"], "flatpak run org.x.Y"),
        ] {
            let words = key(command).words;
            let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
            assert_eq!(words.join(" "), kept);
        }
    }
}
