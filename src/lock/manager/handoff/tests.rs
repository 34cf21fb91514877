use crate::host::simulated::Stored;
use crate::manager::fixture::{key, Fixture};
use crate::value::claim::{Claim, Count, Portion};
use crate::value::outcome::Released;
use crate::value::time::{Deadline, Lease};

#[test]
fn an_owner_passes_the_request_for_several_keys_that_waits_for_it() {
    let mut fixture = Fixture::of(&[("d", Claim::Mutex)]);
    fixture.acquire_all("a", &[b"l"], Claim::Mutex, None, Lease::Persist);
    fixture.acquire_all("b", &[b"k", b"l"], Claim::Mutex, None, Lease::Persist);
    fixture.acquire("a", Claim::Mutex, None, Lease::Persist);
    assert_eq!(fixture.release("d", Portion::Mutex), Ok(Released::Gone));
    assert_eq!(fixture.holders(), "a", "b waits for a");
}

#[test]
fn an_owner_that_is_granted_one_request_reenters_with_the_next() {
    let holds = |holds| Claim::Reentrant(Count::Step(holds));
    let mut fixture = Fixture::of(&[("z", holds(1)), ("a", holds(1)), ("a", holds(2)), ("b", holds(1))]);
    assert_eq!(fixture.release("z", Portion::Reentrant(Count::Step(1))), Ok(Released::Gone));
    let Some(Stored::Lock(lock, _)) = fixture.server.keyspace.primary.get(&key()) else { panic!("nobody holds it") };
    assert_eq!(lock.hold(b"a", Deadline::Never).map(|hold| hold.holds), Some(3));
    assert_eq!(fixture.manager.queues().waiters(), 1);
}
