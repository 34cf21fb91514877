//! What a transcript is played on.

use support::Reply;

pub type Words = Vec<Vec<u8>>;

/// A server with named connections.
pub trait Backend {
    /// Names that are bound before the transcript starts: ports and node ids.
    fn facts(&self) -> Vec<(String, Reply)> {
        Vec::new()
    }

    /// Opens a connection, and returns its client id on the server.
    fn connect(&mut self, connection_name: &str) -> Result<i64, String>;

    /// Sends commands in one piece.
    fn send(&mut self, connection_name: &str, commands: &[Words]) -> Result<(), String>;

    /// The next reply, which must already be on its way.
    fn reply(&mut self, connection_name: &str) -> Result<Reply, String>;

    /// Checks that the server has blocked the connection and sent nothing.
    fn waits(&mut self, connection_name: &str) -> Result<(), String>;

    /// The client closes the connection.
    fn close(&mut self, connection_name: &str) -> Result<(), String>;

    /// Checks that the server has closed it.
    fn is_closed(&mut self, connection_name: &str) -> Result<(), String>;

    /// Checks that nothing was sent that the transcript has not read.
    fn is_silent(&mut self, connection_name: &str) -> Result<(), String>;

    fn advance(&mut self, ms: u64) -> Result<(), String>;

    fn restart(&mut self) -> Result<(), String>;

    fn follow(&mut self) -> Result<(), String>;
}
