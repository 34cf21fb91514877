//! Which signals this process listens to, and to whom it passes them on. What happens then is decided in `supervise`.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use rustix::process::Signal;
use tokio::signal::unix::{signal, Signal as Stream, SignalKind};

use super::dispositions;

/// These end a process that does not handle them: while it waits for the lock it leaves the queue and ends by them.
const ENDING: &[Signal] = &[Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM, Signal::USR1, Signal::USR2];

/// What matters only once there is a command. Before, SIGTSTP stops us as any process.
const WITH_COMMAND: &[Signal] = &[Signal::CHILD, Signal::CONT, Signal::TSTP, Signal::WINCH];

/// All that may have a handler of ours when the command is started.
pub const HANDLED: [&[Signal]; 2] = [ENDING, WITH_COMMAND];

/// Who gets a signal that was sent to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receiver {
    /// The command and what it has started: as a terminal does, and so that ending a shell ends what the shell runs.
    Group,
    /// The command alone. SIGUSR1 and SIGUSR2 mean what a program says they mean; its children, which it has not told,
    /// would end by them.
    Command,
}

pub fn receiver_of(signal: Signal) -> Receiver {
    match signal {
        Signal::USR1 | Signal::USR2 => Receiver::Command,
        _ => Receiver::Group,
    }
}

/// The signals that come in.
pub struct Signals {
    streams: Vec<(Signal, Stream)>,
}

impl Signals {
    /// From here on the signals that would end this process are told. What our caller wants ignored stays ignored,
    /// here and in the command.
    pub fn that_end() -> io::Result<Signals> {
        let mut signals = Signals { streams: Vec::new() };
        signals.listen(ENDING)?;
        Ok(signals)
    }

    /// Also those that matter to a command that runs.
    pub fn with_a_command(mut self) -> io::Result<Signals> {
        self.listen(WITH_COMMAND)?;
        Ok(self)
    }

    fn listen(&mut self, signals: &[Signal]) -> io::Result<()> {
        for one in signals {
            // An ignored SIGCHLD would take the command's status away before we see it.
            if *one != Signal::CHILD && dispositions::is_ignored(*one) {
                continue;
            }
            self.streams.push((*one, signal(SignalKind::from_raw(one.as_raw()))?));
        }
        dispositions::unblock(signals);
        Ok(())
    }

    /// The next signal; those of one kind that come close together count once.
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
    fn what_a_terminal_sends_reaches_the_group_and_what_programs_define_the_command() {
        for signal in [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM, Signal::TSTP, Signal::CONT, Signal::WINCH]
        {
            assert_eq!(receiver_of(signal), Receiver::Group, "{signal:?}");
        }
        assert_eq!(receiver_of(Signal::USR1), Receiver::Command);
        assert_eq!(receiver_of(Signal::USR2), Receiver::Command);
    }
}
