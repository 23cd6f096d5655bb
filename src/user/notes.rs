//! The notes in which `<sys/sdt.h>` leaves word of USDT probes: section `.note.stapsdt`, one note for each call site. In:
//! the section's bytes. Out: their content as it is written there. Never interprets an address.
//!
//! A note is three 32-bit numbers (length of the owner's name, length of the content, type 3), the name `stapsdt`, and the
//! content: three addresses and three NUL-terminated strings. Name and content are padded to four bytes.

/// The content of one note.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Where the call site was when the file was linked.
    pub location: u64,
    /// Where `.stapsdt.base` was then; a file that was moved since (prelink) has it elsewhere.
    pub base: u64,
    /// Where the semaphore is, or 0.
    pub semaphore: u64,
    /// Who defines the probe.
    pub provider: String,
    /// What it is called.
    pub name: String,
    /// The recipes of its arguments.
    pub arguments: String,
}

/// `NT_STAPSDT`
const TYPE: u32 = 3;
const OWNER: &[u8] = b"stapsdt\0";

/// Reads a little-endian section of a 64-bit file. What is behind a note that is cut short is lost, which is told by the second value;
/// notes of others are passed over.
pub fn notes(section: &[u8]) -> (Vec<Note>, Option<String>) {
    let mut found = Vec::new();
    let mut rest = section;
    while !rest.is_empty() {
        let at = section.len() - rest.len();
        let Some(Raw {
            owner,
            kind,
            content,
            after,
        }) = note(rest)
        else {
            return (
                found,
                Some(format!("the note at {at:#x} of .note.stapsdt is cut short")),
            );
        };
        if owner == OWNER && kind == TYPE {
            match usdt(content) {
                Some(note) => found.push(note),
                None => {
                    let why = format!("the content of the note at {at:#x} of .note.stapsdt is cut short");
                    return (found, Some(why));
                }
            }
        }
        rest = after;
    }
    (found, None)
}

/// A note of any owner, and what comes after it.
struct Raw<'a> {
    owner: &'a [u8],
    kind: u32,
    content: &'a [u8],
    after: &'a [u8],
}

fn note(bytes: &[u8]) -> Option<Raw<'_>> {
    let word = |at: usize| -> Option<u32> {
        let word = bytes.get(at..at + 4)?.first_chunk::<4>()?;
        Some(u32::from_le_bytes(*word))
    };
    let (owner_len, content_len, kind) = (word(0)? as usize, word(4)? as usize, word(8)?);
    let rest = bytes.get(12..)?;
    let owner = rest.get(..owner_len)?;
    let rest = rest.get(owner_len.checked_next_multiple_of(4)?..)?;
    let content = rest.get(..content_len)?;
    // The last one need not be padded.
    let padded = content_len.checked_next_multiple_of(4)?;
    let after = rest.get(padded..).unwrap_or(&[]);
    Some(Raw {
        owner,
        kind,
        content,
        after,
    })
}

fn usdt(content: &[u8]) -> Option<Note> {
    let address = |index: usize| -> Option<u64> {
        let bytes = content.get(index * 8..)?.first_chunk::<8>()?;
        Some(u64::from_le_bytes(*bytes))
    };
    let mut strings = content.get(24..)?;
    let mut string = || -> Option<String> {
        let end = strings.iter().position(|byte| *byte == 0)?;
        let text = String::from_utf8_lossy(&strings[..end]).into_owned();
        strings = &strings[end + 1..];
        Some(text)
    };
    Some(Note {
        location: address(0)?,
        base: address(1)?,
        semaphore: address(2)?,
        provider: string()?,
        name: string()?,
        arguments: string()?,
    })
}
