//! `redis-lock top`: the locks with the most waiters, live. One task queries the servers, one thread reads the
//! keyboard, and the loop here draws, so a slow or missing server never delays the keys.

mod once;
pub mod sample;
mod screen;
pub mod summary;
mod view;
mod watched;

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use ratatui::crossterm::event::{self, Event};
use ratatui::DefaultTerminal;
use rustix::process::{kill_current_process_group, Signal};
use tokio::signal::unix::{signal, SignalKind};
use tokio::sync::{mpsc, watch};
use tokio::time;

use crate::args::{ConnectionArgs, TopArgs};
use crate::error::Error;
use crate::message::say;
use crate::output::Format;
use crate::servers::Servers;
use once::print_once;
use sample::Sample;
use screen::{draw, Known};
use view::{View, Wish};
use watched::watch_servers;

/// How often the clock on the screen is redrawn if nothing else happens.
const TICK: Duration = Duration::from_millis(500);

pub async fn top(args: TopArgs, server: &ConnectionArgs) -> Result<ExitCode, Error> {
    let has_terminal = io::stdin().is_terminal() && io::stdout().is_terminal();
    if !args.once && !has_terminal {
        return Err(Error::Options("top requires a terminal: use --once to print without one".into()));
    }
    let mut servers = Servers::connect(server).await?;
    let first = Sample::take(&mut servers, args.count).await?;
    if args.once {
        for line in summary::other_nodes(&first) {
            say(format_args!("{line}"));
        }
        time::sleep(args.interval).await;
        let second = Sample::take(&mut servers, args.count).await?;
        print_once(&second, second.rates_since(&first), Format::new(args.json))?;
        servers.complete()?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut view = View::new(args.interval);
    let (pace, paced) = watch::channel(args.interval);
    let (samples, sampled) = mpsc::channel(1);
    let known = Known { sample: first, rates: None, problem: None };
    // Restores the terminal on a panic too.
    let terminal = ratatui::try_init().map_err(of_terminal)?;
    let end = tokio::select! {
        end = interact(terminal, &mut view, known, pace, sampled) => end,
        () = watch_servers(servers, args.count, paced, samples) => Ok(ExitCode::SUCCESS),
    };
    ratatui::restore();
    end
}

/// Draws, and handles the keys, until a key or a signal ends the program.
async fn interact(
    mut terminal: DefaultTerminal,
    view: &mut View,
    mut known: Known,
    pace: watch::Sender<Duration>,
    mut samples: mpsc::Receiver<Result<Sample, Error>>,
) -> Result<ExitCode, Error> {
    let mut keys = keyboard();
    let mut interrupt = signal(SignalKind::interrupt()).map_err(of_terminal)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(of_terminal)?;
    let mut hang_up = signal(SignalKind::hangup()).map_err(of_terminal)?;
    let mut continued = signal(SignalKind::from_raw(Signal::CONT.as_raw())).map_err(of_terminal)?;
    let mut tick = time::interval(TICK);
    loop {
        terminal.draw(|frame| draw(frame, view, &known)).map_err(of_terminal)?;
        tokio::select! {
            event = keys.recv() => match event {
                Some(Ok(event)) => {
                    match view.handle(event) {
                        Wish::Quit => return Ok(ExitCode::SUCCESS),
                        Wish::Suspend => {
                            suspend(&mut continued).await?;
                            terminal = ratatui::try_init().map_err(of_terminal)?;
                        }
                        Wish::Stay => {}
                    }
                    pace.send_if_modified(|interval| std::mem::replace(interval, view.interval) != view.interval);
                }
                Some(Err(cause)) => return Err(of_terminal(cause)),
                None => return Ok(ExitCode::SUCCESS),
            },
            sample = samples.recv() => match sample {
                Some(Ok(sample)) => {
                    let rates = Some(sample.rates_since(&known.sample));
                    known = Known { sample, rates, problem: None };
                }
                Some(Err(error)) => known.problem = Some(error.to_string()),
                None => return Ok(ExitCode::SUCCESS),
            },
            _ = tick.tick() => {}
            // Stopped by a signal from outside; the shell has reset the terminal since.
            _ = continued.recv() => terminal = ratatui::try_init().map_err(of_terminal)?,
            _ = interrupt.recv() => return Ok(of_signal(SignalKind::interrupt())),
            _ = terminate.recv() => return Ok(of_signal(SignalKind::terminate())),
            _ = hang_up.recv() => return Ok(of_signal(SignalKind::hangup())),
        }
    }
}

/// Handles Ctrl-Z: in raw mode the terminal does not turn the key into a signal.
async fn suspend(continued: &mut tokio::signal::unix::Signal) -> Result<(), Error> {
    ratatui::restore();
    // Like the terminal, stop the whole job of the shell.
    kill_current_process_group(Signal::TSTP).map_err(|cause| of_terminal(cause.into()))?;
    // The stop may come a moment later. If no shell could continue the job, the system discards the signal.
    let _continued_or_dropped = time::timeout(Duration::from_millis(100), continued.recv()).await;
    Ok(())
}

/// Key presses and resizes. Nothing can wake the thread, so it ends with the program.
fn keyboard() -> mpsc::UnboundedReceiver<io::Result<Event>> {
    let (sender, receiver) = mpsc::unbounded_channel();
    thread::spawn(move || loop {
        let event = event::read();
        let is_over = event.is_err();
        if sender.send(event).is_err() || is_over {
            return;
        }
    });
    receiver
}

fn of_terminal(cause: io::Error) -> Error {
    Error::Io { what: "the terminal".into(), cause }
}

/// The exit status that a shell gives to this signal.
fn of_signal(signal: SignalKind) -> ExitCode {
    ExitCode::from(128 + u8::try_from(signal.as_raw_value()).unwrap_or_default())
}
