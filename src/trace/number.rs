//! Numbers of things in what is told. In: how many, and of what, in the singular. Out: words. Never knows an irregular plural.

/// `1 call`, `2 calls`.
pub(super) fn number(count: u64, of: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {of}{plural}")
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn one_is_singular() {
        assert_eq!(number(0, "call"), "0 calls");
        assert_eq!(number(1, "call"), "1 call");
        assert_eq!(number(2, "call"), "2 calls");
    }
}
