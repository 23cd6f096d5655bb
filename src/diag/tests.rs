//! The renderer.

use super::*;

fn sample(start: usize, end: usize) -> Diagnostic {
    let span = Span {
        start: start as u32,
        end: end as u32,
    };
    Diagnostic::error(Code::AssignForEqual, span, "`=` does not compare")
        .label("here")
        .help("write `==`")
}

#[test]
fn draws_like_rustc() {
    let drawn = render(
        "f(a->b = 3)",
        &sample(7, 8).secondary(Span::new(2, 6), "this").note("a fact"),
        false,
    );
    let expected = "\
error[E0132]: `=` does not compare
 --> query:1:8
  |
1 | f(a->b = 3)
  |   ---- ^ here
  |   |
  |   this
  |
  = note: a fact
  = help: write `==`";
    assert_eq!(drawn, expected, "\n{drawn}");
    assert!(render("f(a->b = 3)", &sample(7, 8), true).contains('\u{1b}'));
}

#[test]
fn draws_a_caret_at_the_end() {
    let drawn = render("f(a ==", &sample(6, 6), false);
    assert!(drawn.contains("\n  |       ^ here"), "\n{drawn}");
    let drawn = render("", &sample(0, 0), false);
    assert!(drawn.contains("\n  | ^ here"), "\n{drawn}");
}

#[test]
fn any_span_can_be_drawn() {
    for src in [
        "",
        "é",
        "f(é\u{1b}[31m\u{202e})",
        "a\nb\n",
        "\n",
        "\r\n\t\0",
        "\u{10ffff}e\u{301}",
    ] {
        for start in 0..src.len() + 3 {
            for end in [
                0,
                1,
                start,
                start + 1,
                src.len(),
                src.len() + 5,
                u32::MAX as usize,
            ] {
                let drawn = render(src, &sample(start, end).secondary(Span::default(), "x"), false);
                assert!(!drawn.contains(acts), "{drawn:?}");
            }
        }
    }
}

#[test]
fn control_characters_are_spelt_out() {
    let drawn = render("f(\u{1b}[2J\u{9b}x)", &sample(2, 3), false);
    assert!(
        drawn.contains("f(\\x1b[2J\\u{9b}x)\n  |   ^^^^ here"),
        "\n{drawn}"
    );
    let drawn = render(
        "f",
        &Diagnostic::error(Code::EmptyQuery, Span::new(0, 1), "a\u{7}b"),
        false,
    );
    assert!(drawn.starts_with("error[E0102]: a\\x07b"), "{drawn}");
}

#[test]
fn codes_are_unique_and_in_order() {
    assert!(
        Code::ALL
            .windows(2)
            .all(|pair| pair[0].as_str() < pair[1].as_str())
    );
    assert!(
        Code::ALL
            .iter()
            .all(|code| code.as_str().len() == 5 && code.summary().ends_with('.'))
    );
}
