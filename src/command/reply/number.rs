//! Numbers, as replies have them: signed, 64 bits.

use lock::key::ClientId;
use lock::value::fence::Fence;

/// A fence.
pub(super) fn of_fence(fence: Fence) -> i64 {
    fence.signed()
}

/// A client's id, 0 for none.
pub(super) fn of_client(client: Option<ClientId>) -> i64 {
    client.map_or(0, |ClientId(id)| i64::try_from(id).expect("the server counts its clients up from 1"))
}

/// How many there are of something that is in memory.
pub(super) fn of_len(len: usize) -> i64 {
    i64::try_from(len).expect("no collection has more than isize::MAX elements")
}

/// Milliseconds between two timestamps.
pub(super) fn of_ms(ms: u64) -> i64 {
    i64::try_from(ms).expect("a timestamp is at most 2^63 - 1 ms")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_written_as_it_is() {
        assert_eq!(of_fence(Fence::new((1 << 53) - 1).unwrap()), (1 << 53) - 1);
        assert_eq!((of_client(None), of_client(Some(ClientId(7)))), (0, 7));
        assert_eq!((of_len(0), of_len(7)), (0, 7));
        assert_eq!((of_ms(0), of_ms(i64::MAX as u64)), (0, i64::MAX));
    }
}
