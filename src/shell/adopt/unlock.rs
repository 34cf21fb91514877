//! Redisson's waiters do not poll. They subscribe to a channel of the lock, to which Redisson's scripts publish on
//! release, and try again on each message. When the module ends such a lock in another way, it publishes the message
//! here.

use super::ADOPTION;
use crate::shell::background::write_check;
use crate::shell::ffi::context::Ctx;
use crate::shell::ffi::server::{publish, Audience};
use crate::shell::ffi::string::Str;

/// `RedissonLock.getChannelName` of Redisson 4, which includes the lock's slot.
const PREFIX: &[u8] = b"redisson_lock__channel:";

/// `LockPubSub.UNLOCK_MESSAGE`.
const MESSAGE: &[u8] = b"0";

/// A reentrant mutex has left its key.
pub fn publish_unlock(ctx: Ctx<'_>, key: Str<'_>) {
    let key = key.bytes();
    if !ADOPTION.keys.borrow().may_be_a_hash(key) {
        return;
    }
    let channel = if key.contains(&b'{') { [PREFIX, key].concat() } else { [PREFIX, b"{", key, b"}"].concat() };
    publish(ctx, &channel, MESSAGE, Audience::All);
    if write_check::is_in_cluster() {
        publish(ctx, &channel, MESSAGE, Audience::Shard);
    }
}
