//! Decoding, members and look-ups.

use super::{place, structure};
use crate::types::testing::{mini_kernel, mini_kernel_with_module, types_of, types_with_module};
use crate::types::write::{BtfWriter, Field, INT_SIGNED};
use crate::types::{MemberErrorKind, NameKind, Type, TypeId};

#[test]
fn members_through_anonymous_levels() {
    let types = mini_kernel();
    let common = structure(&types, "sock_common");
    assert_eq!(
        place(&types, common, "skc_addrpair"),
        (vec![0, 0], 0, None, "__addrpair".into())
    );
    assert_eq!(
        place(&types, common, "skc_daddr"),
        (vec![0, 1, 0], 0, None, "__be32".into())
    );
    assert_eq!(
        place(&types, common, "skc_rcv_saddr"),
        (vec![0, 1, 1], 32, None, "__be32".into())
    );
    assert_eq!(
        place(&types, common, "skc_num"),
        (vec![2, 1, 1], 112, None, "__u16".into())
    );
    assert_eq!(
        place(&types, common, "skc_state"),
        (vec![4], 144, None, "volatile unsigned char".into())
    );
    let nested = structure(&types, "nested");
    assert_eq!(
        place(&types, nested, "deep"),
        (vec![1, 1, 0, 0], 128, None, "int".into())
    );
    assert_eq!(
        place(&types, nested, "deeper"),
        (vec![1, 1, 0, 1], 192, None, "u64".into())
    );
    assert_eq!(place(&types, nested, "last").1, 256);
    let skb = structure(&types, "sk_buff");
    assert_eq!(place(&types, skb, "dev").0, [0, 0, 2]);
    assert_eq!(place(&types, skb, "sk").0, [1]);
    let names = types.member_names(structure(&types, "iphdr"));
    assert_eq!(
        names,
        [
            "ihl", "version", "tos", "tot_len", "id", "frag_off", "ttl", "protocol", "check", "saddr",
            "daddr", "addrs"
        ]
    );
}

#[test]
fn members_that_are_not_there() {
    let types = mini_kernel();
    let skb = structure(&types, "sk_buff");
    let error = types.member(skb, "lne").unwrap_err();
    assert_eq!(error.kind, MemberErrorKind::NoSuchMember);
    assert_eq!(error.candidates, ["len"]);
    assert!(types.member(skb, "").is_err());
    let int = types.find(NameKind::Int, "int")[0];
    assert_eq!(
        types.member(int, "x").unwrap_err().kind,
        MemberErrorKind::NotComposite
    );
    assert_eq!(
        types.member(TypeId::VOID, "x").unwrap_err().kind,
        MemberErrorKind::NotComposite
    );
    let declared = types.find(NameKind::Struct, "x86_emulate_ctxt")[0];
    assert_eq!(
        types.member(declared, "mode").unwrap_err().kind,
        MemberErrorKind::Incomplete
    );
}

#[test]
fn members_of_typedefs_and_by_value_arguments() {
    let types = mini_kernel();
    let setsockopt = &types.functions_named("do_tcp_setsockopt")[0];
    let optval = &setsockopt.params[3];
    assert_eq!(types.c_name(optval.ty), "sockptr_t");
    assert_eq!(types.size_of(optval.ty), Some(16));
    assert_eq!(
        place(&types, optval.ty, "is_kernel"),
        (vec![1], 64, Some(1), "bool".into())
    );
    assert_eq!(
        place(&types, optval.ty, "user"),
        (vec![0, 1], 0, None, "void *".into())
    );
}

#[test]
fn floating_point_types_are_known_by_their_names_too() {
    let mut w = BtfWriter::new();
    let reals = [
        ("float", 4),
        ("double", 8),
        ("long double", 16),
        ("_Float16", 2),
        ("__float128", 16),
    ];
    let reals = reals.map(|(name, size)| (w.int(name, size, INT_SIGNED), size));
    let complex = ["complex double", "_Complex float"].map(|name| w.int(name, 16, INT_SIGNED));
    let whole = ["long long int", "floats", "double_int"].map(|name| w.int(name, 8, INT_SIGNED));
    let types = types_of(&w);
    let of = |id| types.get(TypeId { module: 0, id });
    for (id, size) in reals {
        assert_eq!(of(id), Type::Float { size });
    }
    for id in complex {
        assert_eq!(of(id), Type::Other);
    }
    for id in whole {
        assert!(matches!(of(id), Type::Int(_)), "{:?}", of(id));
    }
}

