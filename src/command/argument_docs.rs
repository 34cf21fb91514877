//! How command arguments are described to the server, for `COMMAND DOCS` and the hints of redis-cli.

/// An argument of a command.
#[derive(Debug)]
pub struct Arg {
    /// The name in the documentation.
    pub name: &'static str,
    /// The kind of argument.
    pub form: Form,
    /// The keyword before it; for [`Form::Token`], the argument itself.
    pub token: Option<&'static str>,
    /// Whether it may be omitted.
    pub is_optional: bool,
    /// Whether it may be repeated.
    pub is_multiple: bool,
    /// The parts of [`Form::OneOf`] and [`Form::Block`].
    pub parts: &'static [Arg],
}

/// The kind of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
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

const fn arg(name: &'static str, form: Form) -> Arg {
    Arg { name, form, token: None, is_optional: false, is_multiple: false, parts: &[] }
}

const fn token(name: &'static str, token: &'static str, form: Form) -> Arg {
    Arg { token: Some(token), ..arg(name, form) }
}

const fn optional(of: Arg) -> Arg {
    Arg { is_optional: true, ..of }
}

const fn parts(name: &'static str, form: Form, parts: &'static [Arg]) -> Arg {
    Arg { parts, ..arg(name, form) }
}

pub(crate) const KEY: Arg = arg("key", Form::Key);
pub(crate) const NUMKEYS: Arg = arg("numkeys", Form::Integer);
pub(crate) const KEYS: Arg = Arg { is_multiple: true, ..arg("key", Form::Key) };
pub(crate) const KEYS_AND_TOKENS: Arg = Arg { is_multiple: true, ..parts("pair", Form::Block, &[KEY, TOKEN]) };
pub(crate) const TOKEN: Arg = arg("token", Form::Text);
pub(crate) const OWNER: Arg = arg("owner", Form::Text);
const MAKE_ONE: Arg = token("make-one", "*", Form::Token);
pub(crate) const NEW_TOKEN: Arg = parts("token", Form::OneOf, &[TOKEN, MAKE_ONE]);
pub(crate) const NEW_OWNER: Arg = parts("owner", Form::OneOf, &[OWNER, MAKE_ONE]);
pub(crate) const MODE: Arg =
    parts("mode", Form::OneOf, &[token("read", "READ", Form::Token), token("write", "WRITE", Form::Token)]);
pub(crate) const HOLDS: Arg = optional(HOLDS_NUMBER);
pub(crate) const LIMIT: Arg = token("limit", "LIMIT", Form::Integer);
const PERMITS_NUMBER: Arg = token("permits", "PERMITS", Form::Integer);
const HOLDS_NUMBER: Arg = token("holds", "HOLDS", Form::Integer);
pub(crate) const PERMITS: Arg = optional(parts("amount", Form::OneOf, &[PERMITS_NUMBER, HOLDS_NUMBER]));
pub(crate) const PERMITS_OR_SLOT: Arg =
    optional(parts("amount", Form::OneOf, &[PERMITS_NUMBER, HOLDS_NUMBER, token("slot", "SLOT", Form::Token)]));
pub(crate) const LEASE: Arg = optional(parts(
    "lease",
    Form::OneOf,
    &[
        token("seconds", "EX", Form::Integer),
        token("milliseconds", "PX", Form::Integer),
        token("persist", "PERSIST", Form::Token),
    ],
));
pub(crate) const WAIT: Arg = optional(parts(
    "wait",
    Form::Block,
    &[token("milliseconds", "BLOCK", Form::Integer), optional(token("channel", "NOTIFY", Form::Text))],
));
/// The waiting options of LOCK.ACQUIRE, which also has COALESCE.
pub(crate) const WAIT_OR_COALESCE: Arg = optional(parts(
    "wait",
    Form::Block,
    &[
        token("milliseconds", "BLOCK", Form::Integer),
        optional(token("coalesce", "COALESCE", Form::Token)),
        optional(token("channel", "NOTIFY", Form::Text)),
    ],
));
pub(crate) const FAILED: Arg = optional(token("failed", "FAILED", Form::Token));
pub(crate) const SESSION: Arg = optional(token("session", "SESSION", Form::Token));
pub(crate) const COUNT: Arg = optional(token("count", "COUNT", Form::Integer));
pub(crate) const CURSOR: Arg = arg("cursor", Form::Integer);
pub(crate) const PATTERN: Arg = optional(token("pattern", "MATCH", Form::Text));
pub(crate) const ONLY_OWNER: Arg = optional(token("owner", "OWNER", Form::Text));
pub(crate) const LOG_OPERATION: Arg = parts(
    "operation",
    Form::OneOf,
    &[
        parts("get", Form::Block, &[token("get", "GET", Form::Token), optional(arg("count", Form::Integer))]),
        token("len", "LEN", Form::Token),
        token("reset", "RESET", Form::Token),
    ],
);
pub(crate) const ADOPTION_OPERATION: Arg = parts(
    "operation",
    Form::OneOf,
    &[
        token("report", "REPORT", Form::Token),
        parts("return", Form::Block, &[token("return", "RETURN", Form::Token), KEY]),
    ],
);
pub(crate) const COMMAND: Arg = arg("command", Form::Text);
pub(crate) const ONLY_COMMAND: Arg = optional(COMMAND);
pub(crate) const COMMAND_ARGS: Arg = Arg { is_multiple: true, ..optional(arg("arg", Form::Text)) };
pub(crate) const EFFECT: Arg = arg("effect", Form::Text);

#[cfg(test)]
impl Arg {
    /// Whether its number of words varies.
    pub(crate) fn is_open(&self) -> bool {
        let mut least = self.parts.iter().map(Arg::least_words);
        let first = least.next();
        let is_of_lengths = self.form == Form::OneOf && least.any(|words| Some(words) != first);
        self.is_optional || self.is_multiple || is_of_lengths || self.parts.iter().any(Arg::is_open)
    }

    /// The fewest words that the argument takes.
    pub(crate) fn least_words(&self) -> i32 {
        match (self.is_optional, self.form, self.token) {
            (true, _, _) => 0,
            (false, Form::OneOf, _) => self.parts.iter().map(Arg::least_words).min().unwrap(),
            (false, Form::Block, _) => self.parts.iter().map(Arg::least_words).sum(),
            (false, Form::Token, _) | (false, _, None) => 1,
            (false, _, Some(_)) => 2,
        }
    }
}

/// The syntax as redis-cli hints it and LOCK.HELP lists it.
impl std::fmt::Display for Arg {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let parts = || self.parts.iter().map(Arg::to_string).collect::<Vec<_>>();
        let hint = match (self.form, self.token) {
            (Form::OneOf, _) => parts().join("|"),
            (Form::Block, _) => parts().join(" "),
            (Form::Token, Some(token)) => token.into(),
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
