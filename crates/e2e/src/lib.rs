//! Tests on a real cluster share what is in here.
