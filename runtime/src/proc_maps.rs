//! Lines of `/proc/PID/maps`. In: a line. Out: what is mapped there, if it is code. Never opens a file.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;

/// The path of a file, which is the same file when it was deleted since.
pub(crate) fn undeleted(path: &[u8]) -> &OsStr {
    OsStr::from_bytes(path.strip_suffix(b" (deleted)").unwrap_or(path))
}

/// A line of `/proc/PID/maps` about memory that can be run.
pub(crate) struct Line<'l> {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) offset: u64,
    pub(crate) device: &'l str,
    pub(crate) inode: u64,
    pub(crate) path: &'l Path,
}

impl<'l> Line<'l> {
    /// `55d0c0a3d000-55d0c0a3e000 r-xp 00001000 fe:01 1234   /usr/bin/prog`
    pub(crate) fn parse(line: &'l [u8]) -> Option<Line<'l>> {
        let mut rest = line;
        let mut word = || {
            let end = rest.iter().position(|byte| *byte == b' ').unwrap_or(rest.len());
            let (word, behind) = rest.split_at(end);
            rest = behind.trim_ascii_start();
            std::str::from_utf8(word).ok()
        };
        let (start, end) = word()?.split_once('-')?;
        let flags = word()?;
        let offset = u64::from_str_radix(word()?, 16).ok()?;
        let device = word()?;
        let inode = word()?.parse().ok()?;
        (flags.as_bytes().get(2) == Some(&b'x')).then_some(Line {
            start: u64::from_str_radix(start, 16).ok()?,
            end: u64::from_str_radix(end, 16).ok()?,
            offset,
            device,
            inode,
            path: Path::new(undeleted(rest)),
        })
    }

    pub(crate) fn name(&self) -> Option<Rc<str>> {
        let name = self.path.file_name()?.to_string_lossy();
        Some(name.as_ref().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_maps() {
        let line = b"55d0c0a3d000-55d0c0a3e000 r-xp 00001000 fe:01 1234      /usr/bin/a b (deleted)";
        let line = Line::parse(line).expect("a line of code");
        assert_eq!(
            (line.start, line.end, line.offset),
            (0x55d0_c0a3_d000, 0x55d0_c0a3_e000, 0x1000)
        );
        assert_eq!(
            (line.device, line.inode, line.path),
            ("fe:01", 1234, Path::new("/usr/bin/a b"))
        );
        assert!(Line::parse(b"7ffc0000-7ffc1000 rw-p 00000000 00:00 0 [stack]").is_none());
        let vdso =
            Line::parse(b"7ffc0000-7ffc1000 r-xp 00000000 00:00 0 [vdso]").expect("code without a file");
        assert_eq!(vdso.name().as_deref(), Some("[vdso]"));
        for wrong in [
            "",
            " ",
            "-",
            "1-2",
            "1-2 r-xp",
            "1-2 r-xp x y z",
            "zz-1 r-xp 0 0 0",
        ] {
            assert!(Line::parse(wrong.as_bytes()).is_none(), "{wrong}");
        }
    }
}
