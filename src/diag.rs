//! Diagnostics as data, and their one renderer. In: spans and words from every stage that judges a query; out: text
//! with carets. A diagnostic is about the user's query: it has a stable code, a span, a message, labels, notes and
//! help. Never prints, never ends the program, never lets a control character of the query through to a terminal.

use std::borrow::Cow;
use std::fmt;

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};

use crate::span::Span;

/// Draws one diagnostic as rustc does: title, the query with carets, notes, help. Spans that lie outside `src` or
/// inside a character are clamped, so it works on any input. No newline at the end.
pub fn render(src: &str, diagnostic: &Diagnostic, color: bool) -> String {
    let level = match diagnostic.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
    };
    let place = |span: Span| {
        let (start, end) = clamp(src, span);
        let start = visible(&src[..start]).len();
        start..start + visible(&src[clamp(src, span).0..end]).len()
    };
    let mut primary = AnnotationKind::Primary.span(place(diagnostic.span));
    if !diagnostic.label.is_empty() {
        primary = primary.label(visible(&diagnostic.label));
    }
    let mut snippet = Snippet::source(visible(src)).path("query").annotation(primary);
    for (span, text) in &diagnostic.secondary {
        snippet = snippet.annotation(AnnotationKind::Context.span(place(*span)).label(visible(text)));
    }
    let mut group = level
        .primary_title(visible(&diagnostic.message))
        .id(diagnostic.code.as_str())
        .element(snippet);
    for note in &diagnostic.notes {
        group = group.element(Level::NOTE.message(visible(note)));
    }
    for help in &diagnostic.help {
        group = group.element(Level::HELP.message(visible(help)));
    }
    let renderer = if color {
        Renderer::styled()
    } else {
        Renderer::plain()
    };
    renderer.render(&[group])
}

/// One thing to tell the user about the query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// What kind of thing it is.
    pub code: Code,
    /// Whether the query can still run.
    pub severity: Severity,
    /// The title: one line, no full stop.
    pub message: String,
    /// The characters it is about.
    pub span: Span,
    /// What is written beside the carets; may be empty.
    pub label: String,
    /// Other places that explain it.
    pub secondary: Vec<(Span, String)>,
    /// Facts.
    pub notes: Vec<String>,
    /// What to do.
    pub help: Vec<String>,
}

impl Diagnostic {
    /// An error: the query can't run.
    pub fn error(code: Code, span: Span, message: impl Into<String>) -> Diagnostic {
        Diagnostic {
            code,
            severity: Severity::Error,
            message: message.into(),
            span,
            label: String::new(),
            secondary: Vec::new(),
            notes: Vec::new(),
            help: Vec::new(),
        }
    }

    /// A warning: the query runs, but maybe not as meant.
    pub fn warning(code: Code, span: Span, message: impl Into<String>) -> Diagnostic {
        Diagnostic {
            severity: Severity::Warning,
            ..Diagnostic::error(code, span, message)
        }
    }

    /// Sets what is written beside the carets.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Diagnostic {
        self.label = label.into();
        self
    }

    /// Adds another place that explains it.
    #[must_use]
    pub fn secondary(mut self, span: Span, label: impl Into<String>) -> Diagnostic {
        self.secondary.push((span, label.into()));
        self
    }

    /// Adds a fact.
    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Diagnostic {
        self.notes.push(note.into());
        self
    }

    /// Adds what to do.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Diagnostic {
        self.help.push(help.into());
        self
    }
}

/// The title alone, on one line; [`render`] draws all of it.
impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]: {}", self.severity, self.code, visible(&self.message))
    }
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// The query can't run.
    Error,
    /// It runs.
    Warning,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
        })
    }
}

/// One or more diagnostics about one query, in the order they were found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostics(Vec<Diagnostic>);

impl Diagnostics {
    /// `None` if there is nothing to tell.
    pub fn new(all: Vec<Diagnostic>) -> Option<Diagnostics> {
        (!all.is_empty()).then_some(Diagnostics(all))
    }

    /// The first of them.
    pub fn first(&self) -> &Diagnostic {
        &self.0[0]
    }

    /// Adds one more.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        self.0.push(diagnostic);
    }

    /// Each of them.
    pub fn iter(&self) -> std::slice::Iter<'_, Diagnostic> {
        self.0.iter()
    }

    /// As a plain list, which is not empty.
    pub fn into_vec(self) -> Vec<Diagnostic> {
        self.0
    }
}

impl From<Diagnostic> for Diagnostics {
    fn from(one: Diagnostic) -> Diagnostics {
        Diagnostics(vec![one])
    }
}

