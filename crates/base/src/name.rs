//! The rule for names of volumes, pools and nodes.

/// Longest name, in bytes.
pub const NAME_BYTES_MAX: usize = 63;

/// Why a name is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NameError {
    /// Nothing was given.
    Empty,
    /// Longer than [`NAME_BYTES_MAX`]; the length in bytes.
    TooLong(usize),
    /// A character outside the rule.
    Character(char),
    /// The first character is not a letter or digit.
    Start(char),
}

impl std::fmt::Display for NameError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NameError::Empty => write!(formatter, "the name is empty")?,
            NameError::TooLong(bytes) => write!(formatter, "the name has {bytes} bytes")?,
            NameError::Character(character) => write!(formatter, "the name holds {character:?}")?,
            NameError::Start(character) => write!(formatter, "the name starts with {character:?}")?,
        }
        write!(
            formatter,
            "; a name has 1 to {NAME_BYTES_MAX} characters out of a-z, A-Z, 0-9, '.', '_' and '-', the first a letter or digit"
        )
    }
}

impl std::error::Error for NameError {}

/// Checks a name: 1 to 63 characters of `[A-Za-z0-9._-]`, the first a letter or digit.
pub fn check_name(name: &str) -> Result<(), NameError> {
    let first = name.chars().next().ok_or(NameError::Empty)?;
    if let Some(character) = name.chars().find(|c| !c.is_ascii_alphanumeric() && !"._-".contains(*c)) {
        return Err(NameError::Character(character));
    }
    if !first.is_ascii_alphanumeric() {
        return Err(NameError::Start(first));
    }
    if name.len() > NAME_BYTES_MAX {
        return Err(NameError::TooLong(name.len()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_plain_names_and_refuses_others() {
        assert_eq!(check_name("db-1.data_x"), Ok(()));
        assert_eq!(check_name(""), Err(NameError::Empty));
        assert_eq!(check_name("a/b"), Err(NameError::Character('/')));
        assert_eq!(check_name("naïve"), Err(NameError::Character('ï')));
        assert_eq!(check_name("-x"), Err(NameError::Start('-')));
        assert_eq!(check_name(&"x".repeat(300)), Err(NameError::TooLong(300)));
    }
}
