//! The system on a real cluster. Each test says what somebody who runs it, or who uses what it runs, would
//! notice.

// The longest comes first, and all others beside it.
mod lossless;
mod operator;
mod resolver;
