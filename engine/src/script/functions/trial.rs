//! Libraries before anybody may call them: each is loaded into a state of its own.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::libraries::{Clash, FunctionInfo, Libraries};
use super::{FunctionError, FunctionLibrary, header, not_loaded};
use crate::command::error::ClientError;
use crate::script::library::SCRIPT_BYTES_MAX;
use crate::script::new_state;
use crate::script::state::Purpose;

/// The library of a text, whose name is known.
///
/// # Errors
/// It cannot be loaded within the time.
pub fn library_of(
    name: Box<[u8]>,
    text: &[u8],
    time_max: Duration,
) -> Result<FunctionLibrary, ClientError> {
    if text.len() > SCRIPT_BYTES_MAX {
        return Err(ClientError::ArgumentTooLong("a library", SCRIPT_BYTES_MAX));
    }
    let mut state = new_state(Purpose::Functions)?;
    let before = state.live_bytes();
    let registered = state
        .load(header::code_of(text), time_max)
        .map_err(not_loaded)?;
    if registered.is_empty() {
        return Err(FunctionError::NoFunctions.into());
    }
    let loaded_bytes = state.live_bytes().saturating_sub(before);
    let functions = registered.into_iter().map(|function| FunctionInfo {
        name: function.name,
        description: function.description,
        flags: function.flags,
    });
    let functions = functions.collect();
    Ok(FunctionLibrary::new(
        name,
        text.into(),
        functions,
        loaded_bytes,
    ))
}

/// The libraries of many texts, for all of which there is so much time.
///
/// # Errors
/// One of them cannot be loaded, or two have the same names.
#[expect(
    clippy::disallowed_methods,
    reason = "what takes too long is refused, which its client sees as an error"
)]
pub fn libraries_of(texts: &[Vec<u8>], time_max: Duration) -> Result<Libraries, ClientError> {
    let began = Instant::now();
    let mut libraries = Libraries::default();
    for text in texts {
        let name = header::name_of(text)?;
        let left = time_max.saturating_sub(began.elapsed());
        let library = library_of(name, text, left)?;
        libraries.add(Arc::new(library), Clash::Refused)?;
    }
    Ok(libraries)
}
