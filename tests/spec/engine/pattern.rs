//! Reply patterns, and the names that they bind.

use std::collections::HashMap;

use support::Reply;

/// The expected reply.
#[derive(Clone, Debug, PartialEq)]
pub enum Pattern {
    /// `_`: anything.
    Any,
    /// `nil`: a null array in RESP2, null in RESP3.
    Nil,
    /// `null`: a null bulk string in RESP2, null in RESP3.
    Null,
    /// `1`, `1..30000`
    Int(i64, i64),
    /// `"text"`
    Bulk(Vec<u8>),
    /// `'text of $f'`: names are replaced by their values.
    Text(String),
    /// `OK`
    Status(String),
    /// `-CODE words`; with `-CODE ...` only the beginning is compared.
    Error(String),
    /// `$f`: the value of `f`, which is bound now if it is not yet. `>$f`: more than that value. `$g>$f`: both.
    Name { name: Option<String>, above: Option<String> },
    /// `[…]`; with `...` at the end more elements may follow.
    Array(Vec<Pattern>, bool),
    /// `{name: …}`; with `...` at the end there may be other fields, in any order.
    Map(Vec<(String, Pattern)>, bool),
}

/// The values of names.
pub type Names = HashMap<String, Reply>;

impl Pattern {
    pub fn parse(text: &str) -> Result<Pattern, String> {
        if let Some(error) = text.strip_prefix('-').filter(|rest| rest.starts_with(|first: char| first.is_alphabetic()))
        {
            return Ok(Pattern::Error(error.to_string()));
        }
        let mut rest = text;
        let pattern = parse(&mut rest)?;
        match rest.trim() {
            "" => Ok(pattern),
            rest => Err(format!("`{rest}` is too much")),
        }
    }

    /// Whether the reply matches; binds names.
    pub fn matches(&self, reply: &Reply, names: &mut Names) -> bool {
        match (self, reply) {
            (Pattern::Any, _) => true,
            (Pattern::Nil, reply) => reply.is_nil(),
            (Pattern::Null, reply) => matches!(reply, Reply::NullBulk | Reply::Null),
            (Pattern::Int(least, most), Reply::Int(number)) => (least..=most).contains(&number),
            (Pattern::Bulk(expected), Reply::Bulk(bytes)) => expected == bytes,
            (Pattern::Text(expected), Reply::Bulk(bytes)) => filled(expected, names).as_bytes() == bytes,
            (Pattern::Status(expected), Reply::Status(text)) => expected == text,
            (Pattern::Error(expected), Reply::Error(text)) => match expected.strip_suffix(" ...") {
                Some(beginning) => text.starts_with(beginning),
                None => filled(expected, names) == *text,
            },
            (Pattern::Name { name, above }, reply) => {
                let is_above = match (above.as_ref().map(|above| names.get(above)), reply) {
                    (None, _) => true,
                    (Some(Some(Reply::Int(least))), Reply::Int(number)) => number > least,
                    _ => false,
                };
                let Some(name) = name else { return is_above };
                is_above && names.entry(name.clone()).or_insert_with(|| reply.clone()) == reply
            }
            (Pattern::Array(expected, may_have_more), Reply::Array(items) | Reply::Set(items) | Reply::Push(items)) => {
                let has_length = expected.len() == items.len() || *may_have_more && expected.len() < items.len();
                has_length && expected.iter().zip(items).all(|(expected, item)| expected.matches(item, names))
            }
            (Pattern::Map(expected, may_have_more), Reply::Map(_) | Reply::Array(_)) => {
                let Some(pairs) = pairs(reply) else { return false };
                if !may_have_more {
                    return expected.len() == pairs.len()
                        && expected.iter().zip(pairs).all(|((field, expected), (name, value))| {
                            name.is_bulk(field) && expected.matches(value, names)
                        });
                }
                expected.iter().all(|(field, expected)| {
                    let value = pairs.iter().find(|(name, _)| name.is_bulk(field)).map(|(_, value)| *value);
                    value.is_some_and(|value| expected.matches(value, names))
                })
            }
            _ => false,
        }
    }
}

