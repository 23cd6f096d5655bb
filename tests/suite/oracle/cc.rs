//! The C side: one program from declarations and expressions, which a C compiler makes and which then tells how the types lie,
//! and what each expression comes to over given memory. In: text and bytes. Out: what that program says.

use std::fmt::Write as _;
use std::fs::File;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::expr::Pair;
use super::family::{Family, Places, Ty};
use super::image::{ARENA, Image, MARGIN};

/// Expressions in one C function.
const GROUP: usize = 100;

/// The program of a round; its directory goes with it.
pub(crate) struct Program {
    dir: PathBuf,
}

impl Drop for Program {
    fn drop(&mut self) {
        // What can't be removed is in the directory for temporary files.
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// What C makes of an expression.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Answer {
    /// Its value, extended to 64 bits, and its type: twice its bytes, plus one if it has a sign; 100 for a pointer; 0 for what
    /// C can't name.
    Value(u64, u8),
    /// A step leads nowhere, an index is out of bounds, or it divides by zero.
    Fault,
    /// An address is followed that means nothing here, but may mean something in a kernel. Where that is a fault, a condition
    /// has this value, and anything else is one.
    Wild(u64),
    /// A `bool` is read that is neither true nor false.
    Undefined,
}

/// The C compiler that is there, or why there is none.
pub(crate) fn compiler() -> Result<(), String> {
    match Command::new("gcc")
        .arg("--version")
        .stdout(Stdio::null())
        .status()
    {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("gcc --version: {status}")),
        Err(error) => Err(format!("gcc: {error}")),
    }
}

/// The C text of a round.
pub(crate) fn source(family: &Family, pairs: &[Pair]) -> String {
    let params = family.params.len();
    let mut out = format!("#define ARENA {ARENA}ULL\n#define MARGIN {MARGIN}ULL\n#define PARAMS {params}\n");
    out.push_str(include_str!("prelude.c"));
    out.push_str(&family.declarations());
    for (name, ty) in &family.params {
        let _ = writeln!(out, "static {};", family.declare(ty, name));
    }
    // Several in one function: most of what the C compiler does, it does for each function.
    for (group, pairs) in pairs.chunks(GROUP).enumerate() {
        let _ = writeln!(
            out,
            "static u64 group{group}(size_t index, u8 *t) {{ switch (index) {{"
        );
        for (index, pair) in pairs.iter().enumerate() {
            let body = if pair.bitfield {
                format!("return (u64){};", pair.c)
            } else {
                format!("__auto_type v = {}; *t = CODE(v); return (u64)v;", pair.c)
            };
            let _ = writeln!(out, "case {index}: {{ {body} }}");
        }
        out.push_str("} return 0; }\n");
    }
    let _ = writeln!(out, "enum {{ COUNT = {}, GROUP = {GROUP} }};", pairs.len());
    out.push_str("static u64 (*const groups[])(size_t, u8 *) = {");
    for group in 0..pairs.len().div_ceil(GROUP) {
        let _ = write!(out, "group{group},");
    }
    out.push_str("};\nstatic void arguments(const u64 *args)\n{\n");
    for (index, (name, ty)) in family.params.iter().enumerate() {
        // Of a register, only what the type has is the argument's.
        let part = if *ty == Ty::Bool { "(u8)" } else { "" };
        let _ = writeln!(out, "{name} = ({}){part}args[{index}];", family.declare(ty, ""));
    }
    let _ = write!(
        out,
        "}}\nstatic void layout(void)\n{{\n{}}}\n{}",
        family.questions(),
        include_str!("main.c")
    );
    out
}

impl Program {
    /// Compiles a source text.
    ///
    /// # Panics
    /// If the C compiler refuses it: then the generator is wrong.
    pub(crate) fn new(source: &str, dir: PathBuf) -> Program {
        std::fs::create_dir_all(&dir).expect("a directory for temporary files can be made");
        let program = Program { dir };
        std::fs::write(program.dir.join("oracle.c"), source).expect("it can be written");
        let done = Command::new("gcc")
            .args(["-std=gnu11", "-O0", "-w", "-fwrapv", "-fno-strict-aliasing", "-o"])
            .arg(program.dir.join("oracle"))
            .arg(program.dir.join("oracle.c"))
            .output()
            .expect("gcc can be run");
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(
            done.status.success(),
            "gcc refuses its text:\n{}",
            first_lines(&said)
        );
        program
    }

    /// Where everything is.
    pub(crate) fn places(&self, family: &Family) -> Places {
        let said = self.run(&[], &[]);
        let mut places = Places {
            sizes: vec![0; family.composites.len()],
            offsets: family
                .composites
                .iter()
                .map(|composite| vec![0; composite.members.len()])
                .collect(),
        };
        for line in String::from_utf8_lossy(&said).lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let number = |index: usize| -> usize { words[index].parse().expect("a number") };
            match words[0] {
                "size" => places.sizes[number(1)] = number(2) as u32,
                _ => places.offsets[number(1)][number(2)] = number(3) as u32,
            }
        }
        places
    }

    /// What each expression comes to, for each image.
    pub(crate) fn answers(&self, images: &[Image], pairs: usize) -> Vec<Vec<Answer>> {
        let mut input = Vec::new();
        for image in images {
            for word in [image.kernel_base, image.user_base].iter().chain(&image.args) {
                input.extend(word.to_le_bytes());
            }
            input.extend(&image.kernel);
            input.extend(&image.user);
        }
        let said = self.run(&["run"], &input);
        let (records, rest) = said.as_chunks::<16>();
        assert!(
            rest.is_empty() && records.len() == images.len() * pairs,
            "the C program stopped early"
        );
        let answer = |record: &[u8; 16]| {
            let (value, rest) = record.split_at(8);
            let value = u64::from_le_bytes(value.try_into().expect("eight bytes"));
            match rest[0] {
                0 => Answer::Value(value, rest[1]),
                1 => Answer::Fault,
                2 | 3 => Answer::Wild(value),
                _ => Answer::Undefined,
            }
        };
        records
            .chunks(pairs)
            .map(|records| records.iter().map(answer).collect())
            .collect()
    }

    fn run(&self, args: &[&str], input: &[u8]) -> Vec<u8> {
        // A file, and not a pipe: the program writes before it has read everything.
        let file = self.dir.join("images");
        std::fs::write(&file, input).expect("it can be written");
        let done = Command::new(self.dir.join("oracle"))
            .args(args)
            .stdin(File::open(&file).expect("it was written"))
            .output()
            .expect("the C program can be run");
        assert!(done.status.success(), "the C program: {}", done.status);
        done.stdout
    }
}

fn first_lines(text: &str) -> String {
    text.lines().take(30).collect::<Vec<_>>().join("\n")
}
