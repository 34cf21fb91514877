//! The parser of every command: any arguments are a request or an error reply. A parsed request is unchanged when it is
//! printed and parsed again, and a repeated option is a syntax error.
//!
//! The arguments in the input are separated by newlines. The first is the command's name; if there is no such command,
//! its first byte selects one.

use std::fmt::Debug;

use command::adopted::seen;
use command::adopted::{AdoptedKeys, Original};
use command::catalog::Container;
use command::catalog::{Action, Command, CATALOG};
use command::effect;
use command::errors::ErrorReply;
use command::name::Prefix;
use command::parse::{self, key_positions, AcquireCommand, AdoptionCommand, LeaseSettings, ListLength, LogCommand};
use command::parse::{Condition, Expiry, ReleaseCommand, RenewCommand, ScanCommand, SetCommand, Token, MAX_LEASE_MS};
use lock::engine::release::{HoldsOf, WorkOutcome};
use lock::value::claim::{Claim, Count, LockType, Mode, ReleaseAmount};
use lock::value::owner::{OwnerRef, MAX_OWNER};
use lock::value::time::{Lease, Timestamp, WaitLimit};

/// The default settings, and settings that refuse leases that the defaults allow.
const SETTINGS: [LeaseSettings; 2] =
    [LeaseSettings { default_ms: 30_000, max_ms: MAX_LEASE_MS }, LeaseSettings { default_ms: 30_000, max_ms: 10_000 }];

/// The index of the inner command of LOCK.EXEC.
const INNER_COMMAND: usize = 3;

/// Parses the words as the command does; panics if a property is violated.
pub fn arguments(bytes: &[u8]) {
    let words: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
    let command = named(words[0]);
    if command.accepts(words.len()) {
        SETTINGS.iter().for_each(|settings| read(command, &words, *settings));
    }
    for prefix in [Prefix::Lock, Prefix::Rlock, Prefix::Rwlock, Prefix::Sem, Prefix::Mlock] {
        let positions = key_positions(prefix, &words);
        assert!(positions.is_empty() || positions.start > 0 && positions.end <= words.len(), "{positions:?}");
    }
}

fn named(name: &[u8]) -> &'static Command {
    let by_name = CATALOG.iter().find(|command| name.eq_ignore_ascii_case(command.name.as_bytes()));
    by_name.unwrap_or(&CATALOG[usize::from(name.first().copied().unwrap_or(0)) % CATALOG.len()])
}

fn read(command: &Command, words: &[&[u8]], settings: LeaseSettings) {
    match command.action {
        Action::Acquire(prefix) => {
            let reads =
                |words: &[&[u8]]| AcquireCommand::parse(prefix, words, settings).map(|asked| acquire(prefix, &asked));
            check(words, reads, settings);
        }
        Action::Release(prefix) => {
            check(
                words,
                |words| ReleaseCommand::parse(prefix, words, settings).map(|asked| release(prefix, &asked)),
                settings,
            );
        }
        Action::Renew(prefix) => {
            check(
                words,
                |words| RenewCommand::parse(prefix, words, settings).map(|asked| renew(prefix, &asked)),
                settings,
            );
        }
        Action::Cancel => check_error(parse::owner(words[2]).map(|owner| check_owner(owner.as_bytes()))),
        Action::Info | Action::Waiters => check_error(ListLength::parse(words).map(check_length)),
        Action::Log => check_error(LogCommand::parse(words).map(|asked| match asked {
            LogCommand::Get(_) | LogCommand::Len | LogCommand::Reset => {}
        })),
        Action::Scan => check_error(ScanCommand::parse(words).map(|asked| check_scan(words, &asked))),
        Action::Top => check_error(parse::top_length(words).map(|length| assert!((1..=1_000).contains(&length)))),
        Action::Break => check_error(parse::broken_holders(words).map(|whose| match whose {
            HoldsOf::AllOwners => assert_eq!(words.len(), 2),
            HoldsOf::Owner(owner) => check_owner(owner),
        })),
        Action::Exec => check_exec(&words[INNER_COMMAND..]),
        Action::Apply => drop(effect::decode(&words[2..])),
        Action::Adoption => check_error(AdoptionCommand::parse(words).map(|asked| match asked {
            AdoptionCommand::Report => assert_eq!(words.len(), 2),
            AdoptionCommand::Return => assert_eq!(words.len(), 3),
        })),
        Action::Adopted(container) => check_adopted(container, &words[1..]),
        Action::Held | Action::Help => {}
    }
}