fn pairs(reply: &Reply) -> Option<Vec<(&Reply, &Reply)>> {
    match reply {
        Reply::Map(pairs) => Some(pairs.iter().map(|(name, value)| (name, value)).collect()),
        Reply::Array(flat) if flat.len() % 2 == 0 => Some(flat.chunks(2).map(|pair| (&pair[0], &pair[1])).collect()),
        _ => None,
    }
}

/// Compares received bytes with expected ones, in which `<…>` varies. Returns the length of the expected bytes; `None`
/// if all bytes so far match but more must follow.
pub fn bytes_match(written: &str, received: &[u8], names: &mut Names) -> Result<Option<usize>, String> {
    let mut rest = received;
    let mut parts = written.split('<');
    let mut literal = parts.next().unwrap_or_default().to_string();
    loop {
        let common = literal.len().min(rest.len());
        if rest[..common] != literal.as_bytes()[..common] {
            return Err(format!("not {}", literal.escape_debug()));
        }
        if common < literal.len() {
            return Ok(None);
        }
        rest = &rest[common..];
        let Some(part) = parts.next() else { return Ok(Some(received.len() - rest.len())) };
        let (what, behind) = part.split_once('>').ok_or("a < without its >")?;
        let name = what.replace(' ', "");
        if names.contains_key(&name) {
            literal = filled(&format!("${name}"), names) + behind;
            continue;
        }
        let is_end = |byte: &u8| if what == "text" { *byte == b'\r' } else { !byte.is_ascii_digit() };
        let Some(end) = rest.iter().position(is_end) else { return Ok(None) };
        let value = String::from_utf8_lossy(&rest[..end]);
        if let Some(fence) = varying(what, &value, names).map_err(|why| format!("<{what}> is {value}: {why}"))? {
            names.insert(name, fence.clone());
            names.insert(LAST_FENCE.to_string(), fence);
        }
        (literal, rest) = (behind.to_string(), &rest[end..]);
    }
}

/// Checks what was received for `<what>`. Returns a fencing token, which must be the same wherever it is named again.
fn varying(what: &str, received: &str, names: &Names) -> Result<Option<Reply>, String> {
    let check = |is_right: bool, why: &str| if is_right { Ok(None) } else { Err(why.to_string()) };
    let number = received.parse::<i64>();
    match what.split_once(' ') {
        _ if what == "text" => check(!received.is_empty(), "nothing"),
        _ if what == "0 or 1" => check(received == "0" || received == "1", "neither"),
        Some(("ms", most)) => {
            let most = most.parse().map_err(|_| "no bound in ms")?;
            check(number.is_ok_and(|ms| (1..=most).contains(&ms)), "not within its bound")
        }
        Some(("fence", _)) => {
            let fence = number.map_err(|_| "no number")?;
            let last = names.get(LAST_FENCE).map_or(0, Reply::int);
            check(last < fence, "fences do not grow")?;
            check(fence < 1 << 53, "not below 2^53")?;
            Ok(Some(Reply::Int(fence)))
        }
        _ => Err("the page does not say what it is".into()),
    }
}

/// The name of the last fencing token received for a `<fence n>`.
const LAST_FENCE: &str = "the last fence";

/// The text with its names replaced by their values.
pub fn filled(text: &str, names: &Names) -> String {
    let mut parts = text.split('$');
    let mut filled = parts.next().unwrap_or_default().to_string();
    for part in parts {
        let end = part.find(|letter: char| !letter.is_ascii_alphanumeric()).unwrap_or(part.len());
        let (name, rest) = part.split_at(end);
        match names.get(name) {
            Some(Reply::Int(number)) => filled.push_str(&number.to_string()),
            Some(Reply::Bulk(bytes)) => filled.push_str(&String::from_utf8_lossy(bytes)),
            _ => filled.push_str(&format!("${name}")),
        }
        filled.push_str(rest);
    }
    filled
}

