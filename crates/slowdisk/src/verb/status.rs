//! `slowdisk status`: what is up.

use std::path::Path;
use std::process::ExitCode;

use slowdisk::{lifecycle, state};

pub fn run(state: &Path) -> anyhow::Result<ExitCode> {
    let entries = state::entries(state)?;
    for entry in entries {
        let Some(disk) = entry.load()? else { continue };
        let condition = match (&disk.device, lifecycle::is_alive(&entry)) {
            (_, Err(_)) => "stuck",
            (_, Ok(false)) => "dead",
            (None, Ok(true)) => "coming up",
            (Some(_), Ok(true)) => "up",
        };
        let path = |path: &Option<std::path::PathBuf>| {
            path.as_ref().map_or_else(|| "-".to_owned(), |path| path.display().to_string())
        };
        say!(
            "{condition}\t{}\t{}\t{}\t{}\tserver {}",
            path(&disk.device),
            path(&disk.mount),
            disk.model_name,
            disk.image.display(),
            disk.server.map_or_else(|| "-".to_owned(), |id| id.to_string()),
        );
    }
    Ok(ExitCode::SUCCESS)
}
