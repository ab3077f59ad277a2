//! Pieces of pictures that all plots share: how a target looks, wherever it is drawn.

use std::fmt::Write as _;

use super::escape::escape;

/// Line styles, so that targets can be told apart without colour.
const DASHES: [&str; 6] = ["", "8 4", "2 3", "10 3 2 3", "5 2", "1 4"];
/// Line styles of published figures.
const PUBLISHED_DASHES: [&str; 3] = ["4 3", "1.5 3", "7 2 1.5 2"];
/// Colours that are told apart.
pub(super) const COLOURS: usize = 6;

/// How a series is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// A target's main figure: a line with filled marks.
    Target(usize),
    /// A target's second figure: a thin line with hollow marks.
    Tail(usize),
    /// A published system: thin, grey and dashed.
    Published(usize),
    /// A target over time: a line without marks.
    Trace(usize),
    /// What a target would give in proportion: a thin dotted line without marks.
    Straight(usize),
}

impl Look {
    /// The class that colours it.
    pub(super) fn class(self) -> String {
        match self {
            Look::Target(place) | Look::Trace(place) => format!("s{}", place % COLOURS),
            Look::Tail(place) => format!("s{} tail", place % COLOURS),
            Look::Straight(place) => format!("s{} straight", place % COLOURS),
            Look::Published(_) => "pub".to_owned(),
        }
    }

    fn dash(self) -> &'static str {
        match self {
            Look::Target(place) | Look::Tail(place) | Look::Trace(place) => DASHES[place % DASHES.len()],
            Look::Published(place) => PUBLISHED_DASHES[place % PUBLISHED_DASHES.len()],
            Look::Straight(_) => "1.5 2.5",
        }
    }

    /// ` stroke-dasharray="8 4"`, or nothing for a whole line.
    pub(super) fn dash_attribute(self) -> String {
        match self.dash() {
            "" => String::new(),
            dash => format!(" stroke-dasharray=\"{dash}\""),
        }
    }

    /// The mark of a point, if it has marks.
    pub(super) fn mark(self, x: f64, y: f64) -> String {
        match self {
            Look::Target(place) => mark(place, x, y, 3.6),
            Look::Tail(place) => mark(place, x, y, 2.6),
            Look::Published(place) => mark(place + 3, x, y, 2.4),
            Look::Trace(_) | Look::Straight(_) => String::new(),
        }
    }
}

/// A shape around a place: circle, square, triangle, diamond, and two more.
fn mark(shape: usize, x: f64, y: f64, r: f64) -> String {
    let d = r * 1.25;
    match shape % 6 {
        0 => format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{r:.1}\"/>"),
        1 => {
            format!("<path d=\"M{:.1} {:.1}h{:.1}v{:.1}h-{:.1}z\"/>", x - r, y - r, 2.0 * r, 2.0 * r, 2.0 * r)
        }
        2 => format!("<path d=\"M{x:.1} {:.1}l{d:.1} {:.1}h-{:.1}z\"/>", y - d, 2.0 * r, 2.0 * d),
        3 => format!("<path d=\"M{x:.1} {:.1}l{d:.1} {d:.1}l-{d:.1} {d:.1}l-{d:.1} -{d:.1}z\"/>", y - d),
        4 => format!("<path d=\"M{x:.1} {:.1}l{d:.1} -{:.1}h-{:.1}z\"/>", y + d, 2.0 * r, 2.0 * d),
        _ => format!("<path d=\"M{:.1} {y:.1}h{:.1}M{x:.1} {:.1}v{:.1}\"/>", x - r, 2.0 * r, y - r, 2.0 * r),
    }
}

/// Opens a picture with its description.
pub(super) fn open(width: f64, height: f64, title: &str, description: &str) -> String {
    format!(
        "<svg viewBox=\"0 0 {width:.0} {height:.0}\" role=\"img\"><title>{}</title><desc>{}</desc>",
        escape(title),
        escape(description)
    )
}

/// How wide a text is drawn in the size that plots use, roughly.
pub(super) fn text_width(text: &str) -> f64 {
    text.chars().count() as f64 * 7.1
}

/// A legend: what each look stands for.
pub(super) fn legend(entries: &[(Look, String)]) -> String {
    let mut out = String::from("<ul class=\"legend\">");
    for (look, label) in entries {
        let _ = write!(
            out,
            "<li><svg viewBox=\"0 0 34 12\" class=\"key\" aria-hidden=\"true\"><g class=\"{}\"><path class=\"line\" d=\"M1 6H33\"{}/>{}</g></svg>{}</li>",
            look.class(),
            look.dash_attribute(),
            look.mark(17.0, 6.0),
            escape(label)
        );
    }
    out + "</ul>"
}
