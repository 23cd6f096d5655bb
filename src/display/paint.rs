//! Colour for terminals. In: whether there is to be any, and a style. Out: escape sequences appended to a string, or
//! nothing. Never asks whether there is a terminal.

/// Writes styles, or leaves them out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Paint {
    on: bool,
}

/// How text stands out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    /// Names of events and values.
    Bold,
    /// Types.
    Dim,
    /// Faults.
    Red,
}

impl Paint {
    pub(super) fn new(on: bool) -> Paint {
        Paint { on }
    }

    /// From here on in this style.
    pub(super) fn start(self, out: &mut String, style: Style) {
        if self.on {
            out.push_str(match style {
                Style::Bold => "\x1b[1m",
                Style::Dim => "\x1b[2m",
                Style::Red => "\x1b[31m",
            });
        }
    }

    /// From here on plain.
    pub(super) fn end(self, out: &mut String) {
        if self.on {
            out.push_str("\x1b[0m");
        }
    }
}
