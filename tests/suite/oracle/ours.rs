//! Our side: queries are compiled as each way of attaching has them, run over the images, and what they write is compared
//! with what C said.

use std::collections::BTreeSet;
use std::ops::{ControlFlow, Range};

use ksnoop_jit::codegen;
use ksnoop_jit::ctype::CType;
use ksnoop_jit::lower::Reads;
use ksnoop_jit::types::{Type, Types};
use ksnoop_jit::wire::{self, ItemLayout};
use ksnoop_jit_runtime as runtime;
use runtime::{
    AttachTarget, Events, KernelMemory, LogLevel, Maps, ObjectSpec, ProgramKind, ProgramSpec, Relocated,
};

use super::super::machine::{Machine, Moment, Region, number};
use super::super::running::{Built, Way, build, context};
use super::Tally;
use super::cc::Answer;
use super::expr::Pair;
use super::image::{ARENA, Image};

/// How a query is run: as a function's entry by a breakpoint or a trampoline, with plain loads and without, and as a raw
/// tracepoint, which is what the kernel runs for a test.
const WAYS: [(&str, Way); 4] = [
    ("", KPROBE),
    (
        "",
        Way {
            typed: true,
            reads: Reads::Auto,
            tight: false,
        },
    ),
    (
        "",
        Way {
            typed: true,
            reads: Reads::Probe,
            tight: false,
        },
    ),
    ("tp:", KPROBE),
];
const KPROBE: Way = Way {
    typed: false,
    reads: Reads::Auto,
    tight: false,
};
const RAW: usize = 3;

/// An expression in a query, and which of all answers is its own.
#[derive(Clone, Copy)]
pub(super) struct Shot<'a> {
    pub(super) pair: &'a Pair,
    pub(super) index: usize,
}

/// The kernel, and memory in it.
pub(crate) struct Kernel {
    memory: KernelMemory,
    user: Vec<u8>,
    maps: Option<Maps>,
    events: Option<Events>,
}

impl Kernel {
    /// Makes memory in the kernel; an error says why there can be none.
    pub(crate) fn open() -> Result<Kernel, String> {
        if let runtime::Answer::No(why) = runtime::Capabilities::detect().privileged() {
            return Err(why.to_string());
        }
        Ok(Kernel {
            memory: KernelMemory::new(ARENA).map_err(|error| error.to_string())?,
            user: vec![0; ARENA],
            maps: None,
            events: None,
        })
    }

    /// Where kernel memory and this process's memory begin.
    pub(super) fn bases(&self) -> (u64, u64) {
        (self.memory.address(), self.user.as_ptr() as u64)
    }

    fn show(&mut self, image: &Image) {
        self.memory.bytes().copy_from_slice(&image.kernel);
        self.user.copy_from_slice(&image.user);
    }

    /// Loads a raw tracepoint program and runs it over each image: what it wrote each time.
    fn run(&mut self, built: &Built, images: &[Image]) -> Result<Vec<Option<Vec<u8>>>, String> {
        let told = |error: runtime::RuntimeError| error.to_string();
        let object = &built.artifact.object;
        let spec = ObjectSpec {
            elf: object.elf.clone(),
            target_btf: object.target_btf.clone(),
            map_sizes: Vec::new(),
            shared: self.maps.clone(),
        };
        let relocated = Relocated::new(&spec).map_err(told)?;
        if self.maps.is_none() {
            self.maps = Some(relocated.maps().clone());
        }
        let name = built.artifact.programs[0].func.name.clone();
        let spec = ProgramSpec {
            name: name.clone(),
            kind: ProgramKind::RawTp,
            attach: AttachTarget::Nothing,
            cookie: None,
        };
        let loaded = relocated.load(&[spec], LogLevel::Off).map_err(told)?;
        if self.events.is_none() {
            self.events = Some(Events::open(loaded.maps(), "events").map_err(told)?);
        }
        let mut out = Vec::new();
        for image in images {
            self.show(image);
            loaded.test_run(&name, &image.args).map_err(told)?;
            let mut record = None;
            if let Some(events) = &mut self.events {
                events.drain_all(|bytes| {
                    record = Some(bytes.to_vec());
                    ControlFlow::Continue(())
                });
            }
            out.push(record);
        }
        Ok(out)
    }
}

/// The ways, ready for the images of a round.
pub(super) struct Ways<'a> {
    types: &'a Types,
    images: &'a [Image],
    machines: Vec<Machine>,
    kernel: Option<(&'a mut Kernel, &'a [Image])>,
}

