//! The running kernel's verifier accepts what the compiler makes: queries on a fixed sample of its functions, as kprobe
//! programs, and on tracepoints, typed and raw. The whole kernel is `cargo xtask verifier-sweep --every`.

use ksnoop_jit::sweep::{self, Random, Subject};

use super::judge::{Judge, Verdict};

/// A tenth of what the verifier walks through before it gives up (BPF_COMPLEXITY_LIMIT_INSNS, include/linux/bpf_verifier.h).
const LIMIT: u32 = 100_000;

/// The kernel to ask, or a line that says why there is none.
fn kernel() -> Option<Judge> {
    match Judge::open() {
        Ok(judge) => Some(judge),
        Err(why) => {
            eprintln!("SKIP: {why}");
            None
        }
    }
}

/// So many of the names, always the same of the same kernel.
fn sample(mut names: Vec<String>, count: usize) -> Vec<String> {
    names.sort();
    names.dedup();
    let mut random = Random::new(1);
    for at in 0..count.min(names.len()) {
        let other = at + random.below(names.len() - at);
        names.swap(at, other);
    }
    names.truncate(count);
    names
}

/// Judges a query on each; every refusal and every failure of the compiler is told, and then the test fails.
fn all_accepted(judge: &mut Judge, names: &[String], subject: Subject, typed: bool) {
    let mut accepted = 0;
    let mut wrong = Vec::new();
    let mut left = Vec::new();
    for name in names {
        let Some(func) = judge.prototype(name, subject) else {
            continue;
        };
        let text = sweep::query(&judge.types, &func, subject, 1);
        match judge.judge(&text, typed) {
            Verdict::Accepted { insns, verified } => {
                assert!(
                    insns < 4096 && verified < LIMIT,
                    "{text}: {insns} instructions, {verified} walked through"
                );
                accepted += 1;
            }
            // What the types of this kernel hide is no failure, as long as it is rare.
            Verdict::Wrong(why) | Verdict::Unsupported(why) => left.push(format!("{text}: {why}")),
            Verdict::Bug(why) | Verdict::Panic(why) => wrong.push(format!("{text}: {why}")),
            Verdict::Refused(why, log) => wrong.push(format!("{text}: {why}\n{log}")),
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {}:\n{}",
        wrong.len(),
        names.len(),
        wrong.join("\n")
    );
    assert!(
        accepted * 10 >= names.len() * 9,
        "only {accepted} of {} queries became programs:\n{}",
        names.len(),
        left.join("\n")
    );
}

#[test]
fn functions_as_kprobes() {
    let Some(mut judge) = kernel() else { return };
    let names = judge.names(Subject::Entry);
    all_accepted(&mut judge, &sample(names, 500), Subject::Entry, false);
}

#[test]
fn functions_as_kretprobes() {
    let Some(mut judge) = kernel() else { return };
    let names = judge.names(Subject::Entry);
    all_accepted(&mut judge, &sample(names, 100), Subject::Return, false);
}

#[test]
fn tracepoints_by_type() {
    let Some(mut judge) = kernel() else { return };
    let names = sample(judge.names(Subject::Tracepoint), 60);
    all_accepted(&mut judge, &names, Subject::Tracepoint, true);
}

#[test]
fn raw_tracepoints() {
    let Some(mut judge) = kernel() else { return };
    let names = sample(judge.names(Subject::Tracepoint), 60);
    all_accepted(&mut judge, &names, Subject::Tracepoint, false);
}

/// The most that a query should be able to ask for: 64 ways of eight steps.
#[test]
fn many_long_ways() {
    let Some(mut judge) = kernel() else { return };
    for (name, subject, typed) in [
        ("tcp_sendmsg", Subject::Entry, false),
        ("vfs_open", Subject::Entry, false),
        ("sched_switch", Subject::Tracepoint, true),
        ("sched_switch", Subject::Tracepoint, false),
    ] {
        let Some(func) = judge.prototype(name, subject) else {
            continue;
        };
        for seed in 0..3 {
            let text = sweep::large(&judge.types, &func, subject, 64, 8, seed);
            let verdict = judge.judge(&text, typed);
            assert!(
                matches!(verdict, Verdict::Accepted { verified, .. } if verified < LIMIT),
                "{text}: {verdict:?}"
            );
        }
    }
}

/// As many predicates, whose values are shown too: more than the stack holds at once.
#[test]
fn many_predicates_on_long_ways() {
    let Some(mut judge) = kernel() else { return };
    let way = |number: u32, last: &str| {
        let steps: String = (0..6)
            .map(|bit| match number >> bit & 1 {
                0 => "->group_leader",
                _ => "->real_parent",
            })
            .collect();
        format!("task{steps}->parent->{last}")
    };
    let all = |item: &dyn Fn(u32) -> String| (0..64).map(item).collect::<Vec<_>>().join(", ");
    // The larger operand is on the right, where it has to wait for the other one.
    let nested = (0..100).fold(way(0, "pid"), |inner, number| {
        format!("{} - ({inner})", way(number % 64, "pid"))
    });
    let items = [
        all(&|number| format!("{} >= 0", way(number, "pid"))),
        all(&|number| format!("{} != \"x\"", way(number, "comm"))),
        all(&|number| format!("({}) / ({}) != 3", way(number, "pid"), way(63 - number, "pid"))),
        format!("value = {nested}"),
    ];
    for (target, typed) in [
        ("vfs_open", false),
        ("tp:sched_switch", true),
        ("tp:sched_switch", false),
    ] {
        for items in &items {
            let text = format!("{target}({items})");
            let verdict = judge.judge(&text, typed);
            assert!(
                matches!(verdict, Verdict::Accepted { verified, .. } if verified < LIMIT),
                "{text}: {verdict:?}"
            );
        }
    }
}

/// What the verifier forbids with typed pointers: arithmetic, above all on those that may be NULL, and loads that it sees
/// differently because a union's first member, or another struct's end, is in the way.
#[test]
fn typed_pointers_in_every_use() {
    let Some(mut judge) = kernel() else { return };
    for text in [
        "tp:sched_switch(x = (u64)prev >> 3, y = (u64)prev->mm & 7, z = (u64)prev * 2, -(s64)next)",
        "tp:sched_switch(prev - next, prev == next, prev->mm > 0xff, x = (u32)prev)",
        "tp:sched_switch(prev->parent[1].pid, prev[prev->pid & 1].pid)",
        "tp:sched_switch((struct task_struct *)((u64)prev | 1), (prev->pid ? prev : next)->pid)",
        "tp:sched_switch(x = (u64)&prev->se.load >> 2, str(prev->comm), &prev->mm->pgd)",
        "tp:kfree_skb(&skb->sk->sk_error_queue, skb->sk + 1, x = (u64)skb->sk * 2, skb->sk == 5)",
        "tp:kfree_skb(skb->sk->sk_error_queue.lock, (skb->sk ? skb->sk : NULL)->sk_type)",
        "tp:cpuhp_enter(cpu, fun)",
        // Pointers to no struct are pointers too, since 6.17.
        "tp:cpuhp_enter(x = (u64)task->stack >> 3, y = (u64)task->sched_class->enqueue_task * 2, (u64)task->stack & (u64)task->mm)",
        // The current task is known to be there, which makes it no freer.
        "tp:cpuhp_enter(x = (u64)&task->pending ^ 3, y = ((u64)&task->sched_info << 2) % 7, z = -(s64)&(*task).flags)",
        "tp:cpuhp_enter(x = (u64)(task->pid ? task : task + 1) * 2, y = (u64)(struct file *)task | cpu, task + cpu)",
    ] {
        for typed in [true, false] {
            let verdict = judge.judge(text, typed);
            assert!(matches!(verdict, Verdict::Accepted { .. }), "{text}: {verdict:?}");
        }
    }
}

/// Strings in every length, patterns, addresses, and buffers whose length is computed: what the verifier follows step by step.
#[test]
fn strings_addresses_and_lengths() {
    let Some(mut judge) = kernel() else { return };
    let long = "x".repeat(200);
    let patterns = [
        "*a*b*c*",
        "[!a-f]*[0-9][0-9a-z_]*?x",
        "*abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ*",
        "lib?[xyz]*",
        "plain",
        "*",
    ];
    let mut queries = vec![
        format!("tp:sched_switch(prev->comm == \"{long}\", str(prev->comm) == \"{long}\")"),
        format!("tp:kfree_skb(skb->dev->name != \"eth0\", str(skb->data, 100) == \"{long}\")"),
        "tp:kfree_skb(skb->sk->__sk_common.skc_v6_daddr == ip(\"fe80::1\"))".to_string(),
        "tp:kfree_skb(skb->dev->dev_addr == mac(\"02:00:00:00:00:01\"), skb->dev->perm_addr:hex)".to_string(),
        "tp:kfree_skb(buf(skb->data, 16), buf(skb->data, skb->len), buf(skb->head, skb->len - 5):hex)"
            .to_string(),
        "tp:kfree_skb(str(skb->data, skb->len), ustr(skb->data, (short)skb->len), ksym(location), func)"
            .to_string(),
        "tp:kfree_skb(skb->dev->dev_addr:mac, skb->head:s, skb->len:x8, skb->len:s64, location:sym)"
            .to_string(),
        "tp:sched_switch((next - prev) * sizeof(struct task_struct), prev[prev->pid & 1].pid)".to_string(),
        "tp:sched_switch(container_of(&prev->se, struct task_struct, se)->pid)".to_string(),
        "tp:sched_switch(sizeof(prev->comm), offsetof(struct task_struct, se.vruntime))".to_string(),
    ];
    for pattern in patterns {
        queries.push(format!("tp:sched_switch(prev->comm =~ \"{pattern}\", next->pid)"));
        queries.push(format!(
            "tp:kfree_skb(skb->dev->name =~ \"{pattern}\" || str(skb->data) =~ \"{pattern}\", skb->len)"
        ));
        queries.push(format!(
            "tp:sched_switch(x = (int)(comm =~ \"{pattern}\"), !(comm =~ \"{pattern}\"))"
        ));
        queries.push(format!(
            "vfs_open(path->dentry->d_name.name =~ \"{pattern}\", path->dentry)"
        ));
        queries.push(format!(
            "do_sys_openat2(filename =~ \"{pattern}\", ustr(filename, 20) =~ \"{pattern}\")"
        ));
    }
    for text in &queries {
        for typed in [true, false] {
            if typed && !text.starts_with("tp:") {
                continue;
            }
            let verdict = judge.judge(text, typed);
            assert!(
                matches!(verdict, Verdict::Accepted { verified, .. } if verified < LIMIT),
                "{text}: {verdict:?}"
            );
        }
    }
}
