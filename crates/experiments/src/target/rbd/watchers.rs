//! Who has an image open, as `rbd status` tells it.

use serde_json::Value;

/// Addresses of clients that have it open, and may write to it. `None` where what was printed is not understood.
pub fn addresses(printed: &str) -> Option<Vec<String>> {
    let status: Value = serde_json::from_str(printed).ok()?;
    // Old programs print an object with a member `watcher` for each of them, of which a map keeps the last.
    let watchers: Vec<&Value> = match status.get("watchers")? {
        Value::Array(watchers) => watchers.iter().collect(),
        Value::Object(watchers) => watchers.values().collect(),
        _ => return None,
    };
    let address = |watcher: &&Value| {
        let address = watcher.get("address").and_then(Value::as_str);
        address.unwrap_or("an unknown address").to_owned()
    };
    Some(watchers.iter().map(address).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watchers_are_told_by_all_versions() {
        let one = r#"{"address":"192.0.2.1:0/7","client":4123,"cookie":18446462598732840961}"#;
        for (watchers, wanted) in [
            ("[]".to_owned(), vec![]),
            (format!("[{one},{{}}]"), vec!["192.0.2.1:0/7", "an unknown address"]),
            (format!(r#"{{"watcher":{one}}}"#), vec!["192.0.2.1:0/7"]),
            ("{}".to_owned(), vec![]),
        ] {
            let printed = format!(r#"{{"watchers":{watchers},"migration":{{}}}}"#);
            assert_eq!(addresses(&printed).unwrap(), wanted, "{printed}");
        }
        for printed in ["", "{}", r#"{"watchers":1}"#] {
            assert_eq!(addresses(printed), None, "{printed}");
        }
    }
}
