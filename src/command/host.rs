//! What a command needs from its environment in addition to what the engine needs ([`lock::host`]): the caller, the
//! settings, readable keys, and access to the engine.
//!
//! The server is one host, the simulated server of the tests is another. A command cannot tell which.

use std::ffi::CStr;

use lock::engine::lock_manager::LockManager;
use lock::host::{Host, Keys, Park};
use lock::key::{ClientId, KeyRef, RequestId};
use lock::value::claim::{Claim, LockRequest, LockType, ReleaseAmount};
use lock::value::fence::Fence;
use lock::value::lock::Lock;
use lock::value::outcome::{Grant, KeyError, Released};
use lock::value::owner::OwnerRef;
use lock::value::rebuild::ReplicatedEffect;
use lock::value::time::{Deadline, Now, WaitLimit};

use crate::adopted::seen::Seen;
use crate::adopted::PatternRow;
use crate::errors::ErrorReply;
use crate::lock_log::LockLog;
use crate::name::Prefix;
use crate::parse::{Argument, LeaseSettings, ScanCommand};
use crate::reply::ReplyWriter;

/// A running command; replies written to it go to its caller. Copies refer to the same command.
pub trait CommandHost<'a>: Copy + ReplyWriter {
    /// An argument, as the host has it.
    type Argument: Argument<'a>;
    /// An open key.
    type Opened;
    /// The keyspace, as the engine uses it.
    type Keys<'t>: Keys;
    /// The clients, as the engine uses them.
    type Clients<'t>: Park;
    /// The waiting clients.
    type Waiting: Waiting;

    /// The database that the caller has selected.
    fn db(self) -> i32;

    /// The caller's connection. `None` if the caller is a script or another module.
    fn connection(self) -> Option<ClientId>;

    /// Whether the caller may publish on this channel. Call it only if there is a connection.
    fn may_publish(self, channel: Self::Argument) -> bool;

    /// Which keys the caller may read; `command` is the running command.
    fn readable(self, command: &CStr) -> impl Fn(&[u8]) -> bool;

    /// The settings that affect how a lease is parsed.
    fn leases(self) -> LeaseSettings;

    /// A random UUID, version 4.
    fn new_token(self) -> [u8; 36];

    /// Checks the keys of one command: in a cluster they must share a slot that this node serves.
    ///
    /// # Errors
    /// They do not share a slot, or this node does not serve it.
    fn check_slots(self, keys: &[Self::Argument]) -> Result<(), ErrorReply>;

    /// Whether the server is in a cluster, and the key and the channel are in different slots.
    fn has_other_slot(self, key: Self::Argument, channel: Self::Argument) -> bool;

    /// Whether the command runs in a transaction that itself paused writes.
    fn are_writes_paused(self) -> bool;

    /// Whether the server is the primary.
    fn is_primary(self) -> bool;

    /// Whether the command comes from the primary or the append-only file.
    fn is_replicated(self) -> bool;

    /// The time on which decisions are based.
    fn now(self) -> Now;

    /// The fast path of a request for one key; see [`LockManager::acquire_uncontended`].
    ///
    /// # Errors
    /// Nothing was changed. Returns the key if it is open: pass it on to the engine, or it is closed.
    fn acquire_uncontended(
        self,
        key: Self::Argument,
        request: &LockRequest<'_>,
        session: Option<ClientId>,
    ) -> Result<Result<Grant, KeyError>, Option<Self::Opened>>;

    /// The fast path of a release of one key; see [`LockManager::release_uncontended`]. `None`: nothing was changed.
    fn release_uncontended(
        self,
        key: Self::Argument,
        owner: &[u8],
        amount: &ReleaseAmount,
    ) -> Option<Result<Released, KeyError>>;

    /// Runs the engine for a command with these keys. `waiter`: how the caller waits, if it may.
    ///
    /// # Errors
    /// The server is a replica, or the engine is in use: a command inside a callback inside a command.
    fn decide<R>(
        self,
        keys: KeyArguments<'_, Self::Argument>,
        waiter: Option<NewWaiter<'_, Self::Argument>>,
        decide: impl FnOnce(&mut LockManager, &mut Host<'_, Self::Keys<'_>, Self::Clients<'_>>) -> R,
    ) -> Result<R, ErrorReply> {
        self.decide_on(None, keys, waiter, decide)
    }

    /// As [`CommandHost::decide`], for a request whose key may already be open.
    ///
    /// # Errors
    /// See [`CommandHost::decide`].
    fn decide_on<R>(
        self,
        opened: Option<Self::Opened>,
        keys: KeyArguments<'_, Self::Argument>,
        waiter: Option<NewWaiter<'_, Self::Argument>>,
        decide: impl FnOnce(&mut LockManager, &mut Host<'_, Self::Keys<'_>, Self::Clients<'_>>) -> R,
    ) -> Result<R, ErrorReply>;

    /// Updates the engine's state without changing a key.
    fn update(self, update: impl FnOnce(&mut LockManager));

    /// Reads the engine's state.
    ///
    /// # Errors
    /// The engine is in use.
    fn inspect<R>(self, inspect: impl FnOnce(&LockManager, &Self::Waiting, &Now) -> R) -> Result<R, ErrorReply>;

    /// Accesses the log after all pending events have been recorded in it.
    ///
    /// # Errors
    /// See [`CommandHost::inspect`].
    fn with_log<R>(self, work: impl FnOnce(&mut LockLog) -> R) -> Result<R, ErrorReply>;

    /// Whether a request waits or a session exists. If not, the key alone shows who holds it.
    fn has_waiters_or_sessions(self) -> bool;

    /// Whether the server will close this connection in this event-loop iteration but has sent no disconnect event yet.
    fn is_closing(self, client: ClientId) -> bool;

    /// Reads a key of the command; `None` if it is free or has expired.
    ///
    /// # Errors
    /// WRONGTYPE.
    fn read<R>(self, key: Self::Argument, inspect: impl FnOnce(Option<ReadLock<'_>>) -> R) -> Result<R, ErrorReply>;

    /// Reads any key; see [`CommandHost::read`].
    ///
    /// # Errors
    /// WRONGTYPE.
    fn read_key<R>(self, key: KeyRef<'_>, inspect: impl FnOnce(Option<ReadLock<'_>>) -> R) -> Result<R, ErrorReply>;

    /// The next keys that hold a lock, as returned by SCAN.
    ///
    /// # Errors
    /// The server does not run SCAN.
    fn scan(self, command: &ScanCommand<'_>) -> Result<Scanned, ErrorReply>;

    /// Applies an effect, and replicates the command to this server's replicas and append-only file.
    fn apply_effect(self, key: Self::Argument, effect: ReplicatedEffect<'_>);

    /// Whether `lock.adopt` allows granting a lock of this type on the key.
    fn adopts(self, key: &[u8], lock_type: LockType) -> bool;

    /// Whether a pattern of `lock.adopt` matches the key: native holds there are protected.
    fn protects(self, key: &[u8]) -> bool;

    /// Whether the command runs in a script, a function or a transaction.
    fn is_in_script_or_transaction(self) -> bool;

    /// Counts the outcome of a command on a key of `lock.adopt`, which holds or would hold a lock of this type.
    fn count_observed(self, key: &[u8], lock_type: LockType, count: impl FnOnce(&mut Seen));

    /// The patterns of `lock.adopt` and of `lock.adopt-observe`.
    fn pattern_rows(self) -> Vec<PatternRow>;

    /// At most `most` keys of the database, with the data types of those that are wanted.
    ///
    /// # Errors
    /// The server does not run SCAN.
    fn keys_and_types(self, most: usize, is_wanted: impl Fn(&[u8]) -> bool) -> Result<Vec<VisitedKey>, ErrorReply>;

    /// The users that may run one of `commands` but not the same command in its container.
    fn refused_users(self, commands: &[Vec<&[u8]>], containers: &[Vec<&[u8]>]) -> Vec<String>;

    /// `lock.adopt-wait`: how long a SET … NX waits for a held lock. `None`: it does not wait.
    fn adopt_wait(self) -> Option<WaitLimit>;

    /// Records that the caller's connection was granted the mutex under this key, if a SET may wait for it.
    fn record_grant_to_connection(self, key: &[u8], fence: Fence);

    /// Records that the caller was granted an adopted lock with this fencing token.
    fn record_adopted(self, fence: Fence);

    /// The connection that was granted an adopted lock with this fencing token. `None`: unknown, as after a restart, or
    /// granted to a script.
    fn granted_to(self, fence: Fence) -> Option<GrantedTo>;

    /// Whether the caller's connection may hold the mutex with this fencing token, so that it would wait for itself:
    /// the mutex was granted to this connection, or to a script that it may have sent.
    fn may_be_held_by_connection(self, fence: Fence) -> bool;

    /// Whether the server rejects commands that need more memory.
    fn is_out_of_memory(self) -> bool;

    /// Whether the command is replayed from the primary, the append-only file or another cluster node. Cheaper than
    /// [`CommandHost::is_replicated`], and exact for translated commands.
    fn is_replayed(self) -> bool;

    /// Whether this server is a replica.
    fn is_replica(self) -> bool;

    /// Checks that the caller may run this command of the server, with its keys.
    ///
    /// # Errors
    /// The caller may not, or the server has no such command.
    fn check_permission(self, args: &[Self::Argument]) -> Result<(), ErrorReply>;

    /// Runs a server command without translating it. Its reply becomes the reply, except for WRONGTYPE, which is left
    /// to the caller.
    ///
    /// # Errors
    /// It did not run, or its reply cannot be forwarded.
    fn run_original(self, args: &[Self::Argument]) -> Result<OriginalOutcome, ErrorReply>;

    /// Runs a server command without translating it, and discards the reply.
    ///
    /// # Errors
    /// It did not run, or its reply is an error.
    fn call(self, words: &[&[u8]]) -> Result<(), ErrorReply>;

    /// The strings that MGET, run without translation, returns for these arguments.
    ///
    /// # Errors
    /// The server rejects it.
    fn original_mget(self, args: &[Self::Argument]) -> Result<Vec<Option<Vec<u8>>>, ErrorReply>;

    /// LOCK.EXEC: runs the command given after the lock's key and token, if the token holds the lock.
    ///
    /// # Errors
    /// NOTHELD, or the error that prevented the command from running.
    fn exec(self, args: &'a [Self::Argument]) -> Result<(), ErrorReply>;
}

/// The outcome of a server command that was run without translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OriginalOutcome {
    /// It replied.
    Replied,
    /// A key holds a value of another data type, and nothing was replied.
    WrongType,
}

/// How an operator identifies a connection, which may have closed since.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GrantedTo {
    /// Its address, `ip:port`.
    pub addr: String,
    /// Its name, set by CLIENT SETNAME.
    pub name: Vec<u8>,
}

/// A visited key.
#[derive(Clone, Debug)]
pub struct VisitedKey {
    /// Its name.
    pub name: Vec<u8>,
    /// Its data type, if wanted.
    pub kind: Option<String>,
}

/// The waiting clients.
pub trait Waiting {
    /// The connection that waits for this request, with its address (empty if unknown).
    fn client_of(&self, request: RequestId) -> Option<(ClientId, String)>;
}

/// A lock as read from its key.
#[derive(Clone, Copy, Debug)]
pub struct ReadLock<'k> {
    /// The lock.
    pub lock: &'k Lock,
    /// The key's own deadline.
    pub until: Deadline,
}

/// The keys of a command, with their bytes in the same order.
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
    /// The command's prefix.
    pub prefix: Prefix,
    /// What it requests.
    pub claim: Claim,
    /// The first of its keys.
    pub key: &'k [u8],
    /// Where the outcome is published; `None`: the client blocks.
    pub channel: Option<A>,
}

/// What SCAN found.
#[derive(Clone, Debug)]
pub struct Scanned {
    /// Where to continue; `0` when the iteration is complete.
    pub cursor: Vec<u8>,
    /// Names of keys; a name may occur more than once.
    pub keys: Vec<Vec<u8>>,
}
