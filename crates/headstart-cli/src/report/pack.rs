//! What is learned of a program or a service, and its last learned start.

use crate::output::{grouped, name, size, time};
use headstart::host::names;
use headstart::launch::policy::FREQUENT;
use headstart::outcome::last_run;
use headstart::pack::Pack;
use headstart::pack::key::Key;
use headstart::replay::benefit::Expected;
use headstart::replay::models::Models;
use headstart_view::build;
use headstart_view::picture::{Table, Text};
use headstart_view::render::report::{Drawn, Section};
use headstart_view::units::nanos;
use std::path::Path;

/// Files that are listed.
const FILES: usize = 40;

/// The name of the pack of what a user named: for a service that of its file.
pub fn name_of(subject: &str) -> String {
    if subject.ends_with(".service") && !subject.contains('/') {
        let Some(dir) = crate::packs::search_path().ok().and_then(|dirs| dirs.into_iter().next())
        else {
            return subject.to_owned();
        };
        return dir.join(Key::of_name(subject).file_name).to_string_lossy().into_owned();
    }
    subject.to_owned()
}

/// The sections of a pack.
///
/// # Errors
/// A picture has no form in JSON.
pub fn sections(path: &Path, pack: &Pack) -> anyhow::Result<Vec<Section>> {
    let subject = names::text(&pack.origin.name);
    let mut sections = vec![of_pack(&subject, pack)];
    if let Ok(run) = last_run::file::read(path, pack, rustix::process::geteuid().as_raw()) {
        let picture = build::last_run::picture(&run);
        sections.push(Section {
            title: format!("Last start of {subject}: ready, late, missing, wasted").into(),
            words: picture.summary.clone(),
            pictures: vec![Drawn::of(&picture)?],
            tables: picture.tables,
            ..Section::default()
        });
    }
    Ok(sections)
}

fn of_pack(subject: &str, pack: &Pack) -> Section {
    let origin = &pack.origin;
    let mut rows = vec![
        ["starts".to_owned(), origin.starts.to_string()],
        ["learned".to_owned(), time(origin.learned_at)],
        ["last start".to_owned(), nanos(origin.duration_us.saturating_mul(1000))],
        ["files".to_owned(), grouped(pack.files.len() as u64)],
        ["ranges".to_owned(), grouped(pack.ranges.len() as u64)],
        ["data".to_owned(), size(pack.data_bytes())],
        ["metadata".to_owned(), size(pack.metadata_bytes())],
    ];
    if let Some(model) = Models::here().of_pack(pack, &Default::default()) {
        let expected = Expected::of(pack, &FREQUENT.choice(pack), &model);
        let (least, most) = expected.gain();
        let (latency, bandwidth) =
            (nanos(u64::from(model.latency_us) * 1000), model.bandwidth_mb_s);
        rows.push(["device".to_owned(), format!("{latency} a random read, {bandwidth} MB/s")]);
        rows.push([
            "expected gain of a cold start".to_owned(),
            format!("{:.0} to {:.0} %", least * 100.0, most * 100.0),
        ]);
    }
    let rows = rows.into_iter().map(|row| row.map(Text::from).to_vec());
    let command = origin.command.split(|byte| *byte == 0).map(names::name);
    Section {
        title: format!("Pack of {subject}").into(),
        words: vec![command.collect::<Vec<_>>().join(" ").trim_end().into()],
        tables: vec![Table::new("What was learned", &["", ""], rows, usize::MAX), files(pack)],
        ..Section::default()
    }
}

/// The files of which most is read.
fn files(pack: &Pack) -> Table {
    let mut pages = vec![(0u64, 0u64); pack.files.len()];
    for range in &pack.ranges {
        if let Some((ranges, pages)) = pages.get_mut(range.file as usize) {
            *ranges += 1;
            *pages = pages.saturating_add(range.pages.into());
        }
    }
    let mut files: Vec<_> = pack.files.iter().zip(pages).collect();
    files.sort_by_key(|(_, (_, pages))| std::cmp::Reverse(*pages));
    let rows = files.into_iter().map(|(file, (ranges, pages))| -> Vec<Text> {
        let path = pack.paths.path(file.node);
        vec![
            name(path.as_os_str().as_encoded_bytes()).into(),
            grouped(ranges).into(),
            size(pages.saturating_mul(pack.page_size())).into(),
            size(file.identity.size).into(),
        ]
    });
    Table::new("Files", &["file", "ranges", "read", "size"], rows, FILES)
}
