//! The version of the module, said once: in Cargo.toml.

/// As MODULE LIST tells it: 0.2.0 is 200, 1.2.3 is 10,203.
pub const NUMBER: i32 = 10_000 * number(env!("CARGO_PKG_VERSION_MAJOR"))
    + 100 * number(env!("CARGO_PKG_VERSION_MINOR"))
    + number(env!("CARGO_PKG_VERSION_PATCH"));

/// Digits, as Cargo checked them. (`str::parse` cannot be called at compile time.)
const fn number(digits: &str) -> i32 {
    let digits = digits.as_bytes();
    let (mut number, mut index) = (0, 0);
    while index < digits.len() {
        number = 10 * number + (digits[index] - b'0') as i32;
        index += 1;
    }
    assert!(number < 100, "minor and patch have two digits of the number each");
    number
}
