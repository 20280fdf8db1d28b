//! A fork is promoted: the branch becomes what the fork is.
//!
//! What a program did in a fork is the branch's in one step (P12): before it nothing of it is, behind it all. The fork is gone
//! then, and its snapshots are those of the branch.

use holdfast_base::mutants::{self, Mutant};
use holdfast_base::{Timestamp, show};
use holdfast_store::{LookedAt, Pin, Store};

use crate::core::Core;
use crate::which::name_of;
use crate::*;

impl FileSystem {
    /// Promotes a fork: the branch becomes what `fork` is, which is not open and goes. What the branch was is kept as a snapshot of the name
    /// `keep`, or deleted. With `unchanged` the branch must be what the fork has begun with; otherwise it is
    /// [`FsError::Diverged`], and nothing has happened. Access times are no change.
    ///
    /// For what is open or remembered of the branch this is a rollback, see [`FileSystem::watch_rollback`].
    pub fn promote<'a, 'b>(
        &self,
        branch: impl Into<Which<'a>>,
        fork: impl Into<Which<'b>>,
        keep: Option<&[u8]>,
        unchanged: bool,
    ) -> Result<()> {
        self.expect_changeable()?;
        let (branch, fork) = (self.branch_no(branch.into())?, self.branch_no(fork.into())?);
        let done = self.promote_numbers(branch, fork, keep, unchanged);
        self.volume.volume.deletions.begin();
        done
    }

    /// All snapshots of the fork are looked at while the branch goes on, and if it must be `unchanged` it is compared with what the fork has begun
    /// with: much may be younger than that and the same, as behind a backup that has read all files. What has come since is looked at
    /// once more, until there is nothing, or little.
    fn promote_numbers(
        &self,
        branch: u64,
        fork: u64,
        keep: Option<&[u8]>,
        unchanged: bool,
    ) -> Result<()> {
        self.expect_fork(fork)?;
        let warm = self.warm(branch, fork);
        let store = self.core.store.store();
        let mut looks = Looks::new(store.look_before_promotion(branch, fork)?, warm);
        loop {
            let next = match unchanged {
                true => self.look_at_both(branch, fork, keep, &mut looks)?,
                false => self.with_branch(branch, |store, open| {
                    self.expect_fork(fork)?;
                    promote(store, open, keep, &mut looks)
                })?,
            };
            match next {
                Next::Promoted => return Ok(()),
                Next::Compare(moments) => self.compare(branch, moments, &mut looks)?,
                Next::Look => looks.look_again(store)?,
            }
        }
    }

    /// One look, for which the branch stands still.
    pub(crate) fn look_at_both(
        &self,
        branch: u64,
        fork: u64,
        keep: Option<&[u8]>,
        looks: &mut Looks,
    ) -> Result<Next> {
        self.with_branch(branch, |store, open| {
            self.expect_fork(fork)?;
            if !store.has_same_ancestor(&mut looks.both)? {
                return Ok(Next::Look);
            }
            let Some(base) = looks.both.common_ancestor() else {
                return Err(self.diverged(branch));
            };
            let goes_on = match &looks.same {
                Some(same) => {
                    same.base == base && store.has_grown_out_of(branch, same.moment.number())?
                }
                None => true,
            };
            if !goes_on && !looks.begin_anew() {
                return Err(self.diverged(branch));
            }
            let known = looks.same.as_ref().map_or(base, |same| same.moment.number());
            // By births: no node is younger.
            let is_proved = store.is_unchanged_since(branch, known)?;
            if !is_proved && !mutants::is(Mutant::PromotedAsItWas) {
                let old = match looks.same.take() {
                    Some(same) => same.moment,
                    None => store.pin_number(base)?,
                };
                let new = store.pin_now(branch, Timestamp::now())?;
                if looks.outside < OUTSIDE_MAX {
                    return Ok(Next::Compare(ToCompare { base, old, new }));
                }
                if self.differ(old, new.clone())? {
                    return Err(self.diverged(branch));
                }
                looks.same = Some(Same { base, moment: new });
            }
            promote(store, open, keep, looks)
        })
    }

