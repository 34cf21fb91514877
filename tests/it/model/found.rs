//! Failures that schedules found on real servers, as short as possible.

use lock::testing::contract::*;
use lock::testing::schedule::{Step, CASTS};

use super::driver::Driver;

fn acquire(client: u64, owner: Word, lease: Option<Ms>, block: Option<Ms>) -> Step {
    let (keys, claim) = (vec!["a"], Claim::Mutex);
    let asked =
        Acquire { number: 0, client, keys, owner, claim, lease, block, session: false, coalesce: false, notify: false };
    Step::Send(Command::Acquire(asked))
}

#[test]
fn a_wait_ends_in_time_while_writes_are_refused_and_others_would_be_granted() {
    let Some(mut driver) = Driver::by_standing_clocks() else { return };
    let steps = [
        acquire(0, "o", Some(3), None),
        acquire(2, "p", Some(100), Some(0)),
        Step::Pass(1),
        acquire(4, "q", Some(100), Some(10)),
        Step::Happen(Event::Writes(Writes::Refused)),
        // Some milliseconds before the end of the wait a grant is tried, which is tried again 10 ms later.
        Step::Pass(8),
        Step::Pass(5),
    ];
    driver.play(&CASTS[0], &steps).unwrap_or_else(|wrong| panic!("{wrong}"));
}
