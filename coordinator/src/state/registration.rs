//! Whether what a node says about itself makes sense.

use super::{ADDRESS_BYTES_MAX, Member, MemberStatus, NAME_BYTES_MAX, Refusal};
use crate::command::Registration;

impl Registration {
    pub(super) fn member(&self, status: MemberStatus) -> Member {
        Member {
            name: self.name.clone(),
            incarnation: self.incarnation,
            addresses: self.addresses.clone(),
            shards: self.shards,
            status,
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
        check_name(&self.name)?;
        check_address(&self.addresses.entry)?;
        check_address(&self.addresses.peer)
    }
}

pub(super) fn check_address(address: &str) -> Result<(), Refusal> {
    if address.is_empty() || address.len() > ADDRESS_BYTES_MAX {
        return Err(Refusal::Address);
    }
    Ok(())
}

fn check_name(name: &str) -> Result<(), Refusal> {
    let is_printable = |c: char| !c.is_control() && !c.is_whitespace();
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(is_printable) {
        return Err(Refusal::Name);
    }
    Ok(())
}
