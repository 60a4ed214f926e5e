//! What a node says about itself: whether it makes sense, and what follows from it.

use ephesus_wire::NodeId;
use ephesus_wire::handshake::Versions;

use super::{
    ADDRESS_BYTES_MAX, CAPACITY_MAX, Effects, MEMBERS_MAX, Member, MemberStatus, NAME_BYTES_MAX,
    RACK_BYTES_MAX, Refusal, State, is_up,
};
use crate::command::{Registration, StartProof};
use crate::migration::AbortReason;

impl State {
    /// Whether a node may register now.
    ///
    /// # Errors
    /// [`Refusal`]: what [`State::apply`] would answer.
    pub fn admit(&self, from: &Registration) -> Result<(), Refusal> {
        let Some((cluster, _)) = self.cluster else {
            return Err(Refusal::NotBootstrapped);
        };
        if from.cluster.is_some_and(|of| of != cluster) {
            return Err(Refusal::OtherCluster(cluster));
        }
        if self.removed.contains(&from.node) {
            return Err(Refusal::Removed(from.node));
        }
        from.check()?;
        let current = self.members.get(&from.node).map_or(0, |m| m.incarnation);
        if current > from.incarnation {
            return Err(Refusal::Stale {
                node: from.node,
                found: from.incarnation,
                current,
            });
        }
        let mut others = self.members.iter().filter(|(id, _)| **id != from.node);
        if let Some((owner, _)) = others.find(|(_, m)| m.name == from.name && is_up(m)) {
            return Err(Refusal::NameTaken {
                name: from.name.clone(),
                owner: *owner,
            });
        }
        Ok(())
    }

    /// Whether there is room for a node: it is a member, or one more is not too many. [`State::apply`] does not ask, as
    /// earlier logs may hold more.
    ///
    /// # Errors
    /// [`Refusal::TooManyNodes`].
    pub fn check_room(&self, node: NodeId) -> Result<(), Refusal> {
        if self.members.len() >= MEMBERS_MAX && !self.members.contains_key(&node) {
            return Err(Refusal::TooManyNodes);
        }
        Ok(())
    }

    /// Whether a directory is the one that the last accepted start of the node has left. A node of which no
    /// start was proved yet is taken for what it says.
    ///
    /// # Errors
    /// [`Refusal::OldDirectory`].
    pub fn admit_start(&self, node: NodeId, start: &StartProof) -> Result<(), Refusal> {
        let Some(current) = self.starts.get(&node) else {
            return Ok(());
        };
        let is_known = start.nonce == *current || start.previous == Some(*current);
        if is_known || start.accepts_old {
            return Ok(());
        }
        Err(Refusal::OldDirectory(node))
    }

    /// Whether the start of a node is the last one that was accepted.
    #[must_use]
    pub fn is_start_noted(&self, node: NodeId, start: &StartProof) -> bool {
        self.starts.get(&node) == Some(&start.nonce)
    }

    pub(super) fn register_start(
        &mut self,
        from: &Registration,
        start: &StartProof,
    ) -> Result<Effects, Refusal> {
        self.admit_start(from.node, start)?;
        let effects = self.register(from)?;
        self.starts.insert(from.node, start.nonce);
        Ok(effects)
    }

    pub(super) fn register(&mut self, from: &Registration) -> Result<Effects, Refusal> {
        self.admit(from)?;
        let mut effects = Effects::default();
        let member = from.member(MemberStatus::Starting);
        match self.members.get_mut(&from.node) {
            Some(current) => {
                // Said again by the same start: whether it serves is known already, unless it had
                // been given up.
                let is_repeated = current.incarnation == from.incarnation && is_up(current);
                let status = if is_repeated {
                    current.status
                } else {
                    MemberStatus::Starting
                };
                let member = Member { status, ..member };
                if *current != member {
                    let had_shards = current.shards;
                    *current = member;
                    effects.members.insert(from.node);
                    if had_shards != from.shards {
                        self.end_migrations_of(from.node, AbortReason::Resharded, &mut effects);
                        self.migrations.resize(from.node, from.shards);
                        effects
                            .partitions
                            .extend(self.spread(from.node, from.shards));
                    }
                }
            }
            None => {
                self.members.insert(from.node, member);
                effects.members.insert(from.node);
            }
        }
        effects.partitions.extend(self.assign_if_ready());
        Ok(effects)
    }
}

impl Registration {
    pub(super) fn member(&self, status: MemberStatus) -> Member {
        Member {
            name: self.name.clone(),
            incarnation: self.incarnation,
            addresses: self.addresses.clone(),
            shards: self.shards,
            status,
            capacity: self.capacity,
            speaks: self.speaks,
        }
    }

    /// Whether it makes sense at all, whatever the cluster is like.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn check(&self) -> Result<(), Refusal> {
        if self.shards == 0 {
            return Err(Refusal::NoShards);
        }
        if !(1..=CAPACITY_MAX).contains(&self.capacity) {
            return Err(Refusal::Capacity(self.capacity));
        }
        check_speaks(self.speaks)?;
        check_name(&self.name)?;
        check_address(&self.addresses.entry)?;
        check_address(&self.addresses.peer)?;
        check_rack(&self.addresses.rack)
    }

    /// Whether its addresses can be told to others as they are: nodes put them into replies to clients, where the end
    /// of a line ends the reply. [`State::apply`] does not ask, as earlier logs may hold others.
    ///
    /// # Errors
    /// [`Refusal::Address`].
    pub fn check_addresses(&self) -> Result<(), Refusal> {
        let mut addresses = [&self.addresses.entry, &self.addresses.peer].into_iter();
        let is_told = |address: &String| address.bytes().all(|byte| byte.is_ascii_graphic());
        if !addresses.all(is_told) {
            return Err(Refusal::Address);
        }
        Ok(())
    }
}

pub(super) fn check_speaks(speaks: Versions) -> Result<(), Refusal> {
    if speaks.min > speaks.max {
        return Err(Refusal::Versions);
    }
    Ok(())
}

pub(super) fn check_address(address: &str) -> Result<(), Refusal> {
    if address.is_empty() || address.len() > ADDRESS_BYTES_MAX {
        return Err(Refusal::Address);
    }
    Ok(())
}

/// Whether a node may have this name.
///
/// # Errors
/// [`Refusal::Name`].
pub fn check_name(name: &str) -> Result<(), Refusal> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !is_word(name) {
        return Err(Refusal::Name);
    }
    Ok(())
}

/// Whether a rack may have this name; none is a name.
///
/// # Errors
/// [`Refusal::Rack`].
pub fn check_rack(rack: &str) -> Result<(), Refusal> {
    if rack.len() > RACK_BYTES_MAX || !is_word(rack) {
        return Err(Refusal::Rack);
    }
    Ok(())
}

fn is_word(text: &str) -> bool {
    let is_printable = |c: char| !c.is_control() && !c.is_whitespace();
    text.chars().all(is_printable)
}
