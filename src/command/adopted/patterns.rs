//! The keys of `lock.adopt`: glob-style patterns, separated by blanks or commas. A pattern prefixed with `hash:` is for
//! locks that keep their hold count in a hash.

use lock::value::claim::LockType;

use super::originals::{KeysAt, Original};
use super::seen::{self, Seen, Shadow};
use crate::catalog::Container;
use crate::parse::Argument;

/// The current patterns of the setting, and its former ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdoptedKeys {
    patterns: Vec<Pattern>,
    /// For `lock.adopt-observe`: the locks that observed commands have set.
    shadow: Shadow,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Pattern {
    glob: Box<[u8]>,
    /// The length of the glob's literal prefix.
    literal: usize,
    lock_type: LockType,
    /// False for a former pattern: native locks on its keys are still served until they have ended.
    is_set: bool,
    /// What clients do on matching keys.
    seen: Seen,
}

/// What the module does on the keys of a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatternMode {
    /// `lock.adopt`.
    Adopt,
    /// `lock.adopt-observe`.
    Observe,
    /// Was in `lock.adopt` earlier.
    Former,
}

impl PatternMode {
    /// The mode's name in the report.
    pub const fn word(self) -> &'static str {
        match self {
            PatternMode::Adopt => "adopt",
            PatternMode::Observe => "observe",
            PatternMode::Former => "former",
        }
    }
}

/// A pattern, as the report shows it.
#[derive(Clone, Debug)]
pub struct PatternRow {
    glob: Box<[u8]>,
    literal: usize,
    /// What the module does on its keys.
    pub mode: PatternMode,
    /// Whether it is for locks in a hash.
    pub is_hash: bool,
    /// What clients did on its keys.
    pub seen: Seen,
}

impl PatternRow {
    /// The pattern as written in the setting.
    pub fn text(&self) -> Vec<u8> {
        [if self.is_hash { &b"hash:"[..] } else { b"" }, &self.glob].concat()
    }

    /// Whether it matches every key.
    pub fn matches_all(&self) -> bool {
        matches_all(&self.glob)
    }

    /// Whether it matches this key.
    pub fn matches(&self, key: &[u8]) -> bool {
        matches(&self.glob, key)
    }

    /// How many bytes the key shares with the literal prefix of the pattern.
    pub fn in_common(&self, key: &[u8]) -> usize {
        self.glob[..self.literal].iter().zip(key).take_while(|(one, other)| one == other).count()
    }

    /// A matching key, for permission checks. Only approximate if the pattern contains a character class.
    pub fn example(&self) -> Vec<u8> {
        let letters = self.glob.iter().filter(|byte| !b"[]^\\".contains(byte));
        letters.map(|byte| if b"*?".contains(byte) { b'x' } else { *byte }).collect()
    }
}

/// The pattern whose report row counts a command on the key. If patterns of both lock types match, as in `lock:*
/// hash:lock:*`, the one for the command's lock type. `None`: the command suits both types.
fn counted_on<'p>(
    patterns: &'p mut [Pattern],
    key: &[u8],
    lock_type: impl FnOnce() -> Option<LockType>,
) -> Option<&'p mut Pattern> {
    let first = |of: LockType| patterns.iter().position(|pattern| pattern.lock_type == of && pattern.matches(key));
    let position = match (first(LockType::Mutex), first(LockType::Reentrant)) {
        (Some(mutex), Some(hash)) => match lock_type() {
            Some(LockType::Reentrant) => hash,
            Some(_) => mutex,
            None => mutex.min(hash),
        },
        (mutex, hash) => mutex.or(hash)?,
    };
    patterns.get_mut(position)
}

fn matches_all(glob: &[u8]) -> bool {
    !glob.is_empty() && glob.iter().all(|byte| *byte == b'*')
}

/// Why the setting rejects a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadPatterns {
    /// A part of the value is not a pattern.
    NoPattern(Vec<u8>),
    /// More than [`MOST_PATTERNS`] patterns, including former ones.
    TooMany,
}

/// Limited because every command on a key that may match is compared with all patterns, and former patterns stay until
/// the next start.
pub const MOST_PATTERNS: usize = 256;

impl AdoptedKeys {
    /// No patterns.
    pub const fn none() -> AdoptedKeys {
        AdoptedKeys { patterns: Vec::new(), shadow: Shadow::none() }
    }

    /// Sets these patterns; the present ones become former patterns.
    ///
    /// # Errors
    /// `hash:` without a pattern after it, or too many patterns.
    pub fn change(&self, setting: &[u8]) -> Result<AdoptedKeys, BadPatterns> {
        let former = self.patterns.iter().map(|former| Pattern { is_set: false, ..former.clone() });
        self.with_patterns(patterns_of(setting)?.into_iter().chain(former))
    }

