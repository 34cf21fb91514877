//! What schedules have found, as short as they can be told. Each plays on the rules and on the model, which have to
//! agree.

use super::contract::*;
use super::schedule::{Cast, Step};
use super::simulator::Simulation;

const KEYS: Cast = Cast {
    keys: &[
        ("a", Kind::Mutex),
        ("b", Kind::Mutex),
        ("j", Kind::Mutex),
        ("k", Kind::Mutex),
        ("x", Kind::Mutex),
        ("r", Kind::Reentrant),
        ("s", Kind::Semaphore),
        ("t", Kind::Semaphore),
    ],
    owners: &[],
};

/// A small world: each request has a connection of its own.
struct World {
    simulation: Simulation,
    connections: u64,
}

impl World {
    fn new() -> World {
        World { simulation: Simulation::new(&KEYS), connections: 0 }
    }

    fn ask(&mut self, keys: &[Word], owner: Word, claim: Claim, block: Option<Ms>) -> Outcome {
        self.connections += 1;
        let (client, keys) = (self.connections, keys.to_vec());
        let lease = Some(10_000);
        let asked = Acquire { number: 0, client, keys, owner, claim, lease, block, session: false };
        self.send(Command::Acquire(asked))
    }

    fn send(&mut self, command: Command) -> Outcome {
        self.simulation.play(&Step::Send(command));
        self.simulation.outcome.expect("a command was sent")
    }

    /// `LOCK.ACQUIRE key owner`
    fn hold(&mut self, key: Word, owner: Word) {
        assert!(matches!(self.ask(&[key], owner, Claim::Mutex, None), Outcome::Granted(..)));
    }

    /// `MLOCK.ACQUIRE n keys owner BLOCK 0`
    fn wait(&mut self, keys: &[Word], owner: Word) {
        assert_eq!(self.ask(keys, owner, Claim::Mutex, Some(0)), Outcome::Queued);
    }

    fn release(&mut self, key: Word, owner: Word) {
        let released = self.send(Command::Release { keys: vec![key], owner, claim: Claim::Mutex });
        assert_eq!(released, Outcome::Released(0));
    }

    fn pass(&mut self, ms: Ms) {
        self.simulation.play(&Step::Pass(ms));
    }

    fn holds(&self, key: Word, owner: Word) -> bool {
        self.simulation.model.holds(key, owner)
    }
}

#[test]
fn a_deadlock_is_found_behind_one_that_the_nearest_waiter_may_pass() {
    let mut world = World::new();
    for (key, owner) in [("k", "H"), ("a", "W2"), ("j", "Y"), ("x", "X")] {
        world.hold(key, owner);
    }
    world.wait(&["k", "a", "j"], "W1");
    world.wait(&["k"], "W2");
    world.wait(&["x"], "Y");
    assert_eq!(world.ask(&["k"], "X", Claim::Mutex, Some(0)), Outcome::Refused(Refusal::Deadlock));
}

#[test]
fn nobody_waits_for_a_key_that_it_holds_already() {
    let mut world = World::new();
    world.hold("a", "m");
    world.hold("b", "y");
    world.wait(&["a"], "z");
    world.wait(&["a", "b"], "m");
    world.release("b", "y");
    assert!(world.holds("b", "m"));
}

#[test]
fn who_comes_back_to_its_place_is_waited_for_by_those_behind() {
    let mut world = World::new();
    world.hold("k", "H");
    world.hold("j", "W");
    assert_eq!(world.ask(&["k"], "Y", Claim::Mutex, Some(10)), Outcome::Queued);
    world.wait(&["k"], "W");
    world.pass(20);
    world.wait(&["j"], "Y");
    assert_eq!(world.ask(&["k"], "Y", Claim::Mutex, Some(10)), Outcome::Refused(Refusal::Deadlock));
}
