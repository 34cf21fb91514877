//! A connection of which nothing but bytes is known, and the bytes of the page that vary from run to run.

use crate::support::LIMIT;
use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

pub struct Wire {
    stream: TcpStream,
    /// What came and was not taken yet.
    came: Vec<u8>,
    pub is_waiting: bool,
}

impl Wire {
    /// A new connection; in RESP3 after the greeting, which is the server's own.
    #[track_caller]
    pub fn open(port: u16, is_resp3: bool) -> Wire {
        let mut wire = Wire::connect(port);
        if is_resp3 {
            wire.send(b"*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n*1\r\n$4\r\nPING\r\n");
            while !wire.came.ends_with(b"+PONG\r\n") {
                assert!(wire.fill(LIMIT).expect("it is connected"), "HELLO 3: {}", wire.came.escape_ascii());
            }
            assert!(wire.came.starts_with(b"%"), "HELLO 3: {}", wire.came.escape_ascii());
            wire.came.clear();
        }
        wire
    }

    #[track_caller]
    pub fn connect(port: u16) -> Wire {
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("a server listens");
        stream.set_nodelay(true).expect("a socket");
        Wire { stream, came: Vec::new(), is_waiting: false }
    }

    /// As CLIENT LIST names it.
    pub fn address(&self) -> String {
        self.stream.local_addr().expect("it is connected").to_string()
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the server reads");
    }

    /// Reads what the pattern tells, and no more; or tells why not.
    pub fn expect(&mut self, pattern: &str, values: &mut Values) -> Result<(), String> {
        let mut taken = 0;
        let outcome = pieces(pattern).into_iter().try_for_each(|piece| self.expect_piece(&piece, &mut taken, values));
        let came = self.came[..taken.max(self.came.len().min(200))].escape_ascii().to_string();
        self.came.drain(..taken);
        outcome.map_err(|why| format!("{why}; what came: {came}"))
    }

    fn expect_piece(&mut self, piece: &Piece, taken: &mut usize, values: &mut Values) -> Result<(), String> {
        let Piece::Varies(what) = piece else {
            let Piece::Literal(literal) = piece else { unreachable!("there are two") };
            return literal.bytes().try_for_each(|byte| self.expect_byte(byte, taken));
        };
        if let Some(known) = values.known(what) {
            return known.bytes().try_for_each(|byte| self.expect_byte(byte, taken));
        }
        let start = *taken;
        while self.byte(*taken)? != b'\r' && (*what == "text" || self.byte(*taken)?.is_ascii_digit()) {
            *taken += 1;
        }
        let value = String::from_utf8_lossy(&self.came[start..*taken]).into_owned();
        values.judge(what, value)
    }

    fn expect_byte(&mut self, byte: u8, taken: &mut usize) -> Result<(), String> {
        let came = self.byte(*taken)?;
        if came != byte {
            return Err(format!("byte {taken} is {}, not {}", came.escape_ascii(), byte.escape_ascii()));
        }
        *taken += 1;
        Ok(())
    }

    /// A byte that has not been taken yet; waits for it.
    fn byte(&mut self, index: usize) -> Result<u8, String> {
        while self.came.len() <= index {
            if !self.fill(LIMIT)? {
                return Err("nothing more came".into());
            }
        }
        Ok(self.came[index])
    }

