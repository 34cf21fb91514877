//! What is stable from 1.0.0 on (docs/stability.md), as it was then: names, defaults and shapes, told apart from the
//! pages and from the code. A line here may be added. One that changes or goes breaks programs, and needs a 2.0.0.

use crate::support::{Reply, Server};

/// Each command as LOCK.HELP prints it. A newer version may add options to a line.
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
";
const LEASE: &str = "[EX seconds|PX milliseconds|PERSIST]";
const WAIT: &str = "[BLOCK milliseconds [NOTIFY channel]] [SESSION]";

const SETTINGS: [(&str, &str); 12] = [
    ("lock.adopt", ""),
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

/// Commands in their order on one server, and below each the shape of its reply, or one in RESP2 and one in RESP3: `$`
/// for a bulk string, `:` for an integer, `+` for a status, `-` and the code of an error. A map has its keys in their
/// order; one at the end may be added.
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
  2 [[$ $ $ $ $ : $ : $ $ $ : $ :]]
  3 [
    {owner $, mode $, permits :, client :, addr $, waited :, remaining :}]
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
    let told: Vec<&str> = help.items().iter().map(Reply::text).collect();
    for line in COMMANDS.lines().filter(|line| !line.is_empty()) {
        let line = line.replace("<lease>", LEASE).replace("<wait>", WAIT);
        assert!(told.contains(&&*line), "{line}: {told:#?}");
    }
}

#[test]
fn settings_keep_their_names_and_defaults() {
    let server = Server::start();
    for (name, default) in SETTINGS {
        let told = server.client().cmd(&["CONFIG", "GET", name]);
        let told: Vec<&str> = told.items().iter().map(Reply::text).collect();
        assert_eq!(told, [name, default]);
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
