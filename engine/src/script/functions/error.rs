//! Why FUNCTION or FCALL was refused, in Redis's words.

use crate::command::error::Quoted;

/// Nothing has changed. The general code stands in front of the text.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FunctionError {
    /// The text of a library does not begin with `#!`.
    #[error("Missing library metadata")]
    NoHeader,
    /// Its first line has no end, or quotes that do not match.
    #[error("Invalid library metadata")]
    Header,
    #[error("Invalid metadata value, name argument was given multiple times")]
    NameTwice,
    #[error("Invalid metadata value given: {0}")]
    HeaderValue(Quoted),
    #[error("Library name was not given")]
    NoName,
    #[error(
        "Library names can only contain letters, numbers, or underscores(_) and must be at least one character long"
    )]
    Name,
    /// Another language than `lua`.
    #[error("Engine '{0}' not found")]
    Engine(Quoted),
    /// FUNCTION LOAD without REPLACE.
    #[error("Library '{0}' already exists")]
    LibraryExists(Quoted),
    /// FUNCTION RESTORE without REPLACE.
    #[error("Library {0} already exists")]
    RestoredExists(Quoted),
    /// Another library has it.
    #[error("Function {0} already exists")]
    FunctionExists(Quoted),
    #[error("Error compiling function: {0}")]
    Compiling(Box<str>),
    #[error("Error registering functions: {0}")]
    Registering(Box<str>),
    /// A library takes too long to register its functions.
    #[error("Error registering functions: ERR FUNCTION LOAD timeout")]
    LoadTime,
    #[error("No functions registered")]
    NoFunctions,
    #[error("Library not found")]
    NoLibrary,
    #[error("Function not found")]
    NoFunction,
    /// FCALL with something that is no number.
    #[error("Bad number of keys provided")]
    KeyCount,
    /// FUNCTION LOAD with something else than REPLACE.
    #[error("Unknown option given: {0}")]
    LoadOption(Quoted),
    /// FUNCTION LIST with something else than LIBRARYNAME and WITHCODE.
    #[error("Unknown argument {0}")]
    ListOption(Quoted),
    #[error("library name argument was not given")]
    NoPattern,
    #[error("Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE.")]
    Policy,
    #[error("FUNCTION FLUSH only supports SYNC|ASYNC option")]
    FlushOption,
    /// FUNCTION RESTORE of something else than libraries.
    #[error("given type is not a function")]
    PayloadType,
    #[error("Failed loading library payload")]
    Payload,
    /// More than so many bytes of all libraries: delete some.
    #[error("all libraries together would take more than {0} bytes")]
    TooLarge(usize),
    #[error("too many commands wait to change libraries")]
    Busy,
    /// The file of libraries could not be written; the log of the server says why.
    #[error("the libraries could not be written to the disk, and are as they were")]
    NotSaved,
}
