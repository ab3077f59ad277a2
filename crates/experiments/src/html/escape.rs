//! Text from outside, made harmless.

/// Text as it may stand between tags and in quoted attributes. Control characters become spaces.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 8);
    for character in text.chars() {
        match character {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            '\'' => out += "&#39;",
            character if character.is_control() => out.push(' '),
            character => out.push(character),
        }
    }
    out
}

/// [`escape`], with places at which words that are far too long for a column, such as paths, may be broken.
pub(super) fn escape_breakable(text: &str) -> String {
    /// Longest part of a word that is not broken.
    const PART_MAX: usize = 18;
    let words = text.split(' ').map(|word| {
        let letters: Vec<char> = word.chars().collect();
        let parts = letters.chunks(PART_MAX).map(|part| escape(&part.iter().collect::<String>()));
        parts.collect::<Vec<_>>().join("<wbr>")
    });
    words.collect::<Vec<_>>().join(" ")
}
