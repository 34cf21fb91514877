//! Background cleanup after callers that gave up: withdrawals and releases. They are counted, so that a program can
//! wait for them before it ends. Must never happen: a cleanup ends a later request of the same owner.

use std::future::Future;
use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;

#[derive(Default)]
pub(crate) struct Background {
    /// The number of running tasks.
    running: watch::Sender<usize>,
    /// The owners of running tasks that must end before the next request of the same owner.
    owners: watch::Sender<Vec<LockOwner>>,
}

/// An owner of one lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LockOwner {
    pub(crate) key: Vec<u8>,
    pub(crate) token: Vec<u8>,
}

impl Background {
    pub(crate) fn spawn(
        self: &Arc<Self>,
        runtime: &Handle,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> JoinHandle<()> {
        self.running.send_modify(|running| *running += 1);
        let running = Running(self.clone());
        runtime.spawn(async move {
            let _running = running;
            work.await;
        })
    }

    /// The owner's next request waits for this work by [`Background::settled_for`].
    pub(crate) fn spawn_for(
        self: &Arc<Self>,
        runtime: &Handle,
        owner: LockOwner,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> JoinHandle<()> {
        self.owners.send_modify(|owners| owners.push(owner.clone()));
        let listed = Listed(self.clone(), owner);
        self.spawn(runtime, async move {
            let _listed = listed;
            work.await;
        })
    }

    pub(crate) async fn settled(&self) {
        // An error would mean that the sender is gone, but `self` holds it.
        let _ = self.running.subscribe().wait_for(|running| *running == 0).await;
    }

    /// True if no owner has a running task.
    pub(crate) fn is_settled(&self) -> bool {
        self.owners.borrow().is_empty()
    }

    pub(crate) async fn settled_for(&self, owner: &LockOwner) {
        let _ = self.owners.subscribe().wait_for(|owners| !owners.contains(owner)).await;
    }
}

/// Counts a task, even if the runtime drops it when shutting down.
struct Running(Arc<Background>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.send_modify(|running| *running -= 1);
    }
}

/// Lists the owner of a task in the same way.
struct Listed(Arc<Background>, LockOwner);

impl Drop for Listed {
    fn drop(&mut self) {
        self.0.owners.send_modify(|owners| {
            if let Some(position) = owners.iter().position(|owner| *owner == self.1) {
                owners.swap_remove(position);
            }
        });
    }
}