impl<'a> Ways<'a> {
    pub(super) fn new(
        types: &'a Types,
        images: &'a [Image],
        kernel: Option<(&'a mut Kernel, &'a [Image])>,
    ) -> Ways<'a> {
        let machine = |image: &Image| {
            let region = |base, bytes: &Vec<u8>| Region {
                base,
                bytes: bytes.clone(),
            };
            let memory = vec![
                region(image.kernel_base, &image.kernel),
                region(image.user_base, &image.user),
            ];
            Machine::new(memory, Moment::default())
        };
        Ways {
            types,
            images,
            machines: images.iter().map(machine).collect(),
            kernel,
        }
    }

    /// Compiles and runs one query, in the interpreter one way and in the kernel, and compares its items with the answers.
    pub(super) fn query(
        &mut self,
        mut query: Query<'_>,
        number: usize,
        answers: &[Vec<Answer>],
        tally: &mut Tally,
    ) -> Result<(), String> {
        let all = query.len();
        let way = number % WAYS.len();
        let (prefix, how) = WAYS[way];
        let built = query.built(prefix, self.types, how)?;
        if query.len() == 0 {
            tally.left += all;
            return Ok(());
        }
        let mut seen = Seen::default();
        // Plain loads take what is nowhere for zeros.
        let forgiving = how.typed && how.reads == Reads::Auto;
        for (at, image) in self.images.iter().enumerate() {
            let typed = Way {
                typed: how.typed || way == RAW,
                ..how
            };
            let (bytes, caller) = context(typed, &image.args);
            let machine = &mut self.machines[at];
            machine.memory.truncate(2);
            machine.memory.push(caller);
            machine.forgiving = forgiving;
            let compared = machine.run(&built.code, &bytes).and_then(|_| {
                let record = machine.records.first().map(Vec::as_slice);
                query.compare(self.types, &built, &answers[at], record, forgiving, &mut seen)
            });
            tally.interpreted += compared.map_err(|why| listed(&built, image, &why))?;
        }
        if let Some((kernel, images)) = &mut self.kernel {
            let raw = if way == RAW {
                built
            } else {
                query.built(WAYS[RAW].0, self.types, WAYS[RAW].1)?
            };
            let records = kernel
                .run(&raw, images)
                .map_err(|why| listed(&raw, &images[0], &why))?;
            for (at, record) in records.iter().enumerate() {
                let answers = &answers[self.images.len() + at];
                // A wild address may be anybody's in a real kernel.
                let compared = query.compare(self.types, &raw, answers, record.as_deref(), true, &mut seen);
                tally.in_kernel +=
                    compared.map_err(|why| listed(&raw, &images[at], &format!("in the kernel: {why}")))?;
            }
        }
        let compared = seen.which.len();
        tally.expressions += compared;
        tally.predicates += usize::from(query.cond.is_some_and(|cond| seen.which.contains(&cond.index)));
        tally.faults += seen.faults;
        tally.left += all - compared;
        Ok(())
    }
}

/// Which expressions have been compared.
#[derive(Default)]
struct Seen {
    which: BTreeSet<usize>,
    faults: usize,
}

/// What one query shows, and its condition.
pub(super) struct Query<'a> {
    pub(super) items: Vec<Shot<'a>>,
    pub(super) cond: Option<Shot<'a>>,
}

