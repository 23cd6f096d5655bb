//! Names, declarators, prototypes and layouts.

use super::structure;
use crate::types::testing::{mini_kernel, types_of};
use crate::types::write::{BtfWriter, INT_SIGNED};
use crate::types::{NameKind, TypeId};

#[test]
fn prototypes() {
    let types = mini_kernel();
    for (name, expected) in [
        (
            "ip_rcv",
            "int ip_rcv(struct sk_buff *skb, struct net_device *dev, struct packet_type *pt, struct net_device *orig_dev)",
        ),
        (
            "vfs_open",
            "int vfs_open(const struct path *path, struct file *file)",
        ),
        (
            "do_sys_openat2",
            "long int do_sys_openat2(int dfd, const char __user *filename, struct open_how *how)",
        ),
        (
            "vfs_read",
            "ssize_t vfs_read(struct file *file, char __user *buf, size_t count, loff_t *pos)",
        ),
        (
            "do_filp_open",
            "struct file *do_filp_open(int dfd, struct filename *pathname, const struct open_flags *op)",
        ),
        ("walk_all", "int walk_all(struct node **list, int n)"),
        ("nothing", "void nothing(void)"),
        ("_printk", "int _printk(const char *fmt, ...)"),
        ("kfree", "void kfree(const void *object)"),
        (
            "register_cb",
            "int register_cb(int (*cb)(void *, int), void *data)",
        ),
        ("uid_eq", "bool uid_eq(kuid_t left, kuid_t right)"),
        (
            "odd_names",
            "int odd_names(int fn, char *comm, int pid, int return_value, long int if)",
        ),
    ] {
        assert_eq!(types.prototype(&types.functions_named(name)[0]), expected);
    }
}

#[test]
fn declarators() {
    let mut w = BtfWriter::new();
    let int = w.int("int", 4, INT_SIGNED);
    let ch = w.int("char", 1, INT_SIGNED);
    let const_ch = w.const_(ch);
    let text = w.ptr(const_ch);
    let const_text = w.const_(text);
    let const_text_ptr = w.ptr(const_text);
    let array = w.array(ch, int, 16);
    let table = w.array(text, int, 4);
    let array_ptr = w.ptr(array);
    let void_ptr = w.ptr(0);
    let proto = w.func_proto(int, &[("", void_ptr), ("n", int)], true);
    let callback = w.ptr(proto);
    let callbacks = w.array(callback, int, 3);
    let none = w.func_proto(0, &[], false);
    let none = w.ptr(none);
    let returns_callback = w.func_proto(callback, &[("sig", int), ("old", none)], false);
    let nested = w.ptr(returns_callback);
    let volatile = w.volatile(const_ch);
    let anonymous = w.struct_("", 4, &[]);
    let anonymous_ptr = w.ptr(anonymous);
    let fwd = w.fwd("u", true);
    let e = w.enum_("e", 4, false, &[]);
    let restrict = w.restrict(text);
    let user = w.type_tag("user", const_ch);
    let user = w.ptr(user);
    let user = w.type_tag("user", user);
    let argv = w.ptr(user);
    let matrix = w.array(array, int, 2);
    let const_array = w.const_(array);
    let types = types_of(&w);
    for (id, name, decl) in [
        (0, "void", "void x"),
        (int, "int", "int x"),
        (text, "const char *", "const char *x"),
        (const_text, "const char *const", "const char *const x"),
        (const_text_ptr, "const char *const *", "const char *const *x"),
        (array, "char[16]", "char x[16]"),
        (const_array, "const char[16]", "const char x[16]"),
        (matrix, "char[2][16]", "char x[2][16]"),
        (table, "const char *[4]", "const char *x[4]"),
        (array_ptr, "char (*)[16]", "char (*x)[16]"),
        (proto, "int (void *, int n, ...)", "int x(void *, int n, ...)"),
        (
            callback,
            "int (*)(void *, int n, ...)",
            "int (*x)(void *, int n, ...)",
        ),
        (
            callbacks,
            "int (*[3])(void *, int n, ...)",
            "int (*x[3])(void *, int n, ...)",
        ),
        (
            nested,
            "int (*(*)(int sig, void (*old)(void)))(void *, int n, ...)",
            "int (*(*x)(int sig, void (*old)(void)))(void *, int n, ...)",
        ),
        (volatile, "volatile const char", "volatile const char x"),
        (anonymous_ptr, "struct {...} *", "struct {...} *x"),
        (fwd, "union u", "union u x"),
        (e, "enum e", "enum e x"),
        (restrict, "const char *restrict", "const char *restrict x"),
        (
            argv,
            "const char __user *__user *",
            "const char __user *__user *x",
        ),
    ] {
        let id = TypeId { module: 0, id };
        assert_eq!(types.c_name(id), name);
        assert_eq!(types.c_decl(id, "x"), decl);
    }
}

#[test]
fn layouts() {
    let types = mini_kernel();
    let layout = |name: &str| types.layout_c(structure(&types, name));
    let squeeze = |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(
        squeeze(layout("sock_common")),
        "struct sock_common { union { __addrpair skc_addrpair; /* 0 8 */ struct { __be32 skc_daddr; /* 0 4 */ \
         __be32 skc_rcv_saddr; /* 4 4 */ }; /* 0 8 */ }; /* 0 8 */ union { unsigned int skc_hash; /* 8 4 */ \
         __u16 skc_u16hashes[2]; /* 8 4 */ }; /* 8 4 */ union { __portpair skc_portpair; /* 12 4 */ \
         struct { __be16 skc_dport; /* 12 2 */ __u16 skc_num; /* 14 2 */ }; /* 12 4 */ }; /* 12 4 */ \
         short unsigned int skc_family; /* 16 2 */ volatile unsigned char skc_state; /* 18 1 */ \
         unsigned char skc_reuse:4; /* 19:0 4 bits */ unsigned char skc_reuseport:1; /* 19:4 1 bits */ \
         unsigned char skc_ipv6only:1; /* 19:5 1 bits */ /* hole: 2 bits */ int skc_bound_dev_if; /* 20 4 */ \
         struct proto *skc_prot; /* 24 8 */ }; /* size: 32 */"
    );
    assert_eq!(
        layout("node"),
        "struct node {\n\
         \tu64 id;                                          /*     0     8 */\n\
         \tstruct node *next;                               /*     8     8 */\n\
         \tconst char *name;                                /*    16     8 */\n\
         }; /* size: 24 */\n"
    );
    let named = |kind, name: &str| squeeze(types.layout_c(types.find(kind, name)[0]));
    assert_eq!(
        named(NameKind::Typedef, "kuid_t"),
        "typedef struct { uid_t val; /* 0 4 */ } kuid_t; /* size: 4 */"
    );
    assert_eq!(
        named(NameKind::Typedef, "u32"),
        "typedef unsigned int u32; /* size: 4 */"
    );
    assert_eq!(named(NameKind::Int, "int"), "int; /* size: 4 */");
    assert_eq!(
        named(NameKind::Enum, "signs"),
        "enum signs { SIGN_MINUS = -1, SIGN_NONE = 0, SIGN_PLUS = 1, }; /* size: 4 */"
    );
    assert!(
        named(NameKind::Struct, "x86_emulate_ctxt").starts_with("struct x86_emulate_ctxt; /* not defined")
    );
    assert!(layout("task_struct").contains("/* hole: 4 bytes */"));
}
