//! Adopted commands of locks that keep their hold count in a hash field named after the owner: `HINCRBY key owner 1`
//! and related commands. `adopted.rs` has those of locks that are strings.

use lock::engine::counted_holds::{CountChange, Counted};
use lock::engine::lock_manager::LockError;
use lock::engine::release::WorkOutcome;
use lock::key::KeyRef;
use lock::value::claim::{Count, InvalidClaim, LockType, ReleaseAmount};
use lock::value::outcome::{KeyError, Released};
use lock::value::owner::OwnerRef;

use super::adoption;
use super::inspect::holder_of;
use super::request::{refuse_while_paused, run_original};
use crate::adopted::seen::Act;
use crate::adopted::Original;
use crate::errors::{self, ErrorReply};
use crate::host::{CommandHost, KeyArguments};
use crate::parse::{integer, Argument};

/// Runs a hash command.
pub(super) fn run<'h, H: CommandHost<'h>>(
    host: H,
    args: &'h [H::Argument],
    original: Original,
) -> Result<(), ErrorReply> {
    match original {
        Original::HSet | Original::HSetNx | Original::HIncrBy => change(host, args, original),
        Original::HDel => delete(host, args),
        _ => read(host, args, original),
    }
}

/// A larger number is not a hold count.
const MOST_HOLDS: i64 = u32::MAX as i64;

