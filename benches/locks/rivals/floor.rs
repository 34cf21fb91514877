//! The floor: the benchmark's minimal module with only a fenced lock (benches/floor).

use support::Reply;

use super::names::Names;
use super::rival::{Pair, Rival};

pub const FLOOR: Rival = Rival {
    name: "floor",
    how: "BARE.ACQUIRE, BARE.RELEASE: the least that a fenced lock costs a module; it has no waiting",
    probe: &["BARE.RELEASE", "probe", "nobody"],
    scripts: &[],
    pair: |pair: &mut Pair, names: &Names| {
        pair.acquire.push(&["BARE.ACQUIRE", &names.key, &names.token, "PX", &names.lease_ms]);
        pair.release.push(&["BARE.RELEASE", &names.key, &names.token]);
    },
    freed: |reply| *reply == Reply::Int(1),
    open: None,
};

pub const RFLOOR: Rival = Rival {
    name: "replicating floor",
    how: "REPL.ACQUIRE, REPL.RELEASE: the floor with the effects that replicas and an append-only file need",
    pair: |pair: &mut Pair, names: &Names| {
        pair.acquire.push(&["REPL.ACQUIRE", &names.key, &names.token, "PX", &names.lease_ms]);
        pair.release.push(&["REPL.RELEASE", &names.key, &names.token]);
    },
    ..FLOOR
};
