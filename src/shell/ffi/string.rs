//! The server's string objects: arguments of a command, names of keys, and strings that the module creates.

use std::ffi::c_int;
use std::marker::PhantomData;
use std::ptr::{null_mut, NonNull};

use command::host::KeyArguments;
use command::parse::Argument;
use redis_module::raw;

use super::api;

/// A server string object that is neither freed nor modified for `'s`.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Str<'s> {
    string: NonNull<raw::RedisModuleString>,
    owner: PhantomData<&'s ()>,
}

/// A string object that we own, freed when dropped.
pub struct OwnedStr(NonNull<raw::RedisModuleString>);

impl<'s> Str<'s> {
    /// `None` for a null pointer.
    ///
    /// # Safety
    /// The string is neither freed nor modified for `'s`.
    pub unsafe fn new(string: *mut raw::RedisModuleString) -> Option<Str<'s>> {
        Some(Str { string: NonNull::new(string)?, owner: PhantomData })
    }

    /// For calls to the API.
    pub fn raw(self) -> *mut raw::RedisModuleString {
        self.string.as_ptr()
    }

    #[inline]
    pub fn bytes(self) -> &'s [u8] {
        let mut len = 0;
        // SAFETY: the string is valid and unmodified for 's, and so are its bytes.
        unsafe {
            let start = api!(RedisModule_StringPtrLen(self.raw(), &mut len));
            match NonNull::new(start.cast_mut()) {
                Some(start) => std::slice::from_raw_parts(start.as_ptr().cast(), len),
                None => &[],
            }
        }
    }
}

impl<'s> Argument<'s> for Str<'s> {
    #[inline]
    fn bytes(self) -> &'s [u8] {
        Str::bytes(self)
    }
}

/// The arguments of a command, beginning with its name.
///
/// # Safety
/// The server passed both to the running callback: the arguments are neither freed nor modified for `'c`, and none is
/// null.
pub unsafe fn arguments<'c>(argv: *mut *mut raw::RedisModuleString, argc: c_int) -> &'c [Str<'c>] {
    let len = usize::try_from(argc).unwrap_or(0);
    // SAFETY: `Str` is a transparent wrapper of a non-null pointer; the caller guarantees the rest.
    unsafe { std::slice::from_raw_parts(argv.cast::<Str<'c>>(), len) }
}

impl OwnedStr {
    /// Creates a string object with these bytes.
    pub fn new(bytes: &[u8]) -> OwnedStr {
        // SAFETY: the server copies the bytes; without a context we are the only owner. The server aborts rather than
        // returning null.
        let string = unsafe { api!(RedisModule_CreateString(null_mut(), bytes.as_ptr().cast(), bytes.len())) };
        OwnedStr(NonNull::new(string).expect("the server never returns null"))
    }

    /// A string that the server created for us; `None` for a null pointer.
    ///
    /// # Safety
    /// We own it, and no other pointer to it exists.
    pub unsafe fn of_server(string: *mut raw::RedisModuleString) -> Option<OwnedStr> {
        NonNull::new(string).map(OwnedStr)
    }

    pub fn as_str(&self) -> Str<'_> {
        Str { string: self.0, owner: PhantomData }
    }
}

impl Drop for OwnedStr {
    fn drop(&mut self) {
        // SAFETY: we own one reference.
        unsafe { api!(RedisModule_FreeString(null_mut(), self.0.as_ptr())) };
    }
}

/// The name of a key as a string object of the server.
pub enum StrOfKey<'a> {
    /// An argument of the running command.
    Argument(Str<'a>),
    /// Created for this key.
    New(OwnedStr),
}

impl<'a> StrOfKey<'a> {
    /// Finds the argument with this name. If there are several, compares only pointers, because comparing the bytes of
    /// up to 128 names for each key would cost too much.
    #[inline]
    pub fn find(arguments: &KeyArguments<'a, Str<'a>>, name: &[u8]) -> StrOfKey<'a> {
        let KeyArguments { arguments, names } = arguments;
        let is_match = |argument: &&[u8]| match names {
            [_] => *argument == name,
            _ => std::ptr::eq(*argument, name),
        };
        let position = names.iter().position(is_match);
        match position.and_then(|position| arguments.get(position)) {
            Some(argument) => StrOfKey::Argument(*argument),
            None => StrOfKey::New(OwnedStr::new(name)),
        }
    }

    #[inline]
    pub fn as_str(&self) -> Str<'_> {
        match self {
            StrOfKey::Argument(name) => *name,
            StrOfKey::New(name) => name.as_str(),
        }
    }
}
