//! The minimal cost of any pair: two commands that do nothing, and two that set and delete a key without checking the
//! owner.

use support::Reply;

use super::names::Names;
use super::rival::{Pair, Rival};

pub const PING: Rival = Rival {
    name: "PING, PING",
    how: "two commands that do nothing: the cost of asking",
    probe: &[],
    scripts: &[],
    pair: |pair: &mut Pair, _: &Names| {
        pair.acquire.push(&["PING"]);
        pair.release.push(&["PING"]);
    },
    freed: |reply| matches!(reply, Reply::Status(_)),
    open: None,
};

pub const SET_DEL: Rival = Rival {
    name: "SET NX PX, DEL",
    how: "no lock: the DEL also frees a later holder",
    probe: &[],
    scripts: &[],
    pair: |pair: &mut Pair, names: &Names| {
        pair.acquire.push(&["SET", &names.key, &names.token, "NX", "PX", &names.lease_ms]);
        pair.release.push(&["DEL", &names.key]);
    },
    freed: |reply| *reply == Reply::Int(1),
    open: None,
};
