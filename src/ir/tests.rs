//! Tests of the IR's text and rules.

use super::generate::{self, Rng};
use super::{Func, Rule, parse, print, verify};

/// A function that keeps all rules; tests break it line by line.
const GOOD: &str = r#"func "good" section "fentry/ip_rcv" {
  slot0 = bytes 16
  reloc0 = field_offset 0:2170 [0, 3, 1] "struct sk_buff.len" kernel 112
  reloc1 = field_lshift 0:2170 [0, 4] "struct sk_buff.bit" kernel 60
  map0 = ringbuf "events" key 0 value 0 entries 65536
  map1 = percpu_array "counts" key 4 value 8 entries 4

block0: ; entry
  v0 = ctx
  v1 = load.u64.btf v0+0
  v2 = load.u32 v1+reloc0
  v3 = map_addr map0
  v4 = call ringbuf_reserve(v3, 64, 0)
  branch.eq v4, 0, block2(v2), block1

block1:
  v5 = cast.record v4
  store.u64 v5+8, v2
  v6 = add v5, 16
  v7 = field_addr v1+reloc0
  v8 = call probe_read_kernel(v6, 48, v7)
  v9 = reloc_shift.shl v8, reloc1
  call ringbuf_submit(v5, 0)
  jump block2(v9)

block2(v10: int):
  v11 = slot_addr slot0
  store.u32 v11+4, 7
  v12 = add v11, 4
  v13 = map_addr map1
  v14 = call map_lookup_elem(v13, v12)
  branch.ne v14, 0, block3, block4

block3:
  v15 = cast.map_value v14
  v16 = load.u64 v15+0
  v17 = add v16, v10
  v18 = sext.u32 v17
  v19 = bswap.u16 v18
  store.u64 v15+0, v19
  atomic_add.u64 v15+0, v18
  jump block4

block4:
  return 0
}
"#;

