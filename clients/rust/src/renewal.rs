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
use crate::hold::Hold;
use crate::observer::EventKind;
use crate::pause::Backoff;
use crate::transport::{ReplyTime, Transport};

/// The shortest timeout for the reply to a renewal, and the timeout without a lease.
const SOON: Duration = Duration::from_millis(50);
const LATE: Duration = Duration::from_secs(5);

/// Renews the lease for its full length after each third of it, so a loss is noticed within a third. `length` receives
/// the new length after a renewal on request.
pub(crate) async fn renewal_loop(hold: Weak<Hold>, family: Arc<Family>, mut length: watch::Receiver<Duration>) {
    let mut backoff = Backoff::new();
    let mut lease = *length.borrow_and_update();
    let mut pause = lease / 3;
    loop {
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            changed = length.changed() => {
                if changed.is_err() {
                    return;
                }
                // The caller has just renewed the lease, so wait for a third of its new length.
                lease = *length.borrow_and_update();
                pause = lease / 3;
                continue;
            }
        }
        let Some(kept) = open(&hold) else { return };
        let sent = Instant::now();
        let left = kept.remaining().unwrap_or(LATE).max(SOON);
        let transport = Transport::pooled(&kept.connector, family.key());
        let reply = transport.send(&family.renew(&kept.token, Some(lease)), ReplyTime::Immediate, Some(left)).await;
        match is_held(&reply) {
            Some(true) => {
                kept.extend(Some(sent + lease));
                kept.connector.observed.notify(EventKind::Renewed, &family, &kept.token, Some(kept.fence()));
                (backoff, pause) = (Backoff::new(), lease / 3);
            }
            None if !kept.is_lost() => pause = backoff.next(None).min(lease / 3),
            Some(false) | None => return kept.lose(&family),
        }
    }
}

/// Watches a session, whose lease the server renews. The lock is lost when the connection ends, or when LOCK.HELD, sent
/// after each third of the lease, returns nil.
pub(crate) async fn session_loop(
    hold: Weak<Hold>,
    family: Arc<Family>,
    length: watch::Receiver<Duration>,
    mut ended: Option<watch::Receiver<bool>>,
) {
    loop {
        let lease = *length.borrow();
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
        kept.extend(Some(sent + lease));
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
