//! Cases from public bug reports of tools that do this job (`bt` is bpftrace, `rs` retsnoop, `bs` bpfsnoop, `tg` tetragon; the numbers
//! are their issues): a query of each kind that went wrong there, and where it is tested that it is right here. The
//! table itself is tested: the query is judged by the running kernel's verifier, and the tests must be there.

use ksnoop_jit::compile;
use ksnoop_jit::sema::Limits;
use ksnoop_jit::types::testing::mini_kernel;

use super::bless;
use super::judge::{Judge, Verdict};

/// What must become of a query.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    /// Accepted as kprobes or raw tracepoints, and by type where a tracepoint has types.
    Runs,
    /// Told to be wrong.
    Wrong,
}

struct Case {
    number: u32,
    from: &'static str,
    query: &'static str,
    fate: Fate,
    /// Names of tests, of golden files and of cases in guests, whose values are compared.
    tests: &'static [&'static str],
}

const fn runs(number: u32, from: &'static str, query: &'static str, tests: &'static [&'static str]) -> Case {
    Case {
        number,
        from,
        query,
        fate: Fate::Runs,
        tests,
    }
}

const EXEC: &str = "random_queries_mean_what_the_reference_says";
const ORACLE: &str = "expressions_mean_what_c_says";

const VALUES: &str = "what_was_put_there_is_shown_and_compared";

