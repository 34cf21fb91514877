//! Tokens that are readable in LOCK.INFO, `host:pid:random`, and random numbers for pauses.

use std::process;

const LONGEST: usize = 38;

/// A new token: 64 random bits in hex, after at most 38 bytes of the host's name.
pub fn make_token() -> Vec<u8> {
    token_of(&gethostname::gethostname().to_string_lossy())
}

fn token_of(host: &str) -> Vec<u8> {
    let tail = format!(":{}:{:016x}", process::id(), random());
    let readable = host.chars().map(|char| if char.is_ascii_graphic() { char } else { '?' });
    let mut token: String = readable.take(LONGEST - tail.len()).collect();
    token.push_str(&tail);
    token.into_bytes()
}

fn random() -> u64 {
    getrandom::u64().expect("the system has random numbers")
}

/// A random number in `low..high`.
pub(crate) fn random_between(low: f64, high: f64) -> f64 {
    // 53 bits fit into the fraction of an f64.
    let fraction = (random() >> 11) as f64 / (1u64 << 53) as f64;
    low + (high - low) * fraction
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_short_readable_and_new() {
        let token = String::from_utf8(token_of("a-host-with-a-name-that-is-far-too-long.example.org")).unwrap();
        let parts: Vec<&str> = token.split(':').collect();
        assert!(token.len() <= LONGEST && token.starts_with("a-host-w"), "{token}");
        assert!(parts[1] == process::id().to_string() && parts[2].len() == 16, "{token}");
        assert_ne!(make_token(), make_token());
    }

    #[test]
    fn random_numbers_stay_between() {
        let numbers: Vec<f64> = (0..1000).map(|_| random_between(0.5, 1.5)).collect();
        assert!(numbers.iter().all(|number| (0.5..1.5).contains(number)));
        assert!(numbers.iter().any(|number| *number < 0.6) && numbers.iter().any(|number| *number > 1.4));
    }
}
