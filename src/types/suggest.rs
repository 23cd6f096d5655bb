//! "Did you mean": the names nearest to a misspelt one. Pure, and the same for the same input whatever its order of ties.

/// At most three names that are spelled nearly like `wanted`, best first.
pub fn closest(wanted: &str, names: impl IntoIterator<Item = String>) -> Vec<String> {
    let limit = 1 + wanted.chars().count() / 4;
    let mut scored: Vec<(usize, String)> = Vec::new();
    for name in names {
        if let Some(distance) = distance_within(wanted, &name, limit) {
            scored.push((distance, name));
        }
    }
    scored.sort();
    scored.dedup();
    scored.into_iter().take(3).map(|(_, name)| name).collect()
}

/// Edit distance, counting two exchanged neighbours as one edit; `None` above the limit.
fn distance_within(a: &str, b: &str, limit: usize) -> Option<usize> {
    let a: Vec<char> = a.chars().collect();
    let b: Vec<char> = b.chars().collect();
    if a.len().abs_diff(b.len()) > limit {
        return None;
    }
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let change = usize::from(a[i - 1] != b[j - 1]);
            row[j] = (last[j - 1] + change).min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before[j - 2] + 1);
            }
        }
        // Once a whole row is above the limit the rest can't come back under it, exchanges aside: they look one further back.
        if row.iter().min() > Some(&limit) && last.iter().min() > Some(&limit) {
            return None;
        }
        before = last;
        last = row;
    }
    last.last().copied().filter(|distance| *distance <= limit)
}
