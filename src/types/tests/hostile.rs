//! BTF that no compiler would make: nothing panics, loops or recurses without bound.

use crate::fuzzing::ask_everything;
use crate::types::testing::{mini_kernel_bytes, mini_module_bytes, types_of};
use crate::types::write::{BtfWriter, FUNC_STATIC, Field, INT_SIGNED};
use crate::types::{Type, TypeId, Types};

#[test]
fn cycles() {
    let mut w = BtfWriter::new();
    let int = w.int("int", 4, INT_SIGNED);
    let a = w.typedef("a", 0);
    let b = w.const_(a);
    w.set_target(a, b);
    let ptr = w.ptr(0);
    w.set_target(ptr, ptr);
    let array = w.next_id();
    w.array(array, int, 2);
    let mut huge = int;
    for _ in 0..40 {
        huge = w.array(huge, int, u32::MAX);
    }
    let s = w.next_id();
    w.struct_(
        "s",
        8,
        &[
            Field::at("", s, 0),
            Field::at("again", s, 4),
            Field::at("loop", array, 0),
        ],
    );
    let u = w.next_id();
    w.union_("u", 8, &[Field::at("", u + 1, 0), Field::at("", u + 1, 0)]);
    w.struct_(
        "",
        8,
        &[
            Field::at("", u, 4),
            Field::at("", s, 4),
            Field::bits("wide", int, 3, 255),
        ],
    );
    let proto = w.next_id();
    let pointer = proto + 1;
    w.func_proto(pointer, &[("a", pointer), ("b", pointer), ("c", pointer)], true);
    w.ptr(proto);
    w.func("f", proto, FUNC_STATIC);
    w.func("not", int, FUNC_STATIC);
    let nowhere = w.ptr(123_456);
    w.func("lost", nowhere, FUNC_STATIC);
    w.struct_(
        "lost",
        u32::MAX,
        &[
            Field::bits("", u32::MAX, u32::MAX, 0),
            Field::bits("far", s, u32::MAX, 0),
        ],
    );
    let void_proto = w.func_proto(0, &[], false);
    let trace = w.ptr(void_proto);
    w.typedef("btf_trace_none", trace);
    let types = types_of(&w);
    let id = |id| TypeId { module: 0, id };
    assert!(types.strip(id(a)).is_void());
    assert_eq!(types.size_of(id(huge)), None);
    assert_eq!(types.size_of(id(array)), None);
    assert_eq!(types.get(id(123_456)), Type::Void);
    ask_everything(&types);
}

#[test]
fn deep_and_wide() {
    let mut w = BtfWriter::new();
    let int = w.int("int", 4, INT_SIGNED);
    // Each level holds the one below twice, without a name: followed blindly that is two to the power of forty.
    let mut level = w.struct_("", 4, &[Field::at("x", int, 0)]);
    for _ in 0..40 {
        level = w.struct_("", 4, &[Field::at("", level, 0), Field::at("", level, 0)]);
    }
    let mut named = w.struct_("n", 4, &[]);
    for _ in 0..40 {
        named = w.struct_("n", 4, &[Field::at("a", named, 0), Field::at("b", named, 0)]);
    }
    let mut chain = int;
    for _ in 0..200 {
        chain = w.typedef("t", chain);
    }
    ask_everything(&types_of(&w));
}

#[test]
fn damaged_bytes() {
    let (base, module) = (mini_kernel_bytes(), mini_module_bytes());
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut readable = 0;
    for _ in 0..60 {
        let mut base = base.clone();
        let mut module = module.clone();
        for _ in 0..1 + random() % 8 {
            let place = 24 + (random() as usize) % (base.len() - 24);
            base[place] = random() as u8;
            let place = 24 + (random() as usize) % (module.len() - 24);
            module[place] = random() as u8;
        }
        let Ok(btf) = btf_rs::Btf::from_bytes(&base) else {
            continue;
        };
        readable += 1;
        let split = btf_rs::Btf::from_split_bytes(&module, &btf);
        let mut types = Types::new(btf);
        if let Ok(split) = split {
            types.add_module("kvm", split);
        }
        ask_everything(&types);
    }
    assert!(readable > 0);
}

#[test]
fn a_module_that_stands_alone() {
    let base = btf_rs::Btf::from_bytes(&mini_kernel_bytes()).unwrap();
    let alone = btf_rs::Btf::from_bytes(&mini_kernel_bytes()).unwrap();
    let mut types = Types::new(base);
    assert_eq!(types.add_module("alone", alone), 1);
    let found = types.functions_named("ip_rcv");
    assert_eq!(found.len(), 2);
    assert_eq!(types.prototype(&found[0]), types.prototype(&found[1]));
}
