//! The writers, and the mini target.

use super::{place, structure};
use crate::types::ext::BtfExt;
use crate::types::mini::mini_target;
use crate::types::testing::{mini_kernel, mini_kernel_bytes, mini_kernel_with_module, types_of};
use crate::types::write::{BtfWriter, FUNC_GLOBAL, Field, INT_BOOL, INT_SIGNED};
use crate::types::{NameKind, Type, TypeId, Types};

/// Reads back what `mini_target` made.
fn read(bytes: &[u8]) -> Types {
    Types::new(btf_rs::Btf::from_bytes(bytes).unwrap())
}

fn own(id: u32) -> TypeId {
    TypeId { module: 0, id }
}

#[test]
fn every_kind_comes_back() {
    let mut w = BtfWriter::new();
    let int = w.int("int", 4, INT_SIGNED);
    let boolean = w.int("_Bool", 1, INT_BOOL);
    let float = w.float("double", 8);
    let fwd = w.fwd("later", true);
    let ptr = w.ptr(fwd);
    let proto = w.func_proto(int, &[("a", ptr)], true);
    let func = w.func("fn", proto, FUNC_GLOBAL);
    let var = w.var("map", int, 1);
    let datasec = w.datasec(".maps", 4, &[(var, 0, 4)]);
    let tag = w.decl_tag("kfunc", func, -1);
    assert_eq!((int, boolean, tag), (1, 2, 10));
    let types = types_of(&w);
    let Type::Int(i) = types.get(own(int)) else {
        panic!("no int")
    };
    assert!(i.signed && !i.is_bool && i.size == 4 && i.bits == 32);
    let Type::Int(b) = types.get(own(boolean)) else {
        panic!("no bool")
    };
    assert!(b.is_bool && !b.signed);
    assert_eq!(types.get(own(float)), Type::Float { size: 8 });
    assert_eq!(types.get(own(fwd)), Type::Fwd { is_union: true });
    assert_eq!(types.get(own(ptr)), Type::Ptr(own(fwd)));
    assert_eq!(types.get(own(func)), Type::Func { proto: own(proto) });
    assert_eq!(types.get(own(var)), Type::Other);
    assert_eq!(types.get(own(datasec)), Type::Other);
    assert_eq!(types.name(own(datasec)), ".maps");
    assert_eq!(
        types.prototype(&types.func(own(func)).unwrap()),
        "int fn(union later *a, ...)"
    );
}

#[test]
fn strings_are_shared_and_output_repeats() {
    let mut w = BtfWriter::new();
    let a = w.intern_str("name");
    assert_eq!(w.intern_str("name"), a);
    assert_eq!(w.intern_str(""), 0);
    assert_ne!(w.intern_str("nam"), a);
    assert_eq!(w.intern_str("name\0hidden"), a);
    assert_eq!(mini_kernel_bytes(), mini_kernel_bytes());
}

#[test]
fn ext_bytes() {
    let mut ext = BtfExt::new();
    ext.core_relo(7, 16, 3, 9, 0);
    ext.core_relo(7, 8, 2, 9, 1);
    ext.func_info(7, 0, 5);
    ext.line_info(7, 0, 11, 12, 1, 4);
    let words: Vec<u32> = ext
        .finish()
        .chunks(4)
        .map(|chunk| u32::from_le_bytes(chunk.try_into().unwrap()))
        .collect();
    assert_eq!(
        words,
        [
            0x0001_eb9f,
            32,
            0,
            20,
            20,
            28,
            48,
            44, // header
            8,
            7,
            1,
            0,
            5, // func_info
            16,
            7,
            1,
            0,
            11,
            12,
            (1 << 10) | 4, // line_info
            16,
            7,
            2,
            8,
            2,
            9,
            1,
            16,
            3,
            9,
            0, // core_relo, by offset
        ]
    );
    assert_eq!(BtfExt::new().finish().len(), 32);
}

#[test]
fn the_mini_target_has_the_same_places() {
    let types = mini_kernel();
    for name in [
        "sk_buff",
        "sock",
        "task_struct",
        "mm_struct",
        "bits",
        "numbers",
        "nested",
        "iphdr",
        "dentry",
        "zone",
    ] {
        let root = structure(&types, name);
        let mini = mini_target(&types, &[(root, None)]);
        assert_eq!(mini, mini_target(&types, &[(root, None)]));
        let copy = read(&mini.bytes);
        let copied = own(mini.map[&root]);
        assert_eq!(structure(&copy, name), copied);
        assert_eq!(mini.names[&root], name);
        assert_eq!(copy.size_of(copied), types.size_of(root));
        assert_eq!(copy.member_names(copied), types.member_names(root));
        for member in types.member_names(root) {
            let (indices, offset, width, _) = place(&types, root, &member);
            let (copied_indices, copied_offset, copied_width, _) = place(&copy, copied, &member);
            assert_eq!(
                (indices, offset, width),
                (copied_indices, copied_offset, copied_width),
                "{name}.{member}"
            );
            let size = |types: &Types, id| types.size_of(types.member(id, &member).unwrap().ty);
            assert_eq!(size(&types, root), size(&copy, copied), "{name}.{member}");
        }
        assert!(!copy.names_of(NameKind::Typedef).iter().any(|name| name == "u64"));
    }
}

