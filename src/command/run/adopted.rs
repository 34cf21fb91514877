//! `LOCK.ADOPTED command key …`: a translated command, on a native lock.
//!
//! Whatever does not concern a lock goes to the server unchanged: a key that holds a string, a value that cannot be a
//! token, a command from the primary or the append-only file.

use lock::engine::acquire::{AcquireRequest, Acquired, Wait};
use lock::engine::lock_manager::{LockError, LockManager};
use lock::engine::preempt::{ExclusiveHolder, Preempted, Preemption};
use lock::engine::release::WorkOutcome;
use lock::engine::step::Engine;
use lock::host::{Host, Keys, Park};
use lock::key::KeyRef;
use lock::value::claim::{Claim, InvalidClaim, LockRequest, LockType, Origin, ReleaseAmount};
use lock::value::fence::Fence;
use lock::value::outcome::{KeyError, Released};
use lock::value::owner::{Owner, OwnerRef};
use lock::value::time::{Lease, Timestamp, WaitLimit};

use super::inspect::{holder_of, CountedHolder};
use super::request::{refuse_while_paused, run_original};
use super::{adopted_hash, adoption};
use crate::adopted::seen::{self, Act};
use crate::adopted::Original;
use crate::catalog::Container;
use crate::errors::{self, ErrorReply};
use crate::host::{CommandHost, KeyArguments, NewWaiter, OriginalOutcome};
use crate::name::Prefix;
use crate::parse::{self, Argument, Condition, Expiry, SetCommand};
use crate::reply::ReplyWriter;

/// Runs the command after the container's name.
pub(super) fn run<'h, H: CommandHost<'h>>(
    container: Container,
    host: H,
    strings: &'h [H::Argument],
) -> Result<(), ErrorReply> {
    let args = &strings[1..];
    let named = Original::named(args[0].bytes()).map(Original::command);
    let Some(command) = named.filter(|command| command.container == container) else {
        return Err(errors::no_help(args[0].bytes()));
    };
    if !command.accepts(args.len()) {
        return Err(errors::wrong_arity(command.name));
    }
    if container == Container::Writes && host.is_replayed() {
        return run_original(host, args);
    }
    let permitted = host.check_permission(args);
    permitted.inspect_err(|_| {
        let lock_type = seen::lock_type_of(args[0].bytes(), Some(command.original)).unwrap_or(LockType::Mutex);
        host.count_observed(args[1].bytes(), lock_type, |seen| seen.act(Act::NoPermission));
    })?;
    // A replica that accepts writes from clients.
    if container == Container::Writes && host.is_replica() {
        return run_original(host, args);
    }
    match command.original {
        Original::Set | Original::SetNx | Original::SetEx | Original::PSetEx | Original::GetSet => {
            match SetCommand::parse(command.original, args) {
                Some(set) => run_set(host, args, command.original, set),
                None => run_original(host, args),
            }
        }
        Original::MSet => set_multiple(host, args, Original::MSet, Condition::Always),
        Original::MSetNx => set_multiple(host, args, Original::MSetNx, Condition::Free),
        Original::GetDel => get_and_release(host, args),
        // Without a condition DELEX acts like DEL.
        Original::DelEx if args.len() == 2 => delete(host, args),
        Original::DelIfEq | Original::DelEx => release(host, args),
        Original::Del | Original::Unlink => delete(host, args),
        Original::Get => get(host, args),
        Original::GetRange => get_range(host, args),
        Original::MGet => get_multiple(host, args),
        Original::HSet
        | Original::HSetNx
        | Original::HIncrBy
        | Original::HDel
        | Original::HExists
        | Original::HGet
        | Original::HLen
        | Original::HKeys
        | Original::HGetAll => adopted_hash::run(host, args, command.original),
    }
}

enum Set {
    /// The token now holds the mutex.
    Done {
        /// The token that held it before.
        former: Option<Owner>,
        /// The fencing tokens of new grants.
        fences: Vec<Fence>,
    },
    /// The client was queued.
    Queued,
    /// The condition is not met, because of this holder or because there is none.
    Refused(Option<Owner>),
    /// The key is free but cannot be granted now.
    NotNow,
    /// The key is held. This holder was granted it by `LOCK.*`, or the value cannot be a token. For multiple keys, no
    /// holder is named.
    Protected(Option<Owner>),
    /// The key holds a lock of another type.
    OtherLockType,
    /// The command does not concern a lock.
    Original,
    /// A former pattern: the key becomes an ordinary one again.
    Ordinary,
}

