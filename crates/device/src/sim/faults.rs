//! How a device misbehaves: by script or by seeded chance.
//!
//! A [`Fault`] says which call, when, and what goes wrong. Calls are counted
//! by kind from 1, since the faults were set. Of several faults that fit, the
//! first one acts.
//!
//! Always true: the same faults, seed and calls give the same misfortunes.

use holdfast_base::prng::Prng;

/// A kind of call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// A read.
    Read,
    /// A write.
    Write,
    /// A flush.
    Flush,
    /// A discard.
    Discard,
}

impl Call {
    /// The word in messages.
    pub fn name(self) -> &'static str {
        match self {
            Call::Read => "read",
            Call::Write => "write",
            Call::Flush => "flush",
            Call::Discard => "discard",
        }
    }
}

/// At which calls of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// At this one, counted from 1.
    Nth(u64),
    /// At this one and all later ones.
    From(u64),
    /// At one in so many, by chance. Not 0.
    OneIn(u64),
    /// At some of those that touch this part of the device.
    Inside {
        /// Byte offset.
        start: u64,
        /// Behind the last byte.
        end: u64,
        /// So many are obeyed first.
        skip: u64,
        /// At so many after these.
        times: u64,
    },
}

/// What goes wrong. What is left open here is chosen by the seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It answers EIO. A write stores some of its first sectors, or none; a failed flush makes
    /// nothing durable, for ever.
    Fail,
    /// It answers well and does nothing: a lost write, a lying flush. Reads are not affected.
    Ignore,
    /// One bit is turned over, counted from the first: in what is stored, or in what is read.
    FlipBit(Option<u64>),
    /// It goes to another byte offset, a multiple of the sector with room for it.
    Misdirect(Option<u64>),
    /// The call panics, as a bug anywhere above it in that thread would. A write has stored some of its first sectors
    /// by then, or none; a flush has made nothing durable.
    Panic,
}

/// One misfortune.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Which calls.
    pub call: Call,
    /// When.
    pub when: When,
    /// What happens.
    pub action: Action,
}

/// All misfortunes of a device.
#[derive(Clone, Debug)]
pub struct Faults {
    list: Vec<Fault>,
    /// How many calls have touched the part of the device that each means.
    touched: Vec<u64>,
    calls: [u64; 4],
    fired: u64,
    prng: Prng,
}

/// What the device does with one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Obey,
    /// Fails; a write keeps so many bytes.
    Fail {
        kept: u64,
    },
    Ignore,
    Flip {
        bit: u64,
    },
    Misdirect {
        to: u64,
    },
    /// Panics; a write keeps so many bytes.
    Panic {
        kept: u64,
    },
}

impl Faults {
    /// No misfortune.
    pub fn none() -> Faults {
        Faults::seeded(0)
    }

    /// No misfortune yet; what is left to chance comes from `seed`.
    pub fn seeded(seed: u64) -> Faults {
        Faults {
            list: Vec::new(),
            touched: Vec::new(),
            calls: [0; 4],
            fired: 0,
            prng: Prng::seeded(seed),
        }
    }

    /// One more.
    pub fn with(mut self, call: Call, when: When, action: Action) -> Faults {
        self.list.push(Fault { call, when, action });
        self.touched.push(0);
        self
    }

    /// The `nth` call of a kind fails, once.
    pub fn fail_once(call: Call, nth: u64) -> Faults {
        Faults::none().with(call, When::Nth(nth), Action::Fail)
    }

    /// The `nth` call of a kind and all later ones fail.
    pub fn fail_from(call: Call, nth: u64) -> Faults {
        Faults::none().with(call, When::From(nth), Action::Fail)
    }

    /// The `nth` call of a kind panics, once.
    pub fn panic_once(call: Call, nth: u64) -> Faults {
        Faults::none().with(call, When::Nth(nth), Action::Panic)
    }

    /// How many calls were treated badly.
    pub fn fired(&self) -> u64 {
        self.fired
    }

    /// What happens to a call of `len` bytes at `at` on a device of so many bytes and sector size.
    pub(super) fn judge(
        &mut self,
        call: Call,
        at: u64,
        len: u64,
        (end, sector): (u64, u32),
    ) -> Verdict {
        self.calls[call as usize] += 1;
        let count = self.calls[call as usize];
        let prng = &mut self.prng;
        let mut fault = None;
        for (next, touched) in self.list.iter().zip(&mut self.touched) {
            let acts = next.call == call
                && match next.when {
                    When::Nth(nth) => count == nth,
                    When::From(nth) => count >= nth,
                    When::OneIn(n) => prng.one_in(n),
                    When::Inside { start, end, skip, times } => {
                        let touches = at < end && at + len > start;
                        *touched += u64::from(touches);
                        touches && (skip + 1..=skip.saturating_add(times)).contains(touched)
                    }
                };
            if acts {
                fault = Some(next);
                break;
            }
        }
        let Some(fault) = fault else {
            return Verdict::Obey;
        };
        self.fired += 1;
        let sector = u64::from(sector);
        match fault.action {
            Action::Fail => Verdict::Fail { kept: prng.below(len / sector + 1) * sector },
            Action::Panic => Verdict::Panic { kept: prng.below(len / sector + 1) * sector },
            Action::Ignore => Verdict::Ignore,
            Action::FlipBit(bit) => {
                Verdict::Flip { bit: bit.unwrap_or_else(|| prng.below(u64::max(len * 8, 1))) }
            }
            Action::Misdirect(Some(to)) => Verdict::Misdirect { to: u64::min(to, end - len) },
            Action::Misdirect(None) => {
                let places = (end - len) / sector + 1;
                let to = prng.below(places) * sector;
                // On a device with a single place there is no wrong one.
                let to = if to == at { (to + sector) % (places * sector) } else { to };
                Verdict::Misdirect { to }
            }
        }
    }
}
