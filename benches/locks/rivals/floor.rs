//! The floor: a module of the benchmark's own that does nothing but a fenced lock (benches/floor).

use support::Reply;

use super::names::Names;
use super::rival::{Order, Pair, Rival};

pub const FLOOR: Rival = Rival {
    name: "floor",
    how: "FLOOR.ACQUIRE, FLOOR.RELEASE: the least that a fenced lock costs a module; nobody can wait for it",
    order: Order::Luck,
    probe: &["FLOOR.RELEASE", "probe", "nobody"],
    scripts: &[],
    pair: |pair: &mut Pair, names: &Names| {
        pair.acquire.push(&["FLOOR.ACQUIRE", &names.key, &names.token, "PX", &names.lease_ms]);
        pair.release.push(&["FLOOR.RELEASE", &names.key, &names.token]);
    },
    freed: |reply| *reply == Reply::Int(1),
    open: None,
};

pub const RFLOOR: Rival = Rival {
    name: "replicating floor",
    how: "RFLOOR.ACQUIRE, RFLOOR.RELEASE: the floor with the effects that replicas and an append-only file need",
    pair: |pair: &mut Pair, names: &Names| {
        pair.acquire.push(&["RFLOOR.ACQUIRE", &names.key, &names.token, "PX", &names.lease_ms]);
        pair.release.push(&["RFLOOR.RELEASE", &names.key, &names.token]);
    },
    ..FLOOR
};