/// SET, SETNX, SETEX, PSETEX, GETSET.
fn run_set<'h, H: CommandHost<'h>>(
    mut host: H,
    args: &'h [H::Argument],
    original: Original,
    set: SetCommand<'h>,
) -> Result<(), ErrorReply> {
    // Let the server run it first if it knows IFEQ (not every server does): it replies WRONGTYPE if the key is a lock.
    if matches!(set.condition, Condition::HeldBy(_)) && host.run_original(args)? == OriginalOutcome::Replied {
        return Ok(());
    }
    refuse_while_paused(host)?;
    let (key, name) = (args[1], args[1].bytes());
    let is_nx = set.condition == Condition::Free;
    let wait = match set.expiry {
        Expiry::Lease(Lease::Ms(_)) | Expiry::At(_) if is_nx && !set.gets => host.adopt_wait(),
        _ => None,
    };
    // No request queues on a key of a former pattern. Otherwise a lock that always has waiters would stay native
    // indefinitely.
    let wait = wait.filter(|_| host.adopts(name, LockType::Mutex));
    if acquire_at_once(host, key, &set)? {
        reply_set(&mut host, original, true);
        return Ok(());
    }
    let db = host.db();
    let keys = KeyArguments { arguments: &args[1..2], names: &[name] };
    let waiter = wait.zip(set.token).map(|(_, owner)| NewWaiter {
        owner,
        prefix: Prefix::Lock,
        claim: Claim::AdoptedMutex,
        key: name,
        channel: None,
    });
    let question = Question {
        set: &set,
        is_former: !host.protects(name),
        renews: original == Original::Set,
        may_grant: || host.adopts(name, LockType::Mutex),
        may_wait_for: |fence| wait.filter(|_| !host.may_be_held_by_connection(fence)),
        wait,
    };
    let decided = host.decide(keys, waiter, |manager, rules| {
        let decided = decide_set(manager, rules, KeyRef { db, name }, question);
        count_refusal(manager, &decided);
        decided
    });
    let decided = decided??;
    if let Some(act) = act_of(&decided) {
        count_set(host, &set, act, name);
    }
    match decided {
        Set::Original => run_original(host, args),
        Set::Ordinary => {
            adoption::return_key(host, key)?;
            run_original(host, args)
        }
        decided => {
            let SetCommand { condition, gets, .. } = set;
            reply_decided(host, original, ReplyForm { condition, gets }, decided)
        }
    }
}

/// The act that the report counts for it.
fn act_of(decided: &Set) -> Option<Act> {
    match decided {
        Set::Done { former: None, .. } => Some(Act::Grant),
        Set::Done { fences, .. } if fences.is_empty() => Some(Act::Renew),
        Set::Done { .. } => Some(Act::TakeOver),
        Set::Queued => Some(Act::Wait),
        Set::Refused(_) | Set::NotNow | Set::OtherLockType => Some(Act::Refuse),
        Set::Protected(_) => Some(Act::Protect),
        Set::Original | Set::Ordinary => None,
    }
}

fn count_set<'h>(host: impl CommandHost<'h>, set: &SetCommand<'_>, act: Act, key: &[u8]) {
    let client = host.connection();
    host.count_observed(key, LockType::Mutex, |seen| {
        seen.act(act);
        seen.client(client.map(|client| client.0));
        seen.value(set.token.map_or(&[][..], |token| token.as_bytes()));
        if act == Act::Grant && set.expiry == Expiry::Lease(Lease::Persist) {
            seen.without_lease();
        }
    });
}

fn count_refusal(manager: &mut LockManager, decided: &Result<Set, ErrorReply>) {
    let is_refused = matches!(decided, Ok(Set::Refused(_) | Set::NotNow | Set::Protected(_)));
    manager.observer.statistics.adopted_refusals += u64::from(is_refused);
}

