//! Names of branches and snapshots: unique in the volume, or in their branch, and found by their sums.

use holdfast_format::item::TreeItem;
use holdfast_format::item::lineage::{MAIN, MAIN_NAME, decode_numbers, judge_name, name_key};
use holdfast_format::limits::value_max;
use holdfast_format::{Key, Malformed};

use super::{Plan, PlanResult, damage, refuse, shown};
use crate::apply::Halt;
use crate::error::LineageError;

impl Plan<'_> {
    /// The branch (`of` is 0) or the snapshot of a branch that has this name.
    pub(in crate::lineage) fn named(&self, of: u64, name: &[u8]) -> PlanResult<Option<u64>> {
        if of != 0 && self.goes_to(of)?.is_some() {
            return Ok(None);
        }
        if let Some(number) = self.named_in(of, name)? {
            return Ok(Some(number));
        }
        let joined = if of == 0 { Vec::new() } else { self.joined(of)? };
        for of in joined {
            if let Some(number) = self.named_in(of, name)? {
                return Ok(Some(number));
            }
        }
        let is_main = of == 0 && name == MAIN_NAME && self.get(&TreeItem::key(MAIN))?.is_none();
        Ok(is_main.then_some(MAIN))
    }

    /// As [`Plan::named`], as items say it.
    fn named_in(&self, of: u64, name: &[u8]) -> PlanResult<Option<u64>> {
        for number in self.numbers(&name_key(of, name))? {
            if self.get(&TreeItem::key(number))?.is_none() && number != MAIN {
                let why = format!("{number} has the sum of `{}`, but does not exist", shown(name));
                return Err(damage("a name", Malformed::new("names", why)));
            }
            let item = self.item(number)?;
            if item.name == name && item.branch == of {
                return Ok(Some(number));
            }
        }
        Ok(None)
    }

    /// Branches whose snapshots are those of a branch, though items name them still.
    fn joined(&self, branch: u64) -> PlanResult<Vec<u64>> {
        let mut joined = Vec::new();
        for from in self.children(branch, usize::MAX)? {
            if self.goes_to(from)? == Some(branch) {
                joined.push(from);
            }
        }
        Ok(joined)
    }

    pub(super) fn numbers(&self, key: &Key) -> PlanResult<Vec<u64>> {
        match self.get(key)? {
            Some(bytes) => decode_numbers(&bytes).map_err(|why| damage("a name", why)),
            None => Ok(Vec::new()),
        }
    }

    /// Fails if a name of a branch, or of what has joined it, is this one or has its sum, by which a name is found. What another branch has
    /// with this sum keeps none of its names from it.
    pub(super) fn expect_free(&self, of: u64, name: &[u8]) -> PlanResult<()> {
        if self.named(of, name)?.is_some() {
            return refuse(LineageError::Exists(shown(name)));
        }
        let mut is_taken = of == 0 && name_key(0, name) == name_key(0, MAIN_NAME);
        let joined = if of == 0 { Vec::new() } else { self.joined(of)? };
        for of in joined.into_iter().chain([of]) {
            for number in self.numbers(&name_key(of, name))? {
                is_taken |= self.tree(number)?.is_some_and(|item| item.branch == of);
            }
        }
        match is_taken {
            true => refuse(LineageError::Name(
                "another name has the same checksum: take a different one",
            )),
            false => Ok(()),
        }
    }

    /// A name that none has yet leads to `number`.
    pub(super) fn add_name(&mut self, of: u64, name: &[u8], number: u64) -> PlanResult<()> {
        judge_name(name).map_err(|why| Halt::Failed(LineageError::Name(why).into()))?;
        self.expect_free(of, name)?;
        self.list_name(of, name, number)
    }

    /// The same of a name that was judged before.
    pub(super) fn list_name(&mut self, of: u64, name: &[u8], number: u64) -> PlanResult<()> {
        let key = name_key(of, name);
        let mut numbers = self.numbers(&key)?;
        numbers.push(number);
        self.put_numbers(key, numbers)
    }

    pub(super) fn take_name(&mut self, of: u64, name: &[u8], number: u64) -> PlanResult<()> {
        if name.is_empty() {
            return Ok(());
        }
        let key = name_key(of, name);
        let mut numbers = self.numbers(&key)?;
        numbers.retain(|other| *other != number);
        self.put_numbers(key, numbers)
    }

    /// Only a volume that is forged has a list that is full.
    pub(super) fn put_numbers(&mut self, key: Key, mut numbers: Vec<u64>) -> PlanResult<()> {
        numbers.sort_unstable();
        numbers.dedup();
        let value: Vec<u8> = numbers.iter().flat_map(|no| no.to_le_bytes()).collect();
        if value.len() > value_max(self.forest.node_size) {
            return refuse(LineageError::Name("too many other names have the same checksum"));
        }
        match value.is_empty() {
            true => self.delete(key),
            false => self.put(key, value),
        }
        Ok(())
    }

    pub(super) fn name_of(&self, number: u64) -> PlanResult<String> {
        match self.tree(number)? {
            Some(item) => Ok(shown(&item.name)),
            None => Ok(format!("number {number}")),
        }
    }

    pub(in crate::lineage) fn rename(&mut self, number: u64, name: &[u8]) -> PlanResult<u64> {
        let mut item = self.item(number)?;
        if self.is_deleted(number)? {
            return refuse(LineageError::Gone(shown(&item.name)));
        }
        if item.name == name {
            return Ok(number);
        }
        let branch = self.branch_of(&item)?;
        self.add_name(branch, name, number)?;
        self.take_name(item.branch, &item.name, number)?;
        (item.branch, item.name) = (branch, name.to_vec());
        self.put_item(number, &item);
        Ok(number)
    }
}
