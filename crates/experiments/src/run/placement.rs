//! Which processors jobs are pinned to, and which steps this machine cannot do.

use std::path::Path;

use crate::report::Point;

/// Processors by core: each inner list is the threads of one core, the first of them first.
fn cores() -> Vec<Vec<u32>> {
    let cores = cores_in(Path::new("/sys/devices/system/cpu"));
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    usable(cores, &online, &status)
}

/// Those of a folder of the kernel, whatever their numbers: some may be missing in between, as where processors were taken out.
fn cores_in(folder: &Path) -> Vec<Vec<u32>> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let number = |name: &str| name.strip_prefix("cpu")?.parse::<u32>().ok();
    let mut processors: Vec<u32> = entries.filter_map(|entry| number(entry.file_name().to_str()?)).collect();
    processors.sort_unstable();
    let mut cores: Vec<Vec<u32>> = Vec::new();
    for processor in processors {
        let siblings = folder.join(format!("cpu{processor}/topology/thread_siblings_list"));
        let threads = parse_list(std::fs::read_to_string(siblings).unwrap_or_default().trim());
        let threads = if threads.is_empty() { vec![processor] } else { threads };
        if !cores.contains(&threads) {
            cores.push(threads);
        }
    }
    cores
}

/// Cores with the threads that are online and that this process may run on: no others are given to jobs, or these could not be pinned.
/// With SMT switched off the second threads are there, but offline, and still allowed. `status` is `/proc/self/status`.
fn usable(cores: Vec<Vec<u32>>, online: &str, status: &str) -> Vec<Vec<u32>> {
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let lists: Vec<Vec<u32>> =
        [online, allowed.unwrap_or_default()].into_iter().map(|list| parse_list(list.trim())).collect();
    // A list that cannot be read says nothing.
    let is_usable = |thread: &u32| lists.iter().all(|list| list.is_empty() || list.contains(thread));
    let of_core = |threads: Vec<u32>| -> Vec<u32> { threads.into_iter().filter(is_usable).collect() };
    cores.into_iter().map(of_core).filter(|threads| !threads.is_empty()).collect()
}

/// `0-1,4` as 0, 1, 4.
fn parse_list(text: &str) -> Vec<u32> {
    let mut processors = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.parse::<u32>(), last.parse::<u32>())
            && last.saturating_sub(first) < 4096
        {
            processors.extend(first..=last);
        }
    }
    processors
}

/// The processors for a point's jobs; `None` if nothing is pinned.
pub fn processors(point: &Point) -> Option<Vec<u32>> {
    let placement = point.placement.as_deref()?;
    choose(placement, point.jobs, &cores()).ok()
}

/// Physical cores on which a point's jobs lie; `None` if nothing is pinned.
pub fn cores_pinned(point: &Point) -> Option<u32> {
    point.placement.as_deref()?;
    Some(count_cores(&processors(point)?, &cores()))
}

/// Cores that any of these processors is a thread of.
fn count_cores(processors: &[u32], cores: &[Vec<u32>]) -> u32 {
    let holds_any = |threads: &&Vec<u32>| threads.iter().any(|thread| processors.contains(thread));
    cores.iter().filter(holds_any).count() as u32
}

fn choose(placement: &str, jobs: u32, cores: &[Vec<u32>]) -> Result<Vec<u32>, String> {
    let jobs = jobs as usize;
    match placement {
        "siblings" => {
            let pairs: Vec<u32> =
                cores.iter().filter(|threads| threads.len() >= 2).flatten().copied().collect();
            if cores.iter().all(|threads| threads.len() < 2) {
                return Err("the cores of this machine have one thread each, or do not say".to_owned());
            }
            if !jobs.is_multiple_of(2) {
                return Err("one job has no sibling".to_owned());
            }
            if pairs.len() < jobs {
                return Err(format!("{jobs} threads of pairs are needed, this machine has {}", pairs.len()));
            }
            Ok(pairs[..jobs].to_vec())
        }
        _ => {
            let firsts: Vec<u32> = cores.iter().filter_map(|threads| threads.first().copied()).collect();
            if firsts.len() < jobs {
                return Err(format!("{jobs} cores are needed, this machine has {}", firsts.len()));
            }
            Ok(firsts[..jobs].to_vec())
        }
    }
}

/// Why this machine cannot do a point on a target with so many drives, if it cannot.
pub fn refusal(point: &Point, drives: u32) -> Option<String> {
    if let Some(wanted) = point.drives
        && wanted > drives
    {
        return Some(format!("{wanted} drives are needed, the target has {drives}"));
    }
    let placement = point.placement.as_deref()?;
    choose(placement, point.jobs, &cores()).err()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_lie_on_whole_cores_or_on_pairs() {
        let cores = [vec![0, 4], vec![1, 5], vec![2, 6], vec![3, 7]];
        assert_eq!(choose("whole cores", 2, &cores), Ok(vec![0, 1]));
        assert_eq!(choose("siblings", 4, &cores), Ok(vec![0, 4, 1, 5]));
        assert_eq!(count_cores(&[0, 4, 1, 5], &cores), 2, "siblings share a core");
        assert_eq!(count_cores(&[0, 1, 2, 3], &cores), 4);
        assert!(choose("siblings", 1, &cores).is_err());
        assert!(choose("whole cores", 8, &cores).unwrap_err().contains("this machine has 4"));
        assert!(choose("siblings", 2, &[vec![0], vec![1]]).is_err());
    }

    #[test]
    fn processors_that_are_not_allowed_get_no_jobs() {
        let cores = vec![vec![0, 4], vec![1, 5], vec![2, 6], vec![3, 7]];
        let status = "Name:\tcoquina\nCpus_allowed:\t2f\nCpus_allowed_list:\t0-3,5\n";
        let usable_here = usable(cores.clone(), "0-7\n", status);
        assert_eq!(usable_here, [vec![0], vec![1, 5], vec![2], vec![3]]);
        assert!(choose("siblings", 4, &usable_here).unwrap_err().contains("this machine has 2"));
        assert_eq!(usable(cores.clone(), "", ""), cores);
    }

    #[test]
    fn processors_that_are_offline_get_no_jobs() {
        // As with SMT switched off: the second threads are in no list of siblings, but allowed.
        let cores: Vec<Vec<u32>> = (0..8).map(|processor| vec![processor]).collect();
        let found = usable(cores, "0-3\n", "Cpus_allowed_list:\t0-7\n");
        assert_eq!(found, [vec![0], vec![1], vec![2], vec![3]]);
        assert!(choose("whole cores", 8, &found).unwrap_err().contains("this machine has 4"));
    }

    #[test]
    fn processors_behind_a_missing_number_are_found() {
        let folder = tempfile::tempdir().unwrap();
        for (processor, siblings) in [(0, "0,4"), (1, "1,5"), (4, "0,4"), (5, "1,5"), (10, "10")] {
            let topology = folder.path().join(format!("cpu{processor}/topology"));
            std::fs::create_dir_all(&topology).unwrap();
            std::fs::write(topology.join("thread_siblings_list"), siblings).unwrap();
        }
        std::fs::create_dir(folder.path().join("cpufreq")).unwrap();
        assert_eq!(cores_in(folder.path()), [vec![0, 4], vec![1, 5], vec![10]]);
    }

    #[test]
    fn lists_of_processors_are_read() {
        assert_eq!(parse_list("0-1,4"), [0, 1, 4]);
        assert!(parse_list("").is_empty() && parse_list("a-b").is_empty());
    }
}
