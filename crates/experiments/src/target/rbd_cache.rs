//! librbd's cache, as it is set: `rbd config image ls` says what an image's client uses, and where that is set.
//!
//! With the cache a write may be answered before any OSD has it, so that figures of it do not compare with those of durable
//! writes. Each image may have a setting of its own, which stands above that of its pool, and that above the cluster's.

use serde::Deserialize;

/// The option.
pub const OPTION: &str = "rbd_cache";

/// One line of `rbd config image ls --format json`, or `pool ls`.
#[derive(Deserialize)]
struct Line {
    name: String,
    value: String,
    source: String,
}

/// How writes to an image are cached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cache {
    is_on: bool,
    policy: String,
    /// `config`, `pool` or `image`.
    source: String,
    /// A cache on a medium of the client; its mode.
    persistent: Option<String>,
}

impl Cache {
    /// Reads what `rbd config image ls --format json` printed; `None` if it does not say.
    pub fn read(printed: &str) -> Option<Cache> {
        let lines: Vec<Line> = serde_json::from_str(printed).ok()?;
        let line = |name: &str| lines.iter().find(|line| line.name == name);
        let value = |name: &str| line(name).map_or("", |line| line.value.as_str());
        let cache = line(OPTION)?;
        let mode = value("rbd_persistent_cache_mode");
        let has_plugin = value("rbd_plugins").contains("pwl_cache");
        Some(Cache {
            is_on: is_true(&cache.value),
            policy: value("rbd_cache_policy").to_owned(),
            source: cache.source.clone(),
            persistent: (has_plugin && !mode.is_empty() && mode != "disabled").then(|| mode.to_owned()),
        })
    }

    /// The same with the option set to a value.
    pub fn with(&self, value: &str) -> Cache {
        Cache { is_on: is_true(value), source: "config".to_owned(), ..self.clone() }
    }

    fn answers_early(&self) -> bool {
        self.is_on || self.persistent.is_some()
    }

    fn text(&self) -> String {
        if let Some(mode) = &self.persistent {
            return format!(
                "librbd's on a medium of the client (rbd_persistent_cache_mode = {mode}): writes may be answered early"
            );
        }
        if !self.is_on {
            return "librbd's off (rbd_cache = false)".to_owned();
        }
        let by = match self.source.as_str() {
            "image" => "set for the image",
            "pool" => "set for the pool",
            _ => "by the cluster's configuration or Ceph's default",
        };
        format!("librbd's on (rbd_cache = true, {by}; policy {}): writes may be answered early", self.policy)
    }
}

/// Whether a write to images with these caches is durable when it is answered; `None` in the list, and as answer: not known.
pub fn durable(caches: &[Option<Cache>]) -> Option<bool> {
    if caches.iter().flatten().any(Cache::answers_early) {
        return Some(false);
    }
    let all_known = !caches.is_empty() && caches.iter().all(Option::is_some);
    all_known.then_some(true)
}

/// What is said of them: of the one that tells most.
pub fn text(caches: &[Option<Cache>]) -> String {
    let early = caches.iter().flatten().find(|cache| cache.answers_early());
    let told = match (early, caches.iter().all(Option::is_some), caches.iter().flatten().next()) {
        (Some(cache), _, _) | (None, true, Some(cache)) => cache.text(),
        _ => "librbd's not known (`rbd config image ls` does not say)".to_owned(),
    };
    format!("{told}; a read cache in the OSDs")
}

/// The value of an option, and whether that is of an image (`image`) or a pool (`pool`) of its own, so that the cluster's setting
/// has no effect.
pub fn own_value(printed: &str, option: &str) -> Option<(String, String)> {
    let lines: Vec<Line> = serde_json::from_str(printed).ok()?;
    let line = lines.into_iter().find(|line| line.name == option)?;
    matches!(line.source.as_str(), "image" | "pool").then_some((line.value, line.source))
}

fn is_true(value: &str) -> bool {
    matches!(value.to_ascii_lowercase().as_str(), "true" | "1" | "yes" | "on")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Ceph 16.2 prints it, with the lines that matter here.
    fn printed(cache: &str, source: &str, plugins: &str, mode: &str) -> String {
        format!(
            r#"[{{"name":"rbd_atime_update_interval","value":"60","source":"config"}},
            {{"name":"rbd_cache","value":"{cache}","source":"{source}"}},
            {{"name":"rbd_cache_policy","value":"writearound","source":"config"}},
            {{"name":"rbd_persistent_cache_mode","value":"{mode}","source":"config"}},
            {{"name":"rbd_plugins","value":"{plugins}","source":"config"}}]"#
        )
    }

    fn read(cache: &str, source: &str) -> Option<Cache> {
        Cache::read(&printed(cache, source, "", "disabled"))
    }

    #[test]
    fn a_cache_that_is_on_is_not_called_durable() {
        let off = read("false", "image");
        assert_eq!(durable(std::slice::from_ref(&off)), Some(true));
        assert!(text(std::slice::from_ref(&off)).starts_with("librbd's off"));
        for (source, wanted) in [("config", "default"), ("pool", "for the pool"), ("image", "for the image")]
        {
            let caches = [off.clone(), read("true", source)];
            assert_eq!(durable(&caches), Some(false));
            assert!(
                text(&caches).contains(wanted) && text(&caches).contains("answered early"),
                "{}",
                text(&caches)
            );
        }
    }

    #[test]
    fn a_persistent_cache_of_the_client_is_not_durable_on_all_copies() {
        let caches = [Cache::read(&printed("false", "config", "pwl_cache", "ssd"))];
        assert_eq!(durable(&caches), Some(false));
        assert!(text(&caches).contains("= ssd"));
        // Without its plugin the mode has no effect.
        assert_eq!(durable(&[Cache::read(&printed("false", "config", "", "ssd"))]), Some(true));
    }

    #[test]
    fn what_cannot_be_read_is_not_known() {
        assert_eq!(Cache::read("nonsense"), None);
        assert_eq!(Cache::read("[]"), None);
        for caches in [vec![], vec![None], vec![read("false", "config"), None]] {
            assert_eq!(durable(&caches), None);
            assert!(text(&caches).contains("not known"), "{}", text(&caches));
        }
    }

    #[test]
    fn a_value_that_is_tried_counts() {
        let off = read("false", "config").unwrap();
        assert_eq!(durable(&[Some(off.with("true"))]), Some(false));
        assert_eq!(durable(&[Some(off.with("true").with("0"))]), Some(true));
    }

    #[test]
    fn settings_of_an_image_or_a_pool_stand_above_the_clusters() {
        let own = |source| own_value(&printed("true", source, "", "disabled"), OPTION);
        assert_eq!(own("image"), Some(("true".to_owned(), "image".to_owned())));
        assert_eq!(own("pool"), Some(("true".to_owned(), "pool".to_owned())));
        assert_eq!(own("config"), None);
    }
}
