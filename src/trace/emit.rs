//! What `--emit-obj` and the `--dump` options are about: queries compiled for a kernel that need not be the running one. In: queries
//! with their functions, the target's types. Out: compiled queries, for `dump`. The kinds of probes are those that the target's BTF
//! knows of. Never loads or attaches anything.

use ksnoop_jit::compile::{self, CompileError, Job};
use ksnoop_jit::lower::Target;
use ksnoop_jit::types::{NameKind, Type, Types};

use super::rungs::{self, Rung};
use super::targets::{Asked, Family};
use crate::cli::{self, Cli};
use crate::{Failure, dump};

/// Compiles all queries, each in the best way that the target has, and prints or writes what is asked for.
pub(super) fn all(cli: &Cli, asked: &[Asked], types: &Types, target: &Target) -> Result<(), Failure> {
    let mut emitter = Emitter {
        cli,
        types,
        target,
        first_event: 0,
        objects: 0,
    };
    for (index, one) in asked.iter().enumerate() {
        let job = Job {
            query: index,
            queries: asked.len(),
            keepers: one.families.len() as u32,
            ..Job::alone(compile::Way::Trampoline)
        };
        let set = one.places() > 1;
        for family in &one.families {
            if !set {
                emitter.emit(&one.text, family, job, rungs::for_one(cli, &family.query))?;
            } else if family.query.probe.user().is_some() || tells_places(types) {
                let job = Job {
                    members: Some(family.places.len() as u32),
                    ..job
                };
                emitter.emit(&one.text, family, job, rungs::for_many(cli, &family.query))?;
            } else {
                for place in &family.places {
                    let alone = family.alone_at(place);
                    emitter.emit(&one.text, &alone, job, rungs::for_one(cli, &alone.query))?;
                }
            }
        }
    }
    Ok(())
}

/// Whether programs can ask which of the places they are at: the target has `bpf_get_attach_cookie` (5.15). Types without the list of
/// helpers are no kernel's, and then it has.
fn tells_places(types: &Types) -> bool {
    for id in types.find(NameKind::Enum, "bpf_func_id") {
        if let Type::Enum(list) = types.get(id) {
            return list
                .values
                .iter()
                .any(|(name, _)| name == "BPF_FUNC_get_attach_cookie");
        }
    }
    true
}

struct Emitter<'a> {
    cli: &'a Cli,
    types: &'a Types,
    target: &'a Target,
    first_event: u32,
    /// How many objects there are already.
    objects: usize,
}

impl Emitter<'_> {
    /// In the first way that can do it.
    fn emit(&mut self, text: &str, family: &Family, job: Job, rungs: Vec<Rung>) -> Result<(), Failure> {
        let mut last = None;
        let forced = self.cli.attach != cli::Attach::Auto;
        for rung in rungs {
            if !forced {
                // What a program holds that calls kernel functions is good for the running kernel only.
                if rung.session() {
                    continue;
                }
                if let Err(why) = rung.known_to(self.types) {
                    last = Some(CompileError::Unsupported(why));
                    continue;
                }
            }
            let job = Job {
                first_event: self.first_event,
                way: rung.way(),
                ..job
            };
            match compile::generate(&family.query, self.types, self.target, job) {
                Ok(artifact) => {
                    dump::artifact(self.cli, text, &artifact, self.objects)?;
                    self.first_event = artifact.next_event;
                    self.objects += 1;
                    return Ok(());
                }
                Err(error @ CompileError::Unsupported(_)) => last = Some(error),
                Err(error) => return Err(error.into()),
            }
        }
        match last {
            Some(error) => Err(error.into()),
            None => Ok(()),
        }
    }
}
