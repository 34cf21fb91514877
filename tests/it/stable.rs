//! The stable interface since 1.0.0 (docs/stability.md): the names, defaults and reply shapes of 1.0.0, written out
//! here rather than read from the pages or the code. Lines may be added. Changing or removing one breaks programs, and
//! requires a 2.0.0.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::support::{Reply, Server};

/// Each command as shown by LOCK.HELP. A newer version may add options to its line.
const COMMANDS: &str = "
LOCK.ACQUIRE key token|* <lease> [BLOCK milliseconds [COALESCE] [NOTIFY channel]] [SESSION]
LOCK.RELEASE key token [FAILED]
LOCK.RENEW key token <lease>
RLOCK.ACQUIRE key owner|* [HOLDS holds] <lease> <wait>
RLOCK.RELEASE key owner [HOLDS holds]
RLOCK.RENEW key owner <lease>
RWLOCK.ACQUIRE key owner|* READ|WRITE [HOLDS holds] <lease> <wait>
RWLOCK.RELEASE key owner READ|WRITE [HOLDS holds]
RWLOCK.RENEW key owner <lease>
SEM.ACQUIRE key owner|* LIMIT limit [PERMITS permits|HOLDS holds|SLOT] <lease> <wait>
SEM.RELEASE key owner [PERMITS permits|HOLDS holds]
SEM.RENEW key owner <lease>
MLOCK.ACQUIRE numkeys key [key ...] token|* <lease> <wait>
MLOCK.RELEASE numkeys key [key ...] token
MLOCK.RENEW numkeys key [key ...] token <lease>
LOCK.HELD key token
LOCK.EXEC key token command [arg [arg ...]]
LOCK.INFO key [COUNT count]
LOCK.WAITERS key [COUNT count]
LOCK.SCAN cursor [MATCH pattern] [COUNT count]
LOCK.TOP [COUNT count]
LOCK.BREAK key [OWNER owner]
LOCK.CANCEL key token
LOCK.HELP [command]
LOCK.LOG GET [count]|LEN|RESET
LOCK.ADOPTED command key [arg [arg ...]]
LOCK.ADOPTED_RO command key [arg [arg ...]]
LOCK.ADOPTION REPORT|RETURN key
";
const LEASE: &str = "[EX seconds|PX milliseconds|PERSIST]";
const WAIT: &str = "[BLOCK milliseconds [NOTIFY channel]] [SESSION]";

const SETTINGS: [(&str, &str); 13] = [
    ("lock.adopt", ""),
    ("lock.adopt-observe", ""),
    ("lock.adopt-wait", "0"),
    ("lock.default-lease", "30000"),
    ("lock.grace", "0"),
    ("lock.keep-place", "1000"),
    ("lock.keyspace-events", "no"),
    ("lock.log-hold", "0"),
    ("lock.log-max-len", "128"),
    ("lock.log-wait", "0"),
    ("lock.max-lease", "31536000000"),
    ("lock.max-waiters", "10000"),
    ("lock.max-waiters-per-key", "0"),
];

/// Commands run in this order on one server, each followed by the shape of its reply, or by one for RESP2 and one for
/// RESP3: `$` for a bulk string, `:` for an integer, `+` for a status, `-` and the code of an error. The keys of a map
/// are in order; keys may be added at the end.
const REPLIES: &str = "
LOCK.ACQUIRE k a PX 30000
  [$ :]
LOCK.ACQUIRE k b
  nil
LOCK.ACQUIRE k b BLOCK 90000 NOTIFY c
  [$ :]
LOCK.HELD k a
  [: : :]
LOCK.HELD k b
  nil
LOCK.RENEW k a
  :
LOCK.INFO k
  2 [$ $ $ : $ : $ : $ [[$ $ $ $ $ : $ : $ : $ : $ : $ :]] $ : $ :]
  3 {kind $, limit :, fence :, ttl :, holders [
    {owner $, mode $, holds :, fence :, ttl :, lease :, age :, session :}], waiters :, holding :}
LOCK.INFO free
  nil
LOCK.WAITERS k
  2 [[$ $ $ $ $ : $ : $ $ $ : $ : $ :]]
  3 [
    {owner $, mode $, permits :, client :, addr $, waited :, remaining :, coalesce :}]
LOCK.TOP
  2 [[$ : $ $ $ $ $ : $ : $ $ $ :]]
  3 [
    {db :, key $, kind $, waiters :, longest :, holder $, held :}]