impl Query<'_> {
    fn len(&self) -> usize {
        self.items.len() + usize::from(self.cond.is_some())
    }

    /// Its text, and where in it each item and the condition are.
    fn text(&self, prefix: &str) -> (String, Vec<Range<usize>>) {
        let mut text = format!("{prefix}probe_me(");
        let mut places = Vec::new();
        for (at, shot) in self.items.iter().enumerate() {
            if at > 0 {
                text.push_str(", ");
            }
            let start = text.len();
            text.push_str(&format!("x{} = {}", shot.index, shot.pair.query));
            places.push(start..text.len());
        }
        text.push(')');
        if let Some(cond) = &self.cond {
            let start = text.len();
            text.push_str(&format!(" if {}", cond.pair.query));
            places.push(start..text.len());
        }
        (text, places)
    }

    /// Compiles it, without what is refused, and rightly.
    fn built(&mut self, prefix: &str, types: &Types, way: Way) -> Result<Built, String> {
        loop {
            let (text, places) = self.text(prefix);
            let refused = match build(&text, types, way) {
                Ok(built) => return Ok(built),
                Err(spans) => spans,
            };
            let wrong = |place: &Range<usize>| {
                refused
                    .iter()
                    .any(|span| place.contains(&span.range().start) && span.range().end <= place.end)
            };
            let before = self.len();
            if self.cond.is_some() && places.last().is_some_and(wrong) {
                self.cond = None;
            }
            let mut place = places.iter();
            self.items.retain(|_| !place.next().is_some_and(wrong));
            if self.len() == before {
                return Err(format!(
                    "{text}\nis refused, but not for anything in it: {refused:?}"
                ));
            }
        }
    }

    /// Compares a record, or that there is none, with what C says; gives how many comparisons that was.
    fn compare(
        &self,
        types: &Types,
        built: &Built,
        answers: &[Answer],
        record: Option<&[u8]>,
        skip_wild: bool,
        seen: &mut Seen,
    ) -> Result<usize, String> {
        let mut compared = 0;
        if let Some(cond) = &self.cond {
            let holds = match answers[cond.index] {
                Answer::Value(value, _) => value != 0,
                Answer::Fault => return Err("C says that a whole condition is a fault".to_string()),
                // Some comparison in it followed an address that decides nothing.
                Answer::Wild(_) if skip_wild => return Ok(0),
                Answer::Undefined => return Ok(0),
                Answer::Wild(value) => value != 0,
            };
            if holds != record.is_some() {
                return Err(format!(
                    "`{}`: C says {holds}, but there is {}",
                    cond.pair.query,
                    if record.is_some() { "an event" } else { "no event" }
                ));
            }
            seen.which.insert(cond.index);
            compared += 1;
        }
        let Some(record) = record else {
            return match self.cond {
                Some(_) => Ok(compared),
                None => Err("there is no event".to_string()),
            };
        };
        let layout = built.artifact.programs[0].layout.as_ref().ok_or("no layout")?;
        if layout.items.len() != self.items.len() {
            return Err(format!("{} items are shown", layout.items.len()));
        }
        for (shot, item) in self.items.iter().zip(&layout.items) {
            let answer = answers[shot.index];
            if answer == Answer::Undefined || matches!(answer, Answer::Wild(_)) && skip_wild {
                continue;
            }
            let got = shown(item, record);
            let right = match answer {
                Answer::Value(value, code) => {
                    let ours = code_of(types, &item.ty);
                    if code != 0 && code != ours {
                        return Err(format!(
                            "`{}`: C's type has code {code}, ours {ours}",
                            shot.pair.query
                        ));
                    }
                    got == Some(value)
                }
                Answer::Fault | Answer::Wild(_) | Answer::Undefined => got.is_none(),
            };
            if !right {
                return Err(format!(
                    "`{}`: C says {answer:x?}, the program {got:x?}; in C:\n{}",
                    shot.pair.query, shot.pair.c
                ));
            }
            seen.faults += usize::from(got.is_none());
            seen.which.insert(shot.index);
            compared += 1;
        }
        Ok(compared)
    }
}

/// The number that a record shows; nothing if a step to it was a fault. That what a pointer points to can't be copied is none.
fn shown(item: &ItemLayout, record: &[u8]) -> Option<u64> {
    let at = item.offset as usize;
    let fault = number(&record[at + wire::FAULT as usize..][..4]) as u32;
    let step = fault != 0 && fault >> 31 == 0;
    (!step).then(|| number(&record[at + wire::VALUE as usize..][..8]))
}

/// A type as the C program tells it.
fn code_of(types: &Types, ty: &CType) -> u8 {
    let number = |bytes: u8, signed: bool| 2 * bytes + u8::from(signed);
    match ty {
        CType::Int { bytes, signed } => number(*bytes, *signed),
        CType::Bool => 2,
        CType::Ptr(_) => 100,
        CType::Void => 0,
        CType::Btf(id) => match types.get(types.complete(*id)) {
            Type::Int(int) => number(int.size as u8, int.signed),
            Type::Enum(kind) => number(kind.size as u8, kind.signed),
            Type::Ptr(_) => 100,
            other => unreachable!("a shown value of type {other:?}"),
        },
    }
}

fn listed(built: &Built, image: &Image, why: &str) -> String {
    let program = &built.artifact.object.programs[0];
    format!(
        "{why}\n\n{}\n{:?}, arguments {:#x?}\n{}",
        built.text,
        built.way,
        image.args,
        codegen::listing(program, &built.text, Some(&built.code))
    )
}
