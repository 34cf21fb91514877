//! The client's view of a hold: its grant, until when it is sure to last, and whether it was lost.

use std::future::{pending, Future};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex as StdMutex, OnceLock};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::{watch, Mutex, MutexGuard};
use tokio::task::AbortHandle;

use crate::connector::Connector;
use crate::family::{Family, Lease, Mode};
use crate::observer::EventKind;
use crate::transport::Transport;
use crate::turn::Turn;
use crate::watched::Watched;

const UNPOISONED: &str = "nothing panics while it is locked";

/// A granted acquire. `deadline` is counted from before the request was sent; None: no deadline.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Granted {
    pub(crate) fence: u64,
    /// The slot, for a semaphore with slots.
    pub(crate) slot: Option<u32>,
    pub(crate) deadline: Option<Instant>,
    /// When the reply arrived. The server granted the lock at this time or earlier.
    pub(crate) received: Instant,
    /// The owner's holds in both modes after the grant; None: not asked.
    pub(crate) holds: Option<u32>,
}

/// One owner's holds on one lock.
///
/// ```text
/// open ──release──▶ over
///   └──lose──▶ lost ──release──▶ over
/// ```
pub(crate) struct Hold {
    pub(crate) connector: Arc<Connector>,
    pub(crate) token: Arc<[u8]>,
    /// Releases of dropped guards run here, on whichever thread they are dropped.
    pub(crate) runtime: Handle,
    status: Watched<Status>,
    /// The fence of the latest grant, in any mode.
    fence: AtomicU64,
    exclusive: Holds,
    read: Holds,
    /// The connection of a session.
    session: OnceLock<Transport>,
    renewal: StdMutex<Option<Renewal>>,
    /// Locked while a renewal waits for its reply.
    renewing: Mutex<()>,
    /// True once the observer was notified of the loss.
    is_loss_reported: AtomicBool,
}

/// The task that renews or checks the hold, and the channel for what it sends next.
struct Renewal {
    task: AbortHandle,
    next: watch::Sender<NextRenewal>,
}

/// When the next automatic renewal is due, and the length of its lease.
#[derive(Clone, Copy)]
pub(crate) struct NextRenewal {
    pub(crate) lease: Duration,
    pub(crate) due: Instant,
}

impl NextRenewal {
    /// After a renewal or a grant just now.
    pub(crate) fn after_third_of(lease: Duration) -> NextRenewal {
        NextRenewal { lease, due: Instant::now() + lease / 3 }
    }
}

/// The holds of one mode. Acquires and releases run one at a time, because each states the resulting count.
#[derive(Default)]
struct Holds {
    turn: Turn<()>,
    held: AtomicU32,
    /// The holds for which no release was sent. The server has at least these, unless they were lost.
    kept: AtomicU32,
}

#[derive(Clone, Copy)]
struct Status {
    state: State,
    deadline: Option<Instant>,
    /// Until when the server may have the hold, which is later than the deadline after a longer renewal whose reply
    /// did not arrive, or arrived too late; None: no limit.
    expires: Option<Instant>,
    /// While its connection lives the server renews the lease, so no local deadline applies.
    is_session: bool,
    /// The time of the first grant; None: not granted yet.
    since: Option<Instant>,
    /// With `at_least`: before this time a release only sets the lease.
    kept_until: Option<Instant>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    Lost,
    Over,
}

impl Status {
    fn is_lost(&self) -> bool {
        match self.state {
            State::Open => self.ends().is_some_and(|ends| Instant::now() >= ends),
            State::Lost => true,
            State::Over => false,
        }
    }

    /// When it counts as lost unless it is renewed first; None: never.
    fn ends(&self) -> Option<Instant> {
        self.deadline.filter(|_| !self.is_session)
    }
}

impl Hold {
    pub(crate) fn new(connector: Arc<Connector>, token: Arc<[u8]>) -> Hold {
        Hold {
            connector,
            token,
            runtime: Handle::current(),
            status: Watched::new(Status {
                state: State::Open,
                deadline: None,
                expires: None,
                is_session: false,
                since: None,
                kept_until: None,
            }),
            fence: AtomicU64::new(0),
            exclusive: Holds::default(),
            read: Holds::default(),
            session: OnceLock::new(),
            renewal: StdMutex::default(),
            renewing: Mutex::default(),
            is_loss_reported: AtomicBool::new(false),
        }
    }

