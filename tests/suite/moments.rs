//! Values of both moments of a call together: memory that the call changes, and what is known of the task. In: queries for a made-up
//! kernel, by every way of attaching, and memory that is another at the return. Out: verdicts.

use super::calls::{Call, Event, Mode, Running, call, ways};
use super::machine::Region;
use ksnoop_jit::compile::Way;

const HERE: u64 = 0xffff_8880_0000_1000;
const THERE: u64 = 0xffff_8880_0000_2000;
/// Nothing can be read there.
const NOWHERE: u64 = 0xffff_8880_0000_3000;

/// What a call's first two arguments point to: at its entry, and at its return.
#[derive(Clone, Copy)]
struct Changes {
    first: (u64, [i32; 4], [i32; 4]),
    second: (u64, [u8; 8], [u8; 8]),
}

const GROWS: Changes = Changes {
    first: (HERE, [10, 5, 0, 0], [11, 5, 0, 0]),
    second: (THERE, *b"before\0\0", *b"after\0\0\0"),
};

/// One call, and how many conditions faulted.
fn shown(query: &str, way: Way, mode: Mode, changes: Changes, result: u64) -> (Vec<Event>, u64) {
    let mut running = Running::new(&[query], way, mode);
    running.moves = true;
    let ints = |of: [i32; 4]| -> Vec<u8> { of.iter().flat_map(|word| word.to_le_bytes()).collect() };
    let set = |running: &mut Running, first: [i32; 4], second: [u8; 8]| {
        running.machine.memory = vec![
            Region {
                base: HERE,
                bytes: ints(first),
            },
            Region {
                base: THERE,
                bytes: second.to_vec(),
            },
        ];
    };
    let mut one = Call {
        args: [changes.first.0, changes.second.0, 7],
        ..call(7, result)
    };
    set(&mut running, changes.first.1, changes.second.1);
    assert_eq!(running.enter(&mut one), [], "{query}, {way:?}: shown at entry");
    set(&mut running, changes.first.2, changes.second.2);
    let events = running.leave(&mut one);
    assert_eq!(running.kept(), 0, "{query}, {way:?}: something stays");
    (events, running.faults())
}

/// What is shown of a call, by every way.
fn check(query: &str, changes: Changes, result: i64, values: Option<&[i64]>, faults: u64) {
    for (way, mode) in ways() {
        let wanted: Vec<Event> = values
            .map(|values| (0, values.iter().map(|value| *value as u64).collect()))
            .into_iter()
            .collect();
        assert_eq!(
            shown(query, way, mode, changes, result as u64),
            (wanted, faults),
            "{query}, {way:?}, {mode:?}"
        );
    }
}

#[test]
fn what_changes_during_a_call_is_kept() {
    for (way, mode) in ways() {
        let query = "tcp_sendmsg(entry(cpu), exit(cpu), uid, before=entry(ktime), return > 0)";
        let mut running = Running::new(&[query], way, mode);
        running.moves = true;
        let mut one = call(7, 70);
        running.enter(&mut one);
        let before = running.now;
        let events = running.leave(&mut one);
        assert_eq!(events, [(0, vec![1, 2, 1000, before, 70])], "{way:?}");
    }
}

#[test]
fn memory_of_both_moments_is_compared() {
    let stays = Changes {
        first: (HERE, [10, 5, 0, 0], [10, 5, 0, 0]),
        ..GROWS
    };
    let query = "tcp_sendmsg(entry(*(int *)sk) != exit(*(int *)sk))";
    check(query, GROWS, 1, Some(&[10, 11]), 0);
    check(query, stays, 1, None, 0);
    // What nothing is said of is read at entry.
    let query = "tcp_sendmsg(*(int *)sk < exit(*(int *)sk))";
    check(query, GROWS, 1, Some(&[10, 11]), 0);
    check(query, stays, 1, None, 0);
    check(
        "tcp_sendmsg(entry(*(int *)sk) < return)",
        GROWS,
        11,
        Some(&[10, 11]),
        0,
    );
    check("tcp_sendmsg(entry(*(int *)sk) < return)", GROWS, 10, None, 0);
    check(
        "tcp_sendmsg(size) if entry(*(int *)sk) != exit(*(int *)sk)",
        GROWS,
        0,
        Some(&[7]),
        0,
    );
    check(
        "tcp_sendmsg(size) if !(entry(*(int *)sk) != exit(*(int *)sk))",
        GROWS,
        0,
        None,
        0,
    );
}

