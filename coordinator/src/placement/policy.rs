//! A policy as people name it and as the replicated log keeps it: `ring:vnodes=256,seed=7`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::ring::Tokens;
use super::{
    BoundedRing, Contiguous, CooperativeSticky, Jump, Maglev, Plan, Planner, Rendezvous, Request,
    Ring, RoundRobin, Sticky,
};

/// A policy with its parameters. Logs and snapshots have it: new ones go to the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Policy {
    /// [`Contiguous`].
    #[default]
    Contiguous,
    /// [`RoundRobin`].
    RoundRobin,
    /// [`Sticky`].
    Sticky,
    /// [`CooperativeSticky`].
    CooperativeSticky,
    /// [`Ring`].
    Ring(Ring),
    /// [`Rendezvous`].
    Rendezvous(Rendezvous),
    /// [`Jump`].
    Jump(Jump),
    /// [`Maglev`].
    Maglev(Maglev),
    /// [`BoundedRing`].
    BoundedRing(BoundedRing),
}

const VNODES_MAX: u16 = 1024;
const EPSILON_PERMILLE_MIN: u16 = 10;
const EPSILON_PERMILLE_MAX: u16 = 10_000;

/// All of them with what they may be told, for people.
pub const POLICIES: &str = "contiguous, round-robin, sticky, cooperative-sticky, \
    ring[:vnodes=1..1024,tokens=hashed|even,seed=N], rendezvous[:seed=N], jump[:seed=N], maglev[:seed=N], \
    bounded-ring[:vnodes=1..1024,epsilon=0.01..10,seed=N]";

/// Why a text names no policy: take one of [`POLICIES`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// There is no such policy.
    #[error("{0:?} is no policy; these are: {POLICIES}")]
    Unknown(String),
    /// The policy has no such parameter, or it was told before.
    #[error("{policy} takes no {parameter:?} here; policies are: {POLICIES}")]
    Parameter {
        /// The policy.
        policy: &'static str,
        /// What was told.
        parameter: String,
    },
    /// A parameter is out of its bounds.
    #[error("{parameter} of {policy} is {allowed}")]
    Value {
        /// The policy.
        policy: &'static str,
        /// The parameter.
        parameter: &'static str,
        /// What it may be.
        allowed: &'static str,
    },
}

impl Policy {
    /// All of them, parameters as they are if nothing else is said.
    #[must_use]
    pub fn all() -> [Self; 9] {
        [
            Policy::Contiguous,
            Policy::RoundRobin,
            Policy::Sticky,
            Policy::CooperativeSticky,
            Policy::Ring(Ring::default()),
            Policy::Rendezvous(Rendezvous::default()),
            Policy::Jump(Jump::default()),
            Policy::Maglev(Maglev::default()),
            Policy::BoundedRing(BoundedRing::default()),
        ]
    }

