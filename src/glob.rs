//! Glob patterns: `*` for any text, `?` for any character, `[a-z]` and `[!a-z]` for one of a set, a backslash before what
//! is meant as itself. In: a pattern's bytes. Out: sets of bytes with the places where any text may stand, which code
//! generation turns into a program, and matching right here. Never backtracks more than once a character.

/// One byte of a text: any of these.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Set {
    /// First and last byte of each range, in order, apart from each other; never NUL, which ends a text.
    ranges: Vec<(u8, u8)>,
}

/// A pattern.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pattern {
    sets: Vec<Set>,
    /// One more than sets: whether any text may stand before that set; the last is about the end.
    stars: Vec<bool>,
}

/// Why a pattern is none, and at which of its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GlobError {
    /// First byte that is about it.
    pub start: usize,
    /// Where that ends.
    pub end: usize,
    /// What is wrong.
    pub kind: GlobErrorKind,
}

/// What can be wrong with a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GlobErrorKind {
    /// A `[` without its `]`.
    Unclosed,
    /// A range that ends before it begins, such as `[z-a]`.
    Backwards,
    /// A set that holds nothing.
    Empty,
    /// A backslash at the end, with nothing to mean as itself.
    Backslash,
}

impl Pattern {
    /// Reads a pattern. It holds no NUL.
    pub fn parse(text: &[u8]) -> Result<Pattern, GlobError> {
        let mut sets = Vec::new();
        let mut stars = vec![false];
        let mut at = 0;
        while let Some(byte) = text.get(at) {
            let set = match byte {
                b'*' => {
                    if let Some(last) = stars.last_mut() {
                        *last = true;
                    }
                    at += 1;
                    continue;
                }
                b'?' => {
                    at += 1;
                    Set::any()
                }
                b'[' => {
                    let (set, end) = class(text, at)?;
                    at = end;
                    set
                }
                b'\\' => {
                    let Some(byte) = text.get(at + 1) else {
                        return Err(GlobError {
                            start: at,
                            end: at + 1,
                            kind: GlobErrorKind::Backslash,
                        });
                    };
                    at += 2;
                    Set::one(*byte)
                }
                byte => {
                    at += 1;
                    Set::one(*byte)
                }
            };
            sets.push(set);
            stars.push(false);
        }
        Ok(Pattern { sets, stars })
    }

    /// The characters, one set for each.
    pub fn sets(&self) -> &[Set] {
        &self.sets
    }

    /// Whether any text may stand before the character of that number; one past the last asks about the end.
    pub fn star(&self, index: usize) -> bool {
        self.stars.get(index).copied().unwrap_or(false)
    }

    /// How many characters come before the first `*`.
    pub fn prefix(&self) -> usize {
        self.stars
            .iter()
            .position(|star| *star)
            .unwrap_or(self.sets.len())
    }

    /// Whether there is a `*` in it.
    pub fn has_star(&self) -> bool {
        self.stars.contains(&true)
    }

    /// Whether the whole text matches.
    pub fn matches(&self, text: &[u8]) -> bool {
        let (mut p, mut n) = (0, 0);
        let mut resume: Option<(usize, usize)> = None;
        loop {
            if self.star(p) && resume.is_none_or(|(at, _)| at != p) {
                resume = Some((p, n));
            }
            if n == text.len() && p == self.sets.len() {
                return true;
            }
            let next = text
                .get(n)
                .zip(self.sets.get(p))
                .is_some_and(|(byte, set)| set.contains(*byte));
            if next {
                (p, n) = (p + 1, n + 1);
                continue;
            }
            // The last star takes one character more.
            match resume {
                Some((at, taken)) if taken < text.len() => {
                    (p, n) = (at, taken + 1);
                    resume = Some((at, taken + 1));
                }
                Some(_) | None => return false,
            }
        }
    }
}

/// Patterns for names, any of which may match.
#[derive(Clone, Debug)]
pub struct Patterns(Vec<Pattern>);

impl Patterns {
    /// Reads patterns. What is none stands for itself.
    pub fn new<S: AsRef<str>>(patterns: &[S]) -> Patterns {
        let pattern = |text: &S| {
            let text = text.as_ref().as_bytes();
            Pattern::parse(text).unwrap_or_else(|_| Pattern {
                sets: text.iter().map(|byte| Set::one(*byte)).collect(),
                stars: vec![false; text.len() + 1],
            })
        };
        Patterns(patterns.iter().map(pattern).collect())
    }

    /// Whether one of them matches the whole name.
    pub fn any(&self, name: &str) -> bool {
        self.0.iter().any(|pattern| pattern.matches(name.as_bytes()))
    }
}

impl Set {
    fn one(byte: u8) -> Set {
        Set {
            ranges: vec![(byte, byte)],
        }
    }

    fn any() -> Set {
        Set {
            ranges: vec![(1, u8::MAX)],
        }
    }

    /// First and last byte of each range, in order.
    pub fn ranges(&self) -> &[(u8, u8)] {
        &self.ranges
    }

    /// The byte, if it is only one.
    pub fn single(&self) -> Option<u8> {
        match self.ranges.as_slice() {
            [(first, last)] if first == last => Some(*first),
            _ => None,
        }
    }

    /// Whether every character is in it.
    pub fn is_any(&self) -> bool {
        *self == Set::any()
    }

    /// Whether the byte is in it.
    pub fn contains(&self, byte: u8) -> bool {
        self.ranges
            .iter()
            .any(|(first, last)| (*first..=*last).contains(&byte))
    }

    /// All characters that are not in it.
    pub fn complement(&self) -> Set {
        let mut ranges = Vec::new();
        let mut from = 1u16;
        for (first, last) in &self.ranges {
            if from < u16::from(*first) {
                ranges.push((from as u8, first - 1));
            }
            from = u16::from(*last) + 1;
        }
        if from <= 255 {
            ranges.push((from as u8, u8::MAX));
        }
        Set { ranges }
    }
}

