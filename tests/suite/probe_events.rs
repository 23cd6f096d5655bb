//! The kernel's own BTF probe events (Documentation/trace/fprobetrace.rst, kprobetrace.rst) as the mark to reach: what can be
//! asked there can be asked here, and for each of its error messages (`ERRORS`, kernel/trace/trace_probe.h) there is one here
//! that points at the same characters, or the mistake can't be made.

use ksnoop_jit::compile::{self, Job, Way};
use ksnoop_jit::diag::{Code, Diagnostic, Severity};
use ksnoop_jit::lower::Target;
use ksnoop_jit::parser;
use ksnoop_jit::parser::ast::{Query, TargetKind};
use ksnoop_jit::sema::{self, Limits};
use ksnoop_jit::types::Types;
use ksnoop_jit::types::testing::mini_kernel;
use ksnoop_jit::user::{self, Image, Images};

/// Where a made-up symbol is.
const JIFFIES: u64 = 0xffff_ffff_8260_6000;

fn types() -> Types {
    let mut types = mini_kernel();
    types.set_address("jiffies", JIFFIES);
    types.set_address("runqueues", 0x2f000);
    types.set_address("__per_cpu_offset", JIFFIES + 0x1000);
    types
}

/// A probe event's argument, and the query for it.
const EXPRESSIBLE: &[(&str, &str)] = &[
    ("f vfs_read file count", "vfs_read(file, count)"),
    ("f vfs_read $arg1 $arg3", "vfs_read($arg1, $arg3)"),
    ("f vfs_read $arg*", "vfs_read($arg*)"),
    ("f vfs_read%return $retval", "vfs_read($retval)"),
    (
        "f vfs_read%return file $retval",
        "vfs_read(file, $retval, count > 0)",
    ),
    ("f vfs_open pid=$comm", "vfs_open(pid=$comm)"),
    ("k vfs_open $stack0 $stack3", "vfs_open($stack0, $stack3)"),
    ("k vfs_open $stack", "vfs_open($stack)"),
    ("k vfs_open +8($stack)", "vfs_open(+8($stack))"),
    ("k vfs_open sp=$stack2:x32", "vfs_open(sp=$stack2:x32)"),
    ("k vfs_open @jiffies", "vfs_open(@jiffies)"),
    ("k vfs_open @jiffies+8:u32", "vfs_open(@jiffies+8:u32)"),
    ("k vfs_open @jiffies-4:s16", "vfs_open(@jiffies-4:s16)"),
    (
        "k vfs_open @0xffffffff82606000:u8",
        "vfs_open(@0xffffffff82606000:u8)",
    ),
    ("k vfs_open +16($arg2):u32", "vfs_open(+16($arg2):u32)"),
    ("k vfs_open -8($arg2):x64", "vfs_open(-8($arg2):x64)"),
    ("k vfs_open +0(+8($arg1)):s64", "vfs_open(+0(+8($arg1)):s64)"),
    (
        "k vfs_open +0(+40(+8($arg1))):string",
        "vfs_open(+0(+40(+8($arg1))):string)",
    ),
    ("k vfs_read +u0($arg2):ustring", "vfs_read(+u0($arg2):ustring)"),
    ("k vfs_read +u4($arg2):x8", "vfs_read(+u4($arg2):x8)"),
    ("k vfs_read $arg2:ustring", "vfs_read($arg2:ustring)"),
    ("k tcp_close $arg2:symbol", "tcp_close($arg2:symbol)"),
    ("k tcp_close $arg2:char", "tcp_close($arg2:char)"),
    ("f vfs_open f=file->f_flags", "vfs_open(f=file->f_flags)"),
    (
        "f vfs_open path->dentry->d_inode->i_ino",
        "vfs_open(path->dentry->d_inode->i_ino)",
    ),
    (
        "f vfs_open path->dentry->d_name.name:string",
        "vfs_open(path->dentry->d_name.name:string)",
    ),
    (
        "f vfs_open path->dentry->d_name.len (anonymous)",
        "vfs_open(path->dentry->d_name.len)",
    ),
    ("f ip_rcv skb->pkt_type (a bitfield)", "ip_rcv(skb->pkt_type)"),
    ("f ip_rcv dev->name:string", "ip_rcv(dev->name:string)"),
    (
        "f do_filp_open%return $retval->f_flags",
        "do_filp_open($retval->f_flags)",
    ),
    ("t kfree_skb skb->len", "tp:kfree_skb(skb->len)"),
    ("t kfree_skb location:symbol", "tp:kfree_skb(location:symbol)"),
    ("t sched_switch $arg2->pid", "tp:sched_switch($arg2->pid)"),
    (
        "f vfs_read (STRUCT)x->m",
        "vfs_read(((struct dentry *)file->private_data)->d_flags)",
    ),
    (
        "f vfs_read (STRUCT,m)x->m",
        "vfs_read(container_of(file->private_data, struct dentry, d_name)->d_flags)",
    ),
    ("f vfs_read $current->tgid", "vfs_read($current->tgid)"),
    ("k vfs_read $arg2:u8[4]", "vfs_read($arg2:u8[4])"),
    ("k vfs_read +0($arg1):x8[16]", "vfs_read(+0($arg1):x8[16])"),
    ("k vfs_read +u0($arg2):s16[3]", "vfs_read(+u0($arg2):s16[3])"),
    ("f ip_rcv dev->name:u8[4]", "ip_rcv(dev->name:u8[4])"),
    (
        "k vfs_open +0($stack):symbol[4]",
        "vfs_open(+0($stack):symbol[4])",
    ),
    ("k tcp_close $arg2:symstr", "tcp_close($arg2:symstr)"),
    // The examples of kprobetrace.rst and its text, as they are there.
    (
        "p do_sys_open dfd=%ax filename=%dx flags=%cx mode=+4($stack)",
        "do_sys_openat2(dfd=%ax, filename=%dx, flags=%cx, mode=+4($stack))",
    ),
    ("r do_sys_open $retval", "do_sys_openat2($retval)"),
    ("p vfs_read +0(%di):x32[1]", "vfs_read(+0(%di):x32[1])"),
    ("p vfs_read +0(%di):string[1]", "vfs_read(+0(%di):string[1])"),
    ("p vfs_read +0(+0(%di)):string", "vfs_read(+0(+0(%di)):string)"),
    ("p vfs_read +u4(%si)", "vfs_read(+u4(%si))"),
    ("p vfs_read +0(%si):ustring", "vfs_read(+0(%si):ustring)"),
    (
        "p vfs_read +u0($arg2):ustring[3]",
        "vfs_read(+u0($arg2):ustring[3])",
    ),
    ("p vfs_read +8($stack):x8[8]", "vfs_read(+8($stack):x8[8])"),
    ("p vfs_read b4@2/32", "vfs_read(mode=+0($arg1):b4@2/32)"),
    ("p vfs_read b1@0/8 of an argument", "vfs_read($arg3:b1@0/8)"),
    (
        "f vfs_read b4@2/32 of a member",
        "vfs_read(file->f_flags:b4@2/32)",
    ),
    ("p vfs_read b4@2/16[3]", "vfs_read(+0($arg1):b4@2/16[3])"),
    (
        "p vfs_read \\IMM",
        "vfs_read(five=\\5, \\-1, \\+3:u8, \\0x10:x16)",
    ),
    (
        "p vfs_read \\\"IMM\"",
        "vfs_read(what=\\\"a text\", \\\"other\":string)",
    ),
    ("p dput name=$arg1:%pd", "vfs_open(name=path->dentry:%pd)"),
    ("p vfs_read name=$arg1:%pD", "vfs_read(name=$arg1:%pD)"),
    (
        "p vfs_read, every register",
        "vfs_read(%ax, %bx, %cx, %dx, %si, %di, %bp, %sp, %r8, %r9, %r10, %r11, %r12, %r13, %r14, %r15, %ip, %orig_ax, %cs, %flags, %ss)",
    ),
    ("r vfs_read at return", "vfs_read(exit(%ax), $retval)"),
    (
        "p vfs_read this_cpu_read(@runqueues)",
        "vfs_read(this_cpu_read(@runqueues), this_cpu_read(@runqueues+8):u32)",
    ),
    (
        "p vfs_read +8(this_cpu_ptr($arg1))",
        "vfs_read(+8(this_cpu_ptr($arg1)), this_cpu_ptr(file)->f_flags)",
    ),
];

