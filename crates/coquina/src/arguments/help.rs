//! Help in which commands can be copied: the parser breaks all lines at the width of the terminal, those of examples as well.

use clap::Command;

/// Columns where there is no terminal.
const WIDTH: usize = 100;
/// Help is not wider.
const WIDTH_MAX: usize = 110;

/// What help consists of, but for what comes after it.
const TEMPLATE: &str = "{before-help}{about-with-newline}\n{usage-heading} {usage}\n\n{all-args}\n\n";

/// The command and those below it, with what comes after their help fitted to the terminal, but for lines that are commands.
pub fn with_whole_examples(command: Command) -> Command {
    let columns = console::Term::stdout().size_checked().map_or(WIDTH, |(_, columns)| usize::from(columns));
    fitted(command, columns.clamp(1, WIDTH_MAX))
}

fn fitted(command: Command, width: usize) -> Command {
    let command = match command.get_after_help().map(ToString::to_string) {
        // A template is taken as it is.
        Some(after) => command.help_template(TEMPLATE.to_owned() + &wrap(&after, width)),
        None => command,
    };
    command.mut_subcommands(|below| fitted(below, width))
}

/// Whether a line is a command, with what may be said of it behind it.
fn is_command(line: &str) -> bool {
    let line = line.trim_start();
    line.strip_prefix("sudo ").unwrap_or(line).starts_with("coquina ")
}

fn wrap(text: &str, width: usize) -> String {
    let lines: Vec<String> = text.lines().map(|line| wrap_line(line, width)).collect();
    lines.join("\n")
}

/// Breaks a line between words; what follows is indented like its beginning.
fn wrap_line(line: &str, width: usize) -> String {
    if is_command(line) || line.chars().count() <= width {
        return line.to_owned();
    }
    let indent = &line[..line.len() - line.trim_start().len()];
    let mut lines = vec![indent.to_owned()];
    // Several spaces between words are columns, and stay.
    for word in line.trim_start().split_inclusive(' ') {
        let length = |text: &str| text.trim_end().chars().count();
        match lines.last_mut() {
            Some(last) if last.as_str() == indent || last.chars().count() + length(word) <= width => {
                *last += word
            }
            _ => lines.push(indent.to_owned() + word.trim_start()),
        }
    }
    let lines: Vec<&str> = lines.iter().map(|line| line.trim_end()).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::arguments::Arguments;

    fn help_of(command: &mut Command) -> String {
        command.render_long_help().to_string()
    }

    fn check(command: &mut Command, width: usize) {
        let name = command.get_name().to_owned();
        let after = command.get_after_help().map(ToString::to_string);
        let help = help_of(command);
        for line in after.iter().flat_map(|after| after.lines()) {
            if is_command(line) {
                assert!(help.lines().any(|shown| shown == line), "{name}: {line:?} is broken in\n{help}");
                assert!(!line.ends_with('\\'), "{name}: {line} is no line of its own");
            }
            for word in line.split_whitespace() {
                assert!(help.contains(word), "{name}: {word} is missing");
            }
        }
        let prose = help.split("\nExample").nth(1).unwrap_or_default().lines();
        let wide = prose.filter(|line| !is_command(line) && line.chars().count() > width);
        assert_eq!(wide.collect::<Vec<_>>(), [""; 0], "{name}");
        for below in command.get_subcommands_mut() {
            check(below, width);
        }
    }

    /// `--destroy-data` stood on another line than what it names.
    #[test]
    fn commands_in_help_are_whole_at_any_width() {
        for width in [60, 100] {
            let mut command = fitted(Arguments::command().term_width(width), width);
            command.build();
            check(&mut command, width);
        }
    }

    #[test]
    fn other_lines_are_broken_between_words() {
        assert_eq!(wrap("  one two three", 9), "  one two\n  three");
        assert_eq!(wrap("one\n\n  verylongword x", 8), "one\n\n  verylongword\n  x");
        assert_eq!(wrap("short   columns", 20), "short   columns");
        assert_eq!(wrap("  coquina up --dir /srv", 8), "  coquina up --dir /srv");
        assert_eq!(wrap("  sudo coquina doctor", 8), "  sudo coquina doctor");
    }
}
