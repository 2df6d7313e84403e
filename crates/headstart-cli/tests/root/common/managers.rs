//! Package managers in a root directory of a test's own, with the hooks of `dist`, and
//! packages for them.

use super::small_root::{Headstart, SmallRoot};
use headstart_testing::{has, must, skip};
use std::fs;
use std::path::{Path, PathBuf};

/// Writes a file again each time something in `/usr/games` changed, as what keeps caches of
/// fonts, icons or libraries does.
const KEEP_CACHE: &str = "head -c 409600 /dev/urandom > /var/cache/kept.new\n\
    mv /var/cache/kept.new /var/cache/kept\n";

/// A package manager.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Manager {
    /// Of Debian.
    Dpkg,
    /// Of Fedora and SUSE.
    Rpm,
    /// Of Arch.
    Pacman,
}

use Manager::{Dpkg, Pacman, Rpm};

impl Manager {
    /// A root directory with its database and the hook, and with a cache that other packages
    /// than headstart's keep; `None`, with the reason said, where there is no such manager.
    pub fn root(self) -> Option<SmallRoot> {
        let (tools, install) = match self {
            Dpkg => (["dpkg", "dpkg-deb"], "dpkg"),
            Rpm => (["rpm", "rpmbuild"], "rpm (on Fedora and SUSE also rpm-build)"),
            // On Debian there is a game of the other name.
            Pacman => (["pacman-conf", "tar"], "pacman, on Debian pacman-package-manager"),
        };
        if let Some(missing) = tools.iter().find(|tool| !has(tool)) {
            skip(&format!("{missing} is missing; install {install}"));
            return None;
        }
        let root = SmallRoot::new()?;
        root.write("var/cache/kept", "");
        let hook = |name: &str| fs::read(in_dist(name)).unwrap();
        let keep = |before: &str| format!("{before}\n{KEEP_CACHE}");
        let extra = match self {
            Dpkg => {
                root.write("etc/dpkg/dpkg.cfg.d/headstart", hook("dpkg/headstart"));
                root.write("var/lib/dpkg/status", "");
                for dir in ["info", "triggers", "updates"] {
                    fs::create_dir(root.place("var/lib/dpkg").join(dir)).unwrap();
                }
                let script = "#!/bin/sh\n[ \"$1\" = triggered ] || exit 0";
                vec![("postinst", keep(script)), ("triggers", "interest /usr/games\n".to_owned())]
            }
            Rpm => {
                let include = format!("%include {}\n", in_dist("rpm/headstart.spec.inc").display());
                self.add(&root, "headstart", &[("", include)]);
                vec![("", keep("%transfiletriggerin -- /usr/games"))]
            }
            Pacman => {
                let name = "pacman/zz-headstart.hook";
                root.write("etc/pacman.d/hooks/zz-headstart.hook", hook(name));
                root.write("etc/pacman.conf", "[options]\nArchitecture = auto\nSigLevel = Never\n");
                root.write("var/log/pacman.log", "");
                fs::create_dir_all(root.place("var/lib/pacman")).unwrap();
                root.write("keep", keep("#!/bin/sh"));
                must("chmod", &["755", root.place("keep").to_str().unwrap()]);
                let operations = "Operation = Install\nOperation = Upgrade\nOperation = Remove";
                let trigger = format!("[Trigger]\n{operations}\nType = Path\nTarget = usr/games/*");
                let hook = format!("{trigger}\n[Action]\nWhen = PostTransaction\nExec = /keep\n");
                root.write("etc/pacman.d/hooks/update-kept.hook", hook);
                return Some(root);
            }
        };
        self.add(&root, "keeper", &extra);
        Some(root)
    }

    /// The package of headstart itself, with what `dist` has for its removal.
    pub fn headstart(self, root: &SmallRoot, version: u32) -> String {
        let text = |name: &str| fs::read_to_string(in_dist(name)).unwrap();
        let (install, extra) = match self {
            Dpkg => (None, Some(("prerm", text("dpkg/headstart.prerm")))),
            Rpm => (None, Some(("", text("rpm/headstart.spec.inc")))),
            Pacman => (Some(text("pacman/headstart.install")), None),
        };
        let files = install.iter().map(|text| (".INSTALL", text.as_bytes()));
        self.build(root, "headstart", version, &files.collect::<Vec<_>>(), extra.as_slice())
    }

    fn add(self, root: &SmallRoot, name: &str, extra: &[(&str, String)]) {
        let package = self.build(root, name, 1, &[], extra);
        let output = root.run(Headstart::Missing, &words(&self.install(&package)));
        assert!(output.status.success(), "{output:?}");
    }