    /// Sets these patterns and drops all others: an observed pattern leaves nothing behind.
    ///
    /// # Errors
    /// See [`AdoptedKeys::change`].
    pub fn observe(&self, setting: &[u8]) -> Result<AdoptedKeys, BadPatterns> {
        self.with_patterns(patterns_of(setting)?)
    }

    /// A pattern that stays keeps its counters.
    fn with_patterns(&self, all: impl IntoIterator<Item = Pattern>) -> Result<AdoptedKeys, BadPatterns> {
        let mut patterns: Vec<Pattern> = Vec::new();
        for mut pattern in all {
            let is_same = |other: &&Pattern| other.glob == pattern.glob && other.lock_type == pattern.lock_type;
            if patterns.iter().any(|other| is_same(&other)) {
                continue;
            }
            if let Some(before) = self.patterns.iter().find(is_same) {
                pattern.seen = before.seen.clone();
            }
            if patterns.len() == MOST_PATTERNS {
                return Err(BadPatterns::TooMany);
            }
            patterns.push(pattern);
        }
        Ok(AdoptedKeys { patterns, shadow: Shadow::none() })
    }

    /// Whether a current pattern matches every key.
    pub fn match_all(&self) -> bool {
        self.patterns.iter().any(|pattern| pattern.is_set && matches_all(&pattern.glob))
    }

    /// The patterns with their counters. `set` is the mode of the current ones.
    pub fn rows(&self, set: PatternMode) -> impl Iterator<Item = PatternRow> + '_ {
        self.patterns.iter().map(move |pattern| PatternRow {
            glob: pattern.glob.clone(),
            literal: pattern.literal,
            mode: if pattern.is_set { set } else { PatternMode::Former },
            is_hash: pattern.lock_type == LockType::Reentrant,
            seen: pattern.seen.clone(),
        })
    }

    /// The counters of the pattern that the key matches as a lock of this type.
    pub fn seen_mut(&mut self, key: &[u8], lock_type: LockType) -> Option<&mut Seen> {
        counted_on(&mut self.patterns, key, || Some(lock_type)).map(|pattern| &mut pattern.seen)
    }

    /// Counts a command that is not translated, for each pattern that its keys match.
    pub fn see<'a, A: Argument<'a>>(&mut self, command: seen::ObservedCommand<'_, A>) {
        let AdoptedKeys { patterns, shadow } = self;
        let words = command.words;
        let original = words.first().and_then(|name| Original::named(name.bytes()));
        let step = match original.map_or(KeysAt::First, |original| original.command().keys_at) {
            KeysAt::First => usize::MAX,
            KeysAt::All => 1,
            KeysAt::Pairs => 2,
        };
        for key in words.iter().skip(1).step_by(step).map(|word| word.bytes()) {
            let name = words.first().map_or(&[][..], |name| name.bytes());
            let lock_type = || seen::lock_type_of(name, original).or_else(|| shadow.lock_type_of(key));
            if let Some(pattern) = counted_on(patterns, key, lock_type) {
                shadow.see(&mut pattern.seen, key, pattern.lock_type == LockType::Reentrant, command);
            }
        }
    }

    /// Counts a command that is not translated on a key of `lock.adopt`, if a lock would reply WRONGTYPE.
    pub fn see_wrong_type<'a, A: Argument<'a>>(&mut self, words: &[A]) {
        let [name, key, ..] = words else { return };
        let (key, original) = (key.bytes(), Original::named(name.bytes()));
        let of_key = counted_on(&mut self.patterns, key, || seen::lock_type_of(name.bytes(), original));
        let Some(pattern) = of_key.filter(|pattern| pattern.is_set) else { return };
        let is_hash = pattern.lock_type == LockType::Reentrant;
        if let Some(command) = seen::wrong_type_of(name.bytes(), original, words, is_hash) {
            pattern.seen.wrong_type(command);
        }
    }

    /// Whether a matching key may begin with this byte; an empty key counts as beginning with 0.
    pub fn may_begin_with(&self, byte: u8) -> bool {
        self.patterns.iter().any(|pattern| match pattern.literal {
            0 => true,
            _ => byte == 0 || pattern.glob.first() == Some(&byte),
        })
    }

    /// True if no pattern was ever set.
    pub fn is_empty(&self) -> bool {
        self.patterns.is_empty()
    }

    /// Whether any current or former pattern has the prefix `hash:`.
    pub fn has_hashes(&self) -> bool {
        self.patterns.iter().any(|pattern| pattern.lock_type == LockType::Reentrant)
    }

    /// Whether a current or former `hash:` pattern matches the key.
    pub fn may_be_a_hash(&self, key: &[u8]) -> bool {
        self.patterns.iter().any(|pattern| pattern.lock_type == LockType::Reentrant && pattern.matches(key))
    }

    /// Whether a lock of this type may be granted on the key.
    pub fn adopt(&self, key: &[u8], lock_type: LockType) -> bool {
        self.patterns.iter().any(|pattern| pattern.is_set && pattern.lock_type == lock_type && pattern.matches(key))
    }

    /// Whether a current pattern matches the key: native holds there are protected.
    pub fn is_among(&self, key: &[u8]) -> bool {
        self.patterns.iter().any(|pattern| pattern.is_set && pattern.matches(key))
    }

    /// Whether a current or former pattern matches the key.
    #[inline]
    pub fn may_hold_adopted(&self, key: &[u8]) -> bool {
        self.patterns.iter().any(|pattern| pattern.matches(key))
    }

    /// The container for a command; `None`: it is not translated. `len` returns the number of its arguments, `arg`
    /// reads one; its name is argument 0.
    #[inline]
    pub fn container_of<'a>(
        &self,
        original: Original,
        len: impl FnOnce() -> usize,
        arg: impl Fn(usize) -> Option<&'a [u8]>,
    ) -> Option<Container> {
        let is_adopted = |position: usize| arg(position).is_some_and(|key| self.may_hold_adopted(key));
        let command = original.command();
        if command.keys_at == KeysAt::First && !is_adopted(1) {
            return None;
        }
        let len = len();
        let is_translated = command.accepts(len)
            && match command.keys_at {
                KeysAt::First => true,
                // On a former pattern's keys they act as they do without the module.
                KeysAt::All if command.container == Container::Writes => {
                    (1..len).any(|position| arg(position).is_some_and(|key| self.is_among(key)))
                }
                KeysAt::All => (1..len).any(is_adopted),
                KeysAt::Pairs => len % 2 == 1 && (1..len).step_by(2).any(is_adopted),
            };
        is_translated.then_some(command.container)
    }
}