LOCK.SCAN 0
  2 [$ [[$ $ $ $ $ $ $ : $ : $ :]]]
  3 [$ [
    {key $, kind $, owner $, holders :, ttl :, waiters :}]]
LOCK.CANCEL k b
  :
LOCK.EXEC k b INCR number
  -NOTHELD
LOCK.EXEC k a INCR number
  :
LOCK.BREAK k
  :
LOCK.LOG GET
  2 [[$ : $ : $ $ $ $ $ : $ $ $ : $ : $ : $ $]]
  3 [
    {id :, time :, event $, key $, db :, owner $, ms :, waiters :, client :, addr $}]
LOCK.LOG LEN
  :
LOCK.LOG RESET
  +
LOCK.ADOPTION RETURN k
  :
LOCK.RELEASE k a
  :
RLOCK.ACQUIRE r a
  [$ : :]
RLOCK.ACQUIRE r b
  nil
RLOCK.ACQUIRE r b BLOCK 90000 NOTIFY c
  [$ : :]
RLOCK.RENEW r a
  :
LOCK.HELD r a
  [: : :]
RLOCK.RELEASE r a
  :
RWLOCK.ACQUIRE w wa READ
  [$ : :]
RWLOCK.ACQUIRE w wb READ
  [$ : :]
RWLOCK.ACQUIRE w wc WRITE
  nil
RWLOCK.ACQUIRE w wa WRITE BLOCK 90000 NOTIFY c
  [$ : :]
RWLOCK.ACQUIRE w wb WRITE BLOCK 90000
  -DEADLOCK
RWLOCK.RENEW w wa
  :
RWLOCK.RELEASE w wa READ
  :
SEM.ACQUIRE s sa LIMIT 2 PERMITS 2
  [$ : :]
SEM.ACQUIRE s sb LIMIT 2
  nil
SEM.ACQUIRE s sb LIMIT 2 BLOCK 90000 NOTIFY c
  [$ : :]
SEM.RENEW s sa
  :
SEM.RELEASE s sa PERMITS 1
  :
SEM.ACQUIRE t ta LIMIT 1 SLOT
  [$ : : :]
SEM.ACQUIRE t tb LIMIT 1 SLOT BLOCK 90000 NOTIFY c
  [$ : : :]
LOCK.INFO t
  2 [$ $ $ : $ : $ : $ [[$ $ $ $ $ : $ : $ : $ : $ : $ : $ :]] $ : $ :]
  3 {kind $, limit :, fence :, ttl :, holders [
    {owner $, mode $, holds :, fence :, ttl :, lease :, age :, session :, slot :}], waiters :, holding :}
MLOCK.ACQUIRE 2 m n ma
  [$ :]
MLOCK.ACQUIRE 2 m o mb
  nil
MLOCK.ACQUIRE 2 m o mb BLOCK 90000 NOTIFY c
  [$ :]
MLOCK.RENEW 2 m n ma
  :
MLOCK.RELEASE 2 m n ma
  :
LOCK.ACQUIRE t a
  -WRONGKIND
SET string 1
  +
LOCK.ACQUIRE string a
  -WRONGTYPE
CONFIG SET lock.max-waiters 1
  +
LOCK.ACQUIRE k c PX 30000
  [$ :]
LOCK.ACQUIRE k d BLOCK 90000 NOTIFY c
  -MAXWAITERS
LOCK.ACQUIRE k a BLOK
  -ERR
TYPE t
  +
";

#[test]
fn commands_keep_their_names_and_arguments() {
    let help = Server::start().client().run("LOCK.HELP");
    let listed: Vec<&str> = help.items().iter().map(Reply::text).collect();
    for line in COMMANDS.lines().filter(|line| !line.is_empty()) {
        let line = line.replace("<lease>", LEASE).replace("<wait>", WAIT);
        assert!(listed.contains(&&*line), "{line}: {listed:#?}");
    }
}

#[test]
fn settings_keep_their_names_and_defaults() {
    let server = Server::start();
    for (name, default) in SETTINGS {
        let listed = server.client().cmd(&["CONFIG", "GET", name]);
        let listed: Vec<&str> = listed.items().iter().map(Reply::text).collect();
        assert_eq!(listed, [name, default]);
    }
}

