//! A connection for measurements. It either blocks its thread, for latencies, or shares it with thousands of others.
//! The same client code runs on both, so both are written as futures; on a blocking connection they are always ready.
use std::cell::Cell;
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::rc::Rc;

use async_io::Async;
use futures_lite::future::block_on;
use futures_lite::AsyncWriteExt;

use crate::reply::Reply;
use crate::resp::{encode, Inbox, Pipeline};

enum Stream {
    Blocking(TcpStream),
    Shared(Async<TcpStream>),
}

pub struct Connection {
    stream: Stream,
    inbox: Inbox,
    outbox: Vec<u8>,
    /// Counts the commands sent; connections may share a counter.
    pub sent: Rc<Cell<u64>>,
}

impl Connection {
    /// A connection that blocks its thread.
    pub fn connect(port: u16) -> io::Result<Connection> {
        let stream = TcpStream::connect(address(port))?;
        stream.set_nodelay(true)?;
        Ok(Self::over(Stream::Blocking(stream)))
    }

    /// A connection that waits without blocking its thread.
    pub async fn connect_shared(port: u16) -> io::Result<Connection> {
        let stream = Async::<TcpStream>::connect(address(port)).await?;
        stream.get_ref().set_nodelay(true)?;
        Ok(Self::over(Stream::Shared(stream)))
    }

    fn over(stream: Stream) -> Connection {
        Connection { stream, inbox: Inbox::default(), outbox: Vec::new(), sent: Rc::default() }
    }

    /// Sends one command and returns its reply; for blocking connections.
    pub fn command(&mut self, args: &[&str]) -> io::Result<Reply> {
        block_on(self.call(args))
    }

    /// Sends one command and returns its reply.
    pub async fn call(&mut self, args: &[&str]) -> io::Result<Reply> {
        self.send(args).await?;
        self.receive().await
    }

    /// Sends one command without receiving the reply.
    pub async fn send(&mut self, args: &[&str]) -> io::Result<()> {
        self.outbox.clear();
        encode(&mut self.outbox, args);
        self.sent.set(self.sent.get() + 1);
        match &mut self.stream {
            Stream::Blocking(stream) => stream.write_all(&self.outbox),
            Stream::Shared(stream) => stream.write_all(&self.outbox).await,
        }
    }

    /// The next reply, or the next message of a subscription.
    pub async fn receive(&mut self) -> io::Result<Reply> {
        loop {
            if let Some(reply) = self.inbox.next()? {
                return Ok(reply);
            }
            let length = match &mut self.stream {
                Stream::Blocking(stream) => self.inbox.fill(stream)?,
                Stream::Shared(stream) => stream.read_with(|stream| self.inbox.fill(stream)).await?,
            };
            if length == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Sends the whole pipeline, and passes each reply to `check`. For blocking connections.
    pub fn pipeline(&mut self, pipeline: &Pipeline, mut check: impl FnMut(usize, Reply)) -> io::Result<()> {
        self.sent.set(self.sent.get() + pipeline.commands as u64);
        let Stream::Blocking(stream) = &mut self.stream else {
            panic!("pipelines run on connections that block");
        };
        stream.write_all(&pipeline.bytes)?;
        for index in 0..pipeline.commands {
            check(index, block_on(self.receive())?);
        }
        Ok(())
    }

    /// [`Connection::pipeline`] if only errors matter.
    pub fn run(&mut self, pipeline: &Pipeline) -> io::Result<()> {
        let mut refused = None;
        self.pipeline(pipeline, |_, reply| {
            if let Reply::Error(text) = reply {
                refused.get_or_insert(text);
            }
        })?;
        refused.map_or(Ok(()), |text| Err(io::Error::other(text)))
    }
}

fn address(port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)
}
