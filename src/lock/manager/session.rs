//! Sessions: holds that are bound to a connection. The server renews them while the connection lives, and takes them
//! from their owners when it ends.

use super::lock_manager::{LockManager, Timer};
use super::release::End;
use super::renewal::Renewed;
use super::session_bindings::BindingId;
use super::timers::GATE_RETRY_MS;
use crate::host::{Clients, Gate, Host, Keys};
use crate::key::{ClientId, KeyRef};
use crate::value::claim::LockRequest;
use crate::value::fence::Fence;
use crate::value::time::Now;

impl LockManager {
    /// A connection has ended. Nothing is written: [`LockManager::drain`] takes its holds from it.
    pub fn end_session(&mut self, client: ClientId) {
        if !self.bindings.of_client(client).is_empty() {
            self.ended.insert(client);
        }
    }

    /// Binds the hold that was just granted to the connection, and to no other that it was bound to.
    pub(super) fn bind(
        &mut self,
        now: &Now,
        client: ClientId,
        key: KeyRef<'_>,
        request: &LockRequest<'_>,
        fence: Fence,
    ) {
        let owner = request.owner.to_owner();
        self.unbind(key, owner.as_bytes());
        self.bindings.bind(client, key, &owner, fence);
        self.renew_after_a_third(now, key, owner.as_bytes(), request.lease);
    }

    /// The hold is bound to nothing any more.
    pub(super) fn unbind(&mut self, key: KeyRef<'_>, owner: &[u8]) {
        if let Some(id) = self.bindings.unbind(key, owner) {
            self.timers.clear(Timer::RenewalDue(id));
        }
    }

    /// A third of the lease is over and the connection lives.
    pub(super) fn renew_session<K: Keys, C: Clients>(&mut self, host: &mut Host<'_, K, C>, id: BindingId) {
        let Some(binding) = self.bindings.get(id).cloned() else { return };
        if self.ended.contains(&binding.client) {
            return;
        }
        let key = binding.key.as_ref();
        if host.keys.gate(key) != Gate::Open {
            return self.timers.set(Timer::RenewalDue(id), host.now.timestamp().plus_ms(GATE_RETRY_MS));
        }
        let mut entry = host.keys.open(key);
        self.settle(host.now, key, &mut entry);
        let renewed = self.renew_open(host.now, key, &mut entry, binding.owner.as_bytes(), None);
        if renewed == Renewed::NotHeld {
            self.unbind(key, binding.owner.as_bytes());
        }
    }

    /// Takes all holds from a connection that has ended. Whatever a closed gate blocks stays due.
    pub(super) fn release_session<K: Keys, C: Clients>(&mut self, host: &mut Host<'_, K, C>, client: ClientId) {
        for binding in self.bindings.of_client(client) {
            let (key, owner) = (binding.key.as_ref(), binding.owner.as_bytes());
            match host.keys.gate(key) {
                Gate::Closed => {
                    self.ended.insert(client);
                    continue;
                }
                Gate::Elsewhere => {
                    self.unbind(key, owner);
                    continue;
                }
                Gate::Open => {}
            }
            self.unbind(key, owner);
            // A key that holds no lock any more has ended the hold itself.
            _ = self.end_hold(host, key, End::Disconnected { owner });
        }
    }
}
