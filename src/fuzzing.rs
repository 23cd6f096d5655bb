//! The laws that hold for any input, as functions that panic where one is broken. In: bytes or text from a fuzzer or a
//! corpus. Out: nothing. Never part of a build that users run, and never reads anything but its argument: types are those
//! of the made-up kernel in `types::testing`.

use crate::codegen;
use crate::compile::{self, Artifact, CompileError, Job, Way};
use crate::diag::render;
use crate::display::{Layout, NoSymbols, Options, Printer};
use crate::ir;
use crate::lower::{Reads, Target};
use crate::parser::generate;
use crate::sema::Limits;
use crate::typed;
use crate::types::mini::mini_target;
use crate::types::testing::{mini_kernel, mini_kernel_bytes};
use crate::types::{NameKind, TypeId, Types};
use crate::user::testing::{BASE, DATA, Made, TEXT};
use crate::user::{self, Image, Images};
use crate::wire::RecordLayout;

/// The parser takes or refuses any text: see [`generate::check`].
pub fn parser(text: &str) {
    generate::check(text);
}

/// Damaged type information can be asked everything. The first two bytes choose the types that are asked about, so that a run
/// is short; of the rest, each three bytes overwrite one byte of the made-up kernel's BTF behind its header, which whoever
/// opens BTF has checked.
pub fn types(input: &[u8]) {
    let Some((first, damage)) = input.split_first_chunk::<2>() else {
        return;
    };
    let mut bytes = BYTES.with(Vec::clone);
    let body = bytes.len() - HEADER;
    for patch in damage.as_chunks::<3>().0 {
        let place = usize::from(u16::from_le_bytes([patch[0], patch[1]])) % body;
        bytes[HEADER + place] = patch[2];
    }
    if let Ok(btf) = btf_rs::Btf::from_bytes(&bytes) {
        let types = Types::new(btf);
        let first = u32::from(u16::from_le_bytes(*first)) % IDS;
        ask_about(&types, 0, (first..first + AT_ONCE).map(|id| id % IDS));
        ask_by_name(&types);
    }
}

/// Any text either becomes a program, the same one each time, or is refused with diagnostics that can be drawn; what is
/// compiled is never refused by our own checks.
pub fn compile(text: &str) {
    KERNEL.with(|types| compile_against(text, types));
}

fn compile_against(text: &str, types: &Types) {
    let query = match compile::understand(text, types, Limits::default()) {
        Ok(resolved) => resolved.query,
        Err(diags) => {
            assert!(!diags.is_empty(), "{text:?} is refused without a reason");
            for diag in &diags {
                assert!(
                    text.get(diag.span.range()).is_some(),
                    "{text:?}: {diag} points outside"
                );
                render(text, diag, false);
            }
            return;
        }
    };
    for reads in [Reads::Auto, Reads::Probe] {
        for typed in [true, false] {
            let Some(artifact) = generated(&query, types, reads, typed) else {
                continue;
            };
            let again = generated(&query, types, reads, typed).map(|again| again.object.elf);
            assert_eq!(
                again.as_ref(),
                Some(&artifact.object.elf),
                "{text:?} differs from itself"
            );
            for program in &artifact.object.programs {
                codegen::listing(program, text, None);
            }
            codegen::dump_btf(&artifact.object);
            for lowered in &artifact.programs {
                let printed = ir::print(&lowered.func);
                let back = ir::parse(&printed).unwrap_or_else(|error| panic!("{text:?}: {error}\n{printed}"));
                assert_eq!(ir::verify(&back), Ok(()), "{text:?}\n{printed}");
            }
        }
    }
}

/// Any text either is IR, and then prints as itself and, where the verifier agrees, compiles; or is refused.
pub fn ir(text: &str) {
    let Ok(func) = ir::parse(text) else {
        return;
    };
    let printed = ir::print(&func);
    let back = ir::parse(&printed).unwrap_or_else(|error| panic!("{error}\n{printed}"));
    assert_eq!(ir::print(&back), printed);
    if ir::verify(&func).is_ok() {
        match KERNEL.with(|types| codegen::compile(&[func], &[], types)) {
            Ok(_) => {}
            Err(error) => judge(&error, text),
        }
    }
}

/// Any bytes can be shown as an event: something printable, the same each time. The first byte chooses a query, the
/// second whether the rest is taken for one of its events.
pub fn display(bytes: &[u8]) {
    let [choice, flags, record @ ..] = bytes else {
        return;
    };
    let choice = usize::from(*choice) % EVENTS.len();
    KERNEL.with(|types| LAYOUTS.with(|layouts| show(types, &layouts[choice], *flags, record.to_vec())));
}

