//! The terminal that output goes to. In: a descriptor. Out: how wide it is. Never writes to it.

use std::os::fd::{AsRawFd, BorrowedFd};

/// Columns of the terminal behind a descriptor; `None` if it is no terminal, or does not know.
pub fn columns(fd: BorrowedFd<'_>) -> Option<u16> {
    let mut size = libc::winsize {
        ws_row: 0,
        ws_col: 0,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // SAFETY: the request writes a `winsize`, and `size` is one that lives.
    let answer = unsafe { libc::ioctl(fd.as_raw_fd(), libc::TIOCGWINSZ, &raw mut size) };
    (answer == 0 && size.ws_col > 0).then_some(size.ws_col)
}
