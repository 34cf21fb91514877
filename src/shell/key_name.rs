//! The name of a key as a string object of the server: an argument of the running command, or a new one.

use command::host::KeyArguments;

use crate::shell::ffi::string::{OwnedStr, Str};

pub enum StrOfKey<'a> {
    Argument(Str<'a>),
    /// Created for this key.
    Own(OwnedStr),
}

impl<'a> StrOfKey<'a> {
    /// If there is more than one argument, compares pointers only: comparing each key with the names of 128 keys would
    /// cost too much.
    #[inline]
    pub fn find(arguments: &KeyArguments<'a, Str<'a>>, name: &[u8]) -> StrOfKey<'a> {
        let KeyArguments { arguments, names } = arguments;
        let is_it = |argument: &&[u8]| match names {
            [_] => *argument == name,
            _ => std::ptr::eq(*argument, name),
        };
        let position = names.iter().position(is_it);
        match position.and_then(|position| arguments.get(position)) {
            Some(argument) => StrOfKey::Argument(*argument),
            None => StrOfKey::Own(OwnedStr::new(name)),
        }
    }

    #[inline]
    pub fn as_str(&self) -> Str<'_> {
        match self {
            StrOfKey::Argument(name) => *name,
            StrOfKey::Own(name) => name.as_str(),
        }
    }
}