fn show(types: &Types, layouts: &[RecordLayout], flags: u8, mut record: Vec<u8>) {
    if flags & 1 == 0
        && let Some(number) = record.first_chunk_mut::<4>()
    {
        *number = layouts[0].event.to_le_bytes();
    }
    for format in [Layout::Text, Layout::Compact, Layout::Json, Layout::Chrome] {
        let options = Options {
            zeros: flags & 2 != 0,
            ..Options::new(format)
        };
        let show = || {
            let mut out = String::new();
            let mut printer = Printer::new(types, layouts, options.clone());
            if format == Layout::Chrome {
                printer.begin(&[], &mut out);
            }
            printer.event(&record, &mut out, &NoSymbols);
            printer.end(&mut out);
            out
        };
        let shown = show();
        assert!(shown.ends_with('\n'), "{shown:?}");
        assert!(shown.chars().all(|c| c == '\n' || !c.is_control()), "{shown:?}");
        match format {
            Layout::Text => {}
            Layout::Compact => assert_eq!(shown.matches('\n').count(), 1, "{shown:?}"),
            Layout::Json | Layout::Chrome => {
                let read = serde_json::from_str::<serde_json::Value>(&shown);
                assert!(read.is_ok(), "{read:?}: {shown}");
            }
        }
        assert_eq!(shown, show(), "the same again");
    }
}

/// Asks everything about every type, and about some that do not exist.
pub fn ask_everything(types: &Types) {
    for module in 0..=types.module_count() {
        ask_about(types, module, (0..IDS).chain([u32::MAX - 1, u32::MAX]));
        types.functions(module);
    }
    ask_by_name(types);
}

/// Asks everything about some types, and about the functions among them by their names.
fn ask_about(types: &Types, module: u16, ids: impl Iterator<Item = u32>) {
    for id in ids {
        let id = TypeId { module, id };
        types.get(id);
        types.strip(id);
        types.strip_mods(id);
        types.complete(id);
        types.size_of(id);
        types.has_type_tag(id, "user");
        assert!(types.c_name(id).len() < 200_000);
        assert!(types.c_decl(id, "x").len() < 200_000);
        types.layout_c(id);
        types.member_names(id);
        assert!(types.member(id, "there is no such member").is_err());
        if let Some(func) = types.func(id) {
            types.prototype(&func);
            types.functions_named(&func.name);
            types.find(NameKind::Any, &func.name);
        }
        let mini = mini_target(types, &[(id, None), (id, Some("root".to_string()))]);
        btf_rs::Btf::from_bytes(&mini.bytes).expect("the mini target is readable");
    }
}

fn ask_by_name(types: &Types) {
    types.enum_constant("nowhere");
    for event in types.tracepoints() {
        types.tracepoint_proto(&event);
    }
    types.names_of(NameKind::Any);
}

/// More than the made-up kernel has types.
const IDS: u32 = 400;
/// How many of them one run of `types` asks about.
const AT_ONCE: u32 = 24;

/// Bytes of a BTF header.
const HEADER: usize = 24;

/// Queries whose events hold a value of each kind.
const EVENTS: [&str; 5] = [
    "ip_rcv(skb->len > 0xff, skb)",
    "tp:sched_switch(prev->comm, next->pid, *prev)",
    "vfs_open",
    "tcp_set_state(sk->__sk_common.skc_daddr:ip, state:x, sk)",
    "vfs_open(*path, str(path->dentry->d_iname), return:errno)",
];

thread_local! {
    /// The made-up kernel, made once: it costs far more than a check. What it has looked up never changes what it says.
    static KERNEL: Types = mini_kernel();
    static BYTES: Vec<u8> = mini_kernel_bytes();
    /// The layouts of each of `EVENTS`.
    static LAYOUTS: Vec<Vec<RecordLayout>> = EVENTS.iter().map(|text| KERNEL.with(|types| layouts(text, types))).collect();
}

fn layouts(text: &str, types: &Types) -> Vec<RecordLayout> {
    let query = compile::understand(text, types, Limits::default())
        .unwrap_or_else(|diags| panic!("{text}: {diags:?}"))
        .query;
    let artifact = generated(&query, types, Reads::Auto, true)
        .unwrap_or_else(|| panic!("bug in ksnoop-jit: {text} does not compile"));
    artifact
        .programs
        .into_iter()
        .filter_map(|lowered| lowered.layout)
        .collect()
}