/// The fast path of most SETs: grants a free key that no request waits for. False: it was not granted.
fn acquire_at_once<'h, H: CommandHost<'h>>(
    host: H,
    key: H::Argument,
    set: &SetCommand<'h>,
) -> Result<bool, ErrorReply> {
    let (Expiry::Lease(lease), Some(owner)) = (set.expiry, set.token) else { return Ok(false) };
    if set.condition != Condition::Free || set.gets || !host.adopts(key.bytes(), LockType::Mutex) {
        return Ok(false);
    }
    let request = LockRequest { owner, claim: Claim::AdoptedMutex, lease };
    let Ok(granted) = host.acquire_uncontended(key, &request, None) else { return Ok(false) };
    let fence = granted?.fence;
    host.update(|manager| manager.observer.statistics.adopted_acquires += 1);
    host.record_adopted(fence);
    count_set(host, set, Act::Grant, key.bytes());
    Ok(true)
}

/// What the reply depends on.
#[derive(Clone, Copy)]
struct ReplyForm<'a> {
    condition: Condition<'a>,
    /// Whether the reply is the previous token.
    gets: bool,
}

fn reply_decided<'h>(
    mut host: impl CommandHost<'h>,
    original: Original,
    ReplyForm { condition, gets }: ReplyForm<'_>,
    decided: Set,
) -> Result<(), ErrorReply> {
    // Nil or 0 can only say that the condition is not met.
    let has_error = condition != Condition::Free || gets;
    match decided {
        Set::OtherLockType if has_error => return Err(errors::WRONG_TYPE),
        Set::NotNow if has_error => return Err(errors::NOT_NOW),
        Set::Protected(holder) if gets => reply_token(&mut host, holder.as_ref()),
        Set::Protected(_) => return Err(errors::PROTECTED),
        Set::OtherLockType | Set::NotNow => reply_set(&mut host, original, false),
        Set::Done { former, fences } => {
            for fence in fences {
                host.record_adopted(fence);
            }
            if gets {
                reply_token(&mut host, former.as_ref())
            } else {
                reply_set(&mut host, original, true)
            }
        }
        Set::Refused(former) if gets => reply_token(&mut host, former.as_ref()),
        Set::Refused(_) => reply_set(&mut host, original, false),
        // The client is blocked, or the original command has replied.
        Set::Queued | Set::Original | Set::Ordinary => {}
    }
    Ok(())
}

/// What a SET asks the engine.
struct Question<'a, G, W> {
    set: &'a SetCommand<'a>,
    /// Whether only a former pattern matches the key.
    is_former: bool,
    /// Whether it may be a renewal by an old client that still holds a lock there.
    renews: bool,
    /// Whether a free key may become a lock.
    may_grant: G,
    /// How long to wait for the hold with this fencing token.
    may_wait_for: W,
    /// How long to wait for a key that is free but reserved for other requests.
    wait: Option<WaitLimit>,
}

