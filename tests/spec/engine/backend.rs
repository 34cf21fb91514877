//! What a transcript is played on.

use support::Reply;

/// The words of a command.
pub type Words = Vec<Vec<u8>>;

/// A server with connections, by their names.
pub trait Backend {
    /// What transcripts may name before anything was bound: ports and the ids of nodes.
    fn facts(&self) -> Vec<(String, Reply)> {
        Vec::new()
    }

    /// Opens a connection; its number among the server's clients.
    fn connect(&mut self, who: &str) -> Result<i64, String>;

    /// Sends commands in one piece.
    fn send(&mut self, who: &str, commands: &[Words]) -> Result<(), String>;

    /// The next reply, which comes without further ado.
    fn reply(&mut self, who: &str) -> Result<Reply, String>;

    /// The server has blocked it, and has told it nothing.
    fn waits(&mut self, who: &str) -> Result<(), String>;

    /// The client ends the connection.
    fn close(&mut self, who: &str) -> Result<(), String>;

    /// The server has ended it.
    fn is_closed(&mut self, who: &str) -> Result<(), String>;

    /// Nothing was told that was not taken.
    fn is_silent(&mut self, who: &str) -> Result<(), String>;

    fn pass(&mut self, ms: u64) -> Result<(), String>;

    fn restart(&mut self) -> Result<(), String>;

    fn follow(&mut self) -> Result<(), String>;
}
