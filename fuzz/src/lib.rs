//! What the fuzz targets share.

use headstart::pack::{Pack, codec};
use headstart::trace::Event;
use headstart::trace::file::Capture;
use headstart_import::detect::Format;
use headstart_import::import;
use headstart_sys::counting::peak_of;

/// Real traces: Linux 6.18 on x86-64.
pub const TRACES: [&[u8]; 4] = [
    include_bytes!("../../fixtures/trace/folios.trace"),
    include_bytes!("../../fixtures/trace/losses.trace"),
    include_bytes!("../../fixtures/trace/overwritten.trace"),
    include_bytes!("../../fixtures/trace/python.trace"),
];

/// A real trace.
pub fn capture(number: usize) -> Capture {
    Capture::from_bytes(TRACES[number]).expect("a fixture is sound")
}

/// What every event promises.
pub fn check_event(event: &Event) {
    assert!(!event.pages.is_empty());
}

/// Two inputs out of one: the first byte, times the rest over 256, is where the
/// second begins.
pub fn split(data: &[u8]) -> (&[u8], &[u8]) {
    let Some((share, rest)) = data.split_first() else { return (data, data) };
    rest.split_at(rest.len() * usize::from(*share) / 256)
}

/// A pack from the body of its file form, without header and checksums, which
/// a fuzzer would never get right.
pub fn pack(body: &[u8]) -> Option<Pack> {
    codec::decode_body(body).ok()
}

/// Checks that a pack can be written and comes back as it was.
pub fn check_encoding(pack: &Pack) {
    let bytes = codec::encode(pack);
    assert_eq!(codec::decode(&bytes).as_ref(), Ok(pack));
}

/// What `work` on packs returns, which may hold 32 times the `bytes` of their files, `more`, and
/// what tables of a few entries take. The target has to count allocations.
pub fn bounded<T>(bytes: usize, more: usize, work: impl FnOnce() -> T) -> T {
    let (result, peak) = peak_of(work);
    assert!(peak <= 32 * bytes + more + 8192, "{peak} bytes for {bytes} of packs");
    result
}

/// What the smallest recording may take in memory.
pub const IMPORT_SLACK: usize = 512 << 10;

/// Imports a recording, which may hold 16 times its bytes, [`IMPORT_SLACK`] and `more`, and checks what
/// comes of it. The target has to count allocations.
pub fn check_import(data: &[u8], format: Format, more: usize) {
    let (found, peak) = peak_of(|| import(data, format, 4096));
    let most = 16 * data.len() + IMPORT_SLACK + more;
    assert!(peak <= most, "{format:?}: {peak} bytes for {}", data.len());
    match found {
        Ok(accesses) => {
            for (_, spans) in accesses.files() {
                assert!(spans.iter().all(|span| span.at <= accesses.duration()));
            }
        }
        Err(error) => {
            let text = error.to_string();
            assert!(!text.is_empty() && text.lines().count() == 1, "{text}");
        }
    }
}
