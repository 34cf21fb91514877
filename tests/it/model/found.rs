//! Failures that schedules found on real servers, in their shortest form.

use lock::testing::contract::*;
use lock::testing::schedule::{Step, CASTS};

use super::driver::Driver;

fn ask(client: u64, keys: &[Name], owner: Name, claim: Claim, lease: Option<Ms>, block: Option<Ms>) -> Step {
    let (keys, session, coalesce, notify) = (keys.to_vec(), false, false, false);
    let asked = Acquire { number: 0, client, keys, owner, claim, lease, block, session, coalesce, notify };
    Step::Send(Command::Acquire(asked))
}

fn acquire(client: u64, owner: Name, lease: Option<Ms>, block: Option<Ms>) -> Step {
    ask(client, &["a"], owner, Claim::Mutex, lease, block)
}

#[test]
fn a_wait_times_out_on_time_while_writes_are_refused_and_others_would_be_granted() {
    let Some(mut driver) = Driver::by_standing_clocks() else { return };
    let steps = [
        acquire(0, "o", Some(3), None),
        acquire(2, "p", Some(100), Some(0)),
        Step::Pass(1),
        acquire(4, "q", Some(100), Some(10)),
        Step::Happen(Event::Writes(Writes::Refused)),
        // Some milliseconds before the wait times out, a grant is attempted that is retried 10 ms later.
        Step::Pass(8),
        Step::Pass(5),
    ];
    driver.play(&CASTS[0], &steps).unwrap_or_else(|wrong| panic!("{wrong}"));
}

#[test]
fn a_lock_whose_owner_has_a_waiting_mlock_is_handed_off_when_its_lease_expires() {
    let Some(mut driver) = Driver::by_standing_clocks() else { return };
    let adopted = |is_absolute| Claim::Adopted { is_absolute };
    let steps = [
        ask(0, &["b"], "o", Claim::Mutex, Some(400), None),
        ask(2, &["a"], "p", adopted(false), Some(100), Some(50)),
        ask(3, &["a"], "p", adopted(false), Some(30), Some(300)),
        ask(2, &["s"], "p", Claim::Permits(2, Holds::By(2)), Some(30), Some(50)),
        Step::Send(Command::Break { key: "a", owner: None }),
        ask(2, &["a", "b"], "p", Claim::Mutex, Some(30), Some(50)),
        // Its wait times out two milliseconds after the lease expires, and the lease of the permits one before that.
        ask(4, &["a"], "q", adopted(true), Some(30), Some(30)),
        Step::Pass(200),
    ];
    driver.play(&CASTS[0], &steps).unwrap_or_else(|wrong| panic!("{wrong}"));
}
