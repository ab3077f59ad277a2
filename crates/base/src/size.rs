//! Sizes as people write them: `10G`, `1.5TiB`, `4096`. Suffixes are powers of 1,024.

/// Why a size is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SizeError {
    /// Not of the form number and suffix.
    Malformed(String),
    /// Below zero.
    Negative(String),
    /// More than 64 bits.
    TooLarge(String),
    /// Not a whole number of bytes.
    Fraction(String),
}

impl std::fmt::Display for SizeError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SizeError::Malformed(text) => {
                write!(
                    formatter,
                    "{text:?} is not a size; write it like 512M, 10G or 1.5TiB (powers of 1,024)"
                )
            }
            SizeError::Negative(text) => {
                write!(formatter, "size {text:?} is negative; give a size above zero")
            }
            SizeError::TooLarge(text) => {
                write!(formatter, "size {text:?} is more than 64 bits can hold; give at most 15E")
            }
            SizeError::Fraction(text) => write!(formatter, "size {text:?} is not a whole number of bytes"),
        }
    }
}

impl std::error::Error for SizeError {}

/// Reads a size in bytes. Suffixes `K M G T P E`, also as `KiB` and `KB`, in any case, are powers of 1,024.
pub fn parse_size_bytes(text: &str) -> Result<u64, SizeError> {
    let trimmed = text.trim();
    let malformed = || SizeError::Malformed(text.to_owned());
    if let Some(rest) = trimmed.strip_prefix('-') {
        let is_number = rest.starts_with(|c: char| c.is_ascii_digit());
        return Err(if is_number { SizeError::Negative(text.to_owned()) } else { malformed() });
    }
    let digits_end = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
    let (number, suffix) = trimmed.split_at(digits_end);
    let shift = match suffix.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        "p" | "pb" | "pib" => 50,
        "e" | "eb" | "eib" => 60,
        _ => return Err(malformed()),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || fraction.contains('.') || (number.contains('.') && fraction.is_empty()) {
        return Err(malformed());
    }
    let too_large = || SizeError::TooLarge(text.to_owned());
    if fraction.len() > 18 {
        return Err(malformed());
    }
    let scale = 10u128.pow(fraction.len() as u32);
    let whole: u128 = whole.parse().map_err(|_| too_large())?;
    let fraction: u128 = if fraction.is_empty() { 0 } else { fraction.parse().map_err(|_| malformed())? };
    let scaled =
        whole.checked_mul(scale).and_then(|value| value.checked_add(fraction)).ok_or_else(too_large)?;
    let bytes = scaled.checked_mul(1u128 << shift).ok_or_else(too_large)?;
    if bytes % scale != 0 {
        return Err(SizeError::Fraction(text.to_owned()));
    }
    u64::try_from(bytes / scale).map_err(|_| too_large())
}

const SUFFIXES: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/// Which suffix keeps a size at 1 or above.
fn power_of(bytes: u64) -> usize {
    if bytes == 0 { 0 } else { (bytes.ilog2() / 10) as usize }
}

/// Shows a size with the largest suffix that keeps it at 1 or above: `1.5 GiB`, `512 B`.
pub fn format_size_bytes(bytes: u64) -> String {
    let power = power_of(bytes);
    let value = bytes as f64 / (1u64 << (10 * power)) as f64;
    let text = format!("{value:.2}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text} {}", SUFFIXES[power])
}

/// Shows the least size that is enough: rounded up to a quarter of its suffix, so that what is shown is enough, too, and can be given.
pub fn format_least_size_bytes(bytes: u64) -> String {
    let quarter = (1u64 << (10 * power_of(bytes))) / 4;
    format_size_bytes(bytes.checked_next_multiple_of(quarter.max(1)).unwrap_or(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_size_that_is_shown_is_enough() {
        for (bytes, text) in
            [(7_471_104, "7.25 MiB"), ((6 << 30) + 1, "6.25 GiB"), (16 << 20, "16 MiB"), (5, "5 B")]
        {
            assert_eq!(format_least_size_bytes(bytes), text);
            assert!(parse_size_bytes(text).is_ok_and(|given| given >= bytes), "{text}");
        }
    }

    #[test]
    fn reads_and_shows_sizes() {
        assert_eq!(parse_size_bytes("10G"), Ok(10 << 30));
        assert_eq!(parse_size_bytes("1.5TiB"), Ok(3 << 39));
        assert_eq!(parse_size_bytes("4096"), Ok(4096));
        assert_eq!(parse_size_bytes("0"), Ok(0));
        assert!(matches!(parse_size_bytes("-1G"), Err(SizeError::Negative(_))));
        assert!(matches!(parse_size_bytes("ten"), Err(SizeError::Malformed(_))));
        assert!(matches!(parse_size_bytes("17E"), Err(SizeError::TooLarge(_))));
        assert!(matches!(parse_size_bytes("0.3"), Err(SizeError::Fraction(_))));
        assert_eq!(format_size_bytes(3 << 29), "1.5 GiB");
        assert_eq!(format_size_bytes(0), "0 B");
    }
}
