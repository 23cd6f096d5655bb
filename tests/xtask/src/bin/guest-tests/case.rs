//! A test: what is traced, what is done meanwhile, and what must come of it.
//!
//! In: a case and the guest. Out: nothing, or what is wrong, with all that the tool said. It never passes a
//! test whose tool ended badly, whatever was printed before.

use anyhow::{Context, Result, bail, ensure};

use crate::guest::{self, Guest, Need};
use crate::output::{self, Event};
use crate::tool::{Ended, Tool};
use crate::want::Want;

/// What is done while the tool is attached; it says which events that makes.
pub(crate) type Workload = fn() -> Result<Vec<Want>>;

/// Everything about one test.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) needs: Option<Need>,
    /// Why no kernel can do it: it is told, and not run.
    pub(crate) never: Option<&'static str>,
    pub(crate) options: Vec<String>,
    pub(crate) queries: Vec<String>,
    pub(crate) work: Work,
    pub(crate) scope: Scope,
    pub(crate) end: End,
    /// What it must say on stderr.
    pub(crate) tells: Vec<String>,
}

#[derive(Debug, Clone)]
pub(crate) enum Work {
    /// Groups of the fixture, one after the other, and what they must show.
    Groups(&'static [&'static str], Vec<Want>),
    /// The second module, and what it must show.
    Second(Vec<Want>),
    /// A function of ours.
    Call(Workload),
    /// The tool is not attached at all: it ends by itself with this status, and says all of these.
    Ends { status: i32, says: Vec<&'static str> },
    /// A function that does all there is to do with the tool, given the query.
    Own(fn(&Guest, &str) -> Result<()>),
}

/// Which of the events printed are compared, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// All of them are exactly the wanted ones, in order.
    All,
    /// The same for events of this process; others may have some too.
    Mine,
    /// All of them, in any order.
    AnyOrder,
    /// The wanted ones are among them, in order.
    Among,
}

/// How the tool comes to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Interrupted,
    /// It has had its number of events.
    Itself,
}

/// What tells a case's events from those of others.
struct Marks<'a> {
    groups: &'static [&'static str],
    function: &'a str,
    /// The labels of its events, each list once.
    labels: Vec<Vec<&'a str>>,
}

impl Case {
    pub(crate) fn new(name: &str, query: &str, work: Work) -> Self {
        Self {
            name: name.to_owned(),
            needs: None,
            never: None,
            options: Vec::new(),
            queries: vec![query.to_owned()],
            work,
            scope: Scope::All,
            end: End::Interrupted,
            tells: Vec::new(),
        }
    }

    pub(crate) fn tells(mut self, part: &str) -> Self {
        self.tells.push(part.to_owned());
        self
    }

    pub(crate) fn needs(mut self, need: Need) -> Self {
        self.needs = Some(need);
        self
    }

    pub(crate) fn scope(mut self, scope: Scope) -> Self {
        self.scope = scope;
        self
    }

    pub(crate) fn ends_itself(mut self) -> Self {
        self.end = End::Itself;
        self
    }

    pub(crate) fn options(mut self, options: &[&str]) -> Self {
        self.options
            .extend(options.iter().map(|&option| option.to_owned()));
        self
    }

    pub(crate) fn query(mut self, query: &str) -> Self {
        self.queries.push(query.to_owned());
        self
    }

    /// The case once as it is and once with kprobes. By itself the tool takes the best that the kernel has,
    /// which is fentry wherever that can be.
    pub(crate) fn both(self) -> [Self; 2] {
        let mut kprobe = self.clone().options(&["--attach", "kprobe"]);
        kprobe.name.push_str("@kprobe");
        let mut auto = self;
        auto.name.push_str("@auto");
        [auto, kprobe]
    }

    /// The same, and with fentry by name, which must then not be replaced by anything else.
    pub(crate) fn fentry_too(self) -> [Self; 2] {
        let [mut auto, kprobe] = self.both();
        auto.name = auto.name.replace("@auto", "@fentry");
        [auto.options(&["--attach", "fentry"]), kprobe]
    }

