//! Where the messages of an HTTP/1 connection begin and end, seen in passing and before the parser sees
//! them. What two parsers could read in two ways is refused, never repaired: a lenient parser in front of
//! us and another behind us would disagree about whose bytes are whose.

/// Follows what a client sends, in pieces of any size. It looks at lines of heads and of chunks; bodies
/// are skipped by their length.
#[derive(Debug, Default)]
pub struct Framing {
    at: At,
    head: Head,
    /// The beginning of a line whose end has not come yet.
    begun: Vec<u8>,
    heads: usize,
}

/// More than one way to read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ambiguous {
    /// So many bytes came before it.
    pub after: usize,
    /// Whether it is in a head, and nobody has seen the request yet.
    pub in_head: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum At {
    /// Before a request, where empty lines mean nothing.
    #[default]
    Start,
    Head,
    Body(u64),
    ChunkSize,
    Chunk(u64),
    ChunkEnd,
    Trailers,
}

#[derive(Clone, Copy, Debug, Default)]
struct Head {
    length: Option<u64>,
    chunked: bool,
    host: bool,
}

/// A line that is longer than a whole head may be; the parser says so first.
const MAX_LINE: usize = 2 * super::MAX_HEAD;
/// Of a size; more would not fit into a number.
const MAX_DIGITS: usize = 16;

// === impl Framing ===

impl Framing {
    /// One that is in the middle of a message, before its first chunk.
    pub fn in_chunks() -> Self {
        Self {
            at: At::ChunkSize,
            ..Self::default()
        }
    }

    pub fn follow(&mut self, bytes: &[u8]) -> Result<(), Ambiguous> {
        let mut passed = 0;
        while passed < bytes.len() {
            passed += self.step(bytes, passed)?;
        }
        Ok(())
    }

    /// How much of the bytes belongs to the message that has begun.
    pub fn follow_message(&mut self, bytes: &[u8]) -> Result<usize, Ambiguous> {
        let mut passed = 0;
        while passed < bytes.len() && !self.is_between() {
            passed += self.step(bytes, passed)?;
        }
        Ok(passed)
    }

    /// How much one line, or one body or chunk, takes of what has not passed.
    fn step(&mut self, bytes: &[u8], passed: usize) -> Result<usize, Ambiguous> {
        let rest = &bytes[passed..];
        Ok(match &mut self.at {
            At::Body(left) => {
                let count = skip(left, rest);
                if *left == 0 {
                    self.at = At::Start;
                }
                count
            }
            At::Chunk(left) => {
                let count = skip(left, rest);
                if *left == 0 {
                    self.at = At::ChunkEnd;
                }
                count
            }
            _ => self.line(rest).ok_or_else(|| Ambiguous {
                // The parser gets all but the end of the line.
                after: passed + end(rest).unwrap_or_default(),
                in_head: matches!(self.at, At::Start | At::Head),
            })?,
        })
    }

    /// Whether one message has ended and nothing of the next has come.
    pub fn is_between(&self) -> bool {
        self.at == At::Start && self.begun.is_empty()
    }

    /// Whether a head has begun and not ended.
    pub fn in_head(&self) -> bool {
        match self.at {
            At::Start => !self.begun.is_empty(),
            At::Head => true,
            _ => false,
        }
    }

    /// How many heads have ended.
    pub fn heads(&self) -> usize {
        self.heads
    }

    /// How much of the bytes was a line, or a part of one.
    fn line(&mut self, bytes: &[u8]) -> Option<usize> {
        let Some(end) = end(bytes) else {
            self.begun.extend_from_slice(bytes);
            return (self.begun.len() <= MAX_LINE).then_some(bytes.len());
        };
        if self.begun.is_empty() {
            self.judge(&bytes[..end])?;
        } else {
            let mut line = std::mem::take(&mut self.begun);
            line.extend_from_slice(&bytes[..end]);
            if self.judge(&line).is_none() {
                self.begun = line;
                return None;
            }
        }
        Some(end + 1)
    }

