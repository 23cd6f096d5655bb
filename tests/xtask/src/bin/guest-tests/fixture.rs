//! Tests on the fixture modules, whose functions are called with constants.
//!
//! In: nothing. Out: cases, in the order of `tests/vm/fixture/ksj_fixture.c`, whose `fx_run_*` functions are
//! where every value here comes from. They never hold a value that was taken from a tracer's output.

use crate::case::{Case, Scope, Work};
use crate::guest::Need;
use crate::want::{Is, Want};

type Values<'a> = &'a [(&'a str, Is)];

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    scalars(&mut cases);
    dirty(&mut cases);
    arguments(&mut cases);
    structs(&mut cases);
    chains(&mut cases);
    shapes(&mut cases);
    bits(&mut cases);
    kernel_types(&mut cases);
    returns(&mut cases);
    time(&mut cases);
    names(&mut cases);
    for case in &mut cases {
        // Some have more particular needs, which include this one.
        case.needs.get_or_insert(Need::Fixture);
    }
    cases
}

fn int(of: &'static str, number: i128) -> Is {
    Is::Int(of, number)
}

fn event(query: &str, values: Values<'_>) -> Want {
    let function = query.split('(').next().unwrap_or(query);
    let mut want = Want::new(function.rsplit(':').next().unwrap_or(function));
    for (label, is) in values {
        want = want.with(label, is.clone());
    }
    want
}

/// A case of one group: `wants` has the values of each event.
fn case(name: &str, group: &'static [&'static str], query: &str, wants: &[Values<'_>]) -> Case {
    let wants = wants.iter().map(|values| event(query, values)).collect();
    Case::new(&format!("fixture.{name}"), query, Work::Groups(group, wants))
}

/// A function of one argument `v`, called with these values, one after the other.
fn one(cases: &mut Vec<Case>, group: &'static [&'static str], what: &str, values: Vec<Is>) {
    let query = format!("ksj_{what}(v)");
    let wants = values.into_iter().map(|is| event(&query, &[("v", is)])).collect();
    let name = format!("fixture.{}.{what}", group.join("+"));
    cases.extend(Case::new(&name, &query, Work::Groups(group, wants)).fentry_too());
}

fn scalars(cases: &mut Vec<Case>) {
    let group: &[&str] = &["scalars"];
    let ints = |of: &'static str, numbers: &[i128]| numbers.iter().map(|&n| int(of, n)).collect::<Vec<_>>();
    let (s64_min, u64_max) = (i128::from(i64::MIN), i128::from(u64::MAX));
    one(cases, group, "u8", ints("u8", &[0, 255]));
    one(cases, group, "s8", ints("s8", &[-128, 127]));
    one(cases, group, "u16", ints("u16", &[65534]));
    one(cases, group, "s16", ints("s16", &[-32768]));
    one(cases, group, "u32", ints("u32", &[4_294_967_293]));
    one(cases, group, "s32", ints("s32", &[-2_147_483_648, -1]));
    one(
        cases,
        group,
        "u64",
        ints("u64", &[9_223_372_036_854_775_809, u64_max]),
    );
    one(cases, group, "s64", ints("s64", &[s64_min, -5]));
    one(cases, group, "long", ints("long int", &[-6]));
    one(cases, group, "ulong", ints("long unsigned int", &[6]));
    one(cases, group, "bool", ints("bool", &[1, 0]));
    one(cases, group, "char", ints("char", &[65, 10, 0, 39, -23]));
    one(cases, group, "alias", ints("ksj_alias_t", &[4242]));

    let color = |name, n| Is::Enum("enum ksj_color", name, n);
    one(
        cases,
        group,
        "color",
        vec![color("KSJ_RED", 0), color("KSJ_BLUE", 7), color("6", 6)],
    );
    let level = |name, n| Is::Enum("enum ksj_level", name, n);
    one(
        cases,
        group,
        "level",
        vec![level("KSJ_LOW", -3), level("KSJ_HIGH", 1_000_000)],
    );
    let big = |name, n| Is::Enum("enum ksj_big", name, n);
    one(
        cases,
        group,
        "big",
        vec![
            big("KSJ_BIG_TOP", 0x8000_0000_0000_0001),
            big("KSJ_BIG_MAX", u64_max),
        ],
    );
    let wide = |name, n| Is::Enum("enum ksj_wide", name, n);
    one(
        cases,
        group,
        "wide",
        vec![wide("KSJ_WIDE_MIN", s64_min), wide("KSJ_WIDE_NEG", -2)],
    );

    // Comparisons in C's width and signedness. What must not be shown comes before or between what must.
    let mut compare = |name: &str, query: &str, wants: Vec<Is>| {
        let wants = wants.into_iter().map(|is| event(query, &[("v", is)])).collect();
        let name = format!("fixture.compare.{name}");
        cases.extend(Case::new(&name, query, Work::Groups(group, wants)).fentry_too());
    };
    compare("s8_lt_0", "ksj_s8(v < 0)", vec![int("s8", -128)]);
    compare("s8_eq", "ksj_s8(v == -128)", vec![int("s8", -128)]);
    compare("u8_eq", "ksj_u8(v == 255)", vec![int("u8", 255)]);
    compare(
        "u8_gt_minus_1",
        "ksj_u8(v > -1)",
        vec![int("u8", 0), int("u8", 255)],
    );
    compare("s32_eq_minus_1", "ksj_s32(v == -1)", vec![int("s32", -1)]);
    compare(
        "s32_eq_unsigned",
        "ksj_s32(v == 0xffffffff)",
        vec![int("s32", -1)],
    );
    compare(
        "s32_le",
        "ksj_s32(v <= -2147483648)",
        vec![int("s32", -2_147_483_648)],
    );
    compare(
        "u32_eq",
        "ksj_u32(v == 0xfffffffd)",
        vec![int("u32", 4_294_967_293)],
    );
    compare(
        "u64_eq",
        "ksj_u64(v == 0x8000000000000001)",
        vec![int("u64", 9_223_372_036_854_775_809)],
    );
    compare(
        "u64_gt",
        "ksj_u64(v > 0x8000000000000001)",
        vec![int("u64", u64_max)],
    );
    compare("s64_lt", "ksj_s64(v < -5)", vec![int("s64", s64_min)]);
    compare("s64_ne", "ksj_s64(v != -5)", vec![int("s64", s64_min)]);
    compare("s64_ge", "ksj_s64(v >= -5)", vec![int("s64", -5)]);
    compare("level_lt_0", "ksj_level(v < 0)", vec![level("KSJ_LOW", -3)]);
    compare(
        "big_gt",
        "ksj_big(v > 0x8000000000000001)",
        vec![big("KSJ_BIG_MAX", u64_max)],
    );

    // Several queries in one run: each program has its own events, in the order of the calls.
    let many = vec![
        event("ksj_u8", &[("v", int("u8", 0))]),
        event("ksj_u8", &[("v", int("u8", 255))]),
        event("ksj_u16", &[("v", int("u16", 65534))]),
        event("ksj_s64", &[("v", int("s64", s64_min))]),
        event("ksj_s64", &[("v", int("s64", -5))]),
    ];
    let queries = Case::new("fixture.scalars.many", "ksj_s64(v)", Work::Groups(group, many));
    cases.extend(queries.query("ksj_u16(v)").query("ksj_u8(v)").fentry_too());
}

