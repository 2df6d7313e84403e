//! `headstart daemon run`: begins the service in the foreground.

use crate::exit::ExitStatus;
use crate::output;
use anyhow::{Context, bail};
use headstart::host::contents;
use headstart::host::user::User;
use headstart::pack::store;
use headstart_daemon::client::SOCKET;
use headstart_daemon::config::{self, Config};
use headstart_daemon::early::sessions;
use headstart_daemon::service::run::{self, Places};
use headstart_sys::descriptors;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The arguments of `headstart daemon run`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
The service sees each exec of the machine. It prefetches the pack of a program that it knows, and \
learns programs that start slowly from a cold page cache: the first cold start is noticed, the \
next start is recorded, and later ones are prefetched. Packs of root's programs are those of \
`headstart run`; those of other users lie in the state directory. It runs until SIGTERM, SIGINT \
or `headstart daemon off`, and executes no program.")]
pub struct ServeArgs {
    /// The configuration; see headstartd.conf(5)
    #[arg(long, value_name = "FILE", default_value = config::PATH)]
    config: PathBuf,

    /// Where the state and the packs of users are kept
    #[arg(long, value_name = "DIR", default_value = "/var/lib/headstart/daemon")]
    state: PathBuf,

    /// Where to listen
    #[arg(long, value_name = "PATH", default_value = SOCKET)]
    socket: PathBuf,

    /// Where logind keeps its sessions, which tell of logins
    #[arg(long, value_name = "DIR", default_value = sessions::DIRECTORY)]
    sessions: PathBuf,
}

/// Runs the service.
pub fn run(args: &ServeArgs) -> anyhow::Result<ExitStatus> {
    if !rustix::process::geteuid().is_root() {
        output::message("The service needs root: run it with sudo, or by systemd");
        return Ok(ExitStatus::PermissionMissing);
    }
    let config = read(&args.config)?;
    let user = User::own();
    let Some(packs) = store::search_path(user.is_root(), user.variable)?.into_iter().next() else {
        bail!("There is no directory for packs");
    };
    let absolute = |path: &Path| std::path::absolute(path).context("Can't tell where we are");
    let (state, socket) = (absolute(&args.state)?, absolute(&args.socket)?);
    let sessions = absolute(&args.sessions)?;
    // Its file system can be unmounted.
    let _ = rustix::process::chdir("/");
    // Without memory, the kernel should end this process, and no program.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    descriptors::allow_most();
    let tell = Box::new(|line: &str| output::message(line));
    run::run(config, Places { state, packs, socket, sessions }, tell)?;
    // A thread that waits for a file server keeps the process, and nobody shall wait for what it has
    // open.
    descriptors::close_all();
    std::process::exit(ExitStatus::Done.number())
}

/// The configuration; the defaults where there is none.
fn read(path: &Path) -> anyhow::Result<Config> {
    let shown = output::shown(path);
    match contents::text(path) {
        Ok(text) => Config::parse(&text).with_context(|| format!("Can't use {shown}")),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Config::default()),
        Err(error) => Err(error).with_context(|| format!("Can't read {shown}")),
    }
}