#[test]
fn replies_keep_their_shape() {
    let (resp2, resp3) = (Server::start(), Server::start());
    let (mut resp2, mut resp3) = (resp2.client(), resp3.client3());
    let commands = REPLIES.lines().filter(|line| !line.is_empty() && !line.starts_with(' '));
    let played = commands.fold(String::from("\n"), |text, line| {
        let shapes = [&mut resp2, &mut resp3].map(|client| shape(&client.run(line)));
        let [resp2, resp3] = &shapes;
        text + line + &if resp2 == resp3 { format!("\n  {resp2}\n") } else { format!("\n  2 {resp2}\n  3 {resp3}\n") }
    });
    assert!(played == REPLIES, "{played}");
}

fn shape(reply: &Reply) -> String {
    let all = |replies: &[Reply]| replies.iter().map(shape).collect::<Vec<_>>().join(" ");
    match reply {
        Reply::Null | Reply::NullArray => "nil".into(),
        Reply::NullBulk => "nil string".into(),
        Reply::Status(_) => "+".into(),
        Reply::Error(words) => format!("-{}", words.split(' ').next().unwrap_or_default()),
        Reply::Int(_) => ":".into(),
        Reply::Bulk(_) => "$".into(),
        Reply::Array(items) => {
            let is_of_maps = items.iter().any(|item| matches!(item, Reply::Map(_)));
            format!("[{}{}]", if is_of_maps { "\n    " } else { "" }, all(items))
        }
        Reply::Set(items) => format!("set [{}]", all(items)),
        Reply::Push(items) => format!("push [{}]", all(items)),
        Reply::Map(fields) => {
            let fields = fields.iter().map(|(name, value)| format!("{} {}", name.text(), shape(value)));
            format!("{{{}}}", fields.collect::<Vec<_>>().join(", "))
        }
        Reply::Double(_) => "double".into(),
        Reply::Bool(_) => "bool".into(),
    }
}

/// The public names of the clients: types, functions, methods, options. The Python client has each of its types and
/// functions for threads and for asyncio.
const CLIENTS: [(&str, &str); 5] = [
    (
        "clients/python/src/redislock",
        "DeadlockError Done Grant HeldError Holder Lock LockEvent LockInfo MaxWaitersError \
         ModuleNotLoadedError MultiLock NotMadeError NotReplicatedError NotRunError OpenTelemetry RLock RWLock Redis \
         Semaphore WaitCancelledError WrongKindError WrongTypeError acquire execute extend from_token held lock \
         lost make_token observe once owned read reacquire release remaining run single_flight wait_lost write \
         at_least auto_renew blocking blocking_timeout on_lost raise_on_release_error replicas session timeout \
         token",
    ),
    (
        "clients/node/src",
        "AcquireOptions CoalesceOptions DeadlockError Done Hold HolderInfo Lock LockError LockEvent LockInfo \
         LockKind LockLostError LockOptions MaxWaitersError ModuleNotLoadedError MultiLock MutexOptions \
         NotAcquiredError NotMadeError NotReplicatedError NotRunError Observer PermitOptions RLock RWLock \
         ReentrantOptions RedisClient ReleaseOptions RunOptions Semaphore SemaphoreOptions View WaitCancelledError \
         WrongKindError WrongTypeError acquire atLeast autoRenew coalesce exec extend failed fence fromToken info \
         lease locked lost makeToken mixed observe off on once openTelemetry owned permits read release remaining \
         replicaTimeout replicas run session signal slot tellHolder token tryAcquire using wait within",
    ),
    (
        "clients/rust/src",
        "Client Coalesced Error Event EventKind Family Guard Holder HolderMode Info Kind Lock OpenTelemetry Owner \
         acquire acquire_coalesced acquire_within as_owner_of at_least auto_renew cluster connect_timeout \
         connections exec extend fence from_token global holds info is_held is_lost keys lease lock lost make_token \
         mixed multi_lock mutex new no_renewal observer once permits read_lock reentrant release release_failed \
         remaining renew replicas reply_timeout run run_within semaphore semaphore_slot sentinel session settled \
         slot tell_holder token try_acquire try_run write_lock",
    ),
    (
        "clients/go",
        "AsOwnerOf Client Close Coalesced Context Detach Do DoneFence ErrCancelled ErrClosed ErrDeadlock \
         ErrLost ErrNoModule ErrNotAcquired ErrNotMade ErrNotReplicated ErrNotRun ErrTooManyWaiters ErrUnlocked \
         ErrUsage ErrWrongKind ErrWrongType Event EventGranted EventKind EventLost EventNotGranted EventQueued \
         EventReleased EventRenewed Exec Extend Fence FromContext FromToken Hold Holder Holders Info IsHeld \
         IsLost Keys Kind Lock LockCoalesced Mode Multi Mutex New NotAcquiredError Once Option RW Read \
         Reentrant Remaining Renew Semaphore Settled Slot Token TryExec TryLock Unlock UnlockFailed WithAtLeast \
         WithAutoRenew WithLease WithMixed WithObserver WithPermits WithReplicas WithSession WithSlot \
         WithTellHolder WithToken WithWait WithoutLease WithoutRenewal WithoutWaitLimit Write",
    ),
    (
        "clients/java/core/src/main/java/redislock",
        "DeadlockException Hold LockEvent LockException LockInfo LockLostException LockObserver \
         MaxWaitersException ModuleNotLoadedException MultiMutex Mutex NotAcquiredException NotMadeException \
         NotReplicatedException Outcome ReadWriteLocks RedisLock RedisLocks ReentrantMutex Semaphore ThreadLock \
         WaitCancelledException WrongKindException WrongTypeException acquire acquireAsync acquireOrDone all \
         asLock atLeast autoRenew close exec extend fence fromToken hold holder holds info isHeld isLocked isLost \
         lease lost mixed mutex name observedBy once over permits readWrite reentrant release releaseAsync \
         releaseFailed remaining replicas run semaphore session slot slots tellHolder token tryAcquire withPrefix \
         within withoutLease",
    ),
];

