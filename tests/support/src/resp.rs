//! The wire protocol: encodes commands and decodes replies, in RESP2 and RESP3. No sockets: both kinds of connection
//! use it.

use std::io::{self, Error, ErrorKind, Read};

use crate::reply::Reply;

/// Pre-encoded commands, with the number of replies that they will produce.
#[derive(Clone, Default)]
pub struct Pipeline {
    pub bytes: Vec<u8>,
    pub commands: usize,
}

impl Pipeline {
    pub fn push<A: AsRef<[u8]>>(&mut self, args: &[A]) {
        encode(&mut self.bytes, args);
        self.commands += 1;
    }

    pub fn append(&mut self, other: &Pipeline) {
        self.bytes.extend_from_slice(&other.bytes);
        self.commands += other.commands;
    }
}

/// Received bytes that have not been decoded yet.
#[derive(Default)]
pub struct Inbox {
    bytes: Vec<u8>,
    /// Bytes before this index have been decoded.
    start: usize,
}

impl Inbox {
    /// Whether it contains no partial reply.
    pub fn is_empty(&self) -> bool {
        self.start == self.bytes.len()
    }

    /// The next reply; None while it is incomplete.
    pub fn next(&mut self) -> io::Result<Option<Reply>> {
        let Some((reply, length)) = decode(&self.bytes[self.start..])? else { return Ok(None) };
        self.start += length;
        Ok(Some(reply))
    }

    /// Receives some bytes; 0 at the end of the connection.
    ///
    /// The buffer is a local of this function, so that it is not part of the futures of ten thousand connections.
    pub fn fill(&mut self, mut from: impl Read) -> io::Result<usize> {
        let mut chunk = [0; 16 * 1024];
        let length = from.read(&mut chunk)?;
        self.bytes.drain(..self.start);
        self.start = 0;
        self.bytes.extend_from_slice(&chunk[..length]);
        Ok(length)
    }
}

pub fn encode<A: AsRef<[u8]>>(out: &mut Vec<u8>, args: &[A]) {
    out.extend_from_slice(format!("*{}\r\n", args.len()).as_bytes());
    for arg in args {
        let arg = arg.as_ref();
        out.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
        out.extend_from_slice(arg);
        out.extend_from_slice(b"\r\n");
    }
}

impl Reply {
    /// Its encoding. Types with more than one form (big numbers, verbatim strings) use the simplest one.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut line = |kind: char, text: &str| out.extend_from_slice(format!("{kind}{text}\r\n").as_bytes());
        let items = match self {
            Reply::Null => return line('_', ""),
            Reply::NullArray => return line('*', "-1"),
            Reply::NullBulk => return line('$', "-1"),
            Reply::Status(text) => return line('+', text),
            Reply::Error(text) => return line('-', text),
            Reply::Int(number) => return line(':', &number.to_string()),
            Reply::Double(number) => return line(',', &number.to_string()),
            Reply::Bool(truth) => return line('#', if *truth { "t" } else { "f" }),
            Reply::Bulk(bytes) => {
                line('$', &bytes.len().to_string());
                out.extend_from_slice(bytes);
                out.extend_from_slice(b"\r\n");
                return;
            }
            Reply::Map(pairs) => {
                line('%', &pairs.len().to_string());
                return pairs.iter().for_each(|(name, value)| {
                    name.encode(out);
                    value.encode(out);
                });
            }
            Reply::Array(items) => {
                line('*', &items.len().to_string());
                items
            }
            Reply::Set(items) => {
                line('~', &items.len().to_string());
                items
            }
            Reply::Push(items) => {
                line('>', &items.len().to_string());
                items
            }
        };
        items.iter().for_each(|item| item.encode(out));
    }
}

/// All replies in these bytes, which must end with a complete one.
pub fn decode_all(mut bytes: &[u8]) -> io::Result<Vec<Reply>> {
    let mut replies = Vec::new();
    while !bytes.is_empty() {
        let (reply, length) = decode(bytes)?.ok_or(ErrorKind::UnexpectedEof)?;
        replies.push(reply);
        bytes = &bytes[length..];
    }
    Ok(replies)
}

/// The first reply in `bytes` and its length; None while it is incomplete. `InvalidData` if it is not RESP.
fn decode(bytes: &[u8]) -> io::Result<Option<(Reply, usize)>> {
    let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else { return Ok(None) };
    let next = end + 1;
    let [kind, line @ .., b'\r', b'\n'] = &bytes[..next] else { return Err(invalid(&bytes[..next])) };
    let reply = match kind {
        b'+' | b'(' => Reply::Status(text(line)),
        b'-' => Reply::Error(text(line)),
        b':' => Reply::Int(parse(line)?),
        b',' => Reply::Double(parse(line)?),
        b'#' => Reply::Bool(line == b"t"),
        b'_' => Reply::Null,
        b'$' if line == b"-1" => Reply::NullBulk,
        b'*' if line == b"-1" => Reply::NullArray,
        b'$' => return Ok(bulk(bytes, next, parse(line)?).map(|(bytes, end)| (Reply::Bulk(bytes.to_vec()), end))),
        b'=' => {
            let Some((verbatim, end)) = bulk(bytes, next, parse(line)?) else { return Ok(None) };
            // Prefixed with the format: `txt:`.
            let text = verbatim.get(4..).ok_or_else(|| invalid(verbatim))?;
            return Ok(Some((Reply::Bulk(text.to_vec()), end)));
        }
        b'*' => return Ok(items(bytes, next, parse(line)?)?.map(|(items, end)| (Reply::Array(items), end))),
        b'~' => return Ok(items(bytes, next, parse(line)?)?.map(|(items, end)| (Reply::Set(items), end))),
        b'>' => return Ok(items(bytes, next, parse(line)?)?.map(|(items, end)| (Reply::Push(items), end))),
        b'%' => {
            let flat = items(bytes, next, 2 * parse::<usize>(line)?)?;
            return Ok(flat.map(|(flat, end)| (Reply::Map(pair_up(flat)), end)));
        }
        _ => return Err(invalid(&bytes[..next])),
    };
    Ok(Some((reply, next)))
}

