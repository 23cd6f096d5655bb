//! Each `tests/golden/*.query` through every stage, compared with the `.expect` beside it: the syntax tree, the IR, the
//! instructions as the loader leaves them, the layout of the records, and two records shown, one good and one in which
//! everything faulted.

use std::fmt::Write as _;
use std::path::Path;

use ksnoop_jit::compile::{self, Artifact, Job, Way};
use ksnoop_jit::ctype::CType;
use ksnoop_jit::display::{AggregatePrinter, Layout, NoSymbols, Options, Printer, RawRow};
use ksnoop_jit::lower::chain::Chain;
use ksnoop_jit::lower::{Reads, Target};
use ksnoop_jit::sema::Limits;
use ksnoop_jit::types::Types;
use ksnoop_jit::types::testing::mini_kernel;
use ksnoop_jit::wire::{self, AggregateLayout, ItemLayout, RecordLayout, ValueLayout};
use ksnoop_jit::{codegen, diag, ir, parser, typed};

use super::bless;

/// A golden file's question.
struct Question {
    query: String,
    way: Way,
    reads: Reads,
    /// The functions that its programs serve, if not the query's own alone.
    members: Vec<String>,
    /// In stack mode, the queries before and after it.
    callers: Vec<String>,
    callees: Vec<String>,
}

fn question(text: &str) -> Question {
    let mut question = Question {
        query: String::new(),
        way: Way::Trampoline,
        reads: Reads::Auto,
        members: Vec::new(),
        callers: Vec::new(),
        callees: Vec::new(),
    };
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        match line.split_once(": ") {
            Some(("query", query)) => question.query = query.to_string(),
            Some(("members", names)) => question.members = names.split(' ').map(str::to_string).collect(),
            Some(("caller", query)) => question.callers.push(query.to_string()),
            Some(("callee", query)) => question.callees.push(query.to_string()),
            Some(("kind", "fentry" | "tp")) => question.way = Way::Trampoline,
            Some(("kind", "kprobe" | "raw_tp")) => question.way = Way::Kprobe,
            Some(("reads", "probe")) => question.reads = Reads::Probe,
            Some(("reads", "auto")) => question.reads = Reads::Auto,
            Some(_) | None => panic!("a golden file has no line `{line}`"),
        }
    }
    question
}

fn artifact(question: &Question, types: &Types, out: &mut String) -> Artifact {
    let text = &question.query;
    let resolved = match compile::understand(text, types, Limits::default()) {
        Ok(resolved) => resolved,
        Err(diags) => {
            let all: Vec<String> = diags.iter().map(|d| diag::render(text, d, false)).collect();
            panic!("{}", all.join("\n"));
        }
    };
    if !resolved.warnings.is_empty() {
        out.push_str("== warnings\n");
    }
    for warning in &resolved.warnings {
        let _ = writeln!(out, "{}", diag::render(text, warning, false));
    }
    let understood = |texts: &[String]| -> Vec<typed::Query> {
        texts
            .iter()
            .map(|text| match compile::understand(text, types, Limits::default()) {
                Ok(resolved) => resolved.query,
                Err(diags) => panic!("{text}: {diags:?}"),
            })
            .collect()
    };
    let (callers, callees) = (understood(&question.callers), understood(&question.callees));
    let levels: Vec<Vec<&typed::Query>> = callers
        .iter()
        .chain([&resolved.query])
        .chain(&callees)
        .map(|query| vec![query])
        .collect();
    let name = |query: &&typed::Query| query.probe.func().name.clone();
    let names = levels.iter().map(|level| level.iter().map(name).collect());
    let target = Target {
        reads: question.reads,
        chain: (levels.len() > 1).then(|| match Chain::new(&levels, names.collect()) {
            Ok(chain) => chain,
            Err(why) => panic!("{text}: {why}"),
        }),
        ..Target::default()
    };
    let job = Job {
        query: callers.len(),
        queries: levels.len(),
        members: (!question.members.is_empty()).then_some(question.members.len() as u32),
        ..Job::alone(question.way)
    };
    let mut artifact = match compile::generate(&resolved.query, types, &target, job) {
        Ok(artifact) => artifact,
        Err(error) => panic!("{text}: {error}"),
    };
    if job.members.is_some() {
        // As whoever attaches them does.
        for lowered in &mut artifact.programs {
            if let Some(layout) = &mut lowered.layout {
                layout.names.clone_from(&question.members);
            }
            if let Some(layout) = &mut lowered.aggregate {
                layout.names.clone_from(&question.members);
            }
        }
    }
    artifact
}

