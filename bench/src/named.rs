//! Names and descriptions of what a flag may be: clap's, which are those of the reports, too.

use clap::ValueEnum;

pub trait Named: ValueEnum {
    fn all() -> Vec<Self> {
        Self::value_variants().to_vec()
    }

    fn name(&self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }

    fn title(&self) -> String {
        let value = self.to_possible_value();
        let help = value.and_then(|value| value.get_help().cloned());
        help.map_or_else(String::new, |help| help.to_string())
    }
}

impl<T: ValueEnum> Named for T {}