#[test]
fn bitfields_of_every_width_in_both_encodings() {
    for width in 1..=64u8 {
        for old in [false, true] {
            let mut w = BtfWriter::new();
            let plain = w.int("u64", 8, 0);
            let (first, second) = if old {
                // Two ways that old BTF placed a bitfield: all of it in the member's offset, or some in the integer's.
                let narrow = w.int_bits("u64", 8, 0, 0, width);
                let shifted = w.int_bits("u64", 8, 0, 3, width);
                let alias = w.typedef("alias", shifted);
                let alias = w.const_(alias);
                (Field::bits("a", narrow, 5, 0), Field::bits("b", alias, 64, 0))
            } else {
                (
                    Field::bits("a", plain, 5, width),
                    Field::bits("b", plain, 67, width),
                )
            };
            let whole = Field::bits("c", plain, 192, 0);
            let id = w.struct_("s", 32, &[first, second, whole]);
            let types = types_of(&w);
            let s = TypeId { module: 0, id };
            let a = types.member(s, "a").unwrap();
            let b = types.member(s, "b").unwrap();
            let c = types.member(s, "c").unwrap();
            // Old BTF can't tell a bitfield as wide as its type from a plain member, and has no need to.
            let full = old && width == 64;
            assert_eq!(
                (a.bit_offset, a.bitfield),
                (5, if full { None } else { Some(width) }),
                "width {width} old {old}"
            );
            assert_eq!(
                (b.bit_offset, b.bitfield),
                (67, Some(width)),
                "width {width} old {old}"
            );
            assert_eq!((c.bit_offset, c.bitfield), (192, None));
        }
    }
}

#[test]
fn bitfields_of_c() {
    let types = mini_kernel();
    let bits = structure(&types, "bits");
    let at = |name: &str| {
        let (_, offset, width, _) = place(&types, bits, name);
        (offset, width.unwrap())
    };
    assert_eq!(at("b31"), (0, 31));
    assert_eq!(at("b33"), (31, 33));
    assert_eq!(at("b1"), (64, 1));
    assert_eq!(at("b63"), (65, 63));
    assert_eq!(at("b64"), (128, 64));
    assert_eq!(at("s5"), (192, 5));
    assert_eq!(at("b32"), (197, 32));
    let iphdr = structure(&types, "iphdr");
    assert_eq!(place(&types, iphdr, "version").1, 4);
    assert_eq!(types.size_of(iphdr), Some(20));
}

#[test]
fn sizes() {
    let types = mini_kernel();
    let size = |kind, name: &str| types.size_of(types.find(kind, name)[0]);
    assert_eq!(size(NameKind::Typedef, "u64"), Some(8));
    assert_eq!(size(NameKind::Enum, "big_flags"), Some(8));
    assert_eq!(size(NameKind::Struct, "x86_emulate_ctxt"), None);
    let numbers = structure(&types, "numbers");
    let size = |name: &str| types.size_of(types.member(numbers, name).unwrap().ty);
    assert_eq!(
        (size("x"), size("grid"), size("y")),
        (Some(12), Some(24), Some(0))
    );
    assert_eq!(types.size_of(TypeId::VOID), None);
    assert_eq!(types.size_of(types.functions_named("f")[0].id), None);
}

#[test]
fn stripping() {
    let mut w = BtfWriter::new();
    let int = w.int("int", 4, INT_SIGNED);
    let tag = w.type_tag("rcu", int);
    let inner = w.typedef("inner", tag);
    let constant = w.const_(inner);
    let volatile = w.volatile(constant);
    let restrict = w.restrict(volatile);
    let outer = w.typedef("outer", restrict);
    let types = types_of(&w);
    let id = |id| TypeId { module: 0, id };
    assert_eq!(types.strip(id(outer)), id(int));
    assert_eq!(types.strip_mods(id(outer)), id(outer));
    assert_eq!(types.strip_mods(id(restrict)), id(inner));
    assert_eq!(types.strip(TypeId::VOID), TypeId::VOID);
}

#[test]
fn type_tags() {
    let types = mini_kernel();
    let open = &types.functions_named("do_sys_openat2")[0];
    assert!(types.has_type_tag(open.params[1].ty, "user"));
    assert!(!types.has_type_tag(open.params[1].ty, "rcu"));
    assert!(!types.has_type_tag(open.params[2].ty, "user"));
    assert!(!types.has_type_tag(open.params[0].ty, "user"));
    // A tag behind a second pointer is that pointer's.
    let mut w = BtfWriter::new();
    let int = w.int("int", 4, INT_SIGNED);
    let tagged = w.type_tag("user", int);
    let inner = w.ptr(tagged);
    let constant = w.const_(inner);
    let outer = w.ptr(constant);
    let alias = w.typedef("alias", inner);
    let types = types_of(&w);
    let has = |id| types.has_type_tag(TypeId { module: 0, id }, "user");
    assert!(has(inner) && has(constant) && has(alias) && !has(outer));
}