/// Narrow arguments whose registers have garbage above them.
fn dirty(cases: &mut Vec<Case>) {
    let group: &[&str] = &["dirty"];
    one(cases, group, "u8", vec![int("u8", 247)]);
    one(cases, group, "s8", vec![int("s8", -9)]);
    one(cases, group, "u16", vec![int("u16", 32769)]);
    one(cases, group, "s16", vec![int("s16", -32767)]);
    one(cases, group, "u32", vec![int("u32", 2_147_483_650)]);
    one(cases, group, "s32", vec![int("s32", -2_147_483_646)]);
    one(cases, group, "char", vec![int("char", 65)]);
    one(
        cases,
        group,
        "bool",
        vec![int("bool", 1), int("bool", 0), Is::True],
    );
    one(
        cases,
        group,
        "color",
        vec![Is::Enum("enum ksj_color", "KSJ_GREEN", 5)],
    );
    one(
        cases,
        group,
        "level",
        vec![Is::Enum("enum ksj_level", "KSJ_LOW", -3)],
    );
    for (name, query, is) in [
        ("u8_eq", "ksj_u8(v == 247)", int("u8", 247)),
        ("s8_eq", "ksj_s8(v == -9)", int("s8", -9)),
        ("s16_lt", "ksj_s16(v < -32766)", int("s16", -32767)),
        ("u32_gt", "ksj_u32(v > 2147483649)", int("u32", 2_147_483_650)),
        ("s32_lt_0", "ksj_s32(v < 0)", int("s32", -2_147_483_646)),
    ] {
        cases.extend(case(&format!("dirty.{name}"), group, query, &[&[("v", is)]]).fentry_too());
    }
}