    fn judge(&mut self, line: &[u8]) -> Option<()> {
        let line = line.strip_suffix(b"\r")?;
        self.at = match (self.at, line) {
            (At::Start, []) => At::Start,
            (At::Start, _) => {
                self.head = Head::default();
                At::Head
            }
            (At::Head, []) => {
                let body = self.head.body()?;
                self.heads += 1;
                body
            }
            (At::Head, _) => {
                self.head.field(line)?;
                At::Head
            }
            (At::ChunkSize, _) => match size(line)? {
                0 => At::Trailers,
                size => At::Chunk(size),
            },
            (At::ChunkEnd, []) => At::ChunkSize,
            (At::Trailers, []) => At::Start,
            (At::Trailers, _) => is_field(line).then_some(At::Trailers)?,
            (At::ChunkEnd | At::Body(_) | At::Chunk(_), _) => return None,
        };
        Some(())
    }
}

fn end(bytes: &[u8]) -> Option<usize> {
    memchr::memchr(b'\n', bytes)
}

fn skip(left: &mut u64, bytes: &[u8]) -> usize {
    let count = usize::try_from(*left).map_or(bytes.len(), |left| left.min(bytes.len()));
    *left -= count as u64;
    count
}

/// Of a chunk, whatever extends it.
fn size(line: &[u8]) -> Option<u64> {
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit());
    let (digits, extension) = line.split_at(digits.count());
    let well_formed = matches!(trimmed(extension), [] | [b';', ..]) && is_text(extension);
    if digits.len() > MAX_DIGITS || !well_formed {
        return None;
    }
    u64::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()
}

// === impl Head ===

impl Head {
    fn field(&mut self, line: &[u8]) -> Option<()> {
        match line[0] {
            // A value that goes on in the next line.
            b' ' | b'\t' => return None,
            b'c' | b'C' => {
                if let Some(value) = value(line, b"content-length") {
                    let length = length(value)?;
                    if self.length.is_some_and(|known| known != length) {
                        return None;
                    }
                    self.length = Some(length);
                }
            }
            b't' | b'T' => {
                if let Some(value) = value(line, b"transfer-encoding") {
                    if self.chunked || !value.eq_ignore_ascii_case(b"chunked") {
                        return None;
                    }
                    self.chunked = true;
                }
            }
            b'h' | b'H' => {
                let is_host = value(line, b"host").is_some();
                if is_host && std::mem::replace(&mut self.host, true) {
                    return None;
                }
            }
            _ => {}
        }
        Some(())
    }

    fn body(self) -> Option<At> {
        match (self.chunked, self.length) {
            (true, Some(_)) => None,
            (true, None) => Some(At::ChunkSize),
            (false, None | Some(0)) => Some(At::Start),
            (false, Some(length)) => Some(At::Body(length)),
        }
    }
}

/// Of trailers. Those of a head are judged by the parser.
fn is_field(line: &[u8]) -> bool {
    let is_token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    let mut parts = line.splitn(2, |byte| *byte == b':');
    let (name, value) = (parts.next().unwrap_or_default(), parts.next());
    !name.is_empty() && name.iter().all(is_token) && value.is_some_and(is_text)
}

fn is_text(bytes: &[u8]) -> bool {
    bytes
        .iter()
        .all(|byte| *byte == b'\t' || !byte.is_ascii_control())
}

fn value<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let (given, rest) = line.split_at_checked(name.len())?;
    let value = rest.strip_prefix(b":")?;
    given.eq_ignore_ascii_case(name).then(|| trimmed(value))
}