#[test]
fn functions() {
    let types = mini_kernel_with_module();
    let eight = &types.functions_named("eight_args")[0];
    assert_eq!(eight.params.len(), 8);
    assert_eq!(eight.params[5].name, "f");
    let printk = &types.functions_named("_printk")[0];
    assert!(printk.variadic);
    assert_eq!(printk.params.len(), 1);
    assert_eq!(types.functions_named("check_version").len(), 2);
    assert_eq!(types.functions_named("nope").len(), 0);
    // A struct's name is no function's.
    assert_eq!(types.functions_named("sk_buff").len(), 0);
    let both: Vec<u16> = types
        .functions_named("nothing")
        .iter()
        .map(|func| func.id.module)
        .collect();
    assert_eq!(both, [0, 1]);
    let own: Vec<String> = types.functions(1).into_iter().map(|(_, name)| name).collect();
    assert_eq!(own, ["x86_emulate_insn", "nothing"]);
    assert!(types.functions(0).iter().any(|(_, name)| name == "ip_rcv"));
    assert!(types.functions(7).is_empty());
}

#[test]
fn a_struct_that_only_a_module_defines() {
    let types = mini_kernel_with_module();
    assert_eq!(
        (types.module_name(0), types.module_name(1), types.module_name(2)),
        ("vmlinux", "kvm", "")
    );
    assert_eq!(types.module_named("kvm"), Some(1));
    let found = types.find(NameKind::Struct, "x86_emulate_ctxt");
    assert_eq!(found.iter().map(|id| id.module).collect::<Vec<_>>(), [1, 0]);
    let declared = &types.functions_named("emulate_declared")[0];
    let target = types.pointee(declared.params[0].ty).unwrap();
    assert!(matches!(types.get(target), Type::Fwd { is_union: false }));
    let mode = types.member(target, "mode").unwrap();
    assert_eq!((mode.root, mode.bit_offset), (found[0], 192));
    assert_eq!(types.c_name(mode.ty), "enum x86emul_mode");
    // The base's ids are module 0 wherever they are met.
    let vcpu = types.member(target, "vcpu").unwrap();
    assert_eq!(vcpu.ty.module, 0);
    assert_eq!(types.c_name(vcpu.ty), "u64");
    assert_eq!(
        types.prototype(&types.functions_named("x86_emulate_insn")[0]),
        "int x86_emulate_insn(struct x86_emulate_ctxt *ctxt)"
    );
}

#[test]
fn two_structs_of_one_name() {
    let types = mini_kernel();
    let found = types.find(NameKind::Struct, "console");
    assert_eq!(found.len(), 2);
    let flags = |func: &str| {
        let console = types
            .pointee(types.functions_named(func)[0].params[0].ty)
            .unwrap();
        let path = types.member(console, "flags").unwrap();
        (path.root, path.bit_offset)
    };
    assert_eq!(flags("console_unlock"), (found[0], 64));
    assert_eq!(flags("hvc_console_print"), (found[1], 128));
}

#[test]
fn names_by_kind() {
    let types = mini_kernel();
    assert_eq!(types.find(NameKind::Typedef, "sk_buff"), []);
    assert_eq!(types.find(NameKind::Any, "sk_buff").len(), 1);
    assert_eq!(types.find(NameKind::Int, "long int").len(), 1);
    assert_eq!(types.find(NameKind::Any, ""), []);
    assert!(types.names_of(NameKind::Struct).contains(&"sk_buff".to_string()));
    assert!(!types.names_of(NameKind::Enum).contains(&"sk_buff".to_string()));
}

#[test]
fn enum_constants() {
    let types = mini_kernel();
    let value = |name: &str| {
        types
            .enum_constant(name)
            .into_iter()
            .map(|(_, value)| value)
            .collect::<Vec<_>>()
    };
    assert_eq!(value("TCP_LISTEN"), [10]);
    assert_eq!(value("BIG_HIGH"), [1 << 40]);
    assert_eq!(value("SIGN_MINUS"), [-1]);
    assert_eq!(value("NOPE"), []);
    assert_eq!(value(""), []);
    let mut w = BtfWriter::new();
    let id = w.enum_(
        "extreme",
        8,
        true,
        &[("MIN", i128::from(i64::MIN)), ("MAX", i128::from(i64::MAX))],
    );
    w.enum_("unsigned", 8, false, &[("UMAX", i128::from(u64::MAX))]);
    let types = types_of(&w);
    let Type::Enum(e) = types.get(TypeId { module: 0, id }) else {
        panic!("no enum")
    };
    assert!(e.signed);
    assert_eq!(e.values[0].1, i128::from(i64::MIN));
    assert_eq!(types.enum_constant("UMAX")[0].1, i128::from(u64::MAX));
}

