//! Replicated effects, as in replication streams and append-only files: whatever their content, they leave valid locks
//! or nothing, and a server that is then promoted keeps working.
//!
//! Each line of the input is an effect: a letter that selects the key, then the arguments after `LOCK.APPLY key`, each
//! after a `|`.

use command::effect::{decode, encode_hold};
use command::rdb_codec;
use lock::testing::checks::check_lock;
use lock::testing::promotion::ReplicaUnderTest;
use lock::value::fence::Fence;
use lock::value::lock::Lock;
use lock::value::rebuild::ReplicatedEffect;
use lock::value::time::Timestamp;

use crate::same::assert_same;

const KEYS: [&[u8]; 4] = [b"a", b"b", b"c", b"d"];

/// More effects would only take longer.
const MOST: usize = 100;

/// Beyond this, a primary's clock or fences would overflow, which no real clock reaches.
const LAST_FENCE: u64 = (1 << 53) - 1_000_000;

/// The new primary's wall clock, in ms since the epoch.
const NOW_MS: u64 = 1_763_778_000_000;

/// Applies the effects, then promotes the replica; panics if a property is violated.
pub fn effects(bytes: &[u8]) {
    let mut replica = ReplicaUnderTest::default();
    let mut is_near_the_end = false;
    for line in bytes.split(|byte| *byte == b'\n').take(MOST) {
        let mut words = line.split(|byte| *byte == b'|');
        let Some(key) = words.next().and_then(|key| key.first()).map(|letter| KEYS[usize::from(*letter) % KEYS.len()])
        else {
            continue;
        };
        let words: Vec<&[u8]> = words.collect();
        let Some(effect) = decode(&words) else { continue };
        is_near_the_end |= fence_of(&effect).is_some_and(|fence| fence.get() > LAST_FENCE);
        check_form(&words, &effect);
        let before = replica.lock(key).map(|(lock, _)| lock.clone());
        let ends_several = matches!(effect, ReplicatedEffect::Ended(_));
        replica.receive(key, effect);
        match replica.lock(key) {
            Some((lock, _)) => check_replica(lock),
            None => assert!(
                ends_several || before.is_none_or(|lock| lock.holders() == 1),
                "several holders, and the key is gone"
            ),
        }
    }
    if !is_near_the_end {
        replica.promote(Timestamp::from_ms(NOW_MS));
    }
}

fn fence_of(effect: &ReplicatedEffect<'_>) -> Option<Fence> {
    match effect {
        ReplicatedEffect::Hold(_, holder) => Some(holder.fence),
        ReplicatedEffect::Fence(fence) => Some(*fence),
        ReplicatedEffect::Drop(_)
        | ReplicatedEffect::Ended(_)
        | ReplicatedEffect::Limit(_)
        | ReplicatedEffect::Clamp => None,
    }
}

/// The locks of a replica can be saved and loaded.
fn check_replica(lock: &Lock) {
    check_lock(lock);
    let stored = rdb_codec::encode(lock).expect("it has a holder");
    assert_same(lock, &rdb_codec::decode(&stored).expect("what was stored can be loaded"));
}

/// A hold has one encoding, so an effect is re-encoded unchanged.
fn check_form(words: &[&[u8]], effect: &ReplicatedEffect<'_>) {
    let ReplicatedEffect::Hold(kind, holder) = effect else { return };
    let mut lock = Lock::Vacant;
    assert!(lock.apply_hold(*kind, holder.clone()), "it was decoded, and no lock can be held so");
    let hold = lock.hold(holder.owner.as_bytes(), holder.until).expect("it is held");
    let sent = encode_hold(&lock, &hold, <[u8]>::to_vec).expect("it is held");
    if let [word] = words {
        assert_eq!(*word, sent, "it is sent in another form");
    }
    match decode(&[&sent]) {
        Some(ReplicatedEffect::Hold(kind_again, again)) => {
            assert_eq!((kind_again, format!("{again:?}")), (*kind, format!("{holder:?}")));
        }
        other => panic!("what is sent is not read: {other:?}"),
    }
}
