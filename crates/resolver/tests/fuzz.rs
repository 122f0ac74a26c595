//! The properties that cargo-fuzz looks for exceptions to, on the committed corpus and on mutations of it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking, in its helpers, too"
)]

#[path = "../../../fuzz/src/lib.rs"]
mod properties;

use std::{fs, panic::catch_unwind, path::Path};

/// Of each file of a corpus.
const MUTATIONS: usize = 300;
/// What strangers like to put where it does not belong.
const WORDS: [&str; 16] = [
    "\r\n",
    "\n",
    "\r",
    "\0",
    " ",
    "\t",
    ":",
    ".",
    "0\r\n\r\n",
    "-",
    "Content-Length: 5\r\n",
    "Transfer-Encoding: chunked\r\n",
    "Host: a.b\r\n",
    "GET / HTTP/1.1\r\n",
    "svc.cluster.local",
    "ffffffffffffffff",
];

/// Small, and the same each time: what fails once fails again.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % (most.max(1) as u64)).unwrap()
    }

    fn range(&mut self, length: usize) -> std::ops::Range<usize> {
        let start = self.below(length + 1);
        start..start + self.below((length - start).min(32) + 1)
    }
}

fn mutated(original: &[u8], other: &[u8], dice: &mut Dice) -> Vec<u8> {
    let mut bytes = original.to_vec();
    for _ in 0..=dice.below(3) {
        let at = dice.below(bytes.len() + 1);
        let range = dice.range(bytes.len());
        match dice.below(6) {
            0 if !bytes.is_empty() => {
                let at = dice.below(bytes.len());
                bytes[at] ^= 1 << dice.below(8);
            }
            1 => drop(bytes.splice(at..at, WORDS[dice.below(WORDS.len())].bytes())),
            2 => drop(bytes.drain(range)),
            3 => {
                let copy = bytes[range].to_vec();
                bytes.splice(at..at, copy);
            }
            4 => {
                let foreign = other[dice.range(other.len())].to_vec();
                bytes.splice(at..at, foreign);
            }
            _ => bytes.truncate(at),
        }
    }
    bytes
}

fn holds(target: &str, property: fn(&[u8])) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let mut files: Vec<_> = fs::read_dir(corpus.join(target))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    assert!(files.len() > 5, "there is a corpus");
    let texts: Vec<_> = files.iter().map(|file| fs::read(file).unwrap()).collect();
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    for (file, text) in files.iter().zip(&texts) {
        property(text);
        for _ in 0..MUTATIONS {
            let other = &texts[dice.below(texts.len())];
            let bytes = mutated(text, other, &mut dice);
            let held = catch_unwind(|| property(&bytes));
            let shown = bytes.escape_ascii();
            assert!(
                held.is_ok(),
                "a mutation of {}: \"{shown}\"",
                file.display()
            );
        }
    }
}

#[test]
fn a_host_names_two_labels_or_nothing() {
    holds("host", properties::host);
}

#[test]
fn the_first_bytes_tell_the_protocol() {
    holds("peek", properties::peek);
}

#[test]
fn the_parser_sees_no_message_that_the_check_has_not_seen() {
    holds("framing", properties::framing);
}

#[test]
fn what_passes_as_bytes_is_what_every_parser_reads() {
    holds("plain", properties::plain);
}

#[test]
fn the_first_rule_that_matches_answers() {
    holds("probe", properties::probe);
}
