//! A plot of lines in a pair of axes.

use std::fmt::Write as _;

use super::escape::escape;
use super::scale::{Kind, Scale};
use super::svg::{Look, open, text_width};

const WIDTH: f64 = 520.0;
const HEIGHT: f64 = 290.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 44.0;
/// Intervals are shown up to so many times their figure.
const INTERVAL_FACTOR_MAX: f64 = 1.5;
/// Most points that a line is drawn with.
const POINTS_MAX: usize = 160;

/// A point with its interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Dot {
    pub(super) x: f64,
    pub(super) y: f64,
    /// Ends of the interval, where there is one.
    pub(super) interval: Option<(f64, f64)>,
}

/// A line.
pub(super) struct Series {
    pub(super) label: String,
    pub(super) look: Look,
    pub(super) dots: Vec<Dot>,
}

/// One of the two axes.
pub(super) struct Axis {
    /// What it shows, with the unit.
    pub(super) title: String,
    pub(super) kind: Kind,
    /// Values that are written beside it; chosen if there are none.
    pub(super) ticks: Vec<(f64, String)>,
    /// How chosen values are written.
    pub(super) format: fn(f64) -> String,
}

/// A plot.
pub(super) struct Plot {
    pub(super) title: String,
    pub(super) x: Axis,
    pub(super) y: Axis,
    pub(super) series: Vec<Series>,
    /// The highest value of the vertical axis, where it does not follow from the figures.
    pub(super) y_max: Option<f64>,
    /// Whether what lies left of 0 is shaded: load before the measured time.
    pub(super) shade_before_0: bool,
}

impl Plot {
    /// Whether there is something to show.
    pub(super) fn is_empty(&self) -> bool {
        self.series.iter().all(|series| series.dots.is_empty())
    }

    /// The plot as a picture.
    pub(super) fn svg(&self) -> String {
        let dots = || self.series.iter().flat_map(|series| &series.dots);
        let xs: Vec<f64> = dots().map(|dot| dot.x).chain(self.x.ticks.iter().map(|(x, _)| *x)).collect();
        let x_scale = match self.x.kind {
            // The ends of a logarithmic axis are points, not round numbers.
            Kind::Logarithmic => {
                let positive = || xs.iter().copied().filter(|x| *x > 0.0 && x.is_finite());
                let low = positive().fold(f64::INFINITY, f64::min);
                let high = positive().fold(0.0, f64::max);
                if low < high {
                    Scale::between(Kind::Logarithmic, low, high)
                } else {
                    Scale::around(self.x.kind, positive())
                }
            }
            kind => Scale::around(kind, xs.iter().copied()),
        };
        let ys = dots().flat_map(|dot| {
            let (low, high) = dot.interval.unwrap_or((dot.y, dot.y));
            // Wide intervals are cut off, so that they do not flatten the lines.
            [dot.y, low.max(dot.y / INTERVAL_FACTOR_MAX), high.min(dot.y * INTERVAL_FACTOR_MAX)]
        });
        let y_scale = match self.y_max {
            Some(most) => Scale::between(self.y.kind, 0.0, most),
            None => Scale::around(self.y.kind, ys),
        };
        let mut out = open(WIDTH, HEIGHT, &self.title, &self.description());
        self.draw_axes(&mut out, &x_scale, &y_scale);
        // What was not measured lies under what was.
        let (under, measured): (Vec<&Series>, Vec<&Series>) = self
            .series
            .iter()
            .partition(|series| matches!(series.look, Look::Published(_) | Look::Straight(_)));
        for series in under.into_iter().chain(measured) {
            draw(&mut out, series, &x_scale, &y_scale);
        }
        out + "</svg>"
    }

    fn description(&self) -> String {
        let mut text = format!("{} against {}.", self.y.title, self.x.title);
        for series in &self.series {
            if let (Some(first), Some(last)) = (series.dots.first(), series.dots.last()) {
                let _ = write!(text, " {}: {}", series.label, (self.y.format)(first.y));
                if series.dots.len() > 1 {
                    let _ = write!(text, " to {}", (self.y.format)(last.y));
                }
                text.push('.');
            }
        }
        text
    }