fn answer(question: &Question, types: &Types) -> String {
    let text = &question.query;
    let mut out = format!("== query\n{text}\n== ast\n");
    match parser::parse(text) {
        Ok(query) => out.push_str(&parser::dump(&query)),
        Err(diags) => panic!("{text}: {diags}"),
    }
    let artifact = artifact(question, types, &mut out);

    out.push_str("== ir\n");
    for lowered in &artifact.programs {
        let printed = ir::print(&lowered.func);
        match ir::parse(&printed) {
            Ok(again) => assert_eq!(
                ir::print(&again),
                without_notes(&printed),
                "{text}: the IR's text does not come back"
            ),
            Err(error) => panic!("{text}: the IR's own text does not parse: {error}\n{printed}"),
        }
        out.push_str(&printed);
    }

    out.push_str("== insns\n");
    let object = &artifact.object;
    let relocated = match ksnoop_jit_runtime::object::relocate(&object.elf, &object.target_btf) {
        Ok(relocated) => relocated,
        Err(error) => panic!("{text}: {error}"),
    };
    for program in &object.programs {
        let Some(after) = relocated.iter().find(|after| after.name == program.name) else {
            panic!("{text}: the loader lost {}", program.name);
        };
        if let Err(why) = program.check_relocated(&after.insns) {
            panic!("{text}: {why}");
        }
        out.push_str(&codegen::listing(program, text, Some(&after.insns)));
    }

    let layouts: Vec<RecordLayout> = artifact
        .programs
        .iter()
        .filter_map(|lowered| lowered.layout.clone())
        .collect();
    out.push_str("== layout\n");
    for layout in &layouts {
        describe(layout, types, &mut out);
    }
    let aggregates: Vec<&AggregateLayout> = artifact
        .programs
        .iter()
        .filter_map(|lowered| lowered.aggregate.as_ref())
        .collect();
    for layout in &aggregates {
        describe_aggregate(layout, types, &mut out);
    }
    out.push_str("== display\n");
    for layout in &aggregates {
        let options = Options::new(Layout::Text);
        AggregatePrinter::new(types, layout, options).print(&made_up_rows(layout), 80, &mut out, &NoSymbols);
    }
    let mut printer = Printer::new(types, &layouts, Options::new(Layout::Text));
    for layout in &layouts {
        for faulty in [false, true] {
            printer.event(&made_up(layout, faulty), &mut out, &NoSymbols);
        }
    }
    out
}

/// The IR's text without the remarks behind `;`, which parsing drops.
fn without_notes(printed: &str) -> String {
    printed
        .lines()
        .map(|line| line.split(" ; ").next().unwrap_or("").trim_end().to_string() + "\n")
        .collect()
}

fn describe(layout: &RecordLayout, types: &Types, out: &mut String) {
    let _ = writeln!(
        out,
        "event {} of {}, {:?}, {} bytes",
        layout.event,
        layout.names.join(" "),
        layout.phase,
        layout.size
    );
    describe_items(&layout.items, types, out);
}

fn spelled(ty: &CType, types: &Types) -> String {
    match ty {
        CType::Btf(id) => types.c_name(*id),
        other => format!("{other:?}"),
    }
}

fn describe_aggregate(layout: &AggregateLayout, types: &Types, out: &mut String) {
    let _ = writeln!(
        out,
        "map {} of {}, {:?}, keys of {} bytes, values of {} bytes",
        layout.map,
        layout.names.join(" "),
        layout.phase,
        layout.key_size,
        layout.value_size
    );
    describe_items(&layout.keys, types, out);
    for measure in &layout.measures {
        let sign = if measure.signed { "signed" } else { "unsigned" };
        let _ = writeln!(
            out,
            "  value +{} `{}`: {:?} of {sign} {}, {:?}, {:?}, query {:?}",
            measure.offset,
            measure.label,
            measure.measure,
            spelled(&measure.ty, types),
            measure.unit,
            measure.format,
            measure.span
        );
    }
}

