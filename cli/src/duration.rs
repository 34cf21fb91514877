//! Formats the server's milliseconds for people: about three digits, in the unit that fits.

/// `850ms`, `4.2s`, `1m01s`, `3h07m`, `12d05h`.
pub fn human(ms: u64) -> String {
    let s = ms / 1000;
    match s {
        0 => format!("{ms}ms"),
        1..60 => format!("{s}.{}s", ms % 1000 / 100),
        60..3_600 => format!("{}m{:02}s", s / 60, s % 60),
        3_600..86_400 => format!("{}h{:02}m", s / 3_600, s / 60 % 60),
        _ => format!("{}d{:02}h", s / 86_400, s / 3_600 % 24),
    }
}

/// The remaining time of a lease or key. -1 means no expiry, -2 a free key with waiters.
pub fn left(ttl: i64) -> String {
    match u64::try_from(ttl) {
        Ok(ms) => human(ms),
        Err(_) if ttl == -2 => "free".to_string(),
        Err(_) => "no deadline".to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_shown_in_the_unit_that_fits() {
        let shown = [0, 999, 1_000, 1_999, 59_999, 60_000, 61_500, 3_599_999, 3_600_000, 86_399_999, 86_400_000];
        let texts = shown.map(human);
        let expected =
            ["0ms", "999ms", "1.0s", "1.9s", "59.9s", "1m00s", "1m01s", "59m59s", "1h00m", "23h59m", "1d00h"];
        assert_eq!(texts, expected);
    }

    #[test]
    fn missing_times_are_shown_as_words() {
        assert_eq!([left(-1), left(-2), left(1500)], ["no deadline", "free", "1.5s"]);
    }
}