#[test]
fn what_probe_events_can_ask_can_be_asked() {
    let types = types();
    for (theirs, query) in EXPRESSIBLE {
        let resolved = match compile::understand(query, &types, Limits::default()) {
            Ok(resolved) => resolved,
            Err(diags) => panic!("{theirs}: `{query}` is refused: {diags:?}"),
        };
        let job = Job::alone(Way::Kprobe);
        if let Err(error) = compile::generate(&resolved.query, &types, &Target::default(), job) {
            panic!("{theirs}: `{query}` is not compiled: {error}");
        }
    }
}

#[test]
fn registers_are_read_where_they_are_kept() {
    let types = types();
    for query in ["vfs_read(%si)", "vfs_read(count) if %si > 1", "vfs_read($stack)"] {
        let resolved = match compile::understand(query, &types, Limits::default()) {
            Ok(resolved) => resolved,
            Err(diags) => panic!("`{query}` is refused: {diags:?}"),
        };
        let generate = |way| compile::generate(&resolved.query, &types, &Target::default(), Job::alone(way));
        assert!(generate(Way::Kprobe).is_ok(), "{query}");
        let Err(error) = generate(Way::Trampoline) else {
            panic!("`{query}` reads registers where there are none");
        };
        assert!(error.to_string().contains("does not see the"), "{query}: {error}");
    }
}