fn describe_items(items: &[ItemLayout], types: &Types, out: &mut String) {
    for item in items {
        let ty = spelled(&item.ty, types);
        let value = match &item.value {
            ValueLayout::Scalar => "scalar".to_string(),
            ValueLayout::Pointee {
                pointee,
                copied,
                full,
            } => format!(
                "pointer and {copied} of {full} bytes of {}",
                types.c_name(*pointee)
            ),
            ValueLayout::Bytes { copied, full } => format!("{copied} of {full} bytes"),
            ValueLayout::String { capacity } => format!("string of at most {capacity} bytes"),
            ValueLayout::Name => "which name".to_string(),
            ValueLayout::Buffer { capacity } => format!("at most {capacity} bytes"),
            ValueLayout::Stack { depth, user } => {
                let whose = if *user { "the user's" } else { "the kernel's" };
                format!("{whose} stack of at most {depth} frames")
            }
        };
        let format = item
            .format
            .map_or(String::new(), |format| format!(" as {format:?}"));
        let _ = writeln!(
            out,
            "  +{} `{}`: {ty}, {value}{format}, query {:?}, steps [{}]",
            item.offset,
            item.label,
            item.span,
            item.steps.join(", ")
        );
    }
}

/// Three keys of a map, one of which was hit on two CPUs of three: its numbers are put together, negative ones too.
fn made_up_rows(layout: &AggregateLayout) -> Vec<RawRow> {
    (0..3u64)
        .map(|number| {
            let mut key = vec![0; layout.key_size as usize];
            for item in &layout.keys {
                let value = item.offset + wire::VALUE;
                match &item.value {
                    ValueLayout::String { capacity } => {
                        let text = format!("task{number}");
                        let text = &text.as_bytes()[..text.len().min(*capacity as usize)];
                        put(
                            &mut key,
                            item.offset + wire::LENGTH,
                            &(text.len() as u32).to_le_bytes(),
                        );
                        put(&mut key, value, text);
                    }
                    ValueLayout::Name => put(
                        &mut key,
                        value,
                        &(number % layout.names.len() as u64).to_le_bytes(),
                    ),
                    ValueLayout::Scalar
                    | ValueLayout::Pointee { .. }
                    | ValueLayout::Bytes { .. }
                    | ValueLayout::Buffer { .. } => put(&mut key, value, &(number + 1).to_le_bytes()),
                    ValueLayout::Stack { user, .. } => {
                        put(&mut key, item.offset + wire::LENGTH, &8u32.to_le_bytes());
                        let frame = 0xffff_ffff_8100_0000 + number;
                        put(&mut key, value + 8 * u32::from(*user), &frame.to_le_bytes());
                    }
                }
            }
            let mut values = Vec::new();
            for cpu in 0..3u64 {
                let mut value = vec![0; layout.value_size as usize];
                // One CPU has never seen this key, and its value is as the map made it.
                let hits = if cpu == 1 { 0 } else { (number + 1) * (cpu + 1) };
                put(&mut value, wire::HITS, &hits.to_le_bytes());
                for measure in layout.measures.iter().filter(|_| hits > 0) {
                    let words = measure.measure.words(measure.signed);
                    let word = match measure.measure {
                        wire::Measure::Count => continue,
                        // The upper halves of small numbers are 0.
                        wire::Measure::Sum | wire::Measure::Avg => 5000 * hits,
                        wire::Measure::Min | wire::Measure::Max => {
                            let negative = measure.signed && cpu == 0;
                            let extreme = if negative {
                                -(number as i64) - 2
                            } else {
                                4096 + number as i64
                            };
                            extreme as u64 ^ wire::extreme_mask(measure.measure, measure.signed)
                        }
                        wire::Measure::Hist | wire::Measure::Lhist { .. } => {
                            let bucket = words / 2 + number as u32 + 3 * cpu as u32;
                            let at = measure.offset + 8 * bucket.min(words - 1);
                            put(&mut value, at, &hits.to_le_bytes());
                            continue;
                        }
                    };
                    put(&mut value, measure.offset, &word.to_le_bytes());
                }
                values.extend(value);
            }
            RawRow { key, values }
        })
        .collect()
}

