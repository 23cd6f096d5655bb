//! Lines cut to the columns of a terminal. In: a line that may have escape sequences of colour in it. Out: the same line, or
//! its beginning and its end with `…` between. Never cuts a character or a sequence in two, and never leaves a colour on.

use unicode_width::UnicodeWidthChar;

/// What stands for what was left out.
const ELLIPSIS: &str = "…";
/// The sequence that ends a colour.
const PLAIN: &str = "\x1b[0m";

/// Cuts what `out` holds from byte `begin` on to so many columns. What begins at byte `keep`, the result of a call, stays if
/// it takes less than half of them.
pub(super) fn fit(out: &mut String, begin: usize, keep: Option<usize>, columns: usize) {
    // A byte takes at most one column, so most lines need not be measured.
    let Some(line) = out.get(begin..).filter(|line| line.len() > columns) else {
        return;
    };
    if measure(line, usize::MAX).0 <= columns {
        return;
    }
    let tail = keep
        .and_then(|keep| out.get(keep..))
        .filter(|tail| measure(tail, usize::MAX).0 <= columns / 2)
        .map(str::to_string)
        .unwrap_or_default();
    let room = columns.saturating_sub(measure(&tail, usize::MAX).0 + 1);
    let (_, end) = measure(line, room);
    let colored = line.contains('\x1b');
    out.truncate(begin + end);
    if colored {
        out.push_str(PLAIN);
    }
    out.push_str(ELLIPSIS);
    out.push_str(&tail);
}

/// Columns of the text up to so many, and the byte at which those end.
fn measure(text: &str, room: usize) -> (usize, usize) {
    let mut columns = 0;
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        if c == '\x1b' {
            // Ours all end in `m`.
            chars.by_ref().find(|(_, c)| *c == 'm');
            continue;
        }
        let wide = c.width().unwrap_or(0);
        if columns + wide > room {
            return (columns, at);
        }
        columns += wide;
    }
    (columns, text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fitted(text: &str, keep: Option<usize>, columns: usize) -> String {
        let mut out = format!("before\n{text}");
        fit(&mut out, 7, keep.map(|keep| keep + 7), columns);
        let line = out.strip_prefix("before\n").expect("what was there stays");
        assert!(measure(line, usize::MAX).0 <= columns.max(1), "{line}");
        line.to_string()
    }

    #[test]
    fn what_fits_stays() {
        assert_eq!(fitted("f(a=1) = 2", None, 10), "f(a=1) = 2");
        assert_eq!(fitted("日本", None, 4), "日本");
        assert_eq!(fitted("\x1b[1mf\x1b[0m()", None, 3), "\x1b[1mf\x1b[0m()");
    }

    #[test]
    fn the_result_outlives_what_is_before_it() {
        let line = "do_sys_openat2(filename=\"/a/very/long/path\") = -2";
        let keep = line.find(") = ");
        assert_eq!(fitted(line, keep, 30), "do_sys_openat2(filename…) = -2");
        assert_eq!(fitted(line, None, 30), "do_sys_openat2(filename=\"/a/v…");
        // A long result is cut like anything else.
        assert_eq!(fitted(line, Some(3), 10), "do_sys_op…");
    }

    #[test]
    fn wide_characters_and_colours_are_not_cut_in_two() {
        assert_eq!(fitted("日本語", None, 4), "日…");
        assert_eq!(fitted("\x1b[31mabcdef\x1b[0m", None, 4), "\x1b[31mabc\x1b[0m…");
        assert_eq!(fitted("abc", None, 0), "…");
    }
}