#[test]
fn both_moments_are_in_one_shown_value() {
    check(
        "tcp_sendmsg(grew=exit(*(int *)sk) - entry(*(int *)sk))",
        GROWS,
        0,
        Some(&[1]),
        0,
    );
    check(
        "tcp_sendmsg(x=return * 100 + entry(*(int *)sk) - entry(((int *)sk)[1]))",
        GROWS,
        3,
        Some(&[305]),
        0,
    );
    check(
        "tcp_sendmsg(x=entry(*(int *)sk) == 10 ? exit(*(int *)sk) : -1)",
        GROWS,
        0,
        Some(&[11]),
        0,
    );
}

#[test]
fn what_is_shown_is_what_was_compared() {
    // Each part of an `and` as early as it is known; what the return value is compared with, at return.
    check(
        "tcp_sendmsg(return > 0 && *(int *)sk == 10)",
        GROWS,
        1,
        Some(&[1, 10]),
        0,
    );
    check("tcp_sendmsg(return > 0 && *(int *)sk == 11)", GROWS, 1, None, 0);
    check("tcp_sendmsg(return == *(int *)sk)", GROWS, 11, Some(&[11, 11]), 0);
    check("tcp_sendmsg(return == *(int *)sk)", GROWS, 10, None, 0);
    check(
        "tcp_sendmsg(return < 0 || *(int *)sk == 11)",
        GROWS,
        1,
        Some(&[1, 11]),
        0,
    );
    check(
        "tcp_sendmsg(entry(*(int *)sk == 10), exit(*(int *)sk == 11))",
        GROWS,
        1,
        Some(&[10, 11]),
        0,
    );
}

#[test]
fn a_pointer_of_the_entry_is_followed_at_the_return() {
    let [low, high] = [THERE as u32 as i32, (THERE >> 32) as i32];
    let changes = Changes {
        first: (HERE, [low, high, 0, 0], [0, 0, 0, 0]),
        ..GROWS
    };
    // `a` and `b`, as the bytes are at each moment.
    check(
        "tcp_sendmsg(x=*entry(*(char **)sk) + return)",
        changes,
        0,
        Some(&[97]),
        0,
    );
    check(
        "tcp_sendmsg(x=entry(**(char **)sk) + return)",
        changes,
        0,
        Some(&[98]),
        0,
    );
    check("tcp_sendmsg(*exit((char *)msg) == 'a')", GROWS, 0, Some(&[97]), 0);
}

#[test]
fn strings_and_the_task_are_of_the_moment_that_is_asked_for() {
    check(
        r#"tcp_sendmsg(size) if entry((char *)msg) == "before" || return < 0"#,
        GROWS,
        0,
        Some(&[7]),
        0,
    );
    check(
        r#"tcp_sendmsg(size) if entry((char *)msg) == "after" || return < 0"#,
        GROWS,
        0,
        None,
        0,
    );
    check(
        r#"tcp_sendmsg(size) if exit((char *)msg) == "after" || return < 0"#,
        GROWS,
        0,
        Some(&[7]),
        0,
    );
    for (query, holds) in [
        (r#"entry(comm) == "first" || return < 0"#, true),
        (r#"entry(comm) == "later" || return < 0"#, false),
        (r#"exit(comm) == "later" || return < 0"#, true),
        (r#"entry(comm) =~ "x*" || exit(comm) =~ "la*""#, true),
        (r#"comm == "first" && exit(comm) == "later""#, true),
    ] {
        let query = format!("tcp_sendmsg(size) if {query}");
        check(&query, GROWS, 0, holds.then_some(&[7][..]), 0);
    }
    check("tcp_sendmsg(entry(cpu) != exit(cpu))", GROWS, 0, Some(&[1, 2]), 0);
    check("tcp_sendmsg(size) if entry(uid) == exit(uid)", GROWS, 0, None, 0);
}

#[test]
fn a_fault_of_the_entry_is_one_where_its_value_is_used() {
    let bad = Changes {
        first: (NOWHERE, [0; 4], [0; 4]),
        ..GROWS
    };
    check(
        "tcp_sendmsg(size) if entry(*(int *)sk) != exit(*(char *)msg)",
        bad,
        0,
        None,
        1,
    );
    check(
        "tcp_sendmsg(size) if !(entry(*(int *)sk) == exit(*(char *)msg))",
        bad,
        0,
        None,
        1,
    );
    // Each comparison by itself; and what is not needed is no fault.
    check(
        "tcp_sendmsg(size) if entry(*(int *)sk) == 1 || exit(*(char *)msg) == 'a'",
        bad,
        0,
        Some(&[7]),
        1,
    );
    check(
        "tcp_sendmsg(size) if exit(*(char *)msg) == 'a' || entry(*(int *)sk) == 1",
        bad,
        0,
        Some(&[7]),
        0,
    );
    // A shown value has the bad pointer in its place.
    check(
        "tcp_sendmsg(x=exit(*(char *)msg) - entry(*(int *)sk))",
        bad,
        0,
        Some(&[NOWHERE as i64]),
        0,
    );
}
