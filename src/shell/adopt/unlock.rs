//! Redisson's waiters do not poll: they subscribe to a channel of the lock, and try again at its message. Its own
//! scripts publish it when they release. The end of such a lock by another command of the module is published here.

use crate::shell::background::gate;
use crate::shell::ffi::context::Ctx;
use crate::shell::ffi::server::{publish, Audience};
use crate::shell::ffi::string::Str;
use crate::shell::main_state::MAIN;

/// `RedissonLock.getChannelName`, Redisson 4: with the slot of the lock.
const PREFIX: &[u8] = b"redisson_lock__channel:";

/// `LockPubSub.UNLOCK_MESSAGE`.
const MESSAGE: &[u8] = b"0";

/// A reentrant mutex is gone from the key.
pub fn tell(ctx: Ctx<'_>, key: Str<'_>) {
    let key = key.bytes();
    if !MAIN.adopt.keys.borrow().may_be_a_hash(key) {
        return;
    }
    let channel = match key.contains(&b'{') {
        true => [PREFIX, key].concat(),
        false => [PREFIX, b"{", key, b"}"].concat(),
    };
    publish(ctx, &channel, MESSAGE, Audience::All);
    if gate::is_in_cluster() {
        publish(ctx, &channel, MESSAGE, Audience::Shard);
    }
}
