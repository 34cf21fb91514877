//! Valkey's atomic slot migration, `CLUSTER MIGRATESLOTS`: its event and the module option that allows it. The crate's
//! bindings know neither.

use std::ffi::{c_char, c_int, c_void};

use super::context::Ctx;
use super::module::{is_valkey, subscribe_to_event, EventCallback};

/// The number of the event, and the version of its data. Redis counts other events up to that number.
pub const EVENT: (u64, u64) = (19, 1);

/// The subevent: the slots of an import belong to this node now.
pub const IMPORT_COMPLETED: u64 = 4;

/// The subevent: the slots of an export belong to the target now.
pub const EXPORT_COMPLETED: u64 = 5;

/// The module option without which Valkey refuses to migrate slots: `…_HANDLE_ATOMIC_SLOT_MIGRATION`.
pub const OPTION: u32 = 1 << 5;

/// From one slot to another, both included.
#[repr(C)]
struct SlotRange {
    first: c_int,
    last: c_int,
}

/// What comes with the event.
#[repr(C)]
struct Migration {
    version: u64,
    job: [c_char; 41],
    ranges: *const SlotRange,
    count: u32,
}

/// Subscribes to the event. False: this server has none of that kind.
pub fn subscribe(ctx: Ctx<'_>, callback: EventCallback) -> bool {
    // Under the event's number Redis may have another.
    is_valkey() && subscribe_to_event(ctx, EVENT.0, EVENT.1, callback)
}

/// Tells the number of each slot that an event is about.
///
/// # Safety
/// `data` came with the event to the callback that is running.
pub unsafe fn each_slot(data: *const c_void, mut tell: impl FnMut(u16)) {
    // SAFETY: with this event comes this structure, and its ranges live as long.
    let ranges = unsafe {
        match data.cast::<Migration>().as_ref() {
            Some(migration) if !migration.ranges.is_null() => {
                std::slice::from_raw_parts(migration.ranges, migration.count as usize)
            }
            _ => return,
        }
    };
    ranges.iter().flat_map(|range| range.first..=range.last).flat_map(u16::try_from).for_each(&mut tell);
}