#[test]
fn clients_keep_their_public_names() {
    for (folder, names) in CLIENTS {
        let declared = declared_in(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder));
        for name in names.split_whitespace() {
            assert!(declared.contains(name), "{folder} declares no {name}");
        }
    }
}

/// The public names declared in the sources of a directory.
fn declared_in(folder: &Path) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = entry.expect("it can be read").path();
        let file = path.file_name().expect("it has a name").to_string_lossy().into_owned();
        if path.is_dir() && file == "asyncio" {
            names.extend(declared_in(&path));
        }
        let Some((_, language)) = file.rsplit_once('.').filter(|_| path.is_file() && !file.ends_with("_test.go"))
        else {
            continue;
        };
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        // Methods of an interface are public without the keyword.
        let is_interface = text.contains("\npublic interface ") || text.contains("\npublic sealed interface ");
        names.extend(text.lines().filter_map(|line| declared(line, language, is_interface)).map(str::to_string));
    }
    names
}

/// The public name that a line declares, in the language of this file extension.
fn declared<'a>(line: &'a str, language: &str, is_interface: bool) -> Option<&'a str> {
    match language {
        "py" => parameter(line).or_else(|| after(line.trim_start(), &["class ", "def ", "async def "])),
        "rs" => after(line.trim_start(), &["pub fn ", "pub async fn ", "pub const fn ", "pub struct ", "pub enum "]),
        "go" => {
            let method = line.strip_prefix("func (").and_then(|rest| rest.split_once(") "));
            let name = method.map_or_else(|| after(line, &["func ", "type ", "\t"]), |(_, rest)| Some(word(rest)));
            name.filter(|name| name.starts_with(char::is_uppercase))
        }
        "ts" => {
            let line = line.strip_prefix("export ").or_else(|| line.strip_prefix("  "))?;
            let line = line.strip_prefix("override ").unwrap_or(line);
            let kinds = ["class ", "interface ", "type ", "async function ", "function ", "async ", "get ", ""];
            after(line, &kinds)
        }
        "java" if line.trim_start().starts_with("public ") || is_interface && line.starts_with("  ") => {
            let kinds = [" class ", " interface ", " enum ", " record "];
            let kind = kinds.iter().find_map(|kind| line.split_once(kind));
            kind.map(|(_, rest)| word(rest)).or_else(|| line.split_once('(')?.0.rsplit(' ').next())
        }
        _ => None,
    }
}

/// The Python parameter that is alone on this line.
fn parameter(line: &str) -> Option<&str> {
    let name = word(line.trim_start());
    let (before, rest) = line.split_once(": ")?;
    (before.trim_start() == name && !name.is_empty() && rest.ends_with(',')).then_some(name)
}

/// The word after one of these beginnings of a line.
fn after<'a>(line: &'a str, beginnings: &[&str]) -> Option<&'a str> {
    let rest = beginnings.iter().find_map(|beginning| line.strip_prefix(beginning))?;
    Some(word(rest)).filter(|name| !name.is_empty())
}

fn word(text: &str) -> &str {
    let end = text.find(|char: char| !char.is_alphanumeric() && char != '_').unwrap_or(text.len());
    &text[..end]
}
