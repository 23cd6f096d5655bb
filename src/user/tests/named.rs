//! Which functions a name means.

use crate::user::testing::{Made, TEXT};
use crate::user::{Image, demangled, read};

fn image() -> Image {
    let made = Made::x86_64()
        .function("malloc", TEXT)
        .function("realloc@@GLIBC_2.2.5", TEXT + 16)
        .function("realloc@GLIBC_2.0", TEXT + 32)
        .function("_ZN4demo6Widget4pokeEi", TEXT + 48)
        .function("_ZN4demo6Widget4pokeEv", TEXT + 64)
        .function("_RNvC4demo4work", TEXT + 80)
        .function("_ZN4rust3one17h0123456789abcdefE", TEXT + 96)
        .function("same", TEXT + 112)
        .function("same", TEXT + 128);
    read(made.bytes().as_slice()).expect("a file")
}

fn addresses(name: &str) -> Vec<u64> {
    let image = image();
    let mut found: Vec<u64> = image
        .functions_named(name)
        .iter()
        .map(|function| function.address - TEXT)
        .collect();
    found.sort_unstable();
    found
}

#[test]
fn names_versions_and_patterns() {
    assert_eq!(addresses("malloc"), [0]);
    assert!(addresses("mallo").is_empty());
    assert_eq!(addresses("realloc"), [16, 32]);
    assert_eq!(addresses("realloc@GLIBC_2.0"), [32]);
    assert_eq!(addresses("realloc@@GLIBC_2.2.5"), [16]);
    assert!(addresses("realloc@GLIBC_9").is_empty());
    assert_eq!(addresses("*alloc"), [0, 16, 32]);
    assert_eq!(addresses("same"), [112, 128]);
}

#[test]
fn demangled_names_mean_what_they_show() {
    assert_eq!(addresses("demo::Widget::poke"), [48, 64]);
    assert_eq!(addresses("demo::Widget::poke(int)"), [48]);
    assert_eq!(addresses("demo::work"), [80]);
    assert_eq!(addresses("rust::one"), [96]);
    assert_eq!(addresses("*Widget*"), [48, 64]);
    assert_eq!(demangled("main"), None);
    assert_eq!(demangled("_Zx"), None);
    assert_eq!(
        demangled("_ZN4demo6Widget4pokeEi").as_deref(),
        Some("demo::Widget::poke(int)")
    );
}

#[test]
fn an_address_has_a_function() {
    let image = image();
    let name = |at: u64| {
        image
            .function_at(TEXT + at)
            .map(|function| function.name.as_str())
    };
    assert_eq!(name(0), Some("malloc"));
    assert_eq!(name(15), Some("malloc"));
    assert_eq!(name(0x200), None);
}