fn decide_set<K: Keys, C: Park>(
    manager: &mut LockManager,
    rules: &mut Host<'_, K, C>,
    key: KeyRef<'_>,
    question: Question<'_, impl FnOnce() -> bool, impl FnOnce(Fence) -> Option<WaitLimit>>,
) -> Result<Set, ErrorReply> {
    let Question { set, is_former, renews, may_grant, may_wait_for, wait } = question;
    let holder = match manager.with_host(rules).exclusive_holder(key, LockType::Mutex) {
        Ok(holder) => holder,
        Err(KeyError::WrongType) => return Ok(Set::Original),
        // A free key is reserved for the lock type of its waiters, but not from values that cannot be a token.
        Err(KeyError::Invalid(InvalidClaim::WrongLockType(_)))
            if set.token.is_none() && manager.with_host(rules).latest_holder(key).is_none() =>
        {
            return Ok(Set::Original);
        }
        Err(KeyError::Invalid(InvalidClaim::WrongLockType(_))) => return Ok(Set::OtherLockType),
        Err(error) => return Err(error.into()),
    };
    if holder.is_none() && (set.token.is_none() || !may_grant()) {
        return Ok(Set::Original);
    }
    let is_met = match (set.condition, &holder) {
        (Condition::Always, _) => true,
        (Condition::Free, holder) => holder.is_none(),
        (Condition::Held, holder) => holder.is_some(),
        (Condition::HeldBy(token), holder) => holder.as_ref().is_some_and(|holder| holder.owner.as_bytes() == token),
    };
    if let (true, Some(holder)) = (is_former && is_met && set.condition != Condition::Free, &holder) {
        let is_its_own = set.token.is_some_and(|token| token.as_bytes() == holder.owner.as_bytes());
        if !(is_its_own && renews) {
            return Ok(Set::Ordinary);
        }
    }
    if let Some(holder) = holder.as_ref().filter(|holder| is_met && is_protected(holder, set.token)) {
        manager.with_host(rules).record_protected(key, &holder.owner);
        return Ok(Set::Protected(Some(holder.owner.clone())));
    }
    let Some(token) = set.token else { return Ok(Set::Refused(holder.map(|holder| holder.owner))) };
    let Some(lease) = set.expiry.lease(rules.now.timestamp()) else {
        return end_at_once(manager, rules, key, holder.map(|holder| holder.owner), is_met);
    };
    if set.condition == Condition::Free {
        let wait = match &holder {
            Some(holder) => may_wait_for(holder.fence),
            None => wait,
        };
        if !is_met && wait.is_none() {
            return Ok(Set::Refused(holder.map(|holder| holder.owner)));
        }
        let lease_deadline = match set.expiry {
            Expiry::At(at) => Some(at),
            _ => None,
        };
        let lease = lease.unwrap_or(Lease::Persist);
        return acquire(manager, rules, key, LeaseUntil { lease, ends: lease_deadline }, token, wait);
    }
    let former = holder.map(|holder| holder.owner);
    if !is_met {
        return Ok(Set::Refused(former));
    }
    let preemption = Preemption { name: key.name, owner: token, lease };
    match preempt(manager, rules, key.db, &[preemption])? {
        Preempted::All(fences) => Ok(Set::Done { former, fences }),
        Preempted::NotNow => Ok(Set::NotNow),
        Preempted::Protected => Ok(Set::Protected(former)),
    }
}

/// Whether the holder is protected from a SET of this token, or of a value that cannot be a token.
fn is_protected(holder: &ExclusiveHolder, token: Option<OwnerRef<'_>>) -> bool {
    token.is_none_or(|token| holder.is_protected_from(token.as_bytes()))
}

/// A SET with an expiry in the past. The server would set the key and remove it as expired, so the holder loses its
/// lock, as with DEL.
fn end_at_once<K: Keys, C: Park>(
    manager: &mut LockManager,
    rules: &mut Host<'_, K, C>,
    key: KeyRef<'_>,
    holder: Option<Owner>,
    is_met: bool,
) -> Result<Set, ErrorReply> {
    let Some(holder) = holder else { return Ok(Set::Original) };
    if !is_met {
        return Ok(Set::Refused(Some(holder)));
    }
    manager.with_host(rules).release(key, holder.as_bytes(), &ReleaseAmount::Mutex, WorkOutcome::Failed)?;
    Ok(Set::Done { former: Some(holder), fences: Vec::new() })
}

/// A lease, and the time at which it ends if the command names one.
struct LeaseUntil {
    lease: Lease,
    ends: Option<Timestamp>,
}

/// SET … NX. If it cannot be granted now, it is refused or queued.
fn acquire<K: Keys, C: Park>(
    manager: &mut LockManager,
    rules: &mut Host<'_, K, C>,
    key: KeyRef<'_>,
    LeaseUntil { lease, ends }: LeaseUntil,
    token: OwnerRef<'_>,
    wait: Option<WaitLimit>,
) -> Result<Set, ErrorReply> {
    let request = LockRequest { owner: token, claim: Claim::AdoptedMutex, lease };
    let wait = wait.map(|limit| {
        let limit = match (limit, lease, ends) {
            // A lease that ends at a given time would have expired.
            (WaitLimit::Ms(limit), Lease::Ms(left), Some(_)) => WaitLimit::Ms(limit.min(left)),
            _ => limit,
        };
        Wait { limit, may_detach: true, coalesces: false, lease_deadline: ends }
    });
    let request = AcquireRequest { db: key.db, names: &[key.name], request, wait, session: None };
    match manager.with_host(rules).acquire(request) {
        Ok(Acquired::Granted(grant)) => {
            manager.observer.statistics.adopted_acquires += 1;
            Ok(Set::Done { former: None, fences: vec![grant.fence] })
        }
        Ok(Acquired::Queued(_)) => Ok(Set::Queued),
        Ok(Acquired::NotGranted) | Err(LockError::MaxWaiters(_) | LockError::Grace | LockError::Deadlock(_)) => {
            Ok(Set::NotNow)
        }
        Err(error @ LockError::Key(_)) => Err(error.into()),
    }
}

