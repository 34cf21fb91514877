//! How command arguments are described to the server, for `COMMAND DOCS` and the hints of redis-cli.

/// An argument of a command.
#[derive(Debug)]
pub struct Arg {
    /// The name in the documentation.
    pub name: &'static str,
    /// The kind of argument.
    pub kind: ArgKind,
    /// The keyword before it; for [`ArgKind::Token`], the argument itself.
    pub token: Option<&'static str>,
    /// Whether it may be omitted.
    pub is_optional: bool,
    /// Whether it may be repeated.
    pub is_multiple: bool,
    /// The parts of [`ArgKind::OneOf`] and [`ArgKind::Block`].
    pub parts: &'static [Arg],
}

/// The kind of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgKind {
    /// A key.
    Key,
    /// Any bytes.
    Text,
    /// An integer.
    Integer,
    /// Only the keyword, without a value.
    Token,
    /// One of the parts.
    OneOf,
    /// All of the parts, in this order.
    Block,
}

const fn arg(name: &'static str, kind: ArgKind) -> Arg {
    Arg { name, kind, token: None, is_optional: false, is_multiple: false, parts: &[] }
}

const fn token(name: &'static str, token: &'static str, kind: ArgKind) -> Arg {
    Arg { token: Some(token), ..arg(name, kind) }
}

const fn optional(of: Arg) -> Arg {
    Arg { is_optional: true, ..of }
}

const fn parts(name: &'static str, kind: ArgKind, parts: &'static [Arg]) -> Arg {
    Arg { parts, ..arg(name, kind) }
}

pub(crate) const KEY: Arg = arg("key", ArgKind::Key);
pub(crate) const NUMKEYS: Arg = arg("numkeys", ArgKind::Integer);
pub(crate) const KEYS: Arg = Arg { is_multiple: true, ..arg("key", ArgKind::Key) };
pub(crate) const KEYS_AND_TOKENS: Arg = Arg { is_multiple: true, ..parts("pair", ArgKind::Block, &[KEY, TOKEN]) };
pub(crate) const TOKEN: Arg = arg("token", ArgKind::Text);
pub(crate) const OWNER: Arg = arg("owner", ArgKind::Text);
const MAKE_ONE: Arg = token("make-one", "*", ArgKind::Token);
pub(crate) const NEW_TOKEN: Arg = parts("token", ArgKind::OneOf, &[TOKEN, MAKE_ONE]);
pub(crate) const NEW_OWNER: Arg = parts("owner", ArgKind::OneOf, &[OWNER, MAKE_ONE]);
pub(crate) const MODE: Arg =
    parts("mode", ArgKind::OneOf, &[token("read", "READ", ArgKind::Token), token("write", "WRITE", ArgKind::Token)]);
pub(crate) const HOLDS: Arg = optional(HOLDS_NUMBER);
pub(crate) const LIMIT: Arg = token("limit", "LIMIT", ArgKind::Integer);
const PERMITS_NUMBER: Arg = token("permits", "PERMITS", ArgKind::Integer);
const HOLDS_NUMBER: Arg = token("holds", "HOLDS", ArgKind::Integer);
pub(crate) const PERMITS: Arg = optional(parts("amount", ArgKind::OneOf, &[PERMITS_NUMBER, HOLDS_NUMBER]));
pub(crate) const PERMITS_OR_SLOT: Arg =
    optional(parts("amount", ArgKind::OneOf, &[PERMITS_NUMBER, HOLDS_NUMBER, token("slot", "SLOT", ArgKind::Token)]));