/// Whether a command may be translated at all. `begins`: its first argument begins like a matching key. `len` returns
/// the number of its arguments, `name` the first byte of its name, argument 0. Nearly every command of a server is
/// rejected here.
#[inline]
pub fn may_be_translated(begins: bool, len: impl FnOnce() -> usize, name: impl FnOnce() -> Option<u8>) -> bool {
    // Only MGET, MSET, MSETNX, DEL and UNLINK are translated because of a key other than their first.
    begins || (len() > 2 && name().is_some_and(|byte| matches!(byte | 0x20, b'm' | b'd' | b'u')))
}

fn patterns_of(setting: &[u8]) -> Result<Vec<Pattern>, BadPatterns> {
    let words = setting.split(|byte| byte.is_ascii_whitespace() || *byte == b',').filter(|word| !word.is_empty());
    words.map(Pattern::parse).collect()
}

impl Pattern {
    fn parse(word: &[u8]) -> Result<Pattern, BadPatterns> {
        let (glob, lock_type) = match word.strip_prefix(b"hash:") {
            Some([]) => return Err(BadPatterns::NoPattern(word.to_vec())),
            Some(glob) => (glob, LockType::Reentrant),
            None => (word, LockType::Mutex),
        };
        let literal = glob.iter().position(|byte| b"*?[\\".contains(byte)).unwrap_or(glob.len());
        Ok(Pattern { glob: glob.into(), literal, lock_type, is_set: true, seen: Seen::default() })
    }

    /// Most keys differ within the first bytes.
    #[inline]
    fn matches(&self, key: &[u8]) -> bool {
        let (literal, rest) = self.glob.split_at(self.literal);
        match key.strip_prefix(literal) {
            Some(_) if rest == b"*" => true,
            Some(key) => matches(rest, key),
            None => false,
        }
    }
}

/// Glob-style matching, as in KEYS: `*`, `?`, `[a-z]`, `[^a]`, with `\` as the escape. Takes at most pattern length
/// times name length.
fn matches(mut glob: &[u8], mut name: &[u8]) -> bool {
    // Where to resume if the rest does not match: the last `*` then consumes one more byte.
    let mut retry: Option<(&[u8], &[u8])> = None;
    loop {
        if let [b'*', rest @ ..] = glob {
            retry = Some((rest, name));
            glob = rest;
            continue;
        }
        match name.split_first() {
            None => return glob.is_empty(),
            Some((byte, rest_of_name)) => {
                if let Some(rest) = after(glob, *byte) {
                    (glob, name) = (rest, rest_of_name);
                    continue;
                }
            }
        }
        let Some((behind_star, [_, from @ ..])) = retry else { return false };
        retry = Some((behind_star, from));
        (glob, name) = (behind_star, from);
    }
}

