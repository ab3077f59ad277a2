//! What a Coquina cluster says ails it, where a load on it failed or did not end.

use std::time::Duration;

use serde::Deserialize;

use super::System;
use crate::generator::{Patience, output_of};

/// Nobody wants to wait much longer after a load that hung.
const HEALTH_TIME_MAX: Duration = Duration::from_secs(15);
/// Entries that are told, the worst first, as they come.
const TOLD_MAX: usize = 3;

#[derive(Deserialize)]
struct Status {
    health: Health,
}

#[derive(Deserialize)]
struct Health {
    entries: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    code: String,
    severity: String,
    subject: String,
    message: String,
}

impl System {
    /// What it says, if that may be why a load failed.
    pub(super) fn ailment(&self, stopped: &dyn Fn() -> bool) -> Option<String> {
        let ask = ["status", "--interval", "0", "--json"].map(str::to_owned);
        let arguments = [&ask[..], &self.server[..]].concat();
        let patience = Patience { time_max: HEALTH_TIME_MAX, stopped };
        told(&output_of(&self.program.to_string_lossy(), &arguments, &[], patience).ok()?)
    }
}

/// Without what is only under way as it should.
fn told(printed: &str) -> Option<String> {
    let entries = serde_json::from_str::<Status>(printed).ok()?.health.entries;
    let told: Vec<String> = entries
        .iter()
        .filter(|entry| entry.severity != "notice")
        .take(TOLD_MAX)
        .map(|entry| format!("{} ({}: {})", entry.code, entry.subject, entry.message))
        .collect();
    (!told.is_empty()).then(|| format!("Coquina says: {}", told.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_told_and_not_what_is_under_way() {
        let entry = |severity: &str, code: &str| {
            format!(
                r#"{{"code":"{code}","severity":"{severity}","subject":"n1","message":"99 % full","advice":"make room"}}"#
            )
        };
        let status = |entries: &[String]| {
            format!(r#"{{"health":{{"state":"error","entries":[{}]}},"drives":[]}}"#, entries.join(","))
        };
        let both = [entry("error", "DRIVE_FULL"), entry("notice", "RECOVERY")];
        assert_eq!(told(&status(&both)).as_deref(), Some("Coquina says: DRIVE_FULL (n1: 99 % full)"));
        let many = told(&status(&vec![entry("warning", "SLOW_DRIVE"); 5])).unwrap();
        assert_eq!(many.matches("SLOW_DRIVE").count(), TOLD_MAX, "{many}");
        assert_eq!(told(&status(&both[1..])), None);
        assert_eq!(told(&status(&[])), None);
        assert_eq!(told(r#"{"drives":[]}"#), None, "of another version");
    }
}
