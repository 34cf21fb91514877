//! The resource guarded by fencing tokens: outside the server, it rejects every write with a smaller token than one
//! that it has seen.

use std::collections::HashMap;
use std::sync::Mutex;

#[derive(Default)]
pub struct Guarded {
    /// By key: the largest fencing token, and the value written with it.
    registers: Mutex<HashMap<String, (i64, u64)>>,
}

impl Guarded {
    /// Returns whether the write was accepted.
    pub fn write(&self, key: &str, fence: i64, value: u64) -> bool {
        let mut registers = self.registers.lock().expect("no panic while it is locked");
        let register = registers.entry(key.into()).or_default();
        let is_accepted = fence >= register.0;
        if is_accepted {
            *register = (fence, value);
        }
        is_accepted
    }
}