#[test]
fn addresses_of_another_kernel_are_not_known() {
    let mut types = mini_kernel();
    types.set_elsewhere();
    for query in ["vfs_open(@jiffies)", "vfs_open(kaddr(\"jiffies\"))"] {
        let Err(diags) = compile::understand(query, &types, Limits::default()) else {
            panic!("`{query}` has an address");
        };
        assert_eq!(diags.len(), 1, "{query}");
        assert_eq!(diags[0].code, Code::UnknownName, "{query}");
        assert!(
            diags[0].label.contains("can't be known here"),
            "{query}: {diags:?}"
        );
    }
    // A number is taken for what it is.
    assert!(compile::understand("vfs_open(@0xffffffff82606000:u8)", &types, Limits::default()).is_ok());
}

/// What the expressions above are in C.
const SAME: &[(&str, &str)] = &[
    (
        "vfs_open(+16($arg2) > 1)",
        "vfs_open(*(u64 *)((char *)$arg2 + 16) > 1)",
    ),
    (
        "vfs_open(-8($arg2) > 1)",
        "vfs_open(*(u64 *)((char *)$arg2 - 8) > 1)",
    ),
    (
        "vfs_read(+u4($arg2) > 1)",
        "vfs_read(*(u64 *)user((char *)$arg2 + 4) > 1)",
    ),
    (
        "vfs_open(@jiffies+8 > 1)",
        "vfs_open(*(u64 *)((char *)kaddr(\"jiffies\") + 8) > 1)",
    ),
    (
        "vfs_open(@jiffies + 8 > 1)",
        "vfs_open(*(u64 *)(char *)kaddr(\"jiffies\") + 8 > 1)",
    ),
    ("vfs_open(%si > 1)", "vfs_open(reg(\"si\") > 1)"),
    ("vfs_read(count > \\5)", "vfs_read(count > 5ul)"),
];

#[test]
fn fetch_expressions_mean_what_they_are_in_c() {
    let types = types();
    for (fetch, c) in SAME {
        let typed = |text: &str| match compile::understand(text, &types, Limits::default()) {
            Ok(resolved) => resolved.query.events,
            Err(diags) => panic!("`{text}` is refused: {diags:?}"),
        };
        let conds = |text| -> Vec<_> {
            typed(text)
                .into_iter()
                .flat_map(|event| event.predicates)
                .map(|predicate| predicate.cond)
                .collect()
        };
        assert_eq!(conds(fetch), conds(c), "{fetch} is {c}");
    }
}

