//! `.gnu_debugdata`: the symbol table that distributions leave in a stripped file, compressed. In: the section's bytes. Out: an
//! ELF file's. Never gives more than a bound, however small what claims to be large is.

use std::io::{self, Write};

/// The largest such file in a Fedora is some megabytes.
const MAX: usize = 256 << 20;

/// Decompresses `.gnu_debugdata`, which is in xz's format.
///
/// # Errors
/// A sentence: it is no such file, it is cut short, or it is too large.
pub fn decompress(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let mut out = Bounded(Vec::new());
    let mut input = bytes;
    match lzma_rs::xz_decompress(&mut input, &mut out) {
        Ok(()) => Ok(out.0),
        Err(error) => Err(format!("`.gnu_debugdata` can't be decompressed: {error:?}")),
    }
}

struct Bounded(Vec<u8>);

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > MAX {
            return Err(io::Error::other("it is too large"));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