fn preempt<K: Keys, C: Park>(
    manager: &mut LockManager,
    rules: &mut Host<'_, K, C>,
    db: i32,
    preemptions: &[Preemption<'_>],
) -> Result<Preempted, ErrorReply> {
    let taken = manager.with_host(rules).preempt_mutexes(db, preemptions)?;
    if let Preempted::All(fences) = &taken {
        manager.observer.statistics.adopted_acquires += u64::from(!fences.is_empty());
    }
    Ok(taken)
}

fn reply_set(out: &mut impl ReplyWriter, original: Original, is_done: bool) {
    match (original, is_done) {
        (Original::SetNx | Original::MSetNx, is_done) => out.integer(i64::from(is_done)),
        (_, true) => out.status("OK"),
        (_, false) => out.null_string(),
    }
}

fn reply_token(out: &mut impl ReplyWriter, token: Option<&Owner>) {
    match token {
        Some(token) => out.bytes(token.as_bytes()),
        None => out.null_string(),
    }
}

/// MSET and MSETNX.
fn set_multiple<'h, H: CommandHost<'h>>(
    host: H,
    args: &'h [H::Argument],
    original: Original,
    condition: Condition<'_>,
) -> Result<(), ErrorReply> {
    let is_mutex = |name: &[u8]| host.adopts(name, LockType::Mutex);
    let pairs = parse::pairs(args).filter(|pairs| pairs.iter().all(|(name, _)| is_mutex(name)));
    let Some(pairs) = pairs else { return overwrite_multiple(host, args, condition) };
    refuse_while_paused(host)?;
    let keys: Vec<_> = args[1..].iter().step_by(2).copied().collect();
    host.check_slots(&keys)?;
    let (db, names): (_, Vec<&[u8]>) = (host.db(), pairs.iter().map(|(name, _)| *name).collect());
    let decided = host.decide(KeyArguments { arguments: &keys, names: &names }, None, |manager, rules| {
        let decided = decide_multiple(manager, rules, db, &pairs, condition);
        count_refusal(manager, &decided);
        decided
    });
    let decided = decided??;
    if let Some(act) = act_of(&decided) {
        for name in &names {
            host.count_observed(name, LockType::Mutex, |seen| seen.act(act));
        }
    }
    match decided {
        Set::Original => overwrite_multiple(host, args, condition),
        decided => reply_decided(host, original, ReplyForm { condition, gets: false }, decided),
    }
}

fn decide_multiple<K: Keys, C: Park>(
    manager: &mut LockManager,
    rules: &mut Host<'_, K, C>,
    db: i32,
    pairs: &[(&[u8], OwnerRef<'_>)],
    condition: Condition<'_>,
) -> Result<Set, ErrorReply> {
    let (mut is_any_held, mut is_of_other_type) = (false, false);
    for (name, _) in pairs {
        match manager.with_host(rules).exclusive_holder(KeyRef { db, name }, LockType::Mutex) {
            Ok(holder) => is_any_held |= holder.is_some(),
            Err(KeyError::WrongType) => return Ok(Set::Original),
            Err(KeyError::Invalid(InvalidClaim::WrongLockType(_))) => is_of_other_type = true,
            Err(error) => return Err(error.into()),
        }
    }
    if is_of_other_type {
        return Ok(Set::OtherLockType);
    }
    if is_any_held && condition == Condition::Free {
        return Ok(Set::Refused(None));
    }
    let lease = Some(Lease::Persist);
    let preemptions: Vec<_> = pairs.iter().map(|(name, owner)| Preemption { name, owner: *owner, lease }).collect();
    match preempt(manager, rules, db, &preemptions)? {
        Preempted::All(fences) => Ok(Set::Done { former: None, fences }),
        Preempted::NotNow => Ok(Set::NotNow),
        Preempted::Protected => Ok(Set::Protected(None)),
    }
}

/// MSET and MSETNX that do not only request mutexes: the server sets the strings, but overwrites no lock.
fn overwrite_multiple<'h, H: CommandHost<'h>>(
    host: H,
    args: &'h [H::Argument],
    condition: Condition<'_>,
) -> Result<(), ErrorReply> {
    let keys: Vec<_> = args[1..].iter().step_by(2).copied().filter(|key| host.protects(key.bytes())).collect();
    // MSETNX never overwrites.
    if condition == Condition::Free || keys.is_empty() {
        return run_original(host, args);
    }
    let is_held = protected(host, &keys, |engine, key| engine.latest_holder(key))?.contains(&true);
    if is_held {
        Err(errors::PROTECTED)
    } else {
        run_original(host, args)
    }
}

/// Which of these keys have a holder that `holder` selects; each of them is recorded in the log.
fn protected<'h, H: CommandHost<'h>>(
    host: H,
    keys: &[H::Argument],
    holder: impl Fn(&mut Engine<'_, '_, H::Keys<'_>, H::Clients<'_>>, KeyRef<'_>) -> Option<Owner>,
) -> Result<Vec<bool>, ErrorReply> {
    let (db, names): (_, Vec<&[u8]>) = (host.db(), keys.iter().map(|key| key.bytes()).collect());
    host.check_slots(keys)?;
    host.decide(KeyArguments { arguments: keys, names: &names }, None, |manager, rules| {
        let mut engine = manager.with_host(rules);
        let is_protected = |name: &&[u8]| {
            let key = KeyRef { db, name };
            let holder = holder(&mut engine, key);
            if let Some(holder) = &holder {
                engine.record_protected(key, holder);
            }
            holder.is_some()
        };
        names.iter().map(is_protected).collect()
    })
}

/// DEL and UNLINK. A script or a transaction compares the token first; a plain command would release the successor's
/// lock.
fn delete<'h, H: CommandHost<'h>>(mut host: H, args: &'h [H::Argument]) -> Result<(), ErrorReply> {
    if host.is_in_script_or_transaction() {
        return run_original(host, args);
    }
    let keys: Vec<_> = args[1..].iter().copied().filter(|key| host.protects(key.bytes())).collect();
    let is_protected = protected(host, &keys, |engine, key| {
        let native = engine.native_holder(key);
        let is_freed = native.is_none() && engine.latest_holder(key).is_some();
        let act = if is_freed { Act::ReleaseWithoutToken } else { Act::Protect };
        if is_freed || native.is_some() {
            let is_hash = matches!(engine.exclusive_holder(key, LockType::Reentrant), Ok(Some(_)));
            let lock_type = if is_hash { LockType::Reentrant } else { LockType::Mutex };
            host.count_observed(key.name, lock_type, |seen| seen.act(act));
        }
        native
    })?;
    if !is_protected.contains(&true) {
        return run_original(host, args);
    }
    let mut is_protected = is_protected.into_iter();
    let is_left = |key: &H::Argument| !host.protects(key.bytes()) || is_protected.next() == Some(false);
    let keys: Vec<_> = args[1..].iter().copied().filter(is_left).collect();
    if keys.is_empty() {
        host.integer(0);
        return Ok(());
    }
    run_original(host, &[&args[..1], &keys].concat())
}

/// GETDEL.
fn get_and_release<'h, H: CommandHost<'h>>(mut host: H, args: &'h [H::Argument]) -> Result<(), ErrorReply> {
    let key = KeyRef { db: host.db(), name: args[1].bytes() };
    let keys = KeyArguments { arguments: &args[1..2], names: &[key.name] };
    let is_protected = host.protects(key.name) && !host.is_in_script_or_transaction();
    let decided = host.decide(keys, None, |manager, rules| -> Result<Option<Owner>, KeyError> {
        let Some(holder) = manager.with_host(rules).exclusive_holder(key, LockType::Mutex)? else { return Ok(None) };
        if is_protected && holder.origin == Origin::Native {
            manager.with_host(rules).record_protected(key, &holder.owner);
            return Ok(None);
        }
        manager.with_host(rules).release(key, holder.owner.as_bytes(), &ReleaseAmount::Mutex, WorkOutcome::Failed)?;
        host.count_observed(key.name, LockType::Mutex, |seen| {
            seen.act(Act::Release);
            if is_protected {
                seen.act(Act::ReleaseWithoutToken);
            }
        });
        Ok(Some(holder.owner))
    });
    match decided {
        Ok(Err(KeyError::WrongType)) => run_original(host, args),
        Ok(Err(KeyError::Invalid(InvalidClaim::WrongLockType(_)))) => Err(errors::WRONG_TYPE),
        decided => {
            reply_token(&mut host, decided??.as_ref());
            Ok(())
        }
    }
}

/// DELIFEQ, DELEX … IFEQ.
fn release<'h, H: CommandHost<'h>>(mut host: H, args: &'h [H::Argument]) -> Result<(), ErrorReply> {
    let Some(token) = parse::released_token(args) else { return run_original(host, args) };
    let key = KeyRef { db: host.db(), name: args[1].bytes() };
    let keys = KeyArguments { arguments: &args[1..2], names: &[key.name] };
    let decided = host.decide(keys, None, |manager, rules| {
        let mut engine = manager.with_host(rules);
        match engine.exclusive_holder(key, LockType::Mutex)? {
            Some(_) => engine.release(key, token, &ReleaseAmount::Mutex, WorkOutcome::Done).map(Some),
            None => Ok(None),
        }
    });
    match decided {
        Ok(Ok(None) | Err(KeyError::WrongType)) => run_original(host, args),
        Ok(Err(KeyError::Invalid(InvalidClaim::WrongLockType(_)))) => Err(errors::WRONG_TYPE),
        decided => {
            let is_released = decided?? == Some(Released::Gone);
            if is_released {
                host.count_observed(key.name, LockType::Mutex, |seen| seen.act(Act::Release));
            }
            host.integer(i64::from(is_released));
            Ok(())
        }
    }
}

/// GET.
fn get<'h, H: CommandHost<'h>>(mut host: H, args: &'h [H::Argument]) -> Result<(), ErrorReply> {
    match holder_of(host, args[1], LockType::Mutex) {
        Ok(holder) => reply_token(&mut host, holder.map(|holder| holder.owner).as_ref()),
        Err(KeyError::WrongType) => return run_original(host, args),
        Err(_) => return Err(errors::WRONG_TYPE),
    }
    Ok(())
}

/// GETRANGE.
fn get_range<'h, H: CommandHost<'h>>(mut host: H, args: &'h [H::Argument]) -> Result<(), ErrorReply> {
    let holder = match holder_of(host, args[1], LockType::Mutex) {
        Ok(Some(CountedHolder { owner, .. })) => owner,
        Ok(None) | Err(KeyError::WrongType) => return run_original(host, args),
        Err(_) => return Err(errors::WRONG_TYPE),
    };
    match parse::range(holder.as_bytes(), args) {
        Some(range) => host.bytes(range),
        None => return run_original(host, args),
    }
    Ok(())
}

/// MGET, whose keys may include ordinary ones.
fn get_multiple<'h, H: CommandHost<'h>>(mut host: H, args: &'h [H::Argument]) -> Result<(), ErrorReply> {
    let holders: Vec<_> = args[1..].iter().map(|key| holder_of(host, *key, LockType::Mutex).ok().flatten()).collect();
    if holders.iter().all(Option::is_none) {
        return run_original(host, args);
    }
    let strings = host.original_mget(args)?;
    host.array(holders.len());
    for (holder, string) in holders.iter().zip(strings) {
        match (holder, string) {
            (Some(holder), _) => host.bytes(holder.owner.as_bytes()),
            (None, Some(string)) => host.bytes(&string),
            (None, None) => host.null_string(),
        }
    }
    Ok(())
}