fn arguments(cases: &mut Vec<Case>) {
    let group: &[&str] = &["args"];
    cases.extend(case("args.none", group, "ksj_args0()", &[&[]]).fentry_too());
    let six: Values<'_> = &[
        ("a", int("u8", 201)),
        ("b", int("s16", -202)),
        ("c", int("u32", 203)),
        ("d", int("s64", -204)),
        ("e", Is::At("hello")),
        ("f", Is::Enum("enum ksj_color", "KSJ_GREEN", 5)),
    ];
    cases.extend(case("args.six", group, "ksj_args6(a, b, c, d, e, f)", &[six]).fentry_too());
    // More than six arguments: some are on the stack, and not every kernel has fentry for it.
    let seven: Vec<(&str, Is)> = ["a", "b", "c", "d", "e", "f", "g"]
        .into_iter()
        .zip([1, -2, 3, -4, 5, -6, 7].map(|n| int("int", n)))
        .collect();
    cases.extend(case("args.seven", group, "ksj_args7(a, b, c, d, e, f, g)", &[&seven]).both());
    let twelve: Values<'_> = &[
        ("a1", int("u8", 101)),
        ("a2", int("s8", -102)),
        ("a3", int("u16", 103)),
        ("a4", int("s16", -104)),
        ("a5", int("u32", 105)),
        ("a6", int("s32", -106)),
        ("a7", int("u64", 107)),
        ("a8", int("s64", -108)),
        ("a9", int("bool", 1)),
        ("a10", int("char", 106)),
        ("a11", Is::At("hello")),
        ("a12", Is::Enum("enum ksj_color", "KSJ_BLUE", 7)),
    ];
    let result: Values<'_> = &[("return", int("int", 12))];
    cases.extend(case("args.twelve", group, "ksj_args12", &[twelve, result]).both());
    let last: Values<'_> = &[
        ("a12", Is::Enum("enum ksj_color", "KSJ_BLUE", 7)),
        ("a8", int("s64", -108)),
    ];
    cases.extend(
        case(
            "args.twelve_compared",
            group,
            "ksj_args12(a12 == 7, a8 < 0)",
            &[last],
        )
        .both(),
    );
}

/// Structs passed by value, among other arguments.
fn structs(cases: &mut Vec<Case>) {
    let group: &[&str] = &["structs"];
    let u64_16 = int("u64", 0x8000_0000_0000_0016);
    let s16b = |name: &str| {
        [
            (format!("{name}.a"), u64_16.clone()),
            (format!("{name}.b"), int("s64", -16)),
        ]
    };
    let n = |number| int("int", number);
    let mut add = |name: &str, query: &str, values: Values<'_>, fentry: bool| {
        let case = case(&format!("structs.{name}"), group, query, &[values]);
        cases.extend(if fentry { case.fentry_too() } else { case.both() });
    };
    let [s_a, s_b] = s16b("s");
    let [t_a, t_b] = s16b("t");
    let (s_a, s_b) = ((s_a.0.as_str(), s_a.1), (s_b.0.as_str(), s_b.1));
    let (t_a, t_b) = ((t_a.0.as_str(), t_a.1), (t_b.0.as_str(), t_b.1));
    let (u32_8, s32_8) = (int("u32", 8), int("s32", -8));
    add(
        "4",
        "ksj_sv4(pre, s.x, s.y, post)",
        &[
            ("pre", n(41)),
            ("s.x", int("s16", 4)),
            ("s.y", int("s16", -4)),
            ("post", n(42)),
        ],
        true,
    );
    add(
        "4_whole",
        "ksj_sv4(s)",
        &[(
            "s",
            Is::Text("(struct ksj_s4){ .x = (s16)4, .y = (s16)-4 }".to_owned()),
        )],
        true,
    );
    add(
        "8",
        "ksj_sv8(pre, s.a, s.b, post)",
        &[
            ("pre", n(81)),
            ("s.a", u32_8.clone()),
            ("s.b", s32_8.clone()),
            ("post", n(82)),
        ],
        true,
    );
    add(
        "8_compared",
        "ksj_sv8(s.b < 0, post)",
        &[("s.b", s32_8.clone()), ("post", n(82))],
        true,
    );
    let of12: Values<'_> = &[
        ("pre", n(1201)),
        ("s.a", int("u32", 121)),
        ("s.b", int("u32", 122)),
        ("s.c", int("u32", 123)),
        ("post", n(1202)),
    ];
    add("12", "ksj_sv12(pre, s.a, s.b, s.c, post)", of12, true);
    let of16: Values<'_> = &[("pre", n(1601)), s_a.clone(), s_b.clone(), ("post", n(1602))];
    add("16", "ksj_sv16(pre, s.a, s.b, post)", of16, true);
    let whole = "(struct ksj_s16){ .a = (u64)9223372036854775830, .b = (s64)-16 }";
    add(
        "16_whole",
        "ksj_sv16(s)",
        &[("s", Is::Text(whole.to_owned()))],
        true,
    );
    // From here on, what has no fentry: structs in memory, and more registers than some kernels allow.
    let of24: Values<'_> = &[
        ("pre", n(2401)),
        ("s.a", int("u64", 241)),
        ("s.b", int("u64", 242)),
        ("s.c", int("u64", 243)),
        ("post", n(2402)),
    ];
    add("24", "ksj_sv24(pre, s.a, s.b, s.c, post)", of24, false);
    let first24: Values<'_> = &[
        ("s.a", int("u64", 241)),
        ("s.c", int("u64", 243)),
        ("post", n(2403)),
    ];
    add("24_first", "ksj_sv24_first(s.a, s.c, post)", first24, false);
    add(
        "8_first",
        "ksj_sv8_first(s.a, s.b, post)",
        &[("s.a", u32_8.clone()), ("s.b", s32_8.clone()), ("post", n(83))],
        true,
    );
    add(
        "16_first",
        "ksj_sv16_first(s.a, s.b, post)",
        &[s_a.clone(), s_b.clone(), ("post", n(1603))],
        true,
    );
    add(
        "16_last",
        "ksj_sv16_last(pre, s.a, s.b)",
        &[("pre", n(1604)), s_a.clone(), s_b.clone()],
        true,
    );
    let two: Values<'_> = &[("s.a", u32_8), ("s.b", s32_8), t_a, t_b, ("post", n(84))];
    add("two", "ksj_sv_two(s.a, s.b, t.a, t.b, post)", two, true);
    let packed: Values<'_> = &[
        ("pre", n(501)),
        ("s.a", int("u8", 51)),
        ("s.b", int("u32", 0x5253_5455)),
        ("post", n(502)),
    ];
    add("packed", "ksj_sv_packed(pre, s.a, s.b, post)", packed, false);
    let union: Values<'_> = &[
        ("pre", n(601)),
        ("s.whole", int("u64", 0x8877_6655_4433_2211)),
        ("s.half[1]", int("u32", 0x8877_6655)),
        ("s.first", int("u8", 0x11)),
        ("s.rest[6]", int("u8", 0x88)),
        ("post", n(602)),
    ];
    add(
        "union",
        "ksj_sv_union(pre, s.whole, s.half[1], s.first, s.rest[6], post)",
        union,
        false,
    );
    let bits: Values<'_> = &[
        ("pre", n(701)),
        ("s.lo", int("u32", 17)),
        ("s.mid", int("u32", 1025)),
        ("s.hi", int("u32", 0xabcd)),
        ("s.neg", int("s32", -9)),
        ("post", n(702)),
    ];
    add(
        "bits",
        "ksj_sv_bits(pre, s.lo, s.mid, s.hi, s.neg, post)",
        bits,
        true,
    );
    add(
        "empty",
        "ksj_sv_empty(pre, post)",
        &[("pre", n(901)), ("post", n(902))],
        false,
    );
    let spill: Values<'_> = &[
        ("a", int("long int", 1)),
        ("e", int("long int", 5)),
        s_a,
        s_b,
        ("post", int("long int", 6)),
    ];
    add("spill", "ksj_sv_spill(a, e, s.a, s.b, post)", spill, false);
}