    /// What its events are known by among those of other queries; nothing if it must have the tool for itself.
    fn shares(&self) -> Option<Marks<'_>> {
        let Work::Groups(groups, wants) = &self.work else {
            return None;
        };
        let [query] = self.queries.as_slice() else {
            return None;
        };
        let several = query
            .split('(')
            .next()
            .is_some_and(|target| target.contains([',', '*', '?', '[']));
        if self.scope != Scope::All || self.end != End::Interrupted || several || !self.tells.is_empty() {
            return None;
        }
        let function = query.split('(').next()?.rsplit(':').next()?;
        let mut labels: Vec<Vec<&str>> = Vec::new();
        for want in wants {
            let of: Vec<&str> = want.values.iter().map(|(label, _)| label.as_str()).collect();
            if !labels.contains(&of) {
                labels.push(of);
            }
        }
        Some(Marks {
            groups,
            function,
            labels,
        })
    }

    /// Whether one run of the tool can do both, and it can still be told whose event is whose.
    pub(crate) fn goes_with(&self, other: &Self) -> bool {
        let (Some(mine), Some(others)) = (self.shares(), other.shares()) else {
            return false;
        };
        let told_apart = mine.function != others.function
            || (!mine.labels.is_empty()
                && !others.labels.is_empty()
                && mine.labels.iter().all(|labels| !others.labels.contains(labels)));
        mine.groups == others.groups && self.options == other.options && told_apart
    }

    /// Runs cases of which each [`goes_with`](Self::goes_with) each. `None` if that says nothing about any of them:
    /// then they must run one by one.
    pub(crate) fn run_all(cases: &[&Self], guest: &Guest) -> Option<Vec<Result<()>>> {
        let (first, _) = cases.split_first()?;
        let marks: Vec<Marks<'_>> = cases.iter().filter_map(|case| case.shares()).collect();
        let wants: Vec<&[Want]> = cases
            .iter()
            .filter_map(|case| match &case.work {
                Work::Groups(_, wants) => Some(wants.as_slice()),
                Work::Second(_) | Work::Call(_) | Work::Ends { .. } | Work::Own(_) => None,
            })
            .collect();
        if marks.len() != cases.len() || first.needs.is_some_and(|need| guest.provides(need).is_err()) {
            return None;
        }
        let mut args = first.args(&["-v"]);
        args.extend(cases[1..].iter().flat_map(|case| case.queries.clone()));
        let ended = || -> Result<Ended> {
            let mut tool = Tool::start(&guest.tool, &args)?;
            tool.wait_attached()?;
            marks[0]
                .groups
                .iter()
                .try_for_each(|group| guest::run_group(group))?;
            let enough: usize = wants.iter().map(|wants| wants.len()).sum();
            tool.wait_output(|text| output::events(text, true).is_ok_and(|events| events.len() >= enough));
            tool.interrupt()?;
            tool.finish()
        };
        let ended = ended().ok()?;
        let events = output::events(&ended.stdout, false).ok()?;
        let mut own: Vec<Vec<Event>> = vec![Vec::new(); cases.len()];
        for event in events {
            let mut labels: Vec<&str> = Vec::new();
            for value in &event.values {
                if !labels.contains(&value.label.as_str()) {
                    labels.push(&value.label);
                }
            }
            // The only query of a function has all its events, so that a wrong one is seen as such.
            let of_function = |mark: &&Marks<'_>| mark.function == event.function;
            let alone = marks.iter().filter(of_function).count() == 1;
            let owner = marks.iter().position(|mark| {
                mark.function == event.function && (alone || mark.labels.contains(&labels))
            })?;
            own[owner].push(event);
        }
        if ended.status.code() != Some(0) {
            return None;
        }
        let judged = wants
            .iter()
            .zip(&own)
            .map(|(wants, events)| exactly(wants, events, guest));
        Some(
            judged
                .map(|judged| judged.with_context(|| said(&ended)))
                .collect(),
        )
    }

    /// Runs it. A kernel leaves a call out, and counts it, while the same program is at work on that CPU: with one processor emulated after the
    /// other this happens by chance. Where the tool tells so, it is no fault of its own, and the case has six more tries.
    pub(crate) fn run(&self, guest: &Guest) -> Result<()> {
        for _ in 0..6 {
            match self.run_once(guest) {
                Err(error) if format!("{error:#}").contains(" missed, the same program was at work") => {}
                ended => return ended,
            }
        }
        self.run_once(guest)
    }

    fn run_once(&self, guest: &Guest) -> Result<()> {
        if let Some(need) = self.needs {
            guest.provides(need)?;
        }
        match &self.work {
            Work::Groups(groups, wants) => self.trace(guest, || {
                groups.iter().try_for_each(|group| guest::run_group(group))?;
                Ok(wants.clone())
            }),
            Work::Second(wants) => self.trace(guest, || {
                guest::run_second()?;
                Ok(wants.clone())
            }),
            Work::Call(call) => self.trace(guest, call),
            Work::Ends { status, says } => self.ends(guest, *status, says),
            Work::Own(own) => own(guest, self.queries.first().map_or("", String::as_str)),
        }
    }

    fn args(&self, first: &[&str]) -> Vec<String> {
        let first = first.iter().map(|&arg| arg.to_owned());
        first
            .chain(self.options.iter().cloned())
            .chain(self.queries.iter().cloned())
            .collect()
    }

    fn trace(&self, guest: &Guest, work: impl FnOnce() -> Result<Vec<Want>>) -> Result<()> {
        let mut tool = Tool::start(&guest.tool, &self.args(&["-v"]))?;
        tool.wait_attached()?;
        let wants = work().context("the workload failed")?;
        tool.wait_output(|text| {
            output::events(text, true).is_ok_and(|events| match self.scope {
                Scope::All | Scope::AnyOrder => events.len() >= wants.len(),
                Scope::Mine => mine(events).len() >= wants.len(),
                Scope::Among => among(&wants, &events, guest).is_none(),
            })
        });
        match self.end {
            End::Interrupted => tool.interrupt()?,
            End::Itself => {}
        }
        let ended = tool.finish()?;
        self.judge(&wants, &ended, guest).with_context(|| said(&ended))
    }

    fn judge(&self, wants: &[Want], ended: &Ended, guest: &Guest) -> Result<()> {
        ensure!(
            ended.status.code() == Some(0),
            "the tool ended with {}",
            ended.status
        );
        for part in &self.tells {
            ensure!(ended.stderr.contains(part), "it does not say `{part}`");
        }
        let events = output::events(&ended.stdout, false)?;
        match self.scope {
            Scope::All => exactly(wants, &events, guest),
            Scope::Mine => exactly(wants, &mine(events), guest),
            Scope::AnyOrder => any_order(wants, events, guest),
            Scope::Among => match among(wants, &events, guest) {
                None => Ok(()),
                Some(want) => bail!("no event, at least not in order, is {want}"),
            },
        }
    }

    fn ends(&self, guest: &Guest, status: i32, says: &[&str]) -> Result<()> {
        let ended = Tool::start(&guest.tool, &self.args(&[]))?.finish()?;
        let verdict = || -> Result<()> {
            ensure!(
                ended.status.code() == Some(status),
                "the tool ended with {}, not {status}",
                ended.status
            );
            for part in says {
                ensure!(
                    ended.stderr.contains(part) || ended.stdout.contains(part),
                    "it does not say `{part}`"
                );
            }
            Ok(())
        };
        verdict().with_context(|| said(&ended))
    }
}

