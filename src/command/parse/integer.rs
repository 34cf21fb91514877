//! Integers as Redis reads them: decimal, no sign but `-`, no spaces, no leading zeros.

/// No integer has more, and any that many fit an unsigned number: none has to be checked on the way.
const MOST_DIGITS: usize = 19;

/// The integer that these bytes spell, if they spell one in Redis's way (`string2ll`).
#[inline]
pub fn integer(bytes: &[u8]) -> Option<i64> {
    if let [digit @ b'0'..=b'9'] = bytes {
        return Some(i64::from(digit - b'0'));
    }
    let (negative, digits) = match bytes {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, bytes),
    };
    if !matches!(digits.first(), Some(b'1'..=b'9')) {
        return None;
    }
    if digits.len() > MOST_DIGITS {
        return None;
    }
    let mut magnitude: u64 = 0;
    for byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        magnitude = magnitude * 10 + u64::from(digit);
    }
    if negative {
        0_i64.checked_sub_unsigned(magnitude)
    } else {
        i64::try_from(magnitude).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::integer;

    #[test]
    fn reads_what_redis_reads_and_nothing_else() {
        for number in [0, 9, 10, -1, 30_000, i64::MAX, i64::MIN] {
            assert_eq!(integer(number.to_string().as_bytes()), Some(number));
        }
        for bytes in [
            "",
            "-",
            "+1",
            "01",
            "-0",
            " 1",
            "1 ",
            "1.0",
            "1e3",
            "0x1",
            "1:",
            "1/",
            "9223372036854775808",
            "-9223372036854775809",
            "99999999999999999999",
            "٣",
        ] {
            assert_eq!(integer(bytes.as_bytes()), None, "{bytes}");
        }
    }
}
