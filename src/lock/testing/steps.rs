//! The steps of a schedule: everything that can happen to the rules, over a few owners, keys and requests.

use proptest::prelude::*;

use crate::host::Gate;
use crate::key::Key;
use crate::manager::departure::Departure;
use crate::value::claim::{Claim, Count, Family, Mode, Portion};
use crate::value::owner::Owner;

/// One step of a schedule. `who` and `key` are numbers below 5; `which` chooses among the requests that there are.
/// `Promote` is a failover and back; `Reload` builds the replica anew from what is stored.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Acquire { who: u8, what: u8, key: u8, wait: bool, session: bool, lease_ms: u64 },
    Release { who: u8, key: u8, all: bool },
    Renew { who: u8, key: u8 },
    Cancel { who: u8, key: u8 },
    Pass { ms: u64 },
    Leave { which: u8, departure: Departure },
    Undelivered { which: u8 },
    EndSession { who: u8 },
    Delete { key: u8 },
    Expire { key: u8, ms: u64 },
    Turn { gate: Gate },
    Promote { grace_ms: u64 },
    ChangeGrace { grace_ms: u64 },
    Reload,
}

impl Step {
    /// Whether a server that refuses writes refuses it.
    pub fn is_write(&self) -> bool {
        use Step::*;
        matches!(self, Acquire { .. } | Release { .. } | Renew { .. } | Cancel { .. } | Delete { .. })
    }
}

/// Any step, the common ones more often.
pub(super) fn step() -> impl Strategy<Value = Step> {
    let (who, key) = (|| 0..5u8, || 0..5u8);
    let departure = || prop_oneof![Just(Departure::MayComeBack), Just(Departure::ForGood)];
    let gate = prop_oneof![3 => Just(Gate::Open), 3 => Just(Gate::Closed), 1 => Just(Gate::Elsewhere)];
    prop_oneof![
        8 => (who(), 0..8u8, key(), any::<bool>(), prop::bool::weighted(0.2), 1..400u64).prop_map(
            |(who, what, key, wait, session, lease_ms)| Step::Acquire { who, what, key, wait, session, lease_ms }
        ),
        6 => (who(), key(), any::<bool>()).prop_map(|(who, key, all)| Step::Release { who, key, all }),
        1 => (who(), key()).prop_map(|(who, key)| Step::Renew { who, key }),
        1 => (who(), key()).prop_map(|(who, key)| Step::Cancel { who, key }),
        4 => (1..150u64).prop_map(|ms| Step::Pass { ms }),
        2 => (any::<u8>(), departure()).prop_map(|(which, departure)| Step::Leave { which, departure }),
        1 => any::<u8>().prop_map(|which| Step::Undelivered { which }),
        1 => who().prop_map(|who| Step::EndSession { who }),
        1 => key().prop_map(|key| Step::Delete { key }),
        1 => (key(), 1..200u64).prop_map(|(key, ms)| Step::Expire { key, ms }),
        1 => gate.prop_map(|gate| Step::Turn { gate }),
        1 => Just(Step::Reload),
        1 => (0..150u64).prop_map(|grace_ms| Step::Promote { grace_ms }),
        1 => (0..150u64).prop_map(|grace_ms| Step::ChangeGrace { grace_ms }),
    ]
}

/// The family of a key: 0 and 1 are mutexes, 2 reentrant, 3 read/write, 4 a semaphore.
pub(super) fn family(key: u8) -> Family {
    match key {
        0 | 1 => Family::Mutex,
        2 => Family::Reentrant,
        3 => Family::ReadWrite,
        _ => Family::Semaphore,
    }
}

/// What is claimed of that key; `what` is a number below 8.
pub(super) fn claim(what: u8, key: u8) -> Claim {
    let count = if what % 4 == 3 { Count::Exactly(u32::from(what / 4) + 1) } else { Count::Step(1) };
    match family(key) {
        Family::Mutex => Claim::Mutex,
        Family::Reentrant => Claim::Reentrant(count),
        Family::ReadWrite => Claim::ReadWrite(if what % 2 == 0 { Mode::Read } else { Mode::Write }, count),
        Family::Semaphore => {
            Claim::Permits { limit: 2 + u32::from(what % 3), count: Count::Step(1 + u32::from(what % 2)) }
        }
    }
}

/// What is given back of that key.
pub(super) fn portion(who: u8, key: u8, all: bool) -> Portion {
    let count = if all { Count::Exactly(0) } else { Count::Step(1) };
    match family(key) {
        Family::Mutex => Portion::Mutex,
        Family::Reentrant => Portion::Reentrant(count),
        Family::ReadWrite => Portion::ReadWrite(if who % 2 == 0 { Mode::Read } else { Mode::Write }, count),
        Family::Semaphore => Portion::Permits(count),
    }
}

/// The name of a key.
pub(super) fn name(key: u8) -> [u8; 1] {
    [b'k' + key]
}

/// The key of that number.
pub(super) fn key(number: u8) -> Key {
    Key::new(0, &name(number))
}

/// The owner of that number.
pub(super) fn owner(who: u8) -> Owner {
    Owner::new(&[b'a' + who]).expect("one byte is an owner")
}
