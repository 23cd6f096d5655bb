//! What holds for every text: nothing panics, and printing loses nothing.

use crate::parser::{MAX_DEPTH, MAX_ITEMS, MAX_LENGTH, generate, parse};

#[test]
fn printed_trees_parse_to_themselves() {
    for seed in 0..4_000 {
        let tree = generate::query(seed);
        let text = tree.to_string();
        match parse(&text) {
            Ok(again) => assert_eq!(again.strip_spans(), tree, "seed {seed}: {text}"),
            Err(why) => panic!("seed {seed}: {text}\n{why}\n{:?}", why.first()),
        }
        generate::check(&text);
    }
}

#[test]
fn mutated_queries_keep_the_laws() {
    let mut taken = 0;
    for seed in 0..8_000 {
        let text = generate::mutated(&generate::query(seed / 8).to_string(), seed);
        generate::check(&text);
        taken += u32::from(parse(&text).is_ok());
    }
    assert!(taken > 500, "too few mutants were queries: {taken}");
}

#[test]
fn soup_keeps_the_laws() {
    for seed in 0..8_000 {
        generate::check(&generate::soup(seed));
    }
}

#[test]
fn every_prefix_keeps_the_laws() {
    for seed in 0..60 {
        let text = generate::query(seed).to_string();
        for end in (0..=text.len()).filter(|end| text.is_char_boundary(*end)) {
            generate::check(&text[..end]);
        }
    }
}

/// Each repeats something that nests, up to the longest text, on a stack a little smaller than the one that
/// threads get.
#[test]
fn depth_is_bounded() {
    let shapes = [
        ("f(", "(", ""),
        ("f(", "a[", ""),
        ("f(", "g(", ""),
        ("f(", "!", "a)"),
        ("f(", "-(", ""),
        ("f(", "(u32)", "a)"),
        ("f(", "sizeof ", "a)"),
        ("f(", "sizeof(", ""),
        ("f(", "a?", ""),
        ("f(", "a?b:", "c)"),
        ("f(a", "->b", ")"),
        ("f(a", "[0]", ")"),
        ("f(a", "+a", ")"),
        ("f(a", "||a&&a|a^a&a==a<a<<a+a*(a", ")"),
        ("f if ", "(!", ""),
        ("f(a", "*", ")"),
        ("f((a ", "*", ")"),
        ("f(", "(const ", ""),
        ("f(", "a(struct x, ", ""),
    ];
    let try_all = move || {
        for (begin, again, end) in shapes {
            for count in [1, 99, 100, 199, 200, 201, 30_000 / again.len()] {
                generate::check(&format!("{begin}{}{end}", again.repeat(count)));
            }
        }
        let nested = |count: usize| format!("f({}a{})", "(".repeat(count), ")".repeat(count));
        assert!(parse(&nested(MAX_DEPTH.into())).is_ok());
        assert!(parse(&nested(usize::from(MAX_DEPTH) + 1)).is_err());
        let calls = |count: usize| format!("f({}a{})", "a?(!g(b[".repeat(count), "])):c".repeat(count));
        assert!(parse(&calls(40)).is_ok());
        generate::check(&calls(49));
        generate::check(&calls(5_000));
    };
    std::thread::Builder::new()
        .stack_size(1792 * 1024)
        .spawn(try_all)
        .unwrap()
        .join()
        .unwrap();
}

#[test]
fn size_is_bounded() {
    let items = |count: usize| format!("f({})", vec!["a"; count].join(","));
    assert!(parse(&items(MAX_ITEMS)).is_ok());
    let why = parse(&items(MAX_ITEMS + 1)).unwrap_err();
    assert_eq!(why.first().code.as_str(), "E0153");
    assert_eq!(why.first().span.start as usize, 2 + 2 * MAX_ITEMS);
    let deep = |depth: usize| format!("f({}a{})", "(".repeat(depth), ")".repeat(depth));
    assert!(parse(&deep(usize::from(MAX_DEPTH) / 2)).is_ok());
    let why = parse(&deep(usize::from(MAX_DEPTH) + 1)).unwrap_err();
    assert_eq!(why.first().code.as_str(), "E0154");
    let long = format!("f{}", " ".repeat(MAX_LENGTH - 1));
    assert!(parse(&long).is_ok());
    let why = parse(&format!("{long}é")).unwrap_err();
    assert_eq!(
        (why.first().code.as_str(), why.first().span.start as usize),
        ("E0101", MAX_LENGTH)
    );
}
