use sha2::{Digest, Sha256};

/// SHA-256 of some pieces put together, in hexadecimal digits.
pub(crate) fn sha256<T: AsRef<[u8]>>(pieces: impl IntoIterator<Item = T>) -> String {
    let digest = pieces
        .into_iter()
        .fold(Sha256::new(), |digest, piece| digest.chain_update(piece));
    digest
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}
