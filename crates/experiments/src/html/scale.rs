//! Where values lie on an axis, and which of them are written beside it.

/// Most ticks that are wished for.
const TICKS_WISHED: f64 = 6.0;

/// How values are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Equal steps, from 0 on.
    Linear,
    /// Equal steps, from the least value on.
    Time,
    /// Equal ratios.
    Logarithmic,
}

/// Values to places between 0 and 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Scale {
    kind: Kind,
    low: f64,
    high: f64,
}

impl Scale {
    /// A scale that shows all values, with round ends. Values that it cannot show are left out.
    pub(super) fn around(kind: Kind, values: impl Iterator<Item = f64>) -> Self {
        let shown = |value: &f64| value.is_finite() && (kind != Kind::Logarithmic || *value > 0.0);
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.filter(shown) {
            low = low.min(value);
            high = high.max(value);
        }
        match kind {
            _ if low > high => Scale { kind, low: 1.0, high: 10.0 },
            Kind::Logarithmic => Scale { kind, low: round_down(low), high: round_up(high.max(low * 1.5)) },
            Kind::Linear => {
                let high = if high > 0.0 { high } else { 1.0 };
                let step = step(high);
                Scale { kind, low: 0.0, high: (high / step).ceil() * step }
            }
            Kind::Time => Scale { kind, low, high: if high > low { high } else { low + 1.0 } },
        }
    }

    /// The same between given ends, which are not rounded.
    pub(super) fn between(kind: Kind, low: f64, high: f64) -> Self {
        Scale { kind, low, high: if high > low { high } else { low * 2.0 + 1.0 } }
    }

    /// Where a value lies: 0 at the low end, 1 at the high end. `None` for what cannot be shown.
    pub(super) fn place(&self, value: f64) -> Option<f64> {
        let place = match self.kind {
            Kind::Linear | Kind::Time => (value - self.low) / (self.high - self.low),
            Kind::Logarithmic if value <= 0.0 => return None,
            Kind::Logarithmic => (value / self.low).ln() / (self.high / self.low).ln(),
        };
        place.is_finite().then(|| place.clamp(-0.02, 1.02))
    }

    /// Values beside which a line is drawn.
    pub(super) fn ticks(&self) -> Vec<f64> {
        if self.kind != Kind::Logarithmic {
            let step = step(self.high - self.low);
            let first = (self.low / step).ceil() as i64;
            return (first..)
                .map(|number| number as f64 * step)
                .take_while(|tick| *tick <= self.high * 1.0001)
                .take(20)
                .collect();
        }
        let decades = (self.high / self.low).log10();
        let digits: &[f64] = match decades {
            decades if decades < 0.7 => &[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0],
            decades if decades < 2.4 => &[1.0, 2.0, 5.0],
            decades if decades < 3.4 => &[1.0, 3.0],
            _ => &[1.0],
        };
        let stride = ((decades / TICKS_WISHED).ceil() as i32).max(1);
        let (first, last) = (self.low.log10().floor() as i32 - 1, self.high.log10().ceil() as i32 + 1);
        (first..=last)
            .filter(|exponent| digits.len() > 1 || exponent.rem_euclid(stride) == 0)
            .flat_map(|exponent| digits.iter().map(move |digit| digit * 10f64.powi(exponent)))
            .filter(|tick| *tick >= self.low * 0.999 && *tick <= self.high * 1.001)
            .collect()
    }
}

/// A round distance of ticks for a range.
fn step(range: f64) -> f64 {
    let rough = (range / TICKS_WISHED).max(f64::MIN_POSITIVE);
    let base = 10f64.powf(rough.log10().floor());
    let factor =
        [1.0, 2.0, 5.0, 10.0].into_iter().find(|factor| factor * base >= rough * 0.999).unwrap_or(10.0);
    factor * base
}

/// The next 1, 2 or 5 times a power of ten that is not above.
fn round_down(value: f64) -> f64 {
    let base = 10f64.powf(value.log10().floor());
    let factor = [5.0, 2.0].into_iter().find(|factor| factor * base <= value * 1.000_001).unwrap_or(1.0);
    factor * base
}

/// The next 1, 2 or 5 times a power of ten that is not below.
fn round_up(value: f64) -> f64 {
    let base = 10f64.powf(value.log10().floor());
    let factor =
        [1.0, 2.0, 5.0].into_iter().find(|factor| factor * base >= value * 0.999_999).unwrap_or(10.0);
    factor * base
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_round_and_ticks_lie_between() {
        let scale = Scale::around(Kind::Logarithmic, [3_900.0, 159_000.0, f64::NAN, -1.0].into_iter());
        assert_eq!((scale.low.round(), scale.high.round()), (2000.0, 200_000.0));
        assert_eq!(scale.ticks().len(), 7);
        assert_eq!(scale.place(0.0), None);
        assert!((scale.place(20_000.0).unwrap() - 0.5).abs() < 1e-9);
        let linear = Scale::around(Kind::Linear, [84.0, 21.0].into_iter());
        assert_eq!((linear.low, linear.high), (0.0, 100.0));
        assert_eq!(linear.ticks(), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
    }

    #[test]
    fn nothing_and_oddities_have_a_scale() {
        for kind in [Kind::Linear, Kind::Time, Kind::Logarithmic] {
            for values in [vec![], vec![0.0], vec![f64::INFINITY], vec![1e-300, 1e300], vec![5.0, 5.0]] {
                let scale = Scale::around(kind, values.iter().copied());
                assert!(scale.ticks().len() < 30, "{kind:?} {values:?}");
            }
        }
    }
}
