//! What `--emit-obj` and the `--dump` options are about: queries compiled for a kernel that need not be the running one. In: queries
//! with their functions, the target's types. Out: compiled queries, for `dump`. The kinds of probes are those that the target's BTF
//! knows of. Never loads or attaches anything.

use anyhow::anyhow;
use ksnoop_jit::compile::{self, CompileError, Job};
use ksnoop_jit::lower::Target;
use ksnoop_jit::types::{NameKind, Type, Types};

use super::rungs::{self, Rung};
use super::targets::{Asked, Family};
use crate::cli::{self, Cli};
use crate::{Failure, complain, dump};

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
        let mut refused: Vec<(String, String)> = Vec::new();
        let before = emitter.objects;
        for family in &one.families {
            let together = set && (family.query.probe.user().is_some() || tells_places(types));
            // None of them where one way is asked for that takes one function at a time.
            let rungs = match together {
                true => rungs::for_many(cli, &family.query),
                false => Vec::new(),
            };
            if !set {
                let rungs = rungs::for_one(cli, &family.query);
                if let Some(why) = emitter.emit(&one.text, family, job, rungs)? {
                    return Err(anyhow!(why).into());
                }
            } else if !rungs.is_empty() {
                let job = Job {
                    members: Some(family.places.len() as u32),
                    ..job
                };
                if let Some(why) = emitter.emit(&one.text, family, job, rungs)? {
                    let names = family.places.iter().map(|place| place.shown.clone());
                    refused.extend(names.map(|name| (name, why.clone())));
                }
            } else {
                for place in &family.places {
                    let alone = family.alone_at(place);
                    let rungs = rungs::for_one(cli, &alone.query);
                    if let Some(why) = emitter.emit(&one.text, &alone, job, rungs)? {
                        refused.push((place.shown.clone(), why));
                    }
                }
            }
        }
        // As when it runs: the others of a set are not kept from anything.
        if let Some((_, why)) = refused.first()
            && emitter.objects == before
        {
            return Err(anyhow!("can't trace any of `{}`: {why}", one.name).into());
        }
        for (name, why) in &refused {
            complain(&format!("{name} is left out: {why}"));
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
    /// In the first way that can do it. What comes back is why there is none.
    fn emit(
        &mut self,
        text: &str,
        family: &Family,
        job: Job,
        rungs: Vec<Rung>,
    ) -> Result<Option<String>, Failure> {
        assert!(!rungs.is_empty(), "bug in ksnoop-jit: no way to attach is tried");
        let mut last = None;
        let forced = self.cli.attach != cli::Attach::Auto;
        for rung in rungs {
            if !forced {
                // What a program holds that calls kernel functions is good for the running kernel only.
                if rung.session() {
                    continue;
                }
                if let Err(why) = rung.known_to(self.types) {
                    last = Some(why);
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
                    return Ok(None);
                }
                Err(CompileError::Unsupported(why)) => last = Some(why),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(last)
    }
}
