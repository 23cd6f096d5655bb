//! Whose events count: the options that say so, as the compiler and the maps want them. In: the command line. Out: a filter,
//! and what has to be in the maps before anything counts. Everything is judged in the kernel; never looks at an event.

use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use ksnoop_jit::compile;
use ksnoop_jit::lower::{self, Filter};
use ksnoop_jit::types::Types;
use ksnoop_jit_runtime as runtime;

use crate::cli::Cli;
use crate::programs;
use crate::{Failure, complain, tell};

/// Where cgroups are, if a path is told from there.
const CGROUP_ROOTS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];

/// The filter that every program begins with.
pub(super) fn filter(cli: &Cli, types: &Types) -> Result<Filter, Failure> {
    let comm = match &cli.comm {
        Some(pattern) => match compile::comm_filter(pattern, types) {
            Ok(filter) => {
                tell(cli, &filter.text, &filter.warnings);
                Some(filter.cond)
            }
            Err((text, diags)) => {
                tell(cli, &text, &diags);
                return Err(Failure::Query);
            }
        },
        None => None,
    };
    if cli.btf.is_none() && !cli.check && !crate::dump::wanted(cli) {
        there(cli)?;
    }
    Ok(Filter {
        pid: if cli.follow { None } else { cli.pid },
        tid: cli.tid,
        uid: cli.uid,
        cpu: cli.cpu,
        cgroup: cli.cgroup.is_some(),
        follow: cli.follow,
        comm,
    })
}

/// Refuses what can't be there, for which a trace would wait in vain.
fn there(cli: &Cli) -> Result<(), Failure> {
    let refuse = |why: String| {
        complain(&format!("ksnoop-jit: {why}"));
        Err(Failure::Query)
    };
    for (option, what, id) in [("-p", "process", cli.pid), ("-t", "thread", cli.tid)] {
        if let Some(id) = id
            && !programs::is_there(id)
        {
            return refuse(format!("{option} {id}: there is no {what} {id}"));
        }
    }
    if let Some(cpu) = cli.cpu
        && let Ok(count) = runtime::maps::possible_cpus()
        && usize::try_from(cpu).is_ok_and(|cpu| cpu >= count)
    {
        return refuse(format!(
            "--cpu {cpu}: this machine has the CPUs 0 to {}",
            count - 1
        ));
    }
    if cli
        .command
        .as_ref()
        .is_some_and(|command| command.trim().is_empty())
    {
        return refuse("-c wants a command".to_string());
    }
    Ok(())
}

/// Puts the cgroup and the first followed process where the programs look for them. Until then no event counts.
pub(super) fn admit(cli: &Cli, child: Option<u32>, maps: &runtime::Maps) -> Result<(), Failure> {
    if let Some(path) = &cli.cgroup {
        let found = cgroup(path);
        let dir = std::fs::File::open(&found)
            .with_context(|| format!("can't open the cgroup {}", found.display()))?;
        let fd = dir.as_raw_fd() as u32;
        maps.update(lower::CGROUP, &0u32.to_ne_bytes(), &fd.to_ne_bytes())
            .with_context(|| format!("{} is no directory of a cgroup (version 2)", found.display()))?;
    }
    if cli.follow {
        let Some(root) = child.or(cli.pid) else {
            return Err(anyhow!("--follow needs a process to begin with: -c or -p").into());
        };
        maps.update(lower::FOLLOWED, &root.to_ne_bytes(), &[0; 4])?;
    }
    Ok(())
}

/// The directory of a cgroup, whose path may be told from the cgroups' root.
fn cgroup(path: &Path) -> PathBuf {
    if path.is_dir() {
        return path.to_path_buf();
    }
    let below = path.strip_prefix("/").unwrap_or(path);
    let mut candidates = CGROUP_ROOTS.iter().map(|root| Path::new(root).join(below));
    candidates
        .find(|candidate| candidate.is_dir())
        .unwrap_or_else(|| path.to_path_buf())
}