const CASES: [Case; 34] = [
    runs(
        1,
        "bt 257",
        "tcp_connect(sk->__sk_common.skc_daddr)",
        &["fixture.shapes.members.anonymous", "anonymous-unions"],
    ),
    runs(
        2,
        "bt 3084",
        "vfs_open(path->dentry->d_name.hash)",
        &[
            "fixture.shapes.members.anonymous",
            "anonymous-unions",
            "members_through_anonymous_levels",
        ],
    ),
    runs(
        3,
        "bt 2964",
        "ip_rcv(skb->next, skb->sk)",
        &[
            "fixture.shapes.members.anonymous",
            "anonymous-unions",
            "members_through_anonymous_levels",
        ],
    ),
    runs(
        4,
        "bt 4703",
        "__zone_watermark_ok(z->vm_stat[NR_FREE_PAGES].counter)",
        &["fixture.reported.constant_index", "array-constant", VALUES],
    ),
    runs(
        5,
        "bt 608, 4492",
        "ip_rcv(skb->cb[skb->len])",
        &[
            "array-computed",
            EXEC,
            "fixture.reported.index",
            "fixture.reported.index_compared",
            "fixture.reported.index_wide",
        ],
    ),
    Case {
        number: 6,
        from: "bt 2561",
        query: "ip_rcv(skb->cb[48])",
        fate: Fate::Wrong,
        tests: &["wrong.txt"],
    },
    runs(
        7,
        "bt 1089",
        "vfs_open((int)path->dentry->d_sb->s_flags)",
        &["fixture.shapes.members.arrays", VALUES, ORACLE],
    ),
    runs(
        8,
        "bt 1455, 5211",
        "vfs_open(container_of(container_of(path, struct file, f_path), struct file, f_path)->f_flags)",
        &["fixture.strings.container", "container-of"],
    ),
    runs(
        9,
        "bt 3177",
        "kthread_create_on_node(threadfn, data, node)",
        &[
            "an_argument_wins_over_everything_else_of_its_name",
            "fixture.reported.named",
            "fixture.reported.named_dollar",
        ],
    ),
    runs(
        10,
        "bt 969, 973",
        "ip_rcv(((struct iphdr *)skb->data)->version == 4, ((struct iphdr *)skb->data)->ihl)",
        &["kernel.reported.headers", "bitfields-small", VALUES],
    ),
    runs(
        11,
        "bt 2801, 1990",
        "ip_rcv(skb->pkt_type, skb->ip_summed)",
        &[
            "fixture.shapes.members.bitfields",
            "bitfields-small",
            "the_kernel_prints_the_same_members_and_values",
        ],
    ),
    runs(
        12,
        "bt 1580",
        "ip_rcv(skb->ip_summed == 1)",
        &["fixture.shapes.members.bitfields", "bitfields", ORACLE],
    ),
    runs(
        13,
        "bs 39, 42",
        "bpf_check(uattr.is_kernel)",
        &[
            "by-value",
            "fixture.reported.bpfptr",
            "fixture.reported.bpfptr_kernel",
            "fixture.reported.bpfptr_user",
        ],
    ),
    runs(
        14,
        "bt 668",
        "sock_recvmsg(return > 0)",
        &[
            "compare-signs",
            "fixture.returns.int_lt_0",
            "kernel.openat2.return_eq",
        ],
    ),
    runs(
        15,
        "bt 772",
        "sock_recvmsg(return < 0)",
        &[
            "compare-signs",
            "fixture.returns.int_lt_0",
            "kernel.openat2.return_lt_0",
        ],
    ),
    runs(
        16,
        "rs 50",
        "sock_recvmsg(is_err(return))",
        &[
            "chosen_queries_mean_what_the_reference_says",
            "fixture.reported.is_err",
            "fixture.reported.is_err_filtered",
            "kernel.reported.is_err",
        ],
    ),
    runs(
        18,
        "bt 910",
        "ip_rcv((int)skb->len / -5, (int)skb->len % 3, skb->len / skb->data_len)",
        &["arithmetic", EXEC, ORACLE],
    ),
    runs(
        19,
        "bt 59",
        "vfs_read(count == 0x4444444412345678)",
        &["compare-all", ORACLE],
    ),
    runs(
        20,
        "bt 1527",
        "vfs_read(count == 100ULL || count == 0x10u || count == 1l)",
        &[ORACLE],
    ),
    runs(
        21,
        "bt 2772",
        "tp:kfree_skb(reason)",
        &["tracepoint-enum", VALUES],
    ),
    runs(
        22,
        "bt 3812",
        "tp:kfree_skb((enum skb_drop_reason)12345)",
        &["tracepoint-enum", "the_kernel_prints_the_same_members_and_values"],
    ),
    runs(
        23,
        "tg 4799",
        "tp:kfree_skb(reason == SKB_DROP_REASON_NO_SOCKET)",
        &["tracepoint-enum", VALUES],
    ),
    runs(
        24,
        "bt 3479",
        "skb_clone(return, skb->len)",
        &[
            "return-fexit",
            "fixture.reported.returned_pointer",
            "kernel.reported.returned_pointer",
        ],
    ),
    runs(
        25,
        "bt 3016",
        "tp:sched_switch(prev->files->fdt->fd[0]->f_flags)",
        &["fixture.shapes.node_ptr_ptr"],
    ),
    runs(
        26,
        "bt 3465",
        "ip_rcv(skb->head[0])",
        &[
            "fixture.reported.pointer_index",
            "kernel.reported.headers",
            "array-constant",
            "typed_pointers_in_every_use",
        ],
    ),
    runs(
        27,
        "bt 736, 3440",
        "ip_rcv(skb->cb == \"0123456789012345678901234567890123456789\", str(skb->data, 4000))",
        &["strings_of_every_length_are_compared"],
    ),
    runs(
        29,
        "bt 2339",
        "do_tcp_setsockopt(optval.user, optval.is_kernel, optlen)",
        &[
            "by-value",
            "by-value-stack",
            "fixture.reported.sockptr",
            "kernel.reported.sockptr",
            "kernel.reported.kuid",
            "fixture.reported.ids",
        ],
    ),
    runs(
        30,
        "bt 1758",
        "tcp_select_initial_window(arg5, arg6, arg7)",
        &[
            "args-eight",
            "args-eight-fentry",
            "fixture.args.twelve",
            "fixture.reported.eight",
            "kernel.reported.eight_arguments",
        ],
    ),
    runs(40, "aya 1662", "tp:sys_enter(regs->di)", &["array-constant"]),
    runs(
        41,
        "bt 14, 198",
        "ip_rcv(comm == \"sshd\")",
        &["chosen_queries_mean_what_the_reference_says"],
    ),
    runs(
        42,
        "bt 1579",
        "ip_rcv() if skb->sk && !skb->dev",
        &["logic", "chosen_queries_mean_what_the_reference_says"],
    ),
    runs(
        43,
        "bt 3802",
        "do_sys_openat2(filename == \"/etc/passwd\", filename:us)",
        &["kernel.reported.user_string", "user-string", VALUES],
    ),
    runs(
        44,
        "bt 1694, 2248",
        "tcp_connect(ntohs(sk->__sk_common.skc_dport), sk->__sk_common.skc_daddr == ip(\"127.0.0.1\"))",
        &["kernel.reported.headers", "addresses_are_compared_byte_for_byte"],
    ),
    runs(
        46,
        "bt 2009, 2130",
        "ip_rcv(buf(skb->data, 16))",
        &["as_many_bytes_as_the_query_says"],
    ),
];

