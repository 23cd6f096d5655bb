//! Types and functions that put one difficulty each: bitfields at every edge, unions passed by value, anonymous nesting,
//! flexible arrays, same names, callbacks. Used by `kernel` only.

use super::kernel::Tasks;
use super::{Builder, Layout};
use crate::types::NameKind;
use crate::types::write::{FUNC_STATIC, Field, INT_SIGNED};

pub(super) fn types(b: &mut Builder) {
    let void_ptr = b.ptr(0);
    let either = Layout::union().field("kernel", void_ptr).field("user", void_ptr);
    let either = b.composite("", either);
    let sockptr = Layout::structure()
        .field("", either)
        .bits("is_kernel", b.ty("bool"), 1);
    let sockptr = b.typedef_struct("sockptr_t", sockptr);
    b.typedef("bpfptr_t", sockptr);
    let items = [
        ("NR_FREE_PAGES", 0),
        ("NR_ZONE_ACTIVE", 1),
        ("NR_MLOCK", 2),
        ("NR_VM_ZONE_STAT_ITEMS", 3),
    ];
    b.enum_("zone_stat_item", &items);
    let stats = b.array(b.ty("atomic_long_t"), 3);
    let string = b.const_ptr(b.ty("char"));
    let zone = Layout::structure().field("name", string).field("vm_stat", stats);
    b.composite("zone", zone);
    let bits = Layout::structure()
        .bits("b31", b.ty("u64"), 31)
        .bits("b33", b.ty("u64"), 33)
        .bits("b1", b.ty("u64"), 1)
        .bits("b63", b.ty("u64"), 63)
        .bits("b64", b.ty("u64"), 64)
        .bits("s5", b.ty("int"), 5)
        .bits("b32", b.ty("u64"), 32);
    b.composite("bits", bits);
    let three = b.array(b.ty("int"), 3);
    // pahole writes `int grid[2][3]` like this.
    let grid = b.array(b.ty("int"), 6);
    let flexible = b.array(b.ty("int"), 0);
    let numbers = Layout::structure()
        .field("x", three)
        .field("grid", grid)
        .field("n", b.ty("u32"))
        .field("y", flexible);
    b.composite("numbers", numbers);
    let leaf = Layout::structure()
        .field("deep", b.ty("int"))
        .field("deeper", b.ty("u64"));
    let leaf = b.composite("", leaf);
    let middle = Layout::union().field("", leaf).field("raw", b.ty("u64"));
    let middle = b.composite("", middle);
    let outer = Layout::structure().field("pad", b.ty("u32")).field("", middle);
    let outer = b.composite("", outer);
    let nested = Layout::structure()
        .field("first", b.ty("u64"))
        .field("", outer)
        .field("last", b.ty("u8"));
    b.composite("nested", nested);
    b.enum_("big_flags", &[("BIG_LOW", 1), ("BIG_HIGH", 1 << 40)]);
    b.enum_("signs", &[("SIGN_MINUS", -1), ("SIGN_NONE", 0), ("SIGN_PLUS", 1)]);
}

pub(super) fn functions(b: &mut Builder, tasks: &Tasks) {
    let int = b.ty("int");
    let void_ptr = b.ptr(0);
    let inner = Layout::structure()
        .field("pad", b.ty("long int"))
        .field("c", int)
        .field("d", int);
    let inner = b.composite("b", inner);
    let inner = b.ptr(inner);
    let outer = Layout::structure().field("x", int).field("b", inner);
    let outer = b.composite("a", outer);
    let outer = b.ptr(outer);
    b.func("f", int, &[("a", outer)]);

    let node_ptr = b.ptr_later();
    let string = b.const_ptr(b.ty("char"));
    let node = Layout::structure()
        .field("id", b.ty("u64"))
        .field("next", node_ptr)
        .field("name", string);
    let node = b.composite("node", node);
    b.aim(node_ptr, node);
    let nodes = b.ptr(node_ptr);
    b.func("walk", int, &[("node", node_ptr)]);
    b.func("walk_all", int, &[("list", nodes), ("n", int)]);
    b.func("nothing", 0, &[]);
    let params = [
        ("a", int),
        ("b", b.ty("u8")),
        ("c", b.ty("u16")),
        ("d", b.ty("u32")),
        ("e", b.ty("u64")),
        ("f", string),
        ("g", b.ty("bool")),
        ("h", b.ty("long int")),
    ];
    b.func("eight_args", int, &params);
    let uids = [("left", b.ty("kuid_t")), ("right", b.ty("kuid_t"))];
    b.func("uid_eq", b.ty("bool"), &uids);
    let cmd = b.enum_("bpf_cmd", &[("BPF_MAP_CREATE", 0), ("BPF_PROG_LOAD", 5)]);
    b.func(
        "__sys_bpf",
        int,
        &[
            ("cmd", cmd),
            ("uattr", b.ty("bpfptr_t")),
            ("size", b.ty("unsigned int")),
        ],
    );
    let comm = b.ptr(b.ty("char"));
    let odd = [
        ("fn", int),
        ("comm", comm),
        ("pid", int),
        ("return_value", int),
        ("if", b.ty("long int")),
    ];
    b.func("odd_names", int, &odd);
    let callback = b.writer.func_proto(int, &[("", void_ptr), ("", int)], false);
    let callback = b.ptr(callback);
    b.func("register_cb", int, &[("cb", callback), ("data", void_ptr)]);
    let printk = b.writer.func_proto(int, &[("fmt", string)], true);
    b.writer.func("_printk", printk, FUNC_STATIC);
    let object = b.const_ptr(0);
    b.func("kfree", 0, &[("object", object)]);
    b.func("do_exit", 0, &[("code", b.ty("long int"))]);
    b.func("wake_up_new_task", 0, &[("p", tasks.task_ptr)]);
    for name in ["zone", "bits", "numbers", "nested"] {
        let id = struct_id(b, name);
        let id = b.ptr(id);
        b.func(&format!("use_{name}"), int, &[("p", id)]);
    }
    // One name, two functions with different parameters.
    b.func("check_version", int, &[("versions", string)]);
    b.func("check_version", int, &[("index", b.ty("unsigned int"))]);
    // One name, two structs: the member has another offset in each.
    for (func, first) in [("console_unlock", "index"), ("hvc_console_print", "vtermno")] {
        let console = Layout::structure().field(first, b.ty("u64"));
        let console = match func {
            "console_unlock" => console.field("flags", b.ty("u32")),
            _ => console.field("outbuf", string).field("flags", b.ty("u32")),
        };
        let console = b.composite("console", console);
        let console = b.ptr(console);
        b.func(func, 0, &[("con", console)]);
    }
    let ctxt = b.writer.fwd("x86_emulate_ctxt", false);
    let ctxt = b.ptr(ctxt);
    b.func("emulate_declared", int, &[("ctxt", ctxt)]);
    let wide = b.writer.int("__int128", 16, INT_SIGNED);
    let wide = b.writer.struct_(
        "wide",
        32,
        &[
            Field::bits("number", wide, 0, 0),
            Field::bits("after", int, 128, 0),
        ],
    );
    let wide = b.ptr(wide);
    b.func("use_wide", int, &[("p", wide)]);
    b.enum_("one_kind", &[("OF_TWO_KINDS", 1), ("OF_ONE_KIND", 2)]);
    b.enum_("other_kind", &[("OF_TWO_KINDS", 3)]);
}

/// A struct made earlier, by name.
fn struct_id(b: &Builder, name: &str) -> u32 {
    let types = super::types_of(&b.writer);
    types.find(NameKind::Struct, name).first().map_or(0, |id| id.id)
}