/// A record that the program could have made, of the last of its functions. In the faulty one, each item failed at the first step that is in its text, or,
/// if it is itself a pointer that no step is in, at what it points to.
pub(super) fn made_up(layout: &RecordLayout, faulty: bool) -> Vec<u8> {
    let mut record = vec![0; layout.size as usize];
    let last = layout.names.len() as u32 - 1;
    put(&mut record, wire::EVENT, &(layout.event + last).to_le_bytes());
    put(&mut record, wire::CPU, &3u32.to_le_bytes());
    put(&mut record, wire::TIME, &1_000_002_000u64.to_le_bytes());
    put(&mut record, wire::TID, &4242u32.to_le_bytes());
    put(&mut record, wire::PID, &4200u32.to_le_bytes());
    for (index, item) in layout.items.iter().enumerate() {
        let value = item.offset + wire::VALUE;
        let pointer = 0xffff_8880_0000_1000u64 + 0x100 * index as u64;
        let step = item
            .steps
            .iter()
            .position(|step| item.label.contains(step.as_str()));
        if let (true, Some(step)) = (faulty, step) {
            put(
                &mut record,
                item.offset + wire::FAULT,
                &(step as u32 + 1).to_le_bytes(),
            );
            put(&mut record, value, &0u64.to_le_bytes());
            continue;
        }
        if faulty
            && item.label != "comm"
            && matches!(
                item.value,
                ValueLayout::Pointee { .. } | ValueLayout::String { .. }
            )
        {
            // EFAULT
            put(&mut record, item.offset + wire::FAULT, &(-14i32).to_le_bytes());
            put(&mut record, value, &(u64::MAX - 21).to_le_bytes());
            continue;
        }
        match &item.value {
            ValueLayout::Scalar => put(&mut record, value, &(1 + index as u64).to_le_bytes()),
            ValueLayout::Name => put(&mut record, value, &u64::from(last).to_le_bytes()),
            ValueLayout::Pointee { copied, .. } => {
                put(&mut record, value, &pointer.to_le_bytes());
                put(&mut record, value + 8, &pattern(*copied));
            }
            ValueLayout::Bytes { copied, .. } => put(&mut record, value, &pattern(*copied)),
            ValueLayout::String { capacity } => {
                let text = &b"eth0"[..4.min(*capacity as usize)];
                put(
                    &mut record,
                    item.offset + wire::LENGTH,
                    &(text.len() as u32).to_le_bytes(),
                );
                put(&mut record, value, text);
            }
            ValueLayout::Stack { user, .. } => {
                put(&mut record, item.offset + wire::LENGTH, &16u32.to_le_bytes());
                let frames = value + 8 * u32::from(*user);
                put(&mut record, frames, &0xffff_ffff_8100_0010u64.to_le_bytes());
                put(&mut record, frames + 8, &0xffff_ffff_8100_0020u64.to_le_bytes());
            }
            ValueLayout::Buffer { capacity } => {
                put(&mut record, item.offset + wire::LENGTH, &capacity.to_le_bytes());
                put(&mut record, value, &pattern(*capacity));
            }
        }
    }
    record
}

/// Bytes that tell members apart: each eight of them are a small number.
fn pattern(size: u32) -> Vec<u8> {
    (0..size)
        .map(|at| if at % 8 == 0 { (at / 8 + 1) as u8 } else { 0 })
        .collect()
}

fn put(record: &mut [u8], at: u32, bytes: &[u8]) {
    let at = at as usize;
    record[at..at + bytes.len()].copy_from_slice(bytes);
}

#[test]
fn every_stage_is_as_expected() {
    let types = mini_kernel();
    let dir = bless::golden("");
    let entries = match std::fs::read_dir(&dir) {
        Ok(entries) => entries,
        Err(error) => panic!("{}: {error}", dir.display()),
    };
    let mut files: Vec<_> = entries
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.extension().is_some_and(|ext| ext == "query"))
        .collect();
    files.sort();
    assert!(files.len() >= 25, "only {} golden queries", files.len());
    let mut differences = String::new();
    for file in &files {
        let got = answer(&question(&bless::read(Path::new(file))), &types);
        bless::compare(&file.with_extension("expect"), &got, &mut differences);
    }
    bless::finish(&differences);
}
