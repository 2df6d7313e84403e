//! Where a container's files come from: its mounts, its control group, and the lists of podman and
//! docker, with zero bytes between them.
#![no_main]

use headstart::host::mounts::parse;
use headstart_daemon::started::image::{
    Image, Layers, application, container_id, of_docker, of_podman,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut parts = data.splitn(4, |byte| *byte == 0);
    let mut next = || parts.next().unwrap_or_default();
    let (mounts, groups, images, container) = (next(), next(), next(), next());
    if let Some(layers) = parse(mounts).ok().and_then(|mounts| Layers::of_root(&mounts)) {
        assert!(!layers.lower.is_empty());
        let _ = Image::of_layers(&layers);
    }
    assert!(container_id(groups).is_none_or(|id| id.len() == 64));
    let found = [application(groups), of_podman(images, "layer".as_ref()), of_docker(container)];
    assert!(found.iter().flatten().all(|image| !image.name.is_empty()));
});
