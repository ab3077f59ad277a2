//! Bars, for figures that were taken at one point only.

use std::fmt::Write as _;

use crate::view::labels::cut;

use super::escape::escape;
use super::scale::{Kind, Scale};
use super::svg::{COLOURS, Look, open, text_width};

const WIDTH: f64 = 520.0;
const ROW: f64 = 30.0;
const THICK: f64 = 18.0;
const TOP: f64 = 6.0;
/// Most characters of a label beside a bar.
const LABEL_CHARACTERS_MAX: usize = 30;

/// One bar.
pub(super) struct Bar {
    pub(super) label: String,
    pub(super) look: Look,
    pub(super) value: f64,
    /// Ends of its interval.
    pub(super) interval: Option<(f64, f64)>,
    /// The figure as it is written behind the bar.
    pub(super) text: String,
}

/// Bars of one figure, from 0 on.
pub(super) fn svg(title: &str, bars: &[Bar]) -> String {
    let labels: Vec<&str> = bars.iter().map(|bar| bar.label.as_str()).collect();
    let labels = cut(&labels, LABEL_CHARACTERS_MAX);
    let left = labels.iter().map(|label| text_width(label)).fold(40.0, f64::max) + 10.0;
    let behind = bars.iter().map(|bar| text_width(&bar.text)).fold(30.0, f64::max) + 14.0;
    let room = (WIDTH - left - behind).max(60.0);
    // Wide intervals are cut off, so that they do not flatten the bars.
    let end = |bar: &Bar| bar.interval.map_or(bar.value, |(_, high)| high.clamp(bar.value, bar.value * 1.5));
    let most = bars.iter().filter(|bar| bar.value >= 0.0).map(end);
    let most = most.filter(|value| value.is_finite()).fold(0.0, f64::max);
    let scale = Scale::between(Kind::Linear, 0.0, most);
    let place = |value: f64| scale.place(value).unwrap_or(0.0).max(0.0) * room;
    let height = TOP * 2.0 + ROW * bars.len() as f64;
    let spoken: Vec<String> = bars.iter().map(|bar| format!("{}: {}", bar.label, bar.text)).collect();
    let mut out = open(WIDTH, height, title, &spoken.join(". "));
    for (row, (bar, label)) in bars.iter().zip(&labels).enumerate() {
        let y = TOP + ROW * row as f64 + (ROW - THICK) / 2.0;
        let middle = y + THICK / 2.0;
        let long = place(bar.value).max(1.0);
        let _ = write!(
            out,
            "<text x=\"{:.0}\" y=\"{:.1}\" class=\"end\">{}</text><g class=\"{}\">",
            left - 8.0,
            middle + 4.0,
            escape(label),
            bar.look.class()
        );
        let _ = write!(
            out,
            "<rect class=\"fill\" x=\"{left:.1}\" y=\"{y:.1}\" width=\"{long:.1}\" height=\"{THICK}\"/>{}",
            hatch(bar.look, left, y, long)
        );
        let mut end = left + long;
        if let Some((low, high)) = bar.interval {
            let (low, high) = (left + place(low), left + place(high));
            end = end.max(high);
            let _ = write!(
                out,
                "</g><path class=\"whisker\" d=\"M{low:.1} {:.1}v8m0-4H{high:.1}m0-4v8\"/><g>",
                middle - 4.0
            );
        }
        let _ = write!(
            out,
            "</g><text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            end + 7.0,
            middle + 4.0,
            escape(&bar.text)
        );
    }
    let _ = write!(out, "<path class=\"axis\" d=\"M{left:.1} 2V{:.0}\"/></svg>", height - 2.0);
    out
}

/// Stripes across a bar, so that targets can be told apart without colour.
pub(super) fn hatch(look: Look, x: f64, y: f64, long: f64) -> String {
    let (distance, slope) = match look {
        Look::Target(place) | Look::Tail(place) | Look::Trace(place) => match place % COLOURS {
            0 => return String::new(),
            1 => (9.0, THICK),
            2 => (9.0, 0.0),
            3 => (5.0, THICK),
            4 => (5.0, 0.0),
            _ => (14.0, THICK),
        },
        Look::Published(_) | Look::Straight(_) => return String::new(),
    };
    let mut path = String::new();
    let mut start = distance;
    while start + slope < long {
        let _ = write!(path, "M{:.1} {:.1}l{slope:.1} -{THICK}", x + start, y + THICK);
        start += distance;
    }
    if path.is_empty() { path } else { format!("<path class=\"hatch\" d=\"{path}\"/>") }
}