/// What is here for one of the kernel's errors.
enum Here {
    /// A diagnostic for this query, of this code, about these characters.
    Told(&'static str, Code, &'static str),
    /// The mistake can't be made, because of this.
    Impossible(&'static str),
    /// What the kernel refuses is no mistake here.
    Fine(&'static str),
    /// It is told when the query is attached; a test in the guests covers it.
    WhenAttached(&'static str),
}

use Here::{Fine, Impossible, Told, WhenAttached};

const NO_DEFINITIONS: &str = "no event is defined: a query has no group, event name or slot of its own";
const NO_REFCNT: &str = "semaphores are found in the file, nobody writes them";

const ERRORS: &[(&str, Here)] = &[
    (
        "FILE_NOT_FOUND",
        Told(
            "uprobe:/no/such/file:main()",
            Code::UnknownBinary,
            "/no/such/file",
        ),
    ),
    (
        "NO_REGULAR_FILE",
        Told("uprobe:/dev/null:main()", Code::UnknownBinary, "/dev/null"),
    ),
    ("BAD_REFCNT", Impossible(NO_REFCNT)),
    ("REFCNT_OPEN_BRACE", Impossible(NO_REFCNT)),
    ("BAD_REFCNT_SUFFIX", Impossible(NO_REFCNT)),
    (
        "BAD_UPROBE_OFFS",
        Told("uprobe:/bin/sh:+0x7fffffff()", Code::UnknownSymbol, "+0x7fffffff"),
    ),
    (
        "BAD_MAXACT_TYPE",
        Impossible("how many calls are followed at once is the tool's business"),
    ),
    ("BAD_MAXACT", Impossible("the same")),
    ("MAXACT_TOO_BIG", Impossible("the same")),
    (
        "BAD_PROBE_ADDR",
        Told("vfs_opem()", Code::UnknownFunction, "vfs_opem"),
    ),
    ("NON_UNIQ_SYMBOL", WhenAttached("fixture.names")),
    (
        "BAD_RETPROBE",
        Impossible("a return belongs to a function, never to an address within"),
    ),
    (
        "NO_TRACEPOINT",
        Told("tp:kfree_skbb()", Code::UnknownTracepoint, "kfree_skbb"),
    ),
    ("BAD_TP_NAME", Told("tp:", Code::MissingTargetPart, "")),
    ("BAD_ADDR_SUFFIX", Told("vfs_open%retur()", Code::BadTarget, "%")),
    ("NO_GROUP_NAME", Impossible(NO_DEFINITIONS)),
    ("GROUP_TOO_LONG", Impossible(NO_DEFINITIONS)),
    ("BAD_GROUP_NAME", Impossible(NO_DEFINITIONS)),
    ("NO_EVENT_NAME", Impossible(NO_DEFINITIONS)),
    ("EVENT_TOO_LONG", Impossible(NO_DEFINITIONS)),
    ("BAD_EVENT_NAME", Impossible(NO_DEFINITIONS)),
    ("EVENT_EXIST", Impossible(NO_DEFINITIONS)),
    (
        "RETVAL_ON_PROBE",
        Told("tp:kfree_skb($retval)", Code::NoReturn, "$retval"),
    ),
    ("NO_RETVAL", Told("tcp_close($retval)", Code::NoReturn, "$retval")),
    (
        "BAD_STACK_NUM",
        Told("vfs_open($stack99999)", Code::OutOfBounds, "$stack99999"),
    ),
    ("BAD_ARG_NUM", Told("vfs_open($arg3)", Code::UnknownName, "$arg3")),
    ("BAD_VAR", Told("vfs_open($com)", Code::UnknownName, "$com")),
    ("BAD_REG_NAME", Told("vfs_open(%rdx)", Code::UnknownName, "%rdx")),
    ("BAD_MEM_ADDR", Told("vfs_open(@)", Code::MissingOperand, "@")),
    ("BAD_IMM", Told("vfs_open(\\x5)", Code::MissingOperand, "\\")),
    (
        "IMMSTR_NO_CLOSE",
        Told("ip_rcv(\\\"eth)", Code::UnterminatedString, "\"eth)"),
    ),
    (
        "FILE_ON_KPROBE",
        Impossible("a place in a file is a target, not a value"),
    ),
    ("BAD_FILE_OFFS", Impossible("the same")),
    (
        "SYM_ON_UPROBE",
        Impossible("the same address space as everywhere: the kernel's"),
    ),
    (
        "TOO_MANY_OPS",
        Fine(
            "vfs_open(path->dentry->d_parent->d_parent->d_parent->d_parent->d_parent->d_parent->d_parent->d_parent->d_parent->d_parent->d_parent->d_parent->d_parent->d_inode->i_ino)",
        ),
    ),
    (
        "DEREF_NEED_BRACE",
        Told("vfs_open(+8($arg1)", Code::UnclosedParenthesis, ""),
    ),
    (
        "BAD_DEREF_OFFS",
        Told("vfs_open(+x($arg1))", Code::UnknownName, "x"),
    ),
    (
        "DEREF_OPEN_BRACE",
        Told("vfs_open(+8 $arg1)", Code::MissingOperator, "$arg1"),
    ),
    (
        "COMM_CANT_DEREF",
        Told("vfs_open(+0($comm))", Code::StringOperand, "$comm"),
    ),
    ("BAD_FETCH_ARG", Told("vfs_open(->x)", Code::MissingOperand, "->")),
    (
        "ARRAY_NO_CLOSE",
        Told("ip_rcv(dev->name:u8[4)", Code::UnclosedBracket, ")"),
    ),
    (
        "BAD_ARRAY_SUFFIX",
        Told("ip_rcv(dev->name[0]x)", Code::MissingOperator, "x"),
    ),
    (
        "BAD_ARRAY_NUM",
        Told("ip_rcv(dev->name:u8[])", Code::MissingFormat, "]"),
    ),
    (
        "ARRAY_TOO_BIG",
        Told("ip_rcv(dev->name:u8[65])", Code::OutOfBounds, "u8[65]"),
    ),
    ("BAD_TYPE", Told("vfs_read(count:u33)", Code::BadFormat, "u33")),
    (
        "BAD_STRING",
        Told("vfs_read(count:string)", Code::BadFormat, "string"),
    ),
    (
        "BAD_SYMSTRING",
        Told("do_sys_openat2(dfd:symbol)", Code::BadFormat, "symbol"),
    ),
    (
        "BAD_BITFIELD",
        Told("vfs_read(count:b9@30/32)", Code::BadFormat, "b9@30/32"),
    ),
    (
        "ARG_NAME_TOO_LONG",
        Fine("vfs_open(a_label_that_is_longer_than_thirty_two_letters_of_ascii=file)"),
    ),
    ("NO_ARG_NAME", Told("vfs_open(=file)", Code::MissingLabel, "=")),
    ("BAD_ARG_NAME", Told("vfs_open(1a=file)", Code::BadSuffix, "a")),
    ("USED_ARG_NAME", Fine("vfs_open(a=file, a=path)")),
    (
        "ARG_TOO_LONG",
        Fine(
            "vfs_open(path->dentry->d_parent->d_parent->d_parent->d_name.name == \"sixty-three characters are not enough for everything\")",
        ),
    ),
    ("NO_ARG_BODY", Told("vfs_open(a=)", Code::MissingOperand, ")")),
    (
        "BAD_INSN_BNDRY",
        Impossible("functions are probed where they begin"),
    ),
    ("FAIL_REG_PROBE", WhenAttached("fixture.names")),
    ("DIFF_PROBE_TYPE", Impossible(NO_DEFINITIONS)),
    ("DIFF_ARG_TYPE", Impossible(NO_DEFINITIONS)),
    ("SAME_PROBE", Impossible(NO_DEFINITIONS)),
    ("NO_EVENT_INFO", Impossible(NO_DEFINITIONS)),
    ("BAD_ATTACH_EVENT", Impossible("no event is put on another event")),
    ("BAD_ATTACH_ARG", Impossible("the same")),
    (
        "NO_EP_FILTER",
        Told("vfs_open(file) if", Code::MissingCondition, "if"),
    ),
    (
        "NOSUP_BTFARG",
        Impossible("arguments have names everywhere, or the kernel has no BTF at all"),
    ),
    ("NO_BTFARG", Told("vfs_open(flie)", Code::UnknownName, "flie")),
    (
        "NO_BTF_ENTRY",
        Told("no_such_function(a)", Code::UnknownFunction, "no_such_function"),
    ),
    ("BAD_VAR_ARGS", Told("vfs_open($arg*:x8)", Code::BadFormat, "x8")),
    ("NOFENTRY_ARGS", Fine("vfs_read(file, $retval, count)")),
    ("DOUBLE_ARGS", Fine("vfs_open($arg*, $arg*)")),
    ("ARGS_2LONG", Fine("vfs_read($arg*, file->f_flags)")),
    (
        "ARGIDX_2BIG",
        Told("vfs_open($arg99)", Code::UnknownName, "$arg99"),
    ),
    (
        "NO_PTR_STRCT",
        Told("vfs_read(count->x)", Code::NotComposite, "count"),
    ),
    ("NOSUP_DAT_ARG", Fine("do_tcp_setsockopt(optval.is_kernel)")),
    (
        "BAD_HYPHEN",
        Told("vfs_open(file-.f_flags)", Code::LoneHyphen, "-."),
    ),
    (
        "NO_BTF_FIELD",
        Told("vfs_open(file->f_flag)", Code::UnknownMember, "f_flag"),
    ),
    ("BAD_BTF_TID", Impossible("no BTF id can be written")),
    (
        "BAD_TYPE4STR",
        Told("vfs_open(file->f_mode:string)", Code::BadFormat, "string"),
    ),
    (
        "NEED_STRING_TYPE",
        Told("vfs_read(count == \"x\")", Code::StringOperand, "count"),
    ),
    (
        "TOO_MANY_ARGS",
        Fine("vfs_read($arg*, $arg*, $arg*, $arg*, $arg*, $arg*, $arg*, $arg*, $arg*)"),
    ),
    (
        "TOO_MANY_EARGS",
        Fine("vfs_read($arg*, $arg*, $arg*, $arg*, $arg*, $arg*, $arg*, $arg*, $retval == 0)"),
    ),
    ("EVENT_TOO_BIG", Fine("ip_rcv(buf(skb->data, 4000), skb)")),
    (
        "TYPECAST_NOT_EVENT",
        Fine("vfs_read(((struct dentry *)file->private_data)->d_flags)"),
    ),
    (
        "TYPECAST_REQ_FIELD",
        Fine("vfs_read((struct dentry *)file->private_data)"),
    ),
    (
        "TOO_MANY_NESTED",
        Fine(
            "vfs_read(((struct file *)((struct file *)((struct file *)((struct file *)file->private_data)->private_data)->private_data)->private_data)->f_flags)",
        ),
    ),
    (
        "NO_EVENT_FIELD",
        Told("tp:kfree_skb(no_such_field)", Code::UnknownName, "no_such_field"),
    ),
];

/// The files that a query names, as the tool reads them.
fn images(query: &Query) -> Images {
    let mut images = Images::new();
    if let TargetKind::Uprobe { binary, .. } = &query.target.kind {
        let read = || -> Result<Image, String> {
            let path = ksnoop_jit_runtime::binaries::locate(&binary.node, None)?;
            let bytes = std::fs::read(path).map_err(|error| error.to_string())?;
            user::read(bytes.as_slice()).map_err(|error| error.to_string())
        };
        images.insert(binary.node.clone(), read());
    }
    images
}

#[test]
fn each_error_of_probe_events_has_one_here() {
    let types = types();
    let mut wrong = String::new();
    for (theirs, here) in ERRORS {
        let said = |query: &str| -> Result<(), Vec<Diagnostic>> {
            let parsed = parser::parse(query).map_err(|diags| diags.into_vec())?;
            sema::resolve(query, &parsed, &types, &images(&parsed), Limits::default()).map(|_| ())
        };
        let complaint = match here {
            Impossible(why) | WhenAttached(why) => why.is_empty().then(|| "no reason".to_string()),
            Fine(query) => said(query)
                .err()
                .map(|diags| format!("`{query}` is refused: {diags:?}")),
            Told(query, code, mark) => match said(query) {
                Ok(_) => Some(format!("`{query}` is accepted")),
                Err(diags) => {
                    let errors = diags.iter().filter(|diag| diag.severity == Severity::Error);
                    let told: Vec<(Code, &str)> =
                        errors.map(|diag| (diag.code, diag.span.text(query))).collect();
                    let labelled = diags.iter().all(|diag| !diag.label.is_empty());
                    (!told.contains(&(*code, mark)) || !labelled)
                        .then(|| format!("`{query}` is told as {told:?}"))
                }
            },
        };
        if let Some(complaint) = complaint {
            wrong.push_str(&format!("{theirs}: {complaint}\n"));
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}