/// The rest of the glob after its first element, if that element matches the byte.
fn after(glob: &[u8], byte: u8) -> Option<&[u8]> {
    match glob {
        [] => None,
        [b'?', rest @ ..] => Some(rest),
        [b'\\', literal, rest @ ..] => (*literal == byte).then_some(rest),
        [b'[', class @ ..] => after_class(class, byte),
        [literal, rest @ ..] => (*literal == byte).then_some(rest),
    }
}

/// The rest of the glob after a class whose `[` has been read, if the class matches the byte. As in Redis, a class may
/// lack its `]`, and the bounds of a range may be reversed.
fn after_class(class: &[u8], byte: u8) -> Option<&[u8]> {
    let (mut class, is_negated) = match class {
        [b'^', class @ ..] => (class, true),
        class => (class, false),
    };
    let mut is_in = false;
    loop {
        class = match class {
            [] => break,
            [b']', rest @ ..] => {
                class = rest;
                break;
            }
            [b'\\', literal, rest @ ..] => {
                is_in |= *literal == byte;
                rest
            }
            [one, b'-', other, rest @ ..] => {
                is_in |= (*one.min(other)..=*one.max(other)).contains(&byte);
                rest
            }
            [literal, rest @ ..] => {
                is_in |= *literal == byte;
                rest
            }
        };
    }
    (is_in != is_negated).then_some(class)
}

#[cfg(test)]
mod tests {
    use super::super::originals::ORIGINALS;
    use super::*;

    fn keys(setting: &str) -> AdoptedKeys {
        AdoptedKeys::default().change(setting.as_bytes()).unwrap()
    }

    #[test]
    fn globs_match_as_in_redis() {
        let cases = [
            ("lock:*", "lock:", true),
            ("lock:*", "lock:a", true),
            ("lock:*", "lock", false),
            ("lock:*", "Lock:a", false),
            ("lock", "lock", true),
            ("lock", "locks", false),
            ("bull:*:lock", "bull:q:1:lock", true),
            ("bull:*:lock", "bull:lock", false),
            ("*", "", true),
            ("**a", "ba", true),
            ("?", "", false),
            ("l?ck", "lock", true),
            ("[ab]x", "bx", true),
            ("[^ab]x", "bx", false),
            ("[^ab]x", "cx", true),
            ("[a-c]", "b", true),
            ("[c-a]", "b", true),
            ("[a\\-c]", "-", true),
            ("[a\\-c]", "b", false),
            ("[ab", "b", true),
            (r"a\*", "a*", true),
            (r"a\*", "ab", false),
            ("*a*b", "xaxxb", true),
            ("*a*b", "xaxx", false),
            ("*ab", "aab", true),
        ];
        for (glob, key, expected) in cases {
            assert_eq!(keys(glob).adopt(key.as_bytes(), LockType::Mutex), expected, "{glob} {key}");
        }
    }

    #[test]
    fn matching_is_fast_for_every_pattern() {
        let (glob, key) = ("a*".repeat(200) + "b", "a".repeat(50_000));
        assert!(!keys(&glob).adopt(key.as_bytes(), LockType::Mutex));
    }

    #[test]
    fn patterns_are_separated_by_blanks_or_commas_and_have_a_lock_type() {
        let keys = keys(" lock:*,job:? hash:h:*  ");
        assert!(keys.adopt(b"lock:a", LockType::Mutex) && !keys.adopt(b"lock:a", LockType::Reentrant));
        assert!(keys.adopt(b"job:1", LockType::Mutex) && !keys.adopt(b"job:12", LockType::Mutex));
        assert!(keys.adopt(b"h:1", LockType::Reentrant) && !keys.adopt(b"h:1", LockType::Mutex));
        assert!(keys.may_hold_adopted(b"h:1") && !keys.may_hold_adopted(b"other"));
        assert!(keys.may_be_a_hash(b"h:1") && !keys.may_be_a_hash(b"lock:a") && !keys.may_be_a_hash(b"other"));
        let has_hashes = |setting: &str| AdoptedKeys::default().change(setting.as_bytes()).unwrap().has_hashes();
        assert!(keys.has_hashes() && has_hashes("hash:h") && !has_hashes("lock:*") && !has_hashes(""));
        assert_eq!(AdoptedKeys::default().change(b"a hash:"), Err(BadPatterns::NoPattern(b"hash:".to_vec())));
    }