/// The cases that are about something else than one query's values: what tests them, in the suite or in guests.
const ELSEWHERE: [(u32, &str, &[&str]); 18] = [
    (
        17,
        "bt 892, 261: min and max over negative numbers",
        &["fixture.aggregate.{name}", "negative"],
    ),
    (
        28,
        "ply, bt 2403: a helper that the kernel lacks",
        &[
            "kernel.newer_helper",
            "kernel.set",
            "refused.kprobe_multi",
            "refused.fsession",
        ],
    ),
    (
        31,
        "bt 5054: as many arguments as registers",
        &["fixture.args.six", "fixture.args.seven", "fixture.args.twelve"],
    ),
    (
        32,
        "bt 4133: a function and a struct of a module that is not named",
        &["found_in_tun", "found_in_dummy", "fixture.names.two_modules"],
    ),
    (
        33,
        "a struct that the kernel only declares",
        &["fixture.kernel.forward", "found_in_kvm"],
    ),
    (
        34,
        "bt 3140, 3141: several functions of one name",
        &[
            "fixture.names.kernel_twins",
            "twin_listed",
            "twin_by_address",
            "twin_all_instances",
            "fixture.names.all_instances",
        ],
    ),
    (
        35,
        "cilium 894: several prototypes of one name in BTF",
        &[
            "unlike_listed",
            "unlike_by_address",
            "unlike_left_out",
            "registers",
        ],
    ),
    (
        36,
        "bt 3258, bcc 1754: a function under a compiler's name",
        &[
            "fixture.names.copy.{stem}.{which}",
            "fixture.names.copy.set",
            "copy.ksj_isra.{which}",
        ],
    ),
    (
        37,
        "bt 1366: an inlined function",
        &[
            "fixture.names.gone",
            "fixture.names.inlined",
            "names.nonsense",
            "fixture.names.notrace",
            "fixture.names.deny_listed",
        ],
    ),
    (
        38,
        "rs 98: a module that is not loaded yet",
        &["module_not_loaded", "fixture.names.wait"],
    ),
    (
        39,
        "aya 1727: two structs of one name",
        &[
            "fixture.names.first_struct",
            "fixture.names.second_module",
            "fixture.names.second_enum",
        ],
    ),
    (45, "bt 2646, bcc 3476: a flood of events", &["fixture.set.flood"]),
    (
        47,
        "bt 1834: a struct as ksnoop prints it",
        &["an_event_looks_as_ksnoop_prints_it", "kernel.ip_rcv"],
    ),
    (48, "bt 502: `'*'` as the function", &["kernel.limit"]),
    (
        49,
        "bt 3180: how many functions are attached",
        &["fixture.set.{option}.{name}"],
    ),
    (
        50,
        "ipftrace2 12: a kernel with endbr at function entries",
        &["kernel.ip_rcv", "fixture.rung.{}.{name}"],
    ),
    (
        51,
        "bcc 4104: `info` of a function that isn't there",
        &["command.no_function", "command.misspelt_function"],
    ),
    (
        52,
        "bt 3144: functions that tracing itself runs through",
        &["kernel.deny_list"],
    ),
];

#[test]
fn each_row_has_its_place() {
    let mut numbers: Vec<u32> = CASES.iter().map(|case| case.number).collect();
    numbers.extend(ELSEWHERE.iter().map(|(number, _, _)| *number));
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=52).collect::<Vec<u32>>());
}

