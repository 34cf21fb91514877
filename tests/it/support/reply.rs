//! A reply as it came over the wire. Unlike most client libraries it tells the two nulls of RESP2 apart, because the
//! contract says which one a refusal is.

use std::fmt;
use std::io::{self, BufRead, Error, ErrorKind};

#[derive(Clone, PartialEq)]
pub enum Reply {
    /// `_`, RESP3 only.
    Null,
    /// `*-1`, RESP2 only.
    NullArray,
    /// `$-1`, RESP2 only.
    NullBulk,
    Status(String),
    Error(String),
    Int(i64),
    Bulk(Vec<u8>),
    Array(Vec<Reply>),
    Map(Vec<(Reply, Reply)>),
    Set(Vec<Reply>),
    Push(Vec<Reply>),
    Double(f64),
    Bool(bool),
}

impl Reply {
    pub fn ok() -> Reply {
        Reply::Status("OK".into())
    }

    pub fn bulk(bytes: impl AsRef<[u8]>) -> Reply {
        Reply::Bulk(bytes.as_ref().to_vec())
    }

    /// The contract's nil: a null array in RESP2, the null in RESP3. A null bulk string is none.
    pub fn is_nil(&self) -> bool {
        matches!(self, Reply::Null | Reply::NullArray)
    }

    pub fn is_error(&self) -> bool {
        matches!(self, Reply::Error(_))
    }

    /// The error's words, with its code.
    #[track_caller]
    pub fn error(&self) -> &str {
        match self {
            Reply::Error(words) => words,
            other => panic!("expected an error, got {other:?}"),
        }
    }

    #[track_caller]
    pub fn int(&self) -> i64 {
        match self {
            Reply::Int(number) => *number,
            other => panic!("expected an integer, got {other:?}"),
        }
    }

    #[track_caller]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Reply::Bulk(bytes) => bytes,
            Reply::Status(words) => words.as_bytes(),
            other => panic!("expected a string, got {other:?}"),
        }
    }

    /// The string, which must be UTF-8.
    #[track_caller]
    pub fn text(&self) -> &str {
        std::str::from_utf8(self.bytes()).expect("a UTF-8 string")
    }

    /// The elements of an array, a set or a push.
    #[track_caller]
    pub fn items(&self) -> &[Reply] {
        match self {
            Reply::Array(items) | Reply::Set(items) | Reply::Push(items) => items,
            other => panic!("expected an array, got {other:?}"),
        }
    }

    /// The fence of a grant `[token, fence, …]`; fails on a refusal and on a queued request's 0.
    #[track_caller]
    pub fn fence(&self) -> i64 {
        let fence = self.items()[1].int();
        assert!(fence > 0, "expected a grant, got {self:?}");
        fence
    }

    /// The pairs of a map, in order: a RESP3 map or RESP2's flat array.
    #[track_caller]
    pub fn pairs(&self) -> Vec<(&Reply, &Reply)> {
        match self {
            Reply::Map(pairs) => pairs.iter().map(|(name, value)| (name, value)).collect(),
            Reply::Array(flat) if flat.len() % 2 == 0 => flat.chunks(2).map(|pair| (&pair[0], &pair[1])).collect(),
            other => panic!("expected a map, got {other:?}"),
        }
    }

    /// One field of a map.
    #[track_caller]
    pub fn get(&self, field: &str) -> &Reply {
        self.pairs()
            .into_iter()
            .find(|(name, _)| name.bytes() == field.as_bytes())
            .unwrap_or_else(|| panic!("no field {field} in {self:?}"))
            .1
    }

    /// Every value in these bytes, which end with a whole one: an AOF is written in the same form as the wire.
    #[track_caller]
    pub fn parse_all(mut bytes: &[u8]) -> Vec<Reply> {
        let mut values = Vec::new();
        while !bytes.is_empty() {
            values.push(Reply::read(&mut bytes).expect("whole values"));
        }
        values
    }

    /// Reads one whole reply.
    pub(super) fn read(from: &mut impl BufRead) -> io::Result<Reply> {
        let line = read_line(from)?;
        let (kind, rest) = line.split_at(1);
        Ok(match kind {
            "+" => Reply::Status(rest.into()),
            "-" => Reply::Error(rest.into()),
            ":" => Reply::Int(parse(rest)?),
            "(" => Reply::Status(rest.into()),
            "," => Reply::Double(parse(rest)?),
            "#" => Reply::Bool(rest == "t"),
            "_" => Reply::Null,
            "$" if rest == "-1" => Reply::NullBulk,
            "*" if rest == "-1" => Reply::NullArray,
            "$" => Reply::Bulk(read_bulk(from, parse(rest)?)?),
            // Verbatim strings carry their format in front: `txt:`.
            "=" => Reply::Bulk(read_bulk(from, parse(rest)?)?.split_off(4)),
            "*" => Reply::Array(read_items(from, parse(rest)?)?),
            "~" => Reply::Set(read_items(from, parse(rest)?)?),
            ">" => Reply::Push(read_items(from, parse(rest)?)?),
            "%" => {
                let flat = read_items(from, 2 * parse::<usize>(rest)?)?;
                Reply::Map(pair_up(flat))
            }
            _ => return Err(Error::new(ErrorKind::InvalidData, line)),
        })
    }
}

/// Strings as text: failures are read by people.
impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reply::Null => write!(f, "_"),
            Reply::NullArray => write!(f, "*-1"),
            Reply::NullBulk => write!(f, "$-1"),
            Reply::Status(words) => write!(f, "+{words}"),
            Reply::Error(words) => write!(f, "-{words}"),
            Reply::Int(number) => write!(f, "{number}"),
            Reply::Bulk(bytes) => write!(f, "\"{}\"", bytes.escape_ascii()),
            Reply::Array(items) => f.debug_list().entries(items).finish(),
            Reply::Map(pairs) => f.debug_map().entries(pairs.iter().map(|(name, value)| (name, value))).finish(),
            Reply::Set(items) => f.debug_set().entries(items).finish(),
            Reply::Push(items) => write!(f, ">{items:?}"),
            Reply::Double(number) => write!(f, "{number}"),
            Reply::Bool(truth) => write!(f, "{truth}"),
        }
    }
}

fn read_line(from: &mut impl BufRead) -> io::Result<String> {
    let mut line = Vec::new();
    from.read_until(b'\n', &mut line)?;
    if !line.ends_with(b"\r\n") {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    line.truncate(line.len() - 2);
    if line.is_empty() {
        return Err(Error::new(ErrorKind::InvalidData, "an empty line"));
    }
    Ok(String::from_utf8_lossy(&line).into_owned())
}

fn read_bulk(from: &mut impl BufRead, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length + 2];
    from.read_exact(&mut bytes)?;
    bytes.truncate(length);
    Ok(bytes)
}

fn read_items(from: &mut impl BufRead, count: usize) -> io::Result<Vec<Reply>> {
    (0..count).map(|_| Reply::read(from)).collect()
}

fn pair_up(flat: Vec<Reply>) -> Vec<(Reply, Reply)> {
    let mut flat = flat.into_iter();
    let mut pairs = Vec::new();
    while let (Some(name), Some(value)) = (flat.next(), flat.next()) {
        pairs.push((name, value));
    }
    pairs
}

fn parse<T: std::str::FromStr>(text: &str) -> io::Result<T> {
    text.parse().map_err(|_| Error::new(ErrorKind::InvalidData, text))
}