    /// Reads what is there, for a moment or until `limit`; false when nothing came.
    fn fill(&mut self, limit: Duration) -> Result<bool, String> {
        let mut bytes = [0; 4096];
        self.stream.set_read_timeout(Some(limit)).expect("a socket");
        match self.stream.read(&mut bytes) {
            Ok(0) => Err("the connection was closed".into()),
            Ok(count) => {
                self.came.extend_from_slice(&bytes[..count]);
                Ok(true)
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Ok(false),
            Err(error) => Err(format!("the connection broke: {error}")),
        }
    }

    /// Waits until the reply begins to come: its command has run.
    pub fn until_answered(&mut self) -> Result<(), String> {
        self.byte(0).map(|_| ())
    }

    pub fn until_closed(&mut self) -> Result<(), String> {
        match self.fill(LIMIT) {
            Ok(true) => Err(format!("it was told {}", self.came.escape_ascii())),
            Ok(false) => Err("it is still open".into()),
            Err(_) => Ok(()),
        }
    }

    pub fn close(self) {
        // An error says that it has already been closed.
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    /// Fails unless everything that the server sent was expected: the next reply is that of a PING.
    pub fn assert_nothing_more(&mut self) -> Result<(), String> {
        self.send(b"*1\r\n$4\r\nPING\r\n");
        self.byte(0)?;
        let pong = match self.came[0] {
            b'*' => "*2\r\n$4\r\npong\r\n$0\r\n\r\n",
            _ => "+PONG\r\n",
        };
        self.expect(pong, &mut Values::default()).map_err(|why| format!("more came than is written: {why}"))
    }
}

#[derive(Debug, PartialEq)]
enum Piece<'a> {
    Literal(&'a str),
    Varies(&'a str),
}

/// `:<fence 1>\r\n` is a literal, something that varies, a literal.
fn pieces(pattern: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let mut rest = pattern;
    while let Some((literal, varies, behind)) = first_varying(rest) {
        pieces.extend([Piece::Literal(literal), Piece::Varies(varies)]);
        rest = behind;
    }
    pieces.push(Piece::Literal(rest));
    pieces
}

fn first_varying(text: &str) -> Option<(&str, &str, &str)> {
    let (literal, rest) = text.split_once('<')?;
    let (varies, behind) = rest.split_once('>').unwrap_or_else(|| panic!("{text}: a < without its >"));
    Some((literal, varies, behind))
}

/// What stands for `<fence 1>`, `<port 2>` and the like.
#[derive(Default)]
pub struct Values {
    bound: HashMap<String, String>,
    last_fence: u64,
}

impl Values {
    pub fn bind(&mut self, what: &str, value: impl ToString) {
        self.bound.insert(what.into(), value.to_string());
    }

    fn known(&self, what: &str) -> Option<String> {
        self.bound.get(what).cloned()
    }

    /// A text in which everything is known.
    pub fn fill(&self, text: &str) -> String {
        let piece = |piece: Piece| match piece {
            Piece::Literal(literal) => literal.to_string(),
            Piece::Varies(what) => self.known(what).unwrap_or_else(|| panic!("<{what}> is not known yet")),
        };
        pieces(text).into_iter().map(piece).collect()
    }

    /// What came the first time for something that varies.
    fn judge(&mut self, what: &str, came: String) -> Result<(), String> {
        let check =
            |is_right: bool, why: &str| if is_right { Ok(()) } else { Err(format!("<{what}> is {came}: {why}")) };
        let number = came.parse::<u64>();
        match what.split_once(' ') {
            _ if what == "text" => check(!came.is_empty(), "nothing"),
            _ if what == "0 or 1" => check(came == "0" || came == "1", "neither"),
            Some(("fence", _)) => {
                let fence = number.map_err(|_| format!("<{what}> is {came}: no number"))?;
                check(fence > self.last_fence, "fences do not grow")?;
                check(fence < 1 << 53, "not below 2^53")?;
                self.last_fence = fence;
                self.bind(what, came);
                Ok(())
            }
            Some(("ms", most)) => {
                let most: u64 = most.parse().expect("a bound in ms");
                check(number.is_ok_and(|ms| (1..=most).contains(&ms)), "not within its bound")
            }
            _ => panic!("the page does not say what <{what}> is"),
        }
    }
}

#[test]
fn only_what_varies_may_differ() {
    use std::net::TcpListener;
    let listening = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let port = listening.local_addr().expect("it is bound").port();
    let answers = |written: &[&str], came: &str| {
        let mut wire = Wire::connect(port);
        let (mut server, _) = listening.accept().expect("a connection");
        server.write_all(came.as_bytes()).expect("it is read");
        drop(server);
        let mut values = Values::default();
        values.bind("port 2", 7001);
        written.iter().all(|written| wire.expect(written, &mut values).is_ok())
    };
    assert!(answers(&["*2\r\n:<fence 1>\r\n", ":<fence 1>\r\n", ":<fence 2>\r\n"], "*2\r\n:17\r\n:17\r\n:18\r\n"));
    assert!(!answers(&[":<fence 1>\r\n", ":<fence 1>\r\n"], ":17\r\n:18\r\n"), "another for the same");
    assert!(!answers(&[":<fence 1>\r\n", ":<fence 2>\r\n"], ":17\r\n:17\r\n"), "the same for another");
    assert!(!answers(&[":<fence 1>\r\n"], ":0\r\n"), "no fence");
    assert!(!answers(&[":<fence 1>\r\n"], ":9007199254740992\r\n"), "not below 2^53");
    assert!(answers(&[":<ms 30>\r\n"], ":30\r\n") && answers(&[":<ms 30>\r\n"], ":1\r\n"));
    assert!(!answers(&[":<ms 30>\r\n"], ":31\r\n") && !answers(&[":<ms 30>\r\n"], ":0\r\n"));
    assert!(!answers(&[":<ms 30>\r\n"], ":-1\r\n"));
    assert!(answers(&["-MOVED 5 h:<port 2>\r\n"], "-MOVED 5 h:7001\r\n"));
    assert!(!answers(&["-MOVED 5 h:<port 2>\r\n"], "-MOVED 5 h:7002\r\n"));
    assert!(
        answers(&["-ERR <text>\r\n"], "-ERR any words\r\n") && !answers(&["-ERR <text>\r\n"], "-OTHER any words\r\n")
    );
    for came in ["*2\r\n", "*-1\r", ""] {
        assert!(!answers(&["*-1\r\n"], came), "{came}");
    }
}