    /// Held by the acquire or release that is running in this mode.
    pub(crate) fn turn(&self, mode: Mode) -> &Turn<()> {
        &self.of(mode).turn
    }

    pub(crate) fn held(&self, mode: Mode) -> u32 {
        self.of(mode).held.load(Ordering::SeqCst)
    }

    /// The holds in this mode that the server has at least, unless they were lost.
    pub(crate) fn kept(&self, mode: Mode) -> u32 {
        self.of(mode).kept.load(Ordering::SeqCst)
    }

    pub(crate) fn fence(&self) -> u64 {
        self.fence.load(Ordering::SeqCst)
    }

    /// `at_least` counts from a new grant, not from a repeated acquire of the owner.
    pub(crate) fn granted(&self, mode: Mode, holds: u32, granted: Granted, at_least: Option<Duration>) {
        self.of(mode).held.store(holds, Ordering::SeqCst);
        self.of(mode).kept.store(holds, Ordering::SeqCst);
        let is_new_grant = self.fence.swap(granted.fence, Ordering::SeqCst) != granted.fence;
        let kept = at_least.filter(|_| is_new_grant).and_then(|at_least| granted.received.checked_add(at_least));
        self.status.modify(|status| {
            let is_first = status.since.is_none();
            // An acquire never shortens the lease of an owner that holds the lock.
            status.deadline = if is_first { granted.deadline } else { later(status.deadline, granted.deadline) };
            status.expires = if is_first { granted.deadline } else { later(status.expires, granted.deadline) };
            status.since.get_or_insert(granted.received);
            status.kept_until = status.kept_until.max(kept);
        });
    }

    /// The fence under which the server has the hold now.
    pub(crate) fn adopt(&self, fence: u64) {
        self.fence.store(fence, Ordering::SeqCst);
    }

    /// Until when a release only sets the lease; None: a release frees the lock.
    pub(crate) fn kept_until(&self) -> Option<Instant> {
        self.status.get().kept_until
    }

    /// A release is about to be sent.
    pub(crate) fn release_started(&self, mode: Mode, left: u32) {
        self.of(mode).kept.store(left, Ordering::SeqCst);
    }

    /// A release succeeded.
    pub(crate) fn release_ended(&self, mode: Mode, left: u32) {
        self.of(mode).held.store(left, Ordering::SeqCst);
    }

    /// True if only `mode` is held.
    pub(crate) fn holds_only(&self, mode: Mode) -> bool {
        self.held(mode.other()) == 0
    }