#[test]
fn tracepoints() {
    let types = mini_kernel();
    assert_eq!(
        types.tracepoints(),
        [
            "kfree_skb",
            "sched_switch",
            "sched_wakeup",
            "sys_enter",
            "sys_exit"
        ]
    );
    for (event, expected) in [
        (
            "sched_switch",
            "void sched_switch(bool preempt, struct task_struct *prev, struct task_struct *next, unsigned int prev_state)",
        ),
        ("sched_wakeup", "void sched_wakeup(struct task_struct *p)"),
        (
            "kfree_skb",
            "void kfree_skb(struct sk_buff *skb, void *location, enum skb_drop_reason reason)",
        ),
    ] {
        assert_eq!(types.prototype(&types.tracepoint_proto(event).unwrap()), expected);
    }
    assert!(types.tracepoint_proto("nope").is_none());
    // Without a function to take names from, the types are still right.
    let mut w = BtfWriter::new();
    let int = w.int("int", 4, INT_SIGNED);
    let void_ptr = w.ptr(0);
    let proto = w.func_proto(0, &[("", void_ptr), ("", int)], false);
    let ptr = w.ptr(proto);
    w.typedef("btf_trace_bare", ptr);
    w.typedef("btf_trace_broken", int);
    let types = types_of(&w);
    assert_eq!(
        types.prototype(&types.tracepoint_proto("bare").unwrap()),
        "void bare(int)"
    );
    assert!(types.tracepoint_proto("broken").is_none());
}

#[test]
fn an_empty_module() {
    let base = BtfWriter::new();
    let module = BtfWriter::over(&base);
    let types = types_with_module(&base, "empty", &module);
    assert_eq!(types.functions(1), []);
    assert_eq!(types.get(TypeId { module: 1, id: 1 }), Type::Void);
}

#[test]
fn the_sign_of_an_enum_where_no_flag_tells_it() {
    let signed = |size: u32, raw: u32, more: &dyn Fn(&mut BtfWriter)| {
        let mut w = BtfWriter::new();
        let values = [("SOME", 1), ("LAST", i128::from(raw))];
        let id = w.enum_("e", size, false, &values);
        more(&mut w);
        let Type::Enum(e) = types_of(&w).get(TypeId { module: 0, id }) else {
            panic!("no enum")
        };
        let expected = if e.signed {
            i128::from(raw as i32)
        } else {
            i128::from(raw)
        };
        assert_eq!((e.values[0].1, e.values[1].1), (1, expected));
        e.signed
    };
    // What 5.10 has: `PERF_EVENT_STATE_DEAD`, an errno, `FTRACE_FL_ENABLED`, `PROC_PID_INIT_INO`, nothing large.
    for (raw, expected) in [
        (-4i32 as u32, true),
        (-4095i32 as u32, true),
        (-4096i32 as u32, false),
        (1 << 31, false),
        (0xefff_fffc, false),
        (3, false),
    ] {
        assert_eq!(signed(4, raw, &|_| ()), expected, "{raw:#x}");
        // A packed one has no room for a positive number of that size.
        assert_eq!(signed(1, raw, &|_| ()), raw > i32::MAX as u32, "{raw:#x}");
        assert!(!signed(8, raw, &|_| ()), "{raw:#x}");
        // Who uses the flag for one enum, or knows the kind that came with it, means it by all of them.
        assert!(!signed(4, raw, &|w| {
            w.enum_("other", 4, true, &[("MINUS", -1)]);
        }));
        assert!(!signed(4, raw, &|w| {
            w.enum_("wide", 8, false, &[("WIDE", 1 << 40)]);
        }));
    }
}

#[test]
fn a_modules_enums_say_their_sign_if_the_kernels_do() {
    for flagged in [false, true] {
        let mut base = BtfWriter::new();
        base.enum_("of_kernel", 4, flagged, &[("NO", if flagged { -1 } else { 1 })]);
        let mut module = BtfWriter::over(&base);
        let id = module.enum_("mask", 4, false, &[("ALL", i128::from(u32::MAX))]);
        let types = types_with_module(&base, "m", &module);
        let Type::Enum(e) = types.get(TypeId { module: 1, id }) else {
            panic!("no enum")
        };
        assert_eq!(e.signed, !flagged);
    }
}
