//! Names and descriptions of what a flag may be: clap's, which are those of the reports, too.

use clap::ValueEnum;

/// A value of a flag.
pub trait Named: ValueEnum {
    /// All of them, in their order.
    fn all() -> Vec<Self> {
        Self::value_variants().to_vec()
    }

    /// Its name on the command line.
    fn name(&self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// What it is, in words.
    fn title(&self) -> String {
        let help = self
            .to_possible_value()
            .and_then(|value| value.get_help().cloned());
        help.map_or_else(String::new, |help| help.to_string())
    }
}

impl<T: ValueEnum> Named for T {}
