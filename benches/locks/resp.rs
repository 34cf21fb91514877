//! The protocol, as much of RESP2 as the benchmark speaks: commands out, replies in.
//!
//! Written here instead of taken from a client library because the benchmark measures the server: it encodes whole
//! pipelines ahead of the clock and must know exactly how many commands went out.

/// One reply of the server.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    Nil,
    Status(String),
    Error(String),
    Integer(i64),
    Bulk(Vec<u8>),
    Array(Vec<Reply>),
}

impl Reply {
    pub fn is_nil(&self) -> bool {
        matches!(self, Reply::Nil)
    }

    pub fn integer(&self) -> Option<i64> {
        match self {
            Reply::Integer(value) => Some(*value),
            _ => None,
        }
    }

    pub fn is(&self, text: &str) -> bool {
        matches!(self, Reply::Bulk(bytes) if bytes == text.as_bytes())
    }
}

/// Commands encoded ahead of time, with the number of replies that they will bring.
#[derive(Default, Clone)]
pub struct Pipeline {
    pub bytes: Vec<u8>,
    pub commands: usize,
}

impl Pipeline {
    pub fn push(&mut self, args: &[&str]) {
        encode(&mut self.bytes, args);
        self.commands += 1;
    }
}

pub fn encode(out: &mut Vec<u8>, args: &[&str]) {
    out.extend_from_slice(format!("*{}\r\n", args.len()).as_bytes());
    for arg in args {
        out.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
        out.extend_from_slice(arg.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
}

/// The first reply in `bytes` and its length, or None while it is incomplete.
/// The server is trusted: bytes that are no RESP end the benchmark.
pub fn decode(bytes: &[u8]) -> Option<(Reply, usize)> {
    let end = bytes.iter().position(|byte| *byte == b'\r')?;
    if bytes.len() < end + 2 {
        return None;
    }
    let line = std::str::from_utf8(&bytes[1..end]).expect("the server answers lines of text");
    let number = || line.parse::<i64>().expect("the server answers numbers as numbers");
    let next = end + 2;
    match bytes[0] {
        b'+' => Some((Reply::Status(line.to_owned()), next)),
        b'-' => Some((Reply::Error(line.to_owned()), next)),
        b':' => Some((Reply::Integer(number()), next)),
        b'$' => {
            let Ok(length) = usize::try_from(number()) else {
                return Some((Reply::Nil, next));
            };
            let bulk = bytes.get(next..next + length + 2)?;
            Some((Reply::Bulk(bulk[..length].to_vec()), next + length + 2))
        }
        b'*' => {
            let Ok(count) = usize::try_from(number()) else {
                return Some((Reply::Nil, next));
            };
            let mut at = next;
            let mut items = Vec::with_capacity(count);
            for _ in 0..count {
                let (item, length) = decode(bytes.get(at..).filter(|rest| !rest.is_empty())?)?;
                items.push(item);
                at += length;
            }
            Some((Reply::Array(items), at))
        }
        other => panic!("the server answered a reply of type {:?}", char::from(other)),
    }
}