#[test]
fn the_mini_target_is_small_and_shares() {
    let types = mini_kernel();
    let (sock, common) = (structure(&types, "sock"), structure(&types, "sock_common"));
    let mini = mini_target(&types, &[(sock, None), (common, None)]);
    let copy = read(&mini.bytes);
    // The nested copy and the root are one.
    let nested = copy.member(own(mini.map[&sock]), "__sk_common").unwrap().ty;
    assert_eq!(nested, own(mini.map[&common]));
    assert_eq!(copy.names_of(NameKind::Struct), ["sock", "sock_common"]);
    let skb = mini_target(&types, &[(structure(&types, "sk_buff"), None)]);
    assert_eq!(
        read(&skb.bytes).names_of(NameKind::Struct),
        ["list_head", "sk_buff"]
    );
}

#[test]
fn the_mini_target_never_has_one_name_twice() {
    let types = mini_kernel();
    let consoles = types.find(NameKind::Struct, "console");
    let mini = mini_target(
        &types,
        &[
            (consoles[0], None),
            (consoles[1], None),
            (consoles[0], Some("again".into())),
        ],
    );
    assert_eq!(mini.names[&consoles[0]], "console");
    assert_eq!(mini.names[&consoles[1]], "console__2");
    let copy = read(&mini.bytes);
    assert_eq!(structure(&copy, "console"), own(mini.map[&consoles[0]]));
    assert_eq!(structure(&copy, "console__2"), own(mini.map[&consoles[1]]));
    assert_eq!(place(&copy, own(mini.map[&consoles[1]]), "flags").1, 128);

    // A struct nested by value has the name of another root, or the name that a root was given.
    let mut w = BtfWriter::new();
    let int = w.int("int", 4, INT_SIGNED);
    let inner = w.struct_("x", 4, &[Field::at("a", int, 0)]);
    let other = w.struct_("x", 8, &[Field::at("b", int, 4)]);
    let outer = w.struct_("y___1", 4, &[Field::at("x", inner, 0)]);
    let anonymous = w.struct_("", 4, &[Field::at("z", int, 0)]);
    let anonymous = w.typedef("t", anonymous);
    let types = types_of(&w);
    let mini = mini_target(
        &types,
        &[
            (own(outer), None),
            (own(other), None),
            (own(anonymous), Some("t".to_string())),
        ],
    );
    let copy = read(&mini.bytes);
    assert_eq!(mini.names[&own(outer)], "y__1");
    assert_eq!(structure(&copy, "x"), own(mini.map[&own(other)]));
    assert_eq!(copy.names_of(NameKind::Struct), ["t", "x", "x__2", "y__1"]);
    assert_eq!(structure(&copy, "t"), own(mini.map[&own(anonymous)]));
}

#[test]
fn the_mini_target_takes_from_modules() {
    let types = mini_kernel_with_module();
    let declared = *types.find(NameKind::Struct, "x86_emulate_ctxt").last().unwrap();
    let mini = mini_target(&types, &[(declared, None)]);
    let copy = read(&mini.bytes);
    let copied = own(mini.map[&declared]);
    assert_eq!(
        place(&copy, copied, "mode"),
        (vec![3], 192, None, "enum x86emul_mode".into())
    );
    assert_eq!(mini.names[&declared], "x86_emulate_ctxt");
}

#[test]
fn the_mini_target_of_old_bitfields() {
    let mut w = BtfWriter::new();
    let plain = w.int("u32", 4, 0);
    let narrow = w.int_bits("u32", 4, 0, 2, 5);
    let s = w.struct_("s", 8, &[Field::at("a", plain, 0), Field::at("b", narrow, 4)]);
    let types = types_of(&w);
    let mini = mini_target(&types, &[(own(s), None)]);
    let copy = read(&mini.bytes);
    assert_eq!(
        place(&copy, own(mini.map[&own(s)]), "b"),
        (vec![1], 34, Some(5), "u32".into())
    );
    assert_eq!(
        place(&copy, own(mini.map[&own(s)]), "a"),
        (vec![0], 0, None, "u32".into())
    );
}

#[test]
fn a_nested_enum_keeps_its_name_unless_a_root_has_it() {
    let mut w = BtfWriter::new();
    let nested = w.enum_("e", 4, false, &[("A", 1)]);
    let root = w.enum_("e", 4, false, &[("B", 2)]);
    let s = w.struct_("s", 8, &[Field::at("x", nested, 0)]);
    let t = w.struct_("t", 8, &[Field::at("x", nested, 0)]);
    let types = types_of(&w);
    let name = |mini: &crate::types::mini::MiniTarget, id: u32| {
        let copy = read(&mini.bytes);
        copy.name(copy.member(own(mini.map[&own(id)]), "x").unwrap().ty)
    };
    let mini = mini_target(&types, &[(own(s), None), (own(t), None)]);
    assert_eq!(
        (name(&mini, s), name(&mini, t)),
        ("e".to_string(), "e".to_string())
    );
    let mini = mini_target(&types, &[(own(s), None), (own(root), None)]);
    assert_eq!(
        (name(&mini, s), mini.names[&own(root)].clone()),
        ("e__2".to_string(), "e".to_string())
    );
}