fn chains(cases: &mut Vec<Case>) {
    let id = |number| int("u64", number);
    let eight = "n->next->next->next->next->next->next->next->id";
    let four = "n->next->next->next->next->id";
    let query = |item: &str| format!("ksj_chain({item})");
    let both = |cases: &mut Vec<Case>, case: Case| cases.extend(case.fentry_too());

    both(
        cases,
        case("chain.eight", &["chain"], &query(eight), &[&[(eight, id(8))]]),
    );
    let shared = format!("ksj_chain(n->id, n->next->id, n, {four})");
    let values: Values<'_> = &[
        ("n->id", id(1)),
        ("n->next->id", id(2)),
        ("n", Is::At("nodes")),
        (four, id(5)),
    ];
    both(cases, case("chain.shared_path", &["chain"], &shared, &[values]));
    let deep = "d->p->p->p->p->p->p->p->v";
    let deep_query = format!("ksj_deep({deep}, d->v, d->p->p->v)");
    let values: Values<'_> = &[
        (deep, int("int", 108)),
        ("d->v", int("int", 101)),
        ("d->p->p->v", int("int", 103)),
    ];
    both(cases, case("chain.deep", &["chain"], &deep_query, &[values]));
    both(
        cases,
        case(
            "chain.loop",
            &["chain_loop"],
            &query(eight),
            &[&[(eight, id(52))]],
        ),
    );
    let part = "ksj_chain(n->next->next->id == 3)";
    both(
        cases,
        case(
            "chain.compared",
            &["chain_null", "chain"],
            part,
            &[&[("n->next->next->id", id(3))]],
        ),
    );

    // Faults: shown as such, and false in every comparison, whatever a zero would have made of it.
    let null = Is::Fault("n->next->next->next->next is NULL");
    both(
        cases,
        case(
            "fault.null",
            &["chain_null"],
            &query(four),
            &[&[(four, null.clone())]],
        ),
    );
    let partly = format!("ksj_chain(n->next->next->next->id, {four}, n->id)");
    let values: Values<'_> = &[
        ("n->next->next->next->id", id(14)),
        (four, null),
        ("n->id", id(11)),
    ];
    both(
        cases,
        case("fault.null_partly", &["chain_null"], &partly, &[values]),
    );
    let error = Is::FaultAt("n->next->next->next->next");
    both(
        cases,
        case(
            "fault.err",
            &["chain_err"],
            &query(four),
            &[&[(four, error.clone())]],
        ),
    );
    for (name, comparison) in [
        ("eq_0", "== 0"),
        ("ge_0", ">= 0"),
        ("lt", "< 5000"),
        ("ne", "!= 7"),
    ] {
        let groups: &[&str] = &["chain_null", "chain_err", "chain"];
        let query = format!("ksj_chain({four} {comparison})");
        let shown: &[Values<'_>] = if name == "eq_0" { &[] } else { &[&[(four, id(5))]] };
        both(
            cases,
            case(&format!("fault.compared_{name}"), groups, &query, shown),
        );
    }
    // Only a probe read sees a bad address that is neither NULL nor an error.
    for (name, group) in [("bad", &["chain_bad"]), ("low", &["chain_low"])] {
        let case = case(
            &format!("fault.{name}"),
            group,
            &query(four),
            &[&[(four, error.clone())]],
        );
        both(cases, case.options(&["--reads", "probe"]));
    }
    let argument: &[Values<'_>] = &[
        &[("n->id", Is::Fault("n is NULL"))],
        &[("n->id", Is::FaultAt("n"))],
        &[("n->id", Is::FaultAt("n"))],
        &[("n->id", Is::FaultAt("n"))],
    ];
    let case = case("fault.argument", &["chain_arg"], "ksj_chain(n->id)", argument);
    both(cases, case.options(&["--reads", "probe"]));
}