pub(crate) const LEASE: Arg = optional(parts(
    "lease",
    ArgKind::OneOf,
    &[
        token("seconds", "EX", ArgKind::Integer),
        token("milliseconds", "PX", ArgKind::Integer),
        token("persist", "PERSIST", ArgKind::Token),
    ],
));
pub(crate) const WAIT: Arg = optional(parts(
    "wait",
    ArgKind::Block,
    &[token("milliseconds", "BLOCK", ArgKind::Integer), optional(token("channel", "NOTIFY", ArgKind::Text))],
));
/// The waiting options of LOCK.ACQUIRE, which also has COALESCE.
pub(crate) const WAIT_OR_COALESCE: Arg = optional(parts(
    "wait",
    ArgKind::Block,
    &[
        token("milliseconds", "BLOCK", ArgKind::Integer),
        optional(token("coalesce", "COALESCE", ArgKind::Token)),
        optional(token("channel", "NOTIFY", ArgKind::Text)),
    ],
));
pub(crate) const FAILED: Arg = optional(token("failed", "FAILED", ArgKind::Token));
pub(crate) const SESSION: Arg = optional(token("session", "SESSION", ArgKind::Token));
pub(crate) const COUNT: Arg = optional(token("count", "COUNT", ArgKind::Integer));
pub(crate) const CURSOR: Arg = arg("cursor", ArgKind::Integer);
pub(crate) const PATTERN: Arg = optional(token("pattern", "MATCH", ArgKind::Text));
pub(crate) const ONLY_OWNER: Arg = optional(token("owner", "OWNER", ArgKind::Text));
pub(crate) const LOG_OPERATION: Arg = parts(
    "operation",
    ArgKind::OneOf,
    &[
        parts("get", ArgKind::Block, &[token("get", "GET", ArgKind::Token), optional(arg("count", ArgKind::Integer))]),
        token("len", "LEN", ArgKind::Token),
        token("reset", "RESET", ArgKind::Token),
    ],
);
pub(crate) const ADOPTION_OPERATION: Arg = parts(
    "operation",
    ArgKind::OneOf,
    &[
        token("report", "REPORT", ArgKind::Token),
        parts("return", ArgKind::Block, &[token("return", "RETURN", ArgKind::Token), KEY]),
    ],
);
pub(crate) const COMMAND: Arg = arg("command", ArgKind::Text);
pub(crate) const ONLY_COMMAND: Arg = optional(COMMAND);
pub(crate) const COMMAND_ARGS: Arg = Arg { is_multiple: true, ..optional(arg("arg", ArgKind::Text)) };
pub(crate) const EFFECT: Arg = arg("effect", ArgKind::Text);

#[cfg(test)]
impl Arg {
    /// Whether the argument may take a varying number of words.
    pub(crate) fn is_open(&self) -> bool {
        let mut least = self.parts.iter().map(Arg::least_words);
        let first = least.next();
        let is_of_lengths = self.kind == ArgKind::OneOf && least.any(|words| Some(words) != first);
        self.is_optional || self.is_multiple || is_of_lengths || self.parts.iter().any(Arg::is_open)
    }

    /// The fewest words that the argument takes.
    pub(crate) fn least_words(&self) -> i32 {
        match (self.is_optional, self.kind, self.token) {
            (true, _, _) => 0,
            (false, ArgKind::OneOf, _) => self.parts.iter().map(Arg::least_words).min().unwrap(),
            (false, ArgKind::Block, _) => self.parts.iter().map(Arg::least_words).sum(),
            (false, ArgKind::Token, _) | (false, _, None) => 1,
            (false, _, Some(_)) => 2,
        }
    }
}

/// The syntax as redis-cli hints it and LOCK.HELP lists it.
impl std::fmt::Display for Arg {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let parts = || self.parts.iter().map(Arg::to_string).collect::<Vec<_>>();
        let hint = match (self.kind, self.token) {
            (ArgKind::OneOf, _) => parts().join("|"),
            (ArgKind::Block, _) => parts().join(" "),
            (ArgKind::Token, Some(token)) => token.into(),
            (_, Some(token)) => format!("{token} {}", self.name),
            (_, None) => self.name.into(),
        };
        match (self.is_optional, self.is_multiple) {
            (true, false) => write!(f, "[{hint}]"),
            (true, true) => write!(f, "[{hint} [{hint} ...]]"),
            (false, true) => write!(f, "{hint} [{hint} ...]"),
            (false, false) => write!(f, "{hint}"),
        }
    }
}
