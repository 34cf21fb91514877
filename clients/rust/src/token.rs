//! Tokens that are readable in LOCK.INFO, `host:pid:random`; owners as text; and random numbers for pauses.

use std::cell::RefCell;
use std::fmt::{self, Write};
use std::process;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

const LONGEST: usize = 38;
/// Of the random number, in hex.
const DIGITS: usize = 16;

/// Returns a new owner ID, `host:pid:random`, with 64 random bits in hex; at most 38 bytes.
pub fn make_token() -> Vec<u8> {
    let (token, length) = next_token();
    token[..length].to_vec()
}

/// Returns a new owner ID for the holds and requests that share it.
pub(crate) fn new_token() -> Arc<[u8]> {
    let (token, length) = next_token();
    token[..length].into()
}

/// A new owner ID and its length.
fn next_token() -> ([u8; LONGEST], usize) {
    // Kept, because the name of the host takes a system call. A child of fork() has another process ID.
    static PREFIX: OnceLock<(u32, String)> = OnceLock::new();
    let host = || gethostname::gethostname().to_string_lossy().into_owned();
    let pid = process::id();
    let (kept_pid, kept) = PREFIX.get_or_init(|| (pid, prefix(&host(), pid)));
    let own;
    let prefix = if *kept_pid == pid {
        kept
    } else {
        own = prefix(&host(), pid);
        &own
    };
    let (mut token, mut number, length) = ([0; LONGEST], random(pid), prefix.len() + DIGITS);
    token[..prefix.len()].copy_from_slice(prefix.as_bytes());
    for digit in token[prefix.len()..length].iter_mut().rev() {
        *digit = b"0123456789abcdef"[(number % 16) as usize];
        number /= 16;
    }
    (token, length)
}

/// `host:pid:`, with what is left of the host beside the random digits.
fn prefix(host: &str, pid: u32) -> String {
    let tail = format!(":{pid}:");
    let readable = host.chars().map(|char| if char.is_ascii_graphic() { char } else { '?' });
    let mut prefix: String = readable.take(LONGEST - DIGITS - tail.len()).collect();
    prefix.push_str(&tail);
    prefix
}

/// Random numbers of the operating system, eight from one system call, because a call for each would cost as much as
/// the rest of a token. Each thread has its own, and so does a child of fork().
struct Numbers {
    left: Vec<u64>,
    pid: u32,
}

impl Numbers {
    const fn new() -> Numbers {
        Numbers { left: Vec::new(), pid: 0 }
    }

    fn next(&mut self, pid: u32) -> u64 {
        if self.pid != pid {
            *self = Numbers { left: Vec::new(), pid };
        }
        self.left.pop().unwrap_or_else(|| {
            let mut bytes = [0; 64];
            getrandom::fill(&mut bytes).expect("the system has random numbers");
            let (numbers, _) = bytes.as_chunks();
            self.left.extend(numbers.iter().map(|number| u64::from_ne_bytes(*number)));
            self.left.pop().expect("there are eight")
        })
    }
}

fn random(pid: u32) -> u64 {
    thread_local! { static NUMBERS: RefCell<Numbers> = const { RefCell::new(Numbers::new()) } }
    NUMBERS.with_borrow_mut(|numbers| numbers.next(pid))
}

/// A random number in `low..high`.
pub(crate) fn random_between(low: f64, high: f64) -> f64 {
    // 53 bits fit into the fraction of an f64.
    let fraction = (random(process::id()) >> 11) as f64 / (1u64 << 53) as f64;
    low + (high - low) * fraction
}

/// Multiplies by a random number in `low..high`; saturates at the maximum Duration.
pub(crate) fn jittered(time: Duration, low: f64, high: f64) -> Duration {
    Duration::try_from_secs_f64(time.as_secs_f64() * random_between(low, high)).unwrap_or(Duration::MAX)
}

/// An owner ID: arbitrary bytes, nearly always text. It is shown as text, with other bytes as `\xff`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner(Vec<u8>);

impl Owner {
    pub(crate) fn new(token: &[u8]) -> Owner {
        Owner(token.to_vec())
    }

    /// The owner ID as bytes, as [`Guard::token`](crate::Guard::token) returns it.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for character in chunk.valid().chars() {
                match character {
                    '\\' => f.write_str("\\\\")?,
                    _ if character.is_control() => write!(f, "{}", character.escape_default())?,
                    _ => f.write_char(character)?,
                }
            }
            chunk.invalid().iter().try_for_each(|byte| write!(f, "\\x{byte:02x}"))?;
        }
        Ok(())
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

impl PartialEq<str> for Owner {
    fn eq(&self, other: &str) -> bool {
        self.0 == other.as_bytes()
    }
}

impl PartialEq<&str> for Owner {
    fn eq(&self, other: &&str) -> bool {
        self == *other
    }
}

impl PartialEq<[u8]> for Owner {
    fn eq(&self, other: &[u8]) -> bool {
        self.0 == other
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_token_is_short_readable_and_new() {
        let long = prefix("a-host-with-a-name-that-is-far-too-long.example.org", u32::MAX);
        assert!(long.len() == LONGEST - DIGITS && long.starts_with("a-host-w"), "{long}");
        let token = String::from_utf8(make_token()).unwrap();
        let parts: Vec<&str> = token.split(':').collect();
        assert!(token.len() <= LONGEST && parts[1] == process::id().to_string() && parts[2].len() == DIGITS, "{token}");
        assert!(parts[2].bytes().all(|digit| digit.is_ascii_hexdigit()), "{token}");
        assert_ne!(make_token(), make_token());
    }

    #[test]
    fn a_number_is_given_once_and_a_child_of_fork_has_its_own() {
        let mut parent = Numbers::new();
        let first = parent.next(1);
        let mut child = Numbers { left: parent.left.clone(), pid: parent.pid };
        let mut all: HashSet<u64> = (0..20).map(|_| parent.next(1)).chain((0..20).map(|_| child.next(2))).collect();
        all.insert(first);
        assert_eq!(all.len(), 41);
    }

    #[test]
    fn random_numbers_stay_between() {
        let numbers: Vec<f64> = (0..1000).map(|_| random_between(0.5, 1.5)).collect();
        assert!(numbers.iter().all(|number| (0.5..1.5).contains(number)));
        assert!(numbers.iter().any(|number| *number < 0.6) && numbers.iter().any(|number| *number > 1.4));
    }

    #[test]
    fn an_owner_is_shown_as_text_and_no_two_look_the_same() {
        let shown = |bytes: &[u8]| Owner::new(bytes).to_string();
        assert_eq!(shown("web-1:7:zürich".as_bytes()), "web-1:7:zürich");
        assert_eq!([shown(b"a\xff\n"), shown(b"a\\xff\\n")], ["a\\xff\\n", "a\\\\xff\\\\n"]);
        assert_eq!(format!("{:?}", Owner::new(b"w")), "\"w\"");
    }
}
