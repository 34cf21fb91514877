//! Connections to the server under test: one that blocks its thread, for latencies, and one that shares a thread with
//! thousands of others, for crowds. The same lock code runs on both, so both are written as futures; those of a
//! blocking connection are always ready.

use std::cell::Cell;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::rc::Rc;

use async_io::Async;
use futures_lite::future::block_on;
use futures_lite::AsyncWriteExt;

use crate::resp::{decode, encode, Pipeline, Reply};

enum Link {
    Blocking(TcpStream),
    Shared(Async<TcpStream>),
}

pub struct Client {
    link: Link,
    /// Bytes received; those before `read` are used up.
    inbox: Vec<u8>,
    read: usize,
    outbox: Vec<u8>,
    /// Counts the commands that are sent; clients may share one.
    pub sent: Rc<Cell<u64>>,
}

impl Client {
    /// A connection that blocks its thread.
    pub fn connect(port: u16) -> io::Result<Client> {
        let stream = TcpStream::connect(address(port))?;
        stream.set_nodelay(true)?;
        Ok(Self::over(Link::Blocking(stream)))
    }

    /// A connection that waits without its thread.
    pub async fn connect_shared(port: u16) -> io::Result<Client> {
        let stream = Async::<TcpStream>::connect(address(port)).await?;
        stream.get_ref().set_nodelay(true)?;
        Ok(Self::over(Link::Shared(stream)))
    }

    fn over(link: Link) -> Client {
        Client { link, inbox: Vec::new(), read: 0, outbox: Vec::new(), sent: Rc::default() }
    }

    /// One command and its reply, for connections that block.
    pub fn command(&mut self, args: &[&str]) -> io::Result<Reply> {
        block_on(self.call(args))
    }

    /// One command and its reply.
    pub async fn call(&mut self, args: &[&str]) -> io::Result<Reply> {
        self.send(args).await?;
        self.receive().await
    }

    /// One command, whose reply is still to be received.
    pub async fn send(&mut self, args: &[&str]) -> io::Result<()> {
        self.outbox.clear();
        encode(&mut self.outbox, args);
        self.sent.set(self.sent.get() + 1);
        match &mut self.link {
            Link::Blocking(stream) => stream.write_all(&self.outbox),
            Link::Shared(stream) => stream.write_all(&self.outbox).await,
        }
    }

    /// The next reply, or the next message of a subscription.
    pub async fn receive(&mut self) -> io::Result<Reply> {
        loop {
            if self.read < self.inbox.len() {
                if let Some((reply, length)) = decode(&self.inbox[self.read..]) {
                    self.read += length;
                    return Ok(reply);
                }
            }
            self.fill().await?;
        }
    }

    /// Sends all of `pipeline`, receives every reply, and hands each to `check`. For connections that block.
    pub fn pipeline(&mut self, pipeline: &Pipeline, mut check: impl FnMut(usize, Reply)) -> io::Result<()> {
        self.sent.set(self.sent.get() + pipeline.commands as u64);
        let Link::Blocking(stream) = &mut self.link else {
            panic!("pipelines run on connections that block");
        };
        stream.write_all(&pipeline.bytes)?;
        for index in 0..pipeline.commands {
            check(index, block_on(self.receive())?);
        }
        Ok(())
    }

    async fn fill(&mut self) -> io::Result<()> {
        self.inbox.drain(..self.read);
        self.read = 0;
        let length = match &mut self.link {
            Link::Blocking(stream) => read_some(stream, &mut self.inbox)?,
            Link::Shared(stream) => stream.read_with(|stream| read_some(stream, &mut self.inbox)).await?,
        };
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }
}

/// A function of its own, so that the buffer is no part of ten thousand futures.
fn read_some(mut stream: &TcpStream, inbox: &mut Vec<u8>) -> io::Result<usize> {
    let mut chunk = [0; 16 * 1024];
    let length = stream.read(&mut chunk)?;
    inbox.extend_from_slice(&chunk[..length]);
    Ok(length)
}

fn address(port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)
}
