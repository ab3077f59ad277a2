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