/// Compiles what sema has taken. `None` where this way of attaching can't see it all, or the program is too large.
fn generated(query: &typed::Query, types: &Types, reads: Reads, typed: bool) -> Option<Artifact> {
    let target = Target {
        reads,
        ..Target::default()
    };
    let job = Job {
        first_event: 1,
        ..Job::alone(if typed { Way::Trampoline } else { Way::Kprobe })
    };
    match compile::generate(query, types, &target, job) {
        Ok(artifact) => Some(artifact),
        Err(CompileError::Unsupported(_)) => None,
        Err(CompileError::Codegen(error)) => {
            judge(&error, &query.text);
            None
        }
    }
}

/// A file is read or refused, whatever is in it; and whatever probes are found in one can be compiled, for kernels with and
/// without cookies. Bytes that begin as ELF does are a file; others are a call site's recipes up to a line feed, and
/// behind it damage to the file that they are put into, each three bytes of which overwrite one.
pub fn user(bytes: &[u8]) {
    if bytes.starts_with(b"\x7f") {
        if let Ok(image) = user::read(bytes) {
            KERNEL.with(|types| compile_probes(image, types));
        }
        return;
    }
    let mut halves = bytes.splitn(2, |byte| *byte == b'\n');
    let arguments = String::from_utf8_lossy(halves.next().unwrap_or_default()).replace('\0', " ");
    let damage = halves.next().unwrap_or_default();
    for made in [Made::x86_64(), Made::aarch64()] {
        let mut file = made
            .symbol("counter", DATA + 8, object::elf::STT_OBJECT)
            .site([TEXT + 8, BASE, DATA], "p", "n", &arguments)
            .site([TEXT + 9, BASE, 0], "p", "n", "-4@5 8@x1 1@%al")
            .bytes();
        for patch in damage.as_chunks::<3>().0 {
            let place = usize::from(u16::from_le_bytes([patch[0], patch[1]])) % file.len();
            file[place] = patch[2];
        }
        if let Ok(image) = user::read(file.as_slice()) {
            KERNEL.with(|types| compile_probes(image, types));
        }
    }
}

fn compile_probes(image: Image, types: &Types) {
    let mut images = Images::new();
    images.insert("x".to_string(), Ok(image));
    for text in ["usdt:x:*:*", "usdt:x:p:n(arg0 == 5, str(arg1))", "uprobe:x:*"] {
        let Ok(all) = compile::understand_all(text, types, &images, Limits::default()) else {
            continue;
        };
        for resolved in all.resolved {
            for cookies in [true, false] {
                let target = Target {
                    cookies,
                    ..Target::default()
                };
                for way in [Way::Uprobe, Way::UprobeSession] {
                    match compile::generate(&resolved.query, types, &target, Job::alone(way)) {
                        Ok(_) | Err(CompileError::Unsupported(_)) => {}
                        Err(CompileError::Codegen(error)) => judge(&error, text),
                    }
                }
            }
        }
    }
}

/// A program may be too large for BPF; every other failure of code generation is ours.
fn judge(error: &codegen::CodegenError, what: &str) {
    match error {
        codegen::CodegenError::StackExhausted { .. }
        | codegen::CodegenError::TooLong { .. }
        | codegen::CodegenError::BadRelocation { .. } => {}
        codegen::CodegenError::Ir { .. }
        | codegen::CodegenError::MapConflict { .. }
        | codegen::CodegenError::Elf(_)
        | codegen::CodegenError::Internal { .. } => panic!("bug in ksnoop-jit: {error}\n{what}"),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    /// Runs a check over the corpus of its fuzz target, which is part of the repository.
    fn over(target: &str, check: fn(&[u8])) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("fuzz/corpus")
            .join(target);
        let entries =
            std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let mut paths: Vec<_> = entries
            .map(|entry| entry.expect("it can be listed").path())
            .collect();
        paths.sort();
        assert!(!paths.is_empty());
        for path in paths {
            let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            check(&bytes);
        }
    }

    fn text(bytes: &[u8]) -> &str {
        std::str::from_utf8(bytes).expect("the corpus is text")
    }

    #[test]
    fn parser() {
        over("parser", |bytes| super::parser(text(bytes)));
    }

    #[test]
    fn types() {
        over("types", super::types);
    }

    #[test]
    fn compile() {
        over("compile", |bytes| super::compile(text(bytes)));
    }

    #[test]
    fn ir() {
        over("ir", |bytes| super::ir(text(bytes)));
    }

    #[test]
    fn display() {
        over("display", super::display);
    }

    #[test]
    fn user() {
        over("user", super::user);
    }
}
