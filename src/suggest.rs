//! "Did you mean": the names nearest to a misspelt one. In: a name and candidates. Out: at most three of them. Pure, and the same
//! whatever the candidates' order.

/// The at most three candidates that `name` was probably meant to be, the likeliest first: those a few typing
/// mistakes away (another case costs nothing); else those with the same words in another order; else those that
/// begin with `name`, or have it in them. Does not depend on the order of the candidates.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    // The rank puts a kind of likeness first, then how far away, then the shorter name, then the alphabet.
    let mut best: Vec<(u8, usize, usize, &'a str)> = Vec::new();
    let wanted = name.to_ascii_lowercase();
    let limit = (wanted.len().max(3) / 3).min(3);
    let words = sorted_words(&wanted);
    let mut distance = Distance::new(wanted.as_bytes());
    for candidate in candidates {
        let rank = if let Some(steps) = distance.within(candidate.as_bytes(), limit) {
            (0, steps, candidate.len(), candidate)
        } else if words.len() > 1
            && candidate.len() == wanted.len()
            && sorted_words(&candidate.to_ascii_lowercase()) == words
        {
            (1, 0, candidate.len(), candidate)
        } else if wanted.len() >= 3
            && candidate
                .as_bytes()
                .get(..wanted.len())
                .is_some_and(|head| head.eq_ignore_ascii_case(wanted.as_bytes()))
        {
            (2, 0, candidate.len(), candidate)
        } else if wanted.len() >= 4 && candidate.to_ascii_lowercase().contains(&wanted) {
            (3, 0, candidate.len(), candidate)
        } else {
            continue;
        };
        if let Err(at) = best.binary_search(&rank)
            && at < 3
        {
            best.insert(at, rank);
            best.truncate(3);
        }
    }
    let kind = best.first().map_or(0, |rank| rank.0);
    best.into_iter()
        .filter(|rank| rank.0 == kind)
        .map(|rank| rank.3)
        .collect()
}

/// The at most three functions that were probably meant by a name that none has. What the kernel's macros make of a name comes first:
/// `kmalloc` is `kmalloc_noprof` since 6.10 (include/linux/alloc_tag.h), a system call is `__x64_sys_NAME`.
pub fn nearest_function<'a>(name: &str, functions: &'a [String]) -> Vec<&'a str> {
    let call = name.strip_prefix("sys_").unwrap_or(name);
    let made = [
        format!("{name}_noprof"),
        format!("__x64_sys_{call}"),
        format!("__arm64_sys_{call}"),
    ];
    let mut found: Vec<&str> = Vec::new();
    for made in &made {
        found.extend(
            functions
                .iter()
                .find(|function| *function == made)
                .map(String::as_str),
        );
    }
    for near in nearest(name, functions.iter().map(String::as_str)) {
        if !found.contains(&near) {
            found.push(near);
        }
    }
    found.truncate(3);
    found
}

/// The number of letters that are inserted, dropped, changed or swapped with their neighbour between two names, if it is at most `limit`; case
/// counts for nothing.
pub fn edits(a: &str, b: &str, limit: usize) -> Option<usize> {
    Distance::new(a.to_ascii_lowercase().as_bytes()).within(b.as_bytes(), limit)
}

fn sorted_words(name: &str) -> Vec<&str> {
    let mut words: Vec<&str> = name.split('_').collect();
    words.sort_unstable();
    words
}

/// Damerau-Levenshtein distance (optimal string alignment) from one name to many, without regard to case. The rows
/// are kept, because tens of thousands of names are tried in turn.
struct Distance<'a> {
    name: &'a [u8],
    rows: [Vec<usize>; 3],
}

impl<'a> Distance<'a> {
    /// `name` is in lower case.
    fn new(name: &'a [u8]) -> Distance<'a> {
        Distance {
            name,
            rows: std::array::from_fn(|_| vec![0; name.len() + 1]),
        }
    }

    /// The number of inserted, dropped, changed and swapped neighbouring letters, if it is at most `limit`.
    fn within(&mut self, other: &[u8], limit: usize) -> Option<usize> {
        let (name, width) = (self.name, self.name.len());
        if other.len().abs_diff(width) > limit {
            return None;
        }
        let [before, last, row] = &mut self.rows;
        last.iter_mut().enumerate().for_each(|(n, cell)| *cell = n);
        let mut previous = 0;
        for (i, letter) in other.iter().map(u8::to_ascii_lowercase).enumerate() {
            row[0] = i + 1;
            for j in 0..width {
                let change = last[j] + usize::from(name[j] != letter);
                let mut cell = change.min(last[j + 1] + 1).min(row[j] + 1);
                if i > 0 && j > 0 && name[j] == previous && name[j - 1] == letter {
                    cell = cell.min(before[j - 1] + 1);
                }
                row[j + 1] = cell;
            }
            // A swap reaches two rows back, so only two bad rows in a row end it.
            if row.iter().min() > Some(&limit) && last.iter().min() > Some(&limit) {
                return None;
            }
            previous = letter;
            std::mem::swap(before, last);
            std::mem::swap(last, row);
        }
        (last[width] <= limit).then_some(last[width])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names() {
        let names = [
            "len",
            "data_len",
            "mac_len",
            "hdr_len",
            "sk",
            "skb_iif",
            "TCP_ESTABLISHED",
            "tcp_sendmsg",
        ];
        assert_eq!(nearest("lne", names), ["len"]);
        assert_eq!(nearest("data_lne", names), ["data_len"]);
        assert_eq!(nearest("tcp_established", names), ["TCP_ESTABLISHED"]);
        assert_eq!(nearest("len_data", names), ["data_len"]);
        assert_eq!(nearest("tcp_send", names), ["tcp_sendmsg"]);
        assert_eq!(nearest("xyzzy", names), [""; 0]);
        assert_eq!(nearest("", names), [""; 0]);
        assert_eq!(nearest("aa", ["ad", "ab", "ac", "ab", "ae"]), ["ab", "ac", "ad"]);
        assert_eq!(nearest("aa", ["ae", "ad", "ac", "ab"]), ["ab", "ac", "ad"]);
    }

    #[test]
    fn functions_that_macros_rename() {
        let all = [
            "__alloc",
            "__kmalloc_noprof",
            "__x64_sys_openat",
            "io_openat",
            "path_openat",
        ]
        .map(str::to_string);
        assert_eq!(nearest_function("__kmalloc", &all)[0], "__kmalloc_noprof");
        assert_eq!(nearest_function("openat", &all)[0], "__x64_sys_openat");
        assert_eq!(nearest_function("sys_openat", &all)[0], "__x64_sys_openat");
        assert_eq!(nearest_function("io_openta", &all), ["io_openat"]);
    }

    #[test]
    fn distance_counts_edits_and_swaps() {
        let steps = |a: &str, b: &str, limit| Distance::new(a.as_bytes()).within(b.as_bytes(), limit);
        assert_eq!(steps("ca", "ac", 3), Some(1));
        assert_eq!(steps("kitten", "sitting", 3), Some(3));
        assert_eq!(steps("kitten", "sitting", 2), None);
        assert_eq!(steps("abcd", "badc", 2), Some(2));
        assert_eq!(steps("", "ab", 2), Some(2));
        assert_eq!(steps("ab", "", 2), Some(2));
    }
}