fn shapes(cases: &mut Vec<Case>) {
    let group: &[&str] = &["shapes"];
    let mut add = |name: &str, query: &str, values: Values<'_>| {
        cases.extend(case(&format!("shapes.{name}"), group, query, &[values]).fentry_too());
    };
    let id = |number| int("u64", number);
    add(
        "int_ptr",
        "ksj_int_ptr(*p, p)",
        &[("*p", int("int", 7001)), ("p", Is::At("int"))],
    );
    add(
        "int_ptr_ptr",
        "ksj_int_ptr_ptr(**pp)",
        &[("**pp", int("int", 7001))],
    );
    let nodes: Values<'_> = &[
        ("pp[0]->id", id(1)),
        ("pp[1]->id", Is::Fault("pp[1] is NULL")),
        ("pp[2]->id", id(3)),
    ];
    add(
        "node_ptr_ptr",
        "ksj_node_ptr_ptr(pp[0]->id, pp[1]->id, pp[2]->id)",
        nodes,
    );
    add(
        "node_array",
        "ksj_node_array(nodes[7].id, n)",
        &[("nodes[7].id", id(8)), ("n", int("int", 8))],
    );
    let arrays: Values<'_> = &[("rows[1][2]", int("s32", -6)), ("(*nodes)[2]->id", id(3))];
    add("array_ptr", "ksj_array_ptr(rows[1][2], (*nodes)[2]->id)", arrays);
    add(
        "flex",
        "ksj_flex(f->n, f->pairs[2].b)",
        &[("f->n", int("u32", 3)), ("f->pairs[2].b", int("s32", -3))],
    );
    add("callback", "ksj_callback(value)", &[("value", int("int", 99))]);
    add(
        "fnptr",
        "ksj_fnptr(cb, none)",
        &[("cb", Is::At("callback")), ("none", Is::Ptr(0))],
    );

    for (name, values) in shape_members() {
        let items: Vec<&str> = values.iter().map(|(label, _)| *label).collect();
        let query = format!("ksj_shapes({})", items.join(", "));
        add(&format!("members.{name}"), &query, &values);
    }
    let whole = [
        ("s->named", "(struct){ .x = (int)640, .y = (int)-480 }"),
        ("s->pairs[1]", "(struct ksj_pair){ .a = (s32)20, .b = (s32)-20 }"),
        (
            "s->packed",
            "(struct ksj_packed){ .a = (u8)161, .b = (u32)2998121653, .c = (u16)50887, .d = (u64)15625761019976867551 }",
        ),
    ];
    for (label, text) in whole {
        let name = label.trim_start_matches("s->").trim_end_matches("[1]");
        add(
            &format!("whole.{name}"),
            &format!("ksj_shapes({label})"),
            &[(label, Is::Text(text.to_owned()))],
        );
    }
}

