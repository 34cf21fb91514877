//! Background tasks of a hold: they renew its lease, or check a session that the server renews.
//!
//! A task keeps only a weak reference while it sleeps: when the program has no reference to the hold any more, renewals
//! stop, and the lease ends.

use std::future::pending;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use redis::Value;
use tokio::sync::watch;

use crate::error::Failure;
use crate::family::Family;
use crate::hold::{Hold, NextRenewal};
use crate::observer::EventKind;
use crate::pause::Backoff;
use crate::transport::{ReplyTime, Transport};

/// The shortest timeout for the reply to a renewal, and the timeout without a lease.
const SOON: Duration = Duration::from_millis(50);
const LATE: Duration = Duration::from_secs(5);

/// Renews the lease for its full length after each third of it, so a loss is noticed within a third. `next` changes
/// after a renewal on request.
pub(crate) async fn renewal_loop(hold: Weak<Hold>, family: Arc<Family>, mut next: watch::Receiver<NextRenewal>) {
    let mut backoff = Backoff::new();
    let mut due = next.borrow_and_update().due;
    loop {
        tokio::select! {
            biased;
            changed = next.changed() => {
                if changed.is_err() {
                    return;
                }
                due = next.borrow_and_update().due;
                continue;
            }
            () = tokio::time::sleep_until(due.into()) => {}
        }
        let Some(kept) = open(&hold) else { return };
        let _only = kept.renewing().await;
        if kept.is_lost() {
            return kept.lose(&family);
        }
        // Read now, because the caller's renewal may have been under way.
        let (lease, sent) = (next.borrow().lease, Instant::now());
        let left = kept.remaining().unwrap_or(LATE).max(SOON);
        let transport = Transport::pooled(&kept.connector, family.key());
        let reply = transport.send(&family.renew(&kept.token, Some(lease)), ReplyTime::Immediate, Some(left)).await;
        match is_held(&reply) {
            Some(true) if kept.renewed(sent, Some(lease)) => {
                kept.connector.observed.notify(EventKind::Renewed, &family, &kept.token, Some(kept.fence()));
                (backoff, due) = (Backoff::new(), NextRenewal::after_third_of(lease).due);
            }
            Some(_) => return kept.lose(&family),
            None => {
                if reply.is_err_and(|failure| failure.may_have_run) {
                    // The lease may be shorter than one from an acquire.
                    kept.maybe_renewed(sent, Some(lease));
                }
                if kept.is_lost() {
                    return kept.lose(&family);
                }
                due = Instant::now() + backoff.next(None).min(lease / 3);
            }
        }
    }
}

/// Watches a session, whose lease the server renews. The lock is lost when the connection ends, or when LOCK.HELD, sent
/// after each third of the lease, returns nil.
pub(crate) async fn session_loop(
    hold: Weak<Hold>,
    family: Arc<Family>,
    next: watch::Receiver<NextRenewal>,
    mut ended: Option<watch::Receiver<bool>>,
) {
    loop {
        let lease = next.borrow().lease;
        let end = async {
            match &mut ended {
                // An error means that the sender is gone, and the connection with it.
                Some(ended) => drop(ended.wait_for(|ended| *ended).await),
                None => pending().await,
            }
        };
        let is_over = tokio::select! {
            () = end => true,
            () = tokio::time::sleep(lease / 3) => false,
        };
        let Some(kept) = open(&hold) else { return };
        let (false, Some(transport)) = (is_over, kept.session()) else { return kept.lose(&family) };
        let sent = Instant::now();
        // A session has no local deadline, so a late reply must not end it.
        let reply = transport.send(&family.held(&kept.token), ReplyTime::Immediate, Some(LATE)).await;
        if is_held(&reply) != Some(true) {
            return kept.lose(&family);
        }
        // The caller may have renewed it meanwhile.
        kept.renewed(sent, Some(next.borrow().lease));
    }
}

fn open(hold: &Weak<Hold>) -> Option<Arc<Hold>> {
    hold.upgrade().filter(|hold| !hold.is_over())
}

/// Whether the owner still holds the lock; None: the server did not reply.
fn is_held(reply: &Result<Value, Failure>) -> Option<bool> {
    match reply {
        Ok(reply) => Some(!matches!(reply, Value::Nil | Value::Int(0))),
        Err(failure) if failure.means_lost() => Some(false),
        Err(_) => None,
    }
}
