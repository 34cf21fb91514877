//! Decides how to react to a stopped command. Pure: no process, no terminal.
//!
//! The shell sees our process group as the job. The command runs in a separate group, so what the terminal does to one
//! group must be done to the other:
//!
//! | the terminal is | the command stops by | reaction |
//! | --- | --- | --- |
//! | ours | SIGTTIN, SIGTTOU: it needs the terminal | the command gets the terminal and continues |
//! | lent to the command | anything: Ctrl-Z, or itself | our group stops too, for the shell to see; `fg` resumes both |
//! | another job's | SIGTTIN, SIGTTOU | our group stops by the same signal, like any background job |
//! | ours, another job's | SIGTSTP, forwarded by us | we stop alone; the terminal has signalled the rest of our group |
//! | ours, another job's | SIGSTOP, sent to it alone | none: the lock stays held |
//! | none | anything | none: no shell would resume us, so the lock stays held |

use rustix::process::Signal;

/// The process group that has the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Foreground {
    NoTerminal,
    Us,
    Command,
    AnotherJob,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UponStop {
    Nothing,
    Lend,
    StopToo(Stop),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stop {
    pub signal: Signal,
    pub scope: StopScope,
    /// The command gets the terminal when we are resumed in the foreground.
    pub wants_terminal: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopScope {
    /// Only this process: the other processes of the group have already been signalled.
    Alone,
    WholeGroup,
}

/// The reaction to a command that was stopped by the signal with this number.
pub fn upon_stop(signal: i32, foreground: Foreground) -> UponStop {
    let wanted = [Signal::TTIN, Signal::TTOU].into_iter().find(|signal_wanted| signal_wanted.as_raw() == signal);
    let stop = |signal, scope, wants_terminal| UponStop::StopToo(Stop { signal, scope, wants_terminal });
    match (foreground, wanted) {
        (Foreground::NoTerminal, _) => UponStop::Nothing,
        (Foreground::Us, Some(_)) => UponStop::Lend,
        (Foreground::Command, _) => stop(Signal::TSTP, StopScope::WholeGroup, true),
        (Foreground::AnotherJob, Some(signal_wanted)) => stop(signal_wanted, StopScope::WholeGroup, true),
        (_, None) if signal == Signal::TSTP.as_raw() => stop(Signal::TSTP, StopScope::Alone, false),
        (_, None) => UponStop::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY_STOP: [Signal; 4] = [Signal::TSTP, Signal::STOP, Signal::TTIN, Signal::TTOU];

    fn upon(signal: Signal, foreground: Foreground) -> UponStop {
        upon_stop(signal.as_raw(), foreground)
    }

    #[test]
    fn a_command_that_needs_our_terminal_gets_it() {
        assert_eq!(upon(Signal::TTIN, Foreground::Us), UponStop::Lend);
        assert_eq!(upon(Signal::TTOU, Foreground::Us), UponStop::Lend);
    }

    #[test]
    fn a_background_command_that_needs_the_terminal_stops_the_job_by_the_same_signal() {
        for signal in [Signal::TTIN, Signal::TTOU] {
            let stop = Stop { signal, scope: StopScope::WholeGroup, wants_terminal: true };
            assert_eq!(upon(signal, Foreground::AnotherJob), UponStop::StopToo(stop));
        }
    }

    #[test]
    fn a_command_that_has_the_terminal_stops_the_job_however_it_stops() {
        for signal in EVERY_STOP {
            let stop = Stop { signal: Signal::TSTP, scope: StopScope::WholeGroup, wants_terminal: true };
            assert_eq!(upon(signal, Foreground::Command), UponStop::StopToo(stop), "{signal:?}");
        }
    }

    #[test]
    fn a_stop_from_the_terminal_to_our_group_stops_only_us() {
        for foreground in [Foreground::Us, Foreground::AnotherJob] {
            let stop = Stop { signal: Signal::TSTP, scope: StopScope::Alone, wants_terminal: false };
            assert_eq!(upon(Signal::TSTP, foreground), UponStop::StopToo(stop));
        }
    }

    #[test]
    fn a_command_that_is_stopped_alone_keeps_its_lock() {
        for foreground in [Foreground::Us, Foreground::AnotherJob] {
            assert_eq!(upon(Signal::STOP, foreground), UponStop::Nothing);
        }
    }

    #[test]
    fn without_a_terminal_no_shell_would_resume_us() {
        for signal in EVERY_STOP {
            assert_eq!(upon(signal, Foreground::NoTerminal), UponStop::Nothing, "{signal:?}");
        }
    }
}
