//! The stored lock, in one allocation, and the callbacks of its type.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr::{null_mut, NonNull};
use std::slice;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use redis_module::native_types::RedisType;
use redis_module::raw;

use crate::{api, LAST};

/// The version of the stored bytes.
const VERSION: c_int = 1;

/// Fence and deadline.
const NUMBERS: usize = 16;

/// A pointer to a length and that many bytes: the payload, which is also replicated and saved. It consists of the fence
/// and the deadline in ms since the epoch (-1: never), both as eight bytes in little-endian order, and the token.
#[derive(Clone, Copy)]
pub struct Value(NonNull<usize>);

impl Value {
    pub fn new(fence: u64, until: i64, token: &[u8]) -> Value {
        let value = Value::allocate(NUMBERS + token.len());
        // SAFETY: there is room for both numbers and the token.
        unsafe {
            let payload = value.start();
            payload.cast::<u64>().write_unaligned(fence.to_le());
            payload.add(8).cast::<i64>().write_unaligned(until.to_le());
            payload.add(NUMBERS).copy_from_nonoverlapping(token.as_ptr(), token.len());
        }
        value
    }

    /// `None` if there are too few bytes.
    pub fn from_payload(payload: &[u8]) -> Option<Value> {
        if payload.len() < NUMBERS {
            return None;
        }
        let value = Value::allocate(payload.len());
        // SAFETY: there is room for the payload.
        unsafe { value.start().copy_from_nonoverlapping(payload.as_ptr(), payload.len()) };
        Some(value)
    }

    /// # Safety
    /// The pointer is the value of a key of our type.
    pub unsafe fn of_key(value: *mut c_void) -> Value {
        // SAFETY: the caller vouches for it.
        Value(unsafe { NonNull::new_unchecked(value.cast()) })
    }

    pub fn raw(self) -> *mut c_void {
        self.0.as_ptr().cast()
    }

    /// # Safety
    /// The value outlives what is returned.
    pub unsafe fn payload<'a>(self) -> &'a [u8] {
        // SAFETY: that many bytes follow the length, and they are written before the value is used.
        unsafe { slice::from_raw_parts(self.start(), self.0.read()) }
    }

    /// # Safety
    /// The value outlives what is returned.
    pub unsafe fn token<'a>(self) -> &'a [u8] {
        // SAFETY: the caller vouches for it.
        unsafe { self.payload() }.get(NUMBERS..).unwrap_or_default()
    }

    pub fn fence(self) -> u64 {
        u64::from_le_bytes(self.number(0))
    }

    pub fn until(self) -> i64 {
        i64::from_le_bytes(self.number(8))
    }

    fn number(self, from: usize) -> [u8; 8] {
        // SAFETY: the bytes are copied at once.
        let payload = unsafe { self.payload() };
        payload.get(from..from + 8).and_then(|bytes| bytes.try_into().ok()).unwrap_or_default()
    }

    fn start(self) -> *mut u8 {
        // SAFETY: the allocation continues after the length.
        unsafe { self.0.as_ptr().add(1).cast() }
    }

    /// Allocates a value and writes only its length.
    fn allocate(len: usize) -> Value {
        let size = size_of::<usize>() + len;
        // SAFETY: the server's allocator never returns null, and its memory is aligned for a length. A spare block is
        // large enough and has no other owner.
        unsafe {
            let kept = if size <= SMALL { KEPT.replace(null_mut()) } else { null_mut() };
            let memory = if kept.is_null() { api!(RedisModule_Alloc(size.max(SMALL))) } else { kept };
            let value = NonNull::new_unchecked(memory.cast::<usize>());
            value.write(len);
            Value(value)
        }
    }
}

/// The minimum size of an allocation: enough for a token of 36 bytes.
const SMALL: usize = 64;

thread_local! {
    /// The memory of the latest value, reused for the next; null if there is none. Thread-local, because FLUSHALL ASYNC
    /// frees on another thread.
    static KEPT: Cell<*mut c_void> = const { Cell::new(null_mut()) };
}

pub static LOCKFLOOR: RedisType = RedisType::new(
    "lockfloor",
    VERSION,
    raw::RedisModuleTypeMethods {
        version: raw::REDISMODULE_TYPE_METHOD_VERSION as u64,
        rdb_load: Some(load),
        rdb_save: Some(save),
        aof_rewrite: Some(rewrite),
        mem_usage: None,
        digest: None,
        free: Some(free),
        aux_load: None,
        aux_save: None,
        aux_save_triggers: 0,
        free_effort: None,
        unlink: None,
        copy: None,
        defrag: None,
        mem_usage2: None,
        free_effort2: None,
        unlink2: None,
        copy2: None,
        aux_save2: None,
    },
);

/// The server's handle for the type.
static TYPE: AtomicPtr<raw::RedisModuleType> = AtomicPtr::new(null_mut());

/// Valid after the type was registered.
pub fn start() {
    TYPE.store(*LOCKFLOOR.raw_type.borrow(), Relaxed);
}

pub fn data_type() -> *mut raw::RedisModuleType {
    TYPE.load(Relaxed)
}

unsafe extern "C" fn save(rdb: *mut raw::RedisModuleIO, value: *mut c_void) {
    // SAFETY: the server passes a value of our type and what it is to be written to.
    unsafe {
        let payload = Value::of_key(value).payload();
        api!(RedisModule_SaveStringBuffer(rdb, payload.as_ptr().cast(), payload.len()));
    }
}

unsafe extern "C" fn load(rdb: *mut raw::RedisModuleIO, version: c_int) -> *mut c_void {
    if version != VERSION {
        return null_mut();
    }
    // SAFETY: the server passes what is to be read; the buffer is ours to free.
    unsafe {
        let mut len = 0;
        let buffer = api!(RedisModule_LoadStringBuffer(rdb, &mut len));
        if buffer.is_null() {
            return null_mut();
        }
        let value = Value::from_payload(slice::from_raw_parts(buffer.cast(), len));
        api!(RedisModule_Free(buffer.cast()));
        let Some(value) = value else { return null_mut() };
        LAST.fetch_max(value.fence(), Relaxed);
        value.raw()
    }
}

unsafe extern "C" fn rewrite(aof: *mut raw::RedisModuleIO, key: *mut raw::RedisModuleString, value: *mut c_void) {
    // SAFETY: the server passes the file, the key and a value of our type; format and arguments agree.
    unsafe {
        let payload = Value::of_key(value).payload();
        let (command, format) = (c"BARE.APPLY".as_ptr(), c"sb".as_ptr());
        api!(RedisModule_EmitAOF(aof, command, format, key, payload.as_ptr(), payload.len()));
    }
}

unsafe extern "C" fn free(value: *mut c_void) {
    let before = KEPT.replace(value);
    if !before.is_null() {
        // SAFETY: the server passed a value that we allocated, and has forgotten it.
        unsafe { api!(RedisModule_Free(before)) };
    }
}
