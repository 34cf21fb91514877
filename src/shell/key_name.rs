//! The name of a key as a string object of the server: an argument of the running command, or a new one.

use command::host::KeyArguments;

use crate::shell::ffi::string::{OwnedStr, Str};

pub enum StrOfKey<'a> {
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
