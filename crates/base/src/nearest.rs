//! Misspelt names: which of those that there are may be meant.

use std::fmt;

/// Letters of which one may be wrong; another one for each as many more.
const LETTERS_PER_MISTAKE: usize = 3;
/// Letters of a beginning that may stand for the whole name.
const BEGINNING_MIN: usize = 3;
/// Letters of a name that are looked at: the work grows with their square.
const LETTERS_MAX: usize = 256;

/// The name that is nearest to a misspelt one; shown, it is `; did you mean "disk"?`, or nothing where no name is near, or several are
/// equally near.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nearest(Option<String>);

impl Nearest {
    /// Looks among the names that there are.
    pub fn of<'a>(misspelt: &str, names: impl IntoIterator<Item = &'a str>) -> Self {
        let wanted = misspelt.to_lowercase();
        let letters = wanted.chars().count();
        if !(1..=LETTERS_MAX).contains(&letters) {
            return Nearest(None);
        }
        let mut best: Option<(usize, &str)> = None;
        let mut is_only = true;
        for name in names {
            let lower = name.to_lowercase();
            let others = lower.chars().count();
            if others > LETTERS_MAX {
                continue;
            }
            let allowed = letters.max(others) / LETTERS_PER_MISTAKE;
            let distance = strsim::damerau_levenshtein(&wanted, &lower);
            let is_beginning = letters >= BEGINNING_MIN && lower.starts_with(&wanted);
            if distance > allowed && !is_beginning {
                continue;
            }
            match best {
                Some((least, other)) if distance == least => is_only &= other == name,
                Some((least, _)) if distance > least => {}
                _ => (best, is_only) = (Some((distance, name)), true),
            }
        }
        Nearest(best.filter(|_| is_only).map(|(_, name)| name.to_owned()))
    }

    /// The name, if there is one.
    pub fn name(&self) -> Option<&str> {
        self.0.as_deref()
    }
}

impl From<String> for Nearest {
    fn from(name: String) -> Self {
        Nearest(Some(name))
    }
}

impl fmt::Display for Nearest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(name) => write!(formatter, "; did you mean {name:?}?"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nearest(misspelt: &str, names: &[&str]) -> Option<String> {
        Nearest::of(misspelt, names.iter().copied()).name().map(str::to_owned)
    }

    #[test]
    fn a_name_with_a_mistake_is_found() {
        let names = ["curve-vs-ceph", "ceph-2x-vs-3x", "host-drives", "hdd-tuning"];
        for (misspelt, meant) in [
            ("curve-vs-cpeh", "curve-vs-ceph"),
            ("Curve-vs-Ceph", "curve-vs-ceph"),
            ("curve_vs_ceph", "curve-vs-ceph"),
            ("hdd-tunning", "hdd-tuning"),
            ("host", "host-drives"),
        ] {
            assert_eq!(nearest(misspelt, &names).as_deref(), Some(meant), "{misspelt}");
        }
        assert_eq!(nearest("warmup", &["warmup_crowd_s", "warmup_s"]).as_deref(), Some("warmup_s"));
        assert_eq!(nearest("disc", &["disk"]).as_deref(), Some("disk"));
        assert_eq!(Nearest::of("disc", ["disk"]).to_string(), "; did you mean \"disk\"?");
    }

    #[test]
    fn what_is_near_to_several_or_to_none_is_not_guessed() {
        assert_eq!(nearest("vol3", &["vol1", "vol2"]), None);
        assert_eq!(nearest("unknown", &["disk", "home"]), None);
        assert_eq!(nearest("a", &["b"]), None);
        assert_eq!(nearest("", &["disk", ""]), None);
        assert_eq!(nearest(&"x".repeat(100_000), &["disk"]), None);
        assert_eq!(nearest("disk", &[&"x".repeat(100_000)]), None);
        assert_eq!(Nearest::of("a", ["b"]).to_string(), "");
    }

    #[test]
    fn a_name_that_is_there_twice_is_one() {
        assert_eq!(nearest("/srv/drve", &["/srv/drive", "/srv/drive"]).as_deref(), Some("/srv/drive"));
    }
}
