//! Whose events count: the options of the command line, judged first of all in each program. In: what was asked for. Out:
//! branches to the end. Never reads an argument.

use super::program::Lower;
use crate::ir::{Bits, CmpOp, Helper, MapData, MapKind, Operand, Width};
use crate::span::Span;
use crate::typed::{Builtin, Expr, ExprKind};

/// Name of the array with the one cgroup that counts; a descriptor of its directory goes there before anything runs.
pub const CGROUP: &str = "cgroup";
/// Name of the hash of process ids that are followed: a key of 4 bytes, a value of 4 that means nothing.
pub const FOLLOWED: &str = "followed";
/// So many processes can be followed at once.
const FOLLOWED_MAX: u32 = 1 << 14;

/// Which tasks and CPUs count; all that is given must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// This process only.
    pub pid: Option<u32>,
    /// This thread only.
    pub tid: Option<u32>,
    /// This user only.
    pub uid: Option<u32>,
    /// This CPU only.
    pub cpu: Option<u32>,
    /// Tasks under the cgroup of [`CGROUP`] only.
    pub cgroup: bool,
    /// Processes in [`FOLLOWED`] only.
    pub follow: bool,
    /// Tasks only for which this condition on their name holds.
    pub comm: Option<Expr>,
}

/// The map of the processes that are followed.
pub(super) fn followed() -> MapData {
    MapData {
        name: FOLLOWED.to_string(),
        kind: MapKind::Hash,
        key_size: 4,
        value_size: 4,
        max_entries: FOLLOWED_MAX,
    }
}

impl Lower<'_> {
    /// Goes on only where the event counts.
    pub(super) fn filter(&mut self) {
        self.filter_task();
        self.filter_moment();
    }

    /// The part that is the same for a thread as long as it lives.
    pub(super) fn filter_task(&mut self) {
        let filter = &self.target.filter;
        self.filter_number(filter.pid, Builtin::Pid, "-p");
        self.filter_number(filter.tid, Builtin::Tid, "-t");
    }

    /// The part that may change from call to call.
    pub(super) fn filter_moment(&mut self) {
        let filter = &self.target.filter;
        self.filter_number(filter.uid, Builtin::Uid, "--uid");
        self.filter_number(filter.cpu, Builtin::Cpu, "--cpu");
        if filter.follow {
            self.b.at(None, "--follow");
            let pid = self.builtin(Builtin::Pid);
            let key = self.scratch();
            let at = self.b.slot_addr(key);
            self.b.store(Width::B4, at, 0, pid);
            self.look_up(followed(), key);
        }
        if filter.cgroup {
            self.b.at(None, "--cgroup");
            let map = self.b.map(MapData {
                name: CGROUP.to_string(),
                kind: MapKind::CgroupArray,
                key_size: 4,
                value_size: 4,
                max_entries: 1,
            });
            let map = self.b.map_addr(map);
            let under = self.call(Helper::CurrentTaskUnderCgroup, &[map.into(), Operand::Imm(0)]);
            self.only_if(under, 1);
        }
        if let Some(comm) = &filter.comm
            && let ExprKind::StrCompare {
                text,
                equal: true,
                test,
            } = &comm.kind
        {
            self.b.at(None, "--comm");
            let go_on = self.b.block("");
            let end = self.end;
            // The query's text has nothing of the option's.
            self.compare_text(text, test, Span::default(), go_on, end);
            self.b.switch_to(go_on);
        }
    }

    fn filter_number(&mut self, wanted: Option<u32>, builtin: Builtin, note: &str) {
        let Some(wanted) = wanted else {
            return;
        };
        self.b.at(None, note);
        let value = self.builtin(builtin);
        self.only_if(value, wanted as i32);
    }

    fn only_if(&mut self, value: crate::ir::Value, wanted: i32) {
        let go_on = self.b.block("");
        let end = self.end;
        self.b.branch(CmpOp::Ne, Bits::W32, value, wanted, end, go_on);
        self.b.switch_to(go_on);
    }
}