/// A parsed command of another lock library has a token, or a value that is not a token, with a lease; anything else is
/// left to the server.
fn check_adopted(container: Container, words: &[&[u8]]) {
    let Some(command) = Original::named(words[0]).map(Original::command) else { return };
    if command.container != container || !command.accepts(words.len()) {
        return;
    }
    if let Some(set) = SetCommand::parse(command.original, words) {
        set.token.into_iter().for_each(|token| check_owner(token.as_bytes()));
        let lease = set.expiry.lease(Timestamp::from_ms(1_000)).flatten();
        assert!(lease.is_none_or(|lease| Lease::from_ms(lease.as_ms()) == Some(lease)), "{lease:?}");
        check_set(&set, words);
    }
    if matches!(command.original, Original::DelIfEq | Original::DelEx) {
        let is_last = |token| words.len() >= 3 && words.last() == Some(&token);
        assert!(parse::released_token(words).is_none_or(is_last), "{}", shown(words));
    }
    if matches!(command.original, Original::MSet | Original::MSetNx) {
        let pairs = parse::pairs(words).unwrap_or_default();
        assert!(pairs.len() <= 128);
        pairs.iter().for_each(|(_, token)| check_owner(token.as_bytes()));
    }
    let token = &[b'x'; 40][..];
    assert!(parse::range(token, words).is_none_or(|range| range.len() <= token.len()));
    check_patterns(command.original, words);
}

/// Whichever command it was, it is equivalent to a SET with options; with a repeated option it is left to the server.
fn check_set(set: &SetCommand<'_>, words: &[&[u8]]) {
    let SetCommand { token, condition, expiry, gets } = *set;
    let condition = match condition {
        Condition::Always => vec![],
        Condition::Free => vec![b"nx".to_vec()],
        Condition::Held => vec![b"Xx".to_vec()],
        Condition::HeldBy(other) => vec![b"IFEQ".to_vec(), other.to_vec()],
    };
    let expiry = match expiry {
        Expiry::Lease(Lease::Persist) => vec![],
        Expiry::Lease(lease) => option("px", lease.as_ms()),
        Expiry::At(timestamp) => option("PXAT", timestamp.ms()),
        Expiry::Kept => vec![b"keepttl".to_vec()],
    };
    let options = [if gets { vec![b"GET".to_vec()] } else { vec![] }, expiry, condition];
    let value = token.map_or(vec![], |token| token.as_bytes().to_vec());
    let head = [b"SET".to_vec(), b"key".to_vec(), value];
    let printed: Vec<&[u8]> = head.iter().chain(options.iter().flatten()).map(Vec::as_slice).collect();
    assert_eq!(SetCommand::parse(Original::Set, &printed).as_ref(), Some(set), "{}", shown(words));
    for option in options.iter().filter(|option| !option.is_empty()) {
        let twice: Vec<&[u8]> = printed.iter().copied().chain(option.iter().map(Vec::as_slice)).collect();
        assert_eq!(SetCommand::parse(Original::Set, &twice), None, "{}", shown(&twice));
    }
}

