//! The model of the CPU, as `/proc/cpuinfo` gives it: by name on x86, by two numbers on ARM.

/// Cores of servers: implementer, part, and what they are called.
const ARM_CORES: [(u32, u32, &str); 10] = [
    (0x41, 0xd08, "ARM Cortex-A72"),
    (0x41, 0xd0b, "ARM Cortex-A76"),
    (0x41, 0xd0c, "ARM Neoverse-N1"),
    (0x41, 0xd40, "ARM Neoverse-V1"),
    (0x41, 0xd49, "ARM Neoverse-N2"),
    (0x41, 0xd4f, "ARM Neoverse-V2"),
    (0x41, 0xd84, "ARM Neoverse-V3"),
    (0x41, 0xd8e, "ARM Neoverse-N3"),
    (0xc0, 0xac3, "Ampere-1"),
    (0xc0, 0xac4, "Ampere-1a"),
];

/// The model that the text of `/proc/cpuinfo` names. An ARM core that is not known here is given by its numbers; empty where
/// there is nothing.
pub(crate) fn cpu_model(cpuinfo: &str) -> String {
    let name = field(cpuinfo, "model name");
    if !name.is_empty() {
        return name;
    }
    let number = |name| u32::from_str_radix(field(cpuinfo, name).trim_start_matches("0x"), 16);
    let (Ok(implementer), Ok(part)) = (number("CPU implementer"), number("CPU part")) else {
        return String::new();
    };
    let known = ARM_CORES.iter().find(|core| (core.0, core.1) == (implementer, part));
    known
        .map_or_else(|| format!("ARM implementer {implementer:#x}, part {part:#x}"), |core| core.2.to_owned())
}

/// The value of the first `name : value` line; empty where there is none.
pub(crate) fn field(text: &str, name: &str) -> String {
    let value = text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim().to_owned())
    });
    value.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_found_by_name_or_number() {
        let x86 = "processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel\t\t: 1\nmodel name\t: AMD EPYC 7543P\n";
        assert_eq!(cpu_model(x86), "AMD EPYC 7543P");
        let arm = |implementer: &str, part: &str| {
            cpu_model(&format!(
                "processor\t: 0\nBogoMIPS\t: 243.75\nCPU implementer\t: {implementer}\nCPU part\t: {part}\n"
            ))
        };
        assert_eq!(arm("0x41", "0xd0c"), "ARM Neoverse-N1");
        assert_eq!(arm("0x48", "0xd01"), "ARM implementer 0x48, part 0xd01");
        assert_eq!(arm("0x41", "none"), "");
        assert_eq!(cpu_model(""), "");
    }

    #[test]
    fn fields_are_found_whatever_spaces_are_around_them() {
        assert_eq!(field("a\t: 1\nbc : 2 \n", "bc"), "2");
        assert_eq!(field("a\t: 1\nbc : 2 \n", "b"), "");
    }
}
