//! The owner ID that a request or hold belongs to: 1 to 1,024 arbitrary bytes.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;

/// Owner IDs up to this length need no heap allocation. A UUID has 36 bytes. With 38, a mutex and its holder take 64
/// bytes, a size class of jemalloc.
const INLINE: usize = 38;

/// The maximum length of an owner ID in bytes.
pub const MAX_OWNER: usize = 1024;

/// An owner ID (a token). Compared and ordered by its bytes.
#[derive(Clone)]
pub struct Owner(Bytes);

#[derive(Clone)]
enum Bytes {
    Inline { len: u8, bytes: [u8; INLINE] },
    Heap(Box<[u8]>),
}

/// A borrowed owner ID: 1 to 1,024 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnerRef<'a>(&'a [u8]);

impl<'a> OwnerRef<'a> {
    /// `None` unless there are 1 to 1,024 bytes.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Option<OwnerRef<'a>> {
        (1..=MAX_OWNER).contains(&bytes.len()).then_some(OwnerRef(bytes))
    }

    /// The bytes as the client sent them.
    #[inline]
    pub fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    /// Copies the bytes.
    #[inline]
    pub fn to_owner(self) -> Owner {
        let bytes = self.0;
        if bytes.len() > INLINE {
            return Owner(Bytes::Heap(bytes.into()));
        }
        let mut inline = [0; INLINE];
        inline[..bytes.len()].copy_from_slice(bytes);
        Owner(Bytes::Inline { len: bytes.len() as u8, bytes: inline })
    }
}

impl Owner {
    /// `None` unless there are 1 to 1,024 bytes.
    pub fn new(bytes: &[u8]) -> Option<Owner> {
        OwnerRef::new(bytes).map(OwnerRef::to_owner)
    }

    /// Borrows the owner ID.
    pub fn as_ref(&self) -> OwnerRef<'_> {
        OwnerRef(self.as_bytes())
    }

    /// The bytes as the client sent them.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Bytes::Inline { len, bytes } => &bytes[..usize::from(*len)],
            Bytes::Heap(bytes) => bytes,
        }
    }

    /// Bytes on the heap, beyond the value itself.
    pub fn heap_bytes(&self) -> usize {
        match &self.0 {
            Bytes::Inline { .. } => 0,
            Bytes::Heap(bytes) => bytes.len(),
        }
    }
}

impl PartialEq for Owner {
    fn eq(&self, other: &Owner) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Owner {}

impl PartialOrd for Owner {
    fn partial_cmp(&self, other: &Owner) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Owner {
    fn cmp(&self, other: &Owner) -> Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

impl Borrow<[u8]> for Owner {
    fn borrow(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.as_bytes().escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_keeps_every_allowed_length() {
        for len in [1, 36, INLINE, INLINE + 1, MAX_OWNER] {
            let bytes = vec![0xff; len];
            assert_eq!(Owner::new(&bytes).unwrap().as_bytes(), bytes);
        }
        assert!(Owner::new(&[]).is_none());
        assert!(Owner::new(&[0; MAX_OWNER + 1]).is_none());
    }

    #[test]
    fn owners_are_compared_and_ordered_by_their_bytes() {
        let (short, longest_inline, long) = ([7; 3], [7; INLINE], [7; INLINE + 1]);
        for bytes in [&short[..], &longest_inline, &long] {
            let owner = Owner::new(bytes).unwrap();
            assert_eq!((owner.as_ref().as_bytes(), owner.as_ref().to_owner()), (bytes, owner.clone()));
            for other in [&short[..], &longest_inline, &long, b"", &[6; 50], &[8]] {
                let order = Owner::new(other).map(|other| owner.cmp(&other));
                let expected = (!other.is_empty()).then(|| bytes.cmp(other));
                assert_eq!(order, expected, "a table of owners is searched by bytes");
                assert_eq!(Owner::new(other).and_then(|other| owner.partial_cmp(&other)), expected);
            }
            assert_ne!(owner, Owner::new(&bytes[1..]).unwrap());
            let heap_bytes = if bytes.len() > INLINE { bytes.len() } else { 0 };
            assert_eq!(owner.heap_bytes(), heap_bytes);
        }
        assert_eq!(format!("{:?}", Owner::new(b"a\x00b").unwrap()), "a\\x00b");
    }
}
