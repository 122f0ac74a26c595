//! Texts that thousands of objects have in common: each is kept once.

use parking_lot::Mutex;
use std::{
    collections::HashSet,
    sync::{Arc, LazyLock},
};

#[derive(Default)]
struct Pool {
    texts: HashSet<Arc<str>>,
    /// At this many, those that nobody has any more are let go of.
    limit: usize,
}

const FEW: usize = 1_024;

static POOL: LazyLock<Mutex<Pool>> = LazyLock::new(Mutex::default);

/// The one copy of a text.
pub fn shared(text: &str) -> Arc<str> {
    POOL.lock().share(text)
}

// === impl Pool ===

impl Pool {
    fn share(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.texts.get(text) {
            return known.clone();
        }
        if self.texts.len() >= self.limit {
            self.texts.retain(|text| Arc::strong_count(text) > 1);
            self.limit = (2 * self.texts.len()).max(FEW);
        }
        let new: Arc<str> = text.into();
        self.texts.insert(new.clone());
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_kept_once_and_as_long_as_somebody_has_it() {
        let mut pool = Pool::default();
        let kept = pool.share("kept");
        assert!(Arc::ptr_eq(&kept, &pool.share("kept")));
        for n in 0..10 * FEW {
            pool.share(&n.to_string());
        }
        assert!(pool.texts.len() <= FEW);
        assert!(Arc::ptr_eq(&kept, &pool.share("kept")));
    }
}