/// The second word is the setting, and the others are keys to match with it.
fn check_patterns(original: Original, words: &[&[u8]]) {
    let Ok(keys) = AdoptedKeys::none().change(words[1]) else { return };
    let former = keys.change(b"").unwrap_or_default();
    let globs = words[1].split(|byte| byte.is_ascii_whitespace() || *byte == b',').filter(|glob| !glob.is_empty());
    let globs: Vec<&[u8]> = globs.map(|glob| glob.strip_prefix(b"hash:").unwrap_or(glob)).collect();
    for key in words.iter().filter(|key| key.len() * words[1].len() < 4_000) {
        let matches = globs.iter().any(|glob| glob_matches(glob, key));
        let is_set = [LockType::Mutex, LockType::Reentrant].iter().any(|lock_type| keys.adopt(key, *lock_type));
        assert_eq!((keys.may_hold_adopted(key), is_set), (matches, matches), "{}", shown(words));
        let still = (former.may_hold_adopted(key), former.adopt(key, LockType::Mutex));
        assert_eq!(still, (matches, false), "{}", shown(words));
    }
    // Any pattern may be observed.
    let (mut observed, client) = (keys.clone(), Some(1));
    observed.see(seen::ObservedCommand { words, from: seen::ObservedCaller::Connection, client, now_ms: 1_000 });
    observed.see_wrong_type(words);
    let arg = |position: usize| words.get(position).copied();
    if let Some(container) = keys.container_of(original, || words.len(), arg) {
        let is_named = words[1..].iter().any(|key| keys.may_hold_adopted(key));
        assert!(is_named && container == original.command().container, "{}", shown(words));
    }
}

/// Matches like KEYS: works from the end of the glob, and keeps each suffix of the name that the rest of the glob
/// matches.
fn glob_matches(glob: &[u8], name: &[u8]) -> bool {
    let mut elements: Vec<Element> = Vec::new();
    let mut rest = glob;
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        elements.push(match (first, behind) {
            (b'*', _) => Element::Many,
            (b'?', _) => Element::One(Box::new(|_| true)),
            (b'\\', [literal, behind @ ..]) => {
                rest = behind;
                let literal = *literal;
                Element::One(Box::new(move |byte| byte == literal))
            }
            (b'[', class) => {
                let (class, behind) = class_of(class);
                rest = behind;
                Element::One(class)
            }
            (literal, _) => {
                let literal = *literal;
                Element::One(Box::new(move |byte| byte == literal))
            }
        });
    }
    let mut ends: Vec<bool> = (0..=name.len()).map(|from| from == name.len()).collect();
    for element in elements.iter().rev() {
        ends = match element {
            Element::Many => (0..=name.len()).map(|from| ends[from..].contains(&true)).collect(),
            Element::One(is_in) => {
                (0..=name.len()).map(|from| from < name.len() && is_in(name[from]) && ends[from + 1]).collect()
            }
        };
    }
    ends[0]
}

/// An element of a glob.
enum Element {
    /// `*`
    Many,
    /// A byte of a class.
    One(Box<dyn Fn(u8) -> bool>),
}

