//! Numbers for people, rounded to what they can carry.

use crate::spread::Spread;

/// `12,345.6`: separators between thousands, and so many decimals.
pub(crate) fn grouped(value: f64, decimals: usize) -> String {
    if !value.is_finite() {
        return "-".to_owned();
    }
    let text = format!("{value:.decimals$}");
    let (sign, text) = text.strip_prefix('-').map_or(("", text.as_str()), |rest| ("-", rest));
    let (whole, fraction) = text.split_once('.').map_or((text, ""), |(whole, fraction)| (whole, fraction));
    let mut out = String::from(sign);
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    if !fraction.is_empty() {
        out.push('.');
        out += fraction;
    }
    out
}

/// Rounds to a power of ten and shows as many decimals as that needs.
fn at_step(value: f64, exponent: i32) -> String {
    let step = 10f64.powi(exponent);
    let rounded = (value / step).round() * step;
    grouped(rounded, usize::try_from(-exponent).unwrap_or(0))
}

/// The power of ten of the first digit.
fn magnitude(value: f64) -> i32 {
    if value > 0.0 && value.is_finite() { value.log10().floor() as i32 } else { 0 }
}

/// So many digits that say something: `0.0123`, `1.23`, `12,300`.
pub(crate) fn significant(value: f64, digits: i32) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    at_step(value, (magnitude(value.abs()) - digits + 1).max(-6))
}

/// A measured figure: the mean, and half the width of its interval where there is one. The last digit of the mean is one
/// that the interval leaves in doubt.
pub(crate) fn measured(spread: &Spread) -> (String, Option<String>) {
    let half = match spread.half_width() {
        Some(half) if half.is_finite() && half > 0.0 => half,
        _ => return (significant(spread.mean, 3), None),
    };
    let finest = magnitude(spread.mean.abs().max(half)) - 3;
    let exponent = (magnitude(half) - 1).max(finest).max(-6);
    let step = 10f64.powi(exponent);
    (at_step(spread.mean, exponent), Some(at_step((half / step).ceil() * step, exponent)))
}