/// The set in brackets that begins there, and where it ends. A `]` or `-` that comes first is meant as itself.
fn class(text: &[u8], open: usize) -> Result<(Set, usize), GlobError> {
    let error = |start, end, kind| GlobError { start, end, kind };
    let mut at = open + 1;
    let negated = matches!(text.get(at), Some(b'!' | b'^'));
    if negated {
        at += 1;
    }
    let from = at;
    let mut members = [false; 256];
    loop {
        let byte = match text.get(at) {
            None => return Err(error(open, text.len(), GlobErrorKind::Unclosed)),
            Some(b']') if at > from => break,
            Some(b'\\') => {
                at += 1;
                text.get(at)
                    .ok_or_else(|| error(at - 1, at, GlobErrorKind::Backslash))?
            }
            Some(byte) => byte,
        };
        let start = at;
        at += 1;
        let mut last = *byte;
        if text.get(at) == Some(&b'-')
            && let Some(end) = text.get(at + 1)
            && *end != b']'
        {
            last = *end;
            at += 2;
            if last < *byte {
                return Err(error(start, at, GlobErrorKind::Backwards));
            }
        }
        members[usize::from(*byte)..=usize::from(last)].fill(true);
    }
    at += 1;
    if negated {
        members.iter_mut().for_each(|member| *member = !*member);
    }
    members[0] = false;
    let mut ranges: Vec<(u8, u8)> = Vec::new();
    for byte in 1..=u8::MAX {
        if !members[usize::from(byte)] {
            continue;
        }
        match ranges.last_mut() {
            Some((_, last)) if u16::from(*last) + 1 == u16::from(byte) => *last = byte,
            Some(_) | None => ranges.push((byte, byte)),
        }
    }
    if ranges.is_empty() {
        return Err(error(open, at, GlobErrorKind::Empty));
    }
    Ok((Set { ranges }, at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_a_shell() {
        for (pattern, yes, no) in [
            ("", vec![""], vec!["a"]),
            ("*", vec!["", "a", "abc"], vec![]),
            ("eth*", vec!["eth", "eth0"], vec!["et", "xeth0", "Eth0"]),
            ("*eth?", vec!["eth0", "veth1", "etheth2"], vec!["eth", "eth00x"]),
            (
                "a*b*c",
                vec!["abc", "aXbYc", "abbcc", "abcbc"],
                vec!["ab", "acb", "abcd"],
            ),
            ("**a**", vec!["a", "ba", "ab"], vec!["", "b"]),
            ("[a-c]x", vec!["ax", "bx", "cx"], vec!["dx", "x", "abx"]),
            ("[!a-c]x", vec!["dx", "\u{1}x"], vec!["ax", "x"]),
            ("[^0-9]*", vec!["a1"], vec!["1a", ""]),
            ("[]x]", vec!["]", "x"], vec!["y", "[]x]"]),
            ("[a-]", vec!["a", "-"], vec!["b"]),
            ("[a\\]b]", vec!["a", "]", "b"], vec!["\\"]),
            ("\\*x", vec!["*x"], vec!["ax", "x"]),
            ("a?*?", vec!["abc", "abcd"], vec!["ab", "a"]),
            ("*aab", vec!["aaab", "aabaab"], vec!["aaba"]),
        ] {
            let glob = match Pattern::parse(pattern.as_bytes()) {
                Ok(glob) => glob,
                Err(error) => panic!("{pattern}: {error:?}"),
            };
            for text in yes {
                assert!(glob.matches(text.as_bytes()), "{pattern} {text}");
            }
            for text in no {
                assert!(!glob.matches(text.as_bytes()), "{pattern} {text}");
            }
        }
    }

    #[test]
    fn a_name_may_be_any_of_several() {
        let names = Patterns::new(&["tcp_*", "a[", "*[0-9]"]);
        for name in ["tcp_", "tcp_ack", "a[", "vfs_4"] {
            assert!(names.any(name), "{name}");
        }
        for name in ["tcp", "a", "vfs_x", ""] {
            assert!(!names.any(name), "{name}");
        }
    }

    #[test]
    fn what_is_no_pattern_is_told() {
        for (pattern, start, end, kind) in [
            ("a[bc", 1, 4, GlobErrorKind::Unclosed),
            ("[", 0, 1, GlobErrorKind::Unclosed),
            ("[]", 0, 2, GlobErrorKind::Unclosed),
            ("x[z-a]", 2, 5, GlobErrorKind::Backwards),
            ("x\\", 1, 2, GlobErrorKind::Backslash),
            ("[!\u{1}-\u{7f}", 0, 5, GlobErrorKind::Unclosed),
        ] {
            let error = GlobError { start, end, kind };
            assert_eq!(Pattern::parse(pattern.as_bytes()), Err(error), "{pattern}");
        }
        let all = [&b"[!\x01-\xff]"[..]].concat();
        assert_eq!(
            Pattern::parse(&all).map_err(|error| error.kind),
            Err(GlobErrorKind::Empty)
        );
    }

    #[test]
    fn a_complement_holds_the_rest() {
        for text in ["?", "a", "[a-c]", "[!a-c]", "[\u{1}-\u{2}z]"] {
            let Ok(pattern) = Pattern::parse(text.as_bytes()) else {
                panic!("{text}");
            };
            let set = &pattern.sets()[0];
            let rest = set.complement();
            for byte in 1..=255 {
                assert_ne!(set.contains(byte), rest.contains(byte), "{text} {byte}");
            }
            assert!(!set.contains(0) && !rest.contains(0));
        }
    }
}
