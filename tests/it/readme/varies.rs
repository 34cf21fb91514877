//! The allowed differences between a documented reply and the actual one: as few as possible.

use crate::support::LIMIT;
use std::collections::HashMap;
use std::ops::Range;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A value that varies between runs. If README.md repeats a value, the actual value must repeat too.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Varies {
    /// A random UUID; the same throughout the file.
    Uuid,
    /// Larger than every fencing token before it in the file; 16 digits.
    Fence,
    /// The id of an existing connection.
    Client,
    /// The port of an existing connection.
    Port,
    /// ttl and remaining: above 0, at most the value in the block's comment.
    Remaining(&'static str),
    /// age, waited, longest, held and ms: no longer than the replay has been running.
    Past,
    /// time: Unix time in ms, after the start of the replay.
    Time,
    /// How long redis-cli waited for the reply: at least as long as the server made it wait.
    Elapsed,
}

/// What is known when a reply is compared.
#[derive(Clone, Default)]
pub struct About {
    pub command: String,
    pub at_most: HashMap<String, u64>,
    /// The minimum time that the command waited.
    pub waited: Duration,
    /// How long the replay has been running.
    pub age: Duration,
    pub clients: Vec<(String, String)>,
}

impl About {
    fn example(command: &str) -> About {
        About {
            command: command.into(),
            at_most: [("ttl".into(), 30_000)].into(),
            waited: Duration::from_millis(1500),
            age: Duration::from_millis(1000),
            clients: vec![("7".into(), "6".into())],
        }
    }
}

/// The actual values seen so far for the documented ones.
#[derive(Default)]
pub struct Masks {
    actual_for: HashMap<String, String>,
    /// The last documented fencing token, and the last actual one.
    last_fence: (u64, u64),
}

impl Masks {
    /// A command with the documented UUIDs replaced by the actual ones.
    pub fn fill(&self, command: &str) -> String {
        let uuids = self.actual_for.iter().filter(|(written, _)| is_uuid(written));
        uuids.fold(command.to_string(), |command, (written, actual)| command.replace(written, actual))
    }

    /// Whether an actual line equals the documented one, except for values that vary.
    pub fn compare(&mut self, written: &str, actual: &str, about: &About) -> Result<(), String> {
        // redis-cli prints a blank after `=>` before a list; editors remove it.
        let (written, actual) = (written.trim_end(), actual.trim_end());
        let Some((range, varies)) = find_varying(written, &about.command) else {
            return if written == actual { Ok(()) } else { Err("nothing in this line varies".into()) };
        };
        let value =
            actual.strip_prefix(&written[..range.start]).and_then(|rest| rest.strip_suffix(&written[range.end..]));
        let value = value.ok_or_else(|| format!("only {} varies", &written[range.clone()]))?;
        self.judge(varies, &written[range], value, about)
    }

    fn judge(&mut self, varies: Varies, written: &str, actual: &str, about: &About) -> Result<(), String> {
        match varies {
            Varies::Uuid => check(is_uuid(actual), "no random UUID")?,
            Varies::Client => check(about.clients.iter().any(|(id, _)| id == actual), "no client's id")?,
            Varies::Port => check(about.clients.iter().any(|(_, port)| port == actual), "no client's port")?,
            Varies::Fence => return self.judge_fence(written, actual),
            Varies::Remaining(name) => {
                let most = *about.at_most.get(name).ok_or(format!("the block has no `at most {name}`"))?;
                let fits = |number: &str| Ok::<_, String>((1..=most).contains(&whole(number)?));
                check(fits(written)? && fits(actual)?, "not between 1 and the bound")?;
                return Ok(());
            }
            Varies::Past => {
                return check(u128::from(whole(actual)?) <= about.age.as_millis(), "before the replay began")
            }
            Varies::Time => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
                let (actual, age) = (u128::from(whole(actual)?), about.age.as_millis());
                return check(
                    whole(written).is_ok() && (now - age..=now).contains(&actual),
                    "not while the replay runs",
                );
            }
            Varies::Elapsed => {
                // Rounded as redis-cli does.
                let least = about.waited.as_secs_f64() - 0.01;
                let fits = |time: &str| time.parse().is_ok_and(|s: f64| s >= least && s < LIMIT.as_secs_f64());
                return check(fits(written) && fits(actual), "shorter than the wait");
            }
        }
        self.bind(written, actual)
    }

    /// A fencing token that occurred before must be the same; a new one must be larger, in both texts.
    fn judge_fence(&mut self, written: &str, actual: &str) -> Result<(), String> {
        if self.actual_for.contains_key(written) {
            return self.bind(written, actual);
        }
        let fences = (whole(written)?, whole(actual)?);
        check(fences.0 > self.last_fence.0, "README's fences do not grow")?;
        check(fences.1 > self.last_fence.1, "fences do not grow")?;
        check(fences.1 < 1 << 53, "not below 2^53")?;
        self.last_fence = fences;
        self.bind(written, actual)
    }

    /// A documented value corresponds to exactly one actual value.
    fn bind(&mut self, written: &str, actual: &str) -> Result<(), String> {
        match self.actual_for.get(written) {
            Some(before) => check(before == actual, &format!("{before} came before")),
            None => {
                check(!self.actual_for.values().any(|other| other == actual), "it came for something else before")?;
                self.actual_for.insert(written.into(), actual.into());
                Ok(())
            }
        }
    }
}