fn read(text: &str) -> Func {
    parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

#[test]
fn the_text_round_trips() {
    let func = read(GOOD);
    assert_eq!(verify(&func), Ok(()));
    let printed = print(&func);
    assert_eq!(print(&read(&printed)), printed);
    // Comments are no part of what is read.
    let without = |text: &str| {
        text.lines()
            .map(|line| line.split(" ;").next().map(str::to_string))
            .collect::<Vec<_>>()
    };
    assert_eq!(without(&printed), without(GOOD));
}

#[test]
fn generated_functions_round_trip() {
    for seed in 0..60 {
        let func = generate::function(seed, 40);
        verify(&func).unwrap_or_else(|errors| panic!("seed {seed}: {errors:?}"));
        // The note of a block is a comment, which is not read back.
        let printed = print(&read(&print(&func)));
        let back = read(&printed);
        assert_eq!(print(&back), printed);
        assert_eq!(verify(&back), Ok(()));
        assert_eq!(back.insts.len(), func.insts.len());
    }
}

#[test]
fn strings_and_odd_types_round_trip() {
    let mut func = read(GOOD);
    func.section = "usdt/\"a\\b\"\n;x\u{7f}é".to_string();
    for value in func.values.keys().collect::<Vec<_>>() {
        func.values[value] = super::Type::Map;
    }
    let printed = print(&func);
    let back = read(&printed);
    assert_eq!(back.section, func.section);
    assert_eq!(print(&back), strip(&printed));
}

/// Without comments, the way reading and printing again leaves a text.
fn strip(text: &str) -> String {
    let lines = text.lines().map(|line| match line.rfind(" ; ") {
        Some(at) if line.starts_with("block") => line[..at].to_string(),
        Some(_) | None => line.to_string(),
    });
    lines.map(|line| line + "\n").collect()
}

#[test]
fn any_text_is_read_or_refused() {
    let mut rng = Rng::new(1);
    let pieces: Vec<&str> = GOOD.split_inclusive([' ', '\n', ',', '.', '(', '=']).collect();
    for _ in 0..3000 {
        let mut text: Vec<&str> = pieces.clone();
        for _ in 0..1 + rng.below(6) {
            let (a, b) = (rng.below(text.len()), rng.below(text.len()));
            match rng.below(3) {
                0 => text.swap(a, b),
                1 => text[a] = pieces[rng.below(pieces.len())],
                _ => {
                    text.remove(a);
                }
            }
        }
        if let Ok(func) = parse(&text.concat()) {
            let printed = print(&func);
            assert_eq!(print(&read(&printed)), printed);
            let _ = verify(&func);
        }
    }
}

#[test]
fn errors_name_the_line() {
    for (text, line) in [
        ("", 0),
        ("func \"a\" section \"b\" {\n", 1),
        ("func \"a\" section \"b\" {\nblock0:\n  v0 = nonsense\n}\n", 3),
        ("func \"a\" section \"b\" {\n  v0 = ctx\n}\n", 2),
        (
            "func \"a\" section \"b\" {\nblock0:\n  return 0\n  return 0\n}\n",
            4,
        ),
        ("func \"a\" section \"b\" {\nblock99999999999999999999:\n}\n", 2),
        ("func \"a\" section \"b\" {\nblock0:\n  v70000 = ctx\n}\n", 3),
        ("func \"a\" section \"b\" {\n  slot1 = bytes 8\n}\n", 2),
        ("func \"a\" section \"b\" {\n}\nmore\n", 3),
    ] {
        match parse(text) {
            Err(error) => assert_eq!(error.line, line, "{error}"),
            Ok(func) => panic!("read as {func}"),
        }
    }
}

/// Replaces a line of the good function and expects exactly this rule to be broken first.
fn broken(rule: Rule, from: &str, to: &str) {
    assert!(GOOD.contains(from), "{from} is not in the text");
    let func = read(&GOOD.replacen(from, to, 1));
    refused(rule, &func, to);
}

fn refused(rule: Rule, func: &Func, what: &str) {
    match verify(func) {
        Ok(()) => panic!("{what} was not refused"),
        Err(errors) => {
            assert!(
                errors.iter().any(|error| error.rule == rule),
                "{what}: {errors:?}"
            );
            assert!(!errors[0].to_string().is_empty());
        }
    }
}

#[test]
fn rules_about_structure() {
    broken(Rule::Program, "func \"good\"", "func \"no name\"");
    broken(Rule::Program, "func \"good\"", "func \"sixteen_letters_\"");
    broken(Rule::Program, "ringbuf \"events\"", "ringbuf \"\"");
    refused(
        Rule::Program,
        &read("func \"a\" section \"b\" {\n}\n"),
        "no blocks",
    );
    broken(Rule::References, "v3 = map_addr map0", "v3 = map_addr map7");
    broken(Rule::References, "slot_addr slot0", "slot_addr slot1");
    broken(Rule::References, "load.u32 v1+reloc0", "load.u32 v1+reloc9");
    broken(Rule::References, "add v16, v10", "add v16, v99");
    broken(Rule::References, "  jump block4\n", "  jump block9\n");
    broken(Rule::End, "  jump block4\n", "");
    broken(Rule::ForwardJumps, "  jump block4\n", "  jump block1\n");
    broken(Rule::BlockArguments, "jump block2(v9)", "jump block2");
    broken(Rule::BlockArguments, "jump block2(v9)", "jump block2(v6)");
    broken(Rule::BlockArguments, "block0: ; entry", "block0(v20: int):");
    broken(
        Rule::ContextFirst,
        "  v3 = map_addr map0",
        "  v3 = map_addr map0\n  v20 = ctx",
    );
    broken(Rule::RelocationKind, "[0, 3, 1]", "[]");
}

#[test]
fn rules_about_dominance() {
    broken(Rule::Dominance, "v17 = add v16, v10", "v17 = add v16, v9");
    broken(Rule::Dominance, "v17 = add v16, v10", "v17 = add v16, v18");
    broken(
        Rule::Dominance,
        "  v16 = load.u64 v15+0",
        "  v16 = load.u64 v15+0\n  v16 = iconst 1",
    );
    broken(
        Rule::Dominance,
        "branch.eq v4, 0, block2(v2), block1",
        "branch.eq v4, 0, block2(v9), block1",
    );
}

#[test]
fn rules_about_types() {
    broken(Rule::ResultType, "v3 = map_addr map0", "v3: int = map_addr map0");
    broken(
        Rule::ResultType,
        "  store.u64 v5+8, v2",
        "  v20 = store.u64 v5+8, v2",
    );
    broken(Rule::OperandType, "v18 = sext.u32 v17", "v18 = sext.u32 v15");
    broken(Rule::OperandType, "v6 = add v5, 16", "v6 = mul v5, 16");
    broken(Rule::OperandType, "v6 = add v5, 16", "v6 = add.w32 v5, 16");
    broken(
        Rule::OperandType,
        "v7 = field_addr v1+reloc0",
        "v7: kernel = field_addr v2+reloc0",
    );
    broken(Rule::ConstantOperand, "v17 = add v16, v10", "v17 = shl v16, 64");
    broken(
        Rule::ConstantOperand,
        "v17 = add v16, v10",
        "v17 = shl.w32 v16, 32",
    );
    broken(Rule::ConstantOperand, "v17 = add v16, v10", "v17 = udiv v16, 0");
    broken(Rule::Width, "v18 = sext.u32 v17", "v18 = sext.u64 v17");
    broken(Rule::Width, "v19 = bswap.u16 v18", "v19 = bswap.u8 v18");
    broken(Rule::Width, "v1 = load.u64.btf v0+0", "v1 = load.u32.btf v0+0");
    broken(Rule::RelocationKind, "load.u32 v1+reloc0", "load.u32 v1+reloc1");
    broken(
        Rule::RelocationKind,
        "reloc_shift.shl v8, reloc1",
        "reloc_shift.shl v8, reloc0",
    );
    broken(Rule::RelocationShift, "reloc_shift.shl v8", "reloc_shift.add v8");
    broken(
        Rule::Comparison,
        "branch.ne v14, 0, block3, block4",
        "branch.ne.w32 v1, 5, block3, block4",
    );
    broken(
        Rule::OperandType,
        "branch.ne v14, 0, block3, block4",
        "branch.ne v11, 5, block3, block4",
    );
    broken(Rule::Cast, "v17 = add v16, v10", "v17 = cast.btf v16");
    broken(Rule::Cast, "v17 = add v16, v10", "v17 = cast.map v16");
}

#[test]
fn rules_about_memory() {
    broken(
        Rule::LoadSpace,
        "v18 = sext.u32 v17",
        "v20 = cast.kernel v17\n  v18 = load.u32 v20+0",
    );
    broken(
        Rule::LoadSpace,
        "v18 = sext.u32 v17",
        "v20 = cast.user v17\n  v18 = load.u32 v20+0",
    );
    broken(Rule::LoadSpace, "v18 = sext.u32 v17", "v18 = load.u32 v17+0");
    broken(Rule::StoreSpace, "store.u64 v5+8, v2", "store.u64 v1+8, v2");
    broken(Rule::StoreSpace, "store.u64 v5+8, v2", "store.u64 v0+8, v2");
    broken(Rule::OffsetKind, "load.u32 v1+reloc0", "load.u32 v1+112");
    broken(
        Rule::OffsetKind,
        "v16 = load.u64 v15+0",
        "v16 = load.u64 v15+reloc0",
    );
    broken(Rule::Range, "v16 = load.u64 v15+0", "v16 = load.u64 v15+1");
    broken(Rule::Range, "store.u32 v11+4, 7", "store.u32 v11+13, 7");
    broken(Rule::Range, "store.u64 v5+8, v2", "store.u64 v5+57, v2");
    broken(Rule::Range, "store.u64 v5+8, v2", "store.u64 v5-8, v2");
    let add = "atomic_add.u64 v15+0, v18";
    broken(Rule::Range, add, "atomic_add.u64 v15+8, v18");
    broken(Rule::Range, add, "atomic_add.u32 v15+2, v18");
    broken(Rule::Width, add, "atomic_add.u16 v15+0, v18");
    broken(Rule::StoreSpace, add, "atomic_add.u64 v0+0, v18");
    broken(
        Rule::StoreSpace,
        add,
        "v20 = slot_addr slot0\n  atomic_add.u64 v20+0, v18",
    );
    broken(Rule::OrNull, add, "atomic_add.u64 v14+0, v18");
    broken(
        Rule::Range,
        "probe_read_kernel(v6, 48, v7)",
        "probe_read_kernel(v6, 49, v7)",
    );
    broken(Rule::Range, "v12 = add v11, 4", "v12 = add v11, 13");
    broken(Rule::Range, "v1 = load.u64.btf v0+0", "v1 = load.u64.btf v0-8");
}

#[test]
fn rules_about_null_and_records() {
    broken(Rule::OrNull, "v16 = load.u64 v15+0", "v16 = load.u64 v14+0");
    broken(
        Rule::OrNull,
        "branch.ne v14, 0, block3, block4",
        "branch.ne v14, 1, block3, block4",
    );
    broken(
        Rule::OrNull,
        "branch.ne v14, 0, block3, block4",
        "branch.ne.w32 v14, 0, block3, block4",
    );
    broken(Rule::OrNull, "v17 = add v16, v10", "v17 = cast.int v14");
    broken(
        Rule::NullCheck,
        "branch.ne v14, 0, block3, block4",
        "branch.eq v14, 0, block3, block4",
    );
    broken(Rule::NullCheck, "branch.ne v14, 0, block3, block4", "jump block3");
    broken(
        Rule::UseAfterRelease,
        "jump block2(v9)",
        "store.u64 v5+0, 1\n  jump block2(v9)",
    );
    broken(
        Rule::UseAfterRelease,
        "jump block2(v9)",
        "call ringbuf_discard(v5, 0)\n  jump block2(v9)",
    );
    broken(Rule::RecordLeak, "  call ringbuf_submit(v5, 0)\n", "");
    broken(
        Rule::Range,
        "call ringbuf_submit(v5, 0)",
        "call ringbuf_submit(v6, 0)",
    );
}

#[test]
fn rules_about_helpers() {
    broken(
        Rule::ArgumentCount,
        "ringbuf_reserve(v3, 64, 0)",
        "ringbuf_reserve(v3, 64)",
    );
    broken(
        Rule::ArgumentKind,
        "ringbuf_reserve(v3, 64, 0)",
        "ringbuf_reserve(v2, 64, 0)",
    );
    broken(
        Rule::ArgumentKind,
        "ringbuf_reserve(v3, 64, 0)",
        "ringbuf_reserve(v3, -64, 0)",
    );
    broken(
        Rule::ArgumentKind,
        "map_lookup_elem(v13, v12)",
        "map_lookup_elem(v3, v12)",
    );
    broken(
        Rule::ArgumentKind,
        "map_lookup_elem(v13, v12)",
        "map_lookup_elem(v13, 4)",
    );
    broken(
        Rule::ArgumentKind,
        "probe_read_kernel(v6, 48, v7)",
        "probe_read_kernel(v6, 48, v2)",
    );
    broken(
        Rule::ArgumentKind,
        "probe_read_kernel(v6, 48, v7)",
        "probe_read_user(v6, 48, v7)",
    );
    broken(
        Rule::ArgumentKind,
        "ringbuf_submit(v5, 0)",
        "ringbuf_submit(v0, 0)",
    );
}

#[test]
fn what_is_not_reached_breaks_nothing() {
    let func = read(&GOOD.replacen(
        "block4:",
        "block9:\n  v30 = add v16, 1\n  jump block4\n\nblock4:",
        1,
    ));
    assert_eq!(verify(&func), Ok(()));
}
