//! Small collections, of which there are thousands: a tree node for one key would cost ten times the
//! key.

use elasti_runtime::{pool::shared, watch::Key};
use serde::{Serialize, Serializer};
use std::{collections::BTreeMap, slice::Iter, sync::Arc};

/// Keys, mostly one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Few(Vec<Key>);

/// Labels and the like, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Texts(Box<[(Arc<str>, Arc<str>)]>);

// === impl Few ===

impl Few {
    pub(crate) fn insert(&mut self, key: Key) {
        if !self.0.contains(&key) {
            self.0.reserve_exact(1);
            self.0.push(key);
        }
    }

    pub(crate) fn remove(&mut self, key: &Key) {
        self.0.retain(|known| known != key);
    }

    pub(crate) fn retain(&mut self, keep: impl Fn(&Key) -> bool) {
        self.0.retain(keep);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn iter(&self) -> Iter<'_, Key> {
        self.0.iter()
    }
}

impl<'a> IntoIterator for &'a Few {
    type Item = &'a Key;
    type IntoIter = Iter<'a, Key>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

// === impl Texts ===

impl Texts {
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let at = self.0.binary_search_by(|(known, _)| (**known).cmp(name));
        Some(&self.0[at.ok()?].1)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }

    /// Whether the other says all that this one does.
    pub(crate) fn is_part_of(&self, other: &Self) -> bool {
        self.iter()
            .all(|(name, value)| other.get(name) == Some(value))
    }
}

impl From<Option<BTreeMap<String, String>>> for Texts {
    fn from(texts: Option<BTreeMap<String, String>>) -> Self {
        let texts = texts.unwrap_or_default().into_iter();
        Self(
            texts
                .map(|(name, value)| (shared(&name), shared(&value)))
                .collect(),
        )
    }
}

impl Serialize for Texts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(pairs: &[(&str, &str)]) -> Texts {
        let owned = |(name, value): &(&str, &str)| (name.to_string(), value.to_string());
        Some(pairs.iter().map(owned).collect()).into()
    }

    #[test]
    fn texts_are_found_by_name_and_compared_as_a_whole() {
        let (some, all) = (texts(&[("b", "2")]), texts(&[("b", "2"), ("a", "1")]));
        assert_eq!((all.get("a"), all.get("c")), (Some("1"), None));
        assert!(some.is_part_of(&all) && !all.is_part_of(&some));
        assert_eq!(
            serde_json::json!(all),
            serde_json::json!({"a": "1", "b": "2"})
        );
    }
}
