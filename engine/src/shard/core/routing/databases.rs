//! Keys as clients name them become keys as they are stored, before anything looks at them.

use ephesus_wire::Database;
use ephesus_wire::database::is_marked;
use ephesus_wire::resp::reply;

use crate::command::parse::{ArgList, CopyOptions, Request};
use crate::command::spec::{Cmd, Spec};

/// The request with its keys as they are stored, encoded, unless they are stored as they are named: in database 0 that
/// costs a look at each key.
#[inline]
pub(crate) fn stored(
    (database, databases): (Database, u16),
    spec: &Spec,
    request: &Request<'_>,
) -> Option<Vec<u8>> {
    let mut keys = spec.keys_of(request);
    let names_another = spec.cmd == Cmd::Copy && request.len() > 3;
    let is_stored_as_named = database == Database::ZERO
        && !names_another
        && !keys.any(|index| is_marked(request.arg(index)));
    (!is_stored_as_named).then(|| encode((database, databases), spec, request))
}

/// The database of a command's second key, if that is another one.
pub(crate) fn target<A: ArgList + ?Sized>(
    databases: u16,
    spec: &Spec,
    request: &A,
) -> Option<Database> {
    match spec.cmd {
        // One that is wrong is refused when the command is executed.
        Cmd::Copy => {
            CopyOptions::parse(request, databases)
                .unwrap_or_default()
                .database
        }
        _ => None,
    }
}

#[cold]
fn encode((database, databases): (Database, u16), spec: &Spec, request: &Request<'_>) -> Vec<u8> {
    let target = target(databases, spec, request);
    let mut args: Vec<_> = (0..request.len())
        .map(|index| request.arg(index).into())
        .collect();
    for (place, index) in spec.keys_of(request).enumerate() {
        let database = target.filter(|_| place == 1).unwrap_or(database);
        if let Some(arg) = args.get_mut(index) {
            *arg = database.stored(request.arg(index));
        }
    }
    let mut encoded = Vec::new();
    reply::command(&mut encoded, &args);
    encoded
}