impl IntoIterator for Diagnostics {
    type Item = Diagnostic;
    type IntoIter = std::vec::IntoIter<Diagnostic>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a> IntoIterator for &'a Diagnostics {
    type Item = &'a Diagnostic;
    type IntoIter = std::slice::Iter<'a, Diagnostic>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, diagnostic) in self.0.iter().enumerate() {
            let separator = if n == 0 { "" } else { "\n" };
            write!(f, "{separator}{diagnostic}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Diagnostics {}

/// Declares [`Code`]: one line for each, its number, its name and what it means.
macro_rules! codes {
    ($(#[doc = $doc:literal] $name:ident = $text:literal,)*) => {
        /// What kind of thing a diagnostic tells. Numbers are stable: one that is no longer used is not given away
        /// again. E01xx: syntax; E02xx: names and functions; E03xx: types; E04xx: expressions; E05xx: formats and
        /// items.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Code {
            $(#[doc = $doc] $name,)*
        }

        impl Code {
            /// Every code.
            pub const ALL: &[Code] = &[$(Code::$name,)*];

            /// As it is printed: `E0101`.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Code::$name => $text,)*
                }
            }

            /// What it means, in one line.
            pub fn summary(self) -> &'static str {
                match self {
                    $(Code::$name => $doc.trim_ascii(),)*
                }
            }
        }
    };
}