/// Members of `struct ksj_shapes`, a few to a query.
fn shape_members() -> Vec<(&'static str, Vec<(&'static str, Is)>)> {
    vec![
        (
            "pointers",
            vec![
                ("*s->ip", int("int", 7001)),
                ("**s->ipp", int("int", 7001)),
                ("s->nodes[2]->id", int("u64", 3)),
                ("s->nodes[0]->next->id", int("u64", 2)),
                ("s->nodes[1]->id", Is::Fault("s->nodes[1] is NULL")),
                ("s->fn", Is::At("callback")),
            ],
        ),
        (
            "arrays",
            vec![
                ("s->grid[0][1]", int("s32", -2)),
                ("s->grid[1][2]", int("s32", -6)),
                ("s->pairs[0].b", int("s32", -10)),
                ("s->pairs[1].a", int("s32", 20)),
                ("s->mac[4]", int("u8", 255)),
                ("s->bytes[3]", int("u8", 0xc0)),
                ("s->last[2]", int("u8", 7)),
            ],
        ),
        (
            "anonymous",
            vec![
                ("s->whole", int("u32", 0xc0ff_ee42)),
                ("s->lo", int("u16", 0xee42)),
                ("s->hi", int("u16", 0xc0ff)),
                ("s->inner_a", int("int", -77)),
                ("s->inner_b", int("s16", -78)),
                ("s->inner_c", int("u64", 0x1122_3344_5566_7788)),
                ("s->named.y", int("int", -480)),
            ],
        ),
        (
            "packed",
            vec![
                ("s->packed.a", int("u8", 0xa1)),
                ("s->packed.b", int("u32", 0xb2b3_b4b5)),
                ("s->packed.c", int("u16", 0xc6c7)),
                ("s->packed.d", int("u64", 0xd8d9_dadb_dcdd_dedf)),
            ],
        ),
        (
            "endian",
            vec![
                ("s->endian.be16", int("__be16", 0x901f)),
                ("s->endian.be32", int("__be32", 0x0100_007f)),
                ("s->endian.be64", int("__be64", 0x0807_0605_0403_0201)),
                ("s->endian.le16", int("__le16", 0x1f90)),
            ],
        ),
        (
            "bitfields",
            vec![
                ("s->ibits.a", int("unsigned int", 21)),
                ("s->ibits.b", int("int", -200)),
                ("s->ibits.color", Is::Enum("enum ksj_color", "KSJ_BLUE", 7)),
                ("s->ibits.yes", int("bool", 1)),
                ("s->ibits.no", int("bool", 0)),
                ("s->ibits.c", int("u8", 2)),
                ("s->ibits.after", int("u16", 0xbeef)),
            ],
        ),
        (
            "scalars",
            vec![
                ("s->cv", int("u32", 31337)),
                ("s->alias", int("ksj_alias_t", 4242)),
                ("s->level", Is::Enum("enum ksj_level", "KSJ_LOW", -3)),
                (
                    "s->big",
                    Is::Enum("enum ksj_big", "KSJ_BIG_TOP", 0x8000_0000_0000_0001),
                ),
                ("s->wide", Is::Enum("enum ksj_wide", "KSJ_WIDE_NEG", -2)),
                ("s->flag", int("bool", 1)),
                ("s->odd", Is::True),
                ("s->letter", int("char", 75)),
            ],
        ),
    ]
}

/// Bitfields of 1 to 63 bits, with and without a sign, aligned and packed.
fn bits(cases: &mut Vec<Case>) {
    const MEMBERS: [&str; 10] = ["w1", "w3", "w7", "w8", "w15", "w17", "w31", "w32", "w33", "w63"];
    const UNSIGNED: [i128; 10] = [
        1,
        5,
        85,
        165,
        23130,
        87381,
        0x5a5a_5a5a,
        0xa5a5_a5a5,
        0x1_a5a5_a5a5,
        0x5a5a_5a5a_5a5a_5a5a,
    ];
    const SIGNED: [i128; 10] = [
        -1,
        -3,
        -43,
        -91,
        -9638,
        -43691,
        -631_612_838,
        -1_515_870_811,
        -1_515_870_811,
        -2_712_756_481_427_875_238,
    ];
    let group: &[&str] = &["bits"];
    for (part, of, numbers) in [
        ("u", "u64", UNSIGNED),
        ("s", "s64", SIGNED),
        ("up", "u64", UNSIGNED),
        ("sp", "s64", SIGNED),
    ] {
        let labels = MEMBERS.map(|member| format!("b->{part}.{member}"));
        let values: Vec<(&str, Is)> = labels
            .iter()
            .zip(numbers)
            .map(|(label, number)| (label.as_str(), int(of, number)))
            .collect();
        let query = format!("ksj_bits({})", labels.join(", "));
        cases.extend(case(&format!("bits.{part}"), group, &query, &[&values]).fentry_too());
        // A predicate that holds for each field by itself: the last one is the widest.
        let query = format!(
            "ksj_bits(b->{part}.w63 == {}, b->{part}.w3 == {})",
            numbers[9], numbers[1]
        );
        let values: Values<'_> = &[values[9].clone(), values[1].clone()];
        cases.extend(case(&format!("bits.{part}_compared"), group, &query, &[values]).fentry_too());
    }
}

/// Types of vmlinux as a module's arguments, and a type that only the module has all of.
fn kernel_types(cases: &mut Vec<Case>) {
    let group: &[&str] = &["kernel"];
    let pid = i128::from(std::process::id());
    let task: Values<'_> = &[("t->tgid", int("pid_t", pid))];
    cases.extend(case("kernel.task", group, "ksj_kernel(t->tgid)", &[task]).fentry_too());
    let name = "f->f_path.dentry->d_parent->d_name.name[0]";
    let file: Values<'_> = &[(name, int("unsigned char", i128::from(b'k')))];
    cases.extend(case("kernel.file", group, &format!("ksj_kernel({name})"), &[file]).fentry_too());
    let mtd: Values<'_> = &[
        ("mtd->size", int("uint64_t", 1_048_576)),
        ("mtd->erasesize", int("uint32_t", 4096)),
    ];
    cases.extend(case("kernel.mtd", group, "ksj_mtd(mtd->size, mtd->erasesize)", &[mtd]).fentry_too());
    let forward: Values<'_> = &[("sb->s_mtd->size", int("uint64_t", 1_048_576))];
    cases.extend(case("kernel.forward", group, "ksj_fwd(sb->s_mtd->size)", &[forward]).fentry_too());
}

