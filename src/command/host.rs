//! The environment of a command, beside the environment of the rules ([`lock::host`]): the caller, the settings, keys
//! to read, a turn of the rules.
//!
//! The server is one host, the simulated server of the tests another. A command never knows which.

use std::ffi::CStr;

use lock::host::{Host, Keys, Park};
use lock::key::{ClientId, KeyRef, RequestId};
use lock::manager::lock_manager::LockManager;
use lock::value::claim::{Claim, Family, LockRequest, Portion};
use lock::value::fence::Fence;
use lock::value::lock::Lock;
use lock::value::outcome::{Grant, KeyError, Released};
use lock::value::owner::OwnerRef;
use lock::value::rebuild::Received;
use lock::value::time::{Deadline, Now, WaitLimit};

use crate::adopted::seen::Seen;
use crate::adopted::PatternRow;
use crate::errors::ErrorReply;
use crate::lock_log::LockLog;
use crate::name::Prefix;
use crate::parse::{Argument, LeaseSettings, ScanCommand};
use crate::reply::ReplyWriter;

/// A running command: replies written to it go to its caller. Copies are the same command.
pub trait CommandHost<'a>: Copy + ReplyWriter {
    /// An argument, as the host has it.
    type Argument: Argument<'a>;
    /// A key that is open.
    type Opened;
    /// The keyspace of a turn.
    type Keys<'t>: Keys;
    /// The clients of a turn.
    type Clients<'t>: Park;
    /// The clients that wait.
    type Waiting: Waiting;

    /// The database that the caller has selected.
    fn db(self) -> i32;

    /// The caller's connection. `None`: the caller is a script, or a call by another module.
    fn connection(self) -> Option<ClientId>;

    /// Whether the caller may publish on this channel. Only for a connection.
    fn may_publish(self, channel: Self::Argument) -> bool;

    /// Which keys the caller may read; `command` is the one that runs.
    fn readable(self, command: &CStr) -> impl Fn(&[u8]) -> bool;

    /// The settings that a request is parsed under.
    fn leases(self) -> LeaseSettings;

    /// A random UUID, version 4.
    fn new_token(self) -> [u8; 36];

    /// Checks several keys of one command: in a cluster they share a slot, which this node has.
    ///
    /// # Errors
    /// They do not share one, or this node does not have it.
    fn check_slots(self, keys: &[Self::Argument]) -> Result<(), ErrorReply>;

    /// Whether keys and channels have slots, and these two have different ones.
    fn has_other_slot(self, key: Self::Argument, channel: Self::Argument) -> bool;

    /// Whether the command runs in a transaction that has paused writes itself.
    fn are_writes_paused(self) -> bool;

    /// Whether the server is the primary.
    fn is_primary(self) -> bool;

    /// Whether the command comes from the primary or the append-only file.
    fn is_replicated(self) -> bool;

    /// The time of a decision.
    fn now(self) -> Now;

    /// The fast path of a request for one key, as [`LockManager::acquire_uncontended`].
    ///
    /// # Errors
    /// Nothing was changed. The key, if it is open: a turn is to go on with it, or it is closed.
    fn acquire_uncontended(
        self,
        key: Self::Argument,
        request: &LockRequest<'_>,
        session: Option<ClientId>,
    ) -> Result<Result<Grant, KeyError>, Option<Self::Opened>>;

    /// The fast path of a release of one key, as [`LockManager::release_uncontended`]. `None`: nothing was changed.
    fn release_uncontended(
        self,
        key: Self::Argument,
        owner: &[u8],
        portion: &Portion,
    ) -> Option<Result<Released, KeyError>>;

    /// A turn of the rules for a command with these keys. `waiter`: how its caller waits, if it may.
    ///
    /// # Errors
    /// The server is a replica; or the rules are in use: a command inside a callback inside a command.
    fn decide<R>(
        self,
        keys: KeyArguments<'_, Self::Argument>,
        waiter: Option<NewWaiter<'_, Self::Argument>>,
        decide: impl FnOnce(&mut LockManager, &mut Host<'_, Self::Keys<'_>, Self::Clients<'_>>) -> R,
    ) -> Result<R, ErrorReply> {
        self.decide_on(None, keys, waiter, decide)
    }

    /// The same for a request whose key may be open already.
    ///
    /// # Errors
    /// As [`CommandHost::decide`].
    fn decide_on<R>(
        self,
        opened: Option<Self::Opened>,
        keys: KeyArguments<'_, Self::Argument>,
        waiter: Option<NewWaiter<'_, Self::Argument>>,
        decide: impl FnOnce(&mut LockManager, &mut Host<'_, Self::Keys<'_>, Self::Clients<'_>>) -> R,
    ) -> Result<R, ErrorReply>;

    /// A turn that changes no key.
    fn note(self, note: impl FnOnce(&mut LockManager));

    /// A turn that changes nothing.
    ///
    /// # Errors
    /// The rules are in use.
    fn inspect<R>(self, inspect: impl FnOnce(&LockManager, &Self::Waiting, &Now) -> R) -> Result<R, ErrorReply>;

    /// A turn of the log, after all that has happened until now.
    ///
    /// # Errors
    /// As [`CommandHost::inspect`].
    fn with_log<R>(self, work: impl FnOnce(&mut LockLog) -> R) -> Result<R, ErrorReply>;

    /// False if the rules know of no waiter and no session: then the key has everything to know.
    fn has_waiters_or_sessions(self) -> bool;

    /// Whether this connection ends with the turn, before the event of its end.
    fn is_closing(self, client: ClientId) -> bool;

    /// Reads a key of the command. `None`: it is free, or has expired.
    ///
    /// # Errors
    /// WRONGTYPE.
    fn read<R>(self, key: Self::Argument, look: impl FnOnce(Option<ReadLock<'_>>) -> R) -> Result<R, ErrorReply>;

    /// Reads any key, as [`CommandHost::read`].
    ///
    /// # Errors
    /// WRONGTYPE.
    fn read_key<R>(self, key: KeyRef<'_>, look: impl FnOnce(Option<ReadLock<'_>>) -> R) -> Result<R, ErrorReply>;

    /// The next keys that hold a lock, as SCAN finds them.
    ///
    /// # Errors
    /// The server does not run SCAN.
    fn scan(self, command: &ScanCommand<'_>) -> Result<Scanned, ErrorReply>;

    /// Applies an effect, and passes the command on to the server's own replicas and append-only file.
    fn receive(self, key: Self::Argument, effect: Received<'_>);

    /// Whether `lock.adopt` lets a lock of this family be granted on the key.
    fn adopts(self, key: &[u8], family: Family) -> bool;

    /// Whether the key is among the patterns of `lock.adopt`: native holds there are protected.
    fn protects(self, key: &[u8]) -> bool;

    /// Whether the command runs in a script, a function or a transaction.
    fn is_in_script_or_transaction(self) -> bool;

    /// Counts what a command on a key of `lock.adopt` has come to, which is or would be a lock of this family.
    fn count_seen(self, key: &[u8], family: Family, count: impl FnOnce(&mut Seen));

    /// The patterns of `lock.adopt` and of `lock.adopt-observe`.
    fn pattern_rows(self) -> Vec<PatternRow>;

    /// The first keys of the database, and the types of those that are wanted.
    ///
    /// # Errors
    /// The server does not run SCAN.
    fn keys_and_types(self, most: usize, is_wanted: impl Fn(&[u8]) -> bool) -> Result<Vec<VisitedKey>, ErrorReply>;

    /// The users that may run one of these commands, and not the same in its container.
    fn refused_users(self, commands: &[Vec<&[u8]>], containers: &[Vec<&[u8]>]) -> Vec<String>;

    /// `lock.adopt-wait`: how long a SET … NX of a held lock waits. `None`: it does not.
    fn adopt_wait(self) -> Option<WaitLimit>;

    /// Notes that this connection was granted the mutex under this key, if a SET may wait for it.
    fn note_granted_here(self, key: &[u8], fence: Fence);

    /// Notes that the caller was granted an adopted lock with this fence.
    fn note_adopted(self, fence: Fence);

    /// The connection that was granted an adopted lock with this fence. `None`: it is not known, as after a restart, or
    /// a script was.
    fn granted_to(self, fence: Fence) -> Option<GrantedTo>;

    /// Whether this connection, or a script, which may be its own, was granted the mutex with this fence: it must not
    /// wait for itself.
    fn is_granted_here(self, fence: Fence) -> bool;

    /// Whether the server refuses commands that need more memory.
    fn is_out_of_memory(self) -> bool;

    /// Whether the command comes from the primary, the append-only file or another node of a cluster. Cheaper than
    /// [`CommandHost::is_replicated`], and exact where a client's command is translated.
    fn is_from_log(self) -> bool;

    /// Whether this server is a replica.
    fn is_replica(self) -> bool;

    /// Checks that the caller may run this command of the server, with its keys.
    ///
    /// # Errors
    /// It may not, or the server has no such command.
    fn check_permission(self, args: &[Self::Argument]) -> Result<(), ErrorReply>;

    /// Runs a command of the server that is not translated. Its reply is the reply; only a WRONGTYPE is left to the
    /// caller.
    ///
    /// # Errors
    /// It did not run, or its reply cannot be passed on.
    fn run_original(self, args: &[Self::Argument]) -> Result<Ran, ErrorReply>;

    /// Runs a command of the server that is not translated, and leaves its reply out.
    ///
    /// # Errors
    /// It did not run, or its reply is an error.
    fn call(self, words: &[&[u8]]) -> Result<(), ErrorReply>;

    /// The strings that MGET, which is not translated, answers for these arguments.
    ///
    /// # Errors
    /// The server refuses it.
    fn strings_under(self, args: &[Self::Argument]) -> Result<Vec<Option<Vec<u8>>>, ErrorReply>;

    /// LOCK.EXEC: runs the command behind the lock's key and token, if the token holds the lock.
    ///
    /// # Errors
    /// NOTHELD, or another error because of which the command did not run.
    fn exec(self, args: &'a [Self::Argument]) -> Result<(), ErrorReply>;
}

/// What became of a command of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ran {
    /// It was answered.
    Answered,
    /// A key holds a value of another type: nothing was answered.
    WrongType,
}

/// A connection as an operator looks for it. It may have gone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GrantedTo {
    /// Its address, `ip:port`.
    pub addr: String,
    /// Its name, by CLIENT SETNAME.
    pub name: Vec<u8>,
}

/// A key that was visited.
#[derive(Clone, Debug)]
pub struct VisitedKey {
    /// Its name.
    pub name: Vec<u8>,
    /// Its type, if it was asked for.
    pub kind: Option<String>,
}

/// The clients that wait.
pub trait Waiting {
    /// The connection that waits by this request, with its address (empty where it is not known).
    fn client_of(&self, request: RequestId) -> Option<(ClientId, String)>;
}

/// A lock that was read.
#[derive(Clone, Copy, Debug)]
pub struct ReadLock<'k> {
    /// The lock.
    pub lock: &'k Lock,
    /// The key's own deadline.
    pub until: Deadline,
}

/// The keys of a command, and their bytes in the same order.
#[derive(Clone, Copy, Debug)]
pub struct KeyArguments<'k, A> {
    /// As the host has them.
    pub arguments: &'k [A],
    /// Their bytes.
    pub names: &'k [&'k [u8]],
}

/// A command with a request that may be queued.
#[derive(Clone, Copy, Debug)]
pub struct NewWaiter<'k, A> {
    /// The owner of the request.
    pub owner: OwnerRef<'k>,
    /// Its command.
    pub prefix: Prefix,
    /// What it claims.
    pub claim: Claim,
    /// The first of its keys.
    pub key: &'k [u8],
    /// Where the outcome is published; `None`: the client blocks.
    pub channel: Option<A>,
}

/// What SCAN found.
#[derive(Clone, Debug)]
pub struct Scanned {
    /// Where to go on; `0`: all was visited.
    pub cursor: Vec<u8>,
    /// Names of keys, some perhaps more than once.
    pub keys: Vec<Vec<u8>>,
}