fn parse(rest: &mut &str) -> Result<Pattern, String> {
    *rest = rest.trim_start();
    let first = rest.chars().next().ok_or("a pattern ends too early")?;
    match first {
        '[' => {
            let mut items = Vec::new();
            let has_more = list(rest, '[', ']', |rest| {
                items.push(parse(rest)?);
                Ok(())
            })?;
            Ok(Pattern::Array(items, has_more))
        }
        '{' => {
            let mut fields = Vec::new();
            let has_more = list(rest, '{', '}', |rest| {
                let (name, behind) = rest.split_once(':').ok_or("a field has no value")?;
                *rest = behind;
                fields.push((name.trim().to_string(), parse(rest)?));
                Ok(())
            })?;
            Ok(Pattern::Map(fields, has_more))
        }
        '"' => Ok(Pattern::Bulk(unescaped(quoted(rest, '"')?)?)),
        '\'' => Ok(Pattern::Text(quoted(rest, '\'')?.to_string())),
        '-' if rest[1..].starts_with(|second: char| second.is_alphabetic()) => {
            Ok(Pattern::Error(word(rest, &[',', ']', '}'])[1..].trim_end().to_string()))
        }
        _ => parse_word(word(rest, &[',', ']', '}', ' '])),
    }
}

fn parse_word(word: &str) -> Result<Pattern, String> {
    let name = |text: &str| text.strip_prefix('$').map(String::from).ok_or(format!("`{text}` is no name"));
    if let Some((left, above)) = word.split_once('>') {
        let bound = if left.is_empty() { None } else { Some(name(left)?) };
        return Ok(Pattern::Name { name: bound, above: Some(name(above)?) });
    }
    if word.starts_with('$') {
        return Ok(Pattern::Name { name: Some(name(word)?), above: None });
    }
    if let Some((least, most)) = word.split_once("..") {
        let number = |text: &str| text.parse().map_err(|_| format!("`{word}` is no range"));
        return Ok(Pattern::Int(number(least)?, number(most)?));
    }
    if let Ok(number) = word.parse() {
        return Ok(Pattern::Int(number, number));
    }
    match word {
        "_" => Ok(Pattern::Any),
        "nil" => Ok(Pattern::Nil),
        "null" => Ok(Pattern::Null),
        "OK" | "PONG" | "QUEUED" | "none" | "string" | "redislock" | "hash" => Ok(Pattern::Status(word.to_string())),
        _ => Err(format!("`{word}` is no pattern")),
    }
}

/// The elements between two brackets, and whether `...` follows them.
fn list(
    rest: &mut &str,
    open: char,
    close: char,
    mut element: impl FnMut(&mut &str) -> Result<(), String>,
) -> Result<bool, String> {
    *rest = rest.strip_prefix(open).expect("it begins so").trim_start();
    let mut has_more = false;
    while !rest.starts_with(close) {
        match rest.strip_prefix("...") {
            Some(behind) => {
                has_more = true;
                *rest = behind.trim_start();
            }
            None => {
                element(rest)?;
                *rest = rest.trim_start();
            }
        }
        match rest.strip_prefix(',') {
            Some(behind) => *rest = behind.trim_start(),
            None if rest.starts_with(close) => {}
            None => return Err(format!("`{rest}`: no comma")),
        }
    }
    *rest = &rest[1..];
    Ok(has_more)
}

fn word<'t>(rest: &mut &'t str, ends: &[char]) -> &'t str {
    let end = rest.find(ends).unwrap_or(rest.len());
    let (word, behind) = rest.split_at(end);
    *rest = behind;
    word
}

fn quoted<'t>(rest: &mut &'t str, quote: char) -> Result<&'t str, String> {
    let (text, behind) = rest[1..].split_once(quote).ok_or("a quote is open")?;
    *rest = behind;
    Ok(text)
}

/// `\xff` is that byte; `\r`, `\n` and `\0` have their usual meaning.
pub fn unescaped(text: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('\\') {
        bytes.extend_from_slice(before.as_bytes());
        let (byte, length) = match behind.as_bytes() {
            [b'x', ..] => (u8::from_str_radix(behind.get(1..3).unwrap_or_default(), 16).map_err(|e| e.to_string())?, 3),
            [b'r', ..] => (b'\r', 1),
            [b'n', ..] => (b'\n', 1),
            [b'0', ..] => (0, 1),
            _ => return Err(format!("\\{behind}: no escape")),
        };
        bytes.push(byte);
        rest = &behind[length..];
    }
    bytes.extend_from_slice(rest.as_bytes());
    Ok(bytes)
}