fn trimmed(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

pub(super) fn length(value: &[u8]) -> Option<u64> {
    let digits = value.iter().all(u8::is_ascii_digit);
    let text = str::from_utf8(value).ok().filter(|_| digits)?;
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In one piece and byte by byte: what is after it, and how many heads there were.
    fn followed(text: &str) -> Result<usize, Ambiguous> {
        let mut whole = Framing::default();
        let at_once = whole.follow(text.as_bytes());
        let mut pieces = Framing::default();
        let mut one_by_one = Ok(());
        for (at, byte) in text.bytes().enumerate() {
            one_by_one = pieces.follow(&[byte]).map_err(|found| Ambiguous {
                after: at + found.after,
                ..found
            });
            if one_by_one.is_err() {
                break;
            }
        }
        assert_eq!(at_once, one_by_one, "in pieces as in one: {text:?}");
        at_once.map(|()| whole.heads())
    }

    #[test]
    fn messages_are_told_apart() {
        for (text, heads) in [
            ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", 1),
            ("\r\n\r\nGET / HTTP/1.1\r\n\r\n", 1),
            (
                "POST / HTTP/1.1\r\nContent-Length: 4\r\n\r\n\r\n\r\nGET / HTTP/1.1\r\n\r\n",
                2,
            ),
            (
                "POST / HTTP/1.1\r\ncontent-length:2\r\nContent-Length: 2\r\n\r\nhiGET / HTTP/1.1\r\n\r\n",
                2,
            ),
            (
                "POST / HTTP/1.1\r\nTransfer-Encoding: Chunked\r\n\r\n3\r\n\r\n\n\r\n0\r\n\r\nGET / HTTP/1.1\r\n\r\n",
                2,
            ),
            (
                "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n00a ;x=\"1\"\r\n0123456789\r\n0\r\nX-Sum: 1\r\n\r\nGET",
                1,
            ),
        ] {
            assert_eq!(followed(text), Ok(heads), "{text:?}");
        }
    }

    #[test]
    fn what_can_be_read_in_two_ways_is_refused_before_its_head_ends() {
        for fields in [
            "Content-Length: 3\r\nTransfer-Encoding: chunked",
            "Transfer-Encoding: chunked\r\nContent-Length: 3",
            "Content-Length: 3\r\nContent-Length: 4",
            "Content-Length: 3, 3",
            "Content-Length: +3",
            "Content-Length: 0x3",
            "Content-Length: ",
            "Content-Length: 18446744073709551616",
            "Transfer-Encoding: gzip, chunked",
            "Transfer-Encoding: identity",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
            "Transfer-Encoding: \u{b}chunked",
            "Host: a\r\nhost: b",
            "X-Long: a\r\n b",
            "X-Long: a\r\n\tContent-Length: 3",
            "X-Line: a\nContent-Length: 3",
        ] {
            let text = format!("POST / HTTP/1.1\r\n{fields}\r\n\r\n");
            let refused = followed(&text).expect_err(&text);
            assert!(refused.in_head, "{text:?}");
            assert!(refused.after < text.len(), "{text:?}");
        }
    }

    #[test]
    fn chunks_that_are_none_are_refused() {
        for chunks in [
            "\r\n",
            "x\r\n",
            "-1\r\n",
            "0x1\r\n",
            "1 1\r\n",
            "00000000000000001\r\n",
            "1\na\r\n",
            "1\r\nab\r\n",
            "1\r\na\n",
            "0\r\nX: 1\r\n folded\r\n\r\n",
            "0\r\nX: 1\n\r\n",
            "0\r\nX: 1\r2\r\n\r\n",
            "0\r\nX\0: 1\r\n\r\n",
            "0\r\nX Y: 1\r\n\r\n",
            "0\r\nno colon\r\n\r\n",
            "1\r\r\na\r\n",
            "1\u{c}\r\na\r\n",
            "1;x=\ry\r\na\r\n",
            "1;x=\0\r\na\r\n",
        ] {
            let text = format!("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}");
            let refused = followed(&text).expect_err(&text);
            assert!(!refused.in_head, "{text:?}");
        }
    }

    #[test]
    fn a_line_without_end_is_refused() {
        let mut framing = Framing::default();
        let piece = [b'x'; 1024];
        let refused = (0..=MAX_LINE / 1024).any(|_| framing.follow(&piece).is_err());
        assert!(refused);
    }
}
