//! `headstart layout list`: builders of images take the list, and place files in its order.

use crate::common::laid_out::{done, fails, pack};
use headstart_testing::{LoopFs, has, must, noise, skip};
use std::fs;
use std::path::Path;

/// Names that a list has to escape.
const NAMES: [&str; 9] =
    ["z", "m", "sp ace", "back\\slash", "tab\tb", "#hash", "\"quoted\"", "trailing ", "a"];

/// Where files begin in an image without compression.
fn places(image: &Path, files: &[Vec<u8>]) -> Vec<usize> {
    let image = fs::read(image).unwrap();
    let place = |file: &Vec<u8>| {
        image.windows(64).position(|window| window == &file[..64]).expect("a file is in the image")
    };
    files.iter().map(place).collect()
}

#[test]
fn mksquashfs_and_tar_place_files_in_the_order_of_their_first_touch() {
    let Some(fs) = LoopFs::sized("ext4", 64 << 20) else { return };
    if !has("mksquashfs") {
        return skip("mksquashfs is missing");
    }
    let tree = fs.path().join("tree");
    fs::create_dir(&tree).unwrap();
    let bytes = noise(9000 * NAMES.len());
    let files: Vec<Vec<u8>> = bytes.chunks(9000).map(<[u8]>::to_vec).collect();
    let paths: Vec<_> = NAMES.iter().map(|name| tree.join(name)).collect();
    for (path, bytes) in paths.iter().zip(&files) {
        fs::write(path, bytes).unwrap();
    }
    fs::write(tree.join("line\nend"), noise(9000)).unwrap();
    fs::write(fs.path().join("outside"), noise(9000)).unwrap();
    let others = [tree.join("line\nend"), fs.path().join("outside")];
    let pack = pack(&fs, &[&paths[..], &others].concat());
    let list = |format: &str| {
        let file = fs.beside(format);
        let said = done(&[&"list", &pack, &"--root", &tree, &"--format", &format, &"-o", &file]);
        assert!(said.contains("1 file skipped: with a line end in their names"), "{said}");
        assert!(said.contains("1 file skipped: not below"), "{said}");
        assert!(said.contains("9 files listed"), "{said}");
        file.to_str().unwrap().to_owned()
    };
    let (sorted, names) = (list("squashfs-sort"), list("paths"));
    let (tree, image) = (tree.to_str().unwrap(), fs.beside("squashfs"));
    let raw = ["-noI", "-noD", "-noF", "-no-progress", "-quiet", "-noappend"];
    let words = [&[tree, image.to_str().unwrap(), "-sort", &sorted][..], &raw].concat();
    must("mksquashfs", &words);
    let found = places(&image, &files);
    assert!(found.is_sorted(), "{found:?}");
    let archive = fs.beside("tar");
    let unquoted = "--no-unquote";
    must("tar", &["-C", tree, "-cf", archive.to_str().unwrap(), unquoted, "-T", &names]);
    let found = places(&archive, &files);
    assert!(found.is_sorted(), "{found:?}");
    // A list replaces a list, where it is known as one, and nothing else.
    list("squashfs-sort");
    let again = fails(&[&"list", &pack, &"--root", &tree, &"--format", &"paths", &"-o", &names], 1);
    assert!(again.contains("--force"), "{again}");
    let none =
        fails(&[&"list", &pack, &"--root", &"/no/such", &"--format", &"paths", &"-o", &names], 3);
    assert!(none.contains("no file to list"), "{none}");
}