#[test]
fn patterns_match_as_documented() {
    let matches = |pattern: &str, reply: Reply| {
        let mut names = Names::from([("f".to_string(), Reply::Int(7))]);
        Pattern::parse(pattern).expect(pattern).matches(&reply, &mut names)
    };
    let grant = |fence| Reply::Array(vec![Reply::bulk("a"), Reply::Int(fence)]);
    assert!(matches("[\"a\", $f]", grant(7)) && !matches("[\"a\", $f]", grant(8)));
    assert!(matches("[\"a\", >$f]", grant(8)) && !matches("[\"a\", >$f]", grant(7)));
    assert!(
        matches("[\"a\", $g>$f]", grant(8)) && matches("[\"a\", _]", grant(1)) && matches("[\"a\", ...]", grant(1))
    );
    assert!(!matches("[\"a\"]", grant(7)) && !matches("[\"b\", 7]", grant(7)) && !matches("[\"a\", 7, 7]", grant(7)));
    assert!(matches("nil", Reply::NullArray) && matches("nil", Reply::Null) && !matches("nil", Reply::NullBulk));
    assert!(matches("null", Reply::NullBulk) && !matches("null", Reply::NullArray));
    assert!(matches("1..3", Reply::Int(3)) && !matches("1..3", Reply::Int(4)) && matches("-1", Reply::Int(-1)));
    assert!(matches("-ERR x, y", Reply::Error("ERR x, y".into())) && !matches("-ERR x", Reply::Error("ERR xy".into())));
    assert!(matches("-ERR ...", Reply::Error("ERR xy".into())) && !matches("-ERR ...", Reply::Error("OTHER".into())));
    assert!(matches("OK", Reply::ok()) && !matches("OK", Reply::bulk("OK")));
    assert!(matches("'{\"fence\":$f}'", Reply::bulk("{\"fence\":7}")));
    let map = || Reply::Array(vec![Reply::bulk("x"), Reply::Int(1), Reply::bulk("y"), Reply::Int(2)]);
    assert!(matches("{x: 1, y: 2}", map()) && matches("{y: 2, ...}", map()) && !matches("{y: 2, x: 1}", map()));
    assert!(!matches("{x: 1}", map()) && !matches("{x: 2, ...}", map()) && !matches("{z: _, ...}", map()));
    assert_eq!(unescaped("a\\xff\\0").expect("bytes"), b"a\xff\0");
}

#[test]
fn bytes_may_differ_only_in_varying_parts() {
    let matches = |written: &[&str], received: &str| {
        let mut names = Names::from([("port2".to_string(), Reply::Int(7001))]);
        let mut rest = received.as_bytes();
        written.iter().all(|written| match bytes_match(written, rest, &mut names) {
            Ok(Some(taken)) => {
                rest = &rest[taken..];
                true
            }
            Ok(None) | Err(_) => false,
        })
    };
    assert!(matches(&["*2\r\n:<fence 1>\r\n", ":<fence 1>\r\n", ":<fence 2>\r\n"], "*2\r\n:17\r\n:17\r\n:18\r\n"));
    assert!(!matches(&[":<fence 1>\r\n", ":<fence 1>\r\n"], ":17\r\n:18\r\n"), "another for the same");
    assert!(!matches(&[":<fence 1>\r\n", ":<fence 2>\r\n"], ":17\r\n:17\r\n"), "the same for another");
    assert!(!matches(&[":<fence 1>\r\n"], ":0\r\n") && !matches(&[":<fence 1>\r\n"], ":9007199254740992\r\n"));
    assert!(matches(&[":<ms 30>\r\n"], ":30\r\n") && matches(&[":<ms 30>\r\n"], ":1\r\n"));
    for wrong in [":31\r\n", ":0\r\n", ":-1\r\n"] {
        assert!(!matches(&[":<ms 30>\r\n"], wrong), "{wrong}");
    }
    assert!(matches(&["-MOVED 5 h:<port 2>\r\n"], "-MOVED 5 h:7001\r\n"));
    assert!(!matches(&["-MOVED 5 h:<port 2>\r\n"], "-MOVED 5 h:7002\r\n"));
    assert!(matches(&["-ERR <text>\r\n"], "-ERR words\r\n") && !matches(&["-ERR <text>\r\n"], "-OTHER words\r\n"));
    for received in ["*2\r\n", "*-1\r", ""] {
        assert!(!matches(&["*-1\r\n"], received), "{received}");
    }
}