    /// Its name, without parameters.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Policy::Contiguous => "contiguous",
            Policy::RoundRobin => "round-robin",
            Policy::Sticky => "sticky",
            Policy::CooperativeSticky => "cooperative-sticky",
            Policy::Ring(_) => "ring",
            Policy::Rendezvous(_) => "rendezvous",
            Policy::Jump(_) => "jump",
            Policy::Maglev(_) => "maglev",
            Policy::BoundedRing(_) => "bounded-ring",
        }
    }

    /// Whether its parameters are within their bounds; [`Planner::plan`] copes with any.
    ///
    /// # Errors
    /// [`PolicyError::Value`].
    pub fn check(&self) -> Result<(), PolicyError> {
        let value = |parameter, allowed| PolicyError::Value {
            policy: self.name(),
            parameter,
            allowed,
        };
        let is_vnodes = |vnodes: &u16| (1..=VNODES_MAX).contains(vnodes);
        match self {
            Policy::Ring(Ring { vnodes, .. }) | Policy::BoundedRing(BoundedRing { vnodes, .. })
                if !is_vnodes(vnodes) =>
            {
                Err(value("vnodes", "a number from 1 to 1024"))
            }
            Policy::BoundedRing(ring)
                if !(EPSILON_PERMILLE_MIN..=EPSILON_PERMILLE_MAX)
                    .contains(&ring.epsilon_permille) =>
            {
                Err(value("epsilon", "a number from 0.01 to 10, by thousandths"))
            }
            _ => Ok(()),
        }
    }

    fn set(&mut self, name: &str, to: &str) -> Result<(), PolicyError> {
        let policy = self.name();
        let value = |parameter, allowed| PolicyError::Value {
            policy,
            parameter,
            allowed,
        };
        match (self, name) {
            (
                Policy::Ring(Ring { seed, .. })
                | Policy::Rendezvous(Rendezvous { seed })
                | Policy::Jump(Jump { seed })
                | Policy::Maglev(Maglev { seed })
                | Policy::BoundedRing(BoundedRing { seed, .. }),
                "seed",
            ) => {
                let allowed = "a number from 0 to 4294967295";
                *seed = to.parse().map_err(|_| value("seed", allowed))?;
            }
            (
                Policy::Ring(Ring { vnodes, .. }) | Policy::BoundedRing(BoundedRing { vnodes, .. }),
                "vnodes",
            ) => *vnodes = to.parse().unwrap_or(0),
            (Policy::Ring(ring), "tokens") => {
                ring.tokens = match to {
                    "hashed" => Tokens::Hashed,
                    "even" => Tokens::Even,
                    _ => return Err(value("tokens", "hashed or even")),
                }
            }
            (Policy::BoundedRing(ring), "epsilon") => {
                // What is no number is below the bound.
                let permille = to.parse::<f64>().unwrap_or(0.0) * 1000.0;
                ring.epsilon_permille = permille.round() as u16;
            }
            _ => {
                return Err(PolicyError::Parameter {
                    policy,
                    parameter: name.to_owned(),
                });
            }
        }
        Ok(())
    }

    /// The parameters, in the order in which they are written.
    fn parameters(&self) -> Vec<(&'static str, String)> {
        let seed = |seed: u32| ("seed", seed.to_string());
        match self {
            Policy::Ring(ring) => {
                let tokens = match ring.tokens {
                    Tokens::Hashed => "hashed",
                    Tokens::Even => "even",
                };
                let vnodes = ("vnodes", ring.vnodes.to_string());
                vec![vnodes, ("tokens", tokens.to_owned()), seed(ring.seed)]
            }
            Policy::BoundedRing(ring) => {
                let epsilon = f64::from(ring.epsilon_permille) / 1000.0;
                let vnodes = ("vnodes", ring.vnodes.to_string());
                vec![vnodes, ("epsilon", epsilon.to_string()), seed(ring.seed)]
            }
            Policy::Rendezvous(Rendezvous { seed: of })
            | Policy::Jump(Jump { seed: of })
            | Policy::Maglev(Maglev { seed: of }) => vec![seed(*of)],
            _ => Vec::new(),
        }
    }
}

impl Planner for Policy {
    fn plan(&self, request: &Request<'_>) -> Plan {
        match self {
            Policy::Contiguous => Contiguous.plan(request),
            Policy::RoundRobin => RoundRobin.plan(request),
            Policy::Sticky => Sticky.plan(request),
            Policy::CooperativeSticky => CooperativeSticky.plan(request),
            Policy::Ring(ring) => ring.plan(request),
            Policy::Rendezvous(rendezvous) => rendezvous.plan(request),
            Policy::Jump(jump) => jump.plan(request),
            Policy::Maglev(maglev) => maglev.plan(request),
            Policy::BoundedRing(ring) => ring.plan(request),
        }
    }
}

/// Parameters that are as they are without being told are left out.
impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        let usual = Policy::all()
            .into_iter()
            .find(|one| one.name() == self.name());
        let usual = usual.map(|usual| usual.parameters()).unwrap_or_default();
        let own = self.parameters().into_iter();
        let told = own.filter(|one| !usual.contains(one));
        for (index, (name, value)) in told.enumerate() {
            let before = if index == 0 { ':' } else { ',' };
            write!(f, "{before}{name}={value}")?;
        }
        Ok(())
    }
}

impl FromStr for Policy {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Self, PolicyError> {
        let (name, parameters) = match text.split_once(':') {
            Some((name, parameters)) => (name, Some(parameters)),
            None => (text, None),
        };
        let mut all = Policy::all().into_iter();
        let found = all.find(|one| one.name() == name);
        let mut policy = found.ok_or_else(|| PolicyError::Unknown(text.to_owned()))?;
        let mut told = Vec::new();
        for one in parameters.into_iter().flat_map(|all| all.split(',')) {
            let (name, value) = one.split_once('=').unwrap_or((one, ""));
            if told.contains(&name) {
                return Err(PolicyError::Parameter {
                    policy: policy.name(),
                    parameter: one.to_owned(),
                });
            }
            policy.set(name, value)?;
            told.push(name);
        }
        policy.check()?;
        Ok(policy)
    }
}

#[cfg(test)]
mod tests;