    /// A package with these files; its path in the root directory. The extra is files of
    /// `DEBIAN` for dpkg and text of the spec file for rpm.
    pub fn build(
        self,
        root: &SmallRoot,
        name: &str,
        version: u32,
        files: &[(&str, &[u8])],
        extra: &[(&str, String)],
    ) -> String {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("tree");
        let put = |path: &str, data: &[u8]| {
            let path = tree.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, data).unwrap();
        };
        fs::create_dir(&tree).unwrap();
        files.iter().for_each(|(path, data)| put(path, data));
        fs::create_dir_all(root.place("packages")).unwrap();
        let package = format!("/packages/{name}-{version}");
        let to = root.place(&package);
        let (tree, to) = (tree.to_str().unwrap().to_owned(), to.to_str().unwrap());
        match self {
            Dpkg => {
                let control = format!(
                    "Package: {name}\nVersion: {version}\nArchitecture: all\n\
                     Maintainer: nobody <nobody@localhost>\nDescription: a test\n"
                );
                put("DEBIAN/control", control.as_bytes());
                for (file, text) in extra {
                    put(&format!("DEBIAN/{file}"), text.as_bytes());
                }
                must("chmod", &["-R", "u+rwX,go+rX,go-w", &tree]);
                for (file, _) in
                    extra.iter().filter(|(file, _)| ["postinst", "prerm"].contains(file))
                {
                    must("chmod", &["755", &format!("{tree}/DEBIAN/{file}")]);
                }
                must("dpkg-deb", &["-Znone", "--root-owner-group", "--build", &tree, to]);
            }
            Rpm => {
                let list: String = files.iter().map(|(path, _)| format!("\"/{path}\"\n")).collect();
                let extra: String = extra.iter().map(|(_, text)| text.as_str()).collect();
                let spec = format!(
                    "%define __os_install_post %{{nil}}\n\
                     Name: {name}\nVersion: {version}\nRelease: 1\nSummary: a test\nLicense: MIT\n\
                     BuildArch: noarch\n%description\nA test.\n\
                     %install\nmkdir -p %{{buildroot}}\ncp -R {tree}/. %{{buildroot}}\n\
                     {extra}\n%files\n%defattr(-,root,root)\n{list}"
                );
                let path = dir.path().join("spec");
                fs::write(&path, spec).unwrap();
                let built = format!("_topdir {}", dir.path().join("top").display());
                let named = ["_build_name_fmt package", "_binary_payload w0.ufdio"];
                let defined = [built.as_str(), named[0], named[1]].map(|what| ["--define", what]);
                let words = [&["-bb", path.to_str().unwrap()], defined.as_flattened()].concat();
                must("rpmbuild", &words);
                must("cp", &[dir.path().join("top/RPMS/package").to_str().unwrap(), to]);
            }
            Pacman => {
                let info =
                    format!("pkgname = {name}\npkgver = {version}-1\narch = any\nsize = 1\n");
                put(".PKGINFO", info.as_bytes());
                must("chmod", &["-R", "u+rwX,go+rX,go-w", &tree]);
                let mut top: Vec<String> = fs::read_dir(&tree)
                    .unwrap()
                    .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                    .collect();
                top.sort();
                let owner = ["--owner=0", "--group=0", "-C", &tree, "-cf", to];
                let top: Vec<&str> = top.iter().map(String::as_str).collect();
                must("tar", &[&owner[..], &top].concat());
            }
        }
        package
    }

    /// The command that installs a package, or its other version in its place.
    pub fn install(self, package: &str) -> Vec<String> {
        let words = match self {
            Dpkg => "dpkg --install",
            Rpm => "rpm --dbpath /var/lib/rpm --upgrade --nodeps --force --nosignature",
            Pacman => "pacman --upgrade --noconfirm",
        };
        words.split(' ').chain([package]).map(str::to_owned).collect()
    }

    /// The command that removes a package.
    pub fn remove(self, name: &str) -> Vec<String> {
        let words = match self {
            Dpkg => "dpkg --remove",
            Rpm => "rpm --dbpath /var/lib/rpm --erase --nodeps",
            Pacman => "pacman --remove --noconfirm",
        };
        words.split(' ').chain([name]).map(str::to_owned).collect()
    }
}

/// As commands take them.
pub fn words(list: &[String]) -> Vec<&str> {
    list.iter().map(String::as_str).collect()
}

fn in_dist(path: &str) -> PathBuf {
    fs::canonicalize(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist").join(path)).unwrap()
}
