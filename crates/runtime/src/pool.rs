//! What thousands of objects have in common is kept once.

use parking_lot::Mutex;
use std::{
    borrow::Borrow,
    collections::HashSet,
    hash::Hash,
    sync::{Arc, LazyLock},
};

/// Values of which there are many, and few different ones.
pub struct Pool<T: ?Sized> {
    known: HashSet<Arc<T>>,
    /// At this many, those that nobody has any more are let go of.
    limit: usize,
}

const FEW: usize = 1_024;

static TEXTS: LazyLock<Mutex<Pool<str>>> = LazyLock::new(Mutex::default);

/// The one copy of a text.
pub fn shared(text: &str) -> Arc<str> {
    TEXTS.lock().share(text)
}

// === impl Pool ===

impl<T: ?Sized> Default for Pool<T> {
    fn default() -> Self {
        Self {
            known: HashSet::new(),
            limit: FEW,
        }
    }
}

impl<T: ?Sized + Eq + Hash> Pool<T> {
    /// The one copy of a value.
    pub fn share<V>(&mut self, value: V) -> Arc<T>
    where
        V: Borrow<T> + Into<Arc<T>>,
    {
        if let Some(known) = self.known.get(value.borrow()) {
            return known.clone();
        }
        if self.known.len() >= self.limit {
            self.known.retain(|value| Arc::strong_count(value) > 1);
            self.limit = (2 * self.known.len()).max(FEW);
        }
        let new: Arc<T> = value.into();
        self.known.insert(new.clone());
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_kept_once_and_as_long_as_somebody_has_it() {
        let mut pool = Pool::<str>::default();
        let kept = pool.share("kept");
        assert!(Arc::ptr_eq(&kept, &pool.share("kept")));
        for n in 0..10 * FEW {
            pool.share(n.to_string());
        }
        assert!(pool.known.len() <= FEW);
        assert!(Arc::ptr_eq(&kept, &pool.share("kept")));
    }
}