codes! {
    /// The query's text is too long.
    TooLong = "E0101",
    /// There is no query.
    EmptyQuery = "E0102",
    /// A character that can't be in a target.
    BadTarget = "E0103",
    /// A part of the target is missing.
    MissingTargetPart = "E0104",
    /// The target has too many parts.
    ExtraTargetPart = "E0105",
    /// The target begins with another tool's word for a kind of probe.
    UnknownProbeKind = "E0106",
    /// A `[` in a glob is not closed.
    UnclosedGlob = "E0107",
    /// A character that means nothing here.
    UnknownCharacter = "E0110",
    /// A character that only looks like the right one, such as a curly quote.
    Lookalike = "E0111",
    /// A string without its closing quote.
    UnterminatedString = "E0112",
    /// A character literal without its closing quote.
    UnterminatedChar = "E0113",
    /// A character literal that does not hold exactly one byte.
    BadCharLiteral = "E0114",
    /// A backslash sequence that C doesn't have.
    BadEscape = "E0115",
    /// An integer that needs more than 64 bits.
    IntegerTooLarge = "E0116",
    /// Letters after an integer that are no C suffix.
    BadSuffix = "E0117",
    /// A digit that its base doesn't have, or no digit at all.
    BadDigit = "E0118",
    /// A floating point literal.
    FloatLiteral = "E0119",
    /// A `$` without a name.
    MissingBuiltinName = "E0120",
    /// An operator or bracket without its operand.
    MissingOperand = "E0130",
    /// Two operands with nothing between them.
    MissingOperator = "E0131",
    /// `=` where `==` is meant.
    AssignForEqual = "E0132",
    /// Something that isn't an operator of this language.
    NotAnOperator = "E0133",
    /// `.` or `->` without a member's name.
    MissingMember = "E0134",
    /// `-.`, or a lone hyphen, where `->` is meant.
    LoneHyphen = "E0135",
    /// A `(` that is not closed.
    UnclosedParenthesis = "E0136",
    /// A `[` that is not closed.
    UnclosedBracket = "E0137",
    /// A `?` without its `:`.
    MissingColon = "E0138",
    /// C's comma operator.
    CommaOperator = "E0139",
    /// A type where a value is needed.
    TypeAsValue = "E0140",
    /// A type that is not written as C writes it.
    BadType = "E0141",
    /// A call of something that is not a name.
    NotCallable = "E0142",
    /// A comma without an item before or after it.
    MissingItem = "E0150",
    /// `=` without a label before it.
    MissingLabel = "E0151",
    /// `:` without a format after it.
    MissingFormat = "E0152",
    /// Too many items.
    TooManyItems = "E0153",
    /// Nested too deeply.
    TooDeep = "E0154",
    /// `if` without a condition.
    MissingCondition = "E0155",
    /// A second `if`.
    SecondCondition = "E0156",
    /// Text after the end of the query.
    TrailingText = "E0157",
    /// A closing bracket that nothing opened.
    UnmatchedBracket = "E0158",
    /// A format where none can be.
    MisplacedFormat = "E0159",
    /// An `if` where none can be.
    MisplacedIf = "E0160",
    /// A kernel function that BTF doesn't have.
    UnknownFunction = "E0201",
    /// A function name that means more than one function.
    AmbiguousFunction = "E0202",
    /// A module without BTF.
    UnknownModule = "E0203",
    /// A tracepoint that BTF doesn't have.
    UnknownTracepoint = "E0204",
    /// A kind of target that this build can't trace.
    UnsupportedTarget = "E0205",
    /// A function that exists and that nothing can be attached to.
    Untraceable = "E0206",
    /// A copy of a function that the compiler made for itself.
    CompilerCopy = "E0207",
    /// More functions than are traced at once.
    TooManyFunctions = "E0208",
    /// A function of the kernel without a prototype in BTF.
    NoPrototype = "E0209",
    /// A name that is no argument, built-in, constant or function.
    UnknownName = "E0210",
    /// An enum constant that has different values in different enums.
    AmbiguousConstant = "E0211",
    /// A return value where there is none.
    NoReturn = "E0212",
    /// A program or library that can't be read.
    UnknownBinary = "E0221",
    /// A function that a program doesn't have.
    UnknownSymbol = "E0222",
    /// A USDT probe that a program doesn't have.
    UnknownProbe = "E0223",
    /// A place of a USDT probe whose arguments can't be fetched.
    UnreadableSite = "E0224",
    /// A type that BTF doesn't have.
    UnknownType = "E0301",
    /// A type whose definition BTF doesn't have.
    Incomplete = "E0302",
    /// A member that the struct or union doesn't have.
    UnknownMember = "E0303",
    /// Members of something that has none.
    NotComposite = "E0304",
    /// `.` on a pointer.
    DotForArrow = "E0305",
    /// `->` on a struct.
    ArrowForDot = "E0306",
    /// Following something that is no pointer.
    NotPointer = "E0307",
    /// An index on something that is no array or pointer.
    NotIndexable = "E0308",
    /// A constant index that the array doesn't have.
    OutOfBounds = "E0309",
    /// A struct where a value is needed.
    NotScalar = "E0310",
    /// Types that don't go together.
    TypeClash = "E0311",
    /// A cast to a type that nothing can be cast to.
    BadCast = "E0312",
    /// The address of a bitfield.
    BitfieldAddress = "E0313",
    /// The address of something that is not in memory.
    NoAddress = "E0314",
    /// A string where it can't be.
    StringOperand = "E0401",
    /// A shift by more bits than there are.
    BadShift = "E0402",
    /// A division by a constant zero.
    DivisionByZero = "E0403",
    /// A comparison whose result is known without the value.
    DecidedComparison = "E0404",
    /// Wrong arguments of a built-in function.
    BadArguments = "E0405",
    /// A built-in function where it can't be.
    MisplacedCall = "E0406",
    /// A glob pattern that is none, or one that is too long.
    BadPattern = "E0411",
    /// A length that nothing has.
    BadLength = "E0412",
    /// A condition whose result is known without the value.
    DecidedCondition = "E0413",
    /// A comparison beside a bitwise operator, which binds less tightly.
    Precedence = "E0414",
    /// A query that aggregates would also show a value.
    MixedAggregation = "E0420",
    /// `by` without an aggregation.
    NothingAggregated = "E0421",
    /// The bounds of a histogram make no buckets, or too many.
    BadBounds = "E0422",
    /// Keys of an aggregation that are too long.
    KeyTooLong = "E0423",
    /// A format that doesn't exist or doesn't fit the value.
    BadFormat = "E0501",
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The span as offsets that can slice `src`: inside it, in order, and grown to whole characters.
fn clamp(src: &str, span: Span) -> (usize, usize) {
    let start = src.floor_char_boundary(span.start as usize);
    let end = src.ceil_char_boundary(span.end as usize);
    (start, end.max(start))
}

/// The text with each character that could act on a terminal spelt out. Newlines and tabs stay: the renderer breaks
/// lines at the first and expands the second.
fn visible(text: &str) -> Cow<'_, str> {
    if !text.contains(acts) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if !acts(c) {
            out.push(c);
        } else if c.is_ascii() {
            out.push_str(&format!("\\x{:02x}", c as u32));
        } else {
            out.push_str(&format!("\\u{{{:x}}}", c as u32));
        }
    }
    Cow::Owned(out)
}

/// Control characters, and the invisible ones that reorder or hide what is around them.
fn acts(c: char) -> bool {
    match c {
        '\n' | '\t' => false,
        '\u{ad}' | '\u{61c}' | '\u{feff}' => true,
        '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' => true,
        '\u{fff0}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}' => true,
        _ => c.is_control(),
    }
}

#[cfg(test)]
mod tests;
