//! Labels that are short, and still tell what they name from everything else.

/// Systems that are known by their first word, whatever follows it.
const SYSTEMS: [&str; 3] = ["Coquina", "Ceph", "Curve"];

/// Labels of known systems without versions and the like, if that leaves all labels different.
pub(crate) fn short(labels: &[&str]) -> Vec<String> {
    let name = |label: &str| {
        let first = label.split_whitespace().next().unwrap_or(label).trim_end_matches(',');
        if SYSTEMS.contains(&first) { first.to_owned() } else { label.to_owned() }
    };
    let names: Vec<String> = labels.iter().map(|label| name(label)).collect();
    if are_different(&names) { names } else { labels.iter().map(|label| (*label).to_owned()).collect() }
}

/// Labels of at most so many characters: those that are longer lose their ends, or their middles where ends tell them apart.
pub(crate) fn cut(labels: &[&str], characters_max: usize) -> Vec<String> {
    let cut_each = |keep_end: usize| -> Vec<String> {
        labels.iter().map(|label| cut_middle(label, characters_max, keep_end)).collect()
    };
    let is_as_good = |cut: &[String]| {
        (0..labels.len())
            .all(|one| (0..one).all(|other| (labels[one] == labels[other]) == (cut[one] == cut[other])))
    };
    let half = characters_max / 2;
    let cuts = [0, half, characters_max.saturating_sub(2)].into_iter().map(cut_each);
    cuts.into_iter().find(|cut| is_as_good(cut)).unwrap_or_else(|| {
        // Nothing short tells them apart but their places.
        let numbered = labels.iter().enumerate().map(|(place, label)| {
            let place = labels.iter().position(|other| other == label).unwrap_or(place) + 1;
            cut_middle(&format!("{place}: {label}"), characters_max, 0)
        });
        numbered.collect()
    })
}

/// A label of at most so many characters, of which so many are its last.
fn cut_middle(label: &str, characters_max: usize, keep_end: usize) -> String {
    let characters: Vec<char> = label.chars().collect();
    if characters.len() <= characters_max {
        return label.to_owned();
    }
    let begin = &characters[..characters_max.saturating_sub(1 + keep_end)];
    let end = &characters[characters.len() - keep_end..];
    begin.iter().chain(&['…']).chain(end).collect()
}

fn are_different(names: &[String]) -> bool {
    names.iter().enumerate().all(|(index, name)| !names[..index].contains(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_systems_are_shortened() {
        assert_eq!(
            short(&["Coquina, 3 copies", "Ceph 16.2.15", "plain file"]),
            ["Coquina", "Ceph", "plain file"]
        );
        assert_eq!(
            short(&["a core alone", "two threads of a core"]),
            ["a core alone", "two threads of a core"]
        );
        assert_eq!(short(&["36 SATA hard disks"]), ["36 SATA hard disks"]);
        let alike = ["Coquina", "Coquina, NBD", "Ceph 16.2.15"];
        assert_eq!(short(&alike), alike);
    }

    #[test]
    fn what_is_cut_can_still_be_told_apart() {
        assert_eq!(cut(&["Ceph", "osd:osd_op_num_shards=5"], 16), ["Ceph", "osd:osd_op_num_…"]);
        let volumes = cut(&["Coquina, NBD (coquina-nbd:one)", "Coquina, NBD (coquina-nbd:two)"], 16);
        assert_eq!(volumes, ["Coquina…nbd:one)", "Coquina…nbd:two)"]);
        let middles = [
            "a long name, called one, with a rather long end",
            "a long name, called two, with a rather long end",
        ];
        assert_eq!(cut(&middles, 16), ["1: a long name,…", "2: a long name,…"]);
        assert_eq!(cut(&[middles[0], middles[0]], 16), ["a long name, ca…", "a long name, ca…"]);
    }
}