/// HSET of one field, HSETNX, HINCRBY. Any other number, or multiple fields, does not concern a lock.
fn change<'h, H: CommandHost<'h>>(mut host: H, args: &'h [H::Argument], original: Original) -> Result<(), ErrorReply> {
    let [_, key, owner, number] = args else { return run_ordinary(host, args) };
    let (owner, change) = (OwnerRef::new(owner.bytes()), count_change(original, number.bytes()));
    let (Some(owner), Some(change)) = (owner, change) else { return run_ordinary(host, args) };
    refuse_while_paused(host)?;
    let name = key.bytes();
    let key = KeyRef { db: host.db(), name };
    // On a free key a count must be at least 1.
    let is_count = matches!(change, CountChange::By(1..=MOST_HOLDS) | CountChange::To(1..));
    // HINCRBY may also release, so its subcommand is not `deny-oom`: out of memory, the server's own HINCRBY refuses.
    let has_memory = original != Original::HIncrBy || !host.is_out_of_memory();
    let is_lock = is_count && has_memory && host.adopts(name, LockType::Reentrant);
    let keys = KeyArguments { arguments: &args[1..2], names: &[name] };
    let mut granted = None;
    let decided = host.decide(keys, None, |manager, rules| {
        let holder = match manager.with_host(rules).exclusive_holder(key, LockType::Reentrant) {
            Err(KeyError::WrongType) => return Ok(None),
            holder => holder.map_err(LockError::from)?,
        };
        match &holder {
            None if !is_lock => return Ok(None),
            Some(holder) if original == Original::HSetNx && holder.owner.as_bytes() == owner.as_bytes() => {
                return Ok(Some(Counted::Holds { now: 0, before: Some(0) }));
            }
            _ => {}
        }
        let counted = manager.with_host(rules).change_holds(key, owner, change);
        match counted {
            Ok(Counted::Holds { before: None, .. }) => {
                manager.observer.statistics.adopted_acquires += 1;
                granted =
                    manager.with_host(rules).exclusive_holder(key, LockType::Reentrant)?.map(|holder| holder.fence);
            }
            Ok(Counted::HeldByAnother | Counted::NotNow) => manager.observer.statistics.adopted_refusals += 1,
            _ => {}
        }
        counted.map(Some)
    });
    let decided = decided?;
    let act = match &decided {
        Ok(Some(Counted::Holds { before: None, .. })) => Some(Act::Grant),
        Ok(Some(Counted::Holds { now, before: Some(before) })) if now >= before => Some(Act::Renew),
        Ok(Some(Counted::HeldByAnother | Counted::NotNow)) => Some(Act::Refuse),
        _ => None,
    };
    if let Some(act) = act {
        host.count_observed(name, LockType::Reentrant, |seen| seen.act(act));
    }
    match decided {
        Ok(None) => run_original(host, args),
        Ok(Some(Counted::NotNow)) => Err(errors::NOT_NOW),
        Ok(Some(Counted::HeldByAnother)) if !host.protects(name) => run_ordinary(host, args),
        Ok(Some(Counted::HeldByAnother)) | Err(LockError::Key(KeyError::Invalid(InvalidClaim::WrongLockType(_)))) => {
            Err(errors::WRONG_TYPE)
        }
        Ok(Some(Counted::Holds { now, before })) => {
            if let Some(fence) = granted {
                host.record_adopted(fence);
            }
            host.integer(if original == Original::HIncrBy { now.into() } else { before.is_none().into() });
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

/// Not a lock command. On a key of a former pattern an adopted lock becomes a hash again; on others it stays a lock.
fn run_ordinary<'h, H: CommandHost<'h>>(host: H, args: &'h [H::Argument]) -> Result<(), ErrorReply> {
    if !host.protects(args[1].bytes()) {
        adoption::return_key(host, args[1])?;
    }
    run_original(host, args)
}

/// What a number means as the count of a field; `None`: it is not a count.
fn count_change(original: Original, number: &[u8]) -> Option<CountChange> {
    let number = integer(number)?;
    match original {
        Original::HIncrBy => Some(CountChange::By(number)),
        _ => u32::try_from(number).ok().map(CountChange::To),
    }
}

/// HDEL: all holds of the owner, if it is among the fields. Does not release the hold of the waiter granted next.
fn delete<'h, H: CommandHost<'h>>(mut host: H, args: &'h [H::Argument]) -> Result<(), ErrorReply> {
    let key = KeyRef { db: host.db(), name: args[1].bytes() };
    let keys = KeyArguments { arguments: &args[1..2], names: &[key.name] };
    let all = ReleaseAmount::Reentrant(Count::Exactly(0));
    let decided = host.decide(keys, None, |manager, rules| -> Result<i64, KeyError> {
        let mut engine = manager.with_host(rules);
        let holder = engine.exclusive_holder(key, LockType::Reentrant)?;
        let is_named = |owner: &[u8]| args[2..].iter().any(|field| field.bytes() == owner);
        let Some(holder) = holder.filter(|holder| is_named(holder.owner.as_bytes())) else { return Ok(0) };
        let released = engine.release(key, holder.owner.as_bytes(), &all, WorkOutcome::Done)?;
        host.count_observed(key.name, LockType::Reentrant, |seen| seen.act(Act::Release));
        Ok(i64::from(released == Released::Gone))
    });
    match decided {
        Ok(Err(KeyError::WrongType)) => run_original(host, args),
        Ok(Err(KeyError::Invalid(InvalidClaim::WrongLockType(_)))) => Err(errors::WRONG_TYPE),
        decided => {
            host.integer(decided??);
            Ok(())
        }
    }
}

/// HEXISTS, HGET, HLEN, HKEYS, HGETALL.
fn read<'h, H: CommandHost<'h>>(mut host: H, args: &'h [H::Argument], original: Original) -> Result<(), ErrorReply> {
    let holder = match holder_of(host, args[1], LockType::Reentrant) {
        Ok(Some(holder)) => holder,
        Ok(None) | Err(KeyError::WrongType) => return run_original(host, args),
        Err(_) => return Err(errors::WRONG_TYPE),
    };
    let (owner, holds) = (holder.owner.as_bytes(), holder.holds.to_string());
    let is_owner = args.get(2).is_some_and(|field| field.bytes() == owner);
    match original {
        Original::HExists => host.integer(i64::from(is_owner)),
        Original::HLen => host.integer(1),
        Original::HGet if is_owner => host.bytes(holds.as_bytes()),
        Original::HGet => host.null_string(),
        Original::HKeys => {
            host.array(1);
            host.bytes(owner);
        }
        _ => {
            host.map(1);
            host.bytes(owner);
            host.bytes(holds.as_bytes());
        }
    }
    Ok(())
}
