//! A text for a state of the model. It is equal for states that differ only in the names of owners, the number of past
//! grants, and the time of day.

use std::fmt::Write;

use super::contract::*;
use super::model::{Model, Until, Value};
use super::world::Saved;

impl Model {
    /// Everything that can influence later steps.
    pub fn describe(&self, keys: &[Name], saved: &Saved) -> String {
        let mut text = String::with_capacity(256);
        let mut owners: Vec<Name> = Vec::new();
        let mut label = |owner: Name| {
            let known = owners.iter().position(|known| *known == owner);
            known.unwrap_or_else(|| {
                owners.push(owner);
                owners.len() - 1
            })
        };
        let ahead_of = |now: Ms, until: Until| match until {
            Until::At(at) => at.saturating_sub(now) as i64,
            Until::Never => -1,
        };
        let Clocks { wall, monotonic } = self.now;
        let ahead = |until| ahead_of(wall, until);
        let wait_ahead = |until| ahead_of(monotonic, until);
        for values in [&self.values, saved.values()] {
            for key in keys {
                let value = values.iter().find(|(name, _)| name == key).map(|(_, value)| value);
                let Some(Value::Lock(lock)) = value else {
                    write!(text, "{value:?};").expect("a string takes all");
                    continue;
                };
                write!(text, "{:?} {} {}:", lock.kind, lock.limit, ahead(lock.until)).expect("a string takes all");
                let mut holders: Vec<_> = lock.holders.iter().collect();
                holders.sort_by_key(|holder| holder.grant);
                for h in holders {
                    let session = h.session.map(|(_, due)| wait_ahead(due));
                    let (owner, until) = (label(h.owner), ahead(h.until));
                    let held = (h.holds, h.stays_at_0, h.reads, h.slot, h.lease, h.is_native);
                    write!(text, "{owner} {held:?} {until} {session:?},").expect("a string takes all");
                }
            }
        }
        for request in &self.requests {
            let asked = &request.asked;
            let (owner, until) = (label(asked.owner), wait_ahead(request.until));
            let detached = request.detached.map(|(_, until)| until - monotonic);
            let (keys, claim, is_upgrade, coalesce) = (&asked.keys, asked.claim, request.is_upgrade, asked.coalesce);
            let held = &request.held;
            let ends = request.lease_deadline.map(|ends| ends.saturating_sub(wall));
            write!(text, "{owner} {keys:?} {claim:?} {until} {detached:?} {is_upgrade} {coalesce} {held:?} {ends:?},")
                .expect("a string takes all");
        }
        let grace = self.grace.map(|(_, until)| until - monotonic);
        let limits: Vec<u32> = keys.iter().map(|key| self.limit(key)).collect();
        write!(text, "{:?} {grace:?} {limits:?}", self.refuses_writes).expect("a string takes all");
        text
    }
}
