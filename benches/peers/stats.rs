//! Figures of samples.

/// The value below which this share of the samples lies; 0 if there are none.
pub fn percentile(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        count => values[((count - 1) as f64 * share).round() as usize],
    }
}

/// Three significant digits, or a whole number unchanged, with thousands separators.
pub fn digits(value: f64) -> String {
    let size = value.abs();
    let text = match size {
        _ if size >= 100.0 || size.fract() == 0.0 => format!("{value:.0}"),
        _ if size >= 10.0 => format!("{value:.1}"),
        _ if size >= 1.0 => format!("{value:.2}"),
        _ if size >= 0.01 => format!("{value:.3}"),
        _ => format!("{value:.4}"),
    };
    let (whole, rest) = text.split_once('.').map_or((text.as_str(), String::new()), |(a, b)| (a, format!(".{b}")));
    let mut grouped = String::new();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index) % 3 == 0 && digit.is_ascii_digit() {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped + &rest
}
