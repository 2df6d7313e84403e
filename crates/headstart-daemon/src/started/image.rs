//! What a program in a container is started from: the image, from what the kernel says of the root file
//! system and the control group, and what podman and docker keep of their images. Pure; `container` reads
//! it. Each new container of an image has a root directory of its own, but the same lower layers.

use headstart::host::mounts::Mount;
use serde::Deserialize;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Digits of the number of a container, and of a digest (SHA-256).
const DIGITS: usize = 64;
/// What stands before an application in the name of its control group.
const FLATPAK: &str = "app-flatpak-";
const SNAP: &str = "snap.";
const SCOPE: &str = ".scope";

/// An image.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Image {
    /// What is the same for all containers of it, and for no others.
    pub identity: OsString,
    /// What people call it.
    pub name: String,
}

impl Image {
    /// An image of these layers, of which nothing else is known.
    pub fn of_layers(layers: &Layers) -> Self {
        // The first one of docker's is of this container alone.
        let own = layers.upper_dir().map(|name| [name.as_bytes(), b"-init"].concat());
        let is_own = |layer: &&PathBuf| {
            let mut names = layer.iter();
            own.as_ref().is_some_and(|own| names.any(|name| name.as_bytes() == own))
        };
        let of_image = layers.lower.iter().filter(|layer| !is_own(layer));
        let names: Vec<_> = of_image.map(|layer| layer.as_os_str()).collect();
        Self { identity: names.join(OsStr::new(":")), name: "container".into() }
    }
}

/// The directories of an overlay file system.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layers {
    /// Those that are only read, the topmost first.
    pub lower: Vec<PathBuf>,
    /// The one that is written.
    pub upper: Option<PathBuf>,
}

impl Layers {
    /// Those of the file system at `/`, if that is an overlay.
    pub fn of_root(mounts: &[Mount]) -> Option<Self> {
        let root = mounts.iter().rfind(|mount| mount.mount_point == Path::new("/"))?;
        let options =
            (root.fstype == "overlay").then(|| split(root.super_options.as_bytes(), b','))?;
        let value = |name| options.iter().filter_map(move |option| after(option, name));
        let path = |bytes: &[u8]| PathBuf::from(OsString::from_vec(unescaped(bytes)));
        let lower = value("lowerdir=").flat_map(|dirs| split(dirs, b':'));
        // Newer kernels list one at a time.
        let more = value("lowerdir+=").map(<[u8]>::to_vec);
        let lower: Vec<_> = lower.chain(more).map(|dir| path(&dir)).collect();
        let upper = value("upperdir=").next().map(path);
        (!lower.is_empty()).then_some(Self { lower, upper })
    }

    /// The directory of the layer that is written, as `ID` in `overlay/ID/diff`.
    fn upper_dir(&self) -> Option<&OsStr> {
        self.upper.as_ref()?.parent()?.file_name()
    }
}

/// The parts of a text between bytes that have no backslash before them.
fn split(text: &[u8], at: u8) -> Vec<Vec<u8>> {
    let mut parts = vec![Vec::new()];
    let mut is_escaped = false;
    for byte in text {
        if *byte == at && !is_escaped {
            parts.push(Vec::new());
        } else if let Some(part) = parts.last_mut() {
            part.push(*byte);
        }
        is_escaped = *byte == b'\\' && !is_escaped;
    }
    parts
}

fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut bytes = text.iter().copied();
    std::iter::from_fn(|| match bytes.next()? {
        b'\\' => bytes.next(),
        byte => Some(byte),
    })
    .collect()
}

fn after<'a>(option: &'a [u8], name: &str) -> Option<&'a [u8]> {
    option.strip_prefix(name.as_bytes())
}

/// The number of the container in a line of /proc/PID/cgroup, as in `libpod-ID.scope`, `docker/ID` and
/// `cri-containerd-ID.scope`.
pub fn container_id(groups: &[u8]) -> Option<&str> {
    let words = groups.split(|byte| !byte.is_ascii_hexdigit());
    std::str::from_utf8(words.rev().find(|word| word.len() == DIGITS)?).ok()
}

/// The application of flatpak or snap in a line of /proc/PID/cgroup.
pub fn application(groups: &[u8]) -> Option<Image> {
    let text = std::str::from_utf8(groups).ok()?;
    let scopes = text.split(['/', '\n']).filter_map(|part| part.strip_suffix(SCOPE));
    let name = |scope: &str| match scope.strip_prefix(FLATPAK) {
        // A number follows.
        Some(rest) => rest.rsplit_once('-').map(|(name, _)| name.to_owned()),
        // snap.NAME.APP-UUID
        None => scope.strip_prefix(SNAP).and_then(|rest| rest.split('.').next()).map(str::to_owned),
    };
    let name = scopes.rev().find_map(name).filter(|name| !name.is_empty())?;
    Some(Image { identity: format!("application {name}").into(), name })
}

/// An image in `overlay-images/images.json` of podman and its relatives (containers/storage).
#[derive(Deserialize)]
struct StoredImage {
    digest: Option<String>,
    id: String,
    #[serde(default)]
    names: Option<Vec<String>>,
    #[serde(default)]
    layer: String,
}

/// The image with this topmost layer.
pub fn of_podman(images: &[u8], layer: &OsStr) -> Option<Image> {
    let images: Vec<StoredImage> = serde_json::from_slice(images).ok()?;
    let image = images.into_iter().find(|image| *image.layer == *layer)?;
    let name = image.names.unwrap_or_default().into_iter().next();
    Some(image_called(name, image.digest.unwrap_or(image.id)))
}

/// `config.v2.json` of a container of docker.
#[derive(Deserialize)]
struct StoredContainer {
    #[serde(rename = "Image")]
    image: String,
    #[serde(rename = "Config", default)]
    config: HashMap<String, serde_json::Value>,
}

