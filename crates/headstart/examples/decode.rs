//! How long decoding and planning a pack take: medians of 100.
//!
//! Usage: decode PACK
#![allow(clippy::disallowed_methods)] // Its files end.

use headstart::pack::codec;
use headstart::replay::frequency::Frequency;
use headstart::replay::plan::{Limits, Plan};
use headstart::replay::strategy::ReadStrategy;
use std::error::Error;
use std::path::PathBuf;
use std::time::Instant;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).map(PathBuf::from).ok_or("Usage: decode PACK")?;
    let bytes = std::fs::read(&path)?;
    let pack = codec::decode(&bytes)?;
    let limits = Limits { budget: u64::MAX, metadata: true };
    let decoding = median(|| drop(codec::decode(&bytes)));
    let packs = std::slice::from_ref(&pack);
    let planning =
        median(|| drop(Plan::of_packs(packs, Frequency::HALF, limits, ReadStrategy::default())));
    let (files, ranges) = (pack.files.len(), pack.ranges.len());
    println!("{files} files, {ranges} ranges: decoded in {decoding} µs, planned in {planning} µs");
    Ok(())
}

fn median(mut work: impl FnMut()) -> u128 {
    let mut times: Vec<u128> = (0..100)
        .map(|_| {
            let began = Instant::now();
            work();
            began.elapsed().as_micros()
        })
        .collect();
    times.sort_unstable();
    times[times.len() / 2]
}