    fn draw_axes(&self, out: &mut String, x_scale: &Scale, y_scale: &Scale) {
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        if self.shade_before_0
            && let Some(begin) = place_x(x_scale, 0.0)
        {
            let _ = write!(
                out,
                "<rect class=\"shade\" x=\"{LEFT}\" y=\"{TOP}\" width=\"{:.1}\" height=\"{:.1}\"/>",
                (begin - LEFT).max(0.0),
                bottom - TOP
            );
        }
        let mut grid = String::new();
        let mut texts = String::new();
        for tick in y_scale.ticks() {
            let Some(y) = place_y(y_scale, tick) else { continue };
            let _ = write!(grid, "M{LEFT} {y:.1}H{right}");
            let label = escape(&(self.y.format)(tick));
            let _ = write!(
                texts,
                "<text x=\"{:.0}\" y=\"{:.1}\" class=\"end\">{label}</text>",
                LEFT - 7.0,
                y + 4.0
            );
        }
        let chosen: Vec<(f64, String)> =
            x_scale.ticks().into_iter().map(|tick| (tick, (self.x.format)(tick))).collect();
        let mut free_from = f64::NEG_INFINITY;
        for (tick, label) in if self.x.ticks.is_empty() { &chosen } else { &self.x.ticks } {
            let Some(x) = place_x(x_scale, *tick) else { continue };
            let _ = write!(grid, "M{x:.1} {bottom}v5");
            // Labels that would run into the one before are left out.
            let half = text_width(label) / 2.0;
            let middle = x.min(WIDTH - half - 2.0);
            if middle - half >= free_from {
                free_from = middle + half + 6.0;
                let _ = write!(
                    texts,
                    "<text x=\"{middle:.1}\" y=\"{:.0}\" class=\"mid\">{}</text>",
                    bottom + 18.0,
                    escape(label)
                );
            }
        }
        let _ = write!(
            out,
            "<path class=\"grid\" d=\"{grid}\"/><path class=\"axis\" d=\"M{LEFT} {TOP}V{bottom}H{right}\"/>{texts}\
             <text x=\"{:.0}\" y=\"{:.0}\" class=\"mid name\">{}</text>",
            (LEFT + right) / 2.0,
            HEIGHT - 7.0,
            escape(&self.x.title)
        );
    }
}

fn place_x(scale: &Scale, x: f64) -> Option<f64> {
    scale.place(x).map(|place| LEFT + place * (WIDTH - LEFT - RIGHT))
}

fn place_y(scale: &Scale, y: f64) -> Option<f64> {
    scale.place(y).map(|place| HEIGHT - BOTTOM - place * (HEIGHT - BOTTOM - TOP))
}

fn draw(out: &mut String, series: &Series, x_scale: &Scale, y_scale: &Scale) {
    let stride = series.dots.len().div_ceil(POINTS_MAX).max(1);
    let (mut line, mut marks, mut bars) = (String::new(), String::new(), String::new());
    for dot in series.dots.iter().step_by(stride) {
        let (Some(x), Some(y)) = (place_x(x_scale, dot.x), place_y(y_scale, dot.y)) else { continue };
        let _ = write!(line, "{}{x:.1} {y:.1}", if line.is_empty() { "M" } else { "L" });
        marks += &series.look.mark(x, y);
        if let Some((low, high)) = dot.interval
            && let Some(high) = place_y(y_scale, high)
        {
            let low = place_y(y_scale, low).unwrap_or(HEIGHT - BOTTOM);
            let _ = write!(bars, "M{:.1} {low:.1}h6m-3 0V{high:.1}m-3 0h6", x - 3.0);
        }
    }
    let _ = write!(out, "<g class=\"{}\">", series.look.class());
    if !line.is_empty() {
        let _ = write!(out, "<path class=\"line\" d=\"{line}\"{}/>", series.look.dash_attribute());
    }
    if !bars.is_empty() {
        let _ = write!(out, "<path class=\"bar\" d=\"{bars}\"/>");
    }
    let _ = write!(out, "{marks}</g>");
}
