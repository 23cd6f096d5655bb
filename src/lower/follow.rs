//! The programs that keep the set of followed processes: what a followed process forks is followed too, until it is gone.
//! In: nothing but the kernel's types. Out: two raw tracepoint programs. Never writes an event.

use super::program::Lower;
use super::{Id, Lowered, ProgramKind, Target, filter};
use crate::ir::{Bits, CmpOp, Helper, Operand, Width};
use crate::typed::{self, Source};
use crate::types::Types;

/// What the program at a fork asks, as a query: the new task's process.
pub const FORK: &str = "tp:sched_process_fork($arg2->tgid)";
/// What the program at a task's very end asks: nothing runs as that task any more, so what an exiting process does still counts
/// (`delayed_put_task_struct`, kernel/exit.c).
pub const FREE: &str = "tp:sched_process_free($arg1->pid, $arg1->tgid)";

/// The two programs, from the two queries.
pub fn lower(fork: &typed::Query, free: &typed::Query, types: &Types, target: &Target) -> Vec<Lowered> {
    let id = |event| Id {
        event,
        query: 0,
        queries: 1,
        shared: false,
        keepers: 1,
    };
    vec![
        program(fork, types, target, id(0), |lower, values| {
            let [tgid] = values else {
                unreachable!("bug in ksnoop-jit: the query has one item");
            };
            let pid = lower.builtin(typed::Builtin::Pid);
            let key = lower.b.slot(8);
            let at = lower.b.slot_addr(key);
            lower.b.store(Width::B8, at, 0, pid);
            lower.look_up(filter::followed(), key);
            lower.b.at(None, "follow the child");
            let child = lower.value(tgid);
            let at = lower.b.slot_addr(key);
            lower.b.store(Width::B4, at, 0, child);
            let map = lower.b.map(filter::followed());
            let map = lower.b.map_addr(map);
            lower.call(
                Helper::MapUpdateElem,
                &[map.into(), at.into(), at.into(), Operand::Imm(0)],
            );
        }),
        program(free, types, target, id(1), |lower, values| {
            let [tid, tgid] = values else {
                unreachable!("bug in ksnoop-jit: the query has two items");
            };
            let (tid, pid) = (lower.value(tid), lower.value(tgid));
            let leader = lower.b.block("the process itself");
            let end = lower.end;
            lower.b.branch(CmpOp::Ne, Bits::W64, tid, pid, end, leader);
            lower.b.switch_to(leader);
            let key = lower.b.slot(8);
            let at = lower.b.slot_addr(key);
            lower.b.store(Width::B8, at, 0, pid);
            let map = lower.b.map(filter::followed());
            let map = lower.b.map_addr(map);
            lower.call(Helper::MapDeleteElem, &[map.into(), at.into()]);
        }),
    ]
}

fn program<'a>(
    query: &'a typed::Query,
    types: &'a Types,
    target: &'a Target,
    id: Id,
    body: impl FnOnce(&mut Lower<'a>, &[&typed::Expr]),
) -> Lowered {
    let mut lower = Lower::new(query, types, target, ProgramKind::RawTp, id);
    let values: Vec<&typed::Expr> = query
        .events
        .iter()
        .flat_map(|event| &event.items)
        .filter_map(|item| match &item.source {
            Source::Value(expr) => Some(expr),
            Source::Memory(_)
            | Source::Comm
            | Source::Stack { .. }
            | Source::Sized { .. }
            | Source::Literal(_)
            | Source::Name => None,
        })
        .collect();
    // A task that can't be read is not followed; there is nobody to tell.
    lower.faults_end(|lower| body(lower, &values));
    Lowered {
        kind: ProgramKind::RawTp,
        func: lower.finish(),
        layout: None,
        aggregate: None,
        sites: Vec::new(),
    }
}