fn check(is_right: bool, why: &str) -> Result<(), String> {
    if is_right {
        Ok(())
    } else {
        Err(why.into())
    }
}

fn whole(number: &str) -> Result<u64, String> {
    number.parse().map_err(|_| format!("{number} is no number"))
}

/// What varies in a line of a reply, and where. Negative numbers have a special meaning and do not vary.
fn find_varying(line: &str, command: &str) -> Option<(Range<usize>, Varies)> {
    if let Some(start) = (0..line.len()).find(|start| line.get(*start..start + 36).is_some_and(is_uuid)) {
        return Some((start..start + 36, Varies::Uuid));
    }
    let fence = (0..line.len()).map(|start| digits_at(line, start)).find(|digits| digits.len() == 16);
    if let Some(range) = fence {
        return Some((range, Varies::Fence));
    }
    let fields = [
        ("\"ttl\" => (integer) ", Varies::Remaining("ttl")),
        ("\"remaining\" => (integer) ", Varies::Remaining("remaining")),
        ("\"age\" => (integer) ", Varies::Past),
        ("\"waited\" => (integer) ", Varies::Past),
        ("\"longest\" => (integer) ", Varies::Past),
        ("\"held\" => (integer) ", Varies::Past),
        ("\"ms\" => (integer) ", Varies::Past),
        ("\"time\" => (integer) ", Varies::Time),
        ("\"client\" => (integer) ", Varies::Client),
        ("\"session\" => (integer) ", Varies::Client),
        ("\"addr\" => \"127.0.0.1:", Varies::Port),
    ];
    let named = fields.into_iter().find_map(|(name, varies)| Some((line.find(name)? + name.len(), varies)));
    let of_command = || match command.split(' ').next() {
        Some("PTTL") => line.starts_with("(integer) ").then_some(("(integer) ".len(), Varies::Remaining("ttl"))),
        Some("LOCK.HELD") => {
            line.starts_with("3) (integer) ").then_some(("3) (integer) ".len(), Varies::Remaining("ttl")))
        }
        _ => None,
    };
    if let Some((start, varies)) = named.or_else(of_command) {
        let range = digits_at(line, start);
        // Session 0 means none, and 0 ms ago means just now.
        let is_zero = matches!(varies, Varies::Client | Varies::Past) && &line[range.clone()] == "0";
        let is_none = range.is_empty() || is_zero;
        return (!is_none).then_some((range, varies));
    }
    is_elapsed(line).then(|| (1..line.len() - "s)".len(), Varies::Elapsed))
}

/// `(1.53s)`
pub fn is_elapsed(line: &str) -> bool {
    let seconds = line.strip_prefix('(').and_then(|rest| rest.strip_suffix("s)"));
    seconds.is_some_and(|time| time.parse::<f64>().is_ok())
}