/// What a person wants to see of a tool that did something wrong: the beginning of each stream.
fn said(ended: &Ended) -> String {
    let cut = |text: &str| {
        let lines: Vec<&str> = text.lines().take(60).collect();
        if text.lines().count() > lines.len() {
            format!("{}\n…", lines.join("\n"))
        } else {
            lines.join("\n")
        }
    };
    format!(
        "--- stdout\n{}\n--- stderr\n{}",
        cut(&ended.stdout),
        cut(&ended.stderr)
    )
}

fn mine(mut events: Vec<Event>) -> Vec<Event> {
    events.retain(|event| event.pid == std::process::id());
    events
}

fn exactly(wants: &[Want], events: &[Event], guest: &Guest) -> Result<()> {
    for (number, (want, event)) in wants.iter().zip(events).enumerate() {
        if let Some(difference) = want.differs(event, &guest.addresses) {
            bail!(
                "event {} of {}: {difference}; wanted: {want}",
                number + 1,
                wants.len()
            );
        }
    }
    if let Some(want) = wants.get(events.len()) {
        bail!(
            "{} events instead of {}; the first missing one: {want}",
            events.len(),
            wants.len()
        );
    }
    if let Some(event) = events.get(wants.len()) {
        bail!(
            "{} events instead of {}; the first that is too many: {event:?}",
            events.len(),
            wants.len()
        );
    }
    Ok(())
}

fn any_order(wants: &[Want], mut events: Vec<Event>, guest: &Guest) -> Result<()> {
    for want in wants {
        let found = events
            .iter()
            .position(|event| want.differs(event, &guest.addresses).is_none());
        match found {
            Some(at) => drop(events.remove(at)),
            None => bail!("no event is {want}"),
        }
    }
    ensure!(
        events.is_empty(),
        "{} events too many; the first: {:?}",
        events.len(),
        events[0]
    );
    Ok(())
}

/// The first wanted event that does not come after the one before it.
fn among<'a>(wants: &'a [Want], events: &[Event], guest: &Guest) -> Option<&'a Want> {
    let mut events = events.iter();
    wants
        .iter()
        .find(|want| !events.any(|event| want.differs(event, &guest.addresses).is_none()))
}