#[test]
fn each_case_is_tested_somewhere() {
    let sources = sources(true);
    for case in &CASES {
        assert!(!case.tests.is_empty(), "case {} has no test", case.number);
        for test in case.tests {
            let golden = bless::golden(&format!("{test}.query")).exists() || bless::golden(test).is_file();
            let function = sources.contains(&format!("fn {test}("));
            assert!(
                golden || function || in_guests(test),
                "case {}: no test `{test}`",
                case.number
            );
        }
    }
}

/// Whether it is the whole name of a case that is run in guests. There the table is read, and each of these names must be a case's.
fn in_guests(test: &str) -> bool {
    let groups = ["fixture.", "kernel.", "names."];
    groups.iter().any(|group| test.starts_with(group)) && !test.contains('{')
}

/// All sources of tests, one after the other. This table counts for none of its own names.
fn sources(table: bool) -> String {
    let mut sources = String::new();
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    for dir in [
        "tests/suite",
        "src/types/tests",
        "src/display/tests",
        "runtime/src",
        "tests/xtask/src/bin/guest-tests",
        "tests/xtask/src/bin/guest-tests/fixture",
    ] {
        let Ok(entries) = std::fs::read_dir(root.join(dir)) else {
            panic!("{dir} is not there");
        };
        for entry in entries.flatten() {
            if table || entry.file_name() != "cases.rs" {
                sources += &std::fs::read_to_string(entry.path()).unwrap_or_default();
            }
        }
    }
    sources
}

#[test]
fn each_other_case_is_tested_in_guests() {
    let sources = sources(false);
    for (number, what, tests) in ELSEWHERE {
        assert!(!tests.is_empty(), "case {number} has no test");
        for test in tests {
            let named = in_guests(test)
                || sources.contains(&format!("\"{test}\""))
                || sources.contains(&format!("fn {test}("));
            assert!(named, "case {number} ({what}): no test `{test}`");
        }
    }
}

#[test]
fn each_case_runs_on_this_kernel() {
    let mut judge = match Judge::open() {
        Ok(judge) => judge,
        Err(why) => {
            eprintln!("SKIP: {why}");
            return;
        }
    };
    let mut absent = Vec::new();
    for case in &CASES {
        let (number, from, query) = (case.number, case.from, case.query);
        for typed in [true, false] {
            if typed && !query.starts_with("tp:") {
                continue;
            }
            match (judge.judge(query, typed), case.fate) {
                (Verdict::Accepted { .. }, Fate::Runs) => {}
                (Verdict::Wrong(why), Fate::Wrong) => assert!(why.contains("OutOfBounds"), "{why}"),
                // Not every kernel has every function; nothing else may be missing.
                (Verdict::Wrong(why), Fate::Runs) if why.contains("UnknownFunction") => absent.push(query),
                (verdict, fate) => panic!("case {number} ({from}), {query}: {verdict:?}, should be {fate:?}"),
            }
        }
    }
    assert!(absent.len() < 8, "{absent:?}");
}

/// Of several meanings of a name, the argument is meant.
#[test]
fn an_argument_wins_over_everything_else_of_its_name() {
    let mut b = ksnoop_jit::types::testing::Builder::new();
    let int = b.ty("int");
    let names = [
        "comm",
        "pid",
        "func",
        "NULL",
        "return_value",
        "ENOMEM",
        "true",
        "KIND",
    ];
    b.enum_("kind", &[("KIND", 5)]);
    let params: Vec<(&str, u32)> = names.iter().map(|name| (*name, int)).collect();
    b.func("named", int, &params);
    let types = ksnoop_jit::types::testing::types_of(&b.writer);
    for (index, name) in names.iter().enumerate() {
        let text = format!("named({name} == 1)");
        let resolved = match compile::understand(&text, &types, Limits::default()) {
            Ok(resolved) => resolved,
            Err(diags) => panic!("{text}: {diags:?}"),
        };
        let ksnoop_jit::typed::Source::Value(shown) = &resolved.query.events[0].items[0].source else {
            panic!("{text}: no value");
        };
        assert_eq!(shown.kind, ksnoop_jit::typed::ExprKind::Arg(index), "{text}");
    }
    // Behind a dollar, the built-in is.
    assert!(compile::understand("ip_rcv($pid == 1)", &mini_kernel(), Limits::default()).is_ok());
}