/// A figure that others published: as they wrote it, up to four digits.
pub(crate) fn as_published(value: f64) -> String {
    let text = significant(value, 4);
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// [`measured`] in one text: `12,340 ± 210`.
pub(crate) fn measured_text(spread: &Spread) -> String {
    match measured(spread) {
        (mean, Some(half)) => format!("{mean} ± {half}"),
        (mean, None) => mean,
    }
}

/// A ratio with as many decimals as its interval allows.
pub(crate) fn ratio_text(ratio: &Spread) -> String {
    // Half of the whole width: its ends are as far from the mean as factors, so the upper one alone would make it look less sure.
    let half = |_| (ratio.high - ratio.low) / 2.0 / ratio.mean.max(f64::MIN_POSITIVE);
    let doubt = ratio.half_width().map_or(0.02, half);
    let decimals = match ratio.mean {
        // Far below 1, two digits that say something.
        mean if mean < 0.1 => return significant(mean, 2),
        mean if mean < 1.0 => 2,
        mean => (if doubt > 0.1 { 1 } else { 2 }) - magnitude(mean),
    };
    let decimals = decimals.max(0);
    grouped(ratio.mean, usize::try_from(decimals).unwrap_or(0))
}

/// An end of a ratio's interval, or any other ratio without one.
pub(crate) fn ratio_end_text(ratio: f64) -> String {
    ratio_text(&Spread { mean: ratio, low: ratio, high: ratio, count: 1 })
}

/// A latency for people: `850 ns`, `12.3 us`, `4.56 ms`, `1.20 s`.
pub(crate) fn latency_us(us: f64) -> String {
    let (value, unit) = match us {
        us if us < 1.0 => (us * 1e3, "ns"),
        us if us < 1e3 => (us, "us"),
        us if us < 1e6 => (us / 1e3, "ms"),
        us => (us / 1e6, "s"),
    };
    format!("{} {unit}", significant(value, 3))
}

/// For axes: `500`, `2k`, `1.5M`.
pub(crate) fn short(value: f64) -> String {
    let (value, unit) = match value.abs() {
        size if size >= 1e9 => (value / 1e9, "G"),
        size if size >= 1e6 => (value / 1e6, "M"),
        size if size >= 1e3 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let text = format!("{value:.3}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{unit}")
}

/// Text from outside without control characters, so that it cannot steer a terminal.
pub(crate) fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// A date and time in UTC: `2026-11-23 01:13 UTC`.
pub(crate) fn utc(unix_s: u64) -> String {
    let (days, seconds) = ((unix_s / 86_400).min(3_000_000) as i64, unix_s % 86_400);
    // Days since 1 March of year 0, in eras of 400 years.
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02} UTC", seconds / 3600, seconds / 60 % 60)
}

/// `4 min 10 s`, `2 h 5 min`.
pub(crate) fn duration(seconds: f64) -> String {
    if !seconds.is_finite() || seconds < 0.0 {
        return "-".to_owned();
    }
    let whole = seconds.round() as u64;
    match whole {
        0..60 => format!("{whole} s"),
        60..3600 => format!("{} min {} s", whole / 60, whole % 60),
        _ => format!("{} h {} min", whole / 3600, whole / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(mean: f64, half: f64) -> Spread {
        Spread { mean, low: mean - half, high: mean + half, count: 3 }
    }

    #[test]
    fn figures_show_no_more_than_they_know() {
        assert_eq!(measured_text(&spread(12_345.6, 213.4)), "12,350 ± 220");
        assert_eq!(measured_text(&spread(163_412.0, 5_900.0)), "163,400 ± 5,900");
        assert_eq!(measured_text(&spread(4.567, 0.213)), "4.57 ± 0.22");
        assert_eq!(measured_text(&Spread { count: 1, ..spread(12_345.6, 0.0) }), "12,300");
        assert_eq!(measured_text(&spread(500.0, 700.0)), "500 ± 700");
        assert_eq!(significant(0.012_34, 3), "0.0123");
        assert_eq!(grouped(-1234.5, 1), "-1,234.5");
        assert_eq!(grouped(f64::NAN, 0), "-");
    }

    #[test]
    fn ratios_and_axes_are_short() {
        assert_eq!(ratio_text(&spread(2.2607, 0.02)), "2.26");
        assert_eq!(ratio_text(&spread(2.2607, 0.4)), "2.3");
        assert_eq!(ratio_text(&spread(0.0213, 0.001)), "0.021");
        assert_eq!(ratio_text(&spread(0.0016, 0.0001)), "0.0016");
        assert_eq!(ratio_text(&spread(0.0004, 0.0001)), "0.00040");
        assert_eq!(
            [0.0, 0.0205, 0.4, 1.049, 12.34].map(ratio_end_text),
            ["0", "0.021", "0.40", "1.05", "12.3"]
        );
        assert_eq!(ratio_text(&spread(123.4, 1.0)), "123");
        assert_eq!(ratio_text(&spread(0.4, 0.1)), "0.40");
        assert_eq!((as_published(364.0), as_published(996.87)), ("364".to_owned(), "996.9".to_owned()));
        assert_eq!(short(1_500_000.0), "1.5M");
        assert_eq!(short(2000.0), "2k");
        assert_eq!(short(0.05), "0.05");
        assert_eq!(latency_us(1774.42), "1.77 ms");
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(utc(0), "1970-01-01 00:00 UTC");
        assert_eq!(utc(951_782_400), "2000-02-29 00:00 UTC");
        assert_eq!(utc(1_795_396_419), "2026-11-23 01:13 UTC");
        assert_eq!(utc(u64::MAX).len(), "10183-10-14 07:00 UTC".len());
        assert_eq!(duration(250.4), "4 min 10 s");
        assert_eq!(clean("a\u{1b}[31m"), "a [31m");
    }
}