/// The class after `[`, and the rest of the glob. The closing bracket may be missing.
fn class_of(class: &[u8]) -> (Box<dyn Fn(u8) -> bool>, &[u8]) {
    let (is_negated, mut rest) = match class {
        [b'^', rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let mut is_in = [false; 256];
    loop {
        match rest {
            [] => break,
            [b']', behind @ ..] => {
                rest = behind;
                break;
            }
            [b'\\', literal, behind @ ..] => {
                is_in[usize::from(*literal)] = true;
                rest = behind;
            }
            [one, b'-', other, behind @ ..] => {
                (*one.min(other)..=*one.max(other)).for_each(|byte| is_in[usize::from(byte)] = true);
                rest = behind;
            }
            [literal, behind @ ..] => {
                is_in[usize::from(*literal)] = true;
                rest = behind;
            }
        }
    }
    (Box::new(move |byte| is_in[usize::from(byte)] != is_negated), rest)
}

/// A printed request: the arguments before the options, then the options in a fixed order.
struct Printed {
    head: Vec<Vec<u8>>,
    options: Vec<Vec<Vec<u8>>>,
    /// The part of the request that is compared after it is parsed again.
    says: String,
}

impl Printed {
    fn words(&self) -> Vec<&[u8]> {
        self.head.iter().chain(self.options.iter().flatten()).map(Vec::as_slice).collect()
    }
}

fn check(words: &[&[u8]], read: impl Fn(&[&[u8]]) -> Result<Printed, ErrorReply>, settings: LeaseSettings) {
    let asked = match read(words) {
        Ok(asked) => asked,
        Err(error) => return check_error(Err(error)),
    };
    let again = read(&asked.words()).unwrap_or_else(|error| panic!("{}: {error:?}", shown(&asked.words())));
    assert_eq!(asked.says, again.says, "{} and {}, {settings:?}", shown(words), shown(&asked.words()));
    for option in &asked.options {
        let mut twice = asked.words();
        twice.extend(option.iter().map(Vec::as_slice));
        match read(&twice) {
            Err(error) => assert!(error.as_str().starts_with("ERR syntax error at "), "{error:?}: {}", shown(&twice)),
            Ok(_) => panic!("an option given twice is no error: {}", shown(&twice)),
        }
    }
}

/// An error reply is one line that starts with a code.
fn check_error(read: Result<(), ErrorReply>) {
    let Err(error) = read else { return };
    let (code, sentence) = error.as_str().split_once(' ').expect("a code, and a sentence behind it");
    assert!(!code.is_empty() && code.bytes().all(|byte| byte.is_ascii_uppercase()), "{error:?}");
    assert!(!sentence.is_empty() && !error.as_str().contains(['\r', '\n', '\0']), "{error:?}");
}

fn acquire(prefix: Prefix, asked: &AcquireCommand<'_, &[u8]>) -> Printed {
    let AcquireCommand { keys, token, claim, lease, wait } = asked;
    let (mode, mut options) = match *claim {
        Claim::Mutex | Claim::AdoptedMutex => (None, vec![]),
        Claim::Reentrant(count) | Claim::AdoptedReentrant(count) => (None, vec![holds(count)]),
        Claim::ReadWrite(mode, count) => (Some(mode), vec![holds(count)]),
        Claim::Permits { limit, count } => {
            assert!((1..=1_000_000).contains(&limit) && count.number() <= limit, "{claim:?}");
            (None, vec![permits(count), option("LIMIT", limit)])
        }
        Claim::Slot { limit } => {
            assert!((1..=1_000_000).contains(&limit), "{claim:?}");
            (None, vec![vec![b"slot".to_vec()], option("LIMIT", limit)])
        }
    };
    assert!(claim.count().number() > 0, "a claim without a hold: {claim:?}");
    let session = wait.session.then(|| vec![b"SESSION".to_vec()]);
    assert!(!(wait.session && *lease == Lease::Persist), "a session without an end");
    options.extend(session);
    assert!(!wait.coalesce || wait.block.is_some() && prefix == Prefix::Lock, "COALESCE without BLOCK");
    options.extend(wait.coalesce.then(|| vec![b"Coalesce".to_vec()]));
    options.extend(wait.block.map(|limit| match limit {
        WaitLimit::Ms(ms) => option("BLOCK", ms),
        WaitLimit::Unlimited => option("BLOCK", 0),
    }));
    let token = match token {
        Token::Given(owner) => {
            check_owner(owner.as_bytes());
            owner.as_bytes()
        }
        Token::Generated => b"*",
    };
    options.push(lease_option(*lease));
    // The channel is any bytes from the caller; only its position is parsed.
    assert!(wait.channel_argument.is_none() || wait.block.is_some(), "NOTIFY without BLOCK");
    options.extend(wait.channel_argument.map(|_| option("NOTIFY", "channel")));
    let is_notified = wait.channel_argument.is_some();
    let how = format!("{:?} {} {}", wait.block, wait.coalesce, wait.session);
    let says = format!("{keys:?} {token:?} {claim:?} {lease:?} {how} {is_notified}");
    Printed {
        head: head(prefix, keys, token, mode),
        options: options.into_iter().filter(|option| !option.is_empty()).collect(),
        says,
    }
}

fn release(prefix: Prefix, asked: &ReleaseCommand<'_, &[u8]>) -> Printed {
    let ReleaseCommand { keys, owner, amount, work } = asked;
    let (mode, option) = match *amount {
        ReleaseAmount::Mutex => (None, None),
        ReleaseAmount::Reentrant(count) => (None, Some(holds(count))),
        ReleaseAmount::ReadWrite(mode, count) => (Some(mode), Some(holds(count))),
        ReleaseAmount::Permits(count) => (None, Some(permits(count))),
    };
    let failed = (*work == WorkOutcome::Failed).then(|| vec![b"failed".to_vec()]);
    let options = option.into_iter().chain(failed).filter(|option| !option.is_empty()).collect();
    Printed { head: head(prefix, keys, checked(*owner), mode), options, says: says(asked) }
}

fn renew(prefix: Prefix, asked: &RenewCommand<'_>) -> Printed {
    let RenewCommand { keys, owner, lease } = asked;
    let options = lease.iter().copied().map(lease_option).collect();
    Printed { head: head(prefix, keys, checked(*owner), None), options, says: says(asked) }
}

fn says(asked: &impl Debug) -> String {
    format!("{asked:?}")
}

/// The name, the keys, the owner and the mode.
fn head(prefix: Prefix, keys: &[&[u8]], owner: &[u8], mode: Option<Mode>) -> Vec<Vec<u8>> {
    let mut head = vec![b"name".to_vec()];
    head.extend(prefix.takes_multiple_keys().then(|| keys.len().to_string().into_bytes()));
    head.extend(keys.iter().map(|key| key.to_vec()));
    head.push(owner.to_vec());
    head.extend(mode.map(|mode| if mode == Mode::Read { b"read".to_vec() } else { b"Write".to_vec() }));
    head
}

/// One hold is the default.
fn holds(count: Count) -> Vec<Vec<u8>> {
    match count {
        Count::Exactly(number) => option("HOLDS", number),
        Count::Delta(1) => Vec::new(),
        Count::Delta(number) => panic!("no option asks for {number} holds more"),
    }
}

fn permits(count: Count) -> Vec<Vec<u8>> {
    match count {
        Count::Exactly(number) => option("holds", number),
        Count::Delta(number) => option("PERMITS", number),
    }
}

fn lease_option(lease: Lease) -> Vec<Vec<u8>> {
    match lease {
        Lease::Ms(ms) if ms.get() % 1_000 == 0 => option("eX", ms.get() / 1_000),
        Lease::Ms(ms) => option("px", ms),
        Lease::Persist => vec![b"Persist".to_vec()],
    }
}

fn option(name: &str, value: impl ToString) -> Vec<Vec<u8>> {
    vec![name.into(), value.to_string().into_bytes()]
}

fn checked(owner: OwnerRef<'_>) -> &[u8] {
    check_owner(owner.as_bytes());
    owner.as_bytes()
}

fn check_owner(owner: &[u8]) {
    assert!((1..=MAX_OWNER).contains(&owner.len()), "an owner of {} bytes", owner.len());
}

fn check_length(length: ListLength) {
    assert!(length != ListLength::First(0), "nothing would be listed");
}

fn check_scan(words: &[&[u8]], asked: &ScanCommand<'_>) {
    let options = usize::from(asked.pattern.is_some()) + usize::from(asked.count.is_some());
    assert_eq!(words.len(), 2 + 2 * options, "a word is not read: {}", shown(words));
    let count = asked.count.map(|count| std::str::from_utf8(count).map(str::parse::<i64>));
    assert!(count.is_none_or(|count| matches!(count, Ok(Ok(1..)))), "{}", shown(words));
}

/// The inner command of LOCK.EXEC: if it counts its keys, they are among its arguments.
fn check_exec(command: &[&[u8]]) {
    let positions = key_positions(Prefix::Mlock, command);
    let keys = &command[positions];
    assert!((1..keys.len()).all(|n| !keys[..n].contains(&keys[n])), "a key twice: {}", shown(command));
}

fn shown(words: &[&[u8]]) -> String {
    words.iter().map(|word| format!("\"{}\"", word.escape_ascii())).collect::<Vec<_>>().join(" ")
}
