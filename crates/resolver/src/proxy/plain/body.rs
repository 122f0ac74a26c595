//! Where the body of an answer ends.

use crate::proxy::framing::Framing;
use std::io::{self, Write};

#[derive(Debug)]
pub enum Body {
    /// So many bytes are still to come.
    Length(u64),
    Chunked(Framing),
    UntilClosed,
    /// It was until closed, and that it is.
    Closed,
}

// === impl Body ===

impl Body {
    pub fn chunked() -> Self {
        Self::Chunked(Framing::in_chunks())
    }

    /// How much of the bytes belongs to it. Nothing is the end of the connection.
    pub fn take(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::UntilClosed if bytes.is_empty() => *self = Self::Closed,
            _ if bytes.is_empty() => return Err(io::ErrorKind::UnexpectedEof.into()),
            Self::Length(left) => {
                let taken =
                    usize::try_from(*left).map_or(bytes.len(), |left| left.min(bytes.len()));
                *left -= taken as u64;
                return Ok(taken);
            }
            Self::Chunked(framing) => {
                let followed = framing.follow_message(bytes);
                return followed.map_err(|_| io::ErrorKind::InvalidData.into());
            }
            Self::UntilClosed | Self::Closed => {}
        }
        Ok(bytes.len())
    }

    /// Whether it goes on in chunks that are ours: a client could take one that breaks off for a whole one.
    pub fn is_cut_anew(&self) -> bool {
        matches!(self, Self::UntilClosed | Self::Closed)
    }

    /// Whether all of it has come.
    pub fn is_over(&self) -> bool {
        match self {
            Self::Length(left) => *left == 0,
            Self::Chunked(framing) => framing.is_between(),
            Self::UntilClosed => false,
            Self::Closed => true,
        }
    }
}

/// One without a byte is the last.
pub fn write_chunk(out: &mut Vec<u8>, bytes: &[u8]) {
    // It cannot fail.
    let _ = write!(out, "{:x}\r\n", bytes.len());
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}