    /// Compares two moments while the branch goes on, and looks at what both have grown out of. Fails if they differ.
    pub(crate) fn compare(&self, branch: u64, of: ToCompare, looks: &mut Looks) -> Result<()> {
        let ToCompare { base, old, new } = of;
        if self.differ(old, new.clone())? {
            return Err(self.diverged(branch));
        }
        looks.outside += 1;
        looks.same = Some(Same { base, moment: new });
        // The branch has grown out of one more snapshot, that of the moment.
        looks.look_again(self.core.store.store())
    }

    fn expect_fork(&self, fork: u64) -> Result<()> {
        self.expect_not_open(fork, &name_of(self.tree(fork)?))
    }

    fn diverged(&self, branch: u64) -> FsError {
        match self.tree(branch) {
            Ok(item) => FsError::Diverged(show::name(&name_of(item))),
            Err(error) => error,
        }
    }

    /// Whether programs see any difference between two moments.
    fn differ(&self, old: Pin, new: Pin) -> Result<bool> {
        let mut changes = Changes::new(old, new, false);
        Ok(self.next_change(&mut changes)?.is_some())
    }
}

/// Comparisons, one after the other, of a branch that goes on meanwhile. Programs that read all the time change access times
/// between any two; what came since the last one is compared while they wait.
const OUTSIDE_MAX: u32 = 2;
/// So often a comparison begins anew, as the branch or the fork was rolled back since: all of it would be compared while programs
/// wait. One that is rolled back again and again is not what its fork has begun with: rollbacks without end may bring back what
/// was, but at no moment that stays.
const ANEW_MAX: u32 = 3;

/// What comes next, when a branch stood still.
#[derive(Debug)]
pub(crate) enum Next {
    /// Nothing.
    Promoted,
    /// This is compared, while the branch goes on.
    Compare(ToCompare),
    /// Snapshots are looked at, while the branch goes on: much has changed since they were.
    Look,
}

/// What was found out of a branch and its fork so far.
#[derive(Debug)]
pub(crate) struct Looks {
    both: LookedAt,
    /// Comparisons while the branch goes on, since they began anew.
    outside: u32,
    /// So often they did.
    anew: u32,
    same: Option<Same>,
    /// The fork, as it was read before the branch stood still.
    warm: Option<Pin>,
}

impl Looks {
    pub(crate) fn new(both: LookedAt, warm: Option<Pin>) -> Looks {
        Looks { both, outside: 0, anew: 0, same: None, warm }
    }

    /// Looks at what others have changed, while the branch goes on.
    pub(crate) fn look_again(&mut self, store: &Store) -> Result<()> {
        Ok(store.look_again(&mut self.both)?)
    }

    /// What was compared says little of the branch as it is now. Returns whether it is compared once more.
    fn begin_anew(&mut self) -> bool {
        self.same = None;
        self.outside = 0;
        self.anew += 1;
        self.anew <= ANEW_MAX
    }
}

/// Two moments of a branch that are the same, or the promotion is refused.
#[derive(Debug)]
pub(crate) struct ToCompare {
    base: u64,
    old: Pin,
    new: Pin,
}

/// A moment of a branch that held what its fork has begun with.
#[derive(Debug)]
struct Same {
    /// The snapshot that both have grown out of.
    base: u64,
    moment: Pin,
}

/// Turns a branch, which stands still, to what the fork is.
fn promote(
    store: &Store,
    open: Option<&Core>,
    keep: Option<&[u8]>,
    Looks { both, warm, .. }: &mut Looks,
) -> Result<Next> {
    let has_turned = match open {
        None => store.promote_looked(both, keep, Timestamp::now())?,
        Some(core) => {
            if keep.is_some() {
                // Writes that came since are part of what is kept.
                core.write_back()?;
            }
            let turn = || Ok(store.promote_looked(both, keep, Timestamp::now())?);
            rollback::roll_back(core, warm.as_ref(), turn)?
        }
    };
    Ok(if has_turned { Next::Promoted } else { Next::Look })
}
