//! Where bytes are between two connections: one piece of memory for each thread.

use std::cell::RefCell;

/// At a time. More makes both ends sleep and wake more often.
const MOST: usize = 32 * 1024;

thread_local! {
    static BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; MOST].into());
}

/// What one connection puts there it has to take from there before another has its turn.
pub fn with_buffer<T>(work: impl FnOnce(&mut [u8]) -> T) -> T {
    BUFFER.with_borrow_mut(|buffer| work(buffer))
}