    #[test]
    fn former_patterns_hold_no_new_locks() {
        let former = keys("a:* b:*").change(b"b:*").unwrap();
        assert!(!former.adopt(b"a:1", LockType::Mutex) && former.may_hold_adopted(b"a:1"));
        assert!(former.adopt(b"b:1", LockType::Mutex));
        let off = former.change(b"").unwrap();
        assert!(!off.adopt(b"b:1", LockType::Mutex) && off.may_hold_adopted(b"b:1") && !off.is_empty());
        assert!(former.is_among(b"b:1") && !former.is_among(b"a:1") && !off.is_among(b"b:1"));
        assert_eq!(off.container_of(Original::Del, || 2, |_| Some(b"b:1")), None);
        assert!(off.change(b"a:*").unwrap().adopt(b"a:1", LockType::Mutex));
        assert!(AdoptedKeys::default().change(b"").unwrap().is_empty());
    }

    #[test]
    fn the_number_of_patterns_is_limited_including_former_ones() {
        let mut keys = AdoptedKeys::default();
        for number in 0..MOST_PATTERNS {
            keys = keys.change(format!("lock:{number}").as_bytes()).unwrap();
        }
        assert_eq!(keys.change(b"lock:new"), Err(BadPatterns::TooMany));
        let again = keys.change(b"lock:0 lock:1").unwrap();
        assert!(again.adopt(b"lock:0", LockType::Mutex) && !again.adopt(b"lock:2", LockType::Mutex));
        assert!(keys.change(b"").unwrap().may_hold_adopted(b"lock:2"), "it can be turned off");
        let twice = AdoptedKeys::default().change("a ".repeat(MOST_PATTERNS + 1).as_bytes());
        assert!(twice.unwrap().adopt(b"a", LockType::Mutex), "a pattern that is named twice counts once");
    }

    #[test]
    fn a_command_is_translated_by_its_keys() {
        let keys = keys("l:* hash:h:*");
        let container = |line: &str| {
            let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            let original = Original::named(words[0])?;
            keys.container_of(original, || words.len(), |position| words.get(position).copied())
        };
        for line in ["SET l:1 a NX", "set l:1 a", "setnx l:1 a", "MSETNX l:1 a l:2 b", "GETDEL l:1", "SET h:1 a"] {
            assert_eq!(container(line), Some(Container::Writes), "{line}");
        }
        for line in ["MSET l:1 a x b", "MSET x b l:1 a", "DEL l:1", "del x h:1", "UNLINK x l:1 x"] {
            assert_eq!(container(line), Some(Container::Writes), "{line}");
        }
        for line in ["GET l:1", "MGET x l:1", "MGET l:1 x", "GETRANGE l:1 0 1"] {
            assert_eq!(container(line), Some(Container::Reads), "{line}");
        }
        for line in ["SET x a NX", "SET l:1", "GET l:1 x", "MSET x a", "MSET l:1 a l:2", "MGET x", "INCR l:1", "DEL x"]
        {
            assert_eq!(container(line), None, "{line}");
        }
    }

    #[test]
    fn no_translated_command_is_rejected_by_its_first_bytes() {
        let words = ["", "l:1", "m:1", "x", "\0", "h:1"];
        for setting in ["l:* hash:h:*", "*", "?:1", "l:1", ""] {
            let keys = keys(setting);
            let is_left = |args: &[&str], original| {
                let arg = |position: usize| args.get(position).map(|arg| arg.as_bytes());
                let first_byte = |position: usize| args[position].bytes().next().unwrap_or(0);
                let begins = keys.may_begin_with(first_byte(1));
                let is_translated = keys.container_of(original, || args.len(), arg).is_some();
                is_translated && !may_be_translated(begins, || args.len(), || Some(first_byte(0)))
            };
            for command in ORIGINALS {
                for index in 0..words.len().pow(3) {
                    let word = |exponent: u32| words[index / words.len().pow(exponent) % words.len()];
                    let args = [command.name, word(0), word(1), word(2)];
                    for len in 2..=args.len() {
                        assert!(!is_left(&args[..len], command.original), "{setting}: {:?}", &args[..len]);
                    }
                }
            }
        }
        let keys = keys("l:* job:?");
        assert!(keys.may_begin_with(b'j') && !keys.may_begin_with(b'k'));
        assert!(!may_be_translated(false, || 3, || Some(b's')));
        assert!(!may_be_translated(false, || 2, || Some(b'M')));
        assert!(b"MmDdUu".iter().all(|name| may_be_translated(false, || 3, || Some(*name))));
    }
}