/// The digits that start here.
fn digits_at(line: &str, start: usize) -> Range<usize> {
    let digits = line.as_bytes()[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    start..start + digits
}

/// A random UUID, version 4.
fn is_uuid(text: &str) -> bool {
    let form = |(at, letter): (usize, u8)| match at {
        8 | 13 | 18 | 23 => letter == b'-',
        14 => letter == b'4',
        19 => b"89ab".contains(&letter),
        _ => letter.is_ascii_digit() || (b'a'..=b'f').contains(&letter),
    };
    text.len() == 36 && text.bytes().enumerate().all(form)
}

#[test]
fn only_varying_values_may_differ() {
    const UUID: &str = "1) \"0615c124-43c5-4ca6-bf89-a6986fb23e07\"";
    const TTL: &str = "4# \"ttl\" => (integer) 28949";
    let replies = [
        ("GET", "(integer) 1", &["(integer) 1"][..], &["(integer) 0", "(integer) 10", "1", "(nil)"][..]),
        ("GET", "(nil)", &["(nil)"], &["nil", ""]),
        ("LOCK.INFO", "5# \"holders\" =>", &["5# \"holders\" => "], &["5# \"holder\" => "]),
        (
            "LOCK.ACQUIRE",
            UUID,
            &["1) \"3e0a65f7-63c1-4c5c-9d9a-4b1f7ab44d8e\""],
            &["1) \"3e0a65f7-63c1-1c5c-9d9a-4b1f7ab44d8e\"", "1) \"worker-1\"", "2) \"3e0a65f7\""],
        ),
        (
            "LOCK.ACQUIRE",
            "2) (integer) 1795233976145581",
            &["2) (integer) 1795294463028405"],
            &["2) (integer) 1695294463028405", "2) (integer) 9795294463028405", "2) (integer) 0", "2) (nil)"],
        ),
        (
            "LOCK.INFO",
            TTL,
            &["4# \"ttl\" => (integer) 1"],
            &["4# \"ttl\" => (integer) 0", "4# \"ttl\" => (integer) 30001"],
        ),
        ("LOCK.INFO", "4# \"ttl\" => (integer) -1", &["4# \"ttl\" => (integer) -1"], &["4# \"ttl\" => (integer) 5"]),
        ("PTTL", "(integer) 17", &["(integer) 30000"], &["(integer) -2", "(integer) 0", "(integer) 30001"]),
        ("LOCK.HELD", "3) (integer) 17", &["3) (integer) 18"], &["3) (integer) -1", "3) (integer) 30001"]),
        ("LOCK.HELD", "2) (integer) 1", &["2) (integer) 1"], &["2) (integer) 2"]),
        ("LOCK.INFO", "7# \"age\" => (integer) 1", &["7# \"age\" => (integer) 900"], &["7# \"age\" => (integer) 1001"]),
        (
            "LOCK.INFO",
            "8# \"session\" => (integer) 0",
            &["8# \"session\" => (integer) 0"],
            &["8# \"session\" => (integer) 7"],
        ),
        (
            "LOCK.INFO",
            "8# \"session\" => (integer) 5",
            &["8# \"session\" => (integer) 7"],
            &["8# \"session\" => (integer) 0"],
        ),
        ("LOCK.TOP", "7# \"held\" => (integer) -1", &["7# \"held\" => (integer) -1"], &["7# \"held\" => (integer) 1"]),
        (
            "LOCK.TOP",
            "7# \"held\" => (integer) 1",
            &["7# \"held\" => (integer) 900"],
            &["7# \"held\" => (integer) 1001"],
        ),
        ("LOCK.WAITERS", "\"client\" => (integer) 1", &["\"client\" => (integer) 7"], &["\"client\" => (integer) 8"]),
        (
            "LOCK.WAITERS",
            "\"addr\" => \"127.0.0.1:5\"",
            &["\"addr\" => \"127.0.0.1:6\""],
            &["\"addr\" => \"127.0.0.1:8\""],
        ),
        ("LOCK.ACQUIRE", "(1.53s)", &["(1.50s)", "(2.10s)"], &["(1.40s)", "(99.00s)", "(1.53)"]),
    ];
    for (command, written, right, wrong) in replies {
        let compare = |actual: &str| {
            let mut masks = Masks { last_fence: (1_700_000_000_000_000, 1_700_000_000_000_000), ..Masks::default() };
            masks.compare(written, actual, &About::example(command))
        };
        for actual in right {
            assert_eq!(compare(actual), Ok(()), "{written} may be {actual}");
        }
        for actual in wrong {
            assert!(compare(actual).is_err(), "{written} must not be {actual}");
        }
    }
}

#[test]
fn repeated_values_must_repeat() {
    let about = About::example("LOCK.ACQUIRE");
    let mut masks = Masks::default();
    let mut fence = |written: &str, actual: &str| {
        masks.compare(&format!("2) (integer) {written}"), &format!("2) (integer) {actual}"), &about).is_ok()
    };
    assert!(fence("1795233976145581", "1795294463028405"));
    assert!(fence("1795233976145581", "1795294463028405"), "the same again");
    assert!(!fence("1795233976145581", "1795294463028406"), "another for the same");
    assert!(!fence("1795233976145582", "1795294463028405"), "the same for another");
    assert!(!fence("1795233976145582", "1795294463028404"), "smaller than the one before");
    assert!(!fence("1795233976145580", "1795294463028406"), "larger, where README has a smaller one");
    assert!(fence("1795233976145582", "1795294463028406"));
}