fn returns(cases: &mut Vec<Case>) {
    let group: &[&str] = &["returns"];
    let mut add = |what: &str, wants: &[Is]| {
        let query = format!("ksj_ret_{what}(return)");
        let wants = wants
            .iter()
            .map(|is| event(&query, &[("return", is.clone())]))
            .collect();
        let name = format!("fixture.returns.{what}");
        cases.extend(Case::new(&name, &query, Work::Groups(group, wants)).fentry_too());
    };
    add("bool", &[int("bool", 1), int("bool", 0), int("bool", 1)]);
    add("int", &[0, -22, -11, -2_147_483_648, -22].map(|n| int("int", n)));
    add("long", &[int("long int", -2)]);
    add(
        "ptr",
        &[Is::Ptr(0), Is::Ptr(0xffff_ffff_ffff_fff4), Is::At("int")],
    );
    add("str", &[Is::At("hello")]);
    add("u8", &[200, 200].map(|n| int("u8", n)));
    add("s8", &[int("s8", -100)]);
    add("u16", &[int("u16", 60000)]);
    add("s16", &[-2, -2].map(|n| int("s16", n)));
    add("u32", &[int("u32", 4_000_000_000)]);
    add("u64", &[int("u64", 9_223_372_036_854_775_813)]);
    add("char", &[int("char", 90)]);
    add("color", &[Is::Enum("enum ksj_color", "KSJ_BLUE", 7)]);
    add("level", &[Is::Enum("enum ksj_level", "KSJ_LOW", -3)]);
    add(
        "big",
        &[Is::Enum("enum ksj_big", "KSJ_BIG_TOP", 0x8000_0000_0000_0001)],
    );

    let value = |number| [("return", int("int", number))];
    let (a, b, c) = (value(-22), value(-11), value(-2_147_483_648));
    let negative: &[Values<'_>] = &[&a, &b, &c, &a];
    cases.extend(case("returns.int_lt_0", group, "ksj_ret_int(return < 0)", negative).fentry_too());
    cases.extend(
        case(
            "returns.int_eq_0",
            group,
            "ksj_ret_int(return == 0)",
            &[&value(0)],
        )
        .fentry_too(),
    );
    let saved: Values<'_> = &[("v", int("int", -11)), ("return", int("int", -11))];
    cases.extend(case("returns.saved", group, "ksj_ret_int(v, return == -11)", &[saved]).fentry_too());
    let node: &[Values<'_>] = &[
        &[("return->id", Is::Fault("return is NULL"))],
        &[("return->id", Is::FaultAt("return"))],
        &[("return->id", int("u64", 7))],
    ];
    cases.extend(case("returns.node", group, "ksj_ret_node(return->id)", node).fentry_too());
    // The kernel has no fexit for a function that returns a struct.
    let s8b: Values<'_> = &[("return.a", int("u32", 88)), ("return.b", int("s32", -88))];
    cases.extend(
        case(
            "returns.struct_8",
            group,
            "ksj_ret_s8b(return.a, return.b)",
            &[s8b],
        )
        .both(),
    );
    let s16b: Values<'_> = &[("return.a", int("u64", 1616)), ("return.b", int("s64", -1616))];
    cases.extend(
        case(
            "returns.struct_16",
            group,
            "ksj_ret_s16b(return.a, return.b)",
            &[s16b],
        )
        .both(),
    );
    let s24b: Values<'_> = &[("a", int("u64", 2400))];
    let shifted = case("returns.struct_24_argument", group, "ksj_ret_s24b(a)", &[s24b]);
    cases.extend(shifted.needs(Need::Ret24Btf).both());
}

/// Calls in time: recursion, nesting, sleeping, many of them.
fn time(cases: &mut Vec<Case>) {
    let both = |cases: &mut Vec<Case>, case: Case| cases.extend(case.fentry_too());
    let n: Vec<[(&str, Is); 1]> = (1..=6).rev().map(|n| [("n", int("unsigned int", n))]).collect();
    let entries: Vec<Values<'_>> = n.iter().map(|values| values.as_slice()).collect();
    both(
        cases,
        case("time.recursion_entry", &["fact"], "ksj_fact(n)", &entries),
    );
    // The innermost call returns first, with its own argument.
    let pairs: Vec<[(&str, Is); 2]> = [(1, 1), (2, 2), (3, 6), (4, 24), (5, 120), (6, 720)]
        .map(|(n, result)| [("n", int("unsigned int", n)), ("return", int("u64", result))])
        .to_vec();
    let exits: Vec<Values<'_>> = pairs.iter().map(|values| values.as_slice()).collect();
    both(
        cases,
        case(
            "time.recursion_saved",
            &["fact"],
            "ksj_fact(n, return > 0)",
            &exits,
        ),
    );

    let nest = |function: &str, item: &str, number| event(function, &[(item, int("int", number))]);
    let down = [("ksj_a", 1), ("ksj_helper", 2), ("ksj_b", 3), ("ksj_c", 4)].map(|(f, n)| nest(f, "v", n));
    let entry = Case::new(
        "fixture.time.nest_entry",
        "ksj_a(v)",
        Work::Groups(&["nest"], down.to_vec()),
    );
    both(
        cases,
        entry.query("ksj_helper(v)").query("ksj_b(v)").query("ksj_c(v)"),
    );
    let up =
        [("ksj_c", 40), ("ksj_b", 41), ("ksj_helper", 42), ("ksj_a", 43)].map(|(f, n)| nest(f, "return", n));
    let exit = Case::new(
        "fixture.time.nest_return",
        "ksj_a(return)",
        Work::Groups(&["nest"], up.to_vec()),
    );
    both(
        cases,
        exit.query("ksj_helper(return)")
            .query("ksj_b(return)")
            .query("ksj_c(return)"),
    );

    // Two threads sleep in the function at once: each return has its own call's argument.
    let first: Values<'_> = &[("who", int("int", 1)), ("return", int("int", 100))];
    let second: Values<'_> = &[("who", int("int", 2)), ("return", int("int", 200))];
    let sleep = case(
        "time.sleep_saved",
        &["sleep"],
        "ksj_sleep(who, return > 0)",
        &[first, second],
    );
    both(cases, sleep.scope(Scope::AnyOrder));

    // Read at entry, before the function writes to it.
    let out: Values<'_> = &[
        ("*arg", int("int", 42)),
        ("pair->b", int("s32", -4)),
        ("return", int("int", 43)),
    ];
    both(
        cases,
        case(
            "time.out_at_entry",
            &["out"],
            "ksj_out(*arg, pair->b, return == 43)",
            &[out],
        ),
    );

    let count: Vec<[(&str, Is); 3]> = (8..=10)
        .map(|i| {
            [
                ("i", int("int", i)),
                ("p->a", int("s32", i * i)),
                ("return", int("int", -i)),
            ]
        })
        .collect();
    let counted: Vec<Values<'_>> = count.iter().map(|values| values.as_slice()).collect();
    both(
        cases,
        case(
            "time.saved_if",
            &["count"],
            "ksj_count(i, p->a > 50, return)",
            &counted,
        ),
    );
    let range: &[Values<'_>] = &[&[("i", int("int", 4))], &[("i", int("int", 5))]];
    both(
        cases,
        case("time.range", &["count"], "ksj_count(i > 3, i <= 5)", range),
    );
    let anded: Values<'_> = &[("p->a", int("s32", 49)), ("p->b", int("s32", -7))];
    both(
        cases,
        case(
            "time.anded",
            &["count"],
            "ksj_count(p->a > 36, p->b >= -7)",
            &[anded],
        ),
    );

    let hot: Vec<[(&str, Is); 1]> = (9990..10000).map(|i| [("i", int("u64", i))]).collect();
    let last: Vec<Values<'_>> = hot.iter().map(|values| values.as_slice()).collect();
    both(
        cases,
        case("time.hot_filtered", &["hot"], "ksj_hot(i >= 9990)", &last),
    );
    let first: &[Values<'_>] = &[
        &[("i", int("u64", 0))],
        &[("i", int("u64", 1))],
        &[("i", int("u64", 2))],
    ];
    both(
        cases,
        case("time.hot_count", &["hot"], "ksj_hot(i)", first)
            .options(&["-n", "3"])
            .ends_itself(),
    );
}

/// One name in both modules, with other shapes.
fn names(cases: &mut Vec<Case>) {
    let group: &[&str] = &["names"];
    let dup: Values<'_> = &[("a", int("int", 11))];
    cases.extend(case("names.first_module", group, "ksj_fixture:ksj_dup(a)", &[dup]).fentry_too());
    let same: Values<'_> = &[("s->a", int("u32", 1)), ("s->b", int("u64", 2))];
    cases.extend(case("names.first_struct", group, "ksj_same(s->a, s->b)", &[same]).fentry_too());
    let second = |name: &str, query: &str, values: Values<'_>| {
        let work = Work::Second(vec![event(query, values)]);
        Case::new(&format!("fixture.names.{name}"), query, work).fentry_too()
    };
    let dup: Values<'_> = &[("s->b", int("u64", 1 << 40)), ("s->a", int("s16", -21))];
    cases.extend(second("second_module", "ksj_fixture2:ksj_dup(s->b, s->a)", dup));
    let only: Values<'_> = &[
        ("c", Is::Enum("enum ksj_color", "KSJ_WHITE", 5)),
        ("s->more[2]", int("u8", 3)),
    ];
    cases.extend(second("second_enum", "ksj_only2(c, s->more[2])", only));
}
