//! `SET NX PX`, released by the compare-and-delete command of newer servers, polled every millisecond.
//!
//! Valkey 9 has DELIFEQ, Redis 8.4 has DELEX. Valkey 8.1 and Redis 8.4 have SET … IFEQ, which cannot delete but can
//! shorten the lease to a millisecond.

use std::io;
use std::time::Duration;

use async_io::Timer;

use support::{Connection, Reply};

use super::locker::{lost, ClientConfig, Locker, Step};
use super::names::Names;
use super::rival::Rival;

pub const DELIFEQ: Rival = Rival {
    name: "SET NX PX, DELIFEQ (1 ms)",
    how: "SET NX PX, retried every millisecond; released by DELIFEQ",
    probe: &["DELIFEQ", "probe", "nobody"],
    scripts: &[],
    pair: |pair, names| {
        pair.acquire.push(&set(names));
        pair.release.push(&delifeq(names));
    },
    freed: |reply| *reply == Reply::Int(1),
    open: Some(|config| Box::pin(open(config, |names| delifeq(names).to_vec()))),
};

pub const DELEX: Rival = Rival {
    name: "SET NX PX, DELEX (1 ms)",
    how: "SET NX PX, retried every millisecond; released by DELEX … IFEQ",
    probe: &["DELEX", "probe", "IFEQ", "nobody"],
    scripts: &[],
    pair: |pair, names| {
        pair.acquire.push(&set(names));
        pair.release.push(&delex(names));
    },
    freed: |reply| *reply == Reply::Int(1),
    open: Some(|config| Box::pin(open(config, |names| delex(names).to_vec()))),
};

pub const SET_IFEQ: Rival = Rival {
    name: "SET NX PX, SET IFEQ (1 ms)",
    how: "SET NX PX, retried every millisecond; released by SET … IFEQ … PX 1",
    probe: &["SET", "probe", "nobody", "IFEQ", "nobody", "PX", "1"],
    scripts: &[],
    pair: |pair, names| {
        // Without NX, because the key of the previous round may still exist for a millisecond.
        pair.acquire.push(&["SET", &names.key, &names.token, "PX", &names.lease_ms]);
        pair.release.push(&set_ifeq(names));
    },
    freed: |reply| matches!(reply, Reply::Status(_)),
    open: Some(|config| Box::pin(open(config, |names| set_ifeq(names).to_vec()))),
};

fn set(names: &Names) -> [&str; 6] {
    ["SET", &names.key, &names.token, "NX", "PX", &names.lease_ms]
}

fn delifeq(names: &Names) -> [&str; 3] {
    ["DELIFEQ", &names.key, &names.token]
}

fn delex(names: &Names) -> [&str; 4] {
    ["DELEX", &names.key, "IFEQ", &names.token]
}

fn set_ifeq(names: &Names) -> [&str; 7] {
    ["SET", &names.key, "", "IFEQ", &names.token, "PX", "1"]
}

struct CompareDelete {
    client: Connection,
    config: ClientConfig,
    release: fn(&Names) -> Vec<&str>,
}

async fn open(config: ClientConfig, release: fn(&Names) -> Vec<&str>) -> io::Result<Box<dyn Locker>> {
    Ok(Box::new(CompareDelete { client: config.connect().await?, config, release }))
}

impl Locker for CompareDelete {
    fn acquire(&mut self) -> Step<'_, ()> {
        Box::pin(async {
            while self.client.call(&set(&self.config.names)).await?.is_null() {
                Timer::after(Duration::from_millis(1)).await;
            }
            Ok(())
        })
    }

    fn release(&mut self) -> Step<'_, ()> {
        Box::pin(async {
            match self.client.call(&(self.release)(&self.config.names)).await? {
                Reply::Int(1) | Reply::Status(_) => Ok(()),
                other => Err(lost("SET NX PX", &other)),
            }
        })
    }
}
