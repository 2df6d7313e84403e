//! `headstart daemon`: the service that learns and prefetches all programs, and the commands that ask
//! it.

mod print;
mod serve;

use crate::exit::ExitStatus;
use crate::{args, output};
use anyhow::bail;
use clap::Subcommand;
use headstart_daemon::client::{self, SOCKET};
use headstart_daemon::control::answer::Answer;
use headstart_daemon::control::request::Request;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::Duration;

/// What to do with the service.
#[derive(Subcommand, Debug)]
pub enum DaemonVerb {
    /// Run the service; systemd does that, by headstartd.service
    Run(serve::ServeArgs),
    /// Show what the service does, and what it gained and cost
    Status(AskArgs),
    /// List the last starts, and the programs that gain most
    Top(AskArgs),
    /// Print the figures in the text format of Prometheus
    Metrics(SocketArgs),
    /// Forget what was learned of a program
    Forget(ProgramArgs),
    /// Prefetch a program at each start and keep its pack, whatever the figures say
    Pin(ProgramArgs),
    /// Leave a pinned program to the figures again
    Unpin(ProgramArgs),
    /// Neither prefetch nor learn until `resume`; root only
    Pause(PauseArgs),
    /// Go on after `pause`; root only
    Resume(AskArgs),
    /// End tracing and the service, until it is started again; root only
    Off(AskArgs),
}

/// Where the service is.
#[derive(clap::Args, Debug)]
pub struct SocketArgs {
    /// The socket of the service
    #[arg(long, value_name = "PATH", default_value = SOCKET)]
    socket: PathBuf,
}

/// Where the service is, and how it is printed.
#[derive(clap::Args, Debug)]
pub struct AskArgs {
    #[command(flatten)]
    at: SocketArgs,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// The same, and a program.
#[derive(clap::Args, Debug)]
pub struct ProgramArgs {
    /// The program: its name or pack as `top` shows them, or the path of its executable
    #[arg(value_name = "PROGRAM")]
    program: String,

    #[command(flatten)]
    ask: AskArgs,
}

/// The same, and a time.
#[derive(clap::Args, Debug)]
pub struct PauseArgs {
    /// Go on by itself after this time, such as 10m
    #[arg(long = "for", value_name = "TIME", value_parser = args::duration)]
    time: Option<Duration>,

    #[command(flatten)]
    ask: AskArgs,
}

/// Runs the service, or asks it.
pub fn run(verb: DaemonVerb) -> anyhow::Result<ExitStatus> {
    match verb {
        DaemonVerb::Run(args) => return serve::run(&args),
        DaemonVerb::Status(ask) => {
            let answer = asked(&ask, &Request::Status {})?;
            answer.into_iter().try_for_each(|answer| print::status(&answer))?;
        }
        DaemonVerb::Top(ask) => {
            let answer = asked(&ask, &Request::Top {})?;
            answer.into_iter().try_for_each(|answer| print::top(&answer))?;
        }
        DaemonVerb::Metrics(at) => {
            let text = answer(&at, &Request::Metrics {})?.metrics.unwrap_or_default();
            output::print(|out| write!(out, "{text}"))?;
        }
        DaemonVerb::Forget(ProgramArgs { program, ask }) => {
            done(&ask, &Request::Forget { program })?;
        }
        DaemonVerb::Pin(ProgramArgs { program, ask }) => done(&ask, &Request::Pin { program })?,
        DaemonVerb::Unpin(ProgramArgs { program, ask }) => done(&ask, &Request::Unpin { program })?,
        DaemonVerb::Pause(PauseArgs { time, ask }) => {
            done(&ask, &Request::Pause { seconds: time.map(|time| time.as_secs()) })?;
        }
        DaemonVerb::Resume(ask) => done(&ask, &Request::Resume {})?,
        DaemonVerb::Off(ask) => done(&ask, &Request::Off {})?,
    }
    Ok(ExitStatus::Done)
}

/// The answer to a request, unless it was printed as JSON.
fn asked(ask: &AskArgs, request: &Request) -> anyhow::Result<Option<Answer>> {
    let answer = answer(&ask.at, request)?;
    if ask.json {
        output::print_json(&answer)?;
        return Ok(None);
    }
    Ok(Some(answer))
}

fn done(ask: &AskArgs, request: &Request) -> anyhow::Result<()> {
    if let Some(answer) = asked(ask, request)? {
        let what = answer.done.unwrap_or_default();
        output::print(|out| writeln!(out, "{what}"))?;
    }
    Ok(())
}

fn answer(at: &SocketArgs, request: &Request) -> anyhow::Result<Answer> {
    let shown = output::shown(&at.socket);
    let answer = client::ask(&at.socket, request).map_err(|error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => anyhow::anyhow!(
            "The service does not run: `systemctl enable --now headstartd` starts it (no answer at {shown})"
        ),
        _ => anyhow::Error::from(error).context(format!("Can't ask the service at {shown}")),
    })?;
    if let Some(error) = answer.error {
        bail!("The service refuses: {error}");
    }
    Ok(answer)
}