/// `length` bytes from `start`, and the index of the next reply.
fn bulk(bytes: &[u8], start: usize, length: usize) -> Option<(&[u8], usize)> {
    let end = start + length;
    bytes.get(..end + 2).map(|bytes| (&bytes[start..end], end + 2))
}

/// `count` replies from `start`, and the index after them.
fn items(bytes: &[u8], start: usize, count: usize) -> io::Result<Option<(Vec<Reply>, usize)>> {
    let mut end = start;
    let mut items = Vec::with_capacity(count);
    for _ in 0..count {
        let Some((item, length)) = decode(&bytes[end..])? else { return Ok(None) };
        items.push(item);
        end += length;
    }
    Ok(Some((items, end)))
}

fn pair_up(flat: Vec<Reply>) -> Vec<(Reply, Reply)> {
    let mut flat = flat.into_iter();
    let mut pairs = Vec::new();
    while let (Some(name), Some(value)) = (flat.next(), flat.next()) {
        pairs.push((name, value));
    }
    pairs
}

fn text(line: &[u8]) -> String {
    String::from_utf8_lossy(line).into_owned()
}

fn parse<T: std::str::FromStr>(line: &[u8]) -> io::Result<T> {
    let number = std::str::from_utf8(line).ok().and_then(|line| line.parse().ok());
    number.ok_or_else(|| invalid(line))
}

fn invalid(bytes: &[u8]) -> Error {
    Error::new(ErrorKind::InvalidData, format!("no RESP: {}", bytes.escape_ascii()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every kind of reply in its encoding; [`replies`] contains the decoded values.
    const WIRE: &[u8] =
        b"+OK\r\n-ERR no\r\n:-7\r\n$3\r\na\r\n\r\n$-1\r\n*-1\r\n*2\r\n:1\r\n*0\r\n_\r\n,1.5\r\n#t\r\n#f\r\n(12\r\n\
        =7\r\ntxt:abc\r\n~1\r\n:1\r\n>1\r\n+p\r\n%1\r\n+k\r\n$0\r\n\r\n";

    fn replies() -> Vec<Reply> {
        vec![
            Reply::ok(),
            Reply::Error("ERR no".into()),
            Reply::Int(-7),
            Reply::bulk("a\r\n"),
            Reply::NullBulk,
            Reply::NullArray,
            Reply::Array(vec![Reply::Int(1), Reply::Array(Vec::new())]),
            Reply::Null,
            Reply::Double(1.5),
            Reply::Bool(true),
            Reply::Bool(false),
            Reply::Status("12".into()),
            Reply::bulk("abc"),
            Reply::Set(vec![Reply::Int(1)]),
            Reply::Push(vec![Reply::Status("p".into())]),
            Reply::Map(vec![(Reply::Status("k".into()), Reply::bulk(""))]),
        ]
    }

    #[test]
    fn every_kind_of_reply_is_decoded() {
        assert_eq!(decode_all(WIRE).expect("RESP"), replies());
    }

    #[test]
    fn an_encoded_reply_is_decoded_as_itself() {
        let mut bytes = Vec::new();
        replies().iter().for_each(|reply| reply.encode(&mut bytes));
        assert_eq!(decode_all(&bytes).expect("RESP"), replies());
        let simplest =
            String::from_utf8_lossy(WIRE).replace("(12\r\n", "+12\r\n").replace("=7\r\ntxt:abc", "$3\r\nabc");
        assert_eq!(String::from_utf8_lossy(&bytes), simplest);
    }

    #[test]
    fn replies_that_arrive_byte_by_byte_are_decoded() {
        let mut inbox = Inbox::default();
        let mut decoded = Vec::new();
        for byte in WIRE {
            inbox.fill(&[*byte][..]).expect("a slice can be read");
            decoded.extend(inbox.next().expect("RESP"));
        }
        assert_eq!(decoded, replies());
        assert!(inbox.is_empty());
    }

    #[test]
    fn invalid_resp_is_an_error() {
        for wrong in [&b"\r\n"[..], b"+\n", b"?1\r\n", b":x\r\n", b"$-2\r\n", b"=1\r\na\r\n", b"*1\r\n?\r\n"] {
            let error = decode(wrong).expect_err("no RESP");
            assert_eq!(error.kind(), ErrorKind::InvalidData, "{}", wrong.escape_ascii());
        }
    }
}