/// The image of a container of docker.
pub fn of_docker(container: &[u8]) -> Option<Image> {
    let container: StoredContainer = serde_json::from_slice(container).ok()?;
    let name = container.config.get("Image").and_then(|name| name.as_str());
    Some(image_called(name.map(str::to_owned), container.image))
}

/// Of a name only what is behind the last slash, without a digest.
fn image_called(name: Option<String>, identity: String) -> Image {
    let name = name.unwrap_or_default();
    let last = name.rsplit('/').next().and_then(|name| name.split('@').next()).unwrap_or_default();
    let name = if last.is_empty() { "container" } else { last };
    Image { name: name.to_owned(), identity: identity.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart::host::mounts::parse;
    use proptest::prelude::*;

    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    fn root(options: &str) -> Option<Layers> {
        let text = format!("2 1 0:9 / /proc rw - proc proc rw\n3 1 0:8 / / rw - {options}\n");
        Layers::of_root(&parse(text.as_bytes()).unwrap())
    }

    fn layers(lower: &[&str], upper: Option<&str>) -> Layers {
        Layers { lower: lower.iter().map(PathBuf::from).collect(), upper: upper.map(PathBuf::from) }
    }

    #[test]
    fn the_layers_of_a_container_are_in_the_options_of_its_root() {
        for (options, expected) in [
            ("ext4 /dev/sda rw", None),
            ("overlay overlay rw", None),
            (
                "overlay overlay rw,lowerdir=/s/l/B:/s/l/A,upperdir=/s/x/diff,workdir=/s/x/work",
                Some(layers(&["/s/l/B", "/s/l/A"], Some("/s/x/diff"))),
            ),
            ("overlay none ro,lowerdir=/a:/b", Some(layers(&["/a", "/b"], None))),
            ("overlay none ro,lowerdir+=/b,lowerdir+=/a", Some(layers(&["/b", "/a"], None))),
            // Twice escaped: by the overlay, then by mountinfo.
            (r"overlay none ro,lowerdir=/a\134:b:/c\134,d", Some(layers(&["/a:b", "/c,d"], None))),
        ] {
            assert_eq!(root(options), expected, "{options}");
        }
    }

    #[test]
    fn containers_of_the_same_layers_are_of_one_image() {
        let image = |lower: &[&str], upper: &str| Image::of_layers(&layers(lower, Some(upper)));
        let docker = |id: &str| {
            let own = format!("/d/{id}-init/diff");
            image(&[&own, "/d/B/diff", "/d/A/diff"], &format!("/d/{id}/diff"))
        };
        assert_eq!(docker("x"), docker("y"));
        assert_eq!(docker("x"), image(&["/d/B/diff", "/d/A/diff"], "/d/z/diff"));
        assert_ne!(docker("x"), image(&["/d/C/diff", "/d/A/diff"], "/d/z/diff"));
    }

    #[test]
    fn numbers_and_applications_are_in_the_names_of_control_groups() {
        for (group, expected) in [
            (format!("0::/machine.slice/libpod-{ID}.scope/container\n"), Some(ID)),
            (format!("0::/system.slice/docker-{ID}.scope\n"), Some(ID)),
            (format!("4:pids:/docker/{ID}\n0::/\n"), Some(ID)),
            (format!("0::/kubepods.slice/x.slice/cri-containerd-{ID}.scope\n"), Some(ID)),
            (format!("0::/{ID}0\n"), None),
            ("0::/user.slice\n".into(), None),
        ] {
            assert_eq!(container_id(group.as_bytes()), expected, "{group}");
        }
        for (group, expected) in [
            (
                "0::/user.slice/app.slice/app-flatpak-org.gimp.GIMP-4711.scope\n",
                Some("org.gimp.GIMP"),
            ),
            ("0::/user.slice/app.slice/snap.firefox.firefox-0a1b.scope\n", Some("firefox")),
            ("0::/user.slice/app.slice/app-gnome-x-4711.scope\n", None),
            ("0::/app-flatpak-.scope\n", None),
        ] {
            let found = application(group.as_bytes());
            assert_eq!(found.map(|image| image.name).as_deref(), expected, "{group}");
        }
    }

    #[test]
    fn images_are_called_as_podman_and_docker_call_them() {
        let images = r#"[{"id":"b65a","digest":"sha256:6646","names":["localhost/test:1"],"layer":"e3de"},
            {"id":"c7","names":null,"layer":"f0"}]"#;
        let image = |name: &str, id: &str| Some(Image { name: name.into(), identity: id.into() });
        let podman = |layer: &str| of_podman(images.as_bytes(), layer.as_ref());
        assert_eq!(podman("e3de"), image("test:1", "sha256:6646"));
        assert_eq!(podman("f0"), image("container", "c7"));
        assert_eq!(podman("none"), None);
        let docker = |config: &str| of_docker(config.as_bytes());
        let config =
            r#"{"Image":"sha256:11","Config":{"Image":"example.org/web@sha256:22","Tty":false}}"#;
        assert_eq!(docker(config), image("web", "sha256:11"));
        assert_eq!(docker(r#"{"Image":"sha256:11"}"#), image("container", "sha256:11"));
        assert_eq!(docker("[1"), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(options in "[a-z=/+:,\\\\]{0,60}", bytes: Vec<u8>) {
            let layers = root(&format!("overlay none lowerdir=/a,{options}")).unwrap();
            prop_assert!(!Image::of_layers(&layers).identity.is_empty());
            let _ = (container_id(&bytes), application(&bytes), of_docker(&bytes));
            let _ = of_podman(&bytes, "x".as_ref());
        }
    }
}
