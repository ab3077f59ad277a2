//! A sorted map that is cheap to copy: copies share what they have in common.
//!
//! Entries are in pages of up to 128, pages in a list. A clone copies one pointer; a change after a clone copies the page
//! that it touches and the list of pages, and nothing at all if there is no clone. For 10,000 entries that is some 64
//! entries and 160 pointers.

use std::sync::Arc;

const PAGE_ENTRIES_MAX: usize = 128;

type Page<K, V> = Arc<Vec<(K, V)>>;

/// A sorted map of which copies share their pages.
#[derive(Clone, Debug)]
pub(crate) struct Shelf<K, V> {
    pages: Arc<Vec<Page<K, V>>>,
    entries: usize,
}

impl<K, V> Default for Shelf<K, V> {
    fn default() -> Self {
        Shelf { pages: Arc::new(Vec::new()), entries: 0 }
    }
}

impl<K: Ord + Clone, V: Clone> Shelf<K, V> {
    /// Number of entries.
    pub(crate) fn len(&self) -> usize {
        self.entries
    }

    fn page_of(&self, key: &K) -> usize {
        self.pages.partition_point(|page| page.first().is_some_and(|first| first.0 <= *key)).saturating_sub(1)
    }

    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        let page = self.pages.get(self.page_of(key))?;
        let index = page.binary_search_by(|entry| entry.0.cmp(key)).ok()?;
        page.get(index).map(|entry| &entry.1)
    }

    /// The value of the last key that is not above `key`.
    pub(crate) fn last_up_to(&self, key: &K) -> Option<&V> {
        let page = self.pages.get(self.page_of(key))?;
        let after = page.partition_point(|entry| entry.0 <= *key);
        after.checked_sub(1).and_then(|index| page.get(index)).map(|entry| &entry.1)
    }

    /// Entries in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.pages.iter().flat_map(|page| page.iter().map(|(key, value)| (key, value)))
    }

    /// Entries in order, from a key on.
    pub(crate) fn iter_from<'a>(&'a self, from: &K) -> impl Iterator<Item = (&'a K, &'a V)> + use<'a, K, V> {
        let first = self.page_of(from);
        let skip = self.pages.get(first).map_or(0, |page| page.partition_point(|entry| entry.0 < *from));
        self.pages.iter().skip(first).flat_map(|page| page.iter().map(|(key, value)| (key, value))).skip(skip)
    }

    /// Puts an entry; `None` takes it away. Returns how many entries had to be copied since others share them.
    pub(crate) fn set(&mut self, key: K, value: Option<V>) -> usize {
        if self.pages.is_empty() {
            if let Some(value) = value {
                self.pages = Arc::new(vec![Arc::new(vec![(key, value)])]);
                self.entries = 1;
            }
            return 0;
        }
        let number = self.page_of(&key);
        let pages = Arc::make_mut(&mut self.pages);
        let page = &mut pages[number];
        let copied = if Arc::get_mut(page).is_none() { page.len() } else { 0 };
        let entries = Arc::make_mut(page);
        match (entries.binary_search_by(|entry| entry.0.cmp(&key)), value) {
            (Ok(index), Some(value)) => entries[index].1 = value,
            (Ok(index), None) => {
                entries.remove(index);
                self.entries -= 1;
                if entries.is_empty() {
                    pages.remove(number);
                }
            }
            (Err(index), Some(value)) => {
                entries.insert(index, (key, value));
                self.entries += 1;
                if entries.len() > PAGE_ENTRIES_MAX {
                    let upper = entries.split_off(PAGE_ENTRIES_MAX / 2);
                    pages.insert(number + 1, Arc::new(upper));
                }
            }
            (Err(_), None) => {}
        }
        copied
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn is_a_sorted_map_and_copies_stay_as_they_were(
            steps in proptest::collection::vec((0u16..600, any::<Option<u8>>()), 1..1500),
            from in 0u16..600,
        ) {
            let mut model = BTreeMap::new();
            let mut shelf = Shelf::default();
            let middle = steps.len() / 2;
            let mut copy = None;
            for (number, (key, value)) in steps.into_iter().enumerate() {
                if number == middle {
                    copy = Some((model.clone(), shelf.clone()));
                }
                match value {
                    Some(value) => model.insert(key, value),
                    None => model.remove(&key),
                };
                let copied = shelf.set(key, value);
                prop_assert!(copied <= PAGE_ENTRIES_MAX);
                prop_assert_eq!(shelf.get(&key), model.get(&key));
            }
            let copy = copy.into_iter().collect::<Vec<_>>();
            for (model, shelf) in copy.iter().chain([&(model, shelf)]) {
                prop_assert_eq!(shelf.len(), model.len());
                prop_assert!(shelf.iter().eq(model.iter()));
                prop_assert!(shelf.iter_from(&from).eq(model.range(from..)));
                prop_assert_eq!(shelf.last_up_to(&from), model.range(..=from).next_back().map(|entry| entry.1));
            }
        }
    }
}
