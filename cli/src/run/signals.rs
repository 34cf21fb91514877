//! The signals that this process handles, and the process or group to which each is forwarded. `supervise` decides what
//! happens then.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use rustix::process::Signal;
use tokio::signal::unix::{signal, Signal as Stream, SignalKind};

use super::dispositions;

/// Signals that end a process without a handler. If one arrives while this process waits for the lock, it leaves the
/// queue and ends by that signal.
pub const ENDING: &[Signal] = &[Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM, Signal::USR1, Signal::USR2];

/// Signals that matter only once the command runs. Before that, SIGTSTP stops this process like any other.
const WITH_COMMAND: &[Signal] = &[Signal::CHILD, Signal::CONT, Signal::TSTP, Signal::WINCH];

/// All signals that may have one of our handlers when the command is started.
pub const HANDLED: [&[Signal]; 2] = [ENDING, WITH_COMMAND];

/// The process or group to which a signal is forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receiver {
    /// The command and everything it has started, as a terminal does, so that ending a shell also ends what the shell
    /// runs.
    Group,
    /// The command alone. Programs define the meaning of SIGUSR1 and SIGUSR2, and a child without a handler would end
    /// by them.
    Command,
}

pub fn receiver_of(signal: Signal) -> Receiver {
    match signal {
        Signal::USR1 | Signal::USR2 => Receiver::Command,
        _ => Receiver::Group,
    }
}

/// The stream of received signals.
pub struct Signals {
    streams: Vec<(Signal, Stream)>,
}

impl Signals {
    /// From here on, signals that would end this process are received instead. A signal that our parent ignores remains
    /// ignored, here and in the command.
    pub fn that_end() -> io::Result<Signals> {
        let mut signals = Signals { streams: Vec::new() };
        signals.listen(ENDING)?;
        Ok(signals)
    }

    /// Also receives the signals that matter while a command runs.
    pub fn with_a_command(mut self) -> io::Result<Signals> {
        self.listen(WITH_COMMAND)?;
        Ok(self)
    }

    fn listen(&mut self, signals: &[Signal]) -> io::Result<()> {
        for one in signals {
            // If SIGCHLD were ignored, the system would reap the command before we read its status.
            if *one != Signal::CHILD && dispositions::is_ignored(*one) {
                continue;
            }
            self.streams.push((*one, signal(SignalKind::from_raw(one.as_raw()))?));
        }
        dispositions::unblock(signals);
        Ok(())
    }

    /// The next signal; multiple signals of one kind in quick succession count once.
    pub async fn next(&mut self) -> Signal {
        poll_fn(|context| {
            for (signal, stream) in &mut self.streams {
                if stream.poll_recv(context).is_ready() {
                    return Poll::Ready(*signal);
                }
            }
            Poll::Pending
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_signals_go_to_the_group_and_user_signals_to_the_command() {
        for signal in [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM, Signal::TSTP, Signal::CONT, Signal::WINCH]
        {
            assert_eq!(receiver_of(signal), Receiver::Group, "{signal:?}");
        }
        assert_eq!(receiver_of(Signal::USR1), Receiver::Command);
        assert_eq!(receiver_of(Signal::USR2), Receiver::Command);
    }
}
