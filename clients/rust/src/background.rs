//! Background cleanup after callers that gave up: withdrawals and releases. They are counted, so that a program can
//! wait for them before it ends.

use std::future::Future;
use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The number of running tasks.
#[derive(Default)]
pub(crate) struct Background(watch::Sender<usize>);

impl Background {
    pub(crate) fn spawn(
        self: &Arc<Self>,
        runtime: &Handle,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> JoinHandle<()> {
        self.0.send_modify(|running| *running += 1);
        let running = Running(self.clone());
        runtime.spawn(async move {
            let _running = running;
            work.await;
        })
    }

    pub(crate) async fn settled(&self) {
        // An error would mean that the sender is gone, but `self` holds it.
        let _ = self.0.subscribe().wait_for(|running| *running == 0).await;
    }
}

/// Counts a task, even if its runtime drops the task as it ends.
struct Running(Arc<Background>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0 .0.send_modify(|running| *running -= 1);
    }
}
