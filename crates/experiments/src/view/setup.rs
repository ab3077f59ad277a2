//! How volumes were laid out and how long cases were run, in words.

use coquina_base::format_size_bytes;

use crate::definition::{CROWD, ROUNDS_MIN, SETTLE_PASSES_MAX};
use crate::report::{LayoutFacts, Report, TimingFacts};

/// `3 rounds of 20 s after 5 s of load, each repeated up to 2 times until steady`.
pub(crate) fn timing_text(timing: &TimingFacts) -> String {
    let rounds = if timing.rounds == 1 { "round" } else { "rounds" };
    let fewer = match timing.time_s > 0.0 && timing.rounds > ROUNDS_MIN {
        true => format!(" ({ROUNDS_MIN} where the run's time was short)"),
        false => String::new(),
    };
    let mut text = format!(
        "{} {rounds}{fewer} of {} s after {} s of load",
        timing.rounds, timing.runtime_s, timing.warmup_s
    );
    if timing.warmup_crowd_s > 0.0 {
        let seconds = timing.warmup_crowd_s;
        text += &format!(" ({seconds} s where several clients have more than {CROWD} operations in flight)");
    }
    if timing.passes_max > 1 {
        text += &format!(", each run up to {} times until it is steady", timing.passes_max);
    }
    if timing.settle_s > 0.0 {
        text += &format!(
            "; of random writes on a store that was aged, the first begins after {} to {} s of the same load on each target, until it is steady{}, \
             which are not measured, and the first case after as much of the heaviest of its scenario",
            timing.settle_s,
            timing.settle_s * f64::from(SETTLE_PASSES_MAX),
            if timing.time_s > 0.0 { " or the run's time is short" } else { "" }
        );
    }
    text
}

/// `8 volumes of 1.00 GiB, 3 copies, written full`.
pub(crate) fn layout_text(layout: &LayoutFacts) -> String {
    let volumes = if layout.volumes == 1 { "volume" } else { "volumes" };
    let mut parts =
        vec![format!("{} {volumes} of {}", layout.volumes, format_size_bytes(layout.volume_bytes))];
    match layout.copies {
        Some(1) => parts.push("1 copy".to_owned()),
        Some(copies) => parts.push(format!("{copies} copies")),
        None => {}
    }
    if let Some((unit_bytes, count)) = layout.stripe {
        parts.push(format!("striped in units of {} over {count} objects", format_size_bytes(unit_bytes)));
    }
    let but = match layout.kept.as_slice() {
        [] => String::new(),
        kept => format!(" (not {}: read only, and its data was not given up)", kept.join(" and ")),
    };
    parts.push(match (layout.objects, layout.fill) {
        (true, _) => format!("objects are written before they are read{but}"),
        (false, true) => format!("written full before{but}"),
        (false, false) => "not written before".to_owned(),
    });
    if let Some(aged) = layout.aged {
        parts.push(format!(
            "{} % of the smallest store, overwritten {} in writes of {}",
            aged.full_percent,
            if aged.overwrites == 1 { "once".to_owned() } else { format!("{} times", aged.overwrites) },
            format_size_bytes(aged.block_bytes)
        ));
    }
    if layout.warm_reads {
        parts.push("read once before cases that read".to_owned());
    }
    parts.join(", ")
}

/// Each with a name: times, and the layout of each scenario.
pub(crate) fn lines(report: &Report) -> Vec<(String, String)> {
    let timing = report.timing.iter().map(|timing| ("each case".to_owned(), timing_text(timing)));
    let layouts = report.layouts.iter().map(|layout| (layout.scenario.clone(), layout_text(layout)));
    timing.chain(layouts).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settling_is_told_where_there_was_any() {
        let timing = TimingFacts {
            rounds: 4,
            runtime_s: 1.3,
            warmup_s: 0.4,
            warmup_crowd_s: 0.0,
            settle_s: 0.0,
            time_s: 0.0,
            passes_max: 1,
        };
        assert_eq!(timing_text(&timing), "4 rounds of 1.3 s after 0.4 s of load");
        let short = timing_text(&TimingFacts { time_s: 570.0, ..timing });
        assert_eq!(short, "4 rounds (3 where the run's time was short) of 1.3 s after 0.4 s of load");
        let crowd = timing_text(&TimingFacts { warmup_crowd_s: 1.2, ..timing });
        let told = "4 rounds of 1.3 s after 0.4 s of load (1.2 s where several clients have more than 512 operations in flight)";
        assert_eq!(crowd, told);
        let told = timing_text(&TimingFacts { settle_s: 5.0, ..timing });
        assert!(
            told.contains(
                "aged, the first begins after 5 to 20 s of the same load on each target, until it is steady"
            ),
            "{told}"
        );
    }

    #[test]
    fn what_was_not_written_before_is_told() {
        let layout = |fill, objects, kept: &[&str]| LayoutFacts {
            volumes: 1,
            volume_bytes: 64 << 20,
            fill,
            objects,
            kept: kept.iter().map(|label| (*label).to_owned()).collect(),
            ..LayoutFacts::default()
        };
        assert_eq!(layout_text(&layout(true, false, &[])), "1 volume of 64 MiB, written full before");
        assert_eq!(layout_text(&layout(false, false, &["a"])), "1 volume of 64 MiB, not written before");
        let kept = " (not raw drive and NBD export: read only, and its data was not given up)";
        let told = layout_text(&layout(true, false, &["raw drive", "NBD export"]));
        assert_eq!(told, format!("1 volume of 64 MiB, written full before{kept}"));
        let objects = "1 volume of 64 MiB, objects are written before they are read (not a: read only, and its data was not given up)";
        assert_eq!(layout_text(&layout(false, true, &["a"])), objects);
    }
}