    /// For one renewal, until its reply has come: one at a time, because an automatic renewal that reaches the server
    /// after a longer one of the caller would shorten the lease unnoticed.
    pub(crate) async fn renewing(&self) -> MutexGuard<'_, ()> {
        self.renewing.lock().await
    }

    /// A renewal that was sent at this time succeeded. False: the hold had become lost before, and stays lost.
    pub(crate) fn renewed(&self, sent: Instant, lease: Lease) -> bool {
        let deadline = lease.and_then(|lease| sent.checked_add(lease));
        self.status.modify(|status| {
            let is_lost = status.is_lost();
            if is_lost {
                status.expires = later(status.expires, deadline);
            } else {
                (status.deadline, status.expires) = (deadline, deadline);
            }
            !is_lost
        })
    }

    /// A renewal that was sent at this time may have run: the lease is either the old or the new one.
    pub(crate) fn maybe_renewed(&self, sent: Instant, lease: Lease) {
        let now = Instant::now();
        self.status.modify(|status| {
            if let Some(deadline) = lease.and_then(|lease| sent.checked_add(lease)) {
                status.deadline = Some(status.deadline.map_or(deadline, |known| known.min(deadline)));
            }
            status.expires = later(status.expires, lease.and_then(|lease| now.checked_add(lease)));
        });
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.status.get().deadline
    }

    /// The remaining time of the lease; None: no lease.
    pub(crate) fn remaining(&self) -> Option<Duration> {
        self.deadline().map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }

    /// How long the server may still have the hold; None: no limit.
    pub(crate) fn left_on_server(&self) -> Option<Duration> {
        self.status.get().expires.map(|expires| expires.saturating_duration_since(Instant::now()))
    }

    /// How long to retry the withdrawal of a request with this lease; None: no limit. If the owner holds the lock, the
    /// request's lease may have extended that of the hold, and never shortened it.
    pub(crate) fn withdrawal_limit(&self, lease: Lease) -> Option<Duration> {
        match self.status.get().since {
            Some(_) => lease.zip(self.left_on_server()).map(|(lease, left)| lease.max(left)),
            None => lease,
        }
    }

    /// True if the hold is known to be lost, at the latest when the lease has expired by the local clock.
    pub(crate) fn is_lost(&self) -> bool {
        self.status.get().is_lost()
    }

    pub(crate) fn is_over(&self) -> bool {
        self.status.get().state == State::Over
    }

    /// Marks the hold as lost. Has no effect if the loss was known before, or everything was released.
    pub(crate) fn lose(&self, family: &Family) {
        let is_news = self.status.modify(|status| {
            let was_open = status.state == State::Open;
            if was_open {
                status.state = State::Lost;
            }
            was_open
        });
        if is_news {
            self.report_loss(family);
        }
    }

    /// Notifies the observer of the loss, once.
    pub(crate) fn report_loss(&self, family: &Family) {
        if !self.is_loss_reported.swap(true, Ordering::SeqCst) {
            let since = self.status.get().since;
            let hold = since.map(|since| since.elapsed()).unwrap_or_default();
            self.connector.observed.notify(EventKind::Lost { hold }, family, &self.token, Some(self.fence()));
        }
    }

    /// Released, or about to be: from here on no loss is reported, and renewals stop.
    pub(crate) fn end(&self) {
        self.status.modify(|status| status.state = State::Over);
        if let Some(renewal) = self.renewal.lock().expect(UNPOISONED).take() {
            renewal.task.abort();
        }
    }

    /// Resolves when the hold is lost; never after a release.
    pub(crate) fn lost(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut watched = self.status.subscribe();
        async move {
            loop {
                let status = *watched.borrow_and_update();
                if status.is_lost() {
                    return;
                }
                if status.state == State::Over {
                    return pending().await;
                }
                let ends = status.ends();
                let end = async {
                    match ends {
                        Some(ends) => tokio::time::sleep_until(ends.into()).await,
                        None => pending().await,
                    }
                };
                tokio::select! {
                    () = end => {}
                    changed = watched.changed() => if changed.is_err() {
                        // All guards are gone.
                        return pending().await;
                    }
                }
            }
        }
    }

    /// Binds the hold to this transport's connection.
    pub(crate) fn bind(&self, transport: Transport) {
        self.status.modify(|status| status.is_session = true);
        let _first = self.session.set(transport);
    }

    pub(crate) fn session(&self) -> Option<&Transport> {
        self.session.get()
    }

    pub(crate) fn renewed_by(&self, task: AbortHandle, next: watch::Sender<NextRenewal>) {
        *self.renewal.lock().expect(UNPOISONED) = Some(Renewal { task, next });
    }

    /// A renewal on request succeeded, so later renewals use its length.
    pub(crate) fn renewed_with(&self, lease: Duration) {
        if let Some(renewal) = self.renewal.lock().expect(UNPOISONED).as_ref() {
            renewal.next.send_replace(NextRenewal::after_third_of(lease));
        }
    }

    /// Makes the next automatic renewal due.
    pub(crate) fn renew_now(&self) {
        if let Some(renewal) = self.renewal.lock().expect(UNPOISONED).as_ref() {
            renewal.next.send_modify(|next| next.due = Instant::now());
        }
    }

    fn of(&self, mode: Mode) -> &Holds {
        match mode {
            Mode::Exclusive => &self.exclusive,
            Mode::Read => &self.read,
        }
    }
}

/// The later of two deadlines; None: no deadline.
fn later(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    one.zip(other).map(|(one, other)| one.max(other))
}
